//! `remove`: removes registries from the additional pull secret or another source, and the Secret with the last one.

use globalps_core::api::GlobalPullSecret;
use globalps_core::names;
use globalps_dockerconfig::{DockerConfig, shown_key};
use globalps_provider::parse_scoped;
use globalps_registry::registry_name;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::change::restarts::{Removal, of_removal};
use crate::change::restore_configuration::is_held;
use crate::change::restore_intent::restore_on_purpose;
use crate::change::source::{Sources, taken_up};
use crate::cli::{Connection, DryRun, Remove};
use crate::cluster::attempts::until_written;
use crate::cluster::{Cluster, Facts, must_watch, params};
use crate::error::{Exit, Failure, Result};
use crate::follow::skipped::Skipped;
use crate::registry::name::registry_key;
use crate::secret::additional::{
    Rest, config_of, data_of, may_change, valid_in, without_registries,
};
use crate::secret::changes::{InForce, RegistryChange, changes, text_of_all};
use crate::target::pull_secret;
use crate::target::pull_secret::{additional, warn_if_kept, warn_of_owners};
use crate::target::wait::{follow_if, may_wait};
use crate::terminal::output::{show_change, show_done};
use crate::terminal::{Printer, confirm};
use crate::view::status::{NodesGoal, Status, is_removal_held, sources_that_give};

const HISTORY_GOES: &str = "when every node is restored, the history is deleted, so `undo` can't bring these credentials back; revisions start at 1 again";

pub(super) async fn run(args: &Remove, flags: &Connection, printer: &Printer) -> Result<Exit> {
    may_wait(args.wait.wait, args.dry_run)?;
    let is_dry_run = args.dry_run != DryRun::None;
    // Also accepts registries that no image can name, so that they can be removed.
    let registries: Vec<String> = args.registry.iter().map(|it| registry_name(it)).collect();
    let cluster = Cluster::connect(flags, printer)?;
    must_watch(&cluster).await?;
    let mut asked = args.yes || is_dry_run;
    let name = name_of(args);
    let mut has_effect = false;
    let written = until_written(async |attempt| {
        let sources = match &args.source {
            Some(_) => Some(Sources::observe(&cluster).await?),
            None => None,
        };
        let planned = plan(&cluster, args, &registries, sources.as_ref()).await?;
        let Some((plan, before)) = planned else {
            return Ok(None);
        };
        if attempt == 1 {
            let is_valid = before.is_some();
            let in_force = in_force(&cluster, name, before, &plan).await;
            let difference = difference(&in_force, &plan);
            has_effect = !difference.is_empty();
            let after = match &plan {
                Plan::Keep(secret) => valid_in(secret, names::DATA_KEY).unwrap_or_default(),
                _ => DockerConfig::default(),
            };
            let removal = Removal {
                name,
                after: &after,
                difference: &difference,
                restores: matches!(plan, Plan::Restore(_)),
            };
            let restarts = of_removal(&cluster, removal).await;
            let difference = text_of_all(&difference, "on the nodes");
            show_change(printer, &difference, args.dry_run);
            for sentence in restarts {
                printer.note(sentence);
            }
            if matches!(plan, Plan::Delete(_)) && sources.is_none() {
                let others = sources_in_force(&cluster).await;
                announce_deletion(printer, is_valid, &in_force, &others);
            }
            if matches!(plan, Plan::Restore(_)) {
                printer.note(HISTORY_GOES);
            }
            if args.skip_unreachable {
                Skipped::announce(&cluster, &Facts::observe(&cluster).await?)?;
            }
        }
        confirm(&cluster.title(), &question(name, &plan, &registries), asked)?;
        asked = true;
        let revision = sources.as_ref().map(Sources::revision);
        let awaited = revision.filter(|_| matches!(plan, Plan::Keep(_)));
        let deletes = matches!(plan, Plan::Delete(_) | Plan::Restore(Some(_)));
        let (goal, done) = carry_out(&cluster, name, plan, sources.as_ref(), args).await?;
        Ok(Some((goal, done, awaited, deletes)))
    });
    let Some((goal, done, awaited, deletes)) = written.await? else {
        printer.note("there is nothing to remove");
        return Ok(Exit::Done);
    };
    for line in &done {
        show_done(printer, line, args.dry_run);
    }
    if is_dry_run {
        return Ok(Exit::Done);
    }
    if has_effect && !done.is_empty() {
        printer.note("images that are already on the nodes stay usable");
    }
    if let Some(revision) = awaited.filter(|_| args.wait.wait) {
        taken_up(&cluster, name, Some(revision), args.wait.timeout).await?;
    }
    if args.skip_unreachable && !args.wait.wait {
        let facts = Facts::observe(&cluster).await?;
        let status = Status::of(&facts, cluster.now());
        let mut skipped = Skipped::default();
        skipped.skip(&cluster, &facts, &status).await?;
        skipped.report(printer);
    }
    let exit = follow_if(&cluster, goal, &args.wait).await?;
    if deletes {
        warn_if_kept(&cluster, name).await;
    }
    Ok(exit)
}

