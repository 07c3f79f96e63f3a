use serde_json::json;

use super::*;

fn assign(version: u64, node: &str, revision: i64, observed: i64) -> Change {
    object(version, node, true, revision, observed, "Synced")
}

fn object(
    version: u64,
    node: &str,
    is_spec: bool,
    revision: i64,
    observed: i64,
    phase: &str,
) -> Change {
    let object = json!({
        "metadata": {"generation": revision},
        "spec": {"revision": revision},
        "status": {"observedGeneration": observed, "revision": observed, "phase": phase},
    });
    Change {
        version,
        node: node.to_owned(),
        is_spec,
        by_controller: is_spec,
        by_node: !is_spec,
        is_new: false,
        object: Some(object),
    }
}

#[test]
fn nodes_count_from_their_grant_until_they_have_answered_for_it() {
    let answer = |version, node| object(version, node, false, 2, 2, "Synced");
    let at_work = |version, node| object(version, node, false, 2, 2, "Syncing");
    let superseded = |version, node| {
        let mut change = at_work(version, node);
        let object = change.object.as_mut().expect("an object");
        object["status"]["reason"] = json!("Superseded");
        change
    };
    let new = |version, node| Change {
        is_new: true,
        ..assign(version, node, 2, 0)
    };
    let odd = |version, node| {
        let mut change = object(version, node, false, 2, i64::MAX, "Synced");
        change.by_node = false;
        change
    };
    let deleted = |version, node: &str| Change {
        object: None,
        ..assign(version, node, 2, 1)
    };
    #[rustfmt::skip]
    let cases = [
        ("one after the other", vec![assign(1, "a", 2, 1), answer(2, "a"), assign(3, "b", 2, 1), answer(4, "b")], 1),
        ("both at once", vec![assign(1, "a", 2, 1), assign(2, "b", 2, 1), answer(3, "a"), answer(4, "b")], 2),
        ("a node that is still changing", vec![assign(1, "a", 2, 1), at_work(2, "a"), assign(3, "b", 2, 1)], 2),
        (
            "a node whose content was replaced before it fetched it",
            vec![
                assign(1, "a", 2, 1),
                superseded(2, "a"),
                assign(3, "b", 2, 1),
            ],
            1,
        ),
        ("a deleted node", vec![assign(1, "a", 2, 1), deleted(2, "a"), assign(3, "b", 2, 1)], 1),
        (
            "a node that has answered, with an odd status",
            vec![
                assign(1, "a", 2, 1),
                answer(2, "a"),
                odd(3, "a"),
                assign(4, "b", 2, 1),
            ],
            1,
        ),
        (
            "its next assignment",
            vec![
                assign(1, "a", 2, 1),
                answer(2, "a"),
                odd(3, "a"),
                assign(4, "b", 2, 1),
                assign(5, "a", 3, i64::MAX),
            ],
            2,
        ),
        ("a node that has not answered, with an odd status", vec![assign(1, "a", 2, 1), odd(2, "a"), assign(3, "b", 2, 1)], 2),
        (
            "what the node itself says later",
            vec![
                assign(1, "a", 2, 1),
                answer(2, "a"),
                odd(3, "a"),
                at_work(4, "a"),
                assign(5, "b", 2, 1),
            ],
            2,
        ),
        ("new nodes that have nothing", vec![new(1, "a"), new(2, "b")], 0),
        ("other nodes that have nothing", vec![assign(1, "a", 2, 0), assign(2, "b", 2, 0)], 2),
    ];
    for (sentence, changes, most) in cases {
        assert_eq!(replay(&changes).most, most, "{sentence}");
    }
}

/// Revisions 2 and 3 are delivered by the provider, 4 by the file: nodes change in place from 2 to 3, but not from 3 to
/// 4.
#[test]
fn a_node_that_is_assigned_what_it_has_does_not_count() {
    let mut object = json!({
        "metadata": {"generation": 2},
        "spec": {"revision": 3, "revisionId": "a"},
        "status": {"observedGeneration": 1, "revision": 3, "revisionId": "a", "phase": "Synced"},
    });
    assert!(!is_in_flight(&object, false));
    object["spec"]["revisionId"] = json!("b");
    assert!(is_in_flight(&object, false), "another one of that number");
    object["spec"] = json!({"restore": true});
    assert!(is_in_flight(&object, false));
}

#[test]
fn nodes_that_change_in_place_do_not_count() {
    let with = |mut change: Change, has: i64, delivery: &str| {
        if let Some(object) = change.object.as_mut() {
            object["status"]["revision"] = json!(has);
            object["status"]["delivery"] = json!(delivery);
        }
        change
    };
    let by = |revision: i64| {
        if revision == 2 || revision == 3 {
            PROVIDER
        } else {
            "ConfigFile"
        }
    };
    for (revision, most) in [(2, 2), (3, 0), (4, 2), (5, 2)] {
        let mut changes = Vec::new();
        for earlier in 1..revision {
            for node in ["a", "b"] {
                let version = changes.len() as u64;
                let assigned = assign(version, node, earlier, earlier - 1);
                changes.push(with(assigned, earlier - 1, by(earlier - 1)));
                let answer = object(version + 1, node, false, earlier, earlier, "Synced");
                changes.push(with(answer, earlier, by(earlier)));
            }
        }
        let before = changes.len();
        for node in ["a", "b"] {
            let assigned = assign(changes.len() as u64, node, revision, revision - 1);
            changes.push(with(assigned, revision - 1, by(revision - 1)));
        }
        for node in ["a", "b"] {
            let version = changes.len() as u64;
            let answer = object(version, node, false, revision, revision, "Synced");
            changes.push(with(answer, revision, by(revision)));
        }
        let found = replay(&changes);
        // The earlier changes come one after the other.
        let earlier = replay(&changes[..before]).most;
        assert_eq!(found.most.max(earlier), most.max(earlier), "{revision}");
        assert!(earlier <= 1, "{revision}");
    }
}
