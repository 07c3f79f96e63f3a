//! Tests with a fake systemd: a bus with one peer, on a socket in a temporary directory.

#![expect(
    clippy::unused_self,
    clippy::used_underscore_binding,
    reason = "D-Bus defines the methods' signatures"
)]

use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use tokio::net::{UnixListener, UnixStream as Stream};
use tokio::task::JoinHandle;
use zbus::fdo;
use zbus::message::Message;
use zbus::{ObjectPath, OwnedObjectPath};

use super::bus::ExecCommand;
use super::facts::uptime;
use super::*;

const NAME: &str = "kubelet.service";
const MANAGER: &str = "/org/freedesktop/systemd1";
const UNIT: &str = "/org/freedesktop/systemd1/unit/kubelet";
const WORKER: &str = "/org/freedesktop/systemd1/unit/worker";
const ABSENT: &str = "/org/freedesktop/systemd1/unit/absent";
const LEFTOVER: &str = "/org/freedesktop/systemd1/unit/leftover";
const JOB: &str = "/org/freedesktop/systemd1/job/7";
/// The fake's name on the bus: signals count only from the expected sender.
const SENDER: &str = ":1.2";

/// The fake's reaction to a restart request.
#[derive(Clone, Copy)]
enum Answer {
    /// The job ends with this result. If it is `done`, the unit is active from a new start.
    Job(&'static str),
    /// `done`, but the new start is visible only after a while.
    Late,
    /// `done`, but the unit fails right after.
    Dies,
    /// The call itself is an error.
    Error,
    /// systemd does not answer, and the bus says so.
    NoReply,
    /// The job never ends.
    Never,
}

struct Facts {
    /// The only unit, apart from the leftover one.
    name: &'static str,
    leftover: Option<Fake>,
    /// The answer to a query of the unit's state, instead of the state.
    state_error: Option<fn(String) -> fdo::Error>,
    /// Like the error above, for the list of the unit's processes.
    processes_error: Option<fn(String) -> fdo::Error>,
    answer: Answer,
    load_state: &'static str,
    active_state: &'static str,
    invocation: u8,
    starts_by_itself: u32,
    /// A job is in progress for this many queries.
    job_for: u32,
    /// Path of its command, and the command line of its process.
    program: &'static str,
    process: &'static str,
    /// The unit that stays active only on `MicroK8s` workers, and since which second.
    worker: Option<u64>,
    calls: Vec<String>,
}

impl Facts {
    fn leftover_name(&self) -> Option<&'static str> {
        self.leftover.as_ref().map(|it| it.with(|facts| facts.name))
    }
}

#[derive(Clone)]
struct Fake(Arc<Mutex<Facts>>);

impl Fake {
    fn new(answer: Answer) -> Self {
        Self(Arc::new(Mutex::new(Facts {
            name: NAME,
            leftover: None,
            state_error: None,
            processes_error: None,
            answer,
            load_state: "loaded",
            active_state: "active",
            invocation: 1,
            starts_by_itself: 0,
            job_for: 0,
            program: "/usr/bin/kubelet",
            process: "/usr/bin/kubelet --v=2",
            worker: None,
            calls: Vec::new(),
        })))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Facts) -> T) -> T {
        f(&mut self.0.lock().expect("no test panics with it"))
    }

    fn calls(&self) -> Vec<String> {
        self.with(|facts| facts.calls.clone())
    }
}

struct Bus;

#[zbus::interface(name = "org.freedesktop.DBus")]
impl Bus {
    fn hello(&self) -> &'static str {
        ":1.1"
    }
    fn add_match(&self, _rule: &str) {}
    fn remove_match(&self, _rule: &str) {}
    fn get_name_owner(&self, _name: &str) -> &'static str {
        SENDER
    }
}

