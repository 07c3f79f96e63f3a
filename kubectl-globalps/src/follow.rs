//! Following a rollout: watches keep the facts up to date, a table or lines show them.

use std::time::Duration;

use futures::future::FutureExt as _;
use futures::stream::{BoxStream, StreamExt as _, select_all};
use globalps_core::api::{GlobalPullSecret, NodePullSecret};
use globalps_core::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Api;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use tokio::time::Instant;

use crate::cli::Span;
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::facts::{Facts, NodeFacts, Scope, version_of};
use crate::printer::{Frame, Stream, is_terminal, terminal_size};
use crate::skipped::Skipped;
use crate::status::{FOLLOW, Goal, Row, SKIP, SYNCERS, Status, Verdict, advice, verdict};
use crate::syncers::look;
use crate::table::{self, Layout};

/// Changes that arrive together are shown together.
const REDRAW_AFTER: Duration = Duration::from_millis(80);
/// Ages grow by themselves.
const TICK: Duration = Duration::from_secs(1);

/// What one event of a watch does to the facts.
type Change = Box<dyn FnOnce(&mut Facts) + Send>;

/// Until when, and where to show it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follow {
    /// `None`: never done, until Ctrl-C.
    pub goal: Option<Goal>,
    pub timeout: Option<Span>,
    pub stream: Stream,
}

/// Follows until the goal is reached (`Done`), or until Ctrl-C. That the goal will not be reached, or was not in time,
/// is a [`Failure`] that says no.
pub(crate) async fn follow(cluster: &Cluster<'_>, how: Follow) -> Result<Exit, Failure> {
    follow_some(cluster, how, Scope::default()).await
}

/// As [`follow`], of some nodes.
pub(crate) async fn follow_some(
    cluster: &Cluster<'_>,
    how: Follow,
    scope: Scope,
) -> Result<Exit, Failure> {
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c().fuse());
    // Asked once, so that from here on Ctrl-C comes here, and does not just end the program.
    let _ = futures::poll!(&mut interrupt);
    let mut facts = tokio::select! {
        facts = Facts::observe_some(cluster, scope) => facts?,
        _ = &mut interrupt => return Ok(interrupted(cluster)),
    };
    let mut changes = watch_all(cluster, &facts);
    let mut view = View::new(cluster, how);
    let deadline = how.timeout.map(|timeout| Instant::now() + timeout.0);
    let skips = how.goal
        == Some(Goal::Restored {
            skip_unreachable: true,
        });
    let mut skipped = Skipped::default();
    loop {
        let now = Timestamp::now();
        let status = Status::of(&facts, now);
        if !facts.installed
            && let Some((message, hint)) = advice(&facts, &status)
        {
            return Err(Failure::no(message, hint));
        }
        view.show(&facts, &status, now);
        if skips {
            skipped.skip(cluster, &facts, &status).await?;
        }
        if view.is_closed() {
            return Ok(Exit::Done);
        }
        match how.goal.map(|goal| verdict(&facts, goal, &status)) {
            Some(Verdict::Done) => {
                view.end(&status);
                skipped.report(cluster.printer());
                return Ok(Exit::Done);
            }
            Some(Verdict::Stuck { reason, hint }) => {
                view.end(&status);
                return Err(Failure::no(reason, hint));
            }
            Some(Verdict::Going) | None => {}
        }
        tokio::select! {
            change = changes.next() => {
                if let Some(change) = change {
                    change?(&mut facts);
                }
                tokio::time::sleep(REDRAW_AFTER).await;
                while let Some(Some(change)) = changes.next().now_or_never() {
                    change?(&mut facts);
                }
            }
            () = tokio::time::sleep(TICK) => {}
            _ = &mut interrupt => {
                return Ok(if how.goal.is_some() || !status.ready {
                    interrupted(cluster)
                } else {
                    Exit::Interrupted
                });
            }
            () = until(deadline) => {
                view.end(&status);
                return Err(timed_out(cluster, &facts, &status, how.timeout).await?);
            }
        }
    }
}

