//! Following a rollout to nodes.

use globalps_core::names;
use jiff::Timestamp;

use super::live::{Changes, Follow, changes};
use super::skipped::Skipped;
use super::{Members, View};
use crate::cluster::facts::{NodeFilter, watch_global, watch_secret};
use crate::cluster::syncers::look;
use crate::cluster::{Cluster, Facts, NOT_INSTALLED, Program};
use crate::error::{Exit, Failure, Result};
use crate::terminal::Layout;
use crate::terminal::layout::nodes;
use crate::view::members::Advice;
use crate::view::status::{
    About, FOLLOW, NodesGoal, Row, SKIP, SYNCERS, Status, advice, is_stale, verdict,
};
use crate::view::table;

/// Follows all nodes.
pub(crate) async fn follow(cluster: &Cluster<'_>, how: Follow<NodesGoal>) -> Result<Exit> {
    follow_some(cluster, how, NodeFilter::default()).await
}

/// Follows some nodes.
pub(crate) async fn follow_some(
    cluster: &Cluster<'_>,
    how: Follow<NodesGoal>,
    filter: NodeFilter,
) -> Result<Exit> {
    let nodes = Nodes {
        cluster,
        filter,
        goal: how.goal,
        shown: Vec::new(),
        has_hinted: false,
        to_restore: 0,
        skipped: Skipped::default(),
    };
    super::follow(cluster, nodes, how).await
}

struct Nodes<'a> {
    cluster: &'a Cluster<'a>,
    filter: NodeFilter,
    /// `None`: nobody waits for an end, whose error would name the reason.
    goal: Option<NodesGoal>,
    shown: Vec<Row>,
    /// The advice about a wait without an end was printed.
    has_hinted: bool,
    /// Nodes that were to be restored: when all are, none of their objects is left.
    to_restore: u32,
    /// Those that the restoration ends without.
    skipped: Skipped,
}

impl<'a> Members<'a> for Nodes<'a> {
    type Cached = Facts;
    type Hint = &'static str;

    const PROGRAM: Program = Program::Controller;
    const CONTINUES: &'static str =
        "the rollout continues; follow it with `kubectl globalps status --watch`";

    async fn look(&self) -> Result<Option<Facts>> {
        let facts = Facts::observe_some(self.cluster, self.filter.clone()).await?;
        if !facts.installed {
            return Err(Failure::no(NOT_INSTALLED.0, NOT_INSTALLED.1));
        }
        Ok(Some(facts))
    }

    /// What this user may see.
    fn watch(&self, facts: &Facts) -> Vec<Changes<'a, Facts>> {
        let cluster = self.cluster;
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
            let doing = "watch the merged pull secret";
            let secret = watch_secret(cluster, facts.record_secret(), doing);
            all.push(changes(secret, |facts, update| {
                facts.global_secret.get_or_insert_default().update(update);
            }));
        }
        all
    }

    fn view(
        &mut self,
        facts: &Facts,
        now: Timestamp,
        layout: Option<Layout>,
    ) -> View<&'static str> {
        let status = self.status(facts, now);
        let advice = advice(facts, &status).filter(|(_, hint)| self.is_news(hint));
        let text = match (layout, self.restored(&status)) {
            (Some(_), Some(restored)) => vec![restored + "\n"],
            (Some(layout), None) => vec![table::render(&status, now, layout, advice.as_ref())],
            (None, _) => self.changes(&status, advice),
        };
        View {
            text,
            verdict: self.goal.map(|goal| verdict(facts, goal, &status)),
            is_ready: status.ready,
            is_stale: is_stale(facts),
        }
    }

    async fn act(&mut self, facts: &Facts, now: Timestamp) -> Result<()> {
        let skips = self.goal
            == Some(NodesGoal::Restored {
                skip_unreachable: true,
            });
        if !skips {
            return Ok(());
        }
        let status = self.status(facts, now);
        match self.skipped.skip(self.cluster, facts, &status).await {
            // The next look tries it again.
            Err(failure) if failure.may_pass() => Ok(()),
            skipped => skipped,
        }
    }

    fn last(&mut self, facts: &Facts, now: Timestamp) -> Vec<String> {
        let status = self.status(facts, now);
        let headline = (!status.nodes.is_empty()).then(|| table::headline(&status));
        let first = self.restored(&status).or(headline).into_iter();
        first.chain(table::deliveries(&status)).collect()
    }

    async fn state(&mut self, facts: &Facts, now: Timestamp) -> Result<Advice> {
        let status = self.status(facts, now);
        let advice = advice(facts, &status);
        let (state, hint) = advice.unwrap_or_else(|| (table::headline(&status), FOLLOW));
        Ok(match look(self.cluster).await?.first() {
            Some(error) if [FOLLOW, SYNCERS].contains(&hint) => (error.message(), error.hint()),
            _ => (state, hint.to_owned()),
        })
    }

    fn report(&self) {
        self.skipped.report(self.cluster.printer());
    }
}

impl Nodes<'_> {
    fn status(&mut self, facts: &Facts, now: Timestamp) -> Status {
        let mut status = Status::of(facts, now);
        self.to_restore = self.to_restore.max(status.counts.total);
        if self.restores() && status.about == About::Restoration {
            status.gone = self.to_restore - status.counts.total;
        }
        if self.goal.is_some() && status.is_stale() {
            status.about = About::Awaited;
        }
        status
    }

    fn restores(&self) -> bool {
        matches!(self.goal, Some(NodesGoal::Restored { .. }))
    }

    /// Whether the view shows this advice. A wait reports it at the end, or at once if it has no time limit.
    fn is_news(&self, hint: &str) -> bool {
        match self.goal {
            None => hint != FOLLOW,
            Some(NodesGoal::Restored {
                skip_unreachable: false,
            }) => hint == SKIP,
            Some(_) => false,
        }
    }

    fn changes(&mut self, status: &Status, advice: Option<(String, &'static str)>) -> Vec<String> {
        let mut lines = table::changes(&self.shown, &status.nodes, status.revision);
        if let Some((message, hint)) = advice.filter(|_| self.goal.is_some())
            && !std::mem::replace(&mut self.has_hinted, true)
        {
            lines.push(format!("{message}\nhint: {hint}"));
        }
        self.shown.clone_from(&status.nodes);
        lines
    }

    /// The last line of a restoration that has left nothing behind.
    fn restored(&self, status: &Status) -> Option<String> {
        if !self.restores() || status.counts.total > 0 {
            return None;
        }
        let restored = self.to_restore.saturating_sub(self.skipped.number());
        Some(match restored {
            0 => "no node is left to restore".to_owned(),
            number => format!("{} restored", nodes(number)),
        })
    }
}
