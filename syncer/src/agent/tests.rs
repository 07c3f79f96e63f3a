//! The agent of a node whose object is in memory. It reaches no API server and restarts nothing.

use std::fs;
use std::path::Path;

use globalps_core::api::{NodePullSecret, NodePullSecretSpec, NodePullSecretStatus, Phase};
use globalps_core::names::FORGET_ANNOTATION;
use globalps_core::reasons::Reason;
use globalps_core::rollout::RevisionId;
use globalps_provider::{ProviderConfig, render_data};
use tempfile::TempDir;

use super::*;
use crate::node::drift::MAX_CONFLICTS;
use crate::node::managed::ManagedEntries;
use crate::node::provider::HostPath;
use crate::node::state::{
    ChangeStep, FailedTask, InstalledProvider, PendingChange, ProviderChange, ProviderSide, SetUp,
};
use crate::report::writer::StatusReport;

const OURS: &str = r#"{"auths":{"r":{"auth":"dTpw"}}}"#;

struct Node {
    directory: TempDir,
    agent: Agent,
    objects: watch::Sender<SeenObject>,
    reports: watch::Receiver<Option<StatusReport>>,
}

/// 0: none.
fn revision(number: i64) -> Revision {
    let id = RevisionId::from_random(u64::from(number > 0));
    Revision::new(number, id)
}

/// A node with this state on its disk.
fn node(restores_only: bool, state: Option<&JournalState>) -> Node {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let path = at("config.json");
    if let Some(state) = state {
        Journal::next_to(&path, "a").save(state).unwrap();
    }
    let host = HostPath {
        here: path.clone(),
        host: path.clone(),
    };
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = kube::Client::try_from(nowhere).unwrap();
    let options = Options {
        config_file: path,
        provider: Provider::new(at("program"), &host, None),
        ready_file: at("ready"),
        restart: false,
        restores_only,
    };
    let systemd = Systemd {
        bus: at("bus"),
        unit: "kubelet.service".to_owned(),
        socket: at("socket"),
    };
    let mut agent = Agent::new(options, Cluster::new(client, "kube-system", "a"), systemd);
    let (objects, known) = watch::channel(SeenObject::Nothing);
    let (sender, reports) = watch::channel(None);
    agent.assigned.objects = known;
    agent.reporter = StatusReporter::new(sender, at("ready"));
    Node {
        directory,
        agent,
        objects,
        reports,
    }
}

/// Assigns this revision; 0: none.
fn object(number: i64, generation: i64) -> NodePullSecret {
    let Revision { number, id } = revision(number);
    let spec = NodePullSecretSpec {
        revision: number,
        revision_id: id,
        ..NodePullSecretSpec::default()
    };
    let mut object = NodePullSecret::new("a", spec);
    object.metadata.uid = Some("u".to_owned());
    object.metadata.generation = Some(generation);
    object
}

fn with_revision(number: i64) -> JournalState {
    let mut state = JournalState::new(FileSnapshot::Absent, 0);
    state.revision = revision(number);
    state
}

/// A change from revision 4.
fn change(number: i64, target: &str) -> PendingChange {
    PendingChange {
        task: Task {
            uid: "u".to_owned(),
            generation: 1,
            revision: revision(number),
        },
        step: ChangeStep::Forward,
        target: FileSnapshot::Absent.with_bytes(target.as_bytes().to_vec()),
        target_managed: ManagedEntries::default(),
        restart: true,
        started_from: None,
        before: FileSnapshot::Absent,
        before_managed: ManagedEntries::default(),
        before_revision: revision(4),
        back_from: None,
        failure: String::new(),
        provider: None,
        superseded: None,
    }
}

fn installed() -> InstalledProvider {
    InstalledProvider {
        data: FileSnapshot::Absent.with_bytes(render_data(4, &content(OURS))),
        config: ProviderConfig::default(),
        tokens: false,
        set_up: None,
    }
}

impl Node {
    fn at(&self, name: &str) -> HostPath {
        let path = self.directory.path().join(name);
        HostPath {
            here: path.clone(),
            host: path,
        }
    }

    fn path(&self) -> &Path {
        &self.agent.options.config_file
    }

