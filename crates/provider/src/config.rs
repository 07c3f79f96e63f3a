//! How content reaches the kubelet, and the kubelet's configuration of the provider.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use globalps_dockerconfig::DockerConfig;

/// Version of the provider's API, in requests, responses and the kubelet's configuration.
pub const API_VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";
/// Audience of the tokens that the kubelet requests for the provider.
pub const AUDIENCE: &str = "globalps.io";
/// Name of the program.
pub const BINARY: &str = "globalps-credential-provider";
/// Second name of the program, for runs with the pod's token. The kubelet identifies providers by name.
pub const SCOPED_BINARY: &str = "globalps-credential-provider-scoped";
/// All names of the program in the kubelet's directory of provider binaries.
pub const PROVIDERS: [&str; 2] = [SCOPED_BINARY, BINARY];
/// Field of an entry whose program gets tokens of pods.
pub(super) const TOKEN_ATTRIBUTES: &str = "tokenAttributes";

/// The oldest Kubernetes with version 1 of the API, as `(major, minor)`.
pub const MIN_KUBELET: (u32, u32) = (1, 26);
/// The oldest Kubernetes that passes the pod's token to a provider.
pub const MIN_KUBELET_FOR_SCOPES: (u32, u32) = (1, 34);

/// Registry ports that the provider always serves, even without content for them. Any other new port requires a kubelet restart.
const COMMON_PORTS: [&str; 7] = ["443", "5000", "5001", "5050", "5443", "8082", "8443"];
/// A pattern has as many labels as the hosts that it matches, so the provider is never run for hosts with more labels.
pub const MOST_LABELS: usize = 8;

/// How content takes effect on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Delivery {
    /// The kubelet's credentials file, and a restart.
    #[default]
    ConfigFile,
    /// The kubelet runs a program at each pull; a restart only when this configuration changes.
    CredentialProvider(ProviderConfig),
}

/// The input of the kubelet's configuration of the provider. Any change of it requires a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderConfig {
    /// Registry ports in addition to the common ones.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ports: BTreeSet<String>,
    /// Whether a source has a scope, so the provider needs the pod's token. Without scopes no pull waits for a token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scopes: bool,
}

/// Ports in the keys that the provider doesn't serve by default.
pub fn ports(config: &DockerConfig) -> BTreeSet<String> {
    let keys = config.entries().iter();
    keys.filter_map(globalps_dockerconfig::Entry::port)
        .filter(|port| !COMMON_PORTS.contains(&port.as_str()))
        .collect()
}

/// Major and minor version of a kubelet from its Node, such as `v1.36.3`; `None`: unknown.
pub fn kubelet_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix('v')?.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some((major, minor))
}

