//! Following a rollout to clusters: watches keep the facts up to date, a table or lines show them.

use std::time::Duration;

use futures::future::FutureExt as _;
use futures::stream::{BoxStream, SelectAll, StreamExt as _, select_all};
use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use jiff::Timestamp;
use kube::Resource;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use tokio::time::Instant;

use super::facts::{Facts, Scope, api, key};
use super::verdict::{Advice, Goal, Verdict, advice, command, verdict};
use super::{FleetStatus, is_ready, table};
use crate::cli::Span;
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::printer::{Frame, Stream, is_terminal, terminal_size};
use crate::table::Layout;

/// Changes that arrive together are shown together.
const REDRAW_AFTER: Duration = Duration::from_millis(80);
/// Ages grow by themselves.
const TICK: Duration = Duration::from_secs(1);

/// Until when, and where to show it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follow {
    /// `None`: until Ctrl-C.
    pub goal: Option<Goal>,
    pub timeout: Option<Span>,
    pub stream: Stream,
}

/// What one event of a watch does to the facts.
type Change = Box<dyn FnOnce(&mut Facts) + Send>;
type Changes = BoxStream<'static, Result<Change, Failure>>;

/// Follows until the goal is reached (`Done`), or until Ctrl-C. A goal that can't be reached, or not in time, is a
/// [`Failure`] that says no.
pub(crate) async fn follow(
    cluster: &Cluster<'_>,
    how: Follow,
    scope: Scope,
) -> Result<Exit, Failure> {
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c().fuse());
    // Polled once, so that from here on Ctrl-C comes here, and does not just end the program.
    let _ = futures::poll!(&mut interrupt);
    let observed = tokio::select! {
        facts = Facts::observe(cluster, scope) => facts,
        _ = &mut interrupt => return Ok(Exit::Interrupted),
    };
    let mut facts = match observed {
        Err(failure) if failure.is(404) && how.goal == Some(Goal::Removed) => {
            return Ok(Exit::Done);
        }
        facts => facts?,
    };
    let mut changes = watch_all(cluster, &facts);
    let mut view = View::new(cluster, how, facts.scope.clone());
    let deadline = how.timeout.map(|timeout| Instant::now() + timeout.0);
    loop {
        let all = facts.statuses();
        view.show(&all);
        if view.is_closed() {
            return Ok(Exit::Done);
        }
        if let Some(goal) = how.goal {
            gone(&facts, goal, cluster)?;
            match verdict(&all, goal, Timestamp::now()) {
                Verdict::Done => {
                    view.end(&all);
                    return Ok(Exit::Done);
                }
                Verdict::Stuck((message, hint)) => {
                    view.end(&all);
                    return Err(Failure::no(message, hint));
                }
                Verdict::Going => {}
            }
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
                if how.goal.is_some() || !is_ready(&all) {
                    cluster.printer().note("the hub goes on with the rollout");
                }
                return Ok(Exit::Interrupted);
            }
            () = until(deadline) => {
                view.end(&all);
                return Err(timed_out(&all, how.timeout));
            }
        }
    }
}

