//! Dry runs of `install` and `uninstall` against a fake API server.

use globalps_core::names;
use serde_json::{Value, json};

use super::{deployment, refused, rolled_out};
use crate::error::Exit;
use crate::testing::fake_api::{CommandLine as _, FakeApi, Right, path};

const INSTALL: &str = "install --apply --controller-image r/c:2 --syncer-image r/s:2";

fn installed() -> FakeApi {
    let mut live = deployment(names::NAMESPACE, 1, 1);
    live["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "globalps"});
    FakeApi::new(&[(&path("deployments", names::CONTROLLER), live)])
}

#[test]
fn a_dry_run_of_install_changes_nothing() {
    for line in [INSTALL, "fleet install --image r/h:1 -A --apply"] {
        for how in ["client", "server"] {
            let api = installed();
            let before = api.object(&path("deployments", names::CONTROLLER));
            let ran = api.run(&format!("{line} --dry-run={how} --timeout 1s"));
            assert_eq!(ran, Ok(Exit::Done), "{line} {how}");
            assert_eq!(
                api.object(&path("deployments", names::CONTROLLER)),
                before,
                "{line}"
            );
            assert_eq!(
                api.object("/api/v1/namespaces/globalps-system"),
                None,
                "{line}"
            );
            let writes = api.writes().len();
            assert_eq!(
                writes > 5,
                how == "server",
                "{line} {how}: {:?}",
                api.writes()
            );
        }
    }
}

#[test]
fn an_install_reads_before_it_writes_and_asks_nothing_for_new() {
    let api = FakeApi::new(&[]);
    let failure = refused(api.run(&format!("{INSTALL} --timeout 1s")));
    assert!(failure.message.contains("did not establish"), "{failure:?}");
    let requests = api.requests();
    let namespace = "/api/v1/namespaces/globalps-system";
    let at = |wanted: &str| {
        requests
            .iter()
            .position(|it| *it == format!("{wanted} {namespace}"))
    };
    assert!(
        at("get") < at("patch") && at("get").is_some(),
        "{requests:?}"
    );
}

#[test]
fn an_install_names_the_image_that_is_missing() {
    for (flags, message, hint) in [
        (
            "--controller-image r/c:1",
            "the syncer's image is missing, and globalps is not installed",
            "pass it with `--syncer-image`",
        ),
        (
            "--syncer-image r/s:1",
            "the controller's image is missing, and globalps is not installed",
            "pass it with `--controller-image`",
        ),
        (
            "",
            "the controller's and the syncer's images are missing, and globalps is not installed",
            "pass them with `--controller-image` and `--syncer-image`",
        ),
    ] {
        let failure = refused(FakeApi::new(&[]).run(&format!("install --apply {flags}")));
        assert_eq!(
            (failure.message.as_str(), failure.hint.as_str()),
            (message, hint)
        );
    }
}

#[test]
fn what_can_t_be_compared_does_not_stop_an_install() {
    // The user may write what they may not read. A prompt could not be answered.
    let right = |verb: &str, resource: &str, namespace: &str, name: &str| Right {
        verb: verb.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let crds = "customresourcedefinitions.apiextensions.k8s.io";
    let rights = || {
        vec![
            right("get", "deployments.apps", names::CONTROLLER_NAMESPACE, ""),
            right("get", "globalpullsecrets.globalps.io", names::NAMESPACE, ""),
            right("patch", crds, "", ""),
        ]
    };
    let api = FakeApi::new(&[]).allow_only(rights());
    let failure = refused(api.run(&format!("{INSTALL} --yes --timeout 1s")));
    assert!(
        failure.message.contains("could not be watched"),
        "{failure:?}"
    );
    let crd = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodepullsecrets.{}",
        names::GROUP
    );
    assert!(api.object(&crd).is_some(), "{:?}", api.requests());
    // A dry run only compares.
    let api = FakeApi::new(&[]).allow_only(rights());
    let failure = refused(api.run(&format!("{INSTALL} --dry-run=server")));
    assert!(failure.is(403), "{failure:?}");
}

#[test]
fn a_dry_run_of_uninstall_changes_nothing() {
    for how in ["client", "server"] {
        let api = rolled_out();
        let ran = api.run(&format!("uninstall --dry-run={how} --yes --timeout 1s"));
        assert_eq!(ran, Ok(Exit::Done), "{how}");
        for (resource, name) in [
            ("secrets", names::ADDITIONAL_SECRET),
            ("deployments", names::CONTROLLER),
            ("nodepullsecrets", "node-1"),
        ] {
            let left: Option<Value> = api.object(&path(resource, name));
            assert!(left.is_some(), "{how}: {resource}/{name}");
        }
        let writes = api.writes().len();
        assert_eq!(writes > 5, how == "server", "{how}: {:?}", api.writes());
    }
}
