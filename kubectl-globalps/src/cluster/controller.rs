//! The controller's Deployment: the namespace that it watches, and whether it runs.

use std::collections::BTreeSet;

use globalps_core::api::{GlobalPullSecret, NodePullSecret};
use globalps_core::names;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Resource};

use crate::cluster::client::Cluster;
use crate::cluster::namespaces::all_metadata;
use crate::error::{Failure, Result, allowed};

/// A program that acts on the objects that the plugin writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Controller,
    Hub,
}

impl Program {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Hub => "hub",
        }
    }

    fn deployment(self) -> &'static str {
        match self {
            Self::Controller => names::CONTROLLER,
            Self::Hub => names::HUB,
        }
    }
}

/// `None` if it is not installed.
pub(crate) async fn deployment(
    cluster: &Cluster<'_>,
    program: Program,
) -> Result<Option<Deployment>> {
    let api: Api<Deployment> = Api::namespaced(cluster.client.clone(), names::CONTROLLER_NAMESPACE);
    let call = api.get_opt(program.deployment());
    let doing = format!("get the Deployment of the {}", program.word());
    cluster.call(&doing, call).await
}

/// Namespace of the pull secrets that it watches.
pub(crate) fn watched(deployment: &Deployment) -> Option<&str> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let args = pod.containers.first()?.args.as_ref()?;
    args.iter().find_map(|arg| arg.strip_prefix("--namespace="))
}

/// The namespace of the pull secrets of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Watched(String),
    /// No controller is installed, but its objects exist in this namespace, and not in the one of the command.
    Left(String),
}

impl Home {
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::Watched(namespace) | Self::Left(namespace) => namespace,
        }
    }
}

/// `None` if nothing shows the namespace, or this user may not read it.
pub(crate) async fn home(
    cluster: &Cluster<'_>,
    deployment: Option<&Deployment>,
) -> Result<Option<Home>> {
    if let Some(deployment) = deployment {
        let home = watched(deployment).map(str::to_owned);
        return Ok(home.map(Home::Watched));
    }
    let (configurations, nodes) = tokio::try_join!(
        namespaces_of::<GlobalPullSecret>(
            cluster,
            // A `GlobalPullSecret` of another name has no effect.
            ListParams::default().fields(&format!("metadata.name={}", names::GLOBAL_SECRET)),
            "list the GlobalPullSecrets",
        ),
        namespaces_of::<NodePullSecret>(cluster, ListParams::default(), "list the NodePullSecrets"),
    )?;
    let all: BTreeSet<String> = configurations.into_iter().chain(nodes).collect();
    let is_elsewhere = !all.contains(&cluster.namespace);
    let first = all.into_iter().next();
    Ok(first.filter(|_| is_elsewhere).map(Home::Left))
}

/// Namespaces with objects of this kind; none if this user may not list them, or the kind doesn't exist.
async fn namespaces_of<K>(
    cluster: &Cluster<'_>,
    which: ListParams,
    doing: &str,
) -> Result<Vec<String>>
where
    K: Resource<DynamicType = ()>,
{
    let api: Api<K> = Api::all(cluster.client.clone());
    match all_metadata(cluster, &api, which, doing).await {
        Err(failure) if failure.is(403) || failure.is(404) => Ok(Vec::new()),
        found => Ok(found?
            .into_iter()
            .filter(|object| object.metadata.deletion_timestamp.is_none())
            .filter_map(|object| object.metadata.namespace)
            .collect()),
    }
}

/// Reads the controller's Deployment, then [`home`].
async fn home_in(cluster: &Cluster<'_>) -> Result<Option<Home>> {
    match allowed(deployment(cluster, Program::Controller).await)? {
        Some(found) => home(cluster, found.as_ref()).await,
        None => Ok(None),
    }
}

/// Namespace of the pull secrets according to the installation.
pub(crate) async fn of_credentials(cluster: &Cluster<'_>) -> Result<String> {
    let home = home_in(cluster).await?;
    let home = home
        .as_ref()
        .map_or(cluster.namespace.as_str(), Home::namespace);
    Ok(home.to_owned())
}

/// Refuses a namespace that the controller does not watch, because nothing there has any effect.
pub(crate) async fn must_watch(cluster: &Cluster<'_>) -> Result<()> {
    refuse_other(home_in(cluster).await?.as_ref(), &cluster.namespace)
}

/// Like [`must_watch`], but doesn't suggest the other namespace: a user who removes the remains of one installation
/// would delete the one that works.
pub(crate) async fn must_watch_to_uninstall(cluster: &Cluster<'_>) -> Result<()> {
    let (home, asked) = (home_in(cluster).await?, &cluster.namespace);
    refuse_other(home.as_ref(), asked).map_err(|mut failure| {
        if let Some(Home::Watched(_)) = home {
            failure.hint = format!(
                "to remove the installation that works, name its namespace; what is left of another one is deleted with `kubectl -n {asked} delete daemonset {}`",
                names::SYNCER
            );
        }
        failure
    })
}