fn name_of(args: &Remove) -> &str {
    let source = args.source.as_ref();
    source.map_or(names::ADDITIONAL_SECRET, |source| &source.0)
}

enum Plan {
    /// And its entry in `spec.sources`.
    Delete(Box<Secret>),
    Keep(Box<Secret>),
    /// The Secret doesn't exist: removes its entry.
    Forget,
    /// The Secret is deleted, but some nodes are not restored yet.
    Finish,
    /// The removal of sources is held: deletes the additional Secret, if there is one, and restores every node on purpose.
    Restore(Option<Box<Secret>>),
}

/// The registries that nodes lose or that get another credential.
fn difference(in_force: &InForce, plan: &Plan) -> Vec<RegistryChange> {
    let after = match plan {
        Plan::Keep(secret) => valid_in(secret, names::DATA_KEY),
        Plan::Delete(_) | Plan::Forget | Plan::Finish | Plan::Restore(_) => {
            Some(DockerConfig::default())
        }
    };
    // Content that stays invalid does not come into force.
    after.map_or_else(Vec::new, |after| changes(in_force, &after))
}

/// Credentials on the nodes, as far as this user may read them. `content`: of the Secret; `None`: it is not valid.
async fn in_force(
    cluster: &Cluster<'_>,
    name: &str,
    content: Option<DockerConfig>,
    plan: &Plan,
) -> InForce {
    let (global, gps) = pull_secret::seen(cluster).await;
    let found = InForce::of(global.as_ref(), gps.as_ref().map(|gps| &gps.spec), name);
    let scoped = global.as_ref();
    let scoped = scoped.and_then(|global| data_of(global, names::SCOPED_KEY));
    let scoped = scoped.and_then(|bytes| parse_scoped(bytes).ok());
    let mut scoped = scoped.into_iter().flatten();
    if matches!(plan, Plan::Restore(_)) {
        return found.whole(scoped.map(|scoped| scoped.config));
    }
    if !found.scoped.iter().any(|(source, _)| source == name) {
        return found.with(content);
    }
    let last = scoped.find(|scoped| scoped.source == name);
    InForce::only(last.map(|scoped| scoped.config).unwrap_or_default()).with(content)
}

