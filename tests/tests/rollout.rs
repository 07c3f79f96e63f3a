//! What a rollout does when something is in its way: a node that another program manages, one that failed and is asked again,
//! a fleet that goes back, a node that joins while no controller runs.

mod common;

use std::time::Duration;

use common::{base64, cluster, docker_config};
use globalps_tests::broken_kubelet::{break_kubelet, mend_kubelet};
use globalps_tests::product::{DEADLINE, NAMESPACE, Product};
use globalps_tests::{Cluster, Node, config_file, until};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
const MCO_ANNOTATION: &str = "machineconfiguration.openshift.io/currentConfig";
const GLOBAL: &str = "globalpullsecret/global-pull-secret";

#[test]
fn a_rollout_finds_its_way() {
    let cluster = cluster("rollout", 3);
    let product = Product::install(&cluster).unwrap();
    let nodes = cluster.nodes().unwrap();

    a_configuration_that_makes_no_sense_is_refused_with_a_sentence(&cluster);
    a_file_that_another_program_manages_is_left_to_it(&cluster, &product, &nodes);
    a_node_that_failed_is_tried_again_when_somebody_asks(&cluster, &product, &nodes);
    a_fleet_that_failed_goes_back_where_the_user_wants_it(&cluster, &product, &nodes);
    a_node_that_joins_takes_what_is_proven_while_no_controller_runs(&cluster, &product);

    product.delete().unwrap();
    product.wait_clean().unwrap();
    for slot in 0..3 {
        let name = format!("secret/additional-pull-secret-history-{slot}");
        assert_eq!(product.get(&name).unwrap(), Value::Null, "{name}");
    }
}

fn a_configuration_that_makes_no_sense_is_refused_with_a_sentence(cluster: &Cluster) {
    for (spec, sentence) in [
        (
            json!({"rollout": {"maxUnavailable": "150%"}}),
            "maxUnavailable is a number of nodes from 1, or a percentage",
        ),
        (
            json!({"rollout": {"maxUnavailable": 0}}),
            "maxUnavailable is a number of nodes from 1, or a percentage",
        ),
        (
            json!({"rollout": {"maxUnavailable": "3"}}),
            "maxUnavailable is a number of nodes from 1, or a percentage",
        ),
        (
            json!({"rollout": {"maxFailures": 0}}),
            "greater than or equal to 1",
        ),
        (
            json!({"historyLimit": 0, "rollout": {"onFailure": "Rollback"}}),
            "onFailure: Rollback needs historyLimit of at least 1",
        ),
        (json!({"historyLimit": 11}), "less than or equal to 10"),
        (
            json!({"original": {"secretRef": {"namespace": "", "name": ""}}}),
            "at least 1 chars long",
        ),
        (
            json!({"original": {
                "secretRef": {"namespace": "a", "name": "b"},
                "hostedControlPlane": {"namespace": "a", "name": "b", "kubeconfigSecretRef": {"name": "c"}},
            }}),
            "original takes secretRef or hostedControlPlane, not both",
        ),
        (
            json!({"kubelet": {"configFile": "config.json"}}),
            "configFile",
        ),
        (json!({"kubelet": {"unit": "kubelet"}}), "unit"),
        (
            json!({"sources": [{"name": "a"}, {"name": "a"}]}),
            "Duplicate value",
        ),
    ] {
        let object = json!({
            "apiVersion": "globalps.io/v1alpha1",
            "kind": "GlobalPullSecret",
            "metadata": {"name": "global-pull-secret", "namespace": NAMESPACE},
            "spec": spec,
        });
        let mut command = cluster.kubectl_command();
        command.args(["apply", "--dry-run=server", "-f", "-"]);
        let ran = globalps_tests::product::run(&mut command, &object.to_string()).unwrap();
        assert!(
            ran.code != Some(0) && ran.stderr.contains(sentence),
            "{object}: {}",
            ran.stderr
        );
    }
}

fn a_file_that_another_program_manages_is_left_to_it(
    cluster: &Cluster,
    product: &Product,
    nodes: &[Node],
) {
    let managed = &nodes[2];
    cluster
        .kubectl(&[
            "annotate",
            "node",
            managed.name(),
            &format!("{MCO_ANNOTATION}=rendered-worker-1"),
        ])
        .unwrap();
    product
        .apply(&docker_config(&[("r.example.com", "u:one")]))
        .unwrap();
    for node in &nodes[..2] {
        wait_phase(product, node, "Synced");
    }
    let told = wait_phase(product, managed, "ForeignOwner");
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

    cluster
        .kubectl(&[
            "annotate",
            "node",
            managed.name(),
            &format!("{MCO_ANNOTATION}-"),
        ])
        .unwrap();
    wait_phase(product, managed, "Synced");
    product.wait_synced().unwrap();
}

