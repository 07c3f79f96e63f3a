//! The effects of a change of credentials: restarts of kubelets, and Secrets written to namespaces. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecret, Restart};
use globalps_core::names;
use globalps_dockerconfig::{DockerConfig, shown_key};
use globalps_provider::{Delivery, ports};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::cluster::namespaces::Affected;
use crate::secret::pace::Pace;

/// The delivery of the revision in force, and of the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deliveries {
    /// `None` if nothing is in force, or this user may not read it.
    in_force: Option<Delivery>,
    /// A newer release set a delivery that this release doesn't know.
    is_unknown: bool,
    pub wanted: DeliveryType,
    pub pace: Pace,
    /// `spec.kubelet.restart` is `Never`.
    never_restarts: bool,
}

/// What differs from the content in force; input of [`Deliveries::effects`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Differs {
    /// Anything at all.
    pub any: bool,
    /// A credential that is available to every pod of a node.
    pub on_nodes: bool,
    /// A proposed source has a scope.
    pub has_scope: bool,
}

/// `diff -o json` contains these fields unless they are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Effects {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryChange>,
    /// Registries with a port that the credential provider's configuration doesn't match yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub new_ports: Vec<String>,
    /// The first source with a scope: kubelets don't request tokens for the provider yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub first_scope: bool,
    /// `None`: nothing changes on nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts_kubelets: Option<bool>,
    /// The namespaces whose pull secret is written, if globalps delivers to namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Affected>,
    #[serde(skip)]
    pace: Pace,
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
        Self {
            is_unknown: global.is_some() && in_force.is_none(),
            in_force,
            wanted: gps.map_or_else(Default::default, |gps| gps.spec.kubelet.delivery),
            pace: Pace::of(gps),
            never_restarts: gps.is_some_and(|gps| gps.spec.kubelet.restart == Restart::Never),
        }
    }

    /// Ignores a pending change of delivery, because the proposal doesn't cause it.
    pub(crate) fn staying(mut self) -> Self {
        // These deliver what the other one has in force, and it can't become them.
        if self.wanted.is_observed() {
            return self;
        }
        self.wanted = match self.in_force {
            Some(Delivery::CredentialProvider(_)) => DeliveryType::CredentialProvider,
            Some(Delivery::ConfigFile) => DeliveryType::ConfigFile,
            None => self.wanted,
        };
        self
    }

    /// `config`: the complete proposed content.
    pub(crate) fn effects(&self, config: &DockerConfig, differs: Differs) -> Effects {
        use DeliveryType::{ConfigFile, CredentialProvider};
        let none = Effects {
            pace: self.pace.clone(),
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
            _ if self.is_unknown => none,
            // Another program changes the nodes, and decides about restarts.
            (_, DeliveryType::Observe | DeliveryType::OpenShift) | (None, DeliveryType::None) => {
                none
            }
            (None, CredentialProvider) => Effects {
                restarts_kubelets: differs.any.then_some(true),
                ..none
            },
            (None | Some(Delivery::ConfigFile), ConfigFile) => Effects {
                restarts_kubelets: differs.on_nodes.then_some(!self.never_restarts),
                ..none
            },
            // No node has credentials of globalps any more.
            (Some(_), DeliveryType::None) if self.pace.nodes == 0 => none,
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
                let first_scope = differs.has_scope && !provider.scopes;
                Effects {
                    restarts_kubelets: differs.any.then_some(first_scope || !new_ports.is_empty()),
                    new_ports,
                    first_scope,
                    ..none
                }
            }
        }
    }
}

impl Effects {
    /// The change of delivery, as `diff` prints it.
    pub(crate) fn change(&self) -> String {
        match &self.delivery {
            Some(DeliveryChange { before, after }) => {
                format!("-delivery: {before}\n+delivery: {after}\n")
            }
            None => String::new(),
        }
    }

