//! `remove`: registries leave the additional pull secret; with the last of them it goes.

use globalps_core::api::GlobalPullSecret;
use globalps_core::dockerconfig::shown_key;
use globalps_core::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams, Preconditions};

use super::{ATTEMPTS, additional, follow_if, pause};
use crate::additional::{Rest, config_of, may_change, without_registries};
use crate::cli::{Connection, Remove};
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::facts::Facts;
use crate::printer::Printer;
use crate::prompt::{can_confirm, confirm};
use crate::registry_name::registry_key;
use crate::skipped::Skipped;
use crate::status::{Goal, Status, sources_that_give};

pub(super) async fn run(
    args: &Remove,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    can_confirm(args.yes)?;
    let registries = args
        .registry
        .iter()
        .map(|registry| registry_key(registry))
        .collect::<Result<Vec<String>, Failure>>()?;
    let cluster = Cluster::connect(flags, printer).await?;
    let mut asked = args.yes;
    let mut attempt = 1;
    let (goal, word) = loop {
        let Some(plan) = plan(&cluster, args, &registries).await? else {
            printer.note("there is nothing to remove");
            return Ok(Exit::Done);
        };
        if attempt == 1 {
            if matches!(plan, Plan::Delete(_)) {
                tell_what_stays(&cluster).await;
            }
            if args.skip_unreachable {
                Skipped::announce(&Facts::observe(&cluster).await?, printer)?;
            }
        }
        confirm(&question(&plan, &registries), asked)?;
        asked = true;
        match carry_out(&cluster, plan, args.skip_unreachable).await {
            Err(failure) if failure.is(409) && attempt < ATTEMPTS => pause(attempt).await,
            done => break done?,
        }
        attempt += 1;
    };
    if let Some(word) = word {
        printer.data(&format!("secret/{} {word}", names::ADDITIONAL_SECRET));
        printer.note("images that are on the nodes already stay usable");
    }
    if args.skip_unreachable && !args.wait.wait {
        let facts = Facts::observe(&cluster).await?;
        let status = Status::of(&facts, Timestamp::now());
        let mut skipped = Skipped::default();
        skipped.skip(&cluster, &facts, &status).await?;
        skipped.report(printer);
    }
    follow_if(&cluster, goal, &args.wait).await
}

enum Plan {
    Delete(Box<Secret>),
    Keep(Box<Secret>),
    /// The Secret is gone, and nodes are left to restore.
    Finish,
}

/// `None`: there is nothing to remove, and that is no error.
async fn plan(
    cluster: &Cluster<'_>,
    args: &Remove,
    registries: &[String],
) -> Result<Option<Plan>, Failure> {
    let not_found = |what: String, hint: &str| {
        if args.ignore_not_found {
            Ok(None)
        } else {
            let hint = format!("{hint}; `--ignore-not-found` makes that no error");
            Err(Failure::new(what, hint))
        }
    };
    let Some(secret) = additional(cluster).await? else {
        if args.skip_unreachable && !Facts::observe(cluster).await?.node_secrets.is_empty() {
            return Ok(Some(Plan::Finish));
        }
        let what = format!(
            "there is no Secret `{}/{}`",
            cluster.namespace,
            names::ADDITIONAL_SECRET
        );
        return not_found(what, "so no node has anything of it, or is just put back");
    };
    may_change(&secret, args.owner.force_conflicts)?;
    if args.all {
        return Ok(Some(Plan::Delete(Box::new(secret))));
    }
    let (rest, missing) = without_registries(secret.clone(), registries)?;
    if !missing.is_empty() && !args.ignore_not_found {
        let what = format!(
            "Secret `{}` has no registry `{}`",
            names::ADDITIONAL_SECRET,
            missing.join("`, `")
        );
        let config = config_of(&secret)?;
        let there: Vec<String> = config
            .entries()
            .iter()
            .map(|e| shown_key(e.key()))
            .collect();
        return not_found(what, &format!("it has `{}`", there.join("`, `")));
    }
    Ok(match rest {
        Rest::Same => None,
        Rest::Some(rest) => Some(Plan::Keep(rest)),
        Rest::Nothing => Some(Plan::Delete(Box::new(secret))),
    })
}

/// Further sources are other people's, and go on. Who may not see them is not told.
async fn tell_what_stays(cluster: &Cluster<'_>) {
    let api = cluster.api::<GlobalPullSecret>();
    let gps = cluster
        .call("see further sources", api.get_opt(names::GLOBAL_SECRET))
        .await;
    let status = gps
        .ok()
        .flatten()
        .and_then(|gps| gps.status)
        .unwrap_or_default();
    let names: Vec<&str> = sources_that_give(&status)
        .map(|source| source.name.as_str())
        .collect();
    if !names.is_empty() {
        cluster.printer().note(format_args!(
            "nodes keep the credentials of `{}`, which `spec.sources` names",
            names.join("`, `")
        ));
    }
}

fn question(plan: &Plan, registries: &[String]) -> String {
    match plan {
        Plan::Delete(_) => {
            "Take every registry of `additional-pull-secret` away from all nodes?".to_owned()
        }
        Plan::Keep(_) => format!("Take `{}` away from all nodes?", registries.join("`, `")),
        Plan::Finish => "Finish without the unreachable nodes?".to_owned(),
    }
}

/// Changes the Secret, if it is still what it was when it was read: else the API server says 409. Returns what to wait for,
/// and what became of the Secret.
async fn carry_out(
    cluster: &Cluster<'_>,
    plan: Plan,
    skip_unreachable: bool,
) -> Result<(Goal, Option<&'static str>), Failure> {
    let restored = Goal::Restored { skip_unreachable };
    let api = cluster.api::<Secret>();
    let name = format!("{}/{}", cluster.namespace, names::ADDITIONAL_SECRET);
    match plan {
        Plan::Keep(secret) => {
            let params = PostParams {
                field_manager: Some(names::PLUGIN_MANAGER.to_owned()),
                ..PostParams::default()
            };
            cluster
                .call(
                    &format!("update Secret `{name}`"),
                    api.replace(names::ADDITIONAL_SECRET, &params, &secret),
                )
                .await?;
            Ok((Goal::Synced, Some("configured")))
        }
        Plan::Delete(secret) => {
            let params = DeleteParams::default().preconditions(Preconditions {
                resource_version: secret.metadata.resource_version,
                uid: secret.metadata.uid,
            });
            let deleted = cluster
                .call(
                    &format!("delete Secret `{name}`"),
                    api.delete(names::ADDITIONAL_SECRET, &params),
                )
                .await;
            match deleted {
                // Somebody else was faster.
                Err(failure) if failure.is(404) => {}
                other => drop(other?),
            }
            Ok((restored, Some("deleted")))
        }
        Plan::Finish => Ok((restored, None)),
    }
}
