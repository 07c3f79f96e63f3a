//! What following a rollout has in common, of nodes and of clusters: watches change the facts, and a view shows them.

use std::fmt::Debug;
use std::time::Duration;

use futures::future::{BoxFuture, Fuse, FutureExt as _};
use futures::stream::{BoxStream, SelectAll, StreamExt as _, select_all};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::cli::Span;
use crate::error::Failure;
use crate::terminal::layout::Layout;
use crate::terminal::printer::{Frame, Printer, Stream, is_terminal, terminal_size};

/// Changes that arrive together are shown together.
const REDRAW_AFTER: Duration = Duration::from_millis(80);
/// Ages grow by themselves.
const TICK: Duration = Duration::from_secs(1);

/// Until when, and where to show it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follow<G> {
    /// `None`: never done, until Ctrl-C.
    pub goal: Option<G>,
    pub timeout: Option<Span>,
    pub stream: Stream,
}

impl<G> Follow<G> {
    /// A table that is kept up to date until Ctrl-C.
    pub(crate) fn watch() -> Self {
        Self {
            goal: None,
            timeout: None,
            stream: Stream::Out,
        }
    }

    pub(crate) fn until(goal: G, timeout: Span, stream: Stream) -> Self {
        Self {
            goal: Some(goal),
            timeout: Some(timeout),
            stream,
        }
    }

    /// ` within 10 min`, or nothing.
    pub(crate) fn within(&self) -> String {
        let timeout = self.timeout;
        timeout.map_or(String::new(), |timeout| format!(" within {timeout}"))
    }
}

/// What one event of a watch does to the facts.
type Change<F> = Box<dyn FnOnce(&mut F) + Send>;
pub(crate) type Changes<F> = BoxStream<'static, Result<Change<F>, Failure>>;

/// The changes that a watch brings. One that breaks comes back by itself, so only errors that stay are reported.
pub(crate) fn changes<F: 'static, K>(
    api: Api<K>,
    config: watcher::Config,
    apply: fn(&mut F, Event<K>),
    doing: &'static str,
) -> Changes<F>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch(api, config)
        .default_backoff()
        .filter_map(move |event| async move {
            match event {
                Ok(event) => {
                    let change: Change<F> = Box::new(move |facts| apply(facts, event));
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

/// Ctrl-C, which no longer just ends the program.
pub(crate) struct Interrupt(Fuse<BoxFuture<'static, ()>>);

impl Interrupt {
    pub(crate) fn catch() -> Self {
        let mut signal = tokio::signal::ctrl_c().map(drop).boxed().fuse();
        // It is caught from the first poll on.
        let _ = (&mut signal).now_or_never();
        Self(signal)
    }

    /// `None`: Ctrl-C came first.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = &mut self.0 => None,
        }
    }
}

/// What ended a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The facts changed, or some time passed.
    Again,
    Interrupted,
    TimedOut,
}

/// The pauses between two looks at the facts.
pub(crate) struct Pauses<F> {
    changes: SelectAll<Changes<F>>,
    interrupt: Interrupt,
    deadline: Option<Instant>,
}

impl<F> Pauses<F> {
    pub(crate) fn new(
        changes: impl IntoIterator<Item = Changes<F>>,
        interrupt: Interrupt,
        timeout: Option<Span>,
    ) -> Self {
        Self {
            changes: select_all(changes),
            interrupt,
            deadline: timeout.map(|timeout| Instant::now() + timeout.0),
        }
    }

    pub(crate) async fn next(&mut self, facts: &mut F) -> Result<Woken, Failure> {
        tokio::select! {
            change = self.changes.next() => {
                if let Some(change) = change {
                    change?(facts);
                }
                tokio::time::sleep(REDRAW_AFTER).await;
                while let Some(Some(change)) = self.changes.next().now_or_never() {
                    change?(facts);
                }
                Ok(Woken::Again)
            }
            () = tokio::time::sleep(TICK) => Ok(Woken::Again),
            () = &mut self.interrupt.0 => Ok(Woken::Interrupted),
            () = until(self.deadline) => Ok(Woken::TimedOut),
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A table that redraws itself on a terminal, and lines elsewhere.
pub(crate) struct Screen<'a> {
    /// `None`: not on a terminal.
    frame: Option<Frame<'a>>,
    printer: &'a Printer,
    stream: Stream,
}

impl<'a> Screen<'a> {
    pub(crate) fn new(printer: &'a Printer, stream: Stream) -> Self {
        Self {
            frame: is_terminal(stream).then(|| Frame::new(printer, stream)),
            printer,
            stream,
        }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.frame.is_some()
    }

    /// On a terminal only.
    pub(crate) fn draw(&mut self, render: impl FnOnce(Layout) -> String) {
        let Some(frame) = &mut self.frame else {
            return;
        };
        let (height, width) = terminal_size(self.stream).unzip();
        frame.draw(&render(Layout {
            width,
            height,
            color: self.printer.has_color(self.stream),
            live: true,
            ..Layout::default()
        }));
    }

    pub(crate) fn line(&self, line: &str) {
        self.printer.line(self.stream, line);
    }

    /// Nobody reads it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.stream == Stream::Out && self.printer.is_closed()
    }
}
