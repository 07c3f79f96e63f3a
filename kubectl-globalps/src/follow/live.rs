//! What following a rollout has in common, of nodes and of clusters: watches change the facts, and a view shows them.

use std::time::Duration;

use futures::future::{BoxFuture, Fuse, FutureExt as _};
use futures::stream::{LocalBoxStream, SelectAll, StreamExt as _, select_all};
use globalps_runtime::list_watch::BACKOFF;
use jiff::Timestamp;
use tokio::time::Instant;

use super::outage::{self, Outage};
use crate::cli::Span;
use crate::cluster::facts::{Signal, Signals, Update};
use crate::error::Result;
use crate::terminal::{Frame, Layout, Printer, Stream, is_terminal, terminal_size};
use crate::view::members::fitting;

/// Changes that arrive together are shown together.
const REDRAW_AFTER: Duration = Duration::from_millis(80);
/// After an outage that was reported.
const BACK: &str = "the cluster can be reached again";
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

    /// `None`: never.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timeout.map(|timeout| Instant::now() + timeout.0)
    }

    /// ` within 10 min`, or nothing.
    pub(crate) fn within(&self) -> String {
        let timeout = self.timeout;
        timeout.map_or(String::new(), |timeout| format!(" within {timeout}"))
    }
}

/// What one event of a watch does to the facts.
type Change<F> = Box<dyn FnOnce(&mut F)>;
pub(crate) type Changes<'a, F> = LocalBoxStream<'a, Signal<Change<F>>>;

/// The changes that a watch brings.
pub(crate) fn changes<F: 'static, V: 'static>(
    signals: Signals<'_, V>,
    apply: fn(&mut F, Update<V>),
) -> Changes<'_, F> {
    let change = move |signal| match signal {
        Signal::Changed(update) => {
            let change: Change<F> = Box::new(move |facts| apply(facts, update));
            Signal::Changed(change)
        }
        Signal::Lost(failure) => Signal::Lost(failure),
    };
    signals.map(change).boxed_local()
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
pub(crate) struct Pauses<'a, F> {
    /// Each with a number.
    changes: SelectAll<LocalBoxStream<'a, (usize, Signal<Change<F>>)>>,
    interrupt: Interrupt,
    deadline: Option<Instant>,
    outage: Outage,
}

impl<'a, F: 'static> Pauses<'a, F> {
    pub(crate) fn new(
        changes: impl IntoIterator<Item = Changes<'a, F>>,
        interrupt: Interrupt,
        deadline: Option<Instant>,
    ) -> Self {
        let numbered = changes.into_iter().enumerate();
        let numbered =
            numbered.map(|(number, it)| it.map(move |signal| (number, signal)).boxed_local());
        Self {
            changes: select_all(numbered),
            interrupt,
            deadline,
            outage: Outage::default(),
        }
    }

    /// `Err`: a watch can't go on without a person.
    pub(crate) async fn next(&mut self, facts: &mut F) -> Result<Woken> {
        tokio::select! {
            signal = self.changes.next() => {
                if let Some(signal) = signal {
                    self.take(signal, facts)?;
                }
                tokio::time::sleep(REDRAW_AFTER).await;
                while let Some(Some(signal)) = self.changes.next().now_or_never() {
                    self.take(signal, facts)?;
                }
                Ok(Woken::Again)
            }
            () = tokio::time::sleep(TICK) => Ok(Woken::Again),
            () = &mut self.interrupt.0 => Ok(Woken::Interrupted),
            () = until(self.deadline) => Ok(Woken::TimedOut),
        }
    }

    fn take(&mut self, (number, signal): (usize, Signal<Change<F>>), facts: &mut F) -> Result<()> {
        match signal {
            Signal::Lost(failure) if failure.may_pass() => {
                self.outage.lost(number, failure, Timestamp::now());
            }
            Signal::Lost(failure) => return Err(failure),
            Signal::Changed(change) => {
                self.outage.reached(number);
                change(facts);
            }
        }
        Ok(())
    }

    /// Since when the cluster can't be reached, and why; `None`: it can.
    pub(crate) fn outage(&self, now: Timestamp) -> Option<String> {
        self.outage.notice(now)
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The facts before watches change them. A wait looks again while the cluster can't be reached, until its deadline, as its
/// watches do later. `None`: Ctrl-C came first.
pub(crate) async fn first<F, G>(
    screen: &mut Screen<'_>,
    interrupt: &mut Interrupt,
    how: &Follow<G>,
    deadline: Option<Instant>,
    look: impl AsyncFn() -> Result<F>,
) -> Result<Option<F>> {
    let mut outage = Outage::default();
    // Also of a look without an answer.
    let mut last = None;
    let (mut backoff, mut pause) = (BACKOFF, Duration::ZERO);
    loop {
        let again = async {
            tokio::time::sleep(pause).await;
            look().await
        };
        let found = tokio::select! {
            found = interrupt.or(again) => found,
            () = until(deadline) => {
                let notice = outage.notice(Timestamp::now());
                let reason = notice.or(last).unwrap_or_else(|| "the API server did not answer".to_owned());
                return Err(outage::timed_out(&how.within(), &reason));
            }
        };
        match found {
            Some(Err(failure)) if how.goal.is_some() && failure.may_pass() => {
                let now = Timestamp::now();
                last = Some(failure.message.clone());
                outage.lost(0, failure, now);
                pause = backoff.pause();
                screen.outage(outage.notice(now));
                screen.show(&[]);
            }
            found => {
                screen.outage(None);
                return found.transpose();
            }
        }
    }
}

/// A table that redraws itself on a terminal, and lines elsewhere.
pub(crate) struct Screen<'a> {
    /// `None`: not on a terminal.
    frame: Option<Frame<'a>>,
    printer: &'a Printer,
    stream: Stream,
    /// The cluster can't be reached.
    outage: Option<String>,
}

