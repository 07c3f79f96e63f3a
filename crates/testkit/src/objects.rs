//! Reads objects from the API server in this process. Tests poll while they wait, and each kubectl would take a
//! fifteenth of a second of processor time that the nodes need.

use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http_body_util::BodyExt as _;
use hyper::{Request, StatusCode};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::control_plane::kubectl;
use crate::layout::Layout;

/// Longer than a test keeps the API server frozen.
const DEADLINE: Duration = Duration::from_mins(2);

/// Kinds that tests wait for: name, API, plural, and whether objects belong to a namespace.
#[rustfmt::skip]
const KINDS: [(&str, &str, &str, bool); 11] = [
    ("secret", "api/v1", "secrets", true),
    ("pod", "api/v1", "pods", true),
    ("serviceaccount", "api/v1", "serviceaccounts", true),
    ("node", "api/v1", "nodes", false),
    ("daemonset", "apis/apps/v1", "daemonsets", true),
    ("deployment", "apis/apps/v1", "deployments", true),
    ("lease", "apis/coordination.k8s.io/v1", "leases", true),
    ("globalpullsecret", "apis/globalps.io/v1alpha1", "globalpullsecrets", true),
    ("nodepullsecret", "apis/globalps.io/v1alpha1", "nodepullsecrets", true),
    ("fleetpullsecret", "apis/globalps.io/v1alpha1", "fleetpullsecrets", true),
    ("clusterpullsecret", "apis/globalps.io/v1alpha1", "clusterpullsecrets", true),
];

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all();
    runtime.build().expect("a thread for requests")
});

/// The object `KIND/NAME`, or the list of all objects of a kind in the namespace, in the format of `kubectl get -o
/// json`. Null if the object does not exist. Runs kubectl for a kind that is not in the table.
pub(crate) fn read(layout: &Layout, namespace: &str, what: &str) -> Result<Value> {
    let Some(path) = path(namespace, what) else {
        let args = [
            "get",
            what,
            "-n",
            namespace,
            "-o",
            "json",
            "--ignore-not-found",
        ];
        let text = kubectl(layout, &args)?;
        return match text.trim() {
            "" => Ok(Value::Null),
            text => Ok(serde_json::from_str(text)?),
        };
    };
    let (status, text) = request(layout, &path, DEADLINE).with_context(|| what.to_owned())?;
    let mut value: Value = serde_json::from_str(&text).unwrap_or_default();
    match status {
        StatusCode::OK => {
            leave_out_managed_fields(&mut value);
            Ok(value)
        }
        // A kind that the API server does not know has no `details.name`.
        StatusCode::NOT_FOUND if value["details"]["name"].is_string() => Ok(Value::Null),
        _ => anyhow::bail!("could not read {what}: {status}: {}", text.trim()),
    }
}

/// Like kubectl.
fn leave_out_managed_fields(value: &mut Value) {
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    let items = value.get_mut("items").and_then(Value::as_array_mut);
    items
        .into_iter()
        .flatten()
        .for_each(leave_out_managed_fields);
}

/// Whether the API server reports that it is ready.
pub(crate) fn is_ready(layout: &Layout) -> bool {
    request(layout, "/readyz", Duration::from_secs(5))
        .is_ok_and(|(status, _)| status == StatusCode::OK)
}

fn path(namespace: &str, what: &str) -> Option<String> {
    let (kind, name) = match what.split_once('/') {
        Some((kind, name)) => (kind, Some(name)),
        None => (what, None),
    };
    let (_, api, plural, is_namespaced) = KINDS
        .into_iter()
        .find(|(singular, _, plural, _)| [singular, plural].contains(&&kind))?;
    let namespace = if is_namespaced {
        format!("namespaces/{namespace}/")
    } else {
        String::new()
    };
    let name = name.map(|name| format!("/{name}")).unwrap_or_default();
    Some(format!("/{api}/{namespace}{plural}{name}"))
}

/// Sends a GET request as the cluster's admin, on a new connection, because the API server may have been replaced.
fn request(layout: &Layout, path: &str, deadline: Duration) -> Result<(StatusCode, String)> {
    let kubeconfig = std::fs::read_to_string(layout.kubeconfig())?;
    let request = Request::get(path).body(kube::client::Body::empty())?;
    let (sender, receiver) = mpsc::channel();
    // `block_on` would panic if the caller is a task itself.
    RUNTIME.spawn(async move {
        let answer = tokio::time::timeout(deadline, async {
            let response = client(&kubeconfig).await?.send(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok((status, String::from_utf8_lossy(&body).into_owned()))
        });
        let _ = sender.send(answer.await);
    });
    receiver.recv()?.context("no answer from the API server")?
}

/// A client with the permissions of a kubeconfig.
pub(crate) async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    // A frozen API server does not answer a handshake either.
    config.connect_timeout = Some(DEADLINE);
    Ok(Client::try_from(config)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_for_one_object_or_for_a_kind() {
        for (what, expected) in [
            ("secret/a", Some("/api/v1/namespaces/n/secrets/a")),
            ("secrets", Some("/api/v1/namespaces/n/secrets")),
            ("nodes", Some("/api/v1/nodes")),
            ("node/a", Some("/api/v1/nodes/a")),
            (
                "nodepullsecret/a",
                Some("/apis/globalps.io/v1alpha1/namespaces/n/nodepullsecrets/a"),
            ),
            ("clusterrole/a", None),
            ("nodes,pods", None),
        ] {
            assert_eq!(path("n", what).as_deref(), expected, "{what}");
        }
    }
}
