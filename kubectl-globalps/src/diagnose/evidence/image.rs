//! Everything that is known about a pull of an image.

use crate::cli::Named;
use crate::cluster::namespaces::NamespaceSeen;
use crate::cluster::{Cluster, Sight, node_secrets};
use crate::diagnose::evidence::delivered::{Delivered, Existing, OfPod, needs_policy};
use crate::diagnose::evidence::namespaces::admission_policy;
use crate::diagnose::pull::{Asked, Keyring, Provided, Puller};
use crate::diagnose::tried::Origin;
use crate::diagnose::why::{Added, Lag, is_same_image};
use crate::error::{Failure, Result, allowed};
use crate::secret::additional::{data_of, valid_in};
use crate::secret::openshift::NotWritten;
use crate::target::openshift;
use crate::target::pull_secret::{self, content_of, unreadable};
use globalps_core::api::{
    DeliveryType, GlobalPullSecret, NodePullSecret, NodePullSecretSpec, SourceStatus,
};
use globalps_core::decode::Item;
use globalps_core::names;
use globalps_dockerconfig::{DockerConfig, Entry, parse, shown_key};
use globalps_provider::{Content, Delivery, MIN_KUBELET_FOR_SCOPES, PodIdentity, kubelet_version};
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, ServiceAccount};
use kube::Api;
use std::collections::BTreeMap;
use tokio::sync::Mutex;

/// What all pulls of a cluster share.
pub(crate) struct Shared {
    pub gps: Option<GlobalPullSecret>,
    pub global: Option<Secret>,
    /// Registries of it that the delivery `OpenShift` does not write.
    pub not_written: Vec<NotWritten>,
    /// New pods of namespaces get no reference to the Secret there.
    pub lacks_policy: bool,
    /// All `NodePullSecret`s; `None`: only that of the pod's node is read.
    pub nodes: Option<BTreeMap<String, NodePullSecret>>,
    /// Those of the pods that were looked at.
    namespaces: Mutex<BTreeMap<String, NamespaceSeen>>,
}

impl Shared {
    pub(crate) async fn of(cluster: &Cluster<'_>, gps: Option<GlobalPullSecret>) -> Result<Self> {
        let global = pull_secret::in_force(cluster).await?;
        let content = global
            .as_ref()
            .and_then(|secret| valid_in(secret, names::DATA_KEY))
            .unwrap_or_default();
        let spec = gps.as_ref().map(|gps| &gps.spec);
        let into_openshift = openshift::planned(cluster, spec, &content, &content).await?;
        Ok(Self {
            global,
            not_written: into_openshift.map_or_else(Vec::new, |it| it.not_written),
            lacks_policy: gps.as_ref().is_some_and(needs_policy)
                && admission_policy(cluster).await? == Sight::Absent,
            gps,
            nodes: None,
            namespaces: Mutex::default(),
        })
    }

    /// Read once: many pods have the same. Empty if this user may not read it: then its name decides whether it is selected.
    async fn namespace(&self, cluster: &Cluster<'_>, name: &str) -> Result<NamespaceSeen> {
        let mut known = self.namespaces.lock().await;
        if let Some(seen) = known.get(name) {
            return Ok(seen.clone());
        }
        let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
        let found = cluster.call("get the Namespace", namespaces.get_metadata_opt(name));
        let found = allowed(found.await)?.flatten();
        let seen = found.as_ref().map(NamespaceSeen::of).unwrap_or_default();
        known.insert(name.to_owned(), seen.clone());
        Ok(seen)
    }
}

/// Who pulls the image.
pub(crate) enum PullerSeen {
    Anybody,
    Account(Named, Box<ServiceAccount>),
    Pod(Named, Box<Pod>),
}

