//! Whole commands against a fake API server.

mod answers;
mod beside;
mod broken_pods;
mod bundle;
mod deleted;
mod diagnosis;
mod dry_run;
mod golden;
mod install;
mod into_openshift;
mod openshift;
mod outages;
mod paused;
mod restore;
mod source;
mod unfinished;
mod verbs;
mod why;
mod why_advice;
mod why_broken;
mod why_images;
mod why_logins;

use clap::CommandFactory as _;
use globalps_core::names;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cli::Cli;
use crate::diagnose::check::{Permission, PermissionScope, permissions_of_commands};
use crate::error::{Exit, Failure, Result};
use crate::testing::examples::sample;
use crate::testing::fake_api::{CommandLine as _, FakeApi, Objects, Right, path, run};
use crate::testing::fake_objects::{config, deployment, kept, secret};

const AUTH: &str = "dTpw";
const OTHER_AUTH: &str = "dTpx";

/// The content in force: of the additional pull secret, and of the original.
fn in_force(additional: &[(&str, &str)], original: &[(&str, &str)]) -> Value {
    let merged: Vec<(&str, &str)> = original.iter().chain(additional).copied().collect();
    let mut global = kept("3", &merged);
    global["data"][names::LAST_ADDITIONAL_KEY] = config(additional);
    global["data"][names::LAST_ORIGINAL_KEY] = config(original);
    global
}

