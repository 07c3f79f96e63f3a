//! The validity of `spec.sources`: a condition, and a status per source. Pure.

use globalps_core::api::{DeliveryType, MESSAGE_LIMIT, SOURCE_REGISTRIES, SourceStatus, condition};
use globalps_core::reasons::Reason;
use globalps_planner::content::resolve::ResolvedSource;
use globalps_planner::content::source::Verdict;
use globalps_planner::nodes::input::{NodeView, Snapshot, is_selected};
use globalps_planner::nodes::provider_paths::Deviation;
use globalps_provider::{MIN_KUBELET_FOR_SCOPES, kubelet_version};

use super::statement::{
    CONDITION_LIMIT, MAY_NOT_READ, REGISTRY_LIMIT, Statement, WAITS_FOR_PODS, sentences, shortened,
    statement,
};

/// `None` if there are no sources.
pub(super) fn sources_valid(sources: &[ResolvedSource]) -> Option<Statement> {
    let new =
        |status, reason, message| statement(condition::SOURCES_VALID, status, reason, message);
    if sources.is_empty() {
        return None;
    }
    Some(match first_bad(sources) {
        Some((reason, _, message)) => new("False", reason, message),
        None => new("True", Reason::Valid, unused(sources)),
    })
}

/// The entries of valid sources that are skipped or shadowed.
fn unused(sources: &[ResolvedSource]) -> String {
    let unused = sources.iter().filter_map(|source| match &source.verdict {
        Verdict::Valid(findings) if !findings.is_empty() => {
            Some(format!("`{}`: {}", source.name, sentences(findings)))
        }
        _ => None,
    });
    unused.collect::<Vec<_>>().join("; ")
}

/// Reason of `SourcesValid` and reason of `Degraded` for the first invalid source, and a message with all invalid sources;
/// `None`: all are valid.
pub(super) fn first_bad(sources: &[ResolvedSource]) -> Option<(Reason, Reason, String)> {
    let bad: Vec<_> = sources
        .iter()
        .filter_map(|source| Some((source, source_fault(source)?)))
        .collect();
    let (_, (reason, degraded, _)) = bad.first()?;
    let say = |(source, (_, _, reason)): &(&ResolvedSource, Fault)| {
        format!("`{}`: {reason}", source.name)
    };
    let mut sentences: Vec<String> = bad.iter().map(say).collect();
    let forbidden = |source: &&ResolvedSource| source.verdict == Verdict::Forbidden;
    let flags: Vec<String> = sources
        .iter()
        .filter(forbidden)
        .map(|source| format!("--source {}", source.name))
        .collect();
    if !flags.is_empty() {
        sentences.push(format!(
            "`kubectl globalps install {}` allows it",
            flags.join(" ")
        ));
    }
    Some((*reason, *degraded, sentences.join("; ")))
}

/// Reason of `SourcesValid`, reason of `Degraded`, message.
type Fault = (Reason, Reason, String);

fn source_fault(source: &ResolvedSource) -> Option<Fault> {
    let stays = if source.registries.is_empty() {
        ""
    } else {
        "; its last valid content stays in force"
    };
    Some(match &source.verdict {
        Verdict::Valid(_) | Verdict::RolledBack(_) => return None,
        Verdict::Absent => (
            Reason::Absent,
            Reason::SourceAbsent,
            "the Secret does not exist".to_owned(),
        ),
        Verdict::Forbidden => (
            Reason::Forbidden,
            Reason::SourceForbidden,
            format!("{MAY_NOT_READ}{stays}"),
        ),
        Verdict::Unreadable(reason) => (
            Reason::Unreadable,
            Reason::SourceUnreadable,
            format!("{reason}{stays}"),
        ),
        Verdict::Invalid(findings) | Verdict::Partly(findings) => (
            Reason::Invalid,
            Reason::SourceInvalid,
            format!("{}{stays}", sentences(findings)),
        ),
    })
}

/// Values of [`SourceStatus::delivery`].
const NODES: &str = "Nodes";
const NAMESPACES: &str = "Namespaces";
const BOTH: &str = "NodesAndNamespaces";
const NOT_DELIVERABLE: &str = "NotDeliverable";