/// Collects everything known about a pull. `may_hide`: Secrets of the pod that this user may not read are no error.
pub(crate) async fn asked(
    cluster: &Cluster<'_>,
    shared: &Shared,
    image: &str,
    of: &PullerSeen,
    may_hide: bool,
) -> Result<Asked> {
    let (gps, global) = (shared.gps.as_ref(), shared.global.as_ref());
    let mut asked = Asked {
        image: image.to_owned(),
        may_hide,
        ..Asked::default()
    };
    let mut node = None;
    let referring = match of {
        PullerSeen::Anybody => None,
        PullerSeen::Pod(named, pod) => {
            let spec = pod.spec.clone().unwrap_or_default();
            asked.puller = match spec.service_account_name.filter(|name| !name.is_empty()) {
                Some(name) => of_account(&named.namespace, name),
                None => Puller::Static,
            };
            asked.notes.extend(words_of_kubelet(pod, image));
            if let Some(name) = spec.node_name {
                node = Some((name.clone(), node_secret(cluster, shared, &name).await?));
            }
            let references = spec.image_pull_secrets.unwrap_or_default();
            Some((named, references, Some(Existing::of(&named.name, pod))))
        }
        PullerSeen::Account(named, account) => {
            asked.puller = of_account(&named.namespace, named.name.clone());
            let references = account.image_pull_secrets.clone().unwrap_or_default();
            Some((named, references, None))
        }
    };
    if let Some((named, references, existing)) = referring {
        let seen = shared.namespace(cluster, &named.namespace).await?;
        asked.is_terminating = seen.is_terminating;
        let lacks_policy = shared.lacks_policy;
        let delivered = Delivered::observe(cluster, gps, lacks_policy, &named.namespace, &seen);
        let delivered = delivered.await?;
        let of_pod = OfPod {
            namespace: &named.namespace,
            references,
            existing,
        };
        of_pod
            .keyrings(cluster, delivered.as_ref(), global, &mut asked)
            .await?;
    }
    if let Some((name, object)) = &node {
        asked.notes.extend(node_lags(gps, name, object));
    }
    asked.notes.extend(not_delivered(gps, image));
    let serving = shared.not_written.iter().filter(|it| {
        let registry = std::iter::once(it.registry.as_str());
        Added::new(registry, None).serves(image)
    });
    asked.notes.extend(serving.map(NotWritten::sentence));
    if gps.is_some_and(|gps| gps.spec.kubelet.delivery == DeliveryType::None) {
        asked
            .notes
            .push("nodes get nothing of globalps: `spec.kubelet.delivery` is `None`".to_owned());
        return Ok(asked);
    }
    match global.and_then(|global| Some((global, data_of(global, names::DATA_KEY)?))) {
        Some((global, bytes)) => {
            let file = Keyring {
                name: "the nodes' file".to_owned(),
                bytes: written(bytes, &shared.not_written),
                origin: Origin::Globalps,
            };
            match provided_content(global, bytes)? {
                None => asked.of_node = Some(file),
                Some(content) => {
                    let node = node.as_ref();
                    of_provider(cluster, content, file, node, &mut asked).await?;
                }
            }
        }
        None => asked.notes.push(nothing_in_force(cluster, gps).await),
    }
    Ok(asked)
}

/// Without what the nodes don't get.
fn written(bytes: &[u8], not_written: &[NotWritten]) -> Vec<u8> {
    let (false, Ok(config)) = (not_written.is_empty(), parse(bytes)) else {
        return bytes.to_vec();
    };
    let is_written = |entry: &&Entry| {
        let registry = shown_key(&entry.canonical_key());
        not_written.iter().all(|it| it.registry != registry)
    };
    let entries = config.entries().iter().filter(is_written).cloned();
    DockerConfig::new(entries.collect()).render()
}

/// Why the nodes have no credentials of globalps, as a note.
async fn nothing_in_force(cluster: &Cluster<'_>, gps: Option<&GlobalPullSecret>) -> String {
    let has_sources = gps.is_some_and(|gps| !gps.spec.sources.is_empty());
    let name = names::ADDITIONAL_SECRET;
    let why = match pull_secret::get(cluster, name).await {
        Ok(None) if !has_sources => "there is no additional pull secret".to_owned(),
        Ok(Some(_)) => {
            format!("`{name}` is there, but not in force yet; `kubectl globalps status` shows why")
        }
        // The user may lack the permission to read it.
        _ => "no pull secret is in force; `kubectl globalps status` shows why".to_owned(),
    };
    format!("nothing is synced to the nodes: {why}")
}

