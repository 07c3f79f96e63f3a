//! The pods of the syncers and restorers, and on which nodes none runs.

use std::collections::{BTreeMap, BTreeSet};

use globalps_manifests::Agent;

use super::Cache;
use super::syncer_pods::Replacement;
use crate::nodes::clock::Uptime;
use crate::nodes::provider_paths::ProviderPods;
use crate::nodes::syncers::{Cause, Down, START, Syncers, UNSUPPORTED_AFTER};
use crate::objects::managed::{LiveObject, ManagedKind, ManagedObject};
use crate::objects::views::AgentTemplate;

impl Cache {
    fn daemon_set(&self, agent: Agent) -> Option<&LiveObject> {
        let kind = ManagedKind::DaemonSet;
        self.managed(ManagedObject { agent, kind })
    }

    /// One that is being deleted gets no pods.
    pub(crate) fn has_daemon_set(&self, agent: Agent) -> bool {
        self.daemon_set(agent)
            .is_some_and(|it| !it.is_being_deleted)
    }

    pub(super) fn has_agents(&self) -> bool {
        Agent::ALL.into_iter().any(|it| self.has_daemon_set(it))
    }

    /// Whether an object of a syncer or restorer still exists, even if it is being deleted.
    pub(super) fn has_leftovers(&self) -> bool {
        let mut managed = self.managed.iter();
        managed.any(|(_, store)| !store.live.is_empty()) || !self.node_pull_secrets.is_empty()
    }

    /// What the syncers' pods support for `kubelet`; `None`: there are no pods yet.
    pub(crate) fn provider_pods(&self) -> Option<ProviderPods> {
        let daemon_set = self.daemon_set(Agent::Syncer)?;
        Some(ProviderPods {
            paths: daemon_set.provider.clone(),
            are_current: self.templates().is_some() && self.syncers.outdated.is_empty(),
        })
    }

