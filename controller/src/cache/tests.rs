use globalps_core::api::{DeliveryType, GlobalPullSecretSpec, MachineConfigState, SecretRef};
use globalps_core::checksum::add_checksum;
use globalps_core::machine_config::MachineConfig;
use globalps_core::names::{ADDITIONAL_SECRET, DATA_KEY, MACHINE_CONFIG_OPERATOR};
use globalps_planner::content::source::Source;
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::WatchError;
use globalps_runtime::object_watch::ObjectState;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::debounce::GRACE;
use super::*;

fn secret(name: &str) -> Secret {
    let secret = json!({"metadata": {"name": name, "resourceVersion": "1"}});
    let mut secret = serde_json::from_value(secret).expect("a Secret");
    add_checksum(&mut secret, &[]);
    secret
}

/// A cache whose lists are all complete, with these Secrets.
fn synced(additional: Option<Secret>, global: Option<Secret>, now: Instant) -> Cache {
    fn list<T>(object: Option<T>) -> impl Iterator<Item = Update<T>> {
        let objects = object.into_iter().map(Event::InitApply);
        let events = [Event::Init].into_iter().chain(objects);
        events.chain([Event::InitDone]).map(Update::Event)
    }
    let mut cache = Cache::default();
    let additional = additional.map_or(ObjectState::Absent, ObjectState::Present);
    let mut events = vec![CacheEvent::Additional(additional)];
    events.extend(list(global).map(CacheEvent::Global));
    events.extend(list(None).map(CacheEvent::Record));
    events.extend(list(None).map(CacheEvent::Applied));
    events.extend(list(None).map(CacheEvent::RolledOut));
    events.extend(list(None).map(CacheEvent::Config));
    events.extend(list(None).map(CacheEvent::State));
    events.extend(list(None).map(CacheEvent::Node));
    events.extend(list(None).map(CacheEvent::NodePullSecret));
    events.extend(list(None).map(CacheEvent::Pod));
    for object in ManagedObject::all() {
        events.extend(list(None).map(|update| CacheEvent::Managed(object, update)));
    }
    for event in events {
        assert!(!cache.caches_synced());
        cache.handle(event, now);
    }
    cache
}

#[test]
fn a_new_spec_in_the_response_to_a_status_write_is_a_change() {
    let config = |version: u64, generation: i64| {
        let mut config = GlobalPullSecret::new(GLOBAL_SECRET, GlobalPullSecretSpec::default());
        config.metadata.resource_version = Some(version.to_string());
        config.metadata.generation = Some(generation);
        config
    };
    let now = Instant::now();
    let mut cache = synced(None, None, now);
    assert!(cache.put_config(config(7, 1)));
    assert!(!cache.put_config(config(8, 1)), "the status alone");
    assert!(
        cache.put_config(config(10, 2)),
        "version 9 was another spec"
    );
    let event = CacheEvent::Config(Update::Event(Event::Apply(config(9, 2))));
    assert!(!cache.handle(event, now), "and its event is none");
}

#[test]
fn what_globalps_wrote_is_no_original() {
    let now = Instant::now();
    let mut cache = synced(None, None, now);
    let mut config = GlobalPullSecret::new(GLOBAL_SECRET, GlobalPullSecretSpec::default());
    config.metadata.namespace = Some("kube-system".to_owned());
    cache.put_config(config);
    for (namespace, name, is_own) in [
        ("kube-system", GLOBAL_SECRET, true),
        ("kube-system", "additional-pull-secret-history-3", true),
        ("kube-system", "pull-secret", false),
        ("openshift-config", GLOBAL_SECRET, false),
    ] {
        let original = OriginalRef::Secret(SecretRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key: DATA_KEY.to_owned(),
        });
        cache.set_watches(&[Watch::Original(original)]);
        let snapshot = cache.snapshot(SignedDuration::ZERO, Timestamp::UNIX_EPOCH);
        let found = matches!(snapshot.secrets.original, Source::Unreadable(_));
        assert_eq!(found, is_own, "{namespace}/{name}");
    }
}

#[test]
fn an_absent_secret_delays_the_plan_only_if_content_is_in_force() {
    let now = Instant::now();
    let global = || Some(secret(GLOBAL_SECRET));
    let additional = || Some(secret(ADDITIONAL_SECRET));
    assert!(synced(None, None, now).caches_synced());
    assert!(synced(additional(), global(), now).caches_synced());
    let mut cache = synced(None, global(), now);
    assert!(!cache.caches_synced(), "it may be recreated right now");
    assert_eq!(cache.settles_at(), Some(now + GRACE));
    assert!(cache.settle(now + GRACE) && cache.caches_synced());

    let mut cache = synced(additional(), global(), now);
    cache.handle(CacheEvent::Additional(ObjectState::Absent), now);
    assert!(cache.caches_synced() && cache.additional().is_some());
    assert!(cache.settle(now + GRACE) && cache.additional().is_none());
}

