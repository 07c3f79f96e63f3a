//! The observed state of the cluster, kept up to date by watches. Makes no judgements.

mod changed;
mod node;
mod node_secrets;
mod nodes;
mod pages;
mod store;
mod watch;

pub(crate) use changed::Changed;
pub(crate) use pages::{metadata_pages, pages};
pub(crate) use store::{Lost, NodeFacts, Sight, Store};
use watch::name_of;
pub(crate) use watch::{Signal, Signals, Update, WatchedKind, watch_kind};

use globalps_core::api::{
    GlobalPullSecret, GlobalPullSecretSpec, GlobalPullSecretStatus, NodePullSecret, condition,
};
use globalps_core::decode::{Item, Owned, Unreadable};
use globalps_core::names;
use globalps_core::reasons::Reason;
use globalps_runtime::list_events::one;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use kube::api::{ObjectMeta, PartialObjectMeta};

use crate::cluster::client::Cluster;
use crate::error::{Result, allowed};

pub(crate) use node_secrets::list as node_secrets;
use nodes::NodeQuery;

/// `resourceVersion` of a Secret; its data is never requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SecretVersion {
    pub version: String,
    /// See [`was_additional_rolled_out`].
    pub was_additional_rolled_out: bool,
    /// See [`waits_for`].
    pub waits_for: Option<String>,
    /// Only known after a list, not from a watch.
    pub changed: Option<Changed>,
}

/// Turns a configuration that can't be decoded into one whose condition `Ready` says so.
fn shown(object: Result<GlobalPullSecret, Box<Unreadable>>) -> GlobalPullSecret {
    object.unwrap_or_else(|unreadable| {
        let generation = unreadable.metadata.generation;
        let say = |(type_, status): (&str, &str)| Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Reason::Unreadable.into(),
            message: format!("the GlobalPullSecret can't be read: {unreadable}"),
            observed_generation: generation,
            last_transition_time: Time(Timestamp::now()),
        };
        let conditions = [
            (condition::READY, "False"),
            (condition::PROGRESSING, "False"),
            (condition::DEGRADED, "True"),
        ];
        let status = GlobalPullSecretStatus {
            observed_generation: generation.unwrap_or_default(),
            conditions: conditions.map(say).into(),
            ..GlobalPullSecretStatus::default()
        };
        GlobalPullSecret {
            metadata: unreadable.metadata,
            spec: GlobalPullSecretSpec::default(),
            status: Some(status),
        }
    })
}

/// Whether `global-pull-secret` shows that its revision is not rolled out, but its additional pull secret was: then
/// another pull secret has changed.
pub(crate) fn was_additional_rolled_out(metadata: &ObjectMeta) -> bool {
    let annotation = |name| metadata.annotations.as_ref()?.get(name);
    let revision = annotation(names::REVISION_ANNOTATION);
    revision.is_some() && revision == annotation(names::ADDITIONAL_ROLLED_OUT_ANNOTATION)
}

/// What an object that is being deleted waits for, as a clause; `None` if it isn't being deleted. The controller treats
/// such an object as absent.
pub(crate) fn waits_for(metadata: &ObjectMeta) -> Option<String> {
    metadata.deletion_timestamp.as_ref()?;
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    Some(match finalizers {
        [] => "is being deleted".to_owned(),
        [only] => format!("is being deleted and waits for the finalizer `{only}`"),
        all => format!(
            "is being deleted and waits for the finalizers `{}`",
            all.join("`, `")
        ),
    })
}

/// The hint for such an object.
pub(crate) const FINALIZERS: &str = "the program that set a finalizer removes it; where that program is gone, remove it with `kubectl edit`";

fn version_of(secret: PartialObjectMeta<Secret>) -> SecretVersion {
    SecretVersion {
        was_additional_rolled_out: was_additional_rolled_out(&secret.metadata),
        waits_for: waits_for(&secret.metadata),
        changed: Changed::of(&secret.metadata),
        version: secret.metadata.resource_version.unwrap_or_default(),
    }
}

/// The nodes to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFilter {
    /// Empty: all.
    pub names: Vec<String>,
    /// A label selector in kubectl's syntax.
    pub selector: Option<String>,
}