    /// Gives it this object, and lets it work until it waits. Returns its newest report.
    async fn handle(&mut self, object: &NodePullSecret) -> Option<NodePullSecretStatus> {
        let known = SeenObject::Object(Box::new(object.clone()));
        self.objects.send_replace(known);
        for _ in 0..20 {
            if self.agent.step().await.unwrap() >= Duration::from_secs(1) {
                return self.reports.borrow().clone().map(|report| report.status);
            }
        }
        panic!("it never waits, in {}", self.directory.path().display());
    }
}

/// A controller that gets no answer believes that the node has nothing.
#[tokio::test]
async fn a_syncer_that_only_restores_answers_each_assignment() {
    let has_4 = with_revision(4);
    for (case, state, assigned, in_force, has_nothing) in [
        ("never selected", None, 0, 0, true),
        (
            "its object is new, its disk isn't",
            Some(&has_4),
            0,
            4,
            false,
        ),
        ("not selected before it began", Some(&has_4), 5, 4, false),
        ("nor did it ever", None, 5, 0, true),
    ] {
        let mut node = node(true, state);
        let mut object = object(assigned, 3);
        let status = node.handle(&object).await.unwrap();
        assert_eq!(status.phase, Phase::Pending, "{case}");
        assert_eq!(status.observed_generation, 3, "{case}");
        assert_eq!(status.in_force(), revision(in_force), "{case}");
        assert_eq!(status.restored, has_nothing, "{case}");
        object.metadata.generation = Some(4);
        object.status = Some(status);
        let status = node.handle(&object).await.unwrap();
        assert_eq!(status.observed_generation, 4, "{case}");
        assert_eq!(status.in_force(), revision(in_force), "{case}");
    }
    let mut node = node(true, Some(&has_4));
    let mut answered = object(4, 3);
    answered.status = Some(NodePullSecretStatus {
        observed_generation: 3,
        phase: Phase::Synced,
        ..NodePullSecretStatus::default()
    });
    let status = node.handle(&answered).await;
    assert_eq!(status, None, "its last report stays");
}

/// A node that globalps has never changed, and can't change.
#[tokio::test]
async fn a_node_that_has_nothing_is_restored_whatever_its_state() {
    type Spoil = fn(&mut Node);
    let cases: [(&str, Spoil); 4] = [
        ("the file is a symbolic link", |node| {
            std::os::unix::fs::symlink("elsewhere", node.path()).unwrap();
        }),
        ("the file is a directory", |node| {
            fs::create_dir(node.path()).unwrap();
        }),
        ("there is no directory for it", |node| {
            let path = node.path().with_file_name("none").join("config.json");
            node.agent.node.journal = Journal::next_to(&path, "a");
            node.agent.options.config_file = path;
        }),
        ("the system bus hangs", |node| {
            let bus = std::os::unix::net::UnixListener::bind(&node.agent.kubelet.unit.systemd.bus);
            std::mem::forget(bus.unwrap());
            node.agent.options.restart = true;
        }),
    ];
    for (case, spoil) in cases {
        let mut node = node(false, None);
        spoil(&mut node);
        let begun = std::time::Instant::now();
        let mut object = object(0, 3);
        object.spec.restore = true;
        let status = node.handle(&object).await.unwrap();
        assert_eq!(status.phase, Phase::Restored, "{case}");
        assert!(status.restored && status.observed_generation == 3, "{case}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{case}");
        assert!(!node.agent.node.journal.is_in_use(), "{case}");
    }
    // The state on the disk is unknown.
    let mut node = node(false, None);
    fs::create_dir_all(node.path().with_file_name(".globalps").join("state.json")).unwrap();
    let mut last = object(4, 3);
    last.status = Some(NodePullSecretStatus {
        restored: true,
        ..NodePullSecretStatus::default()
    });
    node.objects
        .send_replace(SeenObject::Object(Box::new(last)));
    node.agent.node.access = Access::Nothing;
    node.agent.observe_object();
    node.agent.report(Phase::Failed, Reason::FileError, "why");
    let status = node.reports.borrow().clone().unwrap().status;
    assert!(!status.restored);
}

fn content(file: &str) -> Content {
    Content {
        config: globalps_dockerconfig::parse(file.as_bytes()).unwrap(),
        ..Content::default()
    }
}

