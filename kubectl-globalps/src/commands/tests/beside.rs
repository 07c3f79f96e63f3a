//! Other tools in the cluster: passwords that they renew, and changes that they revert.

use globalps_core::names;
use serde_json::{Value, json};

use super::{AUTH, deployment, gps, in_force, node, refused};
use crate::error::Exit;
use crate::testing::fake_api::{CommandLine as _, FakeApi, path};

#[test]
fn check_warns_of_short_lived_passwords_that_restart_kubelets() {
    // `AWS:p`
    let ecr = [("1.dkr.ecr.eu-central-1.amazonaws.com", "QVdTOnA=")];
    for (delivery, is_warned) in [("ConfigFile", true), ("CredentialProvider", false)] {
        let spec = json!({"kubelet": {"delivery": delivery}});
        let api = FakeApi::new(&[
            (&path("secrets", names::GLOBAL_SECRET), in_force(&ecr, &[])),
            (
                &path("globalpullsecrets", names::GLOBAL_SECRET),
                gps("101", &spec, &[("Ready", "True", "Synced")]),
            ),
            (&path("nodepullsecrets", "node-1"), node("Synced")),
        ]);
        let (_, [out, _]) = api.printed("check");
        let warning = "the password for `1.dkr.ecr.eu-central-1.amazonaws.com` lasts 12 hours, and each new one restarts every kubelet";
        assert_eq!(out.contains(warning), is_warned, "{out}");
    }
}

#[test]
fn pause_and_resume_warn_where_flux_reverts_them() {
    let flux = json!({"kustomize.toolkit.fluxcd.io/name": "pull-secrets"});
    let merge = json!({"kustomize.toolkit.fluxcd.io/ssa": "Merge"});
    for (labels, annotations, is_warned) in [
        (&json!({}), &json!({}), false),
        (&flux, &json!({}), true),
        (&flux, &merge, false),
    ] {
        for (paused, line) in [(false, "pause"), (true, "resume")] {
            let mut config = gps("101", &json!({"rollout": {"paused": paused}}), &[]);
            config["metadata"]["labels"] = labels.clone();
            config["metadata"]["annotations"] = annotations.clone();
            let api = FakeApi::new(&[
                (&path("globalpullsecrets", names::GLOBAL_SECRET), config),
                (
                    &path("deployments", names::CONTROLLER),
                    deployment(names::NAMESPACE, 1, 1),
                ),
            ]);
            let (ran, [_, err]) = api.printed(line);
            assert_eq!(ran, Ok(Exit::Done), "{err}");
            let warning = "warning: Flux will revert this: set `spec.rollout.paused` at its source, or give the object the annotation `kustomize.toolkit.fluxcd.io/ssa: Merge`";
            assert_eq!(err.contains(warning), is_warned, "{line}: {err}");
        }
    }
}

/// The controller creates its configuration with the first pull secret. Before that, `check` reports no problem.
#[test]
fn before_the_first_registry_the_list_is_empty() {
    let (ran, [out, err]) = FakeApi::new(&[]).printed("list");
    assert_eq!((ran, out.as_str()), (Ok(Exit::Done), ""), "{err}");
    assert!(err.contains("no credentials are in force"), "{err}");
    assert!(err.contains("kubectl globalps add REGISTRY"), "{err}");
    let (_, [out, _]) = FakeApi::new(&[]).printed("list -o json");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["registries"], json!([]));
    let content = in_force(&[("quay.io", AUTH)], &[]);
    let api = FakeApi::new(&[(&path("secrets", names::GLOBAL_SECRET), content)]);
    let failure = refused(api.run("list"));
    assert!(
        failure.message.contains("no GlobalPullSecret"),
        "{failure:?}"
    );
}
