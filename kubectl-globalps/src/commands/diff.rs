//! `diff`: what the additional pull secret changes, and the scopes and the delivery of the `GlobalPullSecret`.

use globalps_core::api::{DeliveryType, SourceRef};
use globalps_core::names;
use globalps_dockerconfig::{DockerConfig, validate_replacement};
use globalps_provider::Scope;
use k8s_openapi::api::core::v1::Secret;

use crate::change::restarts;
use crate::cli::{Connection, Diff};
use crate::cluster::namespaces::{Who, affected};
use crate::cluster::{Cluster, Facts, must_watch};
use crate::credentials::file::read;
use crate::credentials::manifest::{proposed, valid};
use crate::error::{Exit, Result};
use crate::secret::additional::{data_of, refuse_invalid};
use crate::secret::changes::{Difference, InForce, changes, reach_nodes, sides, text};
use crate::secret::effects::Differs;
use crate::secret::openshift::IntoOpenShift;
use crate::secret::scope::{self, ScopeChange};
use crate::target::openshift;
use crate::target::pull_secret::{self, additional};
use crate::terminal::external_diff::{Text, show};
use crate::terminal::printer::Printer;
use crate::view::status::Status;

pub(super) async fn run(args: &Diff, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let file = args.filename.as_deref().map(read).transpose()?;
    let file = file.as_deref().map(proposed).transpose()?;
    let cluster = Cluster::connect(flags, printer)?;
    must_watch(&cluster).await?;
    let facts = Facts::observe(&cluster).await?;
    let wanted = match file {
        Some(config) => Some(config),
        None => in_cluster(&cluster).await?,
    };
    let global = pull_secret::in_force(&cluster).await?;
    let spec = facts.gps().map(|gps| &gps.spec);
    if let Some(wanted) = &wanted {
        replaces(global.as_ref(), wanted)?;
    }
    let wanted = wanted.unwrap_or_default();
    let in_force = InForce::of(global.as_ref(), spec, names::ADDITIONAL_SECRET);
    let status = Status::of(&facts, cluster.now());
    let changes = changes(&in_force, &wanted);
    let on_nodes = (
        in_force.effective(&in_force.additional),
        in_force.effective(&wanted),
    );
    let pull_secret = openshift::planned(&cluster, spec, &on_nodes.0, &on_nodes.1).await?;
    let mut deliveries = restarts::deliveries(&cluster, global.as_ref(), facts.gps()).await;
    // What the GlobalPullSecret asks for besides is no part of a proposal.
    let spec = facts.gps().map(|gps| gps.spec.sources.as_slice());
    let spec = spec.unwrap_or_default();
    let has_scope = args.filename.is_none() && spec.iter().any(|source| source.scope.is_some());
    let scopes = if args.filename.is_some() {
        deliveries = deliveries.staying();
        Vec::new()
    } else {
        let to_namespaces = facts.gps().map(|gps| gps.spec.image_pull_secrets.enabled);
        let are_delivered = deliveries.wanted == DeliveryType::CredentialProvider
            || to_namespaces.unwrap_or_default();
        let (scoped, everybodys) = (&in_force.scoped, &in_force.everybodys);
        scope::changes(spec, are_delivered, scoped, everybodys)
    };
    let differs = !changes.is_empty() || !scopes.is_empty();
    let differs = Differs {
        any: differs,
        on_nodes: reach_nodes(&changes) || scopes.iter().any(ScopeChange::is_of_every_pod),
        has_scope,
    };
    let mut effects = deliveries.effects(&wanted, differs);
    let who = if changes.is_empty() {
        of_scopes(&scopes, spec, &in_force.scoped)
    } else {
        vec![Who::EveryPod]
    };
    effects.namespaces = affected(&cluster, facts.gps(), &who).await?;
    let difference = Difference {
        effects,
        scopes,
        changes,
        lagging_nodes: status.lagging().map(|row| row.name.clone()).collect(),
        pull_secret,
    };
    let beside = difference.beside();
    let shown = beside.clone() + &text(&difference.changes);
    let text = Text {
        lines: &shown,
        file: names::ADDITIONAL_SECRET,
        sides: || with_lines(sides(&in_force, &wanted, &difference.changes), &beside),
    };
    show(printer, &args.output, &difference, &text)?;
    if args.output.is_text() {
        notes(printer, &difference);
    }
    if !facts.installed {
        printer.warning("globalps is not installed in this cluster, so nothing is in force");
    }
    // Nodes that lag are no fault of a proposal.
    let lag = args.filename.is_none() && !difference.lagging_nodes.is_empty();
    Ok(Exit::of(difference.is_empty() && !lag))
}

/// Whose credentials another scope of a source changes: the pods of its scope, and those of the scope in force.
fn of_scopes(
    changes: &[ScopeChange],
    spec: &[SourceRef],
    in_force: &[(String, Scope)],
) -> Vec<Who> {
    let is_changed = |name: &str| changes.iter().any(|change| change.source == name);
    let before = in_force.iter().filter(|(name, _)| is_changed(name));
    let before = before.map(|(_, scope)| Who::InForce(scope.clone()));
    let after = spec.iter().filter(|source| is_changed(&source.name));
    let after = after.map(|source| match &source.scope {
        Some(scope) => Who::Wanted(scope.clone()),
        None => Who::EveryPod,
    });
    before.chain(after).collect()
}

/// Signed lines, each on its side.
fn with_lines((mut before, mut after): (String, String), lines: &str) -> (String, String) {
    for line in lines.lines() {
        if let Some(line) = line.strip_prefix('-') {
            before.extend([line, "\n"]);
        } else if let Some(line) = line.strip_prefix('+') {
            after.extend([line, "\n"]);
        }
    }
    (before, after)
}

fn notes(printer: &Printer, difference: &Difference) {
    for sentence in difference.effects.sentences() {
        printer.note(sentence);
    }
    let of_pull_secret = difference.pull_secret.iter();
    for sentence in of_pull_secret.flat_map(IntoOpenShift::sentences) {
        printer.warning(sentence);
    }
    if !difference.lagging_nodes.is_empty() {
        let nodes = difference.lagging_nodes.join(", ");
        printer.note(format_args!("nodes that are behind: {nodes}"));
    }
}

/// `None`: there is no Secret.
async fn in_cluster(cluster: &Cluster<'_>) -> Result<Option<DockerConfig>> {
    let secret = additional(cluster).await?;
    let bytes = secret.as_ref();
    let bytes = bytes.map(|secret| data_of(secret, names::DATA_KEY).unwrap_or_default());
    bytes.map(valid).transpose()
}

/// Whether the controller would put it into force in place of the last one.
fn replaces(global: Option<&Secret>, wanted: &DockerConfig) -> Result<()> {
    let last = global.and_then(|global| data_of(global, names::LAST_ADDITIONAL_KEY));
    let findings = validate_replacement(Some(&wanted.render()), last).1;
    refuse_invalid(names::ADDITIONAL_SECRET, &findings)
}
