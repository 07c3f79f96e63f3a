//! `add`: adds credentials to the additional pull secret or another source, or changes them.

use globalps_core::api::DeliveryType;
use globalps_core::names;
use globalps_dockerconfig::DockerConfig;
use k8s_openapi::api::core::v1::Secret;

use crate::change::forget::{forget_before, until_forgotten};
use crate::change::logins::checked;
use crate::change::preview::{Preview, send};
use crate::change::restarts;
use crate::change::restore_configuration::must_not_be_held;
use crate::change::source::{Planned, Sources, configured_in_dry_run, taken_up};
use crate::change::source_state::{When, must_reach_pods};
use crate::change::waiting_pods::after_wait;
use crate::cli::{Add, Connection, DryRun};
use crate::cluster::attempts::until_written;
use crate::cluster::namespaces::{Who, affected};
use crate::cluster::{Cluster, must_watch};
use crate::credentials::logins::{self};
use crate::error::{Exit, Failure, Result};
use crate::secret::additional::{
    Login, WriteOutcome, config_of, may_change, valid_in, with_logins,
};
use crate::secret::changes::{InForce, changes, reach_nodes, text};
use crate::secret::effects::{Differs, Effects};
use crate::target::openshift;
use crate::target::pull_secret;
use crate::target::wait::{follow_if, may_wait};
use crate::terminal::printer::Printer;
use crate::view::status::NodesGoal;

/// The error for a source with a scope that nodes don't get.
const NOT_DELIVERED: &str = "no pod would get the credentials: nodes get a source with a scope only with `spec.kubelet.delivery: CredentialProvider`; `kubectl globalps install --delivery CredentialProvider` sets it";
/// The error for a scope with service accounts that nothing delivers.
const NOT_FOR_NAMESPACES: &str = "no pod would get the credentials: every pod of a namespace can use its Secret, and nodes get a source with a scope only with `spec.kubelet.delivery: CredentialProvider`";

pub(super) async fn run(args: &Add, flags: &Connection, printer: &Printer) -> Result<Exit> {
    may_wait(args.wait.rollout.wait, args.dry_run)?;
    let mut early = None;
    if args.refuses() && logins::is_password_asked(&args.from) {
        let cluster = Cluster::connect(flags, printer)?;
        // Checked first, so that the user types no password before an error.
        pull_secret::must_be_installed(&cluster).await?;
        early = Some(cluster);
    }
    let (logins, cluster) = checked(&args.from, &args.check, flags, printer).await?;
    let cluster = match cluster.or(early) {
        None if args.dry_run == DryRun::Client => Cluster::find(flags, printer)?,
        None => Some(Cluster::connect(flags, printer)?),
        found => found,
    };
    let Some(cluster) = cluster else {
        let changed = without_cluster(&logins, &flags.pull_secret_namespace, args)?;
        printer.note("no cluster is configured, so the Secret contains only these registries");
        show(printer, &changed, args)?;
        return Ok(Exit::Done);
    };
    let changed = change(&cluster, &logins, args).await?;
    show(printer, &changed, args)?;
    if args.check.skip_check && args.dry_run == DryRun::None {
        printer.note("the credentials were not checked; `kubectl globalps check --registries` checks them later");
    }
    let forgets = if args.forget_old && args.dry_run == DryRun::None {
        forget_before(&cluster, name_of(args), &config_of(&changed.secret)?).await?
    } else {
        None
    };
    let source = args.to.source.as_ref().map(|source| source.0.as_str());
    let awaited_source = source.filter(|_| args.wait.rollout.wait);
    if let Some(name) = awaited_source {
        must_reach_pods(&cluster, name, When::BeforeTheRollout).await?;
    }
    if let Some(name) = awaited_source.filter(|_| changed.undelivered.is_none()) {
        taken_up(&cluster, name, changed.before, args.wait.rollout.timeout).await?;
    }
    let exit = match args.dry_run {
        DryRun::None => follow_if(&cluster, NodesGoal::Synced, &args.wait.rollout).await?,
        DryRun::Client | DryRun::Server => Exit::Done,
    };
    if let Some(why) = changed.undelivered {
        printer.warning(why);
    }
    if args.wait.rollout.wait && exit == Exit::Done {
        if let Some(name) = awaited_source {
            must_reach_pods(&cluster, name, When::AfterTheRollout).await?;
        }
        let registries: Vec<String> = logins.iter().map(|it| it.registry.clone()).collect();
        after_wait(&cluster, &registries, source, &args.wait).await?;
        if let Some(up_to) = forgets {
            return until_forgotten(&cluster, up_to, args.wait.rollout.timeout).await;
        }
    }
    Ok(exit)
}

