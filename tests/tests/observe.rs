//! `delivery: Observe`, with 12 nodes beside a stand-in of `HyperShift`'s own controller and syncer: no status says `Synced` for content
//! that the node's file lacks, and each is true within 2 seconds. `OBSERVE_MINUTES` rotates for longer.

use std::time::Duration;

use globalps_testkit::fleet::observe;

#[test]
fn each_status_is_true_within_two_seconds() {
    let minutes = std::env::var("OBSERVE_MINUTES").ok();
    let minutes = minutes.map(|text| text.parse().expect("a number of minutes"));
    let duration = minutes.map_or(Duration::from_secs(25), Duration::from_mins);
    let seen = observe::run(12, duration, Duration::from_secs(3)).unwrap();
    println!("{seen:?}");
    assert_eq!(
        (&seen.wrong, &seen.late),
        (&Vec::new(), &Vec::new()),
        "{seen:?}"
    );
    assert!(seen.synced > seen.compared / 10, "{seen:?}");
}
