//! `fleet add`: registries in the source Secret of a `FleetPullSecret`, which is created where it is missing.

use globalps_core::api::FleetPullSecret;
use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource as _;
use serde_json::{Value, json};

use crate::change::logins::checked;
use crate::change::preview::{Preview, send};
use crate::cli::{Connection, DryRun, FleetAdd, NewFleet};
use crate::cluster::Cluster;
use crate::cluster::attempts::until_written;
use crate::cluster::create::create;
use crate::cluster::fleet::of_hub;
use crate::error::{Exit, Failure, Result};
use crate::secret::additional::{Login, WriteOutcome, config_of, may_change, with_logins};
use crate::secret::changes::{InForce, changes, text};
use crate::target::pull_secret;
use crate::target::wait::may_wait;
use crate::target::wait_clusters::{follow_clusters_if, taken_up};
use crate::terminal::printer::Printer;
use crate::view::fleet::title;
use crate::view::fleet::verdict::{FleetGoal, command};

pub(super) async fn run(args: &FleetAdd, flags: &Connection, printer: &Printer) -> Result<Exit> {
    may_wait(args.wait.wait, args.dry_run)?;
    let (logins, cluster) = checked(&args.from, &args.check, flags, printer).await?;
    let cluster = match cluster {
        // Whether a FleetPullSecret exists is known only there.
        None if args.dry_run == DryRun::Client && args.to.selects() => {
            Cluster::find(flags, printer)?
        }
        None => Some(Cluster::connect(flags, printer)?),
        found => found,
    };
    let Some(cluster) = cluster else {
        let namespace = flags.namespace.as_deref().unwrap_or("default");
        return without_cluster(args, &logins, namespace, printer);
    };
    let doing = format!("get FleetPullSecret `{}/{}`", cluster.namespace, args.fleet);
    let api = cluster.api::<FleetPullSecret>();
    let fleet = cluster.call(&doing, api.get_opt(&args.fleet)).await?;
    let source = source_of(fleet.as_ref(), &cluster.namespace, args)?;
    let changed = change(&cluster, &source, &logins, fleet.is_none(), args).await?;
    if fleet.is_none() && args.dry_run != DryRun::Client {
        let title = format!("{}/{}", cluster.namespace, args.fleet);
        let (of, spec) = (
            (title.as_str(), args.fleet.as_str()),
            spec(&args.to, &source),
        );
        let created = create::<FleetPullSecret>(&cluster, of, spec, args.dry_run == DryRun::Server);
        created.await.map_err(of_hub)?;
    }
    show(printer, args, &source, &changed, fleet.is_none())?;
    if args.dry_run != DryRun::None {
        return Ok(Exit::Done);
    }
    if args.wait.wait {
        taken_up(&cluster, &args.fleet, args.wait.timeout).await?;
    }
    follow_clusters_if(&cluster, &args.fleet, FleetGoal::Synced, &args.wait).await
}

/// A client dry run of a new `FleetPullSecret` with a new source.
fn without_cluster(
    args: &FleetAdd,
    logins: &[Login],
    namespace: &str,
    printer: &Printer,
) -> Result<Exit> {
    let source = source_of(None, namespace, args)?;
    let (planned, outcome) = with_logins(None, namespace, &source, logins)?;
    preview(None, &planned)?.show(printer);
    announce_new(args, namespace, printer);
    printer.note("no cluster is configured, so the Secret contains only these registries");
    show(printer, args, &source, &(planned, outcome), true)?;
    Ok(Exit::Done)
}

/// Both objects where both are new.
fn show(
    printer: &Printer,
    args: &FleetAdd,
    source: &str,
    (secret, outcome): &(Secret, WriteOutcome),
    is_new: bool,
) -> Result<()> {
    let mut object = pull_secret::shown(secret, args.dry_run);
    let mut names = vec![format!("secret/{source}")];
    let (name, how) = (&args.fleet, args.dry_run.suffix());
    let mut lines = vec![format!("secret/{source} {}{how}", outcome.word())];
    if is_new {
        let fleet = json!({
            "apiVersion": FleetPullSecret::api_version(&()), "kind": FleetPullSecret::kind(&()),
            "metadata": {"name": name, "namespace": secret.metadata.namespace}, "spec": spec(&args.to, source),
        });
        object = json!({"apiVersion": "v1", "kind": "List", "items": [object, fleet]});
        names.push(format!("fleetpullsecret.globalps.io/{name}"));
        lines.push(format!("fleetpullsecret.globalps.io/{name} created{how}"));
    }
    let what = ("the objects", &object);
    printer.print(args.output.as_ref(), what, names, || {
        for line in &lines {
            printer.data(line);
        }
    })
}