impl NodeFilter {
    pub(crate) fn is_all(&self) -> bool {
        self.names.is_empty() && self.selector.is_none()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The custom resources exist.
    pub installed: bool,
    pub global: Store<GlobalPullSecret>,
    pub node_secrets: Store<NodePullSecret>,
    pub filter: NodeFilter,
    /// The nodes that the selector matches; `None`: hidden from this user.
    pub nodes: Option<Store<NodeFacts>>,
    /// The additional pull secret and the one in force, each in a store of its own; `None`: hidden from this user.
    pub additional_secret: Option<Store<SecretVersion>>,
    pub global_secret: Option<Store<SecretVersion>>,
}

impl Facts {
    /// Reads everything once. What this user may not read stays hidden; only the custom resources are required.
    pub(crate) async fn observe(cluster: &Cluster<'_>) -> Result<Self> {
        Self::observe_some(cluster, NodeFilter::default()).await
    }

    /// Reads everything once, for some of the nodes.
    pub(crate) async fn observe_some(cluster: &Cluster<'_>, filter: NodeFilter) -> Result<Self> {
        let gps = cluster.api::<Item<GlobalPullSecret>>();
        let mut asked = NodeQuery {
            selector: filter.selector.clone(),
            ..NodeQuery::default()
        };
        // Boxed, because five concurrent requests are a large future that every command would carry.
        let (gps, node_secrets, nodes, additional, global) = Box::pin(async {
            tokio::join!(
                cluster.call(
                    "get the GlobalPullSecret",
                    gps.get_opt(names::GLOBAL_SECRET)
                ),
                node_secrets::list(cluster),
                nodes::list(cluster, &asked),
                secret_version(cluster, names::ADDITIONAL_SECRET),
                secret_version(cluster, names::GLOBAL_SECRET),
            )
        })
        .await;
        let gps = gps.map(|found| found.map(|item| shown(item.into_result())));
        let found = gps.as_ref().ok().and_then(Option::as_ref);
        let global = match found.map(|gps| gps.spec.kubelet.delivery.record_secret()) {
            Some(name) if name != names::GLOBAL_SECRET => secret_version(cluster, name).await,
            _ => global,
        };
        let node_selector = found.map(|gps| gps.spec.node_selector.clone());
        let nodes = match node_selector.filter(|labels| !labels.is_empty()) {
            // Few clusters set a selector, so the others don't wait for it.
            Some(node_selector) if nodes.is_ok() => {
                asked.node_selector = node_selector;
                nodes::list(cluster, &asked).await
            }
            _ => nodes,
        };
        let visible = match nodes {
            // Without the Nodes, nothing tells which ones match.
            Err(failure) if filter.selector.is_some() => return Err(failure),
            nodes => allowed(nodes)?,
        };
        let mut facts = Self {
            installed: true,
            filter,
            additional_secret: additional?,
            global_secret: global?,
            nodes: visible,
            ..Self::default()
        };
        match node_secrets {
            Ok(list) => facts.node_secrets = list,
            Err(failure) if failure.is(404) => facts.installed = false,
            Err(failure) => return Err(failure),
        }
        match gps {
            Ok(Some(gps)) => facts.global.insert(gps.name_any(), gps),
            Ok(None) => {}
            Err(failure) if failure.is(404) => facts.installed = false,
            Err(failure) => return Err(failure),
        }
        Ok(facts)
    }

