//! Which clients may connect to the pods of globalps.

use globalps_core::names::{CONTROLLER, CONTROLLER_NAMESPACE, METRICS_PORT, SYNCER};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::{Agent, named, strings, value};

/// `namespace`: the agents'.
///
/// Nobody may connect to the probes' port: probes come from the node's kubelet, which network plugins exempt (Calico, Cilium,
/// OVN-Kubernetes, Antrea, kube-router and the AWS VPC CNI by default). Egress is not limited: it goes to the API server, whose
/// address and port differ between clusters (443, 6443, 8443, 16443), and some plugins match the port after resolving the
/// Service.
pub(super) fn objects(namespace: &str) -> Vec<Value> {
    let agents = LabelSelectorRequirement {
        key: "name".to_owned(),
        operator: "In".to_owned(),
        values: Some(strings(Agent::ALL.map(Agent::name))),
    };
    vec![
        value(NetworkPolicy {
            spec: Some(ingress(LabelSelector::default(), vec![metrics()])),
            ..named(CONTROLLER, CONTROLLER_NAMESPACE)
        }),
        value(NetworkPolicy {
            spec: Some(ingress(
                LabelSelector {
                    match_expressions: Some(vec![agents]),
                    ..LabelSelector::default()
                },
                Vec::new(),
            )),
            ..named(SYNCER, namespace)
        }),
    ]
}

/// Allows connections only to the metrics port of this program's pods.
pub(super) fn metrics_only(name: &str) -> NetworkPolicySpec {
    let labels = [("app.kubernetes.io/name".to_owned(), name.to_owned())];
    let pods = LabelSelector {
        match_labels: Some(labels.into()),
        ..LabelSelector::default()
    };
    ingress(pods, vec![metrics()])
}

fn metrics() -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule {
        ports: Some(vec![NetworkPolicyPort {
            protocol: Some("TCP".to_owned()),
            port: Some(IntOrString::Int(METRICS_PORT.into())),
            ..NetworkPolicyPort::default()
        }]),
        ..NetworkPolicyIngressRule::default()
    }
}

/// Allows only these connections.
fn ingress(pods: LabelSelector, rules: Vec<NetworkPolicyIngressRule>) -> NetworkPolicySpec {
    NetworkPolicySpec {
        pod_selector: Some(pods),
        policy_types: Some(strings(["Ingress"])),
        ingress: Some(rules),
        ..NetworkPolicySpec::default()
    }
}