fn announce_new(args: &FleetAdd, namespace: &str, printer: &Printer) {
    let (name, who) = (&args.fleet, selected(&args.to));
    printer.note(format_args!(
        "+FleetPullSecret `{namespace}/{name}`: {who} of namespace `{namespace}`"
    ));
}

/// Name of the source Secret.
fn source_of(fleet: Option<&FleetPullSecret>, namespace: &str, args: &FleetAdd) -> Result<String> {
    let source = &args.to.source;
    let selects = args.to.selects();
    let Some(fleet) = fleet else {
        if !selects {
            return Err(Failure::new(
                format!(
                    "there is no FleetPullSecret `{namespace}/{}`, and no flag selects the clusters of a new one",
                    args.fleet
                ),
                "`kubectl globalps fleet status -A` shows those that exist; to create one, add `--cluster-selector KEY=VALUE` or `--registered`",
            ));
        }
        return Ok(source.clone().unwrap_or_else(|| args.fleet.clone()));
    };
    let title = title(fleet);
    let reference = &fleet.spec.secret_ref;
    let is_other = source.as_ref().is_some_and(|it| *it != reference.name);
    let refused = |what: String, hint: String| Err(Failure::new(what, hint));
    if fleet.metadata.deletion_timestamp.is_some() {
        return refused(
            format!("FleetPullSecret `{title}` is being deleted"),
            format!("see {}", command("status", &title)),
        );
    }
    if selects || is_other {
        return refused(
            format!(
                "FleetPullSecret `{title}` exists: its selectors and its source stay as they are"
            ),
            format!(
                "leave out `--cluster-selector`, `--registered` and `--source`, or change them with `kubectl edit fleetpullsecret {} -n {namespace}`",
                args.fleet
            ),
        );
    }
    if reference.key != names::DATA_KEY {
        return refused(
            format!(
                "FleetPullSecret `{title}` reads the key `{}` of its source Secret `{}`",
                reference.key, reference.name
            ),
            format!(
                "change that key with `kubectl edit secret {} -n {namespace}`",
                reference.name
            ),
        );
    }
    Ok(reference.name.clone())
}

/// Shows the preview and writes the change to the source Secret; retries on a conflict.
async fn change(
    cluster: &Cluster<'_>,
    source: &str,
    logins: &[Login],
    is_new: bool,
    args: &FleetAdd,
) -> Result<(Secret, WriteOutcome)> {
    let mut shown = None;
    until_written(async |attempt| {
        let existing = pull_secret::get(cluster, source).await?;
        let planned = with_logins(existing.clone(), &cluster.namespace, source, logins);
        let (planned, outcome) = planned.map_err(|failure| of_source(failure, source, cluster))?;
        if outcome != WriteOutcome::Unchanged {
            let force = args.owner.force_conflicts;
            let owner = match &existing {
                Some(secret) => may_change(secret, force)?,
                None => None,
            };
            let announced = preview(existing.as_ref(), &planned)?;
            if shown.as_ref() != Some(&announced) {
                pull_secret::warn_of_owners(cluster.printer(), owner);
                announced.show(cluster.printer());
                shown = Some(announced);
            }
        }
        if is_new && attempt == 1 {
            announce_new(args, &cluster.namespace, cluster.printer());
        }
        let sent = send(cluster, planned, outcome, args.dry_run).await?;
        Ok((sent, outcome))
    })
    .await
}

/// The hint of the plugin's own Secrets is not for a source of the hub.
fn of_source(mut failure: Failure, source: &str, cluster: &Cluster<'_>) -> Failure {
    let namespace = &cluster.namespace;
    failure.hint = format!(
        "fix it with `kubectl edit secret {source} -n {namespace}`, or go back to an earlier revision with `kubectl globalps fleet undo`; meanwhile every cluster keeps what it has"
    );
    failure
}