/// `observed`: resource version of the additional pull secret that the controller has seen.
fn gps(observed: &str, spec: &Value, conditions: &[(&str, &str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(type_, status, reason)| {
            json!({
                "type": type_, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "GlobalPullSecret",
        "metadata": {"generation": 1, "uid": "gps-1"},
        "spec": spec,
        "status": {
            "observedGeneration": 1, "observedAdditional": observed, "revision": 3, "conditions": conditions,
        },
    })
}

fn node(phase: &str) -> Value {
    json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret", "metadata": {"generation": 1},
        "spec": {"revision": 3},
        "status": {"observedGeneration": 1, "revision": 3, "phase": phase},
    })
}

fn refused(ran: Result<Exit>) -> Failure {
    match ran {
        Ok(exit) => unreachable!("not refused: {exit:?}"),
        Err(failure) => failure,
    }
}

const ADD: &str = "add --registry quay.io -u robot -p p --skip-check";

#[test]
fn an_installation_stays_in_its_namespace() {
    for (flags, asked) in [
        ("", "kube-system"),
        ("--pull-secret-namespace other", "other"),
    ] {
        let api = FakeApi::new(&[(
            &path("deployments", names::CONTROLLER),
            deployment("team", 1, 1),
        )]);
        let line =
            format!("install --apply --controller-image c --syncer-image s --timeout 1s {flags}");
        let failure = refused(api.run(&line));
        let expected = format!("globalps is installed for namespace `team`, not for `{asked}`");
        assert_eq!(failure.message, expected);
        assert!(
            failure.hint.contains("--pull-secret-namespace team"),
            "{failure:?}"
        );
        assert_eq!(api.writes(), [""; 0], "{flags}");
    }
}

/// The node was assigned the revision just now, by the cluster's clock.
#[test]
fn an_admin_whose_clock_is_ahead_sees_no_node_as_unresponsive() {
    let ahead = 300;
    let assigned = Timestamp::now() - SignedDuration::from_secs(ahead);
    let mut assigning = node("Synced");
    assigning["metadata"]["generation"] = json!(2);
    assigning["spec"]["assignedAt"] = json!(assigned);
    for (has_date, expected, other) in [
        (true, "Syncing", "Unreachable"),
        (false, "Unreachable", "Syncing"),
    ] {
        let api = FakeApi::new(&[
            (
                &path("globalpullsecrets", names::GLOBAL_SECRET),
                gps("1", &json!({}), &[]),
            ),
            (&path("nodepullsecrets", "node-1"), assigning.clone()),
        ]);
        let api = if has_date {
            api.with_clock_behind(ahead)
        } else {
            api
        };
        let (_, [out, _]) = api.printed("status");
        assert!(out.contains(expected), "{has_date}: {out}");
        assert!(!out.contains(other), "{has_date}: {out}");
    }
}

#[test]
fn nothing_is_written_where_no_controller_watches() {
    for line in [ADD, "undo --yes", "pause"] {
        let api = FakeApi::new(&[(
            &path("deployments", names::CONTROLLER),
            deployment("team", 1, 1),
        )]);
        let failure = refused(api.run(line));
        let expected = "the controller watches namespace `team`, not `kube-system`";
        assert_eq!(failure.message, expected, "{line}");
        assert!(
            failure.hint.contains("--pull-secret-namespace team"),
            "{failure:?}"
        );
        assert_eq!(api.writes(), [""; 0], "{line}");
    }
}

#[test]
fn explain_looks_where_the_credentials_are() {
    let objects = [
        (
            path("secrets", names::GLOBAL_SECRET),
            in_force(&[("quay.io", AUTH)], &[]),
        ),
        (
            path("globalpullsecrets", names::GLOBAL_SECRET),
            gps("", &json!({}), &[]),
        ),
        (
            "/api/v1/namespaces/a/pods/b".to_owned(),
            json!({"metadata": {"namespace": "a"}, "spec": {"containers": [], "serviceAccountName": "default"}}),
        ),
    ];
    let objects: Vec<(&str, Value)> = objects
        .iter()
        .map(|(path, object)| (path.as_str(), object.clone()))
        .collect();
    let installed = (
        path("deployments", names::CONTROLLER),
        deployment(names::NAMESPACE, 1, 1),
    );
    for is_readable in [true, false] {
        let mut objects = objects.clone();
        if is_readable {
            objects.push((&installed.0, installed.1.clone()));
        }
        let api = FakeApi::new(&objects);
        let ran = api.run("explain quay.io/org/app:1 --pod a/b -n a");
        assert_eq!(ran, Ok(Exit::Done), "{is_readable}");
    }
}

#[test]
fn explain_names_credentials_that_others_shadow() {
    let global = in_force(
        &[("https://index.docker.io/v1/", AUTH)],
        &[("docker.io", OTHER_AUTH)],
    );
    for (registry, image, is_named) in [
        ("docker.io", "nginx", true),
        ("https://index.docker.io/v1/", "library/nginx:1", true),
        ("registry-1.docker.io", "docker.io/org/app", true),
        ("index.docker.io", "quay.io/org/app", false),
    ] {
        let mut config = gps("", &json!({}), &[]);
        config["status"]["conflicts"] = json!([{"registry": registry, "effective": "Additional"}]);
        let api = FakeApi::new(&[
            (&path("secrets", names::GLOBAL_SECRET), global.clone()),
            (&path("globalpullsecrets", names::GLOBAL_SECRET), config),
        ]);
        let (_, printed) = api.printed(&format!("explain {image}"));
        let expected = format!(
            "`{registry}`: the credentials of the additional pull secret are effective, those of the original are shadowed"
        );
        let is_found = printed.iter().any(|text| text.contains(&expected));
        assert_eq!(is_found, is_named, "{image}: {printed:?}");
    }
}

/// Metadata of a Secret that the controller of Sealed Secrets creates from the documented manifest. Its field manager
/// has an uninformative name.
fn of_sealed_secret() -> Value {
    let page = include_str!("../../../docs/ecosystem.md");
    let block = page.split_once("<!-- test: sealed-secret -->\n```yaml\n");
    let block = block.and_then(|(_, below)| below.split_once("```"));
    let sealed: Value = serde_saphyr::from_str(block.expect("a manifest").0).expect("YAML");
    json!({
        "ownerReferences": [{
            "apiVersion": sealed["apiVersion"], "kind": sealed["kind"], "name": sealed["metadata"]["name"],
            "uid": "u", "controller": true,
        }],
        "managedFields": [{
            "manager": "controller", "operation": "Update",
            "fieldsV1": {"f:data": {".": {}, "f:.dockerconfigjson": {}}, "f:metadata": {"f:ownerReferences": {}}},
        }],
    })
}

#[test]
fn what_another_program_owns_is_not_undone_or_removed() {
    const COMMANDS: [&str; 4] = [
        "undo --yes",
        ADD,
        "remove --registry quay.io --yes",
        "remove --all --yes",
    ];
    let owned = |metadata: &Value| {
        let mut secret = secret(&[("quay.io", AUTH), ("ghcr.io", AUTH)]);
        json_patch::merge(&mut secret["metadata"], metadata);
        secret
    };
    let manager = json!({"managedFields": [{
        "manager": "argocd-controller", "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}},
    }]});
    for (at, (metadata, owner)) in [
        (manager, "argocd-controller"),
        (
            json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}}),
            "Helm",
        ),
        (
            json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}),
            "Flux",
        ),
        (
            json!({"labels": {"reconcile.external-secrets.io/managed": "true"}}),
            "External Secrets",
        ),
        (
            json!({"annotations": {"argocd.argoproj.io/tracking-id": "x"}}),
            "Argo CD",
        ),
        (
            json!({"ownerReferences": [{
                "apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "name": "e", "uid": "u", "controller": true,
            }]}),
            "ExternalSecret/e",
        ),
        (
            of_sealed_secret(),
            "SealedSecret/additional-pull-secret",
        ),
    ]
    .iter()
    .enumerate()
    {
        let lines = if at == 0 { &COMMANDS[..] } else { &COMMANDS[..1] };
        for line in lines {
            let api = FakeApi::new(&[
                (&path("secrets", names::ADDITIONAL_SECRET), owned(metadata)),
                (
                    &path("secrets", &names::history_secret(0)),
                    kept("2", &[("docker.io", AUTH)]),
                ),
                (&path("nodepullsecrets", "node-1"), node("Synced")),
            ]);
            let failure = refused(api.run(line));
            let expected = format!(
                "Secret `additional-pull-secret` belongs to `{owner}`, which would undo the change"
            );
            assert_eq!(failure.message, expected, "{line}");
            assert_eq!(api.writes(), [""; 0], "{line}");
            let forced = format!("{line} --force-conflicts");
            assert_eq!(api.run(&forced), Ok(Exit::Done), "{forced}");
        }
    }
}

