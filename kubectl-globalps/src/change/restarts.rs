//! Restarts of kubelets: announced before a change causes them, and confirmed on a terminal.

use globalps_core::api::{DeliveryType, GlobalPullSecret};
use globalps_dockerconfig::DockerConfig;
use globalps_manifests::Manifests;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Api;
use kube::api::ListParams;

use crate::cluster::client::Cluster;
use crate::error::{Result, page};
use crate::secret::changes::{RegistryChange, reach_nodes};
use crate::secret::effects::{Deliveries, Differs, Effects};
use crate::target::pull_secret;
use crate::terminal::prompt::{can_ask, confirm};

/// A hint about settings that cause fewer restarts.
const GENTLER: &str = "without restarts: `spec.kubelet.restart: Never` of the GlobalPullSecret (in force within 5 minutes), `kubectl globalps install --delivery CredentialProvider`, or `install --deliver-to-namespaces --delivery None`";

/// Like [`Deliveries::of`]. If the status has no count of the nodes yet, counts all Nodes of the cluster.
pub(crate) async fn deliveries(
    cluster: &Cluster<'_>,
    global: Option<&Secret>,
    gps: Option<&GlobalPullSecret>,
) -> Deliveries {
    let mut found = Deliveries::of(global, gps);
    if found.pace.nodes == 0 {
        found.pace.nodes = nodes(cluster).await;
    }
    found
}

/// What the delivery into `OpenShift`'s own pull secret does.
const INTO_OPENSHIFT: &str = "delivery by OpenShift: credentials are merged into `openshift-config/pull-secret`, and the Machine Config Operator brings them to every node; no kubelet restarts, and there is no canary";

/// The effect of an installation or upgrade on kubelets, if it changes how credentials reach them.
pub(crate) async fn of_installation(cluster: &Cluster<'_>, manifests: &Manifests) -> Vec<String> {
    let (global, gps) = pull_secret::seen(cluster).await;
    let mut found = deliveries(cluster, global.as_ref(), gps.as_ref()).await;
    let before = gps.as_ref().map(|_| found.wanted);
    found.wanted = manifests.delivery.unwrap_or(found.wanted);
    if found.wanted == DeliveryType::OpenShift && before != Some(found.wanted) {
        return vec![INTO_OPENSHIFT.to_owned()];
    }
    let effects = found.effects(&DockerConfig::default(), Differs::default());
    let sentences = effects.sentences();
    if !sentences.is_empty() || gps.is_some() || found.wanted != DeliveryType::ConfigFile {
        return sentences;
    }
    vec![format!(
        "nodes get credentials by ConfigFile: each change of them {}; `--delivery CredentialProvider` restarts them only once",
        found.pace.text()
    )]
}

/// A removal of registries, or of a whole Secret.
pub(crate) struct Removal<'a> {
    /// Name of the Secret.
    pub name: &'a str,
    /// The remaining content.
    pub after: &'a DockerConfig,
    pub difference: &'a [RegistryChange],
    /// Every node is restored on purpose.
    pub restores: bool,
}

/// The effect on kubelets. Without the last pull secret, nodes restore their own files.
pub(crate) async fn of_removal(cluster: &Cluster<'_>, removal: Removal<'_>) -> Vec<String> {
    let (global, gps) = pull_secret::seen(cluster).await;
    let found = deliveries(cluster, global.as_ref(), gps.as_ref()).await;
    let mut sources = gps.iter().flat_map(|gps| &gps.spec.sources);
    let has_scope = sources.any(|source| source.name == removal.name && source.scope.is_some());
    let differs = Differs {
        any: !removal.difference.is_empty(),
        on_nodes: !has_scope && reach_nodes(removal.difference) || removal.restores,
        // A removal adds no source with a scope.
        has_scope: false,
    };
    found.effects(removal.after, differs).sentences()
}

/// 0 if this user may not list them.
async fn nodes(cluster: &Cluster<'_>) -> u32 {
    let api: Api<Node> = Api::all(cluster.client.clone());
    let first = ListParams::default().limit(1);
    let call = api.list_metadata(&first);
    let Ok(page) = cluster.call("count the Nodes", call).await else {
        return 0;
    };
    let rest = page.metadata.remaining_item_count.unwrap_or_default();
    let here = i64::try_from(page.items.len()).unwrap_or_default();
    u32::try_from(here + rest).unwrap_or_default()
}

/// Asks on a terminal; the first time, also names settings that avoid restarts. `yes`: confirmed already.
pub(crate) fn agree(
    cluster: &Cluster<'_>,
    effects: &Effects,
    is_first: bool,
    yes: bool,
) -> Result<()> {
    if !effects.restarts() {
        return Ok(());
    }
    if is_first {
        let what = page("restarts.md");
        let hint = format_args!("{GENTLER}; what a restart does: {what}");
        cluster.printer().hint(hint);
    }
    let question = "Change the Secret, which restarts these kubelets?";
    confirm(&cluster.title(), question, yes || !can_ask())
}