/// The node's `NodePullSecret`; an empty one if the node has none, or globalps is not installed.
pub(crate) async fn node_secret(
    cluster: &Cluster<'_>,
    shared: &Shared,
    name: &str,
) -> Result<NodePullSecret> {
    let found = if let Some(nodes) = &shared.nodes {
        nodes.get(name).cloned()
    } else {
        let api = cluster.api::<Item<NodePullSecret>>();
        let call = api.get_opt(name);
        match cluster.read("get the node's NodePullSecret", call).await {
            Err(failure) if failure.is(404) && shared.gps.is_none() => None,
            found => found?,
        }
    };
    Ok(found.unwrap_or_else(|| NodePullSecret::new("", NodePullSecretSpec::default())))
}

fn of_account(namespace: &str, service_account: String) -> Puller {
    Puller::Pod(PodIdentity {
        namespace: namespace.to_owned(),
        service_account,
    })
}

/// The credential provider's content; `None` if the revision is delivered by the credentials file.
fn provided_content(global: &Secret, bytes: &[u8]) -> Result<Option<Content>> {
    let annotations = global.metadata.annotations.as_ref();
    let Some(delivery) = annotations.and_then(|all| all.get(names::DELIVERY_ANNOTATION)) else {
        return Ok(None);
    };
    let delivery: Delivery = serde_json::from_str(delivery).map_err(|_| unreadable())?;
    if delivery == Delivery::ConfigFile {
        return Ok(None);
    }
    content_of(global, bytes, delivery).map(Some)
}

/// Adds the content of the node: of the pod's node or, without a pod, how many nodes have the provider and how many the file.
async fn of_provider(
    cluster: &Cluster<'_>,
    mut content: Content,
    file: Keyring,
    node: Option<&(String, NodePullSecret)>,
    asked: &mut Asked,
) -> Result<()> {
    let keeps_file = |object: &NodePullSecret| {
        let status = object.status.as_ref();
        status.is_some_and(|status| status.delivery == DeliveryType::ConfigFile.as_str())
    };
    let nodes = match node {
        Some((name, object)) if keeps_file(object) => {
            let message = object.status.as_ref().map_or("", |status| &status.message);
            asked
                .notes
                .push(format!("{name} keeps the credentials file: {message}"));
            asked.of_node = Some(file);
            return Ok(());
        }
        Some((name, object)) => {
            let version = &object.spec.kubelet_version;
            let is_old = kubelet_version(version).is_some_and(|v| v < MIN_KUBELET_FOR_SCOPES);
            if is_old && !content.scoped.is_empty() {
                let (major, minor) = MIN_KUBELET_FOR_SCOPES;
                content.scoped.clear();
                asked.notes.push(format!(
                    "the kubelet of {name} is {version}, and a source with a scope needs {major}.{minor}"
                ));
            }
            (1, 0)
        }
        None => {
            let objects = allowed(node_secrets(cluster).await)?.unwrap_or_default();
            let by_file = objects.iter().filter(|(_, object)| keeps_file(object));
            let by_file = by_file.count();
            (objects.len() - by_file, by_file)
        }
    };
    if nodes.1 > 0 {
        asked.of_node = Some(file);
    }
    asked.provided = Some(Provided { content, nodes });
    Ok(())
}

/// Sources with a scope that have a credential for the image, which no node gets.
fn not_delivered(gps: Option<&GlobalPullSecret>, image: &str) -> Vec<String> {
    let status = gps.and_then(|gps| gps.status.as_ref());
    let sources = status.iter().flat_map(|status| &status.sources);
    let sources = sources.filter(|source| source.delivery == "NotDeliverable");
    let matching = sources.filter(|source| {
        let registries = source.registries.iter().map(String::as_str);
        Added::new(registries, None).serves(image)
    });
    let note = |source: &SourceStatus| {
        format!(
            "source `{}` has a credential for it that no node gets: {}",
            source.name, source.message
        )
    };
    matching.map(note).collect()
}