#[test]
fn what_is_immutable_is_refused_before_the_api_server_does() {
    for line in [ADD, "undo --yes", "remove --registry quay.io --yes"] {
        let mut immutable = secret(&[("quay.io", OTHER_AUTH), ("ghcr.io", AUTH)]);
        immutable["immutable"] = json!(true);
        let api = FakeApi::new(&[
            (&path("secrets", names::ADDITIONAL_SECRET), immutable),
            (
                &path("secrets", &names::history_secret(0)),
                kept("2", &[("docker.io", AUTH)]),
            ),
            (&path("nodepullsecrets", "node-1"), node("Synced")),
        ]);
        let failure = refused(api.run(line));
        let expected = "Secret `additional-pull-secret` is immutable";
        assert_eq!(failure.message, expected, "{line}");
        assert_eq!(api.writes(), [""; 0], "{line}");
    }
}

#[test]
fn a_wait_ends_where_nothing_will_happen() {
    let paused = json!({"rollout": {"paused": true}});
    let none = json!({});
    let rolling_out = [("Ready", "False", "RollingOut")];
    let no_nodes = [("Ready", "False", "NoNodes")];
    let halted = [
        ("Ready", "False", "RollingOut"),
        ("Degraded", "True", "RolloutHalted"),
    ];
    for (sentence, observed, spec, conditions, phase, deployment, expected) in [
        (
            "paused",
            "101",
            &paused,
            &rolling_out[..],
            "Pending",
            deployment("kube-system", 1, 1),
            "the rollout is paused",
        ),
        (
            "halted",
            "101",
            &none,
            &halted,
            "RolledBack",
            deployment("kube-system", 1, 1),
            "the rollout stopped",
        ),
        (
            "no nodes",
            "101",
            &none,
            &no_nodes,
            "Excluded",
            deployment("kube-system", 1, 1),
            "no node is selected",
        ),
        (
            "no controller",
            "",
            &none,
            &rolling_out,
            "Pending",
            deployment("kube-system", 0, 0),
            "the controller is not running: Deployment `globalps-system/globalps-controller` has 0 replicas",
        ),
    ] {
        let api = FakeApi::new(&[
            (
                &path("secrets", names::ADDITIONAL_SECRET),
                secret(&[("quay.io", AUTH)]),
            ),
            (
                &path("globalpullsecrets", names::GLOBAL_SECRET),
                gps(observed, spec, conditions),
            ),
            (&path("nodepullsecrets", "node-1"), node(phase)),
            (&path("deployments", names::CONTROLLER), deployment),
        ]);
        let failure = refused(api.run("status --wait --timeout 2s"));
        assert!(
            failure.message.starts_with(expected),
            "{sentence}: {failure:?}"
        );
    }
}