impl ProviderConfig {
    /// The configuration for this content. `before` is what the kubelets have; it stays if it suffices, because dropping a port
    /// or a scope is not worth a restart.
    pub fn for_content<'a>(
        configs: impl IntoIterator<Item = &'a DockerConfig>,
        scopes: bool,
        before: Option<&Self>,
    ) -> Self {
        let needed = Self {
            ports: configs.into_iter().flat_map(ports).collect(),
            scopes,
        };
        let suffices =
            |before: &&Self| before.ports.is_superset(&needed.ports) && (before.scopes || !scopes);
        before.filter(suffices).cloned().unwrap_or(needed)
    }

    /// Images for which the kubelet runs the provider: those of every registry on a known port. It compares ports as text, and
    /// hosts label by label.
    fn match_images(&self) -> Vec<String> {
        let hosts: Vec<String> = (1..=MOST_LABELS)
            .map(|labels| vec!["*"; labels].join("."))
            .collect();
        let ports = COMMON_PORTS.into_iter().map(str::to_owned);
        let ports: BTreeSet<String> = ports.chain(self.ports.iter().cloned()).collect();
        let with_port = ports
            .iter()
            .flat_map(|port| hosts.iter().map(move |host| format!("{host}:{port}")));
        hosts.iter().cloned().chain(with_port).collect()
    }

    /// The entries of `providers`. The scoped one comes first, because the kubelet tries its credentials first. `data_file`: path
    /// of the provider's file on the node. `tokens`: the kubelet can request tokens.
    pub fn providers(&self, data_file: &str, tokens: bool) -> Vec<Value> {
        let provider = |name: &str, args: Vec<String>| {
            json!({
                "name": name,
                "matchImages": self.match_images(),
                "defaultCacheDuration": "0s",
                "apiVersion": API_VERSION,
                "args": args,
            })
        };
        let data_file = format!("--data={data_file}");
        let mut scoped = provider(
            SCOPED_BINARY,
            vec![data_file.clone(), "--scoped".to_owned()],
        );
        scoped[TOKEN_ATTRIBUTES] = json!({
            "serviceAccountTokenAudience": AUDIENCE,
            "cacheType": "ServiceAccount",
            // Static pods have no service account, and no scope covers them.
            "requireServiceAccount": true,
        });
        let all = provider(BINARY, vec![data_file]);
        if tokens && self.scopes {
            vec![scoped, all]
        } else {
            vec![all]
        }
    }

    /// The input that a [`document`](Self::document) was made from; the default if it is not such a document.
    pub fn of_document(document: &[u8]) -> Self {
        let document: Value = serde_json::from_slice(document).unwrap_or_default();
        let providers = || document["providers"].as_array().into_iter().flatten();
        let images = providers().filter_map(|provider| provider["matchImages"].as_array());
        let ports = images
            .flatten()
            .filter_map(|image| image.as_str()?.split_once(':'));
        Self {
            ports: ports
                .map(|(_, port)| port.to_owned())
                .filter(|port| !COMMON_PORTS.contains(&port.as_str()))
                .collect(),
            scopes: providers().any(|provider| provider["name"] == SCOPED_BINARY),
        }
    }

    /// A `CredentialProviderConfig` with only these entries.
    pub fn document(&self, data_file: &str, tokens: bool) -> Vec<u8> {
        let document = json!({
            "apiVersion": "kubelet.config.k8s.io/v1",
            "kind": "CredentialProviderConfig",
            "providers": self.providers(data_file, tokens),
        });
        let mut bytes = serde_json::to_vec_pretty(&document).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(keys: &[&str]) -> DockerConfig {
        let entries = keys.iter().map(|key| ((*key).to_owned(), json!({})));
        let auths: serde_json::Map<String, Value> = entries.collect();
        let text = json!({"auths": auths}).to_string();
        globalps_dockerconfig::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_configuration_names_both_providers_and_every_known_port() {
        let config = ProviderConfig {
            ports: BTreeSet::from(["4567".to_owned()]),
            scopes: true,
        };
        assert_eq!(
            ProviderConfig::of_document(&config.document("/d", true)),
            config
        );
        assert_eq!(
            ProviderConfig::of_document(b"providers: []"),
            ProviderConfig::default()
        );
        let document: Value = serde_json::from_slice(&config.document("/d", true)).unwrap();
        assert_eq!(document["apiVersion"], "kubelet.config.k8s.io/v1");
        assert_eq!(document["kind"], "CredentialProviderConfig");
        let [scoped, all] = &document["providers"].as_array().unwrap()[..] else {
            panic!("{document}");
        };
        assert_eq!(scoped["name"], "globalps-credential-provider-scoped");
        assert_eq!(scoped["args"], json!(["--data=/d", "--scoped"]));
        let attributes = json!({
            "serviceAccountTokenAudience": "globalps.io",
            "cacheType": "ServiceAccount",
            "requireServiceAccount": true,
        });
        assert_eq!(scoped["tokenAttributes"], attributes);
        assert_eq!(all["name"], "globalps-credential-provider");
        assert_eq!(all["args"], json!(["--data=/d"]));
        assert_eq!(all.get("tokenAttributes"), None);
        for provider in [scoped, all] {
            assert_eq!(provider["apiVersion"], API_VERSION);
            assert_eq!(provider["defaultCacheDuration"], "0s");
            let images = provider["matchImages"].as_array().unwrap();
            assert_eq!(images.len(), MOST_LABELS * (COMMON_PORTS.len() + 2));
            for image in ["*", "*.*", "*.*.*.*.*.*.*.*", "*:443", "*.*:4567"] {
                assert!(images.contains(&json!(image)), "{image}");
            }
        }
        assert_eq!(config.providers("/d", false), std::slice::from_ref(all));
    }

    #[test]
    fn only_uncommon_ports_are_listed() {
        let keys = [
            "a:443",
            "b:4567",
            "*.c:4567/d",
            "https://e:80/v1/",
            "f",
            "g:",
            "h:x",
            "[::1]:9",
        ];
        let config = credentials(&keys);
        let expected = ["4567", "80", "9"].map(str::to_owned);
        assert_eq!(ports(&config), BTreeSet::from(expected));
    }

    /// A change of the configuration restarts every kubelet.
    #[test]
    fn the_configuration_stays_while_it_suffices() {
        let provider = |ports: &[&str], scopes| ProviderConfig {
            ports: ports.iter().map(|port| (*port).to_owned()).collect(),
            scopes,
        };
        let both = provider(&["1", "2"], true);
        for (keys, scopes, before, expected) in [
            (&["a", "b:1"][..], false, None, provider(&["1"], false)),
            (&["a:1", "b:2"], true, None, both.clone()),
            (&["a:2", "b:1"], true, Some(&both), both.clone()),
            (&["a:1"], true, Some(&both), both.clone()),
            (&["a:1", "b:2"], false, Some(&both), both.clone()),
            (&["a"], false, Some(&both), both.clone()),
            (
                &["a:1", "b:3"],
                true,
                Some(&both),
                provider(&["1", "3"], true),
            ),
            (&["a:3"], false, Some(&both), provider(&["3"], false)),
            (
                &["a:1"],
                true,
                Some(&provider(&["1", "2"], false)),
                provider(&["1"], true),
            ),
        ] {
            let (first, others) = keys.split_at(1);
            let configs = [credentials(first), credentials(others)];
            let found = ProviderConfig::for_content(&configs, scopes, before);
            assert_eq!(found, expected, "{keys:?} {scopes} {before:?}");
        }
    }

    #[test]
    fn the_version_of_a_kubelet_is_parsed() {
        for (text, expected) in [
            ("v1.36.3", Some((1, 36))),
            ("v1.26.0-gke.1", Some((1, 26))),
            ("v1.34.2+k3s1", Some((1, 34))),
            ("v2.0", Some((2, 0))),
            ("1.36.3", None),
            ("v1", None),
            ("v1.x", None),
            ("", None),
        ] {
            assert_eq!(kubelet_version(text), expected, "{text}");
        }
    }
}