/// A `FleetPullSecret` that is deleted while somebody waits for its rollout.
fn gone(facts: &Facts, goal: Goal, cluster: &Cluster<'_>) -> Result<(), Failure> {
    match &facts.scope.fleet {
        Some(name) if goal == Goal::Synced && facts.fleets.is_empty() => Err(Failure::no(
            format!(
                "FleetPullSecret `{}/{name}` was deleted meanwhile",
                cluster.namespace
            ),
            "`kubectl globalps fleet status -A` shows the others",
        )),
        _ => Ok(()),
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn timed_out(all: &[FleetStatus], timeout: Option<Span>) -> Failure {
    let waited = timeout.map_or(String::new(), |timeout| format!(" within {timeout}"));
    let open = all.iter().find(|status| !status.fleet.ready);
    let (state, hint) = open.and_then(advice).unwrap_or_else(|| {
        let title = open.map_or("", |status| &status.fleet.name);
        let state = open.map_or_else(String::new, table::headline);
        (state, format!("see {}", command("status", title)))
    });
    Failure::no(format!("not done{waited}: {state}"), hint)
}

fn watch_all(cluster: &Cluster<'_>, facts: &Facts) -> SelectAll<Changes> {
    let scope = &facts.scope;
    let named = match &scope.fleet {
        Some(name) => watcher::Config::default().fields(&format!("metadata.name={name}")),
        None => watcher::Config::default(),
    };
    let fleets = watch(api::<FleetPullSecret>(cluster, scope.all_namespaces), named);
    let all = watcher::Config::default();
    let objects = watch(api::<ClusterPullSecret>(cluster, facts.is_wide), all);
    select_all([
        changes(
            fleets.default_backoff().boxed(),
            |facts, event| facts.fleets.apply_by(event, key, slim),
            "watch the FleetPullSecrets",
        ),
        changes(
            objects.default_backoff().boxed(),
            |facts, event| facts.objects.apply_by(event, key, slim),
            "watch the ClusterPullSecrets",
        ),
    ])
}

fn slim<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// A watch that breaks comes back by itself, so only errors that stay are reported.
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
                    let stays = [401, 403, 404].iter().any(|code| failure.is(*code));
                    stays.then_some(Err(failure))
                }
                Err(watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion) => None,
            }
        })
        .boxed()
}

/// A table that redraws itself on a terminal, and lines for what changed elsewhere.
struct View<'a> {
    frame: Option<Frame<'a>>,
    cluster: &'a Cluster<'a>,
    stream: Stream,
    shown: Vec<FleetStatus>,
    scope: Scope,
    /// Nobody waits for an end, whose error would name the reason.
    is_watch: bool,
}

impl<'a> View<'a> {
    fn new(cluster: &'a Cluster<'a>, how: Follow, scope: Scope) -> Self {
        let stream = how.stream;
        Self {
            frame: is_terminal(stream).then(|| Frame::new(cluster.printer(), stream)),
            cluster,
            stream,
            shown: Vec::new(),
            scope,
            is_watch: how.goal.is_none(),
        }
    }

    fn show(&mut self, all: &[FleetStatus]) {
        if let Some(frame) = &mut self.frame {
            let (height, width) = terminal_size(self.stream).unzip();
            let layout = Layout {
                width,
                height,
                color: self.cluster.printer().has_color(self.stream),
                live: true,
                ..Layout::default()
            };
            let advice = all.first().and_then(news).filter(|_| self.is_watch);
            let now = Timestamp::now();
            frame.draw(&text(all, &self.scope, now, layout, advice.as_ref()));
        } else {
            for line in table::changes(&self.shown, all) {
                self.write(&line);
            }
            self.shown = all.to_vec();
        }
    }

    /// The last line, where the table does not say it already.
    fn end(&self, all: &[FleetStatus]) {
        if self.frame.is_none() {
            for status in all {
                self.write(&table::headline(status));
            }
        }
    }

    fn write(&self, line: &str) {
        let printer = self.cluster.printer();
        printer.write(self.stream, &format!("{line}\n"));
    }

    fn is_closed(&self) -> bool {
        self.stream == Stream::Out && self.cluster.printer().is_closed()
    }
}

/// Advice that is more than how to follow the rollout.
fn news(status: &FleetStatus) -> Option<Advice> {
    advice(status).filter(|(_, hint)| !hint.starts_with("follow it"))
}

/// The clusters of the one that was named, else a line for each one.
pub(crate) fn text(
    all: &[FleetStatus],
    scope: &Scope,
    now: Timestamp,
    layout: Layout,
    advice: Option<&Advice>,
) -> String {
    match all {
        [status] if scope.fleet.is_some() => table::render(status, now, layout, advice),
        [] => "no FleetPullSecret\n".to_owned(),
        all => table::overview(all, now, layout, scope.all_namespaces) + "\n",
    }
}
