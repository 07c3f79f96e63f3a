//! Invalid Secrets change nothing on nodes, and the old file of a kubelet that does not start is restored.

mod common;

use std::time::Duration;

use common::shared::{Fleet, Shared, tests_on};
use common::{base64, docker_config, roll_out, write};
use globalps_testkit::broken_kubelet::{break_kubelet, mend_kubelet, need_in_file};
use globalps_testkit::product::{DEADLINE, NAMESPACE, Product};
use globalps_testkit::{Cluster, Node, config_file, until, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(200);
const HIDDEN: &str = "v3ry-hidden";
const DROP_INS: &str = "/etc/systemd/system/kubelet.service.d";

static SHARED: Shared = Shared::new("refusals", 2);

tests_on! { SHARED,
    a_bad_first_secret_touches_no_node;
    a_bad_rotation_changes_nothing;
    a_kubelet_that_does_not_come_up_gets_its_file_back;
    a_node_without_a_file_that_rolls_back_has_none_again;
    a_kubelet_that_stays_down_is_started_until_it_serves;
    a_restoration_continues_past_a_node_that_refuses;
}

fn nothing_hidden_is_shown(product: &Product) {
    product
        .assert_never_shown(&[HIDDEN, &base64(&format!("u:{HIDDEN}"))])
        .unwrap();
}

/// Invalid content, and text that the condition and the event must contain.
fn bad_secrets() -> Vec<(Value, Vec<&'static str>)> {
    let content = |text: &str| json!({"type": "Opaque", "stringData": {".dockerconfigjson": text}});
    vec![
        (
            json!({"type": "Opaque", "stringData": {"wrong-key": "{}"}}),
            vec!["`.dockerconfigjson`"],
        ),
        (content("invalid json"), vec!["not JSON"]),
        (content("{}"), vec!["there is no `auths`"]),
        (content(r#"{"auths":{}}"#), vec!["no entries"]),
        (
            content(&format!(
                r#"{{"auths":{{"bad.example.com":{{"auth":"{HIDDEN}!"}},"worse.example.com":{{"auth":"{}"}},"good.example.com":{{"auth":"{}"}}}}}}"#,
                base64(HIDDEN),
                base64("u:p"),
            )),
            vec![
                "`bad.example.com`: `auth` is not base64 (byte",
                "`worse.example.com`: `auth` has no colon",
            ],
        ),
    ]
}

fn a_bad_first_secret_touches_no_node((cluster, product, nodes): Fleet) {
    for (body, named) in bad_secrets() {
        product.delete().unwrap();
        product.apply_secret(&body).unwrap();
        let (_, reason, message) = product.wait_condition("AdditionalValid", "False").unwrap();
        assert_eq!(reason, "Invalid");
        for name in named {
            assert!(message.contains(name), "{message}");
            wait_event(cluster, "Invalid", name);
        }
        assert_eq!(product.condition("Ready").unwrap().0, "False");
    }
    assert_eq!(
        product.get("daemonset/global-pull-secret-syncer").unwrap(),
        Value::Null
    );
    assert_eq!(
        product.get("secret/global-pull-secret").unwrap(),
        Value::Null
    );
    for node in nodes {
        assert_eq!(config_file::read(node).unwrap(), None);
        assert!(!node.kubelet_dir().join(".globalps").exists());
    }
    nothing_hidden_is_shown(product);
}

fn a_bad_rotation_changes_nothing((_, product, nodes): Fleet) {
    // Always of type Opaque, because a Secret's type is immutable.
    let secret =
        |content: &str| json!({"type": "Opaque", "stringData": {".dockerconfigjson": content}});
    product
        .apply_secret(&secret(&docker_config(&[("first.example.com", "u:first")])))
        .unwrap();
    product.wait_synced().unwrap();
    let starts = product.starts(nodes).unwrap();
    let before: Vec<_> = nodes
        .iter()
        .map(|node| config_file::read(node).unwrap())
        .collect();
    for (body, _) in bad_secrets().into_iter().skip(1) {
        product.apply_secret(&body).unwrap();
        let (_, _, message) = product.wait_condition("AdditionalValid", "False").unwrap();
        assert!(message.contains("stays in force"), "{message}");
        let (_, reason, _) = product.wait_condition("Ready", "False").unwrap();
        assert_eq!(reason, "AdditionalInvalid");
    }
    let after: Vec<_> = nodes
        .iter()
        .map(|node| config_file::read(node).unwrap())
        .collect();
    assert_eq!(before, after);
    assert_eq!(starts, product.starts(nodes).unwrap());
    assert_eq!(product.status().unwrap()["revision"], 1);
    nothing_hidden_is_shown(product);
}

fn a_kubelet_that_does_not_come_up_gets_its_file_back((cluster, product, nodes): Fleet) {
    roll_out(product, &[("first.example.com", "u:first")]);
    let before: Vec<_> = nodes
        .iter()
        .map(|node| config_file::read(node).unwrap())
        .collect();
    // Either node can be the canary, because a kubelet that has just restarted can be NotReady for a moment.
    for node in nodes {
        break_kubelet(node, "broken.example.com").unwrap();
    }
    write(
        product,
        &[
            ("first.example.com", "u:first"),
            ("broken.example.com", &format!("u:{HIDDEN}")),
        ],
    );
    let (_, reason, message) = product.wait_condition("Degraded", "True").unwrap();
    assert_eq!(reason, "RolloutHalted");
    let (canaries, others): (Vec<&Node>, Vec<&Node>) = nodes.iter().partition(|node| {
        let status = product.node_status(node.name()).unwrap();
        status["phase"] == "RolledBack"
    });
    let ([canary], [other]) = (&canaries[..], &others[..]) else {
        panic!("{} nodes rolled back", canaries.len())
    };
    assert!(
        message.contains(canary.name()) && message.contains("kubelet.service"),
        "{message}"
    );
    let status = product.node_status(canary.name()).unwrap();
    assert_eq!(
        status["revision"], 1,
        "the last valid revision is in effect"
    );
    assert!(!status["reason"].as_str().unwrap().is_empty(), "{status}");
    let after: Vec<_> = nodes
        .iter()
        .map(|node| config_file::read(node).unwrap())
        .collect();
    assert_eq!(
        after, before,
        "the file is restored byte for byte, and no other node changes"
    );
    let status = product.node_status(other.name()).unwrap();
    assert_eq!(status["phase"], "Synced");
    assert_eq!(status["revision"], 1);
    for node in nodes {
        node.exec(&["systemctl", "is-active", "kubelet.service"])
            .unwrap()
            .ok()
            .unwrap();
        node.wait_ready(DEADLINE).unwrap();
    }
    for reason in ["NodeRolledBack", "RolloutHalted"] {
        wait_event(cluster, reason, canary.name());
    }
    // It is not retried.
    let starts = product.kubelet_starts(canary).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(product.kubelet_starts(canary).unwrap(), starts);
    a_node_that_rolled_back_takes_the_next_revision(product, nodes);
    for node in nodes {
        mend_kubelet(node).unwrap();
    }
    nothing_hidden_is_shown(product);
}

fn a_node_that_rolled_back_takes_the_next_revision(product: &Product, nodes: &[Node]) {
    roll_out(
        product,
        &[
            ("first.example.com", "u:first"),
            ("better.example.com", "u:better"),
        ],
    );
    for node in nodes {
        assert_eq!(
            config_file::auth(node, "better.example.com").unwrap(),
            Some(base64("u:better"))
        );
        assert_eq!(config_file::auth(node, "broken.example.com").unwrap(), None);
    }
}

fn a_node_without_a_file_that_rolls_back_has_none_again((_, product, nodes): Fleet) {
    let first = &nodes[0];
    assert_eq!(config_file::read(first).unwrap(), None);
    break_kubelet(first, "broken.example.com").unwrap();
    write(product, &[("broken.example.com", "u:p")]);
    product.wait_condition("Degraded", "True").unwrap();
    assert_eq!(config_file::read(first).unwrap(), None, "absent, not empty");
    assert_eq!(
        product.node_status(first.name()).unwrap()["phase"],
        "RolledBack"
    );
    first
        .exec(&["systemctl", "is-active", "kubelet.service"])
        .unwrap()
        .ok()
        .unwrap();
    mend_kubelet(first).unwrap();
    product.delete().unwrap();
    product.wait_clean().unwrap();
    for node in nodes {
        assert!(
            !node.kubelet_dir().join(".globalps").exists(),
            "nothing of globalps is left on {}",
            node.name()
        );
    }
}

/// systemd soon stops restarting the kubelet. The cause is repaired a while later.
fn a_kubelet_that_stays_down_is_started_until_it_serves((_, product, nodes): Fleet) {
    roll_out(product, &[("first.example.com", "u:first")]);
    let drop_in = |script: &str| {
        for node in nodes {
            let script = format!(
                "mkdir -p {DROP_INS} && cd {DROP_INS} && {script} && systemctl daemon-reload"
            );
            node.exec(&["sh", "-c", &script]).unwrap().ok().unwrap();
        }
    };
    drop_in("printf '[Service]\nExecStartPre=/bin/false\n' > down.conf");
    write(product, &[("first.example.com", "u:second")]);
    let is_down = |node: &&Node| {
        let status = product.node_status(node.name()).unwrap_or_default();
        status["phase"] == "Failed" && status["reason"] == "KubeletDown"
    };
    let poll = Duration::from_millis(200);
    let down = wait("a kubelet that is down", poll, || {
        Ok(nodes.iter().find(is_down))
    });
    std::thread::sleep(Duration::from_secs(15));
    assert!(is_down(&down), "it is still down");
    drop_in("rm down.conf");
    until("a kubelet that recovered", 2 * DEADLINE, poll, || {
        let status = product.node_status(down.name())?;
        let is_over = status["phase"] == "RolledBack" && status["reason"] == "KubeletRecovered";
        Ok(is_over.then_some(()))
    })
    .unwrap();
    down.wait_ready(DEADLINE).unwrap();
    assert_eq!(
        config_file::auth(down, "first.example.com").unwrap(),
        Some(base64("u:first"))
    );
    product.delete().unwrap();
    product.wait_clean().unwrap();
}

/// Its kubelet starts only with the credentials.
fn a_restoration_continues_past_a_node_that_refuses((cluster, product, nodes): Fleet) {
    let content = docker_config(&[("first.example.com", "u:first")]);
    product.apply(&content).unwrap();
    product.wait_synced().unwrap();
    let [refuses, other] = nodes else {
        panic!("{} nodes", nodes.len())
    };
    need_in_file(refuses, "first.example.com").unwrap();
    // This node goes first, and the other one must not wait for it.
    let exclude = |value: &str| {
        let what = format!("node/{}", refuses.name());
        let label = format!("globalps.io/exclude{value}");
        cluster.kubectl(&["label", &what, &label]).unwrap();
    };
    exclude("=true");
    let (_, _, message) = wait("a node that refuses", POLL, || {
        let (status, reason, message) = product.condition("Degraded")?;
        Ok((reason == "NodesNotRestored").then_some((status, reason, message)))
    });
    assert!(message.contains(refuses.name()), "{message}");
    write(product, &[("first.example.com", "u:second")]);
    wait("the other node", POLL, || {
        let found = config_file::auth(other, "first.example.com")?;
        Ok((found == Some(base64("u:second"))).then_some(()))
    });

    let left = format!("not restored: `{}` (RolledBack", refuses.name());
    let line = "remove --all --yes --wait --timeout 4m";
    let ran = product.ends(line, 1);
    assert!(ran.stderr.contains(&left), "{ran:?}");
    assert_eq!(config_file::read(other).unwrap(), None);
    assert!(
        config_file::auth(refuses, "first.example.com")
            .unwrap()
            .is_some()
    );
    let object = format!("nodepullsecret/{}", refuses.name());
    assert_ne!(product.get(&object).unwrap(), Value::Null);

    let ran = product.ends(&format!("{line} --skip-unreachable"), 0);
    let skipped = format!(
        "nodes were skipped and keep their credentials: `{}`",
        refuses.name()
    );
    assert!(ran.stderr.contains(&skipped), "{ran:?}");
    product.wait_clean().unwrap();
    assert!(refuses.kubelet_dir().join(".globalps").exists());

    // Once repaired, it takes part again.
    mend_kubelet(refuses).unwrap();
    exclude("-");
    product.apply(&content).unwrap();
    product.wait_synced().unwrap();
    product.delete().unwrap();
    product.wait_clean().unwrap();
    assert_eq!(config_file::read(refuses).unwrap(), None);
}

/// Waits for an event on the user's Secret with this text in its note.
fn wait_event(cluster: &Cluster, reason: &str, text: &str) {
    let selector = format!("reason={reason},involvedObject.name=additional-pull-secret");
    wait(
        &format!("event {reason} that names {text}"),
        Duration::from_millis(100),
        || {
            let events = cluster.kubectl_line(&format!(
                "get events -n {NAMESPACE} --field-selector {selector} -o json"
            ))?;
            let events: Value = serde_json::from_str(&events)?;
            let mut items = events["items"].as_array().into_iter().flatten();
            Ok(items
                .any(|event| {
                    event["message"]
                        .as_str()
                        .is_some_and(|note| note.contains(text))
                })
                .then_some(()))
        },
    );
}