#[test]
fn a_wait_for_a_node_that_is_not_there_fails() {
    // Each takes seconds.
    std::thread::scope(|scope| {
        for flags in ["--node new", "--node node-1 --node new"] {
            scope.spawn(move || {
                let api = rolled_out().with_controller(act);
                let failure = refused(api.run(&format!("status --wait --timeout 2s {flags}")));
                assert_eq!(failure.exit, Exit::No, "{flags}");
                let message = &failure.message;
                let expected = "globalps has no node `new`";
                assert!(message.contains(expected), "{flags}: {message}");
            });
        }
    });
    let api = rolled_out().with_controller(act);
    let ran = api.run("status --wait --timeout 20s --node node-1");
    assert_eq!(ran, Ok(Exit::Done));
}

#[test]
fn undo_does_not_go_back_where_another_pull_secret_is_the_cause() {
    let content = [("quay.io", OTHER_AUTH)];
    let proven = |of: &str| {
        let mut global = in_force(&content, &[]);
        global["metadata"]["annotations"] = json!({
            names::REVISION_ANNOTATION: "3", names::ADDITIONAL_ROLLED_OUT_ANNOTATION: of,
        });
        let additional = path("secrets", names::ADDITIONAL_SECRET);
        rolled_out()
            .with_object(&path("secrets", names::GLOBAL_SECRET), global)
            .with_object(&additional, secret(&content))
    };
    let api = proven("3");
    let failure = refused(api.run("undo --yes"));
    assert!(failure.hint.contains("`spec.sources`"), "{failure:?}");
    assert!(failure.hint.contains("--to-revision"), "{failure:?}");
    assert_eq!(api.writes(), [""; 0]);
    assert_eq!(api.run("undo --to-revision 2 --yes"), Ok(Exit::Done));
    assert_eq!(
        proven("2").run("undo --yes"),
        Ok(Exit::Done),
        "an earlier one"
    );
    // The Secret has changed since.
    let changed = rolled_out();
    let changed = changed.with_object(
        &path("secrets", names::GLOBAL_SECRET),
        proven("3")
            .object(&path("secrets", names::GLOBAL_SECRET))
            .expect("one"),
    );
    assert_eq!(changed.run("undo --yes"), Ok(Exit::Done));
}

#[test]
fn leftovers_of_another_installation_are_not_removed_as_well() {
    let deployed = deployment("team", 1, 1);
    let api = FakeApi::new(&[(&path("deployments", names::CONTROLLER), deployed)]);
    let failure = refused(api.run("uninstall --pull-secret-namespace other --yes"));
    let expected = "the controller watches namespace `team`, not `other`";
    assert_eq!(failure.message, expected);
    assert!(
        !failure.hint.contains("--pull-secret-namespace team"),
        "{failure:?}"
    );
    assert!(failure.hint.contains("kubectl -n other delete daemonset"));
    assert_eq!(api.writes(), [""; 0]);
}