/// How a source is delivered, depending on the delivery to nodes.
fn delivery(
    snapshot: &Snapshot,
    source: &ResolvedSource,
    scoped: Option<&(&'static str, String)>,
) -> (&'static str, String) {
    let by_nodes = match scoped {
        _ if snapshot.config.spec.kubelet.delivery == DeliveryType::None => (
            NOT_DELIVERABLE,
            "`spec.kubelet.delivery` is `None`".to_owned(),
        ),
        Some((delivery, note)) if source.scope.is_some() => (*delivery, note.clone()),
        _ => (NODES, String::new()),
    };
    if !snapshot.config.spec.image_pull_secrets.enabled {
        return by_nodes;
    }
    let scope = source.scope.as_ref();
    if scope.is_some_and(|scope| !scope.service_accounts.is_empty()) {
        let reason = "a scope with service accounts is not delivered into namespaces, because every pod there could use it";
        let note = [by_nodes.1.as_str(), reason];
        let note: Vec<&str> = note.into_iter().filter(|text| !text.is_empty()).collect();
        return (by_nodes.0, note.join("; "));
    }
    match by_nodes {
        (NODES, note) => (BOTH, note),
        _ => (NAMESPACES, String::new()),
    }
}

pub(super) fn source_statuses(
    snapshot: &Snapshot,
    sources: &[ResolvedSource],
) -> Vec<SourceStatus> {
    // This iterates over all nodes.
    let has_scope = sources.iter().any(|source| source.scope.is_some());
    let scoped = has_scope.then(|| scoped_delivery(snapshot));
    let sources = sources.iter().map(|source| {
        let fault = source_fault(source);
        let (delivery, note) = delivery(snapshot, source, scoped.as_ref());
        let message = fault.as_ref().map_or("", |(_, _, reason)| reason);
        let sentences = [message, &note].into_iter().filter(|text| !text.is_empty());
        let registries = source.registries.iter().take(SOURCE_REGISTRIES);
        SourceStatus {
            name: source.name.clone(),
            valid: fault.is_none(),
            message: shortened(sentences.collect::<Vec<_>>().join("; "), CONDITION_LIMIT),
            scope: source
                .scope
                .as_ref()
                .map(|scope| shortened(scope.to_string(), MESSAGE_LIMIT)),
            delivery: delivery.to_owned(),
            registries: registries
                .map(|name| shortened(name.as_str(), REGISTRY_LIMIT))
                .collect(),
            total: u32::try_from(source.registries.len()).unwrap_or(u32::MAX),
        }
    });
    sources.collect()
}

/// How sources with a scope are delivered, and on which nodes they are not.
fn scoped_delivery(snapshot: &Snapshot) -> (&'static str, String) {
    if snapshot.config.deviation == Deviation::WaitsForPods {
        return (NOT_DELIVERABLE, WAITS_FOR_PODS.to_owned());
    }
    if snapshot.config.spec.kubelet.delivery == DeliveryType::ConfigFile {
        let reason = "a source with a scope needs `spec.kubelet.delivery: CredentialProvider` or `spec.imagePullSecrets`";
        return (NOT_DELIVERABLE, reason.to_owned());
    }
    let nodes = snapshot.nodes.views.values();
    let selected: Vec<&NodeView> = nodes
        .map(|node| &**node)
        .filter(|node| is_selected(&snapshot.config.spec, node))
        .collect();
    let (major, minor) = MIN_KUBELET_FOR_SCOPES;
    let has_no_tokens =
        |node: &&&NodeView| kubelet_version(&node.kubelet_version) < Some(MIN_KUBELET_FOR_SCOPES);
    let keeps_file = |node: &&&NodeView| {
        let object = snapshot.nodes.objects.get(&node.name);
        let status = object.and_then(|object| object.status.as_ref());
        status.is_some_and(|status| status.delivery == DeliveryType::ConfigFile.as_str())
    };
    let outdated = selected.iter().filter(has_no_tokens);
    let by_file = selected.iter().filter(|node| !has_no_tokens(node));
    let by_file = by_file.filter(keeps_file);
    let mut remarks = Vec::new();
    if let Some(node) = outdated.clone().next() {
        remarks.push(format!(
            "scopes need Kubernetes {major}.{minor}: not delivered on {} of {} nodes, such as {} ({})",
            outdated.clone().count(),
            selected.len(),
            node.name,
            node.kubelet_version
        ));
    }
    if let Some(node) = by_file.clone().next() {
        remarks.push(format!(
            "not delivered on {} of {} nodes, which keep the credentials file, such as {}",
            by_file.count(),
            selected.len(),
            node.name
        ));
    }
    let is_possible = selected.is_empty() || outdated.count() < selected.len();
    let delivery = if is_possible { NODES } else { NOT_DELIVERABLE };
    (delivery, remarks.join("; "))
}