#[test]
fn without_its_definition_nothing_waits_for_the_configuration() {
    let now = Instant::now();
    let mut cache = synced(Some(secret(ADDITIONAL_SECRET)), None, now);
    let config = GlobalPullSecret::new(GLOBAL_SECRET, GlobalPullSecretSpec::default());
    cache.put_config(config);
    let failed = |is_not_served| {
        CacheEvent::Config(Update::Failed(WatchError {
            message: "no".to_owned(),
            is_forbidden: false,
            is_not_served,
        }))
    };
    cache.handle(failed(false), now);
    cache.handle(CacheEvent::Config(Update::Stale), now);
    assert!(!cache.caches_synced() && cache.config().is_some());
    assert!(cache.handle(failed(true), now), "it changes the plan");
    assert!(cache.config().is_none() && !cache.is_config_served());
    for again in [CacheEvent::Config(Update::Stale), failed(true)] {
        assert!(cache.caches_synced());
        assert!(!cache.handle(again, now), "nothing new");
    }
    assert!(cache.caches_synced());
    for event in [Event::Init, Event::InitDone] {
        cache.handle(CacheEvent::Config(Update::Event(event)), now);
    }
    assert!(cache.caches_synced() && cache.is_config_served());
}

/// A leader that begins meanwhile has never listed the objects.
#[test]
fn without_a_definition_only_nodes_wait_for_node_pull_secrets() {
    let now = Instant::now();
    let failed = |is_not_served| {
        CacheEvent::NodePullSecret(Update::Failed(WatchError {
            message: "no".to_owned(),
            is_forbidden: false,
            is_not_served,
        }))
    };
    for begins in [false, true] {
        let mut cache = synced(None, None, now);
        let object = NodePullSecret::new("a", NodePullSecretSpec::default());
        if begins {
            cache.node_pull_secrets = Store::default();
        } else {
            cache.put_node_pull_secret(object);
        }
        cache.handle(failed(false), now);
        cache.handle(CacheEvent::NodePullSecret(Update::Stale), now);
        assert!(!cache.caches_synced(), "they may be there");
        assert!(cache.handle(failed(true), now), "it changes the plan");
        let stale = CacheEvent::NodePullSecret(Update::Stale);
        for again in [stale, failed(true), failed(false)] {
            assert!(cache.caches_synced());
            assert!(!cache.handle(again, now), "nothing new");
        }
        let is_known = cache.node_pull_secrets.get("a").is_some();
        assert_eq!(is_known, !begins, "the last known ones stay");
        for event in [Event::Init, Event::InitDone] {
            assert!(cache.node_pull_secrets.is_not_served);
            cache.handle(CacheEvent::NodePullSecret(Update::Event(event)), now);
        }
        assert!(cache.caches_synced() && !cache.node_pull_secrets.is_not_served);
        assert!(cache.node_pull_secrets.live.is_empty());
    }
}

#[test]
fn a_stale_list_delays_the_plan_until_a_list_is_complete() {
    let now = Instant::now();
    let mut cache = synced(Some(secret(ADDITIONAL_SECRET)), None, now);
    cache.handle(CacheEvent::Node(Update::Stale), now);
    assert!(!cache.caches_synced());
    for event in [Event::Init, Event::InitDone] {
        assert!(!cache.caches_synced());
        cache.handle(CacheEvent::Node(Update::Event(event)), now);
    }
    assert!(cache.caches_synced());
    for state in [ObjectState::Stale, ObjectState::Forbidden] {
        cache.handle(CacheEvent::Additional(state), now);
        assert!(!cache.caches_synced() && cache.additional().is_some());
        let found = ObjectState::Present(secret(ADDITIONAL_SECRET));
        cache.handle(CacheEvent::Additional(found), now);
        assert!(cache.caches_synced());
    }
}

#[test]
fn a_deletion_during_a_gap_of_the_watch_is_out_of_band() {
    let now = Instant::now();
    let mut cache = synced(None, Some(secret(GLOBAL_SECRET)), now);
    for event in [Event::Init, Event::InitDone] {
        cache.handle(CacheEvent::Global(Update::Event(event)), now);
    }
    assert!(
        cache
            .snapshot(SignedDuration::ZERO, Timestamp::UNIX_EPOCH)
            .recorded
            .global_is_lost
    );
    let changes = cache.take_out_of_band_changes();
    assert!(
        matches!(&changes[..], [change] if change.is_deleted),
        "{changes:?}"
    );
}

