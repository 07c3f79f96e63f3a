//! Kills the hub at every write, on the management cluster and in the members.

use globalps_testkit::fleet::kills::hub::{self, Change};

#[test]
fn whatever_write_the_hub_is_killed_at_the_next_one_finishes() {
    let outcomes = hub::run().unwrap_or_else(|error| panic!("{error:#}"));
    let mut kills = 0;
    for outcome in &outcomes {
        outcome.print();
        kills += outcome.kills;
        assert!(outcome.is_killed_at_every_write(), "{:?}", outcome.change);
        let in_members = |method: &str| outcome.distinct(&format!("{method} member-"));
        // The hub's writes in order: to the canary alone, then to the other members, then to all.
        let writes = (in_members("PATCH"), in_members("DELETE"));
        let expected = match outcome.change {
            Change::Create | Change::Rotate | Change::Retry | Change::RotateOn => (2, 0),
            Change::Add | Change::Fail | Change::FailAgain => (1, 0),
            Change::Unselect => (0, 1),
            Change::Delete => (0, 2),
        };
        assert_eq!(
            writes, expected,
            "{:?}: {:?}",
            outcome.change, outcome.writes
        );
    }
    eprintln!("{kills} kills");
}