struct FakeManager(Fake);

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl FakeManager {
    fn subscribe(&self) {
        self.0.with(|facts| facts.calls.push("Subscribe".into()));
    }

    fn load_unit(&self, name: &str) -> OwnedObjectPath {
        let is_worker = name == "snap.microk8s.daemon-apiserver-proxy.service";
        path(self.0.with(|facts| match facts.worker {
            _ if facts.name == name => UNIT,
            _ if facts.leftover_name() == Some(name) => LEFTOVER,
            Some(_) if is_worker => WORKER,
            _ => ABSENT,
        }))
    }

    fn get_unit_processes(&self, name: &str) -> fdo::Result<Vec<(String, u32, String)>> {
        let leftover = self.0.with(|facts| facts.leftover.clone());
        let unit = leftover.filter(|it| it.with(|facts| facts.name == name));
        let unit = unit.unwrap_or_else(|| self.0.clone());
        let (process, error) = unit.with(|facts| (facts.process.to_owned(), facts.processes_error));
        if let Some(error) = error {
            return Err(error("Input/output error".to_owned()));
        }
        if process.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![("/system.slice/x.service".to_owned(), 7, process)])
    }

    fn reset_failed_unit(&self, name: &str) {
        self.0
            .with(|facts| facts.calls.push(format!("ResetFailedUnit {name}")));
    }

    async fn restart_unit(
        &self,
        name: &str,
        mode: &str,
        #[zbus(connection)] connection: &Connection,
    ) -> fdo::Result<OwnedObjectPath> {
        let call = format!("RestartUnit {name} {mode}");
        let answer = self.0.with(|facts| {
            facts.calls.push(call);
            facts.answer
        });
        let result = match answer {
            Answer::Error => return Err(fdo::Error::AccessDenied("not you".into())),
            Answer::NoReply => return Err(fdo::Error::NoReply("no reply".into())),
            Answer::Never => return Ok(path(JOB)),
            Answer::Job(result) => result,
            Answer::Late | Answer::Dies => "done",
        };
        let fake = self.0.clone();
        match answer {
            Answer::Late => {
                tokio::spawn(async move {
                    sleep(Duration::from_millis(200)).await;
                    fake.with(|facts| facts.invocation = 2);
                });
            }
            Answer::Dies => fake.with(|facts| {
                facts.active_state = "failed";
                facts.invocation = 2;
            }),
            _ if result == "done" => fake.with(|facts| facts.invocation = 2),
            _ => {}
        }
        // A foreign job ends first, then this one, both before the call returns: none may be missed or confused.
        for (job, result) in [("/org/freedesktop/systemd1/job/6", "failed"), (JOB, result)] {
            let body = (7_u32, path(job), name, result);
            let signal = Message::signal(MANAGER, "org.freedesktop.systemd1.Manager", "JobRemoved")
                .sender(SENDER)
                .build(&body)?;
            connection.send(&signal).await?;
        }
        Ok(path(JOB))
    }
}

struct FakeUnit(Fake);

#[zbus::interface(name = "org.freedesktop.systemd1.Unit")]
impl FakeUnit {
    #[zbus(property)]
    fn load_state(&self) -> &'static str {
        self.0.with(|facts| facts.load_state)
    }
    #[zbus(property)]
    fn active_state(&self) -> fdo::Result<&'static str> {
        let (state, error) = self.0.with(|facts| (facts.active_state, facts.state_error));
        error.map_or(Ok(state), |error| Err(error("no state".to_owned())))
    }
    #[zbus(property, name = "InvocationID")]
    fn invocation_id(&self) -> Vec<u8> {
        vec![self.0.with(|facts| facts.invocation); 16]
    }
    #[zbus(property)]
    fn active_enter_timestamp(&self) -> u64 {
        self.0.with(|facts| facts.worker).map_or(5, |second| second) * 1_000_000
    }
    /// The other clock may say anything.
    #[zbus(property)]
    fn active_enter_timestamp_monotonic(&self) -> u64 {
        self.active_enter_timestamp()
    }
    #[zbus(property)]
    fn job(&self) -> (u32, OwnedObjectPath) {
        self.0.with(|facts| match facts.job_for.checked_sub(1) {
            Some(left) => {
                facts.job_for = left;
                // The job is the start, and ends with it.
                if left == 0 {
                    facts.invocation = 2;
                }
                (7, path(JOB))
            }
            None => (0, path("/")),
        })
    }
}

