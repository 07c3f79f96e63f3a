//! Kills the controller at every write of its delivery to namespaces and operators.

use globalps_testkit::fleet::kills::{namespaces, operators};

#[test]
fn the_next_controller_finishes_any_write_into_namespaces() {
    let outcomes = namespaces::run().unwrap_or_else(|error| panic!("{error:#}"));
    for outcome in &outcomes {
        outcome.print();
        assert!(outcome.is_killed_at_every_write(), "{:?}", outcome.change);
        use namespaces::Change::{Disable, Rotate, RotateTeam, Withdraw};
        match outcome.change {
            Rotate | RotateTeam => assert_eq!(outcome.deletes(), 0, "{:?}", outcome.writes),
            Disable | Withdraw => assert!(outcome.deletes() >= 4, "{:?}", outcome.writes),
            _ => {}
        }
    }
}

#[test]
fn the_next_controller_finishes_any_write_for_operators() {
    let outcomes = operators::run().unwrap_or_else(|error| panic!("{error:#}"));
    for outcome in &outcomes {
        outcome.print();
        assert!(outcome.is_killed_at_every_write(), "{:?}", outcome.change);
        use operators::Change::{Disable, Rotate};
        match outcome.change {
            Rotate => assert_eq!(outcome.deletes(), 0, "{:?}", outcome.writes),
            // Both copies, and the controller's record of them.
            Disable => assert_eq!(outcome.deletes(), 3, "{:?}", outcome.writes),
            _ => {}
        }
    }
}
