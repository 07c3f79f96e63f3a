//! `install --restore-configuration`: the `GlobalPullSecret` as it last was in force, which the controller remembers.

use globalps_core::api::GlobalPullSecret;
use globalps_core::names;
use globalps_core::state::{Configuration, State};
use kube::Api;

use super::pull_secret;
use crate::cli::Connection;
use crate::cluster::client::Cluster;
use crate::cluster::controller::must_watch;
use crate::cluster::params;
use crate::error::{Exit, Failure};
use crate::terminal::printer::Printer;

pub(super) async fn run(flags: &Connection, printer: &Printer) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(flags, printer)?;
    must_watch(&cluster).await?;
    let last = remembered(&cluster).await?;
    let live = pull_secret::configuration(&cluster).await?;
    let done = match live {
        Some(live) if live.spec == last.spec => {
            printer.note("the GlobalPullSecret is as it was: there is nothing to restore");
            return Ok(Exit::Done);
        }
        Some(live) => replace(&cluster, live, last).await?,
        None => create(&cluster, last).await?,
    };
    let name = names::GLOBAL_SECRET;
    printer.data(&format!("globalpullsecret.globalps.io/{name} {done}"));
    printer.note("`kubectl globalps status` shows the rollout");
    Ok(Exit::Done)
}

async fn remembered(cluster: &Cluster<'_>) -> Result<Configuration, Failure> {
    let name = names::STATE_SECRET;
    let secret = pull_secret::get(cluster, name).await?;
    let state = secret.as_ref().and_then(State::of);
    state.and_then(|state| state.configuration).ok_or_else(|| {
        Failure::new(
            format!(
                "Secret `{}/{name}` has no configuration to restore",
                cluster.namespace
            ),
            "apply your GlobalPullSecret again",
        )
    })
}

async fn create(cluster: &Cluster<'_>, last: Configuration) -> Result<&'static str, Failure> {
    let mut object = GlobalPullSecret::new(names::GLOBAL_SECRET, last.spec);
    object.metadata.labels = Some(last.labels);
    object.metadata.annotations = Some(last.annotations);
    let api = cluster.api::<GlobalPullSecret>();
    let params = params::post(false);
    let call = api.create(&params, &object);
    cluster.call("create the GlobalPullSecret", call).await?;
    Ok("created")
}

/// Fails if another client has changed it since.
async fn replace(
    cluster: &Cluster<'_>,
    live: GlobalPullSecret,
    last: Configuration,
) -> Result<&'static str, Failure> {
    let api: Api<GlobalPullSecret> = cluster.api();
    let (name, params) = (names::GLOBAL_SECRET, params::post(false));
    let mut object = live.clone();
    object.spec = last.spec.clone();
    let call = api.replace(name, &params, &object);
    match cluster.call("replace the GlobalPullSecret", call).await {
        // Some of its fields can't be changed, only created.
        Err(failure) if failure.is(422) => {
            let params = params::delete(false, &live.metadata);
            let title = format!("GlobalPullSecret `{name}`");
            cluster.delete(&title, &api, name, &params).await?;
            create(cluster, last).await?;
        }
        replaced => drop(replaced?),
    }
    Ok("configured")
}
