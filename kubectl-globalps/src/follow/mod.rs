//! Following a rollout: watches change the facts, and a table or lines show them, until a goal, a deadline or Ctrl-C.

pub(crate) mod clusters;
pub(crate) mod live;
pub(crate) mod nodes;
mod outage;
pub(crate) mod running;
pub(crate) mod skipped;

use jiff::Timestamp;

use crate::cluster::{Cluster, Program};
use crate::error::{Exit, Failure, Result};
use crate::terminal::Layout;
use crate::view::members::{Advice, Verdict};
use live::{Changes, Follow, Interrupt, Pauses, Screen, Woken, first};
use running::Running;

/// The members of a rollout: the nodes of a cluster, or the clusters of a hub.
trait Members<'a> {
    /// What the watches keep up to date.
    type Cached: 'static;
    type Hint: Into<String>;

    /// Without it, nothing changes.
    const PROGRAM: Program;
    /// What Ctrl-C does not end.
    const CONTINUES: &'static str;

    /// `None`: the goal is reached already.
    async fn look(&self) -> Result<Option<Self::Cached>>;

    fn watch(&self, facts: &Self::Cached) -> Vec<Changes<'a, Self::Cached>>;

    /// `layout`: of the terminal; `None`: what changed since the last call is shown, line by line.
    fn view(
        &mut self,
        facts: &Self::Cached,
        now: Timestamp,
        layout: Option<Layout>,
    ) -> View<Self::Hint>;

    /// What the goal needs from this program, where the cluster can be reached.
    async fn act(&mut self, _: &Self::Cached, _: Timestamp) -> Result<()> {
        Ok(())
    }

    /// The last lines, which the table on a terminal has already.
    fn last(&mut self, facts: &Self::Cached, now: Timestamp) -> Vec<String>;

    /// How far it is, and what to do.
    async fn state(&mut self, facts: &Self::Cached, now: Timestamp) -> Result<Advice>;

    /// Of a wait that reached its goal.
    fn report(&self) {}
}

/// What a look at the facts finds.
struct View<H> {
    /// The table, or lines.
    text: Vec<String>,
    /// `None`: nobody waits for an end.
    verdict: Option<Verdict<H>>,
    is_ready: bool,
    /// The program has not reported on what is in the cluster now.
    is_stale: bool,
}

/// Follows until the goal is reached (`Done`), or until Ctrl-C. A goal that can't be reached, or not in time, is a
/// [`Failure`] that says no.
async fn follow<'a, T: Members<'a>, G>(
    cluster: &'a Cluster<'a>,
    mut members: T,
    how: Follow<G>,
) -> Result<Exit> {
    let printer = cluster.printer();
    let mut interrupt = Interrupt::catch();
    let deadline = how.deadline();
    let mut screen = Screen::new(printer, how.stream);
    let look = async || members.look().await;
    let mut facts = match first(&mut screen, &mut interrupt, &how, deadline, look).await? {
        Some(Some(facts)) => facts,
        Some(None) => return Ok(Exit::Done),
        None => {
            printer.note(T::CONTINUES);
            return Ok(Exit::Interrupted);
        }
    };
    let mut pauses = Pauses::new(members.watch(&facts), interrupt, deadline);
    let mut program = Running::of(T::PROGRAM);
    loop {
        let now = cluster.now();
        let outage = pauses.outage(Timestamp::now());
        screen.outage(outage.clone());
        let view = members.view(&facts, now, screen.layout());
        screen.show(&view.text);
        if outage.is_none() {
            members.act(&facts, now).await?;
        }
        if screen.is_closed() {
            return Ok(Exit::Done);
        }
        let is_wait = view.verdict.is_some();
        let ended = match view.verdict {
            Some(Verdict::Done) => Some(Ok(Exit::Done)),
            Some(Verdict::Stuck { reason, hint }) => Some(Err(Failure::no(reason, hint))),
            Some(Verdict::Going) if outage.is_none() => {
                let checked = program.check(cluster, view.is_stale, now).await;
                checked.err().map(Err)
            }
            Some(Verdict::Going) | None => None,
        };
        if let Some(ended) = ended {
            screen.end(&members.last(&facts, now));
            if ended.is_ok() {
                members.report();
            }
            return ended;
        }
        match pauses.next(&mut facts).await? {
            Woken::Again => {}
            Woken::Interrupted => {
                if is_wait || !view.is_ready {
                    printer.note(T::CONTINUES);
                }
                return Ok(Exit::Interrupted);
            }
            Woken::TimedOut => {
                screen.end(&members.last(&facts, now));
                let within = how.within();
                if let Some(outage) = outage {
                    return Err(outage::timed_out(&within, &outage));
                }
                let (state, hint) = members.state(&facts, now).await?;
                return Err(Failure::no(format!("not done{within}: {state}"), hint));
            }
        }
    }
}
