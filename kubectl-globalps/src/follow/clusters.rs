//! Following a rollout to clusters.

use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use jiff::Timestamp;

use super::live::{Changes, Follow, changes};
use super::{Members, View};
use crate::cluster::fleet::{FleetFacts, FleetFilter, watch};
use crate::cluster::{Cluster, Program};
use crate::error::{Exit, Result};
use crate::terminal::Layout;
use crate::view::fleet::verdict::{FleetGoal, advice, command, is_stale, verdict};
use crate::view::fleet::{FleetStatus, is_ready, table};
use crate::view::members::{Advice, Verdict};

pub(crate) async fn follow(
    cluster: &Cluster<'_>,
    how: Follow<FleetGoal>,
    filter: FleetFilter,
) -> Result<Exit> {
    let clusters = Clusters {
        cluster,
        filter,
        goal: how.goal,
        shown: Vec::new(),
    };
    super::follow(cluster, clusters, how).await
}

struct Clusters<'a> {
    cluster: &'a Cluster<'a>,
    filter: FleetFilter,
    /// `None`: nobody waits for an end, whose error would name the reason.
    goal: Option<FleetGoal>,
    shown: Vec<FleetStatus>,
}

impl<'a> Members<'a> for Clusters<'a> {
    type Cached = FleetFacts;
    type Hint = String;

    const PROGRAM: Program = Program::Hub;
    const CONTINUES: &'static str = "the hub continues the rollout";

    async fn look(&self) -> Result<Option<FleetFacts>> {
        match FleetFacts::observe(self.cluster, self.filter.clone()).await {
            Err(failure) if failure.is(404) && self.goal == Some(FleetGoal::Removed) => Ok(None),
            facts => facts.map(Some),
        }
    }

    fn watch(&self, facts: &FleetFacts) -> Vec<Changes<'a, FleetFacts>> {
        let fleets = watch::<FleetPullSecret>(
            self.cluster,
            "watch the FleetPullSecrets",
            self.filter.all_namespaces,
            self.filter.fleet.clone(),
        );
        let doing = "watch the ClusterPullSecrets";
        let objects = watch::<ClusterPullSecret>(self.cluster, doing, facts.is_wide, None);
        vec![
            changes(fleets, |facts, update| facts.fleets.update(update)),
            changes(objects, |facts, update| facts.objects.update(update)),
        ]
    }

    fn view(&mut self, facts: &FleetFacts, now: Timestamp, layout: Option<Layout>) -> View<String> {
        let all = facts.statuses();
        let text = if let Some(layout) = layout {
            let advice = all.first().and_then(news);
            let advice = advice.filter(|_| self.goal.is_none());
            vec![table::text(
                &all,
                &self.filter,
                now,
                layout,
                advice.as_ref(),
            )]
        } else {
            table::changes(&self.shown, &all)
        };
        let view = View {
            text,
            verdict: self.goal.map(|goal| self.verdict(&all, goal, now)),
            is_ready: is_ready(&all),
            is_stale: self.goal.is_some_and(|goal| is_stale(&all, goal)),
        };
        self.shown = all;
        view
    }

    fn last(&mut self, facts: &FleetFacts, _: Timestamp) -> Vec<String> {
        facts.statuses().iter().map(table::headline).collect()
    }

    async fn state(&mut self, facts: &FleetFacts, _: Timestamp) -> Result<Advice> {
        let all = facts.statuses();
        let open = all.iter().find(|status| !status.fleet.ready);
        Ok(open.and_then(advice).unwrap_or_else(|| {
            let title = open.map_or("", |status| &status.fleet.name);
            let state = open.map_or_else(String::new, table::headline);
            (state, format!("see {}", command("status", title)))
        }))
    }
}

impl Clusters<'_> {
    fn verdict(&self, all: &[FleetStatus], goal: FleetGoal, now: Timestamp) -> Verdict<String> {
        match &self.filter.fleet {
            Some(name) if goal == FleetGoal::Synced && all.is_empty() => Verdict::Stuck {
                reason: format!(
                    "FleetPullSecret `{}/{name}` was deleted meanwhile",
                    self.cluster.namespace
                ),
                hint: "`kubectl globalps fleet status -A` shows the others".to_owned(),
            },
            _ => verdict(all, goal, now),
        }
    }
}

/// Advice that is more than how to follow the rollout.
fn news(status: &FleetStatus) -> Option<Advice> {
    advice(status).filter(|(_, hint)| !hint.starts_with("follow it"))
}