/// Creates a new Secret without reading a cluster.
fn without_cluster(logins: &[Login], namespace: &str, args: &Add) -> Result<Changed> {
    let name = name_of(args);
    let (secret, outcome) = with_logins(None, namespace, name, logins)?;
    let source = args.to.source.as_ref().map(|_| configured_in_dry_run());
    Ok(Changed {
        secret,
        outcome,
        beside: source.into_iter().collect(),
        before: None,
        undelivered: None,
    })
}

/// The result of the command.
struct Changed {
    secret: Secret,
    outcome: WriteOutcome,
    /// Other changes, one line each.
    beside: Vec<String>,
    /// The revision before a change of a source.
    before: Option<i64>,
    /// Why no pod gets the credentials; printed last.
    undelivered: Option<&'static str>,
}

fn name_of(args: &Add) -> &str {
    let source = args.to.source.as_ref();
    source.map_or(names::ADDITIONAL_SECRET, |source| &source.0)
}

/// Shows the preview and writes the change; retries on a conflict.
async fn change(cluster: &Cluster<'_>, logins: &[Login], args: &Add) -> Result<Changed> {
    let name = name_of(args);
    must_watch(cluster).await?;
    let refuses = args.refuses();
    if refuses {
        pull_secret::must_be_installed(cluster).await?;
    }
    must_not_be_held(cluster).await?;
    if refuses && args.check.skip_check {
        openshift::must_be_checked(cluster).await?;
    }
    let mut shown = Announcement::default();
    until_written(async |_| {
        let existing = pull_secret::get(cluster, name).await?;
        let (planned, outcome) = with_logins(existing.clone(), &cluster.namespace, name, logins)?;
        let source = match &args.to.source {
            Some(_) => {
                let sources = Sources::observe(cluster).await?;
                Some(Planned::of(sources, name, args.to.scope().as_ref()))
            }
            None => None,
        };
        let entry = source.as_ref().filter(|source| source.is_change());
        if outcome != WriteOutcome::Unchanged || entry.is_some() {
            let force = args.owner.force_conflicts;
            let owner = match &existing {
                Some(secret) if outcome != WriteOutcome::Unchanged => may_change(secret, force)?,
                _ => None,
            };
            let of_entry = match entry {
                Some(entry) => entry.sources.may_change(force)?,
                None => None,
            };
            let announced =
                announcement(cluster, existing.as_ref(), &planned, source.as_ref()).await?;
            if announced != shown {
                let owners = owner.into_iter().chain(of_entry);
                pull_secret::warn_of_owners(cluster.printer(), owners);
                announced.preview.show(cluster.printer());
                if let Some(why) = announced.undelivered.filter(|_| refuses) {
                    return Err(Failure::new(why, pull_secret::ANYWAY));
                }
                let yes = args.yes || args.dry_run != DryRun::None;
                restarts::agree(cluster, &announced.effects, announced.is_first, yes)?;
                shown = announced;
            }
        }
        let beside = match entry {
            Some(entry) => entry.carry_out(cluster, args.dry_run).await?,
            None => Vec::new(),
        };
        let secret = send(cluster, planned, outcome, args.dry_run).await?;
        let changed_source = source.filter(|_| outcome != WriteOutcome::Unchanged);
        Ok(Changed {
            before: changed_source.map(|source| source.sources.revision()),
            undelivered: shown.undelivered,
            secret,
            outcome,
            beside,
        })
    })
    .await
}

/// The effects on nodes and namespaces.
#[derive(Default, PartialEq)]
struct Announcement {
    preview: Preview,
    effects: Effects,
    /// Nothing is in force yet.
    is_first: bool,
    /// Why neither nodes nor namespaces get the credentials.
    undelivered: Option<&'static str>,
}