#[test]
fn what_add_takes_remove_takes() {
    let api = FakeApi::new(&[(
        &path("secrets", names::ADDITIONAL_SECRET),
        secret(&[
            ("https://registry-1.docker.io/v2/", AUTH),
            ("hub.docker.com", AUTH),
            ("intern", AUTH),
            ("quay.io", AUTH),
        ]),
    )]);
    for name in ["registry-1.docker.io", "hub.docker.com", "intern"] {
        let ran = api.run(&format!("remove --registry {name} --yes"));
        assert_eq!(ran, Ok(Exit::Done), "{name}");
    }
    let failure = refused(api.run("remove --registry hub.docker.com --yes"));
    assert!(failure.hint.contains("Docker Hub"), "{failure:?}");
}

#[test]
fn a_huge_timeout_is_no_timeout() {
    for timeout in ["18446744073709551615", "9223372036854775807s"] {
        let api = FakeApi::new(&[
            (
                &path("secrets", names::ADDITIONAL_SECRET),
                secret(&[("quay.io", AUTH)]),
            ),
            (
                &path("globalpullsecrets", names::GLOBAL_SECRET),
                gps("101", &json!({}), &[("Ready", "True", "Synced")]),
            ),
            (&path("nodepullsecrets", "node-1"), node("Synced")),
        ]);
        let line = format!("status --wait --timeout {timeout} --request-timeout {timeout}");
        assert_eq!(api.run(&line), Ok(Exit::Done));
    }
}

/// Applies the controller's reaction to the change.
fn act(objects: &mut Objects) {
    let additional = objects.get(&path("secrets", names::ADDITIONAL_SECRET));
    let version = additional.map(|secret| secret["metadata"]["resourceVersion"].clone());
    if version.is_none() {
        objects.retain(|path, _| !path.contains("/nodepullsecrets/"));
        objects.remove(&path("secrets", names::GLOBAL_SECRET));
    }
    for name in ["node-1", "node-2"] {
        if let Some(object) = objects.get_mut(&path("nodepullsecrets", name)) {
            object["status"]["phase"] = json!("Synced");
        }
    }
    let config = objects.get_mut(&path("globalpullsecrets", names::GLOBAL_SECRET));
    let config = config.expect("a GlobalPullSecret");
    config["status"]["observedGeneration"] = config["metadata"]["generation"].clone();
    config["status"]["observedAdditional"] = json!(version.unwrap_or(json!("")));
    config["status"]["conditions"] =
        gps("", &json!({}), &[("Ready", "True", "Synced")])["status"]["conditions"].clone();
}

/// Everything that the commands read.
fn rolled_out() -> FakeApi {
    rolled_out_with(&json!({}))
}

/// `spec`: of the `GlobalPullSecret`.
fn rolled_out_with(spec: &Value) -> FakeApi {
    FakeApi::new(&[
        (
            &path("secrets", names::ADDITIONAL_SECRET),
            secret(&[("quay.io", OTHER_AUTH), ("ghcr.io", AUTH)]),
        ),
        (
            &path("secrets", names::GLOBAL_SECRET),
            in_force(&[("quay.io", OTHER_AUTH)], &[]),
        ),
        (
            &path("secrets", &names::history_secret(0)),
            kept("2", &[("docker.io", AUTH)]),
        ),
        (
            &path("globalpullsecrets", names::GLOBAL_SECRET),
            gps("101", spec, &[("Ready", "False", "RollingOut")]),
        ),
        (&path("nodepullsecrets", "node-1"), node("Synced")),
        (&path("nodepullsecrets", "node-2"), node("RolledBack")),
        (&path("nodes", "node-1"), json!({"metadata": {}})),
        (
            &path("deployments", names::CONTROLLER),
            deployment(names::NAMESPACE, 1, 1),
        ),
    ])
}

