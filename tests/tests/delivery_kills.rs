//! The controller is killed at every write of its delivery into namespaces and to operators.

use std::fmt::Debug;

use globalps_tests::fleet::kills::{Outcome, namespaces, operators};

fn is_killed_at_every_write<C: Debug>(outcomes: &[Outcome<C>]) {
    for outcome in outcomes {
        let (slowest, after) = outcome.slowest;
        eprintln!(
            "{:?}: {} kills; alone it took {:.1} s, and the next one was done after {:.1} s at most (killed after {after} writes)",
            outcome.change,
            outcome.kills,
            outcome.alone.as_secs_f32(),
            slowest.as_secs_f32()
        );
        for write in &outcome.writes {
            eprintln!("    {write}");
        }
        // Which controller makes the last of them, this change's or the next one's, is a matter of chance.
        let least = outcome.writes.len().saturating_sub(3).max(1);
        assert!(
            outcome.kills >= least,
            "{:?}: {}",
            outcome.change,
            outcome.kills
        );
    }
}

fn deletes<C>(outcome: &Outcome<C>) -> usize {
    let writes = outcome.writes.iter();
    writes.filter(|write| write.starts_with("DELETE")).count()
}

#[test]
fn whatever_write_into_namespaces_the_controller_is_killed_at_the_next_one_finishes() {
    let outcomes = namespaces::run().unwrap_or_else(|error| panic!("{error:#}"));
    is_killed_at_every_write(&outcomes);
    for outcome in &outcomes {
        use namespaces::Change::{Disable, Rotate, RotateTeam, Withdraw};
        match outcome.change {
            Rotate | RotateTeam => assert_eq!(deletes(outcome), 0, "{:?}", outcome.writes),
            Disable | Withdraw => assert!(deletes(outcome) >= 4, "{:?}", outcome.writes),
            _ => {}
        }
    }
}

#[test]
fn whatever_write_for_operators_the_controller_is_killed_at_the_next_one_finishes() {
    let outcomes = operators::run().unwrap_or_else(|error| panic!("{error:#}"));
    is_killed_at_every_write(&outcomes);
    for outcome in &outcomes {
        use operators::Change::{Disable, Rotate};
        match outcome.change {
            Rotate => assert_eq!(deletes(outcome), 0, "{:?}", outcome.writes),
            Disable => assert_eq!(deletes(outcome), 2, "{:?}", outcome.writes),
            _ => {}
        }
    }
}
