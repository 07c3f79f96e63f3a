//! Wrong clocks of nodes, and clocks that are set during a rollout.

use std::time::Duration;

use globalps_testkit::fleet::clocks;

#[test]
fn wrong_clocks_break_no_limit_and_no_node() {
    let rollouts = clocks::run().unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(rollouts.len(), 9);
    for rollout in rollouts {
        assert!(rollout.soak >= Duration::from_secs(5), "{rollout:?}");
        assert!(rollout.most <= 2, "{rollout:?}");
    }
}