fn right(permission: &Permission) -> Right {
    let group = match permission.group {
        "" => String::new(),
        group => format!(".{group}"),
    };
    let namespace = match permission.place {
        PermissionScope::Secrets => names::NAMESPACE,
        PermissionScope::Controller => names::CONTROLLER_NAMESPACE,
        PermissionScope::Cluster => "",
    };
    Right {
        verb: permission.verb.to_owned(),
        resource: format!("{}{group}", permission.resource),
        namespace: namespace.to_owned(),
        name: permission.name.clone(),
    }
}

#[test]
fn check_names_exactly_the_permissions_that_each_command_needs() {
    const LIMIT: u32 = 2;
    let all = permissions_of_commands(LIMIT);
    for (line, commands) in [
        ("status", &["status"][..]),
        ("status --wait", &["status", "--wait"]),
        ("list", &["list"]),
        ("diff", &["diff"]),
        (ADD, &["add"]),
        (&format!("{ADD} --wait"), &["add", "--wait"]),
        (
            "remove --registry quay.io --yes --wait",
            &["remove", "--wait"],
        ),
        ("remove --all --yes --wait", &["remove --all", "--wait"]),
        ("history", &["history"]),
        ("undo --yes --wait", &["undo", "--wait"]),
        ("pause", &["pause"]),
        ("resume --wait", &["resume", "--wait"]),
        ("retry", &["retry"]),
        ("retry --wait", &["retry", "--wait"]),
        ("explain quay.io/org/app:1", &["explain"]),
    ] {
        let timeout = if line.contains("--wait") {
            " --timeout 5s"
        } else {
            ""
        };
        let line = &format!("{line}{timeout}");
        let is_named = |permission: &&Permission| {
            let mut named = permission.commands.iter();
            named.any(|named| commands.contains(named))
        };
        let needed: Vec<&Permission> = all.iter().filter(is_named).collect();
        let rights = needed.iter().map(|permission| right(permission)).collect();
        // `resume` needs a paused rollout.
        let spec = json!({"rollout": {"paused": line.starts_with("resume")}});
        let api = rolled_out_with(&spec)
            .with_controller(act)
            .allow_only(rights);
        let ran = api.run(line);
        assert!(ran.is_ok(), "{line}: {ran:?} {:?}", api.requests());
        for missing in needed {
            let covers = |it: &&Permission| right(it).covers(&right(missing));
            let rights = all.iter().filter(|it| !covers(it)).map(right);
            // A rollout that does not end; otherwise it may end before the watch's 403 arrives.
            let api = rolled_out_with(&spec).allow_only(rights.collect());
            let ran = api.run(line);
            let is_refused = ran.as_ref().is_err_and(|failure| failure.is(403));
            assert!(is_refused, "{line} without {missing:?}: {ran:?}");
        }
    }
}

#[test]
fn a_client_dry_run_needs_no_cluster() {
    let without_cluster = |line: &str| {
        let flags = ["--kubeconfig", "/dev/null"];
        run(line.split_whitespace().chain(flags))
    };
    for flags in ["", "-o yaml", "--source team-a"] {
        let line = format!("{ADD} --dry-run=client {flags}");
        assert_eq!(without_cluster(&line), Ok(Exit::Done), "{flags}");
    }
    let new = "fleet add team-a --registry quay.io -u robot -p p --skip-check";
    for flags in ["--registered", "--cluster-selector env=prod --source s"] {
        let line = format!("{new} {flags} --dry-run=client");
        assert_eq!(without_cluster(&line), Ok(Exit::Done), "{flags}");
    }
    let existing = format!("{new} --dry-run=client");
    let server = format!("{new} --registered --dry-run=server");
    for line in [ADD, "status", "diff", &existing, &server] {
        let failure = refused(without_cluster(line));
        assert!(
            failure.message.starts_with("no cluster is configured"),
            "{line}: {failure:?}"
        );
    }
}