struct FakeService(Fake);

#[zbus::interface(name = "org.freedesktop.systemd1.Service")]
impl FakeService {
    #[zbus(property, name = "NRestarts")]
    fn n_restarts(&self) -> u32 {
        self.0.with(|facts| facts.starts_by_itself)
    }
    #[zbus(property)]
    fn exec_start(&self) -> Vec<ExecCommand> {
        let program = self.0.with(|facts| facts.program.to_owned());
        let arguments = vec![program.clone(), "kubelet".to_owned()];
        vec![(program, arguments, false, 0, 0, 0, 0, 0, 0, 0)]
    }
    #[zbus(property)]
    fn environment_files(&self) -> Vec<(String, bool)> {
        vec![("/var/lib/kubelet/kubeadm-flags.env".to_owned(), true)]
    }
}

fn path(path: &'static str) -> OwnedObjectPath {
    ObjectPath::from_static_str_unchecked(path).into()
}

/// A node whose bus and kubelet answer while this lives.
struct Node {
    systemd: Systemd,
    _directory: tempfile::TempDir,
    _kubelet: UnixListener,
    bus: JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.bus.abort();
    }
}

fn node(fake: &Fake) -> Node {
    let directory = tempfile::tempdir().expect("a directory");
    let (bus, socket) = (
        directory.path().join("bus"),
        directory.path().join("kubelet"),
    );
    let listener = UnixListener::bind(&bus).expect("a bus");
    let fake = fake.clone();
    let accept = tokio::spawn(async move {
        let mut peers = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            peers.push(tokio::spawn(serve(stream, fake.clone())));
        }
    });
    Node {
        systemd: Systemd {
            bus,
            unit: NAME.to_owned(),
            socket: socket.clone(),
        },
        _kubelet: UnixListener::bind(socket).expect("a kubelet"),
        _directory: directory,
        bus: accept,
    }
}

async fn serve(stream: Stream, fake: Fake) {
    let stream = stream.into_std().expect("a socket");
    let leftover = fake.with(|facts| facts.leftover.clone());
    let absent = Fake::new(Answer::Error);
    absent.with(|facts| facts.load_state = "not-found");
    let connection = zbus::connection::Builder::unix_stream(stream)
        .server(zbus::Guid::generate())
        .p2p()
        .serve_at("/org/freedesktop/DBus", Bus)
        .serve_at(MANAGER, FakeManager(fake.clone()))
        .serve_at(UNIT, FakeUnit(fake.clone()))
        .serve_at(UNIT, FakeService(fake.clone()))
        .serve_at(WORKER, FakeUnit(fake.clone()))
        .serve_at(WORKER, FakeService(fake))
        .serve_at(
            LEFTOVER,
            FakeUnit(leftover.clone().unwrap_or(absent.clone())),
        )
        .serve_at(LEFTOVER, FakeService(leftover.unwrap_or(absent.clone())))
        .serve_at(ABSENT, FakeUnit(absent.clone()))
        .serve_at(ABSENT, FakeService(absent))
        .build()
        .await
        .expect("a peer");
    connection.closed().await;
}

