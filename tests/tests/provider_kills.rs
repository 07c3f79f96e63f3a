//! Kills the syncer at every step of the switch to the credential provider and back. The next one continues: the
//! kubelet restarts once in total, and the node has every credential at every moment.

use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

use globalps_provider::{Delivery, ProviderConfig};
use globalps_testkit::bare_node::{Ask, BareNode, Failures, Program};
use globalps_testkit::kubernetes::VERSION;
use globalps_testkit::until;
use serde_json::{Value, json};

static PROGRAM: LazyLock<Program> = LazyLock::new(|| Program::shipped().unwrap());

const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(3);
const OWN: &str = "{ \"auths\": {\"own.example.com\": {\"auth\": \"bzpv\"}} }\n";
const FLAGS: &str = "KUBELET_KUBEADM_ARGS=\"--v=2\"\n";
const REGISTRY: &str = "r.example.com";
/// System calls that change names or make them durable.
const CALLS: [&str; 5] = ["rename", "fsync", "mkdir", "unlink", "rmdir"];
/// More calls of one kind than any switch makes.
const MOST: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    In,
    Out,
    Restore,
}

fn ask(generation: i64, delivery: Delivery) -> Ask {
    Ask {
        generation,
        revision: Some(generation),
        credentials: json!({"auths": {REGISTRY: {"auth": "dTpw"}}}).to_string(),
        delivery,
        kubelet_version: VERSION,
        foreign_owner: "",
        updated_in_place: false,
        may_replace: String::new(),
    }
}

fn by_provider(generation: i64) -> Ask {
    ask(
        generation,
        Delivery::CredentialProvider(ProviderConfig::default()),
    )
}

impl Way {
    fn asks(self) -> (Ask, Ask) {
        let file = |generation| ask(generation, Delivery::ConfigFile);
        let restore = Ask {
            generation: 2,
            ..Ask::default()
        };
        match self {
            Self::In => (file(1), by_provider(2)),
            Self::Out => (by_provider(1), file(2)),
            Self::Restore => (by_provider(1), restore),
        }
    }

    fn has_ended(self, status: &Value) -> bool {
        let phase = if self == Self::Restore {
            "Restored"
        } else {
            "Synced"
        };
        status["observedGeneration"] == 2 && status["phase"] == phase
    }
}

/// Returns whether the syncer was killed, which means that it makes this many calls.
fn survives(way: Way, call: &str, nth: usize) -> bool {
    let what = format!("{way:?}, killed at {call} {nth}");
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("config.json"), OWN).unwrap();
    fs::write(here.join("kubeadm-flags.env"), FLAGS).unwrap();
    let (before, after) = way.asks();
    let node = BareNode::start(here, &before, 1, Failures::NONE).unwrap();
    node.run(&PROGRAM, None, DEADLINE, || Ok(())).unwrap();
    let restarts = node.restarts();
    node.ask(Some(after));
    let injection = format!("{call}:signal=KILL:when={nth}");
    let killed = PROGRAM.again().failing(&injection);
    let mut syncer = node.syncer(&killed).unwrap();
    let has_ended = || node.status().is_some_and(|status| way.has_ended(&status));
    let look = || {
        if way != Way::Restore {
            let found = node.has_credential(REGISTRY);
            assert!(
                found.as_ref().is_ok_and(|found| *found),
                "{what}: the node lost a credential ({found:?}): {}",
                node.log()
            );
        }
    };
    until(&what, DEADLINE, POLL, || {
        look();
        Ok((has_ended() || syncer.has_ended()?).then_some(()))
    })
    .unwrap();
    let was_killed = syncer.has_ended().unwrap();
    drop(syncer);
    let next = node.syncer(&PROGRAM).unwrap();
    until(&what, DEADLINE, POLL, || {
        look();
        Ok(has_ended().then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:?} {}", node.status(), node.log()));
    next.kill().unwrap();
    assert_eq!(node.restarts() - restarts, 1, "{what}: restarts");
    let read = |name: &str| fs::read_to_string(here.join(name)).unwrap();
    assert_eq!(node.has_provider(), way == Way::In, "{what}");
    assert_eq!(read("kubeadm-flags.env") == FLAGS, way != Way::In, "{what}");
    assert_eq!(read("config.json") == OWN, way != Way::Out, "{what}");
    assert_eq!(
        here.join(".globalps/bin").exists(),
        way == Way::In,
        "{what}"
    );
    assert_eq!(
        here.join(".globalps").exists(),
        way != Way::Restore,
        "{what}"
    );
    was_killed
}

fn survives_all(way: Way) {
    LazyLock::force(&PROGRAM);
    let kills: usize = CALLS
        .iter()
        .map(|call| {
            let kills = (1..MOST)
                .take_while(|nth| survives(way, call, *nth))
                .count();
            println!("{way:?}: {kills} kills at {call}");
            kills
        })
        .sum();
    assert!(kills > 20, "{way:?}: {kills} kills");
}

#[test]
fn on_the_way_in() {
    survives_all(Way::In);
}

#[test]
fn on_the_way_out() {
    survives_all(Way::Out);
}

#[test]
fn on_the_way_to_what_was_before() {
    survives_all(Way::Restore);
}