#[test]
fn a_dry_run_of_remove_changes_nothing() {
    for line in [
        "remove quay.io --dry-run",
        "remove quay.io ghcr.io --dry-run=client",
        "remove --all --dry-run",
    ] {
        let api = rolled_out();
        assert_eq!(api.run(line), Ok(Exit::Done), "{line}");
        assert_eq!(api.writes(), [""; 0], "{line}");
    }
    let api = rolled_out();
    assert_eq!(api.run("remove quay.io --dry-run=server"), Ok(Exit::Done));
    assert_eq!(api.writes().len(), 1);
    let left = api.object(&path("secrets", names::ADDITIONAL_SECRET));
    let before = rolled_out().object(&path("secrets", names::ADDITIONAL_SECRET));
    assert_eq!(left, before);
    assert_eq!(api.run("remove quay.io --yes"), Ok(Exit::Done));
    let left = api.object(&path("secrets", names::ADDITIONAL_SECRET));
    assert_eq!(
        left.expect("one")["data"][names::DATA_KEY],
        config(&[("ghcr.io", AUTH)])
    );
}

#[test]
fn history_shows_one_revision() {
    assert_eq!(rolled_out().run("history --revision 2"), Ok(Exit::Done));
    let failure = refused(rolled_out().run("history --revision 7"));
    assert_eq!(failure.message, "revision 7 is not kept");
}

#[test]
fn list_shows_what_it_may_read_and_names_the_rest() {
    let all = permissions_of_commands(3);
    let needed: Vec<&Permission> = all.iter().filter(|it| it.is_for("list")).collect();
    let rights = |without: (&str, &str)| {
        let kept = needed.iter();
        let kept = kept.filter(|it| (it.resource, it.name.as_str()) != without);
        kept.map(|permission| right(permission)).collect()
    };
    let listed = |without: (&str, &str)| {
        let api = sample().allow_only(rights(without));
        let (ran, [out, err]) = api.printed("list");
        assert_eq!(ran, Ok(Exit::Done), "{without:?}: {err}");
        (out, err)
    };
    let (out, err) = listed(("", ""));
    assert!(
        out.contains("original openshift-config/pull-secret"),
        "{out}"
    );
    // A user who may not list Secrets in all namespaces doesn't see how many namespaces have those of a scope.
    assert!(
        err.contains("this user may not list Secrets `global-pull-secret` of all namespaces"),
        "{err}"
    );
    for (without, missing, is_shown) in [
        (
            ("secrets", names::GLOBAL_SECRET),
            "get Secret `global-pull-secret`: users, revisions, and registries of the additional and the original pull secret are missing",
            "ghcr.io           team-a-pull-secret",
        ),
        (
            ("secrets", names::history_secret(1).as_str()),
            "get the Secrets `additional-pull-secret-history-0` and so on: revisions may be later than the first one, and ages are missing",
            "quay.io     robot",
        ),
        (
            ("nodepullsecrets", ""),
            "list nodepullsecrets: the number of nodes is missing",
            "quay.io     robot",
        ),
    ] {
        let (out, err) = listed(without);
        let expected = format!("warning: this user may not {missing}");
        assert!(err.contains(&expected), "{without:?}: {err}");
        assert!(out.contains(is_shown), "{without:?}: {out}");
    }
    let (ran, [out, err]) = sample().printed("list -o name");
    assert_eq!((ran, err.as_str()), (Ok(Exit::Done), ""));
    assert_eq!(out, "docker.io\nghcr.io\nquay.io\n");
}

