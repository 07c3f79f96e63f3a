//! Watches the node's object, in the background of the node's work.

use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use globalps_core::api::NodePullSecret;
use globalps_core::decode::Item;
use globalps_core::names::forget_up_to;
use globalps_runtime::backoff::Backoff;
use globalps_runtime::list_events::{Event, Limits, SETTLED, list_events, one};
use kube::ResourceExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{BACKOFF, Cluster, confirmed};

/// Longer watches than those of other programs: there is one on each node.
const LIMITS: Limits = Limits {
    watch_seconds: 290,
    ..Limits::USUAL
};
/// A token that was rejected for this long belongs to a deleted pod or account.
const CUT_OFF: Duration = Duration::from_mins(1);

/// The node's object as last seen.
#[derive(Clone, Debug)]
pub(crate) enum SeenObject {
    /// Not seen yet.
    Nothing,
    /// It does not exist.
    Absent,
    Object(Box<NodePullSecret>),
}

impl SeenObject {
    pub(crate) fn object(&self) -> Option<&NodePullSecret> {
        match self {
            Self::Object(object) => Some(object),
            Self::Nothing | Self::Absent => None,
        }
    }
}

/// The node's object, which changes with what matters to the node's work, and a signal of each of its versions.
pub(crate) struct Watched {
    pub(crate) objects: watch::Receiver<SeenObject>,
    pub(crate) versions: watch::Receiver<()>,
}

struct Sender {
    objects: watch::Sender<SeenObject>,
    versions: watch::Sender<()>,
}

impl Cluster {
    /// Starts the watch of the node's object. It ends when the API server has rejected this pod's token for a minute: there will
    /// be no more events, and a newer pod may be waiting for the node.
    pub(crate) fn watch_object(&self) -> Watched {
        let (objects, of_work) = watch::channel(SeenObject::Nothing);
        let (versions, of_versions) = watch::channel(());
        let sender = Sender { objects, versions };
        let cluster = self.clone();
        tokio::spawn(async move {
            let mut backoff = BACKOFF;
            let mut rejected_since = None;
            loop {
                let ended = cluster.watch_once(&sender, &mut backoff).await;
                let pause = backoff.pause();
                if is_cut_off(&mut rejected_since, ended.as_ref().err(), Instant::now()) {
                    return;
                }
                if let Err(error) = ended
                    && !is_gap(&error)
                {
                    tracing::warn!(%error, "the watch failed; retrying in {} ms", pause.as_millis());
                }
                sleep(pause).await;
            }
        });
        Watched {
            objects: of_work,
            versions: of_versions,
        }
    }

    /// One list and the watch that follows it, until an error.
    async fn watch_once(&self, sender: &Sender, backoff: &mut Backoff) -> kube::Result<()> {
        let events = list_events(self.objects(), one(&self.node), LIMITS, None);
        pin_mut!(events);
        let mut listed = None;
        let mut complete_since = None;
        while let Some(event) = events.next().await {
            if event.is_err() && complete_since.is_some_and(|at: Instant| at.elapsed() >= SETTLED) {
                backoff.reset();
            }
            match event? {
                Event::Init => {}
                Event::InitApply(item) => listed = Some(item),
                Event::InitDone => {
                    complete_since = Some(Instant::now());
                    match listed.take() {
                        Some(item) => sender.seen(item),
                        None => sender.send(None),
                    }
                }
                Event::Apply(item) => sender.seen(item),
                Event::Delete(_) => sender.send(None),
            }
        }
        Ok(())
    }
}

/// Whether the API server has rejected this pod for too long. Other errors don't count.
fn is_cut_off(
    rejected_since: &mut Option<Instant>,
    error: Option<&kube::Error>,
    now: Instant,
) -> bool {
    match error {
        Some(kube::Error::Api(status)) if status.code == 401 => {
            let since = *rejected_since.get_or_insert(now);
            now.duration_since(since) >= CUT_OFF
        }
        _ => {
            *rejected_since = None;
            false
        }
    }
}

/// Events were lost, so a new list is needed.
fn is_gap(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}

impl Sender {
    /// The last readable version stays while a newer one can't be decoded.
    fn seen(&self, item: Item<NodePullSecret>) {
        match item {
            Item::Readable(object) => self.send(Some(object)),
            Item::Unreadable(reason) => {
                tracing::warn!("the node's object can't be read: {reason}");
            }
        }
    }

    /// Wakes the node's work only for changes that matter to it, which exclude its own status.
    fn send(&self, object: Option<NodePullSecret>) {
        self.objects.send_if_modified(|known| {
            let of_work = |object: &NodePullSecret| {
                let forgets = forget_up_to(object.annotations());
                let confirmed = confirmed(object).to_owned();
                (object.uid(), object.metadata.generation, forgets, confirmed)
            };
            let is_first = matches!(known, SeenObject::Nothing);
            let is_changed = known.object().map(of_work) != object.as_ref().map(of_work);
            *known = object.map_or(SeenObject::Absent, |object| {
                SeenObject::Object(Box::new(object))
            });
            is_first || is_changed
        });
        self.versions.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_pod_is_cut_off_after_a_minute_of_rejected_tokens() {
        let error = |code| {
            let status = Status::failure("no", "No").with_code(code);
            kube::Error::Api(status.boxed())
        };
        let begun = Instant::now();
        let mut since = None;
        for (second, answer, expected) in [
            (0, Some(401), false),
            (59, Some(401), false),
            (60, None, false),
            (61, Some(401), false),
            (100, Some(503), false),
            (110, Some(401), false),
            (169, Some(401), false),
            (170, Some(401), true),
        ] {
            let now = begun + Duration::from_secs(second);
            let error = answer.map(error);
            let found = is_cut_off(&mut since, error.as_ref(), now);
            assert_eq!(found, expected, "second {second}");
        }
    }
}
