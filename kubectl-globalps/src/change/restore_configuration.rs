//! `install --restore-configuration`: restores the `GlobalPullSecret` that was last in force, which the controller
//! remembers.

use globalps_core::api::GlobalPullSecret;
use globalps_core::decode::Item;
use globalps_core::names;
use globalps_core::state::{Configuration, RESTORE_CONFIGURATION, State};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use serde_json::json;

use crate::cli::Connection;
use crate::cluster::{Cluster, must_watch, or_not_installed, params, waits_for};
use crate::error::{Exit, Failure, Result};
use crate::target::pull_secret;
use crate::terminal::{Printer, can_ask, confirm};
use crate::view::status::{REMOVAL_HELD, is_removal_held};

const DELETED: &str = "there is no GlobalPullSecret, although credentials are in force: an empty one would change what they are, and who gets them";

/// The user may have changed it on purpose since.
const IN_FORCE: &str =
    "this GlobalPullSecret is in force; it was created after another one was deleted";
const GO_BACK: &str = "Go back to the GlobalPullSecret that it replaced?";

pub(crate) async fn run(flags: &Connection, printer: &Printer) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    must_watch(&cluster).await?;
    let state = remembered(&cluster).await?;
    // Untyped, so that a configuration that can't be decoded is replaced too.
    let api = cluster.untyped::<GlobalPullSecret>();
    let call = api.get_opt(names::GLOBAL_SECRET);
    let object = cluster.call("get the GlobalPullSecret", call).await;
    let object = object.map_err(|failure| or_not_installed(&cluster, failure))?;
    let typed = |object| serde_json::from_value::<Item<GlobalPullSecret>>(json!(object));
    let live = object.as_ref().and_then(|object| typed(object).ok());
    let live = live.and_then(|item| item.into_result().ok());
    let is_live = |known: &Option<Configuration>| {
        let both = known.as_ref().zip(live.as_ref());
        both.is_some_and(|(known, live)| known.spec == live.spec)
    };
    let is_back = is_live(&state.replaced) && !live.as_ref().is_some_and(is_removal_held);
    let is_in_force = is_live(&state.configuration);
    let last = state.to_restore(live.as_ref().map(|live| &live.spec));
    let last = last.ok_or_else(|| nothing_to_restore(&cluster))?;
    if is_back || live.is_some_and(|live| live.spec == last.spec) {
        printer.note("the GlobalPullSecret is as it was: there is nothing to restore");
        return Ok(Exit::Done);
    }
    let done = match object {
        Some(object) => {
            if is_in_force {
                printer.note(IN_FORCE);
                confirm(&cluster.title(), GO_BACK, !can_ask())?;
            }
            replace(&cluster, object, last).await?
        }
        None => create(&cluster, &configured(last), false).await?,
    };
    let name = names::GLOBAL_SECRET;
    printer.data(&format!("globalpullsecret.globalps.io/{name} {done}"));
    printer.note("`kubectl globalps status` shows the rollout");
    Ok(Exit::Done)
}

/// Refuses to create a `GlobalPullSecret` in place of a deleted one. A new one with a single field would reset the
/// sources, the delivery and the namespaces in force to the defaults.
pub(crate) async fn must_not_be_deleted(cluster: &Cluster<'_>) -> Result<()> {
    let api = cluster.api::<Secret>();
    for name in [names::GLOBAL_SECRET, names::STATE_SECRET] {
        let doing = format!("see whether Secret `{}/{name}` exists", cluster.namespace);
        let found = cluster.call(&doing, api.get_metadata_opt(name)).await?;
        if found.is_some_and(|found| waits_for(&found.metadata).is_none()) {
            return Err(Failure::new(DELETED, RESTORE_CONFIGURATION));
        }
    }
    Ok(())
}

/// Refuses to add credentials while the removal of the last sources is held, because they would not come into force
/// before that is decided. Doesn't refuse users who may not read the configuration.
pub(crate) async fn must_not_be_held(cluster: &Cluster<'_>) -> Result<()> {
    refuse_held(is_held(cluster).await)
}

pub(crate) fn refuse_held(is_held: bool) -> Result<()> {
    if is_held {
        return Err(Failure::new(REMOVAL_HELD.0, REMOVAL_HELD.1));
    }
    Ok(())
}

/// Whether the removal of the last sources is held; false if this user may not see it.
pub(crate) async fn is_held(cluster: &Cluster<'_>) -> bool {
    let gps = pull_secret::configuration(cluster).await.ok().flatten();
    gps.as_ref().is_some_and(is_removal_held)
}

async fn remembered(cluster: &Cluster<'_>) -> Result<State> {
    let secret = pull_secret::get(cluster, names::STATE_SECRET).await?;
    let state = secret.as_ref().and_then(State::of);
    state.ok_or_else(|| nothing_to_restore(cluster))
}

fn nothing_to_restore(cluster: &Cluster<'_>) -> Failure {
    Failure::new(
        format!(
            "Secret `{}/{}` has no configuration to restore",
            cluster.namespace,
            names::STATE_SECRET
        ),
        "apply your GlobalPullSecret again",
    )
}

fn configured(last: Configuration) -> GlobalPullSecret {
    let mut object = GlobalPullSecret::new(names::GLOBAL_SECRET, last.spec);
    object.metadata.labels = Some(last.labels);
    object.metadata.annotations = Some(last.annotations);
    object
}

async fn create(
    cluster: &Cluster<'_>,
    object: &GlobalPullSecret,
    dry_run: bool,
) -> Result<&'static str> {
    let api = cluster.api::<GlobalPullSecret>();
    let params = params::post(dry_run);
    let call = api.create(&params, object);
    cluster.call("create the GlobalPullSecret", call).await?;
    Ok("created")
}

/// Fails if another client has changed the object since it was read.
async fn replace(
    cluster: &Cluster<'_>,
    mut object: DynamicObject,
    mut last: Configuration,
) -> Result<&'static str> {
    // A pause concerns the nodes, independently of the rest of the configuration.
    last.spec.rollout.paused |= object.data["spec"]["rollout"]["paused"] == true;
    let api = cluster.untyped::<GlobalPullSecret>();
    let (name, params) = (names::GLOBAL_SECRET, params::post(false));
    object.data["spec"] = json!(last.spec);
    let call = api.replace(name, &params, &object);
    match cluster.call("replace the GlobalPullSecret", call).await {
        // Some fields are immutable, so the object must be created again.
        Err(failure) if failure.is(422) => {
            let again = configured(last);
            match create(cluster, &again, true).await {
                // The dry run was admitted; the object just still exists.
                Err(failure) if failure.is(409) => {}
                admitted => drop(admitted?),
            }
            let params = params::delete(false, &object.metadata);
            let title = format!("GlobalPullSecret `{name}`");
            cluster.delete(&title, &api, name, &params).await?;
            create(cluster, &again, false)
                .await
                .map_err(|mut failure| {
                    let (namespace, manifest) = (&cluster.namespace, json!(again));
                    failure.hint = format!(
                        "it is deleted; `kubectl -n {namespace} create -f -` creates it from {manifest}"
                    );
                    failure
                })?;
        }
        replaced => drop(replaced?),
    }
    Ok("configured")
}
