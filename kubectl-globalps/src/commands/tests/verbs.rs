//! What the verbs print, write and return, for the nodes of a cluster and for the clusters of a hub, as `verbs.txt` has it.

use std::sync::{Arc, Mutex};

use globalps_core::names;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{act, golden, rolled_out, rolled_out_with};
use crate::testing::examples::sample;
use crate::testing::fake_api::{FakeApi, Objects, failure, path};

const FLEET: &str = "/apis/globalps.io/v1alpha1/namespaces/clusters/fleetpullsecrets/team-a";
const CLUSTERS: &str = "/apis/globalps.io/v1alpha1/namespaces/clusters/clusterpullsecrets";
const SOURCE: &str = "/api/v1/namespaces/clusters/secrets/team-a-source";

/// Command lines on objects that are new for each. `conflicts`: writes that another client is ahead of. `program`: what the
/// controller or the hub does after a write.
struct Case {
    title: &'static str,
    api: fn() -> FakeApi,
    conflicts: usize,
    program: fn(&mut Objects),
    lines: &'static [&'static str],
}

const CASES: [Case; 16] = [
    Case {
        title: "a node failed",
        api: sample,
        conflicts: 0,
        program: nothing,
        lines: &[
            "pause",
            "resume",
            "retry",
            "retry node-1 node-3",
            "retry node-1",
            "retry node-8 node-9 node-1",
            "undo --dry-run",
            "undo --dry-run=server",
            "undo --dry-run --wait",
            "undo",
            "undo --yes",
            "undo --to-revision 2 --yes",
            "undo --to-revision 3 --yes",
            "undo --to-revision 7 --yes",
            "remove quay.io --dry-run",
            "remove quay.io --dry-run=server",
            "remove quay.io --dry-run --wait",
            "remove quay.io",
            "remove quay.io --yes",
            "remove ghcr.io --yes",
            "remove ghcr.io --yes --ignore-not-found",
            "remove ghcr.io --source team-a-pull-secret --yes",
            "remove --all --yes",
            "diff",
            "diff -o json",
            "diff -o yaml",
            "add quay.io -u robot -p r --skip-check",
            "add quay.io -u robot -p r --skip-check --dry-run",
            "add quay.io -u robot -p r --skip-check --dry-run=server -o json",
            "add quay.io -u robot -p r --skip-check -o yaml",
            "add quay.io -u robot -p r --skip-check -o name",
            "status -o name",
            "fleet status team-a -n clusters -o name",
        ],
    },
    Case {
        title: "a cluster failed",
        api: sample,
        conflicts: 0,
        program: nothing,
        lines: &[
            "fleet pause team-a -n clusters",
            "fleet pause team-b -n clusters",
            "fleet pause team-a",
            "fleet resume team-a -n clusters",
            "fleet retry team-a -n clusters",
            "fleet retry team-a m1 clusters/m2 -n clusters",
            "fleet retry team-a m1 -n clusters",
            "fleet retry team-a m8 m9 m1 -n clusters",
            "fleet accept team-a m1 -n clusters",
            "fleet undo team-a -n clusters --dry-run",
            "fleet undo team-a -n clusters --dry-run=server",
            "fleet undo team-a -n clusters --dry-run --wait",
            "fleet undo team-a -n clusters",
            "fleet undo team-a -n clusters --yes",
            "fleet undo team-a -n clusters --to-revision 2 --yes",
            "fleet undo team-a -n clusters --to-revision 7 --yes",
            "fleet remove team-a -n clusters",
            "fleet remove team-a -n clusters --yes",
            "fleet remove team-b -n clusters --yes",
            "fleet remove team-b -n clusters --ignore-not-found",
            "fleet diff team-a -n clusters",
            "fleet diff team-a m1 m2 -n clusters",
            "fleet diff team-a m2 -n clusters -o json",
            "fleet diff team-a m2 -n clusters -o yaml",
            "fleet diff team-a m9 -n clusters",
            "fleet add team-a -n clusters --registry quay.io -u robot -p r --skip-check",
            "fleet add team-a -n clusters --registry quay.io -u robot -p r --skip-check --dry-run",
            "fleet add team-a -n clusters --registry quay.io -u robot -p r --skip-check --dry-run=server -o json",
            "fleet add team-a -n clusters --registry quay.io -u robot -p r --skip-check -o yaml",
            "fleet add team-b -n clusters --registry quay.io -u robot -p r --skip-check --registered",
            "fleet add team-b -n clusters --registry quay.io -u robot -p r --skip-check --registered -o name",
        ],
    },
    Case {
        title: "nothing failed",
        api: synced,
        conflicts: 0,
        program: nothing,
        lines: &[
            "retry",
            "retry node-1",
            "fleet retry team-a -n clusters",
            "fleet retry team-a m1 -n clusters",
            "fleet diff team-a -n clusters",
        ],
    },
    Case {
        title: "a kubeconfig leads to another cluster",
        api: other_identity,
        conflicts: 0,
        program: nothing,
        lines: &[
            "fleet accept team-a m2 -n clusters",
            "fleet accept team-a m1 m2 -n clusters",
            "fleet retry team-a -n clusters",
        ],
    },
    Case {
        title: "paused",
        api: paused,
        conflicts: 0,
        program: nothing,
        lines: &[
            "pause",
            "resume",
            "retry",
            "undo --to-revision 2 --yes",
            "fleet pause team-a -n clusters",
            "fleet resume team-a -n clusters",
            "fleet retry team-a -n clusters",
            "fleet remove team-a -n clusters --yes",
        ],
    },
    Case {
        title: "the FleetPullSecret is being deleted",
        api: deleted,
        conflicts: 0,
        program: nothing,
        lines: &[
            "fleet resume team-a -n clusters",
            "fleet retry team-a -n clusters",
            "fleet undo team-a -n clusters --yes",
            "fleet remove team-a -n clusters --yes",
            "fleet add team-a -n clusters --registry quay.io -u robot -p r --skip-check",
        ],
    },
    Case {
        title: "other programs own the objects",
        api: owned,
        conflicts: 0,
        program: nothing,
        lines: &[
            "pause",
            "undo --to-revision 2 --yes",
            "undo --to-revision 2 --yes --force-conflicts",
            "remove quay.io --yes",
            "remove quay.io --yes --force-conflicts",
            "add quay.io -u robot -p r --skip-check --force-conflicts",
            "fleet pause team-a -n clusters",
            "fleet undo team-a -n clusters --yes",
            "fleet undo team-a -n clusters --yes --force-conflicts",
            "fleet add team-a -n clusters --registry quay.io -u robot -p r --skip-check",
            "fleet add team-a -n clusters --registry quay.io -u robot -p r --skip-check --force-conflicts",
        ],
    },
    Case {
        title: "the Secrets are immutable",
        api: immutable,
        conflicts: 0,
        program: nothing,
        lines: &[
            "undo --to-revision 2 --yes",
            "remove quay.io --yes",
            "fleet undo team-a -n clusters --yes",
            "fleet add team-a -n clusters --registry quay.io -u robot -p r --skip-check",
        ],
    },
    Case {
        title: "the Secrets are absent",
        api: absent,
        conflicts: 0,
        program: nothing,
        lines: &[
            "undo --dry-run",
            "undo --yes",
            "remove quay.io --yes",
            "diff",
            "fleet undo team-a -n clusters --dry-run",
            "fleet undo team-a -n clusters --yes",
            "fleet diff team-a -n clusters",
        ],
    },
    Case {
        title: "there is nothing",
        api: || FakeApi::new(&[]),
        conflicts: 0,
        program: nothing,
        lines: &[
            "pause",
            "retry",
            "undo --yes",
            "remove --all --yes",
            "diff",
            "fleet retry team-a -n clusters",
            "fleet undo team-a -n clusters --yes",
            "fleet remove team-a -n clusters --yes",
            "fleet diff team-a -n clusters",
        ],
    },
    Case {
        title: "another client is ahead of two writes",
        api: sample,
        conflicts: 2,
        program: nothing,
        lines: WRITES,
    },
    Case {
        title: "other clients are ahead of all writes",
        api: sample,
        conflicts: usize::MAX,
        program: nothing,
        lines: WRITES,
    },
    Case {
        title: "the controller acts",
        api: rolled_out,
        conflicts: 0,
        program: act,
        lines: &[
            "retry --wait --timeout 20s",
            "undo --yes --wait --timeout 20s",
            "remove quay.io --yes --wait --timeout 20s",
            "remove --all --yes --wait --timeout 20s",
            "add quay.io -u robot -p r --skip-check --wait --timeout 20s",
        ],
    },
    Case {
        title: "the hub acts",
        api: sample,
        conflicts: 0,
        program: settle,
        lines: &[
            "fleet retry team-a -n clusters --wait --timeout 20s",
            "fleet undo team-a -n clusters --yes --wait --timeout 20s",
            "fleet remove team-a -n clusters --yes --wait --timeout 20s",
            "fleet add team-a -n clusters --registry quay.io -u robot -p r --skip-check --wait --timeout 20s",
        ],
    },
    Case {
        title: "the controller acts on a rollout that was paused",
        api: || rolled_out_with(&json!({"rollout": {"paused": true}})),
        conflicts: 0,
        program: act,
        lines: &["resume --wait --timeout 20s"],
    },
    Case {
        title: "the hub acts on a rollout that was paused",
        api: paused,
        conflicts: 0,
        program: settle,
        lines: &["fleet resume team-a -n clusters --wait --timeout 20s"],
    },
];