async fn announcement(
    cluster: &Cluster<'_>,
    existing: Option<&Secret>,
    planned: &Secret,
    source: Option<&Planned>,
) -> Result<Announcement> {
    let before = existing.map(config_of).transpose()?.unwrap_or_default();
    let after = config_of(planned)?;
    // Without access to the content in force, or without globalps, the preview compares only the Secret.
    let (global, gps) = futures::join!(
        pull_secret::in_force(cluster),
        pull_secret::configuration(cluster),
    );
    // Without access to the cluster, no effects on its nodes are announced.
    let is_known = gps.is_ok();
    let (global, gps) = (global.ok().flatten(), gps.ok().flatten());
    let spec = gps.as_ref().map(|gps| &gps.spec);
    let name = planned.metadata.name.as_deref().unwrap_or_default();
    let found = InForce::of(global.as_ref(), spec, name);
    let mut in_force = found.with(existing.map_or_else(
        || Some(DockerConfig::default()),
        |secret| valid_in(secret, names::DATA_KEY),
    ));
    let has_scope = source.is_some_and(Planned::has_scope);
    if has_scope {
        // A source with a scope replaces nothing of other pull secrets.
        in_force = InForce::only(in_force.additional);
    }
    if source.is_some_and(Planned::is_new) {
        in_force.additional = DockerConfig::default();
    }
    let changes = changes(&in_force, &after);
    let on_nodes = (
        in_force.effective(&in_force.additional),
        in_force.effective(&after),
    );
    let into_openshift = openshift::planned(cluster, spec, &on_nodes.0, &on_nodes.1).await?;
    let touched: Vec<String> = changes.iter().map(|it| it.registry.clone()).collect();
    let into_openshift = into_openshift.map(|it| it.only(&touched).sentences());
    let deliveries = restarts::deliveries(cluster, global.as_ref(), gps.as_ref()).await;
    let is_known = is_known && (gps.is_some() || deliveries.pace.nodes > 0);
    let to_namespaces = gps
        .as_ref()
        .is_some_and(|gps| gps.spec.image_pull_secrets.enabled);
    let is_for_namespaces = source.is_none_or(Planned::is_for_namespaces);
    let is_delivered = !has_scope
        || deliveries.wanted == DeliveryType::CredentialProvider
        || to_namespaces && is_for_namespaces;
    let differs = !changes.is_empty() || source.is_some_and(Planned::is_change);
    let entry_reaches_nodes = source.is_some_and(|it| it.is_change() && it.is_of_every_pod());
    let differs_on_nodes = !has_scope && reach_nodes(&changes) || entry_reaches_nodes;
    let mut effects = deliveries.effects(
        &after,
        Differs {
            any: differs && is_known,
            on_nodes: differs_on_nodes && is_known,
            has_scope,
        },
    );
    let who = match source {
        _ if !differs => Vec::new(),
        Some(source) => source.who(),
        None => vec![Who::EveryPod],
    };
    effects.namespaces = affected(cluster, gps.as_ref(), &who).await?;
    let undelivered = if to_namespaces {
        NOT_FOR_NAMESPACES
    } else {
        NOT_DELIVERED
    };
    let sentences = effects.sentences();
    let sentences = sentences.iter().map(|sentence| format!("{sentence}\n"));
    Ok(Announcement {
        preview: Preview {
            changes: source.map(Planned::text).unwrap_or_default()
                + &text(&changes)
                + &sentences.collect::<String>(),
            warnings: Preview::warnings(&before, &after)
                .into_iter()
                .chain(into_openshift.into_iter().flatten())
                .collect(),
        },
        effects,
        is_first: global.is_none(),
        undelivered: (!is_delivered).then_some(undelivered),
    })
}

fn show(printer: &Printer, changed: &Changed, args: &Add) -> Result<()> {
    let object = pull_secret::shown(&changed.secret, args.dry_run);
    let name = name_of(args);
    let names = [format!("secret/{name}")];
    printer.print(args.output.as_ref(), ("the Secret", &object), names, || {
        let how = args.dry_run.suffix();
        for line in &changed.beside {
            printer.data(line);
        }
        printer.data(&format!("secret/{name} {}{how}", changed.outcome.word()));
    })
}
