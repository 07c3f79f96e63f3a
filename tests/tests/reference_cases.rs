//! Runs the test cases of HyperShift's syncer with the syncer of globalps: the real program on a bare node with a
//! simulated systemd.

use std::fs;
use std::time::Duration;

use globalps_testkit::bare_node::{Ask, BareNode, Failures, Program};
use globalps_testkit::reference_cases::{ENDS, FILES, FileCase, NEW, OLD};

const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn every_case_of_a_credentials_file_ends_as_the_table_says() {
    for (at, case) in FILES.iter().enumerate() {
        let failures = Failures(case.failures, "failed");
        let (reported, restarts, after) = run(case, failures);
        assert_eq!(reported, case.phase, "case {at}: {case:?}");
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
        let (reported, restarts, after) = run(case, Failures(3, end));
        assert_eq!((reported.as_str(), restarts), ("RolledBack", 4), "{end}");
        assert_eq!(after.as_deref(), Some(OLD), "{end}");
    }
}

/// A syncer that receives SIGTERM exits at once, in any state. The next one continues, with one kubelet restart.
#[test]
fn a_syncer_ends_at_once_and_leaves_nothing_half_done() {
    let program = Program::shipped().unwrap();
    let mut slowest = Duration::ZERO;
    for delay in (0..120).step_by(4).map(Duration::from_millis) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        fs::write(&path, OLD).unwrap();
        let node = BareNode::start(directory.path(), &ask(NEW), 1, Failures::NONE).unwrap();
        let took = node.terminate(&program, delay).unwrap();
        slowest = slowest.max(took);
        assert!(took < Duration::from_secs(10), "after {delay:?}: {took:?}");
        let left = fs::read_to_string(&path).unwrap();
        assert!(
            left.starts_with('{') && left.trim_end().ends_with("}}}"),
            "after {delay:?}: {left}"
        );
        let reported = node.run(&program, None, DEADLINE, || Ok(())).unwrap();
        assert_eq!(reported.phase, "Synced", "after {delay:?}");
        assert_eq!(node.restarts(), 1, "after {delay:?}");
        assert_eq!(node.kubelet_read(), fs::read(&path).ok(), "after {delay:?}");
    }
    println!("the slowest exit of 30 took {} ms", slowest.as_millis());
}

/// Phase, number of requested restarts, and the file.
fn run(case: &FileCase, failures: Failures) -> (String, usize, Option<String>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    if let Some(text) = case.before {
        fs::write(&path, text).unwrap();
    }
    let program = Program::shipped().unwrap();
    let program = match case.injection {
        Some(injection) => program.failing(injection),
        None => program,
    };
    let node = BareNode::start(directory.path(), &ask(case.desired), 1, failures).unwrap();
    if case.injection.is_some() {
        // The error is reported, and the next syncer continues.
        node.run_to(&program, "Failed", DEADLINE).unwrap();
    }
    let reported = node.run_to(&program, case.phase, DEADLINE).unwrap();
    (
        reported.phase,
        node.restarts(),
        fs::read_to_string(path).ok(),
    )
}

fn ask(credentials: &str) -> Ask {
    Ask {
        generation: 1,
        revision: Some(1),
        credentials: credentials.to_owned(),
        ..Ask::default()
    }
}