fn a_node_that_failed_is_tried_again_when_somebody_asks(
    cluster: &Cluster,
    product: &Product,
    nodes: &[Node],
) {
    break_kubelet(&nodes[0], "flaky.example.com").unwrap();
    product
        .apply(&docker_config(&[("flaky.example.com", "u:two")]))
        .unwrap();
    wait_phase(product, &nodes[0], "RolledBack");
    product.wait_condition("Degraded", "True").unwrap();
    let revision = product.status().unwrap()["revision"].clone();
    mend_kubelet(&nodes[0]).unwrap();
    let object = format!("nodepullsecret/{}", nodes[0].name());
    cluster
        .kubectl(&["annotate", "-n", NAMESPACE, &object, "globalps.io/retry=1"])
        .unwrap();
    wait_phase(product, &nodes[0], "Synced");
    product.wait_synced().unwrap();
    assert_eq!(
        product.status().unwrap()["revision"],
        revision,
        "it is the same revision"
    );
}

fn a_fleet_that_failed_goes_back_where_the_user_wants_it(
    cluster: &Cluster,
    product: &Product,
    nodes: &[Node],
) {
    patch(
        cluster,
        &json!({"spec": {"rollout": {"onFailure": "Rollback"}}}),
    );
    // The first node takes it, the second one fails, the third is never asked.
    break_kubelet(&nodes[1], "worse.example.com").unwrap();
    let starts = product.kubelet_starts(&nodes[2]).unwrap();
    product
        .apply(&docker_config(&[("worse.example.com", "u:three")]))
        .unwrap();
    let (_, reason, message) = until("the way back", DEADLINE, POLL, || {
        let ready = product.condition("Ready")?;
        Ok((ready.1 == "TakenBack").then_some(ready))
    })
    .unwrap();
    assert_eq!(reason, "TakenBack");
    assert!(message.contains(nodes[1].name()), "{message}");
    for node in nodes {
        until("the content from before", DEADLINE, POLL, || {
            let back = config_file::auth(node, "flaky.example.com")? == Some(base64("u:two"));
            let gone = config_file::auth(node, "worse.example.com")?.is_none();
            Ok(
                (back && gone && product.node_status(node.name())?["phase"] == "Synced")
                    .then_some(()),
            )
        })
        .unwrap();
    }
    assert_eq!(
        product.kubelet_starts(&nodes[2]).unwrap(),
        starts,
        "what means the same restarts nothing"
    );
    mend_kubelet(&nodes[1]).unwrap();
    product
        .apply(&docker_config(&[("better.example.com", "u:four")]))
        .unwrap();
    product.wait_synced().unwrap();
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
}

fn a_node_that_joins_takes_what_is_proven_while_no_controller_runs(
    cluster: &Cluster,
    product: &Product,
) {
    scale_controller(cluster, 0);
    until("the end of the controller", DEADLINE, POLL, || {
        let pods = cluster.kubectl(&["get", "pods", "-n", "globalps-system", "-o", "name"])?;
        Ok(pods.trim().is_empty().then_some(()))
    })
    .unwrap();
    let node = cluster.add_node().unwrap();
    node.wait_ready(DEADLINE).unwrap();
    until(
        "the credentials on a node that joined",
        DEADLINE,
        POLL,
        || Ok(config_file::auth(&node, "better.example.com")?.map(|_| ())),
    )
    .unwrap();
    assert_eq!(
        product
            .get(&format!("nodepullsecret/{}", node.name()))
            .unwrap(),
        Value::Null
    );
    scale_controller(cluster, 1);
    wait_phase(product, &node, "Synced");
    product.wait_synced().unwrap();
    assert_eq!(product.node_status(node.name()).unwrap()["restarts"], 1);
}

fn wait_phase(product: &Product, node: &Node, phase: &str) -> Value {
    let what = format!("{} is {phase}", node.name());
    until(&what, DEADLINE, POLL, || {
        let status = product.node_status(node.name())?;
        Ok((status["phase"] == phase).then_some(status))
    })
    .unwrap()
}

fn patch(cluster: &Cluster, patch: &Value) {
    let patch = patch.to_string();
    cluster
        .kubectl(&[
            "patch",
            GLOBAL,
            "-n",
            NAMESPACE,
            "--type=merge",
            "-p",
            &patch,
        ])
        .unwrap();
}

fn scale_controller(cluster: &Cluster, replicas: u8) {
    let replicas = format!("--replicas={replicas}");
    cluster
        .kubectl(&[
            "scale",
            "deployment/globalps-controller",
            "-n",
            "globalps-system",
            &replicas,
        ])
        .unwrap();
}
