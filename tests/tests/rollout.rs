//! Rollouts with obstacles: a node that another program manages, a failed node that is retried, a rollback of the
//! fleet, a new node that waits for a controller.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::shared::{Fleet, Shared, tests_on};
use common::{base64, decode, docker_config, roll_out, scale_controllers, write};
use globalps_testkit::broken_kubelet::{break_kubelet, mend_kubelet};
use globalps_testkit::product::{
    ADDITIONAL, CONFIG, DEADLINE, NAMESPACE, Product, configuration, merge,
};
use globalps_testkit::secrecy::{self, Search};
use globalps_testkit::{Cluster, Node, config_file, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
const MCO_ANNOTATION: &str = "machineconfiguration.openshift.io/currentConfig";

static SHARED: Shared = Shared::new("rollout", 3);

tests_on! { SHARED,
    a_senseless_configuration_is_refused_with_a_sentence;
    a_file_that_another_program_manages_is_left_to_it;
    a_node_that_failed_is_tried_again_when_somebody_asks;
    a_fleet_that_failed_goes_back_where_the_user_wants_it;
    a_rollout_that_is_held_changes_no_node_until_it_goes_on;
    what_was_rolled_out_is_remembered_and_comes_back;
    a_leaked_password_is_forgotten_everywhere;
    a_new_node_gets_what_the_fleet_has_once_a_controller_runs;
}

/// Rolls out content to every node.
fn in_force(product: &Product, registry: &str, login: &str) {
    roll_out(product, &[(registry, login)]);
}

fn a_senseless_configuration_is_refused_with_a_sentence((cluster, _, _): Fleet) {
    #[rustfmt::skip]
    let cases = [
        (json!({"rollout": {"maxUnavailable": "150%"}}), "maxUnavailable must be a number of nodes, at least 1, or a percentage"),
        (json!({"rollout": {"maxUnavailable": 0}}), "maxUnavailable must be a number of nodes, at least 1, or a percentage"),
        (json!({"rollout": {"maxUnavailable": "3"}}), "maxUnavailable must be a number of nodes, at least 1, or a percentage"),
        (json!({"rollout": {"maxFailures": 0}}), "maxFailures must be a number of nodes, at least 1, or a percentage"),
        (json!({"rollout": {"maxFailures": "0%"}}), "maxFailures must be a number of nodes, at least 1, or a percentage"),
        (
            json!({"historyLimit": 0, "rollout": {"onFailure": "Rollback"}}),
            "onFailure: Rollback needs a historyLimit of at least 1",
        ),
        (json!({"historyLimit": 11}), "less than or equal to 10"),
        (json!({"original": {"secretRef": {"namespace": "", "name": ""}}}), "at least 1 chars long"),
        (
            json!({"original": {
                "secretRef": {"namespace": "a", "name": "b"},
                "hostedControlPlane": {"namespace": "a", "name": "b", "kubeconfigSecretRef": {"name": "c"}},
            }}),
            "original: set secretRef or hostedControlPlane, not both",
        ),
        (json!({"kubelet": {"configFile": "config.json"}}), "configFile"),
        (json!({"kubelet": {"unit": "kubelet"}}), "unit"),
        (json!({"sources": [{"name": "a"}, {"name": "a"}]}), "Duplicate value"),
    ];
    for (spec, sentence) in cases {
        let object = configuration(&spec);
        let mut command = cluster.kubectl_command();
        command.args(["apply", "--dry-run=server", "-f", "-"]);
        let ran = globalps_testkit::product::run(&mut command, &object.to_string()).unwrap();
        assert!(
            ran.code != Some(0) && ran.stderr.contains(sentence),
            "{object}: {}",
            ran.stderr
        );
    }
}

fn a_file_that_another_program_manages_is_left_to_it((cluster, product, nodes): Fleet) {
    let managed = &nodes[2];
    let annotate = format!("annotate node {} {MCO_ANNOTATION}", managed.name());
    cluster.types(&format!("{annotate}=rendered-worker-1"));
    write(product, &[("r.example.com", "u:one")]);
    for node in &nodes[..2] {
        product.wait_phase(node, "Synced").unwrap();
    }
    let told = product.wait_phase(managed, "ForeignOwner").unwrap();
    assert_eq!(told["reason"], "ManagedFile");
    assert!(
        told["message"]
            .as_str()
            .unwrap()
            .contains("oc set data secret/pull-secret"),
        "{told}"
    );
    assert_eq!(config_file::read(managed).unwrap(), None);
    let (_, reason, message) = product.wait_condition("Ready", "False").unwrap();
    assert_eq!(reason, "NodesFailed");
    assert!(
        message.contains(managed.name()) && message.contains("oc set data"),
        "{message}"
    );
    let found = checks(product);
    for (name, result) in [
        ("machine-config-operator", "warning"),
        ("managed-file", "warning"),
        ("additional-invalid", "ok"),
    ] {
        assert_eq!(found.get(name).map(String::as_str), Some(result), "{name}");
    }

    cluster.types(&format!("{annotate}-"));
    product.wait_phase(managed, "Synced").unwrap();
    product.wait_synced().unwrap();
}

fn a_node_that_failed_is_tried_again_when_somebody_asks((_, product, nodes): Fleet) {
    in_force(product, "r.example.com", "u:one");
    break_kubelet(&nodes[0], "flaky.example.com").unwrap();
    write(product, &[("flaky.example.com", "u:two")]);
    product.wait_phase(&nodes[0], "RolledBack").unwrap();
    product.wait_condition("Degraded", "True").unwrap();
    let revision = product.status().unwrap()["revision"].clone();
    let waited = product.ends("status --wait --timeout 1m", 1);
    assert!(
        waited.stderr.contains("the rollout stopped: ") && waited.stderr.contains("hint: "),
        "it does not wait for a rollout that has stopped: {waited:?}"
    );
    let found = checks(product);
    for name in ["rollout-halted", "node-rolled-back"] {
        assert_eq!(
            found.get(name).map(String::as_str),
            Some("failure"),
            "{name}"
        );
    }
    mend_kubelet(&nodes[0]).unwrap();
    let retried = product.ends("retry --wait", 0);
    let told = format!(
        "nodepullsecret.globalps.io/{} will be retried\n",
        nodes[0].name()
    );
    assert_eq!(retried.stdout, told);
    for node in nodes {
        assert_eq!(product.node_status(node.name()).unwrap()["phase"], "Synced");
    }
    assert_eq!(
        product.status().unwrap()["revision"],
        revision,
        "it is the same revision"
    );
}

fn a_fleet_that_failed_goes_back_where_the_user_wants_it((cluster, product, nodes): Fleet) {
    in_force(product, "flaky.example.com", "u:two");
    patch(
        cluster,
        &json!({"spec": {"rollout": {"onFailure": "Rollback"}}}),
    );
    // The first node applies it, the second one fails, and the third is never assigned it.
    break_kubelet(&nodes[1], "worse.example.com").unwrap();
    let starts = product.kubelet_starts(&nodes[2]).unwrap();
    write(product, &[("worse.example.com", "u:three")]);
    let (_, reason, message) = wait("the rollback", POLL, || {
        let ready = product.condition("Ready")?;
        Ok((ready.1 == "RolledBack").then_some(ready))
    });
    assert_eq!(reason, "RolledBack");
    assert!(message.contains(nodes[1].name()), "{message}");
    for node in nodes {
        wait("the content from before", POLL, || {
            let back = config_file::auth(node, "flaky.example.com")? == Some(base64("u:two"));
            let gone = config_file::auth(node, "worse.example.com")?.is_none();
            Ok(
                (back && gone && product.node_status(node.name())?["phase"] == "Synced")
                    .then_some(()),
            )
        });
    }
    assert_eq!(
        product.kubelet_starts(&nodes[2]).unwrap(),
        starts,
        "equivalent content restarts no kubelet"
    );
    mend_kubelet(&nodes[1]).unwrap();
    let found = checks(product);
    assert_eq!(
        found.get("rolled-back").map(String::as_str),
        Some("failure")
    );
    // The current content replaces the rejected one, so no node changes.
    let undone = product.ends("undo --yes --wait --timeout 1m", 0);
    assert!(
        undone
            .stderr
            .starts_with("no credential on the nodes changes\n"),
        "{undone:?}"
    );
    assert_eq!(
        content_of(product, ADDITIONAL),
        docker_config(&[("flaky.example.com", "u:two")])
    );
    assert_eq!(product.kubelet_starts(&nodes[2]).unwrap(), starts);
}

fn a_rollout_that_is_held_changes_no_node_until_it_goes_on((_, product, nodes): Fleet) {
    in_force(product, "flaky.example.com", "u:two");
    let held = product.ends("pause", 0);
    assert_eq!(
        held.stdout,
        "globalpullsecret.globalps.io/global-pull-secret paused\n"
    );
    write(product, &[("better.example.com", "u:four")]);
    wait("the controller to see the change and wait", POLL, || {
        let ready = product.condition("Ready")?.1 == "RollingOut";
        Ok((ready && product.condition("Progressing")?.1 == "Paused").then_some(()))
    });
    let status = product.ends("status -o json", 1);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["paused"], true);
    assert_eq!(status["counts"]["synced"], 0, "{status}");
    let waited = product.ends("status --wait --timeout 5s", 1);
    assert!(
        waited
            .stderr
            .contains("the rollout is paused\n\nhint: resume it with `kubectl globalps resume`"),
        "{waited:?}"
    );
    let has_it = |node: &Node| {
        config_file::auth(node, "better.example.com")
            .unwrap()
            .is_some()
    };
    assert!(!nodes.iter().any(has_it));
    product.ends("resume --wait", 0);
    assert!(nodes.iter().all(has_it), "{:?}", product.status());
}

