//! Member clusters that an attacker controls send the hub arbitrary responses, and a tenant writes many large objects. Uses the
//! hub's process, a management cluster without nodes, and simulated members: some are honest, each of the others lies in one way.

mod common;

use std::time::{Duration, Instant};

use common::objects::get;
use common::{base64, docker_config};
use globalps_core::api::MESSAGE_LIMIT;
use globalps_testkit::fleet::hub_stage::{CLUSTERS, HubProcess, HubStage};
use globalps_testkit::fleet::lies::{Asked, Lie};
use globalps_testkit::fleet::members::Members;
use globalps_testkit::fleet::tenant::{TENANT, Tenant, news};
use globalps_testkit::hub::{Hub, fleet, member_secret, source};
use globalps_testkit::product::DEADLINE;
use globalps_testkit::web::Server;
use globalps_testkit::{until, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(20);
const NAME: &str = "shared";
/// Fleet of the members with endless responses, which occupy a slot of their fleet for some time.
const SLOW: &str = "slow";
const HONEST: usize = 4;
const ROUNDS: u32 = 3;
/// Maximum memory of the hub in KiB: a hundredth of what the liars send during the test.
const MEMORY: u64 = 100 << 10;
/// The same with a tenant that stores 500 MB: half of the container's memory.
const MEMORY_WITH_TENANT: u64 = 256 << 10;
/// Duration of the lies.
const TIME: Duration = Duration::from_secs(20);

/// A lie, the liar's fleet, and the phase and reason of its object, if the lie always has the same result.
type Case = (
    &'static str,
    &'static str,
    Lie,
    Option<(&'static str, &'static str)>,
);

#[test]
fn a_lying_member_changes_only_what_is_said_of_itself() {
    let elsewhere = Server::web(None, |_| (200, Vec::new(), "{}".to_owned())).unwrap();
    let stage = HubStage::up_with_tenant("hub-liars").unwrap();
    let hub = Hub::attach(stage.cluster());
    let cases = lies(&stage, &elsewhere);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let honest = [NAME; HONEST].into_iter();
    let fleets: Vec<&str> = honest.chain(cases.iter().map(|it| it.1)).collect();
    let members = Members::start(fleets.len(), Duration::from_millis(200), false, None);
    let members = runtime.block_on(members).unwrap();
    register(&hub, &members, &fleets);
    // Before it has any content, the last honest member reports the identity of another one.
    let (claimed, claimant) = (HONEST - 2, HONEST - 1);
    let uid = format!("uid-of-{}", name(claimed));
    let claims = Lie::Says(Asked::Namespace, json!({"metadata": {"uid": uid}}));
    runtime.block_on(members.lie([(claimant, Some(claims))]));
    let process = stage.start().unwrap();

    let alone = everybody_honest(&hub, &members, &fleets);
    let begun = Instant::now();
    let lies = cases.iter().map(|(_, _, lie, _)| Some(lie.clone()));
    runtime.block_on(members.lie((HONEST..).zip(lies)));
    wait_ends(&hub, &cases, NAME);
    let beside = rotate(&hub, &members, 2..=ROUNDS);
    println!(
        "a rotation, until {HONEST} honest clusters have it: {alone:.2} s alone, {beside:.2?} s with {} liars",
        cases.len()
    );
    hub.apply(&[source(CLUSTERS, SLOW, &content(1))]).unwrap();
    // Its liars already have their phases, which therefore don't show that the hub has read the source.
    wait("the revision with liars only", POLL, || {
        let fleet = hub.fleet(CLUSTERS, SLOW)?;
        Ok((fleet["status"]["revision"] == 2).then_some(()))
    });
    wait_ends(&hub, &cases, SLOW);
    std::thread::sleep(TIME.saturating_sub(begun.elapsed()));
    nothing_else_is_written(&hub, &members);
    every_word_is_short_and_plain(&hub, &fleets);
    assert_eq!(elsewhere.asked(), [""; 0], "the hub follows no redirect");
    bounded(process);

    a_member_with_another_uid_than_before_stops_itself(&hub, &members, &runtime);
    let usage = process.usage().unwrap();
    println!("the hub: {} KiB at most", usage.most_resident);
    a_tenant_harms_only_its_namespace(&stage, &hub, &members, &runtime, process);
}

/// A tenant creates 500 Secrets of 1 MB, each of which registers a cluster, is named like a revision and has the label of Cluster
/// API, and objects with ever new names. The running hub, and one that starts then, still serve the other namespaces.
fn a_tenant_harms_only_its_namespace(
    stage: &HubStage,
    hub: &Hub,
    members: &Members,
    runtime: &tokio::runtime::Runtime,
    process: HubProcess,
) {
    let client = runtime.block_on(stage.admin_client()).unwrap();
    let mut tenant = runtime.block_on(Tenant::new(client)).unwrap();
    let mut round = ROUNDS + 2;
    let mut serve = |process: HubProcess, what: &str| {
        hub.apply(&[source(CLUSTERS, NAME, &content(round))])
            .unwrap();
        for at in 0..HONEST {
            wait_has(hub, members, at, round);
        }
        round += 1;
        let most = process.usage().unwrap().most_resident;
        println!("{what}: the hub has needed {most} KiB at most");
        assert!(most < MEMORY_WITH_TENANT, "{what}: {most} KiB");
    };
    for _ in 0..5 {
        runtime.block_on(tenant.fill(100, 1_000_000, None)).unwrap();
        runtime.block_on(tenant.pass_names(100)).unwrap();
        serve(process, "more Secrets of a tenant");
    }
    let place = (TENANT, NAME, "shared-revision-1007");
    hub.wait_phase(place, ("Unreachable", "KubeconfigTooLarge"))
        .unwrap();
    stage.stop().unwrap();
    let process = stage.start().unwrap();
    serve(process, "a hub that starts");
    runtime.block_on(tenant.pass_names(100)).unwrap();
    serve(process, "it has listed everything");
    for at in 0..HONEST {
        let secret = members.secret(at).unwrap();
        let of = &secret["metadata"]["annotations"]["globalps.io/fleet"];
        assert_eq!(*of, format!("{CLUSTERS}/{NAME}"));
    }
}

/// Waits until the liars of this fleet have their expected phase and reason.
fn wait_ends(hub: &Hub, cases: &[Case], fleet: &str) {
    let of = cases.iter().enumerate().filter(|(_, case)| case.1 == fleet);
    for (at, (sentence, fleet, _, expected)) in of {
        if let Some(expected) = expected {
            hub.wait_phase((CLUSTERS, fleet, &name(HONEST + at)), *expected)
                .unwrap_or_else(|error| panic!("{sentence}: {error:#}"));
        }
    }
}

fn name(at: usize) -> String {
    format!("member-{at}")
}

fn content(round: u32) -> String {
    docker_config(&[("fleet.example.com", &format!("robot:l1es-{round}-s3cret"))])
}

fn lies(stage: &HubStage, elsewhere: &Server) -> Vec<Case> {
    let hub = get(stage.cluster(), "", "namespace/kube-system");
    let hub_uid = hub["metadata"]["uid"].as_str().unwrap();
    let status = |status: Value| Lie::Says(Asked::Watch, json!({"status": status}));
    let ready = |reason: &str, message: &str| {
        let ready = json!({
            "type": "Ready", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        status(json!({"conditions": [ready]}))
    };
    let secret = |changes: Value| Lie::Says(Asked::Secret, changes);
    let redirect = |code| Lie::Redirects(code, format!("http://{}/stolen", elsewhere.address()));
    let most = u32::MAX;
    let counts = json!({"total": most, "synced": most, "failed": most, "blocked": most});
    let escapes = "\u{1b}]0;owned\u{7}\u{1b}[2J\r\n\u{9b}31m".repeat((1 << 20) / 20);
    let away = |reason| Some(("Unreachable", reason));
    vec![
        (
            "huge numbers about an earlier spec",
            SLOW,
            status(json!({
                "observedGeneration": i64::MAX, "revision": i64::MAX, "counts": counts,
                "observedAdditional": "9".repeat(1 << 20),
            })),
            Some(("Syncing", "")),
        ),
        (
            "huge numbers about the current spec",
            NAME,
            status(json!({"revision": i64::MAX, "counts": counts})),
            Some(("Synced", "")),
        ),
        (
            "invalid numbers, with which its object can't be decoded",
            SLOW,
            status(json!({"counts": {"total": -1}})),
            Some(("Blocked", "Unreadable")),
        ),
        (
            "a long message with escape sequences",
            NAME,
            ready("NodesBlocked", &escapes),
            Some(("Blocked", "NodesBlocked")),
        ),
        (
            "a long reason with escape sequences",
            SLOW,
            ready(&escapes, ""),
            None,
        ),
        (
            "the UID of the hub's own cluster",
            NAME,
            Lie::Says(Asked::Namespace, json!({"metadata": {"uid": hub_uid}})),
            Some(("Blocked", "IdentityChanged")),
        ),
        (
            "a wrong revision after every write",
            SLOW,
            secret(json!({"metadata": {"annotations": {"globalps.io/revision": "99999"}}})),
            Some(("Syncing", "")),
        ),
        (
            "a Secret of another fleet, which exists",
            NAME,
            secret(
                json!({"metadata": {"annotations": {"globalps.io/fleet": format!("{CLUSTERS}/{SLOW}")}}}),
            ),
            Some(("Blocked", "Conflict")),
        ),
        ("a redirect", NAME, redirect(302), away("Unreachable")),
        (
            "a redirect with the same method",
            NAME,
            redirect(307),
            away("Unreachable"),
        ),
        (
            "a permanent redirect",
            NAME,
            redirect(308),
            away("Unreachable"),
        ),
        (
            "an endless Namespace",
            NAME,
            Lie::Endless(Asked::Namespace),
            away("ResponseTooLarge"),
        ),
        (
            "an endless Secret",
            NAME,
            Lie::Endless(Asked::Secret),
            away("ResponseTooLarge"),
        ),
        (
            "an endless list",
            NAME,
            Lie::Endless(Asked::List),
            away("ResponseTooLarge"),
        ),
        ("an endless event", SLOW, Lie::Endless(Asked::Watch), None),
        ("new events without end", SLOW, Lie::Events(news), None),
        (
            "the same event without end",
            SLOW,
            Lie::Events(bookmark),
            None,
        ),
        (
            "endless headers",
            NAME,
            Lie::Bytes("HTTP/1.1 200 OK\r\n", "X: y\r\n"),
            None,
        ),
        (
            "endless interim responses",
            NAME,
            Lie::Bytes("", "HTTP/1.1 100 Continue\r\n\r\n"),
            None,
        ),
    ]
}

fn bookmark(number: u64) -> Value {
    json!({"type": "BOOKMARK", "object": {
        "apiVersion": "globalps.io/v1alpha1", "kind": "GlobalPullSecret",
        "metadata": {"resourceVersion": (number + 1000).to_string()},
    }})
}

/// Registers the members' kubeconfigs, each with its fleet. The first member of a fleet is an honest canary.
fn register(hub: &Hub, members: &Members, fleets: &[&str]) {
    let secrets = members.kubeconfigs().zip(fleets).enumerate();
    let secrets = secrets.map(|(at, ((name, kubeconfig), fleet))| {
        let canary = if at == 0 { "yes" } else { "no" };
        let labels = json!({"globalps.io/cluster": "true", "fleet": fleet, "canary": canary});
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": CLUSTERS, "labels": labels},
            "stringData": {"kubeconfig": kubeconfig},
        })
    });
    hub.apply(&secrets.collect::<Vec<_>>()).unwrap();
    for (name, canary) in [(NAME, json!({"canary": "yes"})), (SLOW, json!({}))] {
        let canary = json!({"clusterSelector": {"matchLabels": canary}});
        let spec = json!({
            "registered": {"selector": {"matchLabels": {"fleet": name}}},
            "rollout": {"canary": canary, "maxUnavailable": "100%"},
        });
        hub.apply(&[
            source(CLUSTERS, name, &content(0)),
            fleet(CLUSTERS, name, &spec),
        ])
        .unwrap();
    }
}

/// Duration of a rotation in which no member lies, in seconds.
fn everybody_honest(hub: &Hub, members: &Members, fleets: &[&str]) -> f32 {
    for name in [NAME, SLOW] {
        let number = fleets.iter().filter(|fleet| **fleet == name).count();
        let message = hub.wait_ready(CLUSTERS, name, ("True", "Synced")).unwrap();
        let all = format!("revision 1 is in force in {number} of {number} clusters");
        assert_eq!(message, all);
    }
    rotate(hub, members, 1..=1)[0]
}

/// Duration of each of these rotations in seconds, until the honest members have it and their objects report it.
fn rotate(hub: &Hub, members: &Members, rounds: impl Iterator<Item = u32>) -> Vec<f32> {
    let one = |round: u32| {
        let begun = Instant::now();
        hub.apply(&[source(CLUSTERS, NAME, &content(round))])
            .unwrap();
        for at in 0..HONEST {
            wait_has(hub, members, at, round);
        }
        begun.elapsed().as_secs_f32()
    };
    rounds.map(one).collect()
}

fn has(members: &Members, at: usize, round: u32) -> bool {
    let secret = members.secret(at).unwrap_or_default();
    secret["data"][".dockerconfigjson"] == base64(&content(round))
}

/// The first rotation is the second revision.
fn wait_has(hub: &Hub, members: &Members, at: usize, round: u32) {
    until(&format!("{} has it", name(at)), DEADLINE, POLL, || {
        let status = hub.cluster(CLUSTERS, NAME, &name(at))?["status"].clone();
        let is_said = status["phase"] == "Synced" && status["revision"] == round + 1;
        Ok((is_said && has(members, at, round)).then_some(()))
    })
    .unwrap_or_else(|error| {
        let fleet = hub.fleet(CLUSTERS, NAME).unwrap();
        panic!("{error:#}: {:#}", fleet["status"])
    });
}

/// The revision increases only when the source changes.
fn nothing_else_is_written(hub: &Hub, members: &Members) {
    let shared = hub.fleet(CLUSTERS, NAME).unwrap();
    assert_eq!(shared["status"]["revision"], ROUNDS + 1);
    let slow = hub.fleet(CLUSTERS, SLOW).unwrap();
    assert_eq!(slow["status"]["revision"], 2);
    let label = format!("globalps.io/fleet={NAME}");
    let label = ["get", "secrets", "-n", CLUSTERS, "-l", &label, "-o", "name"];
    let revisions = hub.management().kubectl(&label).unwrap();
    let newest = format!("secret/{NAME}-revision-{}", ROUNDS + 1);
    assert_eq!(
        revisions.lines().last(),
        Some(newest.as_str()),
        "{revisions}"
    );
    assert!(member_secret(hub.management()).unwrap().is_null());
    for at in 0..HONEST {
        assert!(has(members, at, ROUNDS), "{}", name(at));
    }
}

/// The messages of each ClusterPullSecret, and of the fleet.
fn every_word_is_short_and_plain(hub: &Hub, fleets: &[&str]) {
    let plain = |text: &str, what: &str| {
        assert!(
            text.chars().count() <= MESSAGE_LIMIT,
            "{what}: {}",
            text.len()
        );
        assert!(!text.chars().any(char::is_control), "{what}: {text:?}");
    };
    for (at, fleet) in fleets.iter().enumerate() {
        let status = hub.cluster(CLUSTERS, fleet, &name(at)).unwrap()["status"].clone();
        for field in ["reason", "message"] {
            plain(status[field].as_str().unwrap_or_default(), &name(at));
        }
        assert!(
            status["revision"].as_u64() <= Some(u64::from(ROUNDS) + 1),
            "{status:#}"
        );
    }
    let status = hub.fleet(CLUSTERS, NAME).unwrap()["status"].clone();
    let failures = status["failures"].as_array().cloned().unwrap_or_default();
    let has_changed = |it: &&Value| it["reason"] == "IdentityChanged";
    assert!(failures.iter().any(|it| has_changed(&it)), "{failures:#?}");
    for failure in &failures {
        plain(failure["message"].as_str().unwrap(), "of the fleet");
    }
    let size = status.to_string().len();
    println!("{} clusters are named in {size} bytes", failures.len());
    assert!(size < 64 << 10, "{size}");
}

fn bounded(process: HubProcess) {
    let before = process.usage().unwrap();
    std::thread::sleep(Duration::from_secs(5));
    let usage = process.usage().unwrap();
    let busy = (usage.processor - before.processor).as_secs_f32() / 5.0;
    println!(
        "the hub with the liars: {} KiB, {} KiB at most, {:.0} % of a CPU",
        usage.resident,
        usage.most_resident,
        busy * 100.0
    );
    assert!(usage.most_resident < MEMORY, "{} KiB", usage.most_resident);
}

/// The member no longer claims the UID of another one, with which it got its content.
fn a_member_with_another_uid_than_before_stops_itself(
    hub: &Hub,
    members: &Members,
    runtime: &tokio::runtime::Runtime,
) {
    let claimant = HONEST - 1;
    runtime.block_on(members.lie([(claimant, None)]));
    let changed = ("Blocked", "IdentityChanged");
    let place = (CLUSTERS, NAME, &*name(claimant));
    hub.wait_phase(place, changed).unwrap();
    let round = ROUNDS + 1;
    hub.apply(&[source(CLUSTERS, NAME, &content(round))])
        .unwrap();
    for at in 0..claimant {
        wait_has(hub, members, at, round);
    }
    assert!(has(members, claimant, ROUNDS), "it gets nothing");
    hub.fleet_command(&["accept", NAME, &name(claimant), "-n", CLUSTERS])
        .unwrap();
    wait_has(hub, members, claimant, round);
}
