//! The form in which nodes get the content. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec};
use globalps_dockerconfig::DockerConfig;
use globalps_provider::{Content, Delivery, ProviderConfig, ScopedConfig};

use super::secret::Global;

/// The content for nodes. Every pod of a node can use the node's credentials file, so scoped credentials never go into it.
pub(super) fn delivered(
    spec: &GlobalPullSecretSpec,
    config: DockerConfig,
    scoped: Vec<ScopedConfig>,
    before: Option<&Global>,
) -> Content {
    if spec.kubelet.delivery != DeliveryType::CredentialProvider {
        return Content {
            config,
            // For namespaces; a node's credentials file never has it.
            scoped: if spec.image_pull_secrets.enabled {
                scoped
            } else {
                Vec::new()
            },
            ..Content::default()
        };
    }
    let before = before.and_then(|global| global.content.as_ref());
    let before = match before.map(|content| &content.delivery) {
        Some(Delivery::CredentialProvider(provider)) => Some(provider),
        _ => None,
    };
    let configs = scoped.iter().map(|scoped| &scoped.config);
    let provider =
        ProviderConfig::for_content(configs.chain([&config]), !scoped.is_empty(), before);
    Content {
        config,
        scoped,
        delivery: Delivery::CredentialProvider(provider),
    }
}

#[cfg(test)]
mod tests {
    use globalps_dockerconfig::parse;
    use globalps_provider::Scope;

    use super::*;

    #[test]
    fn scoped_content_is_for_provider_and_namespaces_only() {
        let config = |keys: &[&str]| {
            let entries: Vec<String> = keys
                .iter()
                .map(|key| format!(r#""{key}":{{"auth":"dTpw"}}"#))
                .collect();
            parse(format!(r#"{{"auths":{{{}}}}}"#, entries.join(",")).as_bytes()).unwrap()
        };
        let scoped = |key: &str| ScopedConfig {
            source: "team-a".to_owned(),
            scope: Scope::default(),
            config: config(&[key]),
        };
        let mut spec = GlobalPullSecretSpec::default();
        let content = delivered(&spec, config(&["a"]), vec![scoped("b:1")], None);
        assert!(content.scoped.is_empty() && content.delivery == Delivery::ConfigFile);
        spec.image_pull_secrets.enabled = true;
        let content = delivered(&spec, config(&["a"]), vec![scoped("b:1")], None);
        assert!(content.scoped.len() == 1 && content.delivery == Delivery::ConfigFile);
        spec.kubelet.delivery = DeliveryType::CredentialProvider;
        let mut before = None;
        for (keys, scoped_key, expected) in [
            (&["a", "a:443", "a:5000"][..], "b", ""),
            (&["a:1234"], "b", "1234"),
            (&["a"], "b", "1234"),
            (&["other:1234"], "b", "1234"),
            (&["a"], "b:9", "9"),
        ] {
            let content = delivered(
                &spec,
                config(keys),
                vec![scoped(scoped_key)],
                before.as_ref(),
            );
            assert_eq!(content.scoped.len(), 1);
            let Delivery::CredentialProvider(provider) = &content.delivery else {
                panic!("by the provider");
            };
            let ports: Vec<&str> = provider.ports.iter().map(String::as_str).collect();
            assert_eq!(ports.join(" "), expected, "{keys:?} {scoped_key}");
            assert!(provider.scopes);
            before = Some(Global {
                content: Some(content),
                ..Global::default()
            });
        }
        let content = delivered(&spec, config(&["a"]), Vec::new(), before.as_ref());
        let asks_for_tokens = |content: &Content| match &content.delivery {
            Delivery::CredentialProvider(provider) => provider.scopes,
            Delivery::ConfigFile => false,
        };
        assert!(
            asks_for_tokens(&content),
            "removing the last scope restarts nothing"
        );
        let content = delivered(&spec, config(&["a"]), Vec::new(), None);
        assert!(
            !asks_for_tokens(&content),
            "without a scope no pull needs a token"
        );
    }
}