const WRITES: &[&str] = &[
    "pause",
    "retry",
    "undo --yes",
    "remove quay.io --yes",
    "remove --all --yes",
    "remove ghcr.io --source team-a-pull-secret --yes",
    "add quay.io -u robot -p r --skip-check",
    "fleet pause team-a -n clusters",
    "fleet retry team-a -n clusters",
    "fleet undo team-a -n clusters --yes",
    "fleet remove team-a -n clusters --yes",
    "fleet add team-a -n clusters --registry quay.io -u robot -p r --skip-check",
];

fn nothing(_: &mut Objects) {}

/// Every cluster has what the hub was to roll out.
fn settle(objects: &mut Objects) {
    let version = objects
        .get(SOURCE)
        .map(|source| source["metadata"]["resourceVersion"].clone());
    if let Some(fleet) = objects.get_mut(FLEET) {
        let patch = json!({"status": {
            "observedGeneration": fleet["metadata"]["generation"], "observedSecret": version,
            "counts": {"total": 2, "synced": 2, "failed": 0},
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Synced", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }});
        json_patch::merge(fleet, &patch);
    }
    for (_, object) in objects
        .iter_mut()
        .filter(|(path, _)| path.starts_with(CLUSTERS))
    {
        let patch = json!({"status": {
            "observedGeneration": object["metadata"]["generation"], "phase": "Synced", "revision": 3,
            "reason": "", "message": "",
        }});
        json_patch::merge(object, &patch);
    }
}

/// The sample with these changes of its objects.
fn with(changes: &[(&str, Value)]) -> FakeApi {
    golden::changed(sample(), changes.iter().cloned())
}

fn synced() -> FakeApi {
    let cluster = format!("{CLUSTERS}/m2.clusters.team-a");
    let done = json!({"status": {"phase": "Synced", "revision": 3, "reason": "", "message": ""}});
    with(&[
        (&path("nodepullsecrets", "node-3"), done.clone()),
        (&cluster, done),
    ])
}

fn other_identity() -> FakeApi {
    let blocked = json!({"status": {"phase": "Blocked", "identity": "1", "foundIdentity": "2"}});
    with(&[(&format!("{CLUSTERS}/m2.clusters.team-a"), blocked)])
}

fn paused() -> FakeApi {
    let paused = json!({"spec": {"rollout": {"paused": true}}});
    let configuration = path("globalpullsecrets", names::GLOBAL_SECRET);
    with(&[(&configuration, paused.clone()), (FLEET, paused)])
}

fn deleted() -> FakeApi {
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    with(&[(FLEET, deleted)])
}

fn owned() -> FakeApi {
    let owned = json!({"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}});
    with(&[
        (&path("secrets", names::ADDITIONAL_SECRET), owned.clone()),
        (
            &path("globalpullsecrets", names::GLOBAL_SECRET),
            owned.clone(),
        ),
        (SOURCE, owned.clone()),
        (FLEET, owned),
    ])
}

fn immutable() -> FakeApi {
    let immutable = json!({"immutable": true});
    let additional = path("secrets", names::ADDITIONAL_SECRET);
    with(&[(&additional, immutable.clone()), (SOURCE, immutable)])
}

fn absent() -> FakeApi {
    let additional = path("secrets", names::ADDITIONAL_SECRET);
    sample().without(&additional).without(SOURCE)
}

/// Like [`golden::transcript`], with the bodies of the writes.
fn transcript(case: &Case, line: &str) -> String {
    let bodies: Arc<Mutex<Vec<String>>> = Arc::default();
    let (recorded, program) = (Arc::clone(&bodies), case.program);
    let mut conflicts = case.conflicts;
    let api = (case.api)().with_rule(move |request, objects| {
        let mut recorded = recorded.lock().expect("no panic");
        if request.is_read() {
            if !recorded.is_empty() {
                program(objects);
            }
            return None;
        }
        let dry_run = request.parameter("dryRun");
        recorded.push(format!("{} {dry_run}", stable(request.body.clone())));
        conflicts = conflicts.checked_sub(1)?;
        Some(failure(409, "Conflict", "the object has been modified"))
    });
    golden::transcript(&api, line, || {
        let bodies = bodies.lock().expect("no panic");
        let writes = api.writes().into_iter().zip(&*bodies);
        let line = |(write, body): (String, &String)| format!("> {write} {}\n", body.trim_end());
        writes.map(line).collect()
    })
}

/// Without the time of a retry, and without what depends on the number of objects.
fn stable(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut().filter(|(_, value)| !value.is_null()) {
                *value = match key.as_str() {
                    "resourceVersion" => json!("VERSION"),
                    "uid" => json!("UID"),
                    names::RETRY_ANNOTATION => {
                        let time = value.as_str().map(str::parse::<Timestamp>);
                        assert!(matches!(time, Some(Ok(_))), "{value}");
                        json!("NOW")
                    }
                    _ => stable(value.take()),
                };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|it| *it = stable(it.take())),
        _ => {}
    }
    value
}

/// `UPDATE_VERBS` writes the file.
#[test]
fn verbs_say_and_write_what_is_on_record() {
    let of_case = |case: &Case| {
        let lines = case.lines.iter();
        (
            case.title,
            lines.map(|line| transcript(case, line)).collect(),
        )
    };
    golden::assert_on_record("verbs", CASES.iter().map(of_case));
}