impl<'a> Screen<'a> {
    pub(crate) fn new(printer: &'a Printer, stream: Stream) -> Self {
        Self {
            frame: is_terminal(stream).then(|| Frame::new(printer, stream)),
            printer,
            stream,
            outage: None,
        }
    }

    /// The table shows it as long as it lasts; elsewhere its beginning and its end are a line each.
    pub(crate) fn outage(&mut self, outage: Option<String>) {
        if self.frame.is_none() {
            match (&self.outage, &outage) {
                (None, Some(outage)) => self.printer.note(outage),
                (Some(_), None) => self.printer.note(BACK),
                _ => {}
            }
        }
        self.outage = outage;
    }

    /// Of the terminal, without the lines that say that the cluster can't be reached; `None`: not on a terminal.
    pub(crate) fn layout(&self) -> Option<Layout> {
        self.frame.as_ref()?;
        let (height, width) = terminal_size(self.stream).unzip();
        let taken = u16::try_from(self.notice().len()).unwrap_or(u16::MAX);
        Some(Layout {
            width,
            height: height.map(|height| height.saturating_sub(taken)),
            color: self.printer.has_color(self.stream),
            live: true,
            ..Layout::default()
        })
    }

    /// Redraws the terminal, or prints lines.
    pub(crate) fn show(&mut self, text: &[String]) {
        let notice = self.notice().join("\n");
        let Some(frame) = &mut self.frame else {
            return self.lines(text);
        };
        let text = text.concat().trim_end_matches('\n').to_owned() + "\n" + &notice;
        frame.draw(text.trim_start_matches('\n'));
    }

    fn notice(&self) -> Vec<String> {
        let width = terminal_size(self.stream).map(|(_, width)| width.into());
        let notice = fitting(self.outage.as_deref().unwrap_or_default(), width);
        notice.into_iter().filter(|it| !it.is_empty()).collect()
    }

    fn lines(&self, lines: &[String]) {
        for line in lines {
            self.printer.line(self.stream, line);
        }
    }

    /// The last lines, which the table on a terminal has already.
    pub(crate) fn end(&self, lines: &[String]) {
        if self.frame.is_none() {
            self.lines(lines);
        }
    }

    /// Nobody reads it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.stream == Stream::Out && self.printer.is_closed()
    }
}
