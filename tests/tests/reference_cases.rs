//! The cases of the reference's syncer, run with ours: the real program on a bare node, whose systemd does as it is told.

use std::fs;
use std::time::Duration;

use globalps_tests::bare_node::{Ask, BareNode, Failures, Program};
use globalps_tests::reference_cases::{ENDS, FILES, FileCase, NEW, OLD};

const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn every_case_of_a_credentials_file_ends_as_the_table_says() {
    for (at, case) in FILES.iter().enumerate() {
        let failures = Failures(case.failures, "failed");
        let (told, restarts, after) = run(case, failures);
        assert_eq!(told, case.phase, "case {at}: {case:?}");
        assert_eq!(after.as_deref(), case.after, "case {at}: {case:?}");
        assert_eq!(restarts, case.restarts, "case {at}: {case:?}");
    }
}

#[test]
fn every_end_of_a_restart_but_done_takes_the_change_back() {
    let case = FILES
        .iter()
        .find(|case| case.failures == 3 && case.before == Some(OLD))
        .unwrap();
    for end in ENDS {
        let (told, restarts, after) = run(case, Failures(3, end));
        assert_eq!((told.as_str(), restarts), ("RolledBack", 4), "{end}");
        assert_eq!(after.as_deref(), Some(OLD), "{end}");
    }
}

/// An agent that is asked to end does so at once, whatever it is at; the next one goes on, and restarts the kubelet once.
#[test]
fn a_syncer_that_is_asked_to_end_does_so_within_a_second_and_leaves_nothing_half_done() {
    let program = Program::build().unwrap();
    let mut slowest = Duration::ZERO;
    for delay in (0..120).step_by(4).map(Duration::from_millis) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::write(&path, OLD).unwrap();
        let node = BareNode::start(folder.path(), &ask(NEW), 1, Failures::NONE).unwrap();
        let took = node.terminate(&program, delay).unwrap();
        slowest = slowest.max(took);
        assert!(took < Duration::from_secs(1), "after {delay:?}: {took:?}");
        let left = fs::read_to_string(&path).unwrap();
        assert!(
            left.starts_with('{') && left.trim_end().ends_with("}}}"),
            "after {delay:?}: {left}"
        );
        let told = node.run(&program, None, DEADLINE, || Ok(())).unwrap();
        assert_eq!(told.phase, "Synced", "after {delay:?}");
        assert_eq!(node.restarts(), 1, "after {delay:?}");
        assert_eq!(node.kubelet_read(), fs::read(&path).ok(), "after {delay:?}");
    }
    println!("the slowest end of 30 took {} ms", slowest.as_millis());
}

/// Phase, restarts that were asked for, and the file.
fn run(case: &FileCase, failures: Failures) -> (String, usize, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    if let Some(text) = case.before {
        fs::write(&path, text).unwrap();
    }
    let program = Program::build().unwrap();
    let program = match case.injection {
        Some(injection) => program.failing(injection),
        None => program,
    };
    let node = BareNode::start(folder.path(), &ask(case.desired), 1, failures).unwrap();
    if case.injection.is_some() {
        // What is in the way is told, and whoever comes next goes on.
        node.run_to(&program, "Failed", DEADLINE).unwrap();
    }
    let told = node.run_to(&program, case.phase, DEADLINE).unwrap();
    (told.phase, node.restarts(), fs::read_to_string(path).ok())
}

fn ask(credentials: &str) -> Ask {
    Ask {
        generation: 1,
        revision: Some(1),
        credentials: credentials.to_owned(),
        ..Ask::default()
    }
}