/// Like [`must_watch`], for commands that report other errors themselves or work in spite of them.
pub(crate) async fn must_watch_if_known(cluster: &Cluster<'_>) -> Result<()> {
    let home = home_in(cluster).await;
    refuse_other(home.unwrap_or_default().as_ref(), &cluster.namespace)
}

fn refuse_other(home: Option<&Home>, asked: &str) -> Result<()> {
    let Some(home) = home.filter(|home| home.namespace() != asked) else {
        return Ok(());
    };
    let namespace = home.namespace();
    let message = match home {
        Home::Watched(_) => {
            format!("the controller watches namespace `{namespace}`, not `{asked}`")
        }
        Home::Left(_) => format!(
            "no controller is installed, and the objects of globalps are in namespace `{namespace}`, not in `{asked}`"
        ),
    };
    let hint = format!("run the command with `--pull-secret-namespace {namespace}`");
    Err(Failure::new(message, hint))
}

/// Message and hint if the custom resources don't exist.
pub(crate) const NOT_INSTALLED: (&str, &str) = (
    "globalps is not installed in this cluster",
    "install it with `kubectl globalps install --controller-image IMAGE --syncer-image IMAGE`; `kubectl globalps images push REGISTRY` pushes these images",
);

/// Hint if globalps is not installed. `namespace`: of the pull secrets.
pub(crate) fn how_to_install(namespace: &str) -> String {
    let hint = NOT_INSTALLED.1;
    if namespace == names::NAMESPACE {
        return hint.to_owned();
    }
    hint.replace(
        "globalps install",
        &format!("globalps install --pull-secret-namespace {namespace}"),
    )
}

pub(crate) fn not_installed(cluster: &Cluster<'_>) -> Failure {
    Failure::not_found(NOT_INSTALLED.0, how_to_install(&cluster.namespace))
}

/// Replaces the error of a request that returns 404 only if the kind does not exist.
pub(crate) fn or_not_installed(cluster: &Cluster<'_>, failure: Failure) -> Failure {
    if failure.is(404) {
        not_installed(cluster)
    } else {
        failure
    }
}

/// How long a program may be unavailable before waiting for it is pointless.
const UNAVAILABLE_FOR: SignedDuration = SignedDuration::from_secs(60);

/// Like [`stopped`], as a sentence.
pub(crate) fn not_running(
    program: Program,
    deployment: Option<&Deployment>,
    now: Timestamp,
) -> Option<String> {
    let reason = stopped(program, deployment, now)?;
    Some(format!("the {} is not running: {reason}", program.word()))
}

/// Why the program does nothing; `None` if it runs, or will soon.
pub(crate) fn stopped(
    program: Program,
    deployment: Option<&Deployment>,
    now: Timestamp,
) -> Option<String> {
    let title = format!(
        "Deployment `{}/{}`",
        names::CONTROLLER_NAMESPACE,
        program.deployment()
    );
    let Some(deployment) = deployment else {
        return Some(format!("{title} does not exist"));
    };
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    if replicas == Some(0) {
        return Some(format!("{title} has 0 replicas"));
    }
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    let available = conditions.iter().find(|it| it.type_ == "Available")?;
    let since = available.last_transition_time.as_ref()?.0;
    let is_long = available.status == "False" && now.duration_since(since) >= UNAVAILABLE_FOR;
    is_long.then(|| format!("{title} has no available pod"))
}

/// Whether the custom resources exist. Also true if the user may not read them.
pub(crate) async fn is_installed(cluster: &Cluster<'_>) -> bool {
    let api = cluster.api::<NodePullSecret>();
    let first = ListParams::default().limit(1);
    let call = api.list_metadata(&first);
    let answer = cluster
        .call("see whether globalps is installed", call)
        .await;
    !answer.is_err_and(|failure| failure.is(404))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_controller_that_starts_is_waited_for() {
        let now = "2026-01-01T00:10:00Z".parse().expect("a time");
        for (replicas, available, since, expected) in [
            (0, "True", "2026-01-01T00:00:00Z", Some("has 0 replicas")),
            (2, "True", "2026-01-01T00:00:00Z", None),
            (2, "False", "2026-01-01T00:09:30Z", None),
            (
                2,
                "False",
                "2026-01-01T00:08:00Z",
                Some("has no available pod"),
            ),
        ] {
            let condition =
                json!({"type": "Available", "status": available, "lastTransitionTime": since});
            let deployment = json!({
                "metadata": {}, "status": {"conditions": [condition]},
                "spec": {"replicas": replicas, "selector": {}, "template": {}},
            });
            let deployment = serde_json::from_value(deployment).expect("a Deployment");
            let found = not_running(Program::Controller, Some(&deployment), now);
            let expected = expected.map(|end| {
                format!("the controller is not running: Deployment `globalps-system/globalps-controller` {end}")
            });
            assert_eq!(found, expected, "{since}");
        }
        let expected =
            "the hub is not running: Deployment `globalps-system/globalps-hub` does not exist";
        let found = not_running(Program::Hub, None, now);
        assert_eq!(found.as_deref(), Some(expected));
    }
}
