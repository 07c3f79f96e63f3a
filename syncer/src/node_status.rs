//! The node's `NodePullSecret`: its spec as it changes, and its status as the node wants it told. Both run beside the
//! node's work, which never waits for the API server unless it needs the Secret.

use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use globalps_core::api::{NodePullSecret, NodePullSecretStatus, Phase};
use globalps_core::dockerconfig::{self, DockerConfig};
use globalps_core::names::{
    DATA_KEY, GLOBAL_SECRET, PROVEN_ANNOTATION, REVISION_ANNOTATION, SYNCER_MANAGER,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::journal::Task;

/// For one request that is not a watch.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Between two statuses.
const BETWEEN_REPORTS: Duration = Duration::from_millis(100);
/// That work goes on is told only where it takes so long. A restart that goes well takes less, and thousands of nodes
/// spare the API server a write each.
const PASSING: Duration = Duration::from_secs(1);
/// A watch is renewed after so long; a connection that is silent for longer is dead.
const WATCH: Duration = Duration::from_secs(290);
const GRACE: Duration = Duration::from_secs(10);

/// First and longest pause after an error.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Pauses that double, each by half random, so that the nodes do not all come at once.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    pub(crate) fn next(&mut self) -> Duration {
        let pause = RETRY
            .0
            .saturating_mul(2_u32.saturating_pow(self.0))
            .min(RETRY.1);
        self.0 += 1;
        let random = jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000;
        pause / 2 + pause / 2 * random / 1000
    }

    pub(crate) fn reset(&mut self) {
        self.0 = 0;
    }
}

/// Why the Secret's content is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("`{GLOBAL_SECRET}` could not be read: {0}")]
    Api(kube::Error),
    #[error("`{GLOBAL_SECRET}` could not be read within {} s", TIMEOUT.as_secs())]
    Timeout,
    #[error("`{GLOBAL_SECRET}` is at revision {found}, and this node is granted another")]
    OtherRevision { found: String },
    #[error("`{GLOBAL_SECRET}` does not hold registry credentials: {0}")]
    Content(String),
}

#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    namespace: String,
    node: String,
}