fn interrupted(cluster: &Cluster<'_>) -> Exit {
    let printer = cluster.printer();
    printer.note("the rollout goes on; look again with `kubectl globalps status --watch`");
    Exit::Interrupted
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn timed_out(
    cluster: &Cluster<'_>,
    facts: &Facts,
    status: &Status,
    timeout: Option<Span>,
) -> Result<Failure, Failure> {
    let waited = timeout.map_or(String::new(), |timeout| format!(" within {timeout}"));
    let (state, hint) = advice(facts, status).unwrap_or((
        table::headline(status),
        "look again with `kubectl globalps status --watch`",
    ));
    let (state, hint) = match look(cluster).await?.first() {
        Some(trouble) if [FOLLOW, SYNCERS].contains(&hint) => (trouble.message(), trouble.hint()),
        _ => (state, hint.to_owned()),
    };
    Ok(Failure::no(format!("not done{waited}: {state}"), hint))
}

type Changes = BoxStream<'static, Result<Change, Failure>>;

/// Watches what this user may see.
fn watch_all(cluster: &Cluster<'_>, facts: &Facts) -> futures::stream::SelectAll<Changes> {
    let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    let secret = |name: &str| {
        watch(cluster.api::<PartialObjectMeta<Secret>>(), named(name))
            .default_backoff()
            .boxed()
    };
    let mut streams: Vec<Changes> = vec![
        changes(
            watch(
                cluster.api::<GlobalPullSecret>(),
                named(names::GLOBAL_SECRET),
            )
            .default_backoff()
            .boxed(),
            |facts, event| facts.global.apply(event, |object| object),
            "watch the GlobalPullSecret",
        ),
        changes(
            watch(cluster.api::<NodePullSecret>(), watcher::Config::default())
                .default_backoff()
                .boxed(),
            |facts, event| {
                facts.node_secrets.apply(event, |mut object| {
                    object.metadata.managed_fields = None;
                    object
                });
            },
            "watch the NodePullSecrets",
        ),
    ];
    if facts.nodes.is_some() {
        streams.push(changes(
            watch(
                Api::<Node>::all(cluster.client.clone()),
                watcher::Config {
                    label_selector: facts.scope.selector.clone(),
                    ..watcher::Config::default()
                },
            )
            .default_backoff()
            .boxed(),
            |facts, event| {
                facts
                    .nodes
                    .get_or_insert_default()
                    .apply(event, |node| NodeFacts::of(&node));
            },
            "watch the Nodes",
        ));
    }
    if facts.additional_secret.is_some() {
        streams.push(changes(
            secret(names::ADDITIONAL_SECRET),
            |facts, event| {
                facts
                    .additional_secret
                    .get_or_insert_default()
                    .apply(event, version_of);
            },
            "watch Secret `additional-pull-secret`",
        ));
    }
    if facts.global_secret.is_some() {
        streams.push(changes(
            secret(names::GLOBAL_SECRET),
            |facts, event| {
                facts
                    .global_secret
                    .get_or_insert_default()
                    .apply(event, version_of);
            },
            "watch Secret `global-pull-secret`",
        ));
    }
    select_all(streams)
}

/// A watch that breaks comes back by itself, so its errors are no news, but for those that stay.
fn changes<K: Send + 'static>(
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    apply: fn(&mut Facts, Event<K>),
    doing: &'static str,
) -> Changes {
    events
        .filter_map(move |event| async move {
            match event {
                Ok(event) => {
                    let change: Change = Box::new(move |facts| apply(facts, event));
                    Some(Ok(change))
                }
                Err(
                    watcher::Error::InitialListFailed(error)
                    | watcher::Error::WatchStartFailed(error)
                    | watcher::Error::WatchFailed(error),
                ) => {
                    let failure = Failure::from_kube(doing, &error);
                    [401, 403, 404]
                        .iter()
                        .any(|code| failure.is(*code))
                        .then_some(Err(failure))
                }
                Err(watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion) => None,
            }
        })
        .boxed()
}

/// Whether the view shows this advice. A wait ends with it, unless the wait could last for ever.
fn is_news(goal: Option<Goal>, hint: &str) -> bool {
    match goal {
        None => hint != FOLLOW,
        Some(Goal::Restored {
            skip_unreachable: false,
        }) => hint == SKIP,
        Some(_) => false,
    }
}

/// A table that redraws itself on a terminal, and lines for what changed elsewhere.
struct View<'a> {
    frame: Option<Frame<'a>>,
    cluster: &'a Cluster<'a>,
    stream: Stream,
    shown: Vec<Row>,
    /// `None`: nobody waits for an end, whose error would name the reason.
    goal: Option<Goal>,
    /// The hint that a wait may last for ever was printed.
    has_hinted: bool,
}

impl<'a> View<'a> {
    fn new(cluster: &'a Cluster<'a>, how: Follow) -> Self {
        let stream = how.stream;
        Self {
            goal: how.goal,
            has_hinted: false,
            frame: is_terminal(stream).then(|| Frame::new(cluster.printer(), stream)),
            cluster,
            stream,
            shown: Vec::new(),
        }
    }

    fn show(&mut self, facts: &Facts, status: &Status, now: Timestamp) {
        let advice = advice(facts, status).filter(|(_, hint)| is_news(self.goal, hint));
        if let Some(frame) = &mut self.frame {
            let (height, width) = terminal_size(self.stream).unzip();
            let layout = Layout {
                width,
                height,
                color: self.cluster.printer().has_color(self.stream),
                live: true,
                ..Layout::default()
            };
            frame.draw(&table::render(status, now, layout, advice.as_ref()));
        } else {
            for line in table::changes(&self.shown, &status.nodes) {
                self.write(&line);
            }
            if let Some((message, hint)) = advice.filter(|_| self.goal.is_some())
                && !std::mem::replace(&mut self.has_hinted, true)
            {
                self.write(&format!("{message}\nhint: {hint}"));
            }
            self.shown.clone_from(&status.nodes);
        }
    }

    /// The last line, where the table does not say it already.
    fn end(&self, status: &Status) {
        if self.frame.is_some() {
            return;
        }
        if !status.nodes.is_empty() {
            self.write(&table::headline(status));
        }
        for line in table::deliveries(status) {
            self.write(&line);
        }
    }

    fn write(&self, line: &str) {
        self.cluster
            .printer()
            .write(self.stream, &format!("{line}\n"));
    }

    fn is_closed(&self) -> bool {
        self.stream == Stream::Out && self.cluster.printer().is_closed()
    }
}