/// Its object was removed first, as in the lists after a gap of the watches.
#[test]
fn a_node_that_is_gone_leaves_nothing_to_another_of_its_name() {
    let now = Instant::now();
    let mut cache = synced(None, Some(secret(GLOBAL_SECRET)), now);
    let object = || Box::new(NodePullSecret::new("a", NodePullSecretSpec::default()));
    let deleted = |cache: &Cache| {
        let snapshot = cache.snapshot(SignedDuration::ZERO, Timestamp::UNIX_EPOCH);
        snapshot.nodes.deleted_out_of_band.contains("a")
    };
    let applied = Event::Apply(Box::new(NodeView::of_test("a", Timestamp::UNIX_EPOCH)));
    cache.handle(CacheEvent::Node(Update::Event(applied)), now);
    for event in [Event::Apply(object()), Event::Delete(object())] {
        cache.handle(CacheEvent::NodePullSecret(Update::Event(event)), now);
    }
    assert!(deleted(&cache));
    for event in [Event::Init, Event::InitDone] {
        cache.handle(CacheEvent::Node(Update::Event(event)), now);
    }
    assert!(!deleted(&cache));
}

/// The same holds if the change happened during a gap of the watch, and if a user only adds a label.
#[test]
fn the_last_own_version_stays_until_the_secret_is_written_again() {
    let now = Instant::now();
    let own = |version: u64, key: &str| {
        let mut secret = secret(GLOBAL_SECRET);
        secret.metadata.resource_version = Some(version.to_string());
        let value = k8s_openapi::ByteString(b"x".to_vec());
        secret
            .data
            .get_or_insert_default()
            .insert(key.to_owned(), value);
        add_checksum(&mut secret, &[]);
        secret
    };
    let edited = |version| {
        let mut secret = own(version, "b");
        secret.data = own(version, "a").data;
        secret.data.get_or_insert_default().remove("a");
        secret
    };
    let in_gap = [Event::Init, Event::InitApply(edited(3)), Event::InitDone];
    for events in [vec![Event::Apply(edited(3))], in_gap.into()] {
        let mut cache = synced(None, Some(own(2, "a")), now);
        for event in events {
            cache.handle(CacheEvent::Global(Update::Event(event)), now);
        }
        assert!(cache.global.is_lost);
        assert_eq!(cache.global_version(), Some("2"));
        let changes = cache.take_out_of_band_changes();
        let [change] = &changes[..] else {
            panic!("{changes:?}")
        };
        assert!(!change.is_deleted);
        let event = Event::Delete(edited(4));
        cache.handle(CacheEvent::Global(Update::Event(event)), now);
        assert_eq!(cache.global_version(), Some("2"));
        cache.put_global(own(5, "a"));
        assert!(!cache.global.is_lost);
        let mut labelled = own(6, "a");
        labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        let event = Event::Apply(labelled);
        cache.handle(CacheEvent::Global(Update::Event(event)), now);
        // The controller's own write, to which it received no response.
        let event = Event::Apply(own(7, "c"));
        cache.handle(CacheEvent::Global(Update::Event(event)), now);
        assert_eq!(cache.global_version(), Some("7"));
        assert!(!cache.global.is_lost && cache.take_out_of_band_changes().is_empty());
        let event = Event::Delete(own(8, "c"));
        cache.handle(CacheEvent::Global(Update::Event(event)), now);
        cache.forget(&Leftover::Secret(GLOBAL_SECRET.to_owned()));
        assert_eq!(cache.global_version(), None, "the cleanup deleted it");
    }
}

