//! What a change of credentials does: it restarts each kubelet once, or none, and writes Secrets in namespaces. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecret};
use globalps_core::dockerconfig::{DockerConfig, shown_key};
use globalps_core::names;
use globalps_core::provider::{Delivery, ports};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::cluster::namespaces::Affected;
use crate::terminal::layout::nodes;

/// How the revision in force is delivered, and how the next one shall be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deliveries {
    /// `None`: nothing is in force, or this user may not see it.
    in_force: Option<Delivery>,
    pub wanted: DeliveryType,
    /// Of the fleet; 0: unknown.
    nodes: u32,
}

/// `diff -o json` has these fields, where they are not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Effects {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryChange>,
    /// Registries at a port that the credential provider does not serve yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub new_ports: Vec<String>,
    /// No source had a scope before, so that kubelets request no tokens for the provider yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub first_scope: bool,
    /// `None`: nothing changes, or it is the credentials file that changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts_kubelets: Option<bool>,
    /// Where namespaces get pull secrets: those that are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Affected>,
    #[serde(skip)]
    nodes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DeliveryChange {
    pub before: &'static str,
    pub after: &'static str,
}

impl Deliveries {
    pub(crate) fn of(global: Option<&Secret>, gps: Option<&GlobalPullSecret>) -> Self {
        let in_force =
            global.and_then(
                |secret| match secret.annotations().get(names::DELIVERY_ANNOTATION) {
                    Some(text) => serde_json::from_str(text).ok(),
                    None => Some(Delivery::ConfigFile),
                },
            );
        let counts = gps.and_then(|gps| gps.status.as_ref()).map(|s| &s.counts);
        Self {
            in_force,
            wanted: gps.map_or_else(Default::default, |gps| gps.spec.kubelet.delivery),
            nodes: counts.map_or(0, |counts| counts.total),
        }
    }

    /// Ignores a pending change of delivery, which the proposal does not cause.
    pub(crate) fn staying(mut self) -> Self {
        self.wanted = match self.in_force {
            Some(Delivery::CredentialProvider(_)) => DeliveryType::CredentialProvider,
            Some(Delivery::ConfigFile) => DeliveryType::ConfigFile,
            None => self.wanted,
        };
        self
    }

    /// `config`: all that is proposed. `changes`: it differs from what is in force. `has_scope`: of a source of it.
    pub(crate) fn effects(&self, config: &DockerConfig, changes: bool, has_scope: bool) -> Effects {
        use DeliveryType::{ConfigFile, CredentialProvider};
        let none = Effects {
            nodes: self.nodes,
            ..Effects::default()
        };
        let change = |before: DeliveryType| Effects {
            delivery: Some(DeliveryChange {
                before: before.as_str(),
                after: self.wanted.as_str(),
            }),
            restarts_kubelets: Some(true),
            ..none.clone()
        };
        match (&self.in_force, self.wanted) {
            (None, _) | (Some(Delivery::ConfigFile), ConfigFile) => none,
            // No node has anything any more.
            (Some(_), DeliveryType::None) if self.nodes == 0 => none,
            (Some(Delivery::ConfigFile), CredentialProvider | DeliveryType::None) => {
                change(ConfigFile)
            }
            (Some(Delivery::CredentialProvider(_)), ConfigFile | DeliveryType::None) => {
                change(CredentialProvider)
            }
            (Some(Delivery::CredentialProvider(provider)), CredentialProvider) => {
                let new = &ports(config) - &provider.ports;
                let at_new_port = config.entries().iter().filter(|entry| {
                    let port = entry.port();
                    port.is_some_and(|port| new.contains(&port))
                });
                let new_ports: Vec<String> = at_new_port
                    .map(|entry| shown_key(&entry.canonical_key()))
                    .collect();
                let first_scope = has_scope && !provider.scopes;
                Effects {
                    restarts_kubelets: changes.then_some(first_scope || !new_ports.is_empty()),
                    new_ports,
                    first_scope,
                    ..none
                }
            }
        }
    }
}

impl Effects {
    /// As `diff` shows another delivery.
    pub(crate) fn change(&self) -> String {
        match &self.delivery {
            Some(DeliveryChange { before, after }) => {
                format!("-delivery: {before}\n+delivery: {after}\n")
            }
            None => String::new(),
        }
    }