/// For example, a node that was off during a removal, after which revision numbers start again.
#[tokio::test]
async fn the_same_number_with_another_id_is_another_revision() {
    let [old, new] = [1, 2].map(|id| Revision::new(1, RevisionId::from_random(id)));
    let newer = OURS.replace("dTpw", "dTpx");
    let assigns = |revision: Revision, generation| {
        let mut object = object(revision.number, generation);
        object.spec.revision_id = revision.id;
        object
    };
    let mut node = node(false, None);
    node.agent.assigned.desired = Some((old, content(OURS)));
    let status = node.handle(&assigns(old, 1)).await.unwrap();
    assert_eq!((status.in_force(), status.phase), (old, Phase::Synced));
    assert!(fs::read_to_string(node.path()).unwrap().contains("dTpw"));

    // The content can't be fetched yet.
    let status = node.handle(&assigns(new, 2)).await.unwrap();
    assert_eq!(status.in_force(), old, "what it has is not the goal");
    node.agent.assigned.desired = Some((new, content(&newer)));
    let status = node.handle(&assigns(new, 3)).await.unwrap();
    assert_eq!((status.in_force(), status.phase), (new, Phase::Synced));
    assert!(fs::read_to_string(node.path()).unwrap().contains("dTpx"));
}

/// The node's own file from before stays known, and so does what it takes to go back while that is possible.
#[tokio::test]
async fn earlier_content_is_forgotten_once_it_is_not_needed() {
    let own = r#"{"auths":{"own":{"auth":"bzpv"}}}"#;
    let newer = OURS.replace("dTpw", "dTpx");
    let mut node = node(false, None);
    fs::write(node.path(), own).unwrap();
    let journal = node.path().with_file_name(".globalps").join("state.json");
    let has_old = || fs::read_to_string(&journal).unwrap().contains("dTpw");
    let asks = |number, generation, up_to: &str| {
        let mut object = object(number, generation);
        let annotation = (FORGET_ANNOTATION.to_owned(), up_to.to_owned());
        object.metadata.annotations = Some([annotation].into());
        object
    };
    node.agent.assigned.desired = Some((revision(5), content(OURS)));
    node.handle(&object(5, 1)).await.unwrap();
    for up_to in ["5", "9", "-1", "x"] {
        let status = node.handle(&asks(5, 1, up_to)).await.unwrap();
        assert_eq!(status.forgotten_revision, 0, "it is in force: {up_to}");
    }
    assert!(has_old());
    node.agent.assigned.desired = Some((revision(6), content(&newer)));
    node.handle(&object(6, 2)).await.unwrap();
    assert!(has_old(), "a file from then is not the node's own");
    // The change can still be rolled back.
    let settled = node.agent.node.state.clone().unwrap();
    let mut watching = settled.clone();
    let mut watched = PendingChange {
        step: ChangeStep::Watching,
        before: FileSnapshot::Absent.with_bytes(OURS.into()),
        ..change(6, &newer)
    };
    watched.task.generation = 2;
    watching.change = Some(watched);
    node.agent.node.state = Some(watching);
    let status = node.handle(&asks(6, 2, "5")).await.unwrap();
    assert_eq!(status.forgotten_revision, 0, "it is watched");
    node.agent.node.state = Some(settled);
    let status = node.handle(&asks(6, 2, "5")).await.unwrap();
    assert_eq!(
        (status.phase, status.forgotten_revision),
        (Phase::Synced, 5)
    );
    assert!(!has_old());
    assert!(fs::read_to_string(node.path()).unwrap().contains("dTpx"));
    let status = node.handle(&object(6, 2)).await.unwrap();
    assert_eq!(status.forgotten_revision, 5, "also without the annotation");
    // The next content is kept again.
    node.agent.assigned.desired = Some((revision(7), content(OURS)));
    node.handle(&asks(7, 3, "5")).await.unwrap();
    assert!(fs::read_to_string(&journal).unwrap().contains("dTpx"));
    let mut object = object(0, 4);
    object.spec.restore = true;
    let status = node.handle(&object).await.unwrap();
    assert_eq!(
        (status.phase, status.forgotten_revision),
        (Phase::Restored, 0)
    );
    assert_eq!(fs::read_to_string(node.path()).unwrap(), own);
}