#[test]
fn status_says_whether_controller_and_syncers_run() {
    let head = |api: &FakeApi| {
        let (ran, [out, err]) = api.printed("status");
        assert_eq!(ran, Ok(Exit::No), "{err}");
        out.lines().skip(1).take(2).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        head(&sample()),
        "\
Controller   running, 2/2 replicas
Syncers      3/3 ready"
    );
    let all = permissions_of_commands(3);
    let needed = all.iter().filter(|it| it.commands.contains(&"status"));
    let api = sample().allow_only(needed.map(right).collect());
    assert_eq!(
        head(&api),
        "\
Controller   unknown: this user may not get its Deployment
Syncers      unknown: this user may not get their DaemonSet"
    );
    // A syncer on a node that is not ready does not count as starting.
    let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
    let node = |status| json!({"metadata": {}, "status": {"conditions": ready(status)}});
    let api = sample()
        .with_object(&path("nodes", "node-1"), node("True"))
        .with_object(&path("nodes", "node-3"), node("Unknown"))
        .with_object(&path("nodes", "other"), node("Unknown"))
        .with_object(
            &format!(
                "/apis/apps/v1/namespaces/{}/daemonsets/{}",
                names::NAMESPACE,
                names::SYNCER
            ),
            json!({
                "metadata": {"labels": {"app.kubernetes.io/managed-by": "globalps"}},
                "status": {
                    "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 2,
                },
            }),
        );
    assert!(
        head(&api).ends_with("Syncers      2/3 ready: 1 node is not Ready"),
        "{}",
        head(&api)
    );
    let (_, [out, _]) = api.printed("check");
    assert!(
        out.contains("2 of 3 syncers are ready: 1 node is not Ready"),
        "{out}"
    );
    // A program that does not run is reported even if there is nothing else to show.
    let api = FakeApi::new(&[(
        &path("deployments", names::CONTROLLER),
        deployment(names::NAMESPACE, 0, 0),
    )]);
    let (_, [out, _]) = api.printed("status");
    assert_eq!(
        out,
        "\
Controller   not running: Deployment `globalps-system/globalps-controller` has 0 replicas
Syncers      none: there is nothing to sync to nodes
"
    );
}

#[test]
fn every_command_prints_the_same_in_json_and_in_yaml() {
    for line in [
        "status",
        "status --namespaces",
        "list",
        "diff",
        "check",
        "history",
        "fleet status -A",
        "fleet status team-a -n clusters",
        "fleet diff team-a -n clusters",
        "explain quay.io/org/app:1",
        "version",
    ] {
        let of = |format: &str| {
            let (ran, [out, _]) = sample().printed(&format!("{line} -o {format}"));
            assert!(ran.is_ok(), "{line} -o {format}: {ran:?}");
            out
        };
        let json: Value = serde_json::from_str(&of("json")).expect("JSON");
        let yaml: Value = serde_saphyr::from_str(&of("yaml")).expect("YAML");
        assert_eq!(json, yaml, "{line}");
    }
}

#[test]
fn names_are_those_of_objects_and_wide_has_more_columns() {
    for (line, expected) in [
        (
            "status",
            "nodepullsecret.globalps.io/node-1\nnodepullsecret.globalps.io/node-2\nnodepullsecret.globalps.io/node-3\n",
        ),
        ("status --namespaces", "namespace/team-a\n"),
        (
            "history",
            "secret/global-pull-secret\nsecret/additional-pull-secret-history-0\n",
        ),
        ("fleet status -A", "fleetpullsecret.globalps.io/team-a\n"),
    ] {
        let (_, [out, _]) = sample().printed(&format!("{line} -o name"));
        assert_eq!(out, expected, "{line}");
    }
    for (line, column) in [
        ("status", "MESSAGE"),
        ("list", "EXPIRES"),
        ("history", "SECRET"),
    ] {
        for (flags, is_shown) in [("", false), ("-o wide", true)] {
            let (_, [out, _]) = sample().printed(&format!("{line} {flags}"));
            let header = out
                .lines()
                .find(|line| line.contains("   REVISION") || line.starts_with("REVISION"));
            let has_it = header.is_some_and(|header| header.contains(column));
            assert_eq!(has_it, is_shown, "{line} {flags}: {out}");
        }
    }
}

#[test]
fn a_file_here_is_a_command() {
    let command_line = Cli::command();
    let commands: Vec<&str> = command_line
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/commands");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).expect("the directory") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_str().expect("UTF-8").trim_end_matches(".rs");
        let is_command = commands.contains(&name) || ["mod", "tests"].contains(&name);
        assert!(is_command, "{name} is no command");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}