impl Cluster {
    pub(crate) fn new(client: Client, namespace: &str, node: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            node: node.to_owned(),
        }
    }

    fn objects(&self) -> Api<NodePullSecret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The content of this revision.
    pub(crate) async fn fetch(&self, revision: i64) -> Result<DockerConfig, FetchError> {
        let secret = self.read().await?;
        let found = secret
            .annotations()
            .get(REVISION_ANNOTATION)
            .cloned()
            .unwrap_or_default();
        if found != revision.to_string() {
            return Err(FetchError::OtherRevision { found });
        }
        content(&secret)
    }

    /// What a node takes that joins: the revision and its content, if some node runs with it already.
    pub(crate) async fn fetch_proven(&self) -> Result<Option<(i64, DockerConfig)>, FetchError> {
        let secret = match self.read().await {
            Ok(secret) => secret,
            Err(FetchError::Api(kube::Error::Api(status))) if status.code == 404 => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let told = |name: &str| secret.annotations().get(name);
        let revision =
            told(REVISION_ANNOTATION).filter(|revision| told(PROVEN_ANNOTATION) == Some(*revision));
        match revision.and_then(|revision| revision.parse().ok()) {
            Some(revision) => Ok(Some((revision, content(&secret)?))),
            None => Ok(None),
        }
    }

    async fn read(&self) -> Result<Secret, FetchError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = timeout(TIMEOUT, secrets.get(GLOBAL_SECRET))
            .await
            .map_err(|_| FetchError::Timeout)?;
        secret.map_err(|error| match error {
            // What the error quotes may be what could not be read.
            kube::Error::SerdeError(_) => FetchError::Content("it could not be read".to_owned()),
            other => FetchError::Api(other),
        })
    }

    /// The node's object from now on.
    pub(crate) fn follow(&self) -> watch::Receiver<Known> {
        let (sender, receiver) = watch::channel(Known::Nothing);
        let cluster = self.clone();
        tokio::spawn(async move {
            let mut backoff = Backoff::default();
            loop {
                let ended = cluster.watch_once(&sender, &mut backoff).await;
                let pause = backoff.next();
                if let Err(error) = ended {
                    tracing::warn!(%error, "the watch failed, trying again in {} ms", pause.as_millis());
                }
                sleep(pause).await;
            }
        });
        receiver
    }

    /// One list and the watch that goes on from it, until the watch ends or has a gap.
    async fn watch_once(
        &self,
        sender: &watch::Sender<Known>,
        backoff: &mut Backoff,
    ) -> anyhow::Result<()> {
        let objects = self.objects();
        let field = format!("metadata.name={}", self.node);
        let list = timeout(TIMEOUT, objects.list(&ListParams::default().fields(&field))).await??;
        let mut version = list.metadata.resource_version.unwrap_or_default();
        send(sender, list.items.into_iter().next());
        loop {
            let seconds = u32::try_from(WATCH.as_secs()).unwrap_or(u32::MAX);
            let parameters = WatchParams::default().fields(&field).timeout(seconds);
            let stream = timeout(TIMEOUT, objects.watch(&parameters, &version)).await??;
            pin_mut!(stream);
            let begun = Instant::now();
            while let Some(event) = timeout(WATCH + GRACE, stream.next()).await? {
                match event? {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        version = object.resource_version().unwrap_or_default();
                        send(sender, Some(object));
                    }
                    WatchEvent::Deleted(object) => {
                        version = object.resource_version().unwrap_or_default();
                        send(sender, None);
                    }
                    WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                    // Mostly 410: what happened in between is not known any more, and a new list tells.
                    WatchEvent::Error(status) => {
                        tracing::debug!(code = status.code, "the watch has a gap");
                        if status.code != 410 {
                            anyhow::bail!("the API server ended the watch with {}", status.code);
                        }
                        return Ok(());
                    }
                }
                backoff.reset();
            }
            if begun.elapsed() < GRACE {
                // No renewal, but a server that does not keep its watches: not again without a pause.
                return Ok(());
            }
        }
    }

    /// Takes statuses and writes the newest one, as often as it takes, and never two at once.
    pub(crate) fn reporter(&self) -> watch::Sender<Option<Report>> {
        let (sender, mut receiver) = watch::channel::<Option<Report>>(None);
        let cluster = self.clone();
        tokio::spawn(async move {
            let mut backoff = Backoff::default();
            while receiver.changed().await.is_ok() {
                loop {
                    let Some(report) = lasting(&mut receiver).await else {
                        break;
                    };
                    match timeout(TIMEOUT, cluster.write(&report)).await {
                        Ok(Ok(())) => {
                            backoff.reset();
                            break;
                        }
                        // The object is gone, and with it whoever wants to know. A conflict may be another object of
                        // that name, which is told something newer soon, or two writes at once: it is tried again.
                        Ok(Err(kube::Error::Api(error))) if error.code == 404 => break,
                        Ok(Err(error)) => tracing::warn!(%error, "the status could not be written"),
                        Err(_) => tracing::warn!("the status could not be written in time"),
                    }
                    sleep(backoff.next()).await;
                }
                sleep(BETWEEN_REPORTS).await;
            }
        });
        sender
    }

    /// With the uid, so that another object of the same name is not written: the API server answers with a conflict.
    async fn write(&self, report: &Report) -> kube::Result<()> {
        let body = serde_json::json!({"metadata": {"uid": report.uid}, "status": report.status});
        let params = PatchParams {
            field_manager: Some(SYNCER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        self.objects()
            .patch_status(&self.node, &params, &Patch::Merge(&body))
            .await
            .map(|_| ())
    }
}

/// What is known of the node's object.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// The API server has not said anything yet.
    Nothing,
    /// There is none.
    Absent,
    Object(Box<NodePullSecret>),
}

impl Known {
    pub(crate) fn object(&self) -> Option<&NodePullSecret> {
        match self {
            Self::Object(object) => Some(object),
            Self::Nothing | Self::Absent => None,
        }
    }
}

