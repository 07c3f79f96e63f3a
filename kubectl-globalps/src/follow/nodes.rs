//! Following a rollout: watches keep the facts up to date, a table or lines show them.

use globalps_core::names;
use jiff::Timestamp;

use super::live::{Changes, Follow, Interrupt, Pauses, Screen, Woken, changes, first};
use super::outage;
use super::running::Running;
use super::skipped::Skipped;
use crate::cluster::facts::{Scope, watch_global, watch_secret};
use crate::cluster::syncers::look;
use crate::cluster::{Cluster, Facts, Program};
use crate::error::{Exit, Failure, Result};
use crate::terminal::layout::nodes;
use crate::view::status::{
    About, FOLLOW, Goal, Row, SKIP, SYNCERS, Status, Verdict, advice, is_stale, verdict,
};
use crate::view::table;

/// Follows until the goal is reached (`Done`), or until Ctrl-C. That the goal will not be reached, or was not in time,
/// is a [`Failure`] that says no.
pub(crate) async fn follow(cluster: &Cluster<'_>, how: Follow<Goal>) -> Result<Exit> {
    follow_some(cluster, how, Scope::default()).await
}

/// As [`follow`], of some nodes.
pub(crate) async fn follow_some(
    cluster: &Cluster<'_>,
    how: Follow<Goal>,
    scope: Scope,
) -> Result<Exit> {
    let mut interrupt = Interrupt::catch();
    let deadline = how.deadline();
    let mut view = View::new(cluster, how);
    let look = async || Facts::observe_some(cluster, scope.clone()).await;
    let observed = first(&mut view.screen, &mut interrupt, &how, deadline, look).await?;
    let Some(mut facts) = observed else {
        return Ok(interrupted(cluster));
    };
    let mut pauses = Pauses::new(watch_all(cluster, &facts), interrupt, deadline);
    let skips = how.goal
        == Some(Goal::Restored {
            skip_unreachable: true,
        });
    let mut skipped = Skipped::default();
    let mut controller = Running::of(Program::Controller);
    loop {
        let now = cluster.now();
        let mut status = Status::of(&facts, now);
        status.gone = view.gone(&status);
        if how.goal.is_some() && status.is_stale() {
            status.about = About::Awaited;
        }
        if !facts.installed
            && let Some((message, hint)) = advice(&facts, &status)
        {
            return Err(Failure::no(message, hint));
        }
        let outage = pauses.outage(Timestamp::now());
        view.screen.outage(outage.clone());
        view.show(&facts, &status, now);
        if skips && outage.is_none() {
            match skipped.skip(cluster, &facts, &status).await {
                // The next look tries it again.
                Err(failure) if failure.may_pass() => {}
                skipped => skipped?,
            }
            view.skipped = skipped.number();
        }
        if view.screen.is_closed() {
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
            Some(Verdict::Going) if outage.is_none() => {
                if let Err(stopped) = controller.check(cluster, is_stale(&facts), now).await {
                    view.end(&status);
                    return Err(stopped);
                }
            }
            Some(Verdict::Going) | None => {}
        }
        match pauses.next(&mut facts).await? {
            Woken::Again => {}
            Woken::Interrupted if how.goal.is_some() || !status.ready => {
                return Ok(interrupted(cluster));
            }
            Woken::Interrupted => return Ok(Exit::Interrupted),
            Woken::TimedOut => {
                view.end(&status);
                if let Some(outage) = outage {
                    return Err(outage::timed_out(&how.within(), &outage));
                }
                return Err(timed_out(cluster, &facts, &status, &how.within()).await?);
            }
        }
    }
}

fn interrupted(cluster: &Cluster<'_>) -> Exit {
    let printer = cluster.printer();
    printer.note("the rollout continues; follow it with `kubectl globalps status --watch`");
    Exit::Interrupted
}

async fn timed_out(
    cluster: &Cluster<'_>,
    facts: &Facts,
    status: &Status,
    within: &str,
) -> Result<Failure> {
    let (state, hint) = advice(facts, status).unwrap_or((
        table::headline(status),
        "follow it with `kubectl globalps status --watch`",
    ));
    let (state, hint) = match look(cluster).await?.first() {
        Some(error) if [FOLLOW, SYNCERS].contains(&hint) => (error.message(), error.hint()),
        _ => (state, hint.to_owned()),
    };
    Ok(Failure::no(format!("not done{within}: {state}"), hint))
}

