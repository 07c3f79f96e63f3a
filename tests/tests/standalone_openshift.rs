//! `delivery: OpenShift`, with 12 nodes in two pools of a stand-in of the Machine Config Operator, while three other programs write the
//! same Secret, and the controller is killed. `OPENSHIFT_MINUTES` goes on for longer, `SEED` repeats the decisions.

use std::time::Duration;

use globalps_testkit::fleet::openshift;

#[test]
fn nothing_of_others_changes_and_each_status_is_true_within_two_seconds() {
    let duration = number("OPENSHIFT_MINUTES").map(Duration::from_mins);
    let seed = number("SEED").unwrap_or(1);
    let report = openshift::run(12, duration.unwrap_or(Duration::from_secs(40)), seed).unwrap();
    println!("{report:#?}");
    assert_eq!(report.problems, Vec::<String>::new());
    let seen = &report.seen;
    assert_eq!((&seen.wrong, &seen.late), (&Vec::new(), &Vec::new()));
    assert!(seen.synced > seen.compared / 20, "{seen:?}");
    assert!(report.versions.1 > 0 && report.kills > 0 && report.removals > 0);
    assert_eq!(Vec::from_iter(report.verbs), ["list", "patch", "watch"]);
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}