/// The plan and the previous content of the Secret, if that is valid. `None` if there is nothing to remove and this is no error.
async fn plan(
    cluster: &Cluster<'_>,
    args: &Remove,
    registries: &[String],
    sources: Option<&Sources>,
) -> Result<Option<(Plan, Option<DockerConfig>)>> {
    let name = name_of(args);
    let not_found = |what: String, hint: &str| {
        if args.ignore_not_found {
            Ok(None)
        } else {
            let hint = format!("{hint}; `--ignore-not-found` suppresses this error");
            Err(Failure::new(what, hint))
        }
    };
    // Never deletes a Secret that is not a source.
    if sources.is_some_and(|sources| !sources.has(name)) {
        let what = format!("Secret `{name}` is not in `spec.sources`");
        let hint = format!(
            "see `kubectl -n {} get globalpullsecret -o yaml`",
            cluster.namespace
        );
        return not_found(what, &hint);
    }
    let force = args.owner.force_conflicts;
    let may_forget = || sources.map_or(Ok(None), |sources| sources.may_change(force));
    let restores = args.all && sources.is_none() && is_held(cluster).await;
    let Some(secret) = pull_secret::get(cluster, name).await? else {
        if sources.is_some() {
            may_forget()?;
            return Ok(Some((Plan::Forget, Some(DockerConfig::default()))));
        }
        if restores {
            return Ok(Some((Plan::Restore(None), Some(DockerConfig::default()))));
        }
        if args.skip_unreachable && !Facts::observe(cluster).await?.node_secrets.is_empty() {
            return Ok(Some((Plan::Finish, Some(DockerConfig::default()))));
        }
        let what = format!("there is no Secret `{}/{name}`", cluster.namespace);
        return not_found(
            what,
            "there is nothing to remove; `kubectl globalps status` shows whether nodes are still being restored",
        );
    };
    warn_of_owners(cluster.printer(), may_change(&secret, force)?);
    let before = valid_in(&secret, names::DATA_KEY);
    if args.all {
        may_forget()?;
        let secret = Box::new(secret);
        let plan = if restores {
            Plan::Restore(Some(secret))
        } else {
            Plan::Delete(secret)
        };
        return Ok(Some((plan, before)));
    }
    let content = config_of(&secret)?;
    let (rest, missing) = without_registries(secret.clone(), registries)?;
    let is_missing = |text: &&String| missing.contains(&registry_name(text));
    for text in args.registry.iter().filter(is_missing) {
        registry_key(text)?;
    }
    if !missing.is_empty() && !args.ignore_not_found {
        let what = format!("Secret `{name}` has no registry `{}`", missing.join("`, `"));
        let there: Vec<String> = content
            .entries()
            .iter()
            .map(|e| shown_key(e.key()))
            .collect();
        return not_found(what, &format!("it has `{}`", there.join("`, `")));
    }
    Ok(match rest {
        Rest::Same => None,
        Rest::Some(rest) => Some((Plan::Keep(rest), before)),
        Rest::Nothing => {
            may_forget()?;
            Some((Plan::Delete(Box::new(secret)), before))
        }
    })
}

/// Names of further sources that stay in force, if this user may read them.
async fn sources_in_force(cluster: &Cluster<'_>) -> Vec<String> {
    let gps = pull_secret::configuration(cluster).await;
    let status = gps
        .ok()
        .flatten()
        .and_then(|gps| gps.status)
        .unwrap_or_default();
    sources_that_give(&status)
        .map(|source| source.name.clone())
        .collect()
}

/// What the deletion of the additional pull secret does beyond the registries. `others`: names of sources in force.
fn announce_deletion(printer: &Printer, is_valid: bool, in_force: &InForce, others: &[String]) {
    if others.is_empty() {
        printer.note(HISTORY_GOES);
    } else {
        printer.note(format_args!(
            "nodes keep the credentials of `{}`, which `spec.sources` names",
            others.join("`, `")
        ));
    }
    if is_valid || in_force.additional.is_empty() {
        return;
    }
    let effect = if others.is_empty() {
        "every node is restored"
    } else {
        "nodes lose these credentials"
    };
    printer.warning(format_args!(
        "the additional pull secret is not valid, and its last valid content is in force: without the Secret {effect}"
    ));
    printer.hint("`kubectl globalps undo` goes back to the last valid Secret instead");
}