#[tokio::test]
async fn every_job_result_other_than_done_is_a_reported_failure() {
    for (answer, expected) in [
        (Answer::Job("done"), Ok(())),
        (Answer::Job("failed"), Err("ended as `failed`")),
        (Answer::Job("timeout"), Err("ended as `timeout`")),
        (Answer::Job("canceled"), Err("ended as `canceled`")),
        (Answer::Job("dependency"), Err("ended as `dependency`")),
        (Answer::Job("skipped"), Err("ended as `skipped`")),
        (Answer::Job("invalid"), Err("ended as `invalid`")),
        (Answer::Job("assert"), Err("ended as `assert`")),
        (Answer::Job("unsupported"), Err("ended as `unsupported`")),
        (Answer::Job("collected"), Err("ended as `collected`")),
        (Answer::Job("once"), Err("ended as `once`")),
        (Answer::Job("frozen"), Err("ended as `frozen`")),
        (Answer::Job("concurrency"), Err("ended as `concurrency`")),
        (
            Answer::Error,
            Err("systemd did not restart `kubelet.service`"),
        ),
        (
            Answer::Dies,
            Err("`kubelet.service` was started but is failed again"),
        ),
    ] {
        let fake = Fake::new(answer);
        let node = node(&fake);
        let result = node.systemd.restart(false).await;
        match (result, expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(words)) => {
                assert!(error.to_string().contains(words), "{error}, not {words}");
            }
            (result, _) => panic!("{result:?}, not {expected:?}"),
        }
        assert_eq!(
            fake.calls(),
            ["Subscribe", "RestartUnit kubelet.service replace"]
        );
    }
}

#[tokio::test]
async fn a_unit_that_failed_is_reset_before_it_is_started_again() {
    let fake = Fake::new(Answer::Job("done"));
    node(&fake).systemd.restart(true).await.expect("it starts");
    assert_eq!(
        fake.calls(),
        [
            "Subscribe",
            "ResetFailedUnit kubelet.service",
            "RestartUnit kubelet.service replace"
        ]
    );
}

#[tokio::test]
async fn the_kubelet_before_the_restart_does_not_count() {
    let fake = Fake::new(Answer::Late);
    let node = node(&fake);
    // Its socket always accepts connections; only the start is new, and late.
    let facts = node.systemd.restart(false).await.expect("it starts");
    assert_eq!(facts.invocation, vec![2; 16]);
}

#[tokio::test]
async fn an_unknown_unit_is_reported_and_not_restarted() {
    for state in ["not-found", "masked", "bad-setting"] {
        let fake = Fake::new(Answer::Job("done"));
        fake.with(|facts| facts.load_state = state);
        let error = node(&fake).systemd.restart(false).await.expect_err(state);
        let message = format!("systemd has no unit `kubelet.service` (state: {state})");
        assert_eq!(error.to_string(), message);
        assert!(fake.calls().is_empty());
    }
}

#[tokio::test]
async fn a_job_that_never_ends_ends_the_waiting() {
    let fake = Fake::new(Answer::Never);
    let node = node(&fake);
    let systemd = node.systemd.clone();
    let restart = tokio::spawn(async move { systemd.restart(false).await });
    while fake.calls().len() < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    sleep(Duration::from_millis(50)).await;
    tokio::time::pause();
    let error = restart.await.expect("no panic").expect_err("no end");
    assert!(matches!(error, RestartError::JobTimeout { .. }), "{error}");
}

#[tokio::test]
async fn an_absent_or_unresponsive_bus_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut systemd = Systemd {
        bus: directory.path().join("away"),
        unit: NAME.to_owned(),
        socket: directory.path().join("kubelet"),
    };
    let error = systemd.restart(false).await.expect_err("no bus");
    assert!(
        error.to_string().contains("/away` does not respond"),
        "{error}"
    );

    systemd.bus = directory.path().join("silent");
    let _listener = UnixListener::bind(&systemd.bus).expect("a socket");
    tokio::time::pause();
    let error = systemd.restart(false).await.expect_err("no answer");
    assert!(matches!(error, RestartError::Unresponsive), "{error}");
}

#[tokio::test]
async fn a_restart_is_needed_unless_the_kubelet_started_later() {
    let fake = Fake::new(Answer::Never);
    let node = node(&fake);
    // The unit has been active since second 5.
    for (second, state, serves) in [
        (4, "active", true),
        (5, "active", false),
        (6, "active", false),
        (4, "failed", false),
    ] {
        fake.with(|facts| facts.active_state = state);
        let since = Since::Time(UNIX_EPOCH + Duration::from_secs(second));
        let facts = node.systemd.serves_since(&since).await.expect("it answers");
        assert_eq!(facts.is_some(), serves, "written at {second}, {state}");
    }
}

