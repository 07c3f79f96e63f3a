//! Following a rollout to clusters: watches keep the facts up to date, a table or lines show them.

use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use jiff::Timestamp;

use super::live::{Changes, Follow, Interrupt, Pauses, Screen, Woken, changes, first};
use super::outage;
use super::running::Running;
use crate::cluster::fleet::{Facts, Scope, watch};
use crate::cluster::{Cluster, Program};
use crate::error::{Exit, Failure, Result};
use crate::view::fleet::verdict::{Advice, Goal, Verdict, advice, command, is_stale, verdict};
use crate::view::fleet::{FleetStatus, is_ready, table};

/// Follows until the goal is reached (`Done`), or until Ctrl-C. A goal that can't be reached, or not in time, is a
/// [`Failure`] that says no.
pub(crate) async fn follow(cluster: &Cluster<'_>, how: Follow<Goal>, scope: Scope) -> Result<Exit> {
    let mut interrupt = Interrupt::catch();
    let deadline = how.deadline();
    let mut view = View::new(cluster, how, scope.clone());
    let look = async || Facts::observe(cluster, scope.clone()).await;
    let mut facts = match first(&mut view.screen, &mut interrupt, &how, deadline, look).await {
        Err(failure) if failure.is(404) && how.goal == Some(Goal::Removed) => {
            return Ok(Exit::Done);
        }
        facts => match facts? {
            Some(facts) => facts,
            None => return Ok(Exit::Interrupted),
        },
    };
    let mut pauses = Pauses::new(watch_all(cluster, &facts), interrupt, deadline);
    let mut hub = Running::of(Program::Hub);
    loop {
        let all = facts.statuses();
        let now = cluster.now();
        let outage = pauses.outage(Timestamp::now());
        view.screen.outage(outage.clone());
        view.show(&all, now);
        if view.screen.is_closed() {
            return Ok(Exit::Done);
        }
        if let Some(goal) = how.goal {
            gone(&facts, goal, cluster)?;
            match verdict(&all, goal, now) {
                Verdict::Done => {
                    view.end(&all);
                    return Ok(Exit::Done);
                }
                Verdict::Stuck((message, hint)) => {
                    view.end(&all);
                    return Err(Failure::no(message, hint));
                }
                Verdict::Going if outage.is_none() => {
                    if let Err(stopped) = hub.check(cluster, is_stale(&all, goal), now).await {
                        view.end(&all);
                        return Err(stopped);
                    }
                }
                Verdict::Going => {}
            }
        }
        match pauses.next(&mut facts).await? {
            Woken::Again => {}
            Woken::Interrupted => {
                if how.goal.is_some() || !is_ready(&all) {
                    cluster.printer().note("the hub continues the rollout");
                }
                return Ok(Exit::Interrupted);
            }
            Woken::TimedOut => {
                view.end(&all);
                return Err(match outage {
                    Some(outage) => outage::timed_out(&how.within(), &outage),
                    None => timed_out(&all, &how.within()),
                });
            }
        }
    }
}

/// A `FleetPullSecret` that is deleted during a wait for its rollout.
fn gone(facts: &Facts, goal: Goal, cluster: &Cluster<'_>) -> Result<()> {
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

fn timed_out(all: &[FleetStatus], within: &str) -> Failure {
    let open = all.iter().find(|status| !status.fleet.ready);
    let (state, hint) = open.and_then(advice).unwrap_or_else(|| {
        let title = open.map_or("", |status| &status.fleet.name);
        let state = open.map_or_else(String::new, table::headline);
        (state, format!("see {}", command("status", title)))
    });
    Failure::no(format!("not done{within}: {state}"), hint)
}

fn watch_all<'a>(cluster: &'a Cluster<'a>, facts: &Facts) -> [Changes<'a, Facts>; 2] {
    let scope = &facts.scope;
    let fleets = watch::<FleetPullSecret>(
        cluster,
        "watch the FleetPullSecrets",
        scope.all_namespaces,
        scope.fleet.clone(),
    );
    let objects =
        watch::<ClusterPullSecret>(cluster, "watch the ClusterPullSecrets", facts.is_wide, None);
    [
        changes(fleets, |facts, update| facts.fleets.update(update)),
        changes(objects, |facts, update| facts.objects.update(update)),
    ]
}

/// A table that redraws itself on a terminal, and lines for what changed elsewhere.
struct View<'a> {
    screen: Screen<'a>,
    shown: Vec<FleetStatus>,
    scope: Scope,
    /// Nobody waits for an end, whose error would name the reason.
    is_watch: bool,
}

impl<'a> View<'a> {
    fn new(cluster: &Cluster<'a>, how: Follow<Goal>, scope: Scope) -> Self {
        Self {
            screen: Screen::new(cluster.printer(), how.stream),
            shown: Vec::new(),
            scope,
            is_watch: how.goal.is_none(),
        }
    }

    fn show(&mut self, all: &[FleetStatus], now: Timestamp) {
        if self.screen.is_terminal() {
            let advice = all.first().and_then(news).filter(|_| self.is_watch);
            let scope = &self.scope;
            let screen = &mut self.screen;
            screen.draw(|layout| table::text(all, scope, now, layout, advice.as_ref()));
            return;
        }
        for line in table::changes(&self.shown, all) {
            self.screen.line(&line);
        }
        self.shown = all.to_vec();
    }

    /// The last line, where the table does not say it already.
    fn end(&self, all: &[FleetStatus]) {
        if !self.screen.is_terminal() {
            for status in all {
                self.screen.line(&table::headline(status));
            }
        }
    }
}

/// Advice that is more than how to follow the rollout.
fn news(status: &FleetStatus) -> Option<Advice> {
    advice(status).filter(|(_, hint)| !hint.starts_with("follow it"))
}
