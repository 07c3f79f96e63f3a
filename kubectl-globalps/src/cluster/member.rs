//! The kubeconfig of a member cluster, and the one that the hub gets of it. Pure.

use globalps_core::names;
use kube::config::{Cluster as Server, Kubeconfig};
use serde_json::{Value, json};

use crate::error::{Failure, Result};

/// The cluster of the kubeconfig's context.
pub(crate) fn server_of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Result<Server> {
    let hint = "name a context with `--member-context`";
    let context = context.or(kubeconfig.current_context.as_deref());
    let Some(wanted) = context else {
        let message = "the member's kubeconfig has no current context";
        return Err(Failure::new(message, hint));
    };
    let named = kubeconfig.contexts.iter().find(|it| it.name == wanted);
    let context = named.and_then(|it| it.context.as_ref());
    let cluster = context.and_then(|context| {
        let mut clusters = kubeconfig.clusters.iter();
        clusters
            .find(|it| it.name == context.cluster)?
            .cluster
            .clone()
    });
    cluster.filter(|it| it.server.is_some()).ok_or_else(|| {
        let message =
            format!("the member's kubeconfig has no context `{wanted}`, or no server for it");
        Failure::new(message, hint)
    })
}

/// Where the hub reaches a member.
pub(crate) struct Access {
    pub server: String,
    /// PEM, in Base64; `None`: the certificate is of a public authority.
    pub authority: Option<String>,
    pub tls_server_name: Option<String>,
}

/// A kubeconfig with this token. JSON is YAML too.
pub(crate) fn kubeconfig(name: &str, access: &Access, token: &str) -> Value {
    let mut cluster = json!({"server": access.server});
    for (key, value) in [
        ("certificate-authority-data", &access.authority),
        ("tls-server-name", &access.tls_server_name),
    ] {
        if let Some(value) = value {
            cluster[key] = json!(value);
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": names::HUB, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": names::HUB}}],
        "current-context": name,
    })
}

/// Whether another machine would reach itself at this address.
pub(crate) fn is_loopback(server: &str) -> bool {
    let uri = server.parse::<hyper::Uri>().ok();
    let host = uri.as_ref().and_then(hyper::Uri::host).unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|it| it.is_loopback() || it.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_that_of_the_context() {
        let kubeconfig = Kubeconfig::from_yaml(
            "{apiVersion: v1, kind: Config, current-context: a, \
             contexts: [{name: a, context: {cluster: one, user: u}}, {name: b, context: {cluster: two, user: u}}, \
             {name: c, context: {cluster: three, user: u}}], \
             clusters: [{name: one, cluster: {server: 'https://one'}}, {name: two, cluster: {server: 'https://two'}}]}",
        )
        .expect("a kubeconfig");
        for (context, expected) in [
            (None, Some("https://one")),
            (Some("b"), Some("https://two")),
            (Some("c"), None),
            (Some("d"), None),
        ] {
            let found = server_of(&kubeconfig, context).ok();
            let found = found.and_then(|it| it.server);
            assert_eq!(found.as_deref(), expected, "{context:?}");
        }
    }

    #[test]
    fn the_hubs_kubeconfig_has_the_server_and_the_token() {
        let access = Access {
            server: "https://m1:6443".to_owned(),
            authority: Some("Q0E=".to_owned()),
            tls_server_name: None,
        };
        let text = kubeconfig("m1", &access, "t0ken").to_string();
        let read = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let server = server_of(&read, None).expect("a server");
        assert_eq!(server.server.as_deref(), Some("https://m1:6443"));
        assert_eq!(server.certificate_authority_data.as_deref(), Some("Q0E="));
        assert!(text.contains("t0ken"));
    }

    #[test]
    fn an_address_of_this_machine_is_found() {
        for (server, expected) in [
            ("https://127.0.0.1:6443", true),
            ("https://localhost", true),
            ("https://[::1]:6443", true),
            ("https://0.0.0.0:6443", true),
            ("https://10.0.0.1:6443", false),
            ("https://m1.example.com", false),
        ] {
            assert_eq!(is_loopback(server), expected, "{server}");
        }
    }
}