    /// The templates of the `DaemonSets` that Kubernetes makes pods from; `None`: it doesn't yet, or the pods are not known.
    fn templates(&self) -> Option<BTreeMap<&'static str, AgentTemplate>> {
        let known = Agent::ALL.into_iter().filter_map(|agent| {
            let template = self.daemon_set(agent)?.template?;
            Some((agent.name(), template))
        });
        let templates: BTreeMap<_, _> = known.collect();
        let are_known = self.pods.store.synced
            && !templates.is_empty()
            && templates.values().all(|template| template.is_observed);
        are_known.then_some(templates)
    }

    /// Call it before each plan. A watch has no event for having been down for a while.
    pub(super) fn observe_syncers(&mut self, now: Uptime) {
        let before = std::mem::take(&mut self.syncers);
        let Some(templates) = self.templates() else {
            self.pods.replacement = Replacement::default();
            return;
        };
        let pods = self.pods.by_node();
        let mut syncers = Syncers::default();
        let mut current = BTreeSet::new();
        let nodes = self.nodes.live.values();
        for node in nodes.filter(|node| node.is_linux() && node.ready.is_ok()) {
            let cause = match pods.get(node.name.as_str()).map(|pod| (pod, &pod.runs)) {
                None => Cause::NoPod,
                Some((_, Err(cause))) => cause.clone(),
                Some((pod, Ok(()))) => {
                    let template = templates.get(pod.agent.name());
                    let is_old = |template: &AgentTemplate| {
                        pod.template > 0 && pod.template < template.generation
                    };
                    if template.is_some_and(is_old) && node.can_run_syncer() {
                        syncers.outdated.insert(node.name.clone());
                    } else {
                        current.insert(node.name.as_str());
                    }
                    continue;
                }
            };
            let since = before.down.get(&node.name).map_or(now, |down| down.since);
            syncers
                .down
                .insert(node.name.clone(), Down { since, cause });
        }
        let of = templates.values().map(|template| template.generation);
        let of = of.fold(0, i64::saturating_add);
        let seen = (&syncers.outdated, &current);
        self.pods.replacement.observe(of, seen, now);
        syncers.are_replaced =
            !syncers.outdated.is_empty() && now - self.pods.replacement.last_progress() < START;
        for name in syncers.down.keys() {
            let object = self.node_pull_secrets.get(name);
            if object.is_none_or(|object| object.status.is_none() && object.spec.revision == 0) {
                self.clock.keep_new(name, now);
            }
        }
        self.syncers = syncers;
    }

    /// Whether a node's syncer may soon have been down for too long.
    pub(crate) fn waits_for_syncers(&self, now: Uptime) -> bool {
        let mut down = self.syncers.down.values();
        let is_open = |down: &Down| now - down.since < UNSUPPORTED_AFTER;
        self.syncers.are_replaced || down.any(is_open)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use kube::runtime::watcher::Event;
    use serde_json::json;
    use tokio::time::Instant;

    use super::super::list_watch::{Update, WatchError};
    use super::super::syncer_pods::SyncerPods;
    use super::*;
    use crate::cache::CacheEvent;
    use crate::nodes::input::{NodeView, NotReady};
    use crate::objects::pods::PodView;
    use crate::objects::views::DaemonSetView;

    fn at(seconds: i64) -> Uptime {
        SignedDuration::from_secs(seconds)
    }

    fn pods(cache: &mut Cache, pods: &str) {
        let now = Instant::now();
        let mut events = vec![Event::Init];
        events.extend(pods.split_whitespace().map(|word| {
            let (node, state) = word.split_once('=').unwrap();
            let (template, is_down) = (state.trim_end_matches('!'), state.ends_with('!'));
            Event::InitApply(PodView {
                name: word.into(),
                version: 1,
                node: node.into(),
                agent: Agent::Syncer,
                template: template.parse().unwrap(),
                runs: if is_down {
                    Err(Cause::NotRunning("ErrImagePull".into()))
                } else {
                    Ok(())
                },
            })
        }));
        events.push(Event::InitDone);
        for event in events {
            cache.handle(CacheEvent::Pod(Update::Event(event)), now);
        }
    }

    /// A cluster with nodes `a` to `d`, `d` not ready, and with the second template.
    fn cluster() -> Cache {
        let mut cache = Cache::default();
        for name in ["a", "b", "c", "d"] {
            let mut node = NodeView::of_test(name, Timestamp::UNIX_EPOCH);
            if name == "d" {
                node.ready = Err(NotReady {
                    since: Timestamp::UNIX_EPOCH,
                    unknown: true,
                });
            }
            cache.nodes.put(Box::new(node));
        }
        let daemon_set = json!({
            "metadata": {"name": "a", "annotations": {"deprecated.daemonset.template.generation": "2"}},
            "spec": {"template": {}}, "status": {"observedGeneration": 1},
        });
        let daemon_set: DaemonSetView = serde_json::from_value(daemon_set).unwrap();
        let object = ManagedObject {
            agent: Agent::Syncer,
            kind: ManagedKind::DaemonSet,
        };
        cache.put_managed(object, daemon_set.into());
        cache
    }

    /// Nodes that are down with how long, and outdated ones, `!` while they are being replaced.
    fn seen(cache: &mut Cache, now: i64) -> String {
        cache.observe_syncers(at(now));
        let syncers = &cache.syncers;
        let down = syncers.down.iter();
        let down = down.map(|(name, down)| format!("{name}:{}", (at(now) - down.since).as_secs()));
        let outdated = syncers.outdated.iter().cloned();
        let mut words: Vec<String> = down.chain(outdated).collect();
        words.extend(syncers.are_replaced.then(|| "!".to_owned()));
        words.join(" ")
    }

    #[test]
    fn only_ready_nodes_without_a_current_pod_that_runs_deviate() {
        let mut cache = cluster();
        assert_eq!(seen(&mut cache, 0), "", "nothing is known of pods");
        for (now, of, expected) in [
            (10, "a=2 b=2 c=2", ""),
            (20, "a=2 b=2! d=2!", "b:0 c:0"),
            (50, "a=2 b=2! d=2!", "b:30 c:30"),
            (60, "a=2 b=2! b=2 d=2!", "c:40"),
            (70, "a=2 b=2! c=2", "b:0"),
            (80, "a=2 b=1 c=1", "b c !"),
            (139, "a=2 b=1 c=1", "b c !"),
            (139, "a=2 b=2 c=1", "c !"),
            (199, "a=2 b=2 c=1", "c"),
            (200, "a=2 b=2 c=1!", "c:0"),
        ] {
            pods(&mut cache, of);
            assert_eq!(seen(&mut cache, now), expected, "{now} {of}");
        }
        let waits = |cache: &Cache, now| cache.waits_for_syncers(at(now));
        assert!(waits(&cache, 499) && !waits(&cache, 500));
        let template = AgentTemplate {
            generation: 2,
            is_observed: false,
        };
        let daemon_set = ManagedObject {
            agent: Agent::Syncer,
            kind: ManagedKind::DaemonSet,
        };
        let mut live = cache.managed(daemon_set).unwrap().clone();
        live.template = Some(template);
        cache.put_managed(daemon_set, live);
        assert_eq!(
            seen(&mut cache, 600),
            "",
            "Kubernetes makes no pods from it"
        );
    }

    /// Each flap changes how many nodes have a current pod, or an outdated one.
    #[test]
    fn a_node_that_flaps_extends_no_replacement() {
        for (case, flapping, of) in [
            ("with a current pod", "a", "a=2 b=1 c=2"),
            ("with an outdated one", "a", "a=1 b=1 c=2"),
            ("the only outdated one", "b", "a=2 b=1 c=2"),
        ] {
            let mut cache = cluster();
            pods(&mut cache, of);
            let set = |cache: &mut Cache, ready| {
                let mut node = NodeView::of_test(flapping, Timestamp::UNIX_EPOCH);
                node.ready = ready;
                cache.nodes.put(Box::new(node));
            };
            let not_ready = Err(NotReady {
                since: Timestamp::UNIX_EPOCH,
                unknown: false,
            });
            for now in (0..600).step_by(30) {
                let ready = if now % 60 == 0 {
                    Ok(Timestamp::UNIX_EPOCH)
                } else {
                    not_ready
                };
                set(&mut cache, ready);
                let seen = seen(&mut cache, now);
                let is_outdated = flapping != "b" || ready.is_ok();
                let is_replaced = is_outdated && now < 60;
                assert_eq!(seen.contains('!'), is_replaced, "{case}: {now} {seen}");
            }
        }
    }

    #[test]
    fn the_provider_waits_for_outdated_pods_only() {
        let mut cache = cluster();
        for (of, expected) in [("a=2 b=2 c=2!", true), ("a=2 b=1 c=2", false)] {
            pods(&mut cache, of);
            cache.observe_syncers(at(0));
            assert_eq!(cache.provider_pods().unwrap().are_current, expected, "{of}");
        }
    }

    #[test]
    fn pods_that_cannot_be_listed_delay_nothing() {
        let mut watched = SyncerPods::default();
        assert!(!watched.are_settled());
        let failed = Update::Failed(WatchError {
            message: "forbidden".to_owned(),
            is_forbidden: true,
            is_not_served: false,
        });
        assert!(watched.handle(failed) && watched.are_settled());
        assert!(!watched.handle(Update::Event(Event::Init)) && watched.are_settled());
        assert!(watched.handle(Update::Event(Event::InitDone)) && watched.are_settled());
        assert!(watched.handle(Update::Stale) && watched.are_settled());
    }

    #[test]
    fn a_node_that_waits_for_its_first_syncer_stays_new() {
        let mut cache = cluster();
        pods(&mut cache, "a=2 b=2");
        cache.observe_clock(at(0));
        let joined = NodeView::of_test("n", Timestamp::UNIX_EPOCH);
        cache.nodes.put(Box::new(joined.clone()));
        for minute in 1..30 {
            cache.observe_clock(at(minute * 60));
        }
        let later = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
        assert!(cache.clock.is_new(&joined, at(29 * 60), later));
        pods(&mut cache, "a=2 b=2 n=2");
        cache.observe_clock(at(30 * 60));
        assert!(cache.clock.is_new(&joined, at(38 * 60), later));
        assert!(!cache.clock.is_new(&joined, at(40 * 60), later));
    }

    /// Days later a corrected image must not change all nodes at once that joined meanwhile: they run workloads.
    #[test]
    fn a_node_that_waits_for_its_first_syncer_for_half_an_hour_is_no_longer_new() {
        let mut cache = cluster();
        pods(&mut cache, "a=2 b=2");
        cache.observe_clock(at(0));
        let joined = NodeView::of_test("n", Timestamp::UNIX_EPOCH);
        cache.nodes.put(Box::new(joined.clone()));
        let later = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
        for minute in 1..120 {
            cache.observe_clock(at(minute * 60));
            let is_new = cache.clock.is_new(&joined, at(minute * 60), later);
            assert_eq!(is_new, minute < 40, "{minute}");
        }
        pods(&mut cache, "a=2 b=2 n=2");
        cache.observe_clock(at(120 * 60));
        assert!(!cache.clock.is_new(&joined, at(120 * 60), later));
        assert!(
            cache.clock.saw_join(&joined),
            "it had nothing when it joined"
        );
    }
}