#[test]
fn a_deliberate_restart_or_stop_is_not_a_death() {
    let unit = |active_state: &str, invocation: u8, restarts| UnitFacts {
        active_state: active_state.to_owned(),
        invocation: vec![invocation],
        active_since: UNIX_EPOCH,
        active_from: Duration::ZERO,
        restarts,
        has_job: false,
    };
    let before = unit("active", 1, 3);
    for (now, died) in [
        (unit("active", 1, 3), false),
        (unit("active", 2, 0), false),
        (unit("active", 2, 4), true),
        (unit("failed", 1, 3), true),
        (unit("inactive", 1, 3), false),
    ] {
        assert_eq!(now.has_died_since(&before), died, "{now:?}");
    }
}

#[tokio::test]
async fn a_restart_requested_before_is_awaited() {
    let first = "01".repeat(16);
    for (sentence, job_for, since, serves) in [
        ("a different start", 0, "00".repeat(16), true),
        (
            "the same start: no restart happened",
            0,
            first.clone(),
            false,
        ),
        (
            "the job is still in progress, and is the start",
            3,
            first,
            true,
        ),
    ] {
        let fake = Fake::new(Answer::Never);
        fake.with(|facts| facts.job_for = job_for);
        let node = node(&fake);
        let facts = node.systemd.serves_since(&Since::Start(since)).await;
        assert_eq!(facts.expect("it answers").is_some(), serves, "{sentence}");
    }
}

#[tokio::test]
async fn the_kubelets_unit_is_found_and_no_control_plane_restarted() {
    use crate::node::kubelet::{KubeletUnit, Restartable};
    const SERVERS: [&str; 3] = ["k3s.service", "rke2-server.service", "microshift.service"];
    #[rustfmt::skip]
    let cases = [
        ("kubelet.service", "active", None),
        ("k3s-agent.service", "active", None),
        ("rke2-agent.service", "activating", None),
        ("rke2-agent.service", "failed", Some("a kubelet serves at `")),
        ("snap.microk8s.daemon-kubelite.service", "active", Some("also runs the control plane, unless")),
        ("k3s.service", "active", Some("`k3s.service` also runs the control plane")),
        ("rke2-server.service", "active", Some("also runs the control plane")),
        ("microshift.service", "active", Some("also runs the control plane")),
        ("kubelet.service", "inactive", Some("but none of the units")),
        ("kubelet.service", "masked", Some("`kubelet.service` is masked")),
        ("another.service", "active", Some("none of the units")),
    ];
    for (name, state, expected) in cases {
        let fake = Fake::new(Answer::Error);
        fake.with(|facts| {
            (facts.name, facts.active_state) = (name, state);
            if state == "masked" {
                // The unit runs, but systemd has reloaded its definition since.
                (facts.active_state, facts.load_state) = ("active", "masked");
            }
        });
        let node = node(&fake);
        let mut unit = KubeletUnit::new(Systemd {
            unit: "Auto".to_owned(),
            ..node.systemd.clone()
        });
        match (
            unit.restartable(None, false)
                .await
                .expect("systemd answers"),
            expected,
        ) {
            (Restartable::Yes, None) => assert_eq!(unit.systemd.unit(), name),
            (Restartable::No(reason) | Restartable::Elsewhere(reason), Some(words)) => {
                assert!(reason.contains(words), "{reason}");
                assert!(!SERVERS.contains(&name), "it stays one");
            }
            (Restartable::Never(reason), Some(words)) => {
                assert!(reason.contains(words), "{reason}");
                assert!(SERVERS.contains(&name), "it may come back");
            }
            (found, _) => panic!("{name}, {state}: {found:?}"),
        }
    }
    let mut unit = KubeletUnit::new(Systemd {
        bus: "/nowhere/bus".into(),
        unit: "Auto".to_owned(),
        socket: "/nowhere/kubelet".into(),
    });
    let found = unit
        .restartable(None, false)
        .await
        .expect("no bus is an answer");
    assert!(matches!(found, Restartable::No(reason) if reason.contains("no system bus")));
}