pub(crate) async fn there<T>(
    cluster: &Cluster<'_>,
    named: &Named,
    kind: &str,
    request: impl Future<Output = kube::Result<Option<T>>>,
) -> Result<T> {
    let doing = format!("get {kind} `{named}`");
    cluster.call(&doing, request).await?.ok_or_else(|| {
        Failure::new(
            format!("there is no {kind} `{named}`"),
            "name it as NAMESPACE/NAME, or pass `-n NAMESPACE` to `why`",
        )
    })
}

/// Why the pod's container waits, in the kubelet's words.
fn words_of_kubelet(pod: &Pod, image: &str) -> Option<String> {
    let status = pod.status.as_ref()?;
    let all = [&status.init_container_statuses, &status.container_statuses];
    let waiting = all
        .into_iter()
        .flatten()
        .flatten()
        .filter(|container| is_same_image(&container.image, image))
        .find_map(|container| container.state.as_ref()?.waiting.as_ref())?;
    let (reason, message) = (waiting.reason.as_deref()?, waiting.message.as_deref());
    Some(format!(
        "the kubelet says {reason}: {}",
        message.unwrap_or_default()
    ))
}

/// Whether the pod's node has other credentials than those shown.
fn node_lags(
    gps: Option<&GlobalPullSecret>,
    node: &str,
    object: &NodePullSecret,
) -> Option<String> {
    let Lag {
        phase,
        revision,
        wanted,
        ..
    } = Lag::of(gps, object)?;
    Some(format!(
        "{node} is {phase} with revision {revision} of {wanted}, so it may have other credentials"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_core::api::{GlobalPullSecretSpec, GlobalPullSecretStatus};

    #[test]
    fn an_undelivered_source_is_named_where_it_has_the_registry() {
        let mut gps = GlobalPullSecret::new("g", GlobalPullSecretSpec::default());
        let source = |name: &str, registry: &str, delivery: &str| SourceStatus {
            name: name.to_owned(),
            registries: vec![registry.to_owned()],
            delivery: delivery.to_owned(),
            message: "why".to_owned(),
            ..SourceStatus::default()
        };
        gps.status = Some(GlobalPullSecretStatus {
            sources: vec![
                source("one", "quay.io/org", "NotDeliverable"),
                source("two", "quay.io/other", "NotDeliverable"),
                source("three", "quay.io", "Nodes"),
            ],
            ..GlobalPullSecretStatus::default()
        });
        assert_eq!(
            not_delivered(Some(&gps), "quay.io/org/app"),
            ["source `one` has a credential for it that no node gets: why"]
        );
        assert!(not_delivered(None, "quay.io/org/app").is_empty());
    }

    #[test]
    fn a_revision_is_the_providers_by_its_annotation() {
        let mut global = Secret::default();
        let bytes = br#"{"auths":{}}"#;
        let is_provided = |global: &Secret| provided_content(global, bytes).map(|c| c.is_some());
        assert_eq!(is_provided(&global), Ok(false));
        for (annotation, expected) in [
            (r#"{"type":"ConfigFile"}"#, Some(false)),
            (r#"{"type":"CredentialProvider"}"#, Some(true)),
            (r#"{"type":"Newer"}"#, None),
        ] {
            let annotations = [(names::DELIVERY_ANNOTATION.to_owned(), annotation.to_owned())];
            global.metadata.annotations = Some(annotations.into());
            assert_eq!(is_provided(&global).ok(), expected, "{annotation}");
        }
        global.metadata.annotations = Some(
            [(
                names::DELIVERY_ANNOTATION.to_owned(),
                r#"{"type":"CredentialProvider"}"#.to_owned(),
            )]
            .into(),
        );
        let damaged = k8s_openapi::ByteString(b"[".to_vec());
        global.data = Some([(names::SCOPED_KEY.to_owned(), damaged)].into());
        assert!(is_provided(&global).is_err());
    }
}
