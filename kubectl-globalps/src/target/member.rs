//! The connection to a member cluster, with the rights of the user, not with those of the hub.

use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::config::Kubeconfig;

use crate::cli::{Connection, FleetStatus as Args};
use crate::cluster::client::Cluster;
use crate::error::{Failure, Result};
use crate::secret::additional::data_of;
use crate::target::pull_secret;
use crate::view::fleet::ClusterRow;

const HINT: &str = "name a kubeconfig of that cluster with `--member-kubeconfig FILE`, or run `kubectl globalps status` in that cluster";

pub(crate) struct MemberCluster<'a> {
    pub(crate) cluster: Cluster<'a>,
    /// `NAMESPACE/NAME` of the cluster.
    title: String,
    /// The Secret on the hub with the kubeconfig; `None`: the user named a file.
    secret: Option<String>,
}

pub(crate) async fn connect<'a>(
    hub: &Cluster<'a>,
    row: &ClusterRow,
    args: &Args,
    flags: &Connection,
) -> Result<MemberCluster<'a>> {
    let title = &row.name;
    if let Some(file) = &args.member_kubeconfig {
        let flags = flags.of_member(file, args.member_context.as_ref());
        return Ok(MemberCluster {
            cluster: Cluster::connect(&flags, hub.printer())?,
            title: title.clone(),
            secret: None,
        });
    }
    let (secret, bytes) = kubeconfig(hub, row).await?;
    let unusable = |reason: &str| {
        let message = format!("the kubeconfig in Secret `{secret}` can't be used: it {reason}");
        Failure::new(message, HINT)
    };
    // Errors are dropped: they may quote the kubeconfig.
    let text = std::str::from_utf8(&bytes).ok();
    let kubeconfig = text.and_then(|text| Kubeconfig::from_yaml(text).ok());
    let kubeconfig = kubeconfig.ok_or_else(|| unusable("is not a kubeconfig"))?;
    Ok(MemberCluster {
        cluster: hub.of_others(kubeconfig).map_err(unusable)?,
        title: title.clone(),
        secret: Some(secret),
    })
}

impl MemberCluster<'_> {
    /// Names the cluster in an error, and whose kubeconfig it was that did not do.
    pub(crate) fn may<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|mut failure| {
            failure.message = format!("cluster `{}`: {}", self.title, failure.message);
            if let Some(secret) = &self.secret
                && (failure.is(401) || failure.is(403))
            {
                failure.hint =
                    format!("the kubeconfig is that of Secret `{secret}` on the hub; {HINT}");
            }
            failure
        })
    }
}