fn preview(existing: Option<&Secret>, planned: &Secret) -> Result<Preview> {
    let before = existing.map(config_of).transpose()?.unwrap_or_default();
    let after = config_of(planned)?;
    let warnings = Preview::warnings(&before, &after);
    let changes = text(&changes(&InForce::only(before), &after));
    Ok(Preview { changes, warnings })
}

fn selected(new: &NewFleet) -> String {
    let labels: Vec<String> = new
        .cluster_selector
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    match (labels.is_empty(), new.registered) {
        (true, _) => "registered clusters".to_owned(),
        (false, false) => format!("clusters with {}", labels.join(",")),
        (false, true) => format!(
            "registered clusters, and clusters with {}",
            labels.join(",")
        ),
    }
}

/// Only what was asked for: the rest has its defaults.
fn spec(new: &NewFleet, source: &str) -> Value {
    let mut spec = json!({"secretRef": {"name": source}});
    if new.registered {
        spec["registered"] = json!({});
    }
    if !new.cluster_selector.is_empty() {
        let labels: serde_json::Map<String, Value> = new
            .cluster_selector
            .iter()
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect();
        spec["clusterSelector"] = json!({"matchLabels": labels});
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, Fleet, FleetCommand};
    use crate::view::fleet::tests::fleet;
    use clap::Parser as _;

    fn args(flags: &str) -> FleetAdd {
        let line = format!("kubectl-globalps fleet add team-a --all {flags}");
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("flags");
        match cli.command {
            Command::Fleet(Fleet {
                command: FleetCommand::Add(args),
            }) => *args,
            _ => unreachable!("it is `fleet add`"),
        }
    }

    #[test]
    fn a_new_one_selects_what_was_named_and_no_more() {
        for (flags, expected, who) in [
            (
                "--cluster-selector a=b,c=d",
                json!({
                    "secretRef": {"name": "s"},
                    "clusterSelector": {"matchLabels": {"a": "b", "c": "d"}},
                }),
                "clusters with a=b,c=d",
            ),
            (
                "--registered",
                json!({
                    "secretRef": {"name": "s"},
                    "registered": {},
                }),
                "registered clusters",
            ),
            (
                "--registered --cluster-selector a=b",
                json!({
                    "secretRef": {"name": "s"},
                    "registered": {},
                    "clusterSelector": {"matchLabels": {"a": "b"}},
                }),
                "registered clusters, and clusters with a=b",
            ),
        ] {
            let new = args(flags).to;
            assert_eq!(spec(&new, "s"), expected, "{flags}");
            assert_eq!(selected(&new), who);
        }
    }

    #[test]
    fn the_source_is_that_of_the_fleet_pull_secret() {
        let existing = || Some(fleet("Synced", 3));
        let mut other_key = fleet("Synced", 3);
        other_key.spec.secret_ref.key = "config".to_owned();
        for (fleet, flags, expected) in [
            (existing(), "", Ok("team-a-source")),
            (existing(), "--source team-a-source", Ok("team-a-source")),
            (
                existing(),
                "--registered",
                Err(
                    "FleetPullSecret `clusters/team-a` exists: its selectors and its source stay as they are",
                ),
            ),
            (
                existing(),
                "--source other",
                Err(
                    "FleetPullSecret `clusters/team-a` exists: its selectors and its source stay as they are",
                ),
            ),
            (
                Some(other_key),
                "",
                Err(
                    "FleetPullSecret `clusters/team-a` reads the key `config` of its source Secret `team-a-source`",
                ),
            ),
            (None, "--registered", Ok("team-a")),
            (None, "--registered --source s", Ok("s")),
            (
                None,
                "",
                Err(
                    "there is no FleetPullSecret `clusters/team-a`, and no flag selects the clusters of a new one",
                ),
            ),
        ] {
            let found = source_of(fleet.as_ref(), "clusters", &args(flags));
            let found = found.map_err(|failure| failure.message);
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(found, expected, "{flags}");
        }
    }
}