/// Entries that count as the node's own since then may be those to forget.
#[tokio::test]
async fn a_node_without_state_or_writes_does_not_claim_to_forget() {
    for (case, spoil) in [
        (
            "lost",
            (|it| it.doubtful = vec!["r".to_owned()]) as fn(&mut JournalState),
        ),
        ("another node's", |it| {
            it.revision = it.revision.unidentified();
        }),
    ] {
        let mut state = with_revision(6);
        spoil(&mut state);
        let is_possible = state.without_old(5).is_some();
        assert_eq!(is_possible, case != "lost", "{case}");
    }
    let mut node = node(false, Some(&with_revision(6)));
    node.agent.assigned.desired = Some((revision(6), content(r#"{"auths":{}}"#)));
    let mut object = object(6, 1);
    let annotation = (FORGET_ANNOTATION.to_owned(), "5".to_owned());
    object.metadata.annotations = Some([annotation].into());
    // Simulates a full disk.
    node.agent.node.journal = Journal::next_to(&node.path().join("no-directory/config.json"), "a");
    node.agent.node.state = Some(with_revision(6));
    node.agent.node.access = Access::State;
    node.objects
        .send_replace(SeenObject::Object(Box::new(object)));
    node.agent.observe_object();
    node.agent.forget_old();
    assert_eq!(node.agent.node.state.as_ref().unwrap().forgotten, 0);
}

#[tokio::test]
async fn a_file_of_another_process_is_restored_with_its_earlier_mode() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut node = node(false, None);
    node.agent.assigned.desired = Some((revision(5), content(OURS)));
    fs::write(node.path(), "{}").unwrap();
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(node.path(), open).unwrap();
    let mut object = object(5, 1);
    node.handle(&object).await.unwrap();
    // Written in place, so that the narrowed mode stays.
    let theirs = "{ \"auths\": {\"r\": {\"auth\": \"bzpx\"}} }\n";
    fs::write(node.path(), theirs).unwrap();
    let status = node.handle(&object).await.unwrap();
    assert_eq!((status.phase, status.drifts), (Phase::Synced, 1));
    assert!(fs::read_to_string(node.path()).unwrap().contains("dTpw"));
    (object.spec.restore, object.metadata.generation) = (true, Some(2));
    let status = node.handle(&object).await.unwrap();
    assert_eq!(status.phase, Phase::Restored);
    assert_eq!(fs::read_to_string(node.path()).unwrap(), theirs);
    let mode = fs::metadata(node.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

/// While a rollout is halted its nodes keep their assignments for long.
#[tokio::test]
async fn what_is_in_force_is_maintained_beside_failed_or_held_tasks() {
    for is_held in [false, true] {
        let mut node = node(false, None);
        node.agent.assigned.desired = Some((revision(5), content(OURS)));
        node.handle(&object(5, 1)).await.unwrap();
        let newer = object(6, 2);
        let task = task(&newer).unwrap();
        if is_held {
            node.agent.assigned.held = Some(task.clone());
        } else {
            let state = node.agent.node.state.as_mut().unwrap();
            state.failed = Some(FailedTask {
                task: task.clone(),
                error: "why".to_owned(),
                stuck: false,
                recovered: false,
                is_of_provider: false,
            });
        }
        let before = node.handle(&newer).await.unwrap();
        fs::remove_file(node.path()).unwrap();
        let status = node.handle(&newer).await.unwrap();
        let repaired = fs::read_to_string(node.path()).unwrap();
        assert!(repaired.contains("dTpw"), "{is_held}: {repaired}");
        assert_eq!(status.in_force(), revision(5), "{is_held}");
        assert_eq!((status.phase, status.reason), (before.phase, before.reason));
        let state = node.agent.node.state.as_ref().unwrap();
        assert_eq!((state.drifts, state.failed.is_some()), (1, !is_held));
        assert_eq!(
            node.agent.assigned.held.is_some(),
            is_held,
            "it is no new attempt"
        );
    }
}

/// For example after a damaged state was moved away.
#[tokio::test]
async fn entries_that_may_be_of_a_lost_state_stay_and_are_named() {
    for (has_directory, has_status, is_doubted) in [
        (false, false, false),
        (true, false, true),
        (false, true, true),
    ] {
        let case = format!("{has_directory}, {has_status}");
        let mut node = node(false, None);
        node.agent.assigned.desired = Some((revision(5), content(OURS)));
        fs::write(node.path(), OURS).unwrap();
        if has_directory {
            fs::create_dir(node.path().with_file_name(".globalps")).unwrap();
        }
        let mut object = object(5, 1);
        object.status = has_status.then(|| NodePullSecretStatus {
            revision: 5,
            revision_id: revision(5).id,
            ..NodePullSecretStatus::default()
        });
        let status = node.handle(&object).await.unwrap();
        assert_eq!(status.phase, Phase::Synced, "{case}");
        assert_eq!(status.reason == "StateLost", is_doubted, "{case}");
        assert_eq!(status.message.contains("`r`"), is_doubted, "{case}");
        (object.spec.restore, object.metadata.generation) = (true, Some(2));
        let status = node.handle(&object).await.unwrap();
        assert_eq!(status.phase, Phase::Restored, "{case}");
        assert_eq!(status.reason == "StateLost", is_doubted, "{case}");
        assert_eq!(fs::read_to_string(node.path()).unwrap(), OURS, "{case}");
    }
}

#[tokio::test]
async fn another_attempt_begins_after_it_gave_up() {
    let mut node = node(false, None);
    node.agent.assigned.desired = Some((revision(5), content(OURS)));
    // The second attempt begins with a conflict.
    for (generation, repairs) in [(1, MAX_CONFLICTS), (2, MAX_CONFLICTS - 1)] {
        let object = object(5, generation);
        for conflict in 0..=repairs {
            let status = node.handle(&object).await.unwrap();
            assert_eq!(status.phase, Phase::Synced, "{generation}, {conflict}");
            fs::write(node.path(), "{}").unwrap();
        }
        let status = node.handle(&object).await.unwrap();
        assert_eq!(status.phase, Phase::ForeignOwner, "{generation}");
        assert_eq!(status.reason, "ConflictLimit", "{generation}");
        assert_eq!(fs::read_to_string(node.path()).unwrap(), "{}");
    }
}

#[tokio::test]
async fn a_restart_that_is_waived_stays_waived_after_an_error() {
    let mut begun = with_revision(4);
    begun.change = Some(change(5, OURS));
    for (case, restart, is_server, expected) in [
        ("`Never`", false, false, false),
        ("a server", true, true, false),
        ("neither", true, false, true),
    ] {
        let mut node = node(false, Some(&begun));
        node.agent.options.restart = restart;
        node.agent.kubelet.is_server = is_server;
        let is_restarted = |agent: &Agent| {
            let state = agent.node.state.as_ref().unwrap();
            state.change.as_ref().unwrap().restart
        };
        node.agent.acquire_node(false).await;
        assert_eq!(is_restarted(&node.agent), expected, "{case}");
        let state = node.agent.node.state.clone().unwrap();
        let error = NodeError::Bus("the bus is away".to_owned());
        let result = node.agent.finish(state, None, Err(error));
        assert!(result.is_err(), "{case}");
        assert_eq!(is_restarted(&node.agent), expected, "{case}, from the disk");
    }
}

/// For example, a node that was off while the syncers' pods got paths.
#[tokio::test]
async fn a_provider_beside_the_file_is_removed_by_a_syncer_with_paths() {
    const FLAGS: &str = "KUBELET_KUBEADM_ARGS=\"--v=2\"\n";
    let cases: [(&str, fn(&mut JournalState)); 3] = [
        ("known", |_| {}),
        ("forgotten", |state| state.provider = None),
        ("a restore began without it", |state| {
            state.provider = None;
            state.change = Some(change(0, "{}"));
        }),
    ];
    for (case, forget) in cases {
        let mut state = with_revision(4);
        state.provider = Some(installed());
        forget(&mut state);
        let mut node = node(false, Some(&state));
        let (flags, theirs) = (node.at("kubeadm-flags.env").here, node.at("theirs.yaml"));
        fs::write(&flags, FLAGS).unwrap();
        fs::write(&theirs.here, "providers:\n- name: theirs\n").unwrap();
        fs::write(node.at("program").here, "#!/bin/sh\n").unwrap();
        let own = node.agent.options.provider.clone();
        own.uphold(&installed(), true).unwrap();
        assert!(own.write_flags(true).unwrap());
        let paths = Some((theirs, node.at("bin")));
        let (program, file) = (node.at("program").here, node.at("config.json"));
        node.agent.options.provider = Provider::new(program, &file, paths);
        let mut object = object(0, 3);
        object.spec.restore = true;
        node.objects
            .send_replace(SeenObject::Object(Box::new(object)));
        node.agent.acquire_node(false).await;
        node.agent.adopt_provider(&FileSnapshot::Absent).unwrap();
        let found = node.agent.provider_on_node().unwrap();
        let is_of_change = case == "a restore began without it";
        assert_eq!(found.flags_file().is_some(), !is_of_change, "{case}");
        let mut is_done = false;
        for _ in 0..20 {
            is_done |= node.agent.step().await.unwrap() >= Duration::from_secs(1);
            let is_named = fs::read_to_string(&flags).unwrap() != FLAGS;
            assert!(
                !is_named || node.at(".globalps/bin").here.is_dir(),
                "{case}"
            );
        }
        assert!(is_done && !node.at(".globalps").here.exists(), "{case}");
        assert_eq!(fs::read_to_string(&flags).unwrap(), FLAGS, "{case}");
    }
}

fn in_paths() -> InstalledProvider {
    InstalledProvider {
        set_up: Some(SetUp {
            config: "/etc/eks/config.json".into(),
            bin_dir: "/etc/eks".into(),
        }),
        ..installed()
    }
}

/// A pod without paths of the provider has to restore it.
async fn without_paths(state: &JournalState) -> Node {
    let mut node = node(false, Some(state));
    let file = HostPath {
        host: "/var/lib/kubelet/config.json".into(),
        ..node.at("config.json")
    };
    node.agent.options.provider = Provider::new(node.at("program").here, &file, None);
    let mut object = object(0, 3);
    object.spec.restore = true;
    node.objects
        .send_replace(SeenObject::Object(Box::new(object)));
    node.agent.acquire_node(false).await;
    node
}

#[tokio::test]
async fn a_provider_in_paths_that_the_pod_lacks_is_not_removed() {
    let mut state = with_revision(4);
    state.provider = Some(in_paths());
    let mut node = without_paths(&state).await;
    let error = node.agent.step().await.unwrap_err();
    assert_eq!(error.reason().as_str(), "ForeignProviderConfig");
    assert!(
        error
            .to_string()
            .contains("`/etc/eks/config.json` and `/etc/eks`")
    );
    assert!(
        node.agent
            .node
            .journal
            .load()
            .unwrap()
            .unwrap()
            .provider
            .is_some()
    );
}

/// The pod was replaced by one without the directories as soon as the last node had reported.
#[tokio::test]
async fn a_way_out_that_is_in_force_ends_without_the_directories() {
    let mut state = with_revision(5);
    let side = |installed| ProviderSide {
        installed,
        config: FileSnapshot::Absent,
        flags: None,
    };
    state.change = Some(PendingChange {
        step: ChangeStep::Watching,
        provider: Some(ProviderChange {
            before: side(Some(in_paths())),
            target: side(None),
            is_kubelet_checked: true,
            has_failed: false,
        }),
        ..change(5, "{}")
    });
    let mut node = without_paths(&state).await;
    for _ in 0..10 {
        node.agent.step().await.unwrap();
    }
    assert!(!node.at(".globalps").here.exists(), "it is restored");
}

#[tokio::test]
async fn a_recreated_object_is_answered_without_another_assignment() {
    let mut node = node(false, None);
    node.agent.assigned.desired = Some((revision(5), content(OURS)));
    node.handle(&object(5, 7)).await.unwrap();
    let mut again = object(5, 1);
    again.metadata.uid = Some("another".to_owned());
    let created = task(&again).unwrap();
    assert!(
        node.agent
            .node
            .state
            .as_ref()
            .unwrap()
            .is_settled_on(&created)
    );
    let status = node.handle(&again).await.unwrap();
    assert_eq!(
        (status.phase, status.observed_generation),
        (Phase::Synced, 1)
    );
    let saved = node.agent.node.journal.load().unwrap().unwrap();
    assert_eq!(saved.applied.as_ref(), Some(&created));
    again.metadata.generation = Some(2);
    assert!(
        !saved.is_settled_on(&task(&again).unwrap()),
        "assigned again"
    );
}