/// Watches what this user may see.
fn watch_all<'a>(cluster: &'a Cluster<'a>, facts: &Facts) -> Vec<Changes<'a, Facts>> {
    let mut all: Vec<Changes<'a, Facts>> = vec![
        changes(watch_global(cluster), |facts, update| {
            facts.global.update(update);
        }),
        changes(facts.watch_node_secrets(cluster), |facts, update| {
            facts.node_secrets.update(update);
        }),
    ];
    if let Some(nodes) = facts.watch_nodes(cluster) {
        all.push(changes(nodes, |facts, update| {
            facts.nodes.get_or_insert_default().update(update);
        }));
    }
    if facts.additional_secret.is_some() {
        let doing = "watch Secret `additional-pull-secret`";
        let secret = watch_secret(cluster, names::ADDITIONAL_SECRET, doing);
        all.push(changes(secret, |facts, update| {
            facts
                .additional_secret
                .get_or_insert_default()
                .update(update);
        }));
    }
    if facts.global_secret.is_some() {
        let doing = "watch Secret `global-pull-secret`";
        let secret = watch_secret(cluster, names::GLOBAL_SECRET, doing);
        all.push(changes(secret, |facts, update| {
            facts.global_secret.get_or_insert_default().update(update);
        }));
    }
    all
}

/// Whether the view shows this advice. A wait reports it at the end, or at once if it has no time limit.
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
    screen: Screen<'a>,
    shown: Vec<Row>,
    /// `None`: nobody waits for an end, whose error would name the reason.
    goal: Option<Goal>,
    /// The advice about a wait without an end was printed.
    has_hinted: bool,
    /// Nodes that were to be restored: when all are, none of their objects is left.
    to_restore: u32,
    /// Those that the restoration ends without.
    skipped: u32,
}

impl<'a> View<'a> {
    fn new(cluster: &Cluster<'a>, how: Follow<Goal>) -> Self {
        Self {
            screen: Screen::new(cluster.printer(), how.stream),
            shown: Vec::new(),
            goal: how.goal,
            has_hinted: false,
            to_restore: 0,
            skipped: 0,
        }
    }

    fn show(&mut self, facts: &Facts, status: &Status, now: Timestamp) {
        let advice = advice(facts, status).filter(|(_, hint)| is_news(self.goal, hint));
        if self.screen.is_terminal() {
            let restored = self.restored(status);
            let screen = &mut self.screen;
            screen.draw(|layout| match restored {
                Some(restored) => restored + "\n",
                None => table::render(status, now, layout, advice.as_ref()),
            });
            return;
        }
        for line in table::changes(&self.shown, &status.nodes, status.revision) {
            self.screen.line(&line);
        }
        if let Some((message, hint)) = advice.filter(|_| self.goal.is_some())
            && !std::mem::replace(&mut self.has_hinted, true)
        {
            self.screen.line(&format!("{message}\nhint: {hint}"));
        }
        self.shown.clone_from(&status.nodes);
    }

    fn restores(&self) -> bool {
        matches!(self.goal, Some(Goal::Restored { .. }))
    }

    /// Nodes that were to be restored, and have no row any more.
    fn gone(&mut self, status: &Status) -> u32 {
        self.to_restore = self.to_restore.max(status.counts.total);
        if self.restores() && status.about == About::Restoration {
            self.to_restore - status.counts.total
        } else {
            0
        }
    }

    /// The last line of a restoration that has left nothing behind.
    fn restored(&self, status: &Status) -> Option<String> {
        if !self.restores() || status.counts.total > 0 {
            return None;
        }
        let restored = self.to_restore.saturating_sub(self.skipped);
        Some(match restored {
            0 => "no node is left to restore".to_owned(),
            number => format!("{} restored", nodes(number)),
        })
    }

    /// The last line, where the table does not say it already.
    fn end(&self, status: &Status) {
        if self.screen.is_terminal() {
            return;
        }
        if let Some(restored) = self.restored(status) {
            self.screen.line(&restored);
        } else if !status.nodes.is_empty() {
            self.screen.line(&table::headline(status));
        }
        for line in table::deliveries(status) {
            self.screen.line(&line);
        }
    }
}