/// The Secret with the kubeconfig, and the kubeconfig: Cluster API's for a `Cluster`, because everyone who may create Secrets may create
/// one with its name.
async fn kubeconfig(hub: &Cluster<'_>, row: &ClusterRow) -> Result<(String, Vec<u8>)> {
    let title = &row.name;
    let (namespace, name) = title.split_once('/').unwrap_or_default();
    let of_cluster_api = (format!("{name}-kubeconfig"), false);
    let names = if row.kind == "Cluster" {
        vec![of_cluster_api]
    } else {
        vec![(name.to_owned(), true), of_cluster_api]
    };
    let mut forbidden = Vec::new();
    for (name, is_registered) in &names {
        let shown = format!("{namespace}/{name}");
        let found = match pull_secret::get_in(hub, namespace, name).await {
            Err(failure) if failure.is(403) => {
                forbidden.push(shown);
                continue;
            }
            found => found?,
        };
        let registers = |secret: &Secret| {
            let label = secret.labels().get(names::CLUSTER_LABEL);
            label.is_some_and(|value| value == "true")
        };
        let Some(secret) = found.filter(|secret| !is_registered || registers(secret)) else {
            continue;
        };
        let mut keys = names::CLUSTER_KUBECONFIG_KEYS.iter();
        let bytes = keys.find_map(|key| data_of(&secret, key));
        let bytes = bytes
            .ok_or_else(|| Failure::new(format!("Secret `{shown}` has no kubeconfig"), HINT))?;
        return Ok((shown, bytes.to_vec()));
    }
    if forbidden.is_empty() {
        let message = format!("the hub has no Secret with the kubeconfig of cluster `{title}`");
        return Err(Failure::new(message, HINT));
    }
    Err(Failure::new(
        format!(
            "you may not read the kubeconfig of cluster `{title}` on the hub: not allowed to get Secret `{}`",
            forbidden.join("` or `")
        ),
        HINT,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::client::tests::mocked;
    use crate::terminal::printer::Printer;
    use crate::view::fleet::FleetStatus;
    use crate::view::fleet::tests::{fleet, object};
    use globalps_core::api::ClusterPhase;
    use k8s_openapi::ByteString;
    use serde_json::{Value, json};

    const REGISTERED: &str = "/api/v1/namespaces/clusters/secrets/m1";
    const OF_CLUSTER_API: &str = "/api/v1/namespaces/clusters/secrets/m1-kubeconfig";

    fn secret(label: &str, key: &str, kubeconfig: &str) -> Value {
        let data = ByteString(kubeconfig.as_bytes().to_vec());
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "m1", "labels": {"globalps.io/cluster": label}},
            "data": {key: data},
        })
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_kubeconfig_is_the_hubs_if_the_user_may_read_it() {
        let printer = Printer::silent();
        let one = || secret("true", "kubeconfig", "one");
        let two = || secret("", "value", "two");
        let both = || vec![(REGISTERED, 200, one()), (OF_CLUSTER_API, 200, two())];
        for (sentence, answers, expected) in [
            (
                "the registered one goes before Cluster API's",
                both(),
                Ok(("clusters/m1", "one")),
            ),
            (
                "of a Cluster",
                both(),
                Ok(("clusters/m1-kubeconfig", "two")),
            ),
            (
                "a Secret of the name that registers nothing",
                vec![
                    (REGISTERED, 200, secret("false", "value", "s3cret")),
                    (OF_CLUSTER_API, 200, two()),
                ],
                Ok(("clusters/m1-kubeconfig", "two")),
            ),
            (
                "one of them may be read",
                vec![(REGISTERED, 403, json!({})), (OF_CLUSTER_API, 200, two())],
                Ok(("clusters/m1-kubeconfig", "two")),
            ),
            (
                "none may be read",
                vec![
                    (REGISTERED, 403, json!({})),
                    (OF_CLUSTER_API, 403, json!({})),
                ],
                Err(
                    "you may not read the kubeconfig of cluster `clusters/m1` on the hub: not allowed to get Secret `clusters/m1` or `clusters/m1-kubeconfig`",
                ),
            ),
            (
                "another key",
                vec![(REGISTERED, 200, secret("true", "config", "s3cret"))],
                Err("Secret `clusters/m1` has no kubeconfig"),
            ),
            (
                "there is none",
                vec![],
                Err("the hub has no Secret with the kubeconfig of cluster `clusters/m1`"),
            ),
        ] {
            let hub = mocked(&answers, &printer);
            let object = object("m1", ClusterPhase::Synced, 3);
            let status = FleetStatus::of(&fleet("Synced", 3), [&object], &[]);
            let mut row = status.clusters.into_iter().next().expect("one");
            if sentence == "of a Cluster" {
                row.kind = "Cluster".to_owned();
            }
            let found = kubeconfig(&hub, &row).await;
            if let Err(failure) = &found {
                assert!(failure.hint.contains("--member-kubeconfig"), "{sentence}");
            }
            let found = found.map_err(|failure| failure.message);
            let expected = expected
                .map(|(secret, bytes)| (secret.to_owned(), bytes.as_bytes().to_vec()))
                .map_err(str::to_owned);
            assert_eq!(found, expected, "{sentence}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_error_of_the_member_names_it_and_whose_kubeconfig_it_was() {
        let printer = Printer::silent();
        let refused = || {
            let status = kube::core::Status {
                code: 403,
                ..kube::core::Status::failure("no", "Forbidden")
            };
            Failure::from_kube(
                "list the NodePullSecrets",
                &kube::Error::Api(status.boxed()),
            )
        };
        for (secret, expected) in [
            (Some("clusters/m1".to_owned()), "Secret `clusters/m1`"),
            (None, "kubectl auth can-i"),
        ] {
            let member = MemberCluster {
                cluster: mocked(&[], &printer),
                title: "clusters/m1".to_owned(),
                secret,
            };
            let failure = member.may(Err::<(), _>(refused())).expect_err("refused");
            assert!(
                failure
                    .message
                    .starts_with("cluster `clusters/m1`: not allowed to list"),
                "{failure:?}"
            );
            assert!(failure.hint.contains(expected), "{failure:?}");
        }
    }
}