    pub(crate) fn watch_node_secrets<'a>(
        &self,
        cluster: &'a Cluster<'a>,
    ) -> Signals<'a, NodePullSecret> {
        node_secrets::watch(cluster, &self.node_secrets)
    }

    /// `None` if they are hidden from this user.
    pub(crate) fn watch_nodes<'a>(
        &self,
        cluster: &'a Cluster<'a>,
    ) -> Option<Signals<'a, NodeFacts>> {
        let gps = self.gps();
        let asked = NodeQuery {
            selector: self.filter.selector.clone(),
            node_selector: gps.map_or_else(Default::default, |it| it.spec.node_selector.clone()),
        };
        let nodes = self.nodes.as_ref()?;
        Some(nodes::watch(cluster, nodes, asked))
    }

    pub(crate) fn is_shown(&self, node: &str) -> bool {
        let named = &self.filter.names;
        let matches = || {
            self.nodes
                .as_ref()
                .is_some_and(|nodes| nodes.get(node).is_some())
        };
        (named.is_empty() || named.iter().any(|name| name == node))
            && (self.filter.selector.is_none() || matches())
    }

    /// Number of nodes with a `NodePullSecret` that should have a syncer and are not Ready.
    pub(crate) fn nodes_not_ready(&self) -> u32 {
        let nodes = self.nodes.iter().flat_map(Store::iter);
        let lost = nodes.filter(|(name, node)| {
            let has_syncer = !node.excluded && node.virtual_by.is_none();
            node.not_ready.is_some() && has_syncer && self.node_secrets.get(name).is_some()
        });
        u32::try_from(lost.count()).unwrap_or(u32::MAX)
    }

    pub(crate) fn gps(&self) -> Option<&GlobalPullSecret> {
        self.global.get(names::GLOBAL_SECRET)
    }

    /// Whether nodes have credentials of globalps, or may have.
    pub(crate) fn is_in_force(&self) -> bool {
        !self.node_secrets.is_empty() || matches!(self.merged(), Sight::Here(_))
    }

    /// The last change of the additional pull secret.
    pub(crate) fn changed(&self) -> Option<&Changed> {
        let store = self.additional_secret.as_ref()?;
        store.get(names::ADDITIONAL_SECRET)?.changed.as_ref()
    }

    pub(crate) fn additional(&self) -> Sight<&str> {
        seen(self.additional_secret.as_ref(), names::ADDITIONAL_SECRET)
    }

    /// See [`waits_for`].
    pub(crate) fn additional_waits_for(&self) -> Option<&str> {
        let store = self.additional_secret.as_ref()?;
        store.get(names::ADDITIONAL_SECRET)?.waits_for.as_deref()
    }

    /// Whether going back to another additional pull secret can't fix a failed rollout, because another pull secret has
    /// changed. False if unknown.
    pub(crate) fn was_additional_rolled_out(&self) -> bool {
        let store = self.global_secret.as_ref();
        let global = store.and_then(|store| store.get(self.record_secret()));
        global.is_some_and(|global| global.was_additional_rolled_out)
    }

    pub(crate) fn merged(&self) -> Sight<&str> {
        seen(self.global_secret.as_ref(), self.record_secret())
    }

    /// Name of the Secret with the revision in force.
    pub(crate) fn record_secret(&self) -> &'static str {
        let delivery = self.gps().map(|gps| gps.spec.kubelet.delivery);
        delivery.unwrap_or_default().record_secret()
    }
}

pub(crate) fn watch_global<'a>(cluster: &'a Cluster<'a>) -> Signals<'a, GlobalPullSecret> {
    let kind = WatchedKind {
        doing: "watch the GlobalPullSecret",
        api: cluster.api(),
        params: one(names::GLOBAL_SECRET),
        listed: None,
        key: name_of,
        keep: |object| Some(shown(object)),
    };
    watch_kind(cluster, kind)
}

/// Watches one of the two pull secrets, without its data.
pub(crate) fn watch_secret<'a>(
    cluster: &'a Cluster<'a>,
    name: &str,
    doing: &'static str,
) -> Signals<'a, SecretVersion> {
    let kind = WatchedKind {
        doing,
        api: cluster.api(),
        params: one(name),
        listed: None,
        key: name_of,
        keep: |secret: Result<PartialObjectMeta<Secret>, _>| secret.ok().map(version_of),
    };
    watch_kind(cluster, kind)
}

fn seen<'a>(store: Option<&'a Store<SecretVersion>>, name: &str) -> Sight<&'a str> {
    match store.map(|store| store.get(name)) {
        None => Sight::Hidden,
        Some(Some(seen)) if seen.waits_for.is_none() => Sight::Here(&seen.version),
        Some(_) => Sight::Absent,
    }
}

async fn secret_version(cluster: &Cluster<'_>, name: &str) -> Result<Option<Store<SecretVersion>>> {
    let api = cluster.api::<Owned<PartialObjectMeta<Secret>>>();
    let doing = format!("see whether Secret `{name}` exists");
    let answer = cluster.read(&doing, api.get_opt(name)).await;
    Ok(allowed(answer)?.map(|secret| {
        let mut store = Store::default();
        if let Some(secret) = secret {
            store.insert(name, version_of(secret));
        }
        store
    }))
}