    /// What it does to kubelets and namespaces, a sentence each.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let namespaces = self.namespaces.as_ref().map(Affected::sentence);
        self.of_kubelets().into_iter().chain(namespaces).collect()
    }

    fn of_kubelets(&self) -> Vec<String> {
        let on_nodes = match self.nodes {
            0 => String::new(),
            number => format!(", {}", nodes(number)),
        };
        if let Some(DeliveryChange { after, .. }) = &self.delivery {
            return vec![format!(
                "delivery by {after}: restarts each kubelet once{on_nodes}"
            )];
        }
        if self.restarts_kubelets == Some(false) {
            return vec!["restarts no kubelet".to_owned()];
        }
        let at_port = self.new_ports.iter().map(|registry| {
            format!(
                "`{registry}`: a port that the credential provider does not serve yet: restarts each kubelet once{on_nodes}"
            )
        });
        let first_scope = self.first_scope.then(|| {
            format!("the first source with a scope: restarts each kubelet once{on_nodes}")
        });
        at_port.chain(first_scope).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_core::api::{GlobalPullSecretSpec, GlobalPullSecretStatus};
    use globalps_core::dockerconfig::parse;

    fn config(registries: &[&str]) -> DockerConfig {
        let entries = registries
            .iter()
            .map(|r| format!(r#""{r}":{{"auth":"dTpw"}}"#));
        let entries = entries.collect::<Vec<_>>().join(",");
        parse(format!(r#"{{"auths":{{{entries}}}}}"#).as_bytes()).expect("credentials")
    }

    /// `delivery`: the annotation of the Secret, `-`: no Secret.
    fn deliveries(delivery: &str, wanted: DeliveryType, nodes: u32) -> Deliveries {
        let mut secret = Secret::default();
        if !delivery.is_empty() {
            let annotations = secret.annotations_mut();
            annotations.insert(names::DELIVERY_ANNOTATION.to_owned(), delivery.to_owned());
        }
        let mut gps = GlobalPullSecret::new("g", GlobalPullSecretSpec::default());
        gps.spec.kubelet.delivery = wanted;
        let mut status = GlobalPullSecretStatus::default();
        status.counts.total = nodes;
        gps.status = Some(status);
        Deliveries::of((delivery != "-").then_some(&secret), Some(&gps))
    }

    #[test]
    fn kubelets_restart_for_another_delivery_and_for_a_new_port_only() {
        use DeliveryType::{ConfigFile, CredentialProvider};
        const PROVIDER: &str = r#"{"type":"CredentialProvider","ports":["1234"]}"#;
        for (in_force, wanted, nodes, registries, changes, expected) in [
            ("-", CredentialProvider, 3, &["a"][..], true, ""),
            ("", ConfigFile, 3, &["a:99"], true, ""),
            (
                "",
                CredentialProvider,
                3,
                &["a:99"],
                true,
                "delivery by CredentialProvider: restarts each kubelet once, 3 nodes",
            ),
            (
                PROVIDER,
                ConfigFile,
                1,
                &[],
                false,
                "delivery by ConfigFile: restarts each kubelet once, 1 node",
            ),
            (
                PROVIDER,
                CredentialProvider,
                3,
                &["a", "b:1234", "c:5000"],
                false,
                "",
            ),
            (
                PROVIDER,
                CredentialProvider,
                3,
                &["a", "b:1234", "c:5000"],
                true,
                "restarts no kubelet",
            ),
            (
                PROVIDER,
                CredentialProvider,
                0,
                &["a", "https://b:99/v1/"],
                true,
                "`b:99`: a port that the credential provider does not serve yet: restarts each kubelet once",
            ),
            // Of a newer release.
            (
                r#"{"type":"Other"}"#,
                CredentialProvider,
                3,
                &["a"],
                true,
                "",
            ),
        ] {
            let effects =
                deliveries(in_force, wanted, nodes).effects(&config(registries), changes, false);
            assert_eq!(effects.sentences().join("\n"), expected, "{in_force}");
        }
    }

    #[test]
    fn a_proposal_is_not_to_blame_for_another_delivery() {
        let there = deliveries("", DeliveryType::CredentialProvider, 3);
        let effects = there.effects(&config(&["a"]), true, false);
        assert_eq!(
            effects.change(),
            "-delivery: ConfigFile\n+delivery: CredentialProvider\n"
        );
        let effects = there.staying().effects(&config(&["a"]), true, false);
        assert_eq!(
            (effects.change().as_str(), effects.sentences().len()),
            ("", 0)
        );
    }

    #[test]
    fn the_first_scope_restarts_and_the_next_ones_do_not() {
        let provider = DeliveryType::CredentialProvider;
        for (in_force, expected) in [
            (
                r#"{"type":"CredentialProvider"}"#,
                "the first source with a scope: restarts each kubelet once, 3 nodes",
            ),
            (
                r#"{"type":"CredentialProvider","scopes":true}"#,
                "restarts no kubelet",
            ),
        ] {
            let effects = deliveries(in_force, provider, 3).effects(&config(&["a"]), true, true);
            assert_eq!(effects.sentences(), [expected]);
        }
    }
}