fn what_was_rolled_out_is_remembered_and_comes_back((_, product, nodes): Fleet) {
    in_force(product, "r.example.com", "u:one");
    in_force(product, "flaky.example.com", "u:two");
    in_force(product, "better.example.com", "u:four");
    let kept: Vec<Value> = (0..2)
        .map(|slot| {
            product
                .get(&format!("secret/additional-pull-secret-history-{slot}"))
                .unwrap()
        })
        .collect();
    let content = |at: usize| {
        kept[at]["data"][".dockerconfigjson"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        content(0),
        base64(&docker_config(&[("r.example.com", "u:one")]))
    );
    assert_eq!(
        content(1),
        base64(&docker_config(&[("flaky.example.com", "u:two")]))
    );
    let history = product.ends("history -o json", 0);
    let history: Value = serde_json::from_str(&history.stdout).unwrap();
    let registries: Vec<&Value> = (0..3)
        .map(|at| &history["revisions"][at]["registries"][0])
        .collect();
    assert_eq!(
        registries,
        ["better.example.com", "flaky.example.com", "r.example.com"]
    );
    assert_eq!(
        history["revisions"][0]["revision"],
        product.status().unwrap()["revision"]
    );
    assert_eq!(history["revisions"][0]["inForce"], true);
    let undone = product.ends("undo --yes --wait", 0);
    assert!(
        undone
            .stderr
            .starts_with("-better.example.com: ***\n+flaky.example.com: ***\n"),
        "{undone:?}"
    );
    for node in nodes {
        let auth = |registry| config_file::auth(node, registry).unwrap();
        assert_eq!(
            auth("flaky.example.com"),
            Some(base64("u:two")),
            "it waited"
        );
        assert_eq!(auth("better.example.com"), None);
    }
    let ready = product.ends("status", 0);
    assert!(ready.stderr.is_empty(), "{ready:?}");
    product.delete().unwrap();
    product.wait_clean().unwrap();
    for slot in 0..3 {
        let name = format!("secret/additional-pull-secret-history-{slot}");
        assert_eq!(product.get(&name).unwrap(), Value::Null, "{name}");
    }
}

/// Uses three passwords of the same account: the first one leaks, later the second, while a node is down.
fn a_leaked_password_is_forgotten_everywhere((cluster, product, nodes): Fleet) {
    const REGISTRY: &str = "leaky.example.com";
    let add = |password: &str, flags: &str| {
        secrecy::remember_login("robot", password);
        let line = format!("add {REGISTRY} -u robot --password-stdin --skip-check {flags}");
        let ran = product.types(&line, password);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    };
    let of = |password: &str| Search::for_login("robot", password);
    let where_old = |code| {
        let ran = product.ends("list --where-old -o json", code);
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        let places = found["places"].as_array().unwrap().iter();
        let places = places.map(|it| {
            let text = |field: &str| it[field].as_str().unwrap().to_owned();
            [text("kind"), text("name"), text("where"), text("phase")].join(" ")
        });
        places.collect::<Vec<_>>()
    };
    let nowhere = |password: &str| {
        of(password).secrets(cluster).unwrap();
        for node in nodes {
            of(password).state_of(node).unwrap();
        }
    };
    let [first, second, third] = nodes else {
        panic!("three nodes")
    };
    let own = r#"{"auths":{"own.example.com":{"auth":"b3duOmZpbGU="}}}"#;
    std::fs::write(first.kubelet_dir().join("config.json"), own).unwrap();
    add("l3aked-first", "--wait");
    add("l3aked-again", "--wait");
    // Until the request, `undo` can restore it.
    assert!(of("l3aked-first").secrets(cluster).is_err());
    assert!(of("l3aked-first").state_of(first).is_err());
    assert!(where_old(1).len() >= nodes.len());

    // Requested a second time, for the rotation that is over.
    let ran = add("l3aked-again", "--forget-old --wait");
    assert!(ran.stderr.contains("content up to revision"), "{ran:?}");
    nowhere("l3aked-first");
    assert_eq!(where_old(0), [""; 0]);
    assert!(
        of("l3aked-again").state_of(first).is_err(),
        "it is in force"
    );
    let starts = product.starts(nodes).unwrap();

    third.power_cut().unwrap();
    wait("the node to be NotReady", POLL, || {
        let node = cluster.get("", &format!("node/{}", third.name()))?;
        let conditions = node["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        let ready = conditions.find(|it| it["type"] == "Ready");
        Ok(ready.filter(|it| it["status"] != "True").map(|_| ()))
    });
    let before = product.status().unwrap()["forgottenRevision"].clone();
    add("safe-s3cret", "--forget-old");
    wait("another revision to be forgotten", POLL, || {
        let now = product.status()?["forgottenRevision"].clone();
        Ok((now != before).then_some(()))
    });
    let (_, reason, message) = product.wait_condition("OldForgotten", "True").unwrap();
    assert_eq!(reason, "Forgotten");
    let named = format!(
        "unreachable nodes drop it when they return: {}",
        third.name()
    );
    assert!(message.ends_with(&named), "{message}");
    of("l3aked-again").secrets(cluster).unwrap();
    for node in [first, second] {
        of("l3aked-again").state_of(node).unwrap();
    }
    assert!(of("l3aked-again").state_of(third).is_err());
    let left = format!("Node {} InForce Unreachable", third.name());
    assert_eq!(where_old(1), [left]);
    let revision = product.status().unwrap()["forgottenRevision"]
        .as_i64()
        .unwrap();
    for line in [
        "undo --yes".to_owned(),
        format!("undo --yes --to-revision {revision}"),
    ] {
        let ran = product.ends(&line, 2);
        let why = format!("content up to revision {revision} was forgotten on request");
        assert!(ran.stderr.contains(&why), "{ran:?}");
    }
    assert_eq!(checks(product)["old-forgotten"], "ok");

    third.boot().unwrap();
    third.wait_ready(DEADLINE).unwrap();
    wait("the node to forget it as well", POLL, || {
        Ok(of("l3aked-again").state_of(third).ok())
    });
    wait("every node to say so", POLL, || {
        let ran = product.plugin(&["list", "--where-old"], "")?;
        Ok((ran.code == Some(0)).then_some(()))
    });
    nowhere("l3aked-again");
    for (node, starts) in [first, second].iter().zip(starts) {
        let more = product.kubelet_starts(node).unwrap() - starts;
        assert_eq!(more, 1, "to forget restarts no kubelet: {}", node.name());
    }
    let events = cluster.get(NAMESPACE, "events").unwrap();
    let mut events = events["items"].as_array().unwrap().iter();
    assert!(events.any(|it| it["reason"] == "OldForgotten"));

    // The node's own file from before globalps is not content of globalps.
    product.delete().unwrap();
    product.wait_clean().unwrap();
    let file = config_file::read(first).unwrap().unwrap();
    assert_eq!(file.bytes, own.as_bytes());
    std::fs::remove_file(first.kubelet_dir().join("config.json")).unwrap();
}

fn a_new_node_gets_what_the_fleet_has_once_a_controller_runs((cluster, product, _): Fleet) {
    in_force(product, "flaky.example.com", "u:two");
    scale_controllers(cluster, 0);
    let node = cluster.add_node().unwrap();
    node.wait_ready(DEADLINE).unwrap();
    wait("the new node's syncer", POLL, || {
        let found = node.exec(&["pgrep", "-x", "globalps-syncer"])?;
        Ok(found.status.success().then_some(()))
    });
    // Without a controller there is no assignment, and no node chooses a revision by itself.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(config_file::read(&node).unwrap(), None);
    let object = format!("nodepullsecret/{}", node.name());
    assert_eq!(product.get(&object).unwrap(), Value::Null);
    scale_controllers(cluster, 1);
    product.wait_phase(&node, "Synced").unwrap();
    product.wait_synced().unwrap();
    assert_eq!(product.node_status(node.name()).unwrap()["restarts"], 1);
}

/// Name and result of each check in the output of `check`.
fn checks(product: &Product) -> BTreeMap<String, String> {
    let ran = product.types("check -o json", "");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = report["checks"].as_array().unwrap();
    checks
        .iter()
        .map(|check| (text(&check["name"]), text(&check["result"])))
        .collect()
}

/// The credentials in a Secret.
fn content_of(product: &Product, name: &str) -> String {
    let secret = product.get(&format!("secret/{name}")).unwrap();
    let data = secret["data"][".dockerconfigjson"].as_str().unwrap();
    String::from_utf8(decode(data)).unwrap()
}

fn patch(cluster: &Cluster, patch: &Value) {
    merge(cluster, CONFIG, patch).unwrap();
}