fn question(name: &str, plan: &Plan, registries: &[String]) -> String {
    let is_source = name != names::ADDITIONAL_SECRET;
    match plan {
        Plan::Delete(_) if is_source => format!(
            "Remove every registry of `{name}` from all nodes, delete that Secret, and remove it from `spec.sources`?"
        ),
        Plan::Delete(_) => {
            "Remove every registry of `additional-pull-secret` from all nodes?".to_owned()
        }
        Plan::Keep(_) if is_source => format!(
            "Remove `{}` of `{name}` from all nodes?",
            registries.join("`, `")
        ),
        Plan::Keep(_) => format!("Remove `{}` from all nodes?", registries.join("`, `")),
        Plan::Forget => format!("There is no Secret `{name}`. Remove it from `spec.sources`?"),
        Plan::Finish => "Finish without the nodes that can't be restored?".to_owned(),
        Plan::Restore(_) => {
            "Restore every node, although Secrets exist that `spec.sources` no longer names?"
                .to_owned()
        }
    }
}

/// Changes the Secret if it did not change since it was read; otherwise the API server returns 409. Returns the goal to wait
/// for and a line per change.
async fn carry_out(
    cluster: &Cluster<'_>,
    name: &str,
    plan: Plan,
    sources: Option<&Sources>,
    args: &Remove,
) -> Result<(NodesGoal, Vec<String>)> {
    let mut goal = NodesGoal::Restored {
        skip_unreachable: args.skip_unreachable,
    };
    let api = cluster.api::<Secret>();
    let mut done = Vec::new();
    // Before the intent, with which it would be rolled out for a moment.
    if let Plan::Delete(secret) | Plan::Restore(Some(secret)) = &plan {
        let params = params::delete(args.dry_run == DryRun::Server, &secret.metadata);
        let title = format!("Secret `{}/{name}`", cluster.namespace);
        if args.dry_run != DryRun::Client {
            // Another client may delete it first.
            cluster.delete(&title, &api, name, &params).await?;
        }
        done.push(format!("secret/{name} deleted"));
    }
    match plan {
        Plan::Keep(secret) => {
            if args.dry_run != DryRun::Client {
                pull_secret::put(cluster, *secret, args.dry_run).await?;
            }
            return Ok((NodesGoal::Synced, vec![format!("secret/{name} configured")]));
        }
        Plan::Restore(_) => {
            let name = names::GLOBAL_SECRET;
            let doing = format!("annotate GlobalPullSecret `{name}`");
            if args.dry_run != DryRun::Client {
                let nothing = |gps: &GlobalPullSecret| is_removal_held(gps).then(|| json!({}));
                let is_dry_run = args.dry_run == DryRun::Server;
                restore_on_purpose(cluster, &doing, nothing, is_dry_run).await?;
            }
            done.push(format!("globalpullsecret.globalps.io/{name} annotated"));
        }
        Plan::Delete(_) | Plan::Forget | Plan::Finish => {}
    }
    if let Some(sources) = sources {
        done.extend(sources.forget(cluster, name, args.dry_run).await?);
        if sources.has_others(name) || additional(cluster).await?.is_some() {
            goal = NodesGoal::Synced;
        }
    }
    Ok((goal, done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_what_goes() {
        let secret = || Box::new(Secret::default());
        let registries = ["quay.io".to_owned()];
        for (name, plan, expected) in [
            (
                "additional-pull-secret",
                Plan::Delete(secret()),
                "Remove every registry of `additional-pull-secret` from all nodes?",
            ),
            (
                "team-a",
                Plan::Delete(secret()),
                "Remove every registry of `team-a` from all nodes, delete that Secret, and remove it from `spec.sources`?",
            ),
            (
                "additional-pull-secret",
                Plan::Keep(secret()),
                "Remove `quay.io` from all nodes?",
            ),
            (
                "team-a",
                Plan::Keep(secret()),
                "Remove `quay.io` of `team-a` from all nodes?",
            ),
            (
                "team-a",
                Plan::Forget,
                "There is no Secret `team-a`. Remove it from `spec.sources`?",
            ),
            (
                "additional-pull-secret",
                Plan::Restore(None),
                "Restore every node, although Secrets exist that `spec.sources` no longer names?",
            ),
        ] {
            assert_eq!(question(name, &plan, &registries), expected);
        }
    }
}