    /// The effects on kubelets and namespaces, one sentence each.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let namespaces = self.namespaces.as_ref().map(Affected::sentence);
        self.of_kubelets().into_iter().chain(namespaces).collect()
    }

    pub(crate) fn restarts(&self) -> bool {
        self.restarts_kubelets == Some(true)
    }

    fn of_kubelets(&self) -> Vec<String> {
        let restarts = self.pace.text();
        let Some(restarts_kubelets) = self.restarts_kubelets else {
            return Vec::new();
        };
        if let Some(DeliveryChange { after, .. }) = &self.delivery {
            return vec![format!("delivery by {after}: {restarts}")];
        }
        if !restarts_kubelets {
            return vec!["restarts no kubelet".to_owned()];
        }
        let at_port = self.new_ports.iter().map(|registry| {
            format!(
                "`{registry}`: a port that the credential provider does not serve yet: {restarts}"
            )
        });
        let first_scope = self
            .first_scope
            .then(|| format!("the first source with a scope: {restarts}"));
        let mut lines: Vec<String> = at_port.chain(first_scope).collect();
        if lines.is_empty() {
            lines.push(restarts);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_core::api::{GlobalPullSecretSpec, GlobalPullSecretStatus};
    use globalps_dockerconfig::parse;

    fn config(registries: &[&str]) -> DockerConfig {
        let entries = registries
            .iter()
            .map(|r| format!(r#""{r}":{{"auth":"dTpw"}}"#));
        let entries = entries.collect::<Vec<_>>().join(",");
        parse(format!(r#"{{"auths":{{{entries}}}}}"#).as_bytes()).expect("credentials")
    }

    /// `delivery`: the Secret's annotation; `-`: no Secret.
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

    fn all(changes: bool) -> Differs {
        Differs {
            any: changes,
            on_nodes: changes,
            has_scope: false,
        }
    }

    #[test]
    fn kubelets_that_never_restart_are_not_announced() {
        let mut there = deliveries("", DeliveryType::ConfigFile, 3);
        there.never_restarts = true;
        let effects = there.effects(&config(&["a"]), all(true));
        assert_eq!(effects.sentences(), ["restarts no kubelet"]);
        assert!(!effects.restarts());
    }

    #[test]
    fn a_source_for_some_pods_does_not_reach_the_file() {
        let there = deliveries("", DeliveryType::ConfigFile, 3);
        let differs = Differs {
            any: true,
            has_scope: true,
            on_nodes: false,
        };
        let effects = there.effects(&config(&["a"]), differs);
        assert_eq!(effects.restarts_kubelets, None);
    }

    #[test]
    fn kubelets_restart_only_for_another_delivery_or_a_new_port() {
        use DeliveryType::{ConfigFile, CredentialProvider};
        const PROVIDER: &str = r#"{"type":"CredentialProvider","ports":["1234"]}"#;
        #[rustfmt::skip]
        let cases = [
            ("-", CredentialProvider, 3, &["a"][..], true, "restarts 3 kubelets once, 1 at a time; pods keep running"),
            ("-", DeliveryType::None, 3, &["a"], true, ""),
            ("", ConfigFile, 3, &["a:99"], true, "restarts 3 kubelets once, 1 at a time; pods keep running"),
            ("", ConfigFile, 3, &["a:99"], false, ""),
            (
                "",
                CredentialProvider,
                3,
                &["a:99"],
                true,
                "delivery by CredentialProvider: restarts 3 kubelets once, 1 at a time; pods keep running",
            ),
            (PROVIDER, ConfigFile, 1, &[], false, "delivery by ConfigFile: restarts 1 kubelet once; pods keep running"),
            (PROVIDER, CredentialProvider, 3, &["a", "b:1234", "c:5000"], false, ""),
            (PROVIDER, CredentialProvider, 3, &["a", "b:1234", "c:5000"], true, "restarts no kubelet"),
            (
                PROVIDER,
                CredentialProvider,
                0,
                &["a", "https://b:99/v1/"],
                true,
                "`b:99`: a port that the credential provider does not serve yet: restarts each kubelet once, 1 first; pods keep running",
            ),
            // Set by a newer release.
            (r#"{"type":"Other"}"#, CredentialProvider, 3, &["a"], true, ""),
        ];
        for (in_force, wanted, nodes, registries, changes, expected) in cases {
            let effects =
                deliveries(in_force, wanted, nodes).effects(&config(registries), all(changes));
            assert_eq!(effects.sentences().join("\n"), expected, "{in_force}");
        }
    }

    #[test]
    fn a_proposal_is_not_to_blame_for_another_delivery() {
        let there = deliveries("", DeliveryType::CredentialProvider, 3);
        let effects = there.effects(&config(&["a"]), all(true));
        assert_eq!(
            effects.change(),
            "-delivery: ConfigFile\n+delivery: CredentialProvider\n"
        );
        let effects = there.staying().effects(&config(&["a"]), all(true));
        assert_eq!(
            (effects.change().as_str(), effects.sentences().len()),
            ("", 1)
        );
        assert_eq!(
            effects.sentences(),
            ["restarts 3 kubelets once, 1 at a time; pods keep running"]
        );
    }

    #[test]
    fn no_proposal_restarts_kubelets_whose_files_another_program_writes() {
        for delivery in [DeliveryType::Observe, DeliveryType::OpenShift] {
            let there = deliveries("", delivery, 3).staying();
            let effects = there.effects(&config(&["a"]), all(true));
            assert_eq!(effects.sentences(), [""; 0], "{delivery:?}");
        }
    }

    #[test]
    fn the_first_scope_restarts_and_the_next_ones_do_not() {
        let provider = DeliveryType::CredentialProvider;
        for (in_force, expected) in [
            (
                r#"{"type":"CredentialProvider"}"#,
                "the first source with a scope: restarts 3 kubelets once, 1 at a time; pods keep running",
            ),
            (
                r#"{"type":"CredentialProvider","scopes":true}"#,
                "restarts no kubelet",
            ),
        ] {
            let differs = Differs {
                has_scope: true,
                ..all(true)
            };
            let effects = deliveries(in_force, provider, 3).effects(&config(&["a"]), differs);
            assert_eq!(effects.sentences(), [expected]);
        }
    }
}