/// The unit that runs the kubelet may be one that globalps doesn't know.
#[tokio::test]
async fn a_unit_that_is_down_is_not_started_beside_a_serving_kubelet() {
    use crate::node::kubelet::{KubeletUnit, Restartable};
    #[rustfmt::skip]
    let cases = [
        ("a failed leftover", "Auto", "failed", "", None, true, false),
        ("it starts again and again", "Auto", "activating", "", None, true, false),
        ("it is being started", "Auto", "activating", "kubelet", None, true, true),
        ("no kubelet serves", "Auto", "failed", "", None, false, true),
        ("globalps restarted it", "Auto", "failed", "", Some(NAME), true, true),
        ("also to nothing", "Auto", "inactive", "", Some(NAME), true, true),
        ("by the configuration", NAME, "inactive", "", None, true, false),
        ("and no kubelet serves", NAME, "inactive", "", None, false, true),
        ("it was just restarted", NAME, "failed", "", Some(NAME), true, true),
        ("it runs", NAME, "active", "kubelet", None, true, true),
    ];
    for (sentence, unit, state, process, restarted, serves, is_restarted) in cases {
        let fake = Fake::new(Answer::Error);
        fake.with(|facts| (facts.active_state, facts.process) = (state, process));
        let node = node(&fake);
        let socket = if serves { "kubelet" } else { "absent" };
        let mut unit = KubeletUnit::new(Systemd {
            unit: unit.to_owned(),
            socket: node.systemd.socket.with_file_name(socket),
            ..node.systemd.clone()
        });
        let found = unit.restartable(restarted, restarted.is_some()).await;
        match found.expect("systemd answers") {
            Restartable::Yes => assert!(is_restarted, "{sentence}"),
            Restartable::Elsewhere(reason) => {
                assert!(!is_restarted, "{sentence}: {reason}");
                assert!(
                    reason.contains(&format!("but `{NAME}` is {state}")),
                    "{reason}"
                );
            }
            found => panic!("{sentence}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_kubelet_in_another_unit_is_found_before_the_next_restart() {
    use crate::node::kubelet::{KubeletUnit, Restartable};
    const AGENT: &str = "k3s-agent.service";
    let (fake, other) = (Fake::new(Answer::Error), Fake::new(Answer::Error));
    fake.with(|facts| (facts.name, facts.leftover) = (AGENT, Some(other.clone())));
    let are = |agent, kubelet| {
        fake.with(|facts| facts.active_state = agent);
        other.with(|facts| facts.active_state = kubelet);
    };
    are("active", "inactive");
    let node = node(&fake);
    let mut unit = KubeletUnit::new(Systemd {
        unit: "Auto".to_owned(),
        ..node.systemd.clone()
    });
    let found = unit.restartable(None, false).await.expect("it answers");
    assert_eq!((found, unit.systemd.unit()), (Restartable::Yes, AGENT));
    let moved = unit.moved(Some(AGENT), false).await.expect("it answers");
    assert_eq!(moved, None, "it runs there");

    are("inactive", "active");
    let moved = unit.moved(Some(AGENT), false).await.expect("it answers");
    assert_eq!(moved, Some(Restartable::Yes));
    assert_eq!(unit.systemd.unit(), NAME);
    are("active", "failed");
    let found = unit.restartable(Some(NAME), false).await;
    assert_eq!(found.expect("it answers"), Restartable::Yes);
    assert_eq!(unit.systemd.unit(), AGENT);

    // Moved to an unknown unit.
    are("inactive", "inactive");
    let moved = unit.moved(Some(AGENT), false).await.expect("it answers");
    assert!(
        matches!(moved, Some(Restartable::Elsewhere(_))),
        "{moved:?}"
    );
    let moved = unit.moved(Some(AGENT), true).await.expect("it answers");
    assert_eq!(moved, Some(Restartable::Yes), "it is down after a restart");
    unit.systemd.socket = node.systemd.socket.with_file_name("absent");
    let moved = unit.moved(Some(AGENT), false).await.expect("it answers");
    assert_eq!(
        moved, None,
        "another process stopped it, and a restart starts it"
    );
    node.bus.abort();
    let moved = unit
        .moved(Some(AGENT), false)
        .await
        .expect("the change says it");
    assert_eq!(moved, None);
}

#[tokio::test]
async fn microk8s_is_restarted_after_a_minute_as_a_worker() {
    use crate::node::kubelet::{KubeletUnit, Restartable};
    const KUBELITE: &str = "snap.microk8s.daemon-kubelite.service";
    let now = uptime().as_secs();
    for (worker, state, is_restarted) in [
        (Some(now - 90), "active", true),
        (Some(now - 5), "active", false),
        (Some(now - 90), "activating", false),
        (None, "active", false),
    ] {
        let fake = Fake::new(Answer::Error);
        fake.with(|facts| {
            (facts.name, facts.worker, facts.active_state) = (KUBELITE, worker, state);
        });
        let node = node(&fake);
        let mut unit = KubeletUnit::new(Systemd {
            unit: "Auto".to_owned(),
            ..node.systemd.clone()
        });
        let found = unit
            .restartable(None, false)
            .await
            .expect("systemd answers");
        assert_eq!(
            found == Restartable::Yes,
            is_restarted,
            "{worker:?} {state}"
        );
        // Queried again, because the node may have just booted.
        if worker.is_some_and(|since| now - since < 60) {
            fake.with(|facts| facts.worker = Some(now - 90));
            let found = unit
                .restartable(None, false)
                .await
                .expect("systemd answers");
            assert_eq!(found, Restartable::Yes);
        }
    }
}

#[tokio::test]
async fn a_configured_unit_is_restarted_only_if_it_runs_a_kubelet() {
    use crate::node::kubelet::{Kubelet as _, KubeletError, KubeletUnit};
    for (name, program, process, is_restarted) in [
        ("kubelet.service", "/usr/bin/anything", "anything", true),
        ("own.service", "/opt/bin/kubelet", "", true),
        ("own.service", "/bin/sh", "/opt/bin/kubelet --v=2", true),
        ("own.service", "/usr/local/bin/k0s", "", true),
        ("own.service", "/bin/sh", "sleep 9", false),
        ("systemd-poweroff.service", "/usr/bin/systemctl", "", false),
        (
            "own.service",
            "/usr/bin/logger",
            "logger /usr/bin/kubelet",
            false,
        ),
    ] {
        let fake = Fake::new(Answer::Job("done"));
        fake.with(|facts| (facts.name, facts.program, facts.process) = (name, program, process));
        let node = node(&fake);
        let mut unit = KubeletUnit::new(Systemd {
            unit: name.to_owned(),
            ..node.systemd.clone()
        });
        for result in [unit.invocation().await.map(drop), unit.restart(false).await] {
            match result {
                Ok(()) => assert!(is_restarted, "{name} {program}"),
                Err(KubeletError::Kubelet(error)) => {
                    assert!(!is_restarted, "{name} {program}: {error}");
                    assert!(error.contains("does not run a kubelet"), "{error}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        let has_restarted = fake.calls().iter().any(|call| call.starts_with("Restart"));
        assert_eq!(has_restarted, is_restarted, "{name} {program}");
    }
}

#[tokio::test]
async fn a_leftover_unit_is_not_restarted_beside_the_kubelets() {
    use crate::node::kubelet::{KubeletError, KubeletUnit, Restartable};
    const AGENT: &str = "k3s-agent.service";
    #[rustfmt::skip]
    let cases = [
        ("its kubelet failed", "failed", "", None, Some(AGENT)),
        ("it has no kubelet", "active", "sleep 9", None, Some(AGENT)),
        ("it starts again and again", "activating", "", None, Some(AGENT)),
        ("both may be the one", "active", "/usr/bin/kubelet", None, None),
        ("globalps last restarted this one", "active", "/usr/bin/kubelet", Some(AGENT), Some(AGENT)),
        ("globalps restarted the failed one before the node moved", "failed", "", Some("kubelet.service"), Some(AGENT)),
    ];
    for (sentence, state, leftover_process, restarted, expected) in cases {
        let now = uptime();
        let leftover = Fake::new(Answer::Error);
        leftover.with(|facts| {
            (facts.active_state, facts.process) = (state, leftover_process);
            facts.worker = Some(now.as_secs());
        });
        let fake = Fake::new(Answer::Job("done"));
        fake.with(|facts| {
            (facts.name, facts.process) = (AGENT, "/usr/local/bin/k3s agent");
            facts.worker = Some(now.as_secs());
            facts.leftover = Some(leftover);
        });
        let node = node(&fake);
        let mut unit = KubeletUnit::new(Systemd {
            unit: "Auto".to_owned(),
            ..node.systemd.clone()
        });
        match (unit.restartable(restarted, false).await, expected) {
            (Ok(Restartable::Yes), Some(name)) => {
                assert_eq!(unit.systemd.unit(), name, "{sentence}");
            }
            (Err(KubeletError::Kubelet(error)), None) => {
                assert!(error.contains("spec.kubelet.unit"), "{sentence}: {error}");
            }
            (found, _) => panic!("{sentence}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn an_error_that_systemd_answers_is_not_a_silent_bus() {
    let errors: [(fn(String) -> fdo::Error, bool); 8] = [
        (fdo::Error::IOError, true),
        (fdo::Error::AccessDenied, true),
        (fdo::Error::LimitsExceeded, true),
        (fdo::Error::UnknownMethod, true),
        (fdo::Error::ServiceUnknown, true),
        (fdo::Error::NoReply, false),
        (fdo::Error::TimedOut, false),
        (fdo::Error::Disconnected, false),
    ];
    for (error, is_of_systemd) in errors {
        let fake = Fake::new(Answer::Error);
        fake.with(|facts| facts.state_error = Some(error));
        let found = node(&fake).systemd.facts().await.expect_err("no state");
        let of_both = (found.is_of_systemd(), found.is_of_the_bus());
        assert_eq!(of_both, (is_of_systemd, !is_of_systemd), "{found}");
    }
    let fake = Fake::new(Answer::NoReply);
    let found = node(&fake).systemd.restart(false).await;
    let found = found.expect_err("no reply");
    assert!(found.is_of_the_bus(), "{found}");
}

#[tokio::test]
async fn a_unit_whose_processes_are_not_listed_is_restarted() {
    use crate::node::kubelet::{Kubelet as _, KubeletError, KubeletUnit};
    for (name, program, is_restarted) in [
        (NAME, "/usr/bin/kubelet", true),
        ("own.service", "/opt/bin/kubelet", true),
        ("own.service", "/bin/sh", false),
    ] {
        let fake = Fake::new(Answer::Job("done"));
        fake.with(|facts| {
            (facts.name, facts.program) = (name, program);
            facts.processes_error = Some(fdo::Error::IOError);
        });
        let node = node(&fake);
        let mut unit = KubeletUnit::new(Systemd {
            unit: name.to_owned(),
            ..node.systemd.clone()
        });
        let flags = std::path::Path::new("/var/lib/kubelet/kubeadm-flags.env");
        let ignored = unit.ignores_flags(flags, flags).await;
        ignored.expect("the processes are not needed");
        match unit.restart(false).await {
            Ok(()) => assert!(is_restarted, "{name} {program}"),
            Err(KubeletError::Systemd(error)) => {
                assert!(!is_restarted, "{name} {program}: {error}");
                assert!(error.contains("Input/output error"), "{error}");
            }
            Err(error) => panic!("{error}"),
        }
        let listed = unit.provider_flag().await;
        assert!(
            matches!(listed, Err(KubeletError::Systemd(_))),
            "{listed:?}"
        );
    }
}