/// A status, and the object that it is for.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) uid: String,
    pub(crate) status: NodePullSecretStatus,
}

impl Report {
    /// Work goes on, and nothing is in its way.
    fn is_passing(&self) -> bool {
        let status = &self.status;
        matches!(status.phase, Phase::Syncing | Phase::Restoring) && status.reason.is_empty()
    }
}

/// The newest status, once it is worth a write.
async fn lasting(reports: &mut watch::Receiver<Option<Report>>) -> Option<Report> {
    loop {
        let report = reports.borrow_and_update().clone()?;
        let is_over =
            report.is_passing() && matches!(timeout(PASSING, reports.changed()).await, Ok(Ok(())));
        if !is_over {
            return Some(report);
        }
    }
}

/// Wakes the node's work only where something changed that it depends on: not for its own status.
fn send(sender: &watch::Sender<Known>, object: Option<NodePullSecret>) {
    sender.send_if_modified(|known| {
        let identity = |object: &NodePullSecret| (object.uid(), object.metadata.generation);
        let is_first = matches!(known, Known::Nothing);
        let is_news = known.object().map(identity) != object.as_ref().map(identity);
        *known = object.map_or(Known::Absent, |object| Known::Object(Box::new(object)));
        is_first || is_news
    });
}

fn content(secret: &Secret) -> Result<DockerConfig, FetchError> {
    let data = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
    let bytes = data.map(|bytes| bytes.0.as_slice());
    dockerconfig::parse(bytes.unwrap_or_default())
        .map_err(|error| FetchError::Content(error.to_string()))
}

/// uid and generation.
pub(crate) fn identity(object: &NodePullSecret) -> (String, i64) {
    let meta = &object.metadata;
    (
        meta.uid.clone().unwrap_or_default(),
        meta.generation.unwrap_or_default(),
    )
}

/// What the object asks of the node; `None`: nothing yet.
pub(crate) fn task(object: &NodePullSecret) -> Option<Task> {
    let spec = &object.spec;
    let revision = if spec.restore { 0 } else { spec.revision };
    let (uid, generation) = identity(object);
    (spec.restore || revision > 0).then_some(Task {
        uid,
        generation,
        revision,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Which phase is written and after how many milliseconds, where the second status comes after 400.
    async fn written(first: Phase, reason: &str, second: Option<Phase>) -> (Phase, u128) {
        let report = |phase, reason: &str| {
            let status = NodePullSecretStatus {
                phase,
                reason: reason.to_owned(),
                ..NodePullSecretStatus::default()
            };
            let uid = String::new();
            Some(Report { uid, status })
        };
        let (sender, mut receiver) = watch::channel(None);
        sender.send_replace(report(first, reason));
        let begun = Instant::now();
        let writer = async {
            let report = lasting(&mut receiver).await.unwrap();
            (report.status.phase, begun.elapsed().as_millis())
        };
        let later = async {
            sleep(Duration::from_millis(400)).await;
            if let Some(second) = second {
                sender.send_replace(report(second, ""));
            }
        };
        tokio::join!(writer, later).0
    }

    #[tokio::test(start_paused = true)]
    async fn that_work_goes_on_is_told_only_where_it_takes_a_second() {
        use Phase::{Restored, Restoring, RolledBack, Synced, Syncing};
        for (sentence, first, reason, second, expected) in [
            (
                "a quick restart is one write",
                Syncing,
                "",
                Some(Synced),
                (Synced, 400),
            ),
            (
                "so is a quick failure",
                Syncing,
                "",
                Some(RolledBack),
                (RolledBack, 400),
            ),
            (
                "and a quick restore",
                Restoring,
                "",
                Some(Restored),
                (Restored, 400),
            ),
            ("a slow one is told of", Syncing, "", None, (Syncing, 1000)),
            (
                "what is in the way is told at once",
                Syncing,
                "SecretNotRead",
                Some(Synced),
                (Syncing, 0),
            ),
            ("and so is the end", Synced, "", None, (Synced, 0)),
        ] {
            assert_eq!(written(first, reason, second).await, expected, "{sentence}");
        }
    }
}
