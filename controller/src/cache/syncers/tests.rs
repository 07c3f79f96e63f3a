use globalps_planner::nodes::input::{NodeView, NotReady};
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::{Update, WatchError};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::time::Instant;

use super::super::syncer_pods::SyncerPods;
use super::*;
use crate::cache::CacheEvent;
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
fn a_node_half_an_hour_without_a_syncer_is_not_new() {
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
