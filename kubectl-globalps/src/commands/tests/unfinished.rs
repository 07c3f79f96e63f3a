//! Messages of `history` and `undo` during an unfinished rollout.

use globalps_core::names;
use serde_json::{Value, json};

use super::{AUTH, OTHER_AUTH, gps, in_force, kept, refused, secret};
use crate::error::Exit;
use crate::testing::fake_api::{CommandLine as _, FakeApi, path};
use crate::view::status::ANOTHER_CHANGED;

/// A rollout of revision 3 that not every node has; revision 2 was rolled out.
pub(super) fn rolling_out(paused: bool, halted: bool, synced: u32) -> FakeApi {
    let mut global = in_force(&[("quay.io", OTHER_AUTH)], &[]);
    let annotations = global["metadata"]["annotations"].as_object_mut();
    annotations.map(|all| all.remove(names::ROLLED_OUT_ANNOTATION));
    let spec = json!({"rollout": {"paused": paused}});
    let degraded = if halted { "True" } else { "False" };
    let conditions = [
        ("Ready", "False", "RollingOut"),
        ("Degraded", degraded, "RolloutHalted"),
    ];
    let mut gps = gps("101", &spec, &conditions);
    gps["status"]["counts"] = json!({"total": 3, "synced": synced});
    FakeApi::new(&[
        (&path("secrets", names::GLOBAL_SECRET), global),
        (
            &path("secrets", names::ADDITIONAL_SECRET),
            secret(&[("quay.io", OTHER_AUTH)]),
        ),
        (
            &path("secrets", &names::history_secret(0)),
            kept("2", &[("quay.io", AUTH)]),
        ),
        (&path("globalpullsecrets", names::GLOBAL_SECRET), gps),
    ])
}

#[test]
fn undo_brings_no_removed_secret_back_for_a_source_that_changed() {
    let mut global = in_force(&[], &[]);
    let annotations = &mut global["metadata"]["annotations"];
    annotations[names::ADDITIONAL_ROLLED_OUT_ANNOTATION] =
        annotations[names::REVISION_ANNOTATION].clone();
    let api = rolling_out(false, true, 1)
        .with_object(&path("secrets", names::GLOBAL_SECRET), global)
        .without(&path("secrets", names::ADDITIONAL_SECRET));
    let failure = refused(api.run("undo --yes"));
    assert!(failure.hint.starts_with(ANOTHER_CHANGED), "{failure:?}");
    assert_eq!(api.writes(), [""; 0]);
    let ran = api.run("undo --to-revision 2 --yes");
    assert_eq!(ran, Ok(Exit::Done), "if that is meant");
}

#[test]
fn history_says_how_far_a_rollout_is() {
    for (paused, halted, synced, expected) in [
        (false, false, 0, "rolling out, 0/3 nodes"),
        (true, false, 0, "paused, 0/3 nodes"),
        (false, true, 1, "halted, 1/3 nodes"),
        (true, true, 1, "halted, 1/3 nodes"),
        (false, false, 2, "rolling out, 2/3 nodes"),
        (false, false, 3, "in force"),
    ] {
        let api = rolling_out(paused, halted, synced);
        let (ran, [out, err]) = api.printed("history");
        assert_eq!(ran, Ok(Exit::Done), "{err}");
        let newest = out.lines().nth(1).unwrap_or_default();
        let words = newest.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words, format!("3 - quay.io {expected}"), "{out}");
        let (_, [out, _]) = api.printed("history -o json");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        let newest = &json["revisions"][0];
        assert_eq!(newest["inForce"], expected == "in force", "{out}");
        if expected != "in force" {
            let rollout = json!({"paused": paused, "halted": halted, "synced": synced, "nodes": 3});
            assert_eq!(newest["rollout"], rollout);
        }
        assert_eq!(json["revisions"][1]["rollout"], Value::Null);
    }
}