#[test]
fn an_assignment_by_another_client_is_not_believed() {
    let object = |version: u64, generation: i64, revision: i64, uid: &str| {
        let spec = globalps_core::api::NodePullSecretSpec {
            revision,
            ..Default::default()
        };
        let mut object = NodePullSecret::new("a", spec);
        object.metadata.resource_version = Some(version.to_string());
        object.metadata.generation = Some(generation);
        object.metadata.uid = Some(uid.to_owned());
        Box::new(object)
    };
    for (case, event, expected) in [
        ("99 is", Event::Apply(object(8, 3, 99, "u")), (5, true)),
        (
            "in a list, too",
            Event::InitApply(object(8, 3, 99, "u")),
            (5, true),
        ),
        (
            "one of the controller is, though the response to the write was lost",
            Event::Apply(object(8, 3, 6, "u")),
            (6, false),
        ),
        (
            "a status is not",
            Event::Apply(object(8, 2, 5, "u")),
            (5, false),
        ),
        (
            "nor an older event",
            Event::Apply(object(6, 1, 4, "u")),
            (5, false),
        ),
        (
            "nor another object",
            Event::Apply(object(8, 1, 0, "v")),
            (0, false),
        ),
    ] {
        let now = Instant::now();
        let mut cache = synced(None, None, now);
        cache.put_node_pull_secret(*object(7, 2, 5, "u"));
        cache.wrote_without_response("a", object(0, 0, 6, "").spec);
        let mut handle = |event| {
            cache.handle(CacheEvent::NodePullSecret(Update::Event(event)), now);
        };
        let is_list = matches!(event, Event::InitApply(_));
        if is_list {
            handle(Event::Init);
        }
        handle(event.clone());
        if is_list {
            handle(Event::InitDone);
        }
        // The status that follows has the same generation and spec, and so has a list.
        if let (Event::Apply(mut reported), true) = (event, expected.1) {
            reported.metadata.resource_version = Some("9".to_owned());
            handle(Event::Apply(reported.clone()));
            for event in [Event::Init, Event::InitApply(reported), Event::InitDone] {
                handle(event);
            }
        }
        let snapshot = cache.snapshot(SignedDuration::ZERO, Timestamp::UNIX_EPOCH);
        let known = &snapshot.nodes.objects["a"];
        let is_changed = snapshot.nodes.changed_out_of_band.contains("a");
        assert_eq!((known.spec.revision, is_changed), expected, "{case}");
        cache.put_node_pull_secret(*object(10, 4, 5, "u"));
        assert!(
            cache
                .snapshot(SignedDuration::ZERO, Timestamp::UNIX_EPOCH)
                .nodes
                .changed_out_of_band
                .is_empty()
        );
    }
}

#[test]
fn a_heartbeat_is_a_change_only_after_a_kubelet_restart() {
    let second = |second: i64| Timestamp::from_second(second).expect("a time");
    let node = |version: u64, heartbeat| NodeView {
        version,
        heartbeat: second(heartbeat),
        ..NodeView::of_test("a", second(0))
    };
    for (case, restarted_at, heartbeat, changed) in [
        ("no restart", None, 20, false),
        ("a restart before the known heartbeat", Some(5), 20, false),
        ("a restart since", Some(15), 20, true),
        ("the same heartbeat", Some(15), 10, false),
    ] {
        let now = Instant::now();
        let mut cache = synced(None, None, now);
        let mut object =
            NodePullSecret::new("a", globalps_core::api::NodePullSecretSpec::default());
        let status = object.status.get_or_insert_default();
        status.kubelet_restarted_at =
            restarted_at.map(|at| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(second(at)));
        cache.put_node_pull_secret(object);
        let mut apply = |node| {
            cache.handle(
                CacheEvent::Node(Update::Event(Event::Apply(Box::new(node)))),
                now,
            )
        };
        assert!(apply(node(1, 10)), "{case}: a new node");
        assert_eq!(apply(node(2, heartbeat)), changed, "{case}");
    }
}

#[test]
fn a_paused_pool_counts_only_where_the_operator_delivers() {
    let now = Instant::now();
    for (delivery, is_paused, expected) in [
        (
            DeliveryType::OpenShift,
            true,
            Some(MachineConfigState::Paused),
        ),
        (
            DeliveryType::OpenShift,
            false,
            Some(MachineConfigState::Applies),
        ),
        (DeliveryType::Observe, true, None),
    ] {
        let mut cache = synced(None, None, now);
        let mut spec = GlobalPullSecretSpec::default();
        spec.kubelet.delivery = delivery;
        cache.put_config(GlobalPullSecret::new(GLOBAL_SECRET, spec));
        cache.set_watches(&[Watch::Pools]);
        let mut node = NodeView::of_test("a", Timestamp::UNIX_EPOCH);
        node.file_owner = MACHINE_CONFIG_OPERATOR;
        node.machine_config = Some(Box::new(MachineConfig {
            pool: "worker".into(),
            state: MachineConfigState::Applies,
        }));
        let node = Event::Apply(Box::new(node));
        cache.handle(CacheEvent::Node(Update::Event(node)), now);
        let pool = |is_paused| {
            let pool = pools::of_test("worker", is_paused);
            CacheEvent::Pool(Update::Event(Event::Apply(pool)))
        };
        assert!(cache.handle(pool(is_paused), now), "a change");
        let snapshot = cache.snapshot(SignedDuration::ZERO, Timestamp::UNIX_EPOCH);
        let node = &snapshot.nodes.views["a"];
        let found = node.machine_config.as_ref().map(|it| it.state);
        assert_eq!((found, node.file_owner), (expected, ""), "{delivery:?}");
        drop(snapshot);
        cache.set_watches(&[]);
        assert!(cache.pools.get("worker").is_none(), "it is not watched");
    }
}
