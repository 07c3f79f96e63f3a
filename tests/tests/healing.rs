//! Managed objects that are changed or deleted out of band are reverted and reported, without an endless conflict. In
//! the end they are all removed, whatever was unavailable at that moment.

mod common;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use common::shared::{Fleet, Shared, tests_on};
use common::{docker_config, scale_controllers};
use globalps_testkit::audit::{Request, is_write};
use globalps_testkit::product::{ADDITIONAL, DEADLINE, NAMESPACE, Product};
use globalps_testkit::{Cluster, Node, config_file, until, wait};
use jiff::Timestamp;
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
const SYNCER: &str = "global-pull-secret-syncer";
const CONTROLLER: &str = "system:serviceaccount:globalps-system:globalps-controller";
/// Excludes the retries, which are at least a minute apart. The durations are printed.
const AT_ONCE: Duration = Duration::from_secs(10);

/// An admin's change of one object.
enum Deed {
    Delete,
    /// A merge patch.
    Change(Value),
}

fn table(node: &str) -> Vec<(String, Deed)> {
    let syncer = |kind: &str| format!("{kind}/{SYNCER}");
    let restorer = |kind: &str| format!("{kind}/global-pull-secret-restorer");
    let pod = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}});
    let secret = json!({"data": {".dockerconfigjson": common::base64("{}")}});
    let number = json!({"metadata": {"annotations": {"globalps.io/revision": "9007199254740991"}}});
    vec![
        (syncer("daemonset"), Deed::Change(pod)),
        (syncer("daemonset"), Deed::Delete),
        (syncer("role"), Deed::Change(json!({"rules": []}))),
        (syncer("role"), Deed::Delete),
        (syncer("rolebinding"), Deed::Change(json!({"subjects": []}))),
        (syncer("rolebinding"), Deed::Delete),
        (syncer("serviceaccount"), Deed::Delete),
        (restorer("daemonset"), Deed::Delete),
        (restorer("role"), Deed::Change(json!({"rules": []}))),
        (restorer("serviceaccount"), Deed::Delete),
        ("secret/global-pull-secret".to_owned(), Deed::Change(secret)),
        ("secret/global-pull-secret".to_owned(), Deed::Change(number)),
        ("secret/global-pull-secret".to_owned(), Deed::Delete),
        (
            format!("nodepullsecret/{node}"),
            Deed::Change(json!({"spec": {"restore": true}})),
        ),
        (format!("nodepullsecret/{node}"), Deed::Delete),
    ]
}

static SHARED: Shared = Shared::new("healing", 3);

tests_on! { SHARED,
    what_somebody_else_does_is_put_back;
    who_fights_is_not_fought;
    a_secret_that_is_lost_while_nobody_looks_gets_a_new_revision;
    nothing_is_uninstalled_while_no_controller_runs;
    a_node_that_is_away_is_put_back_when_it_returns;
    a_node_that_is_away_is_let_go_of_with_its_object;
    an_etcd_from_a_backup_is_seen_at_once;
    // This comes last, because it uninstalls globalps.
    an_uninstall_that_skips_unreachable_nodes_ends;
}

/// Start of each test.
fn in_force(product: &Product) {
    product.apply(&content(1)).unwrap();
    product.wait_synced().unwrap();
}

fn what_somebody_else_does_is_put_back((cluster, product, nodes): Fleet) {
    in_force(product);
    for (what, deed) in table(nodes[1].name()) {
        it_is_put_back_at_once_and_told(cluster, product, &what, &deed);
    }
    // Checks more than that the objects exist: a rotation works too, with the tokens of the new ServiceAccount.
    product.apply(&content(2)).unwrap();
    product.wait_synced().unwrap();
}

fn content(revision: u32) -> String {
    docker_config(&[("healing.example.com", &format!("u:{revision}"))])
}

fn it_is_put_back_at_once_and_told(cluster: &Cluster, product: &Product, what: &str, deed: &Deed) {
    let before = meaning(&product.get(what).unwrap());
    let begun = SystemTime::now();
    let done = match deed {
        Deed::Delete => {
            kubectl(cluster, &["delete", what, "--wait=false"]);
            "deleted"
        }
        Deed::Change(patch) => {
            kubectl(
                cluster,
                &["patch", what, "--type=merge", "-p", &patch.to_string()],
            );
            "changed"
        }
    };
    let (kind, name) = what.split_once('/').unwrap();
    let resource = format!("{kind}s");
    let (deed_at, back_at) = until(&format!("{what} back"), DEADLINE, POLL, || {
        let writes = writes(cluster, begun, &resource, name);
        let deed = writes.iter().find(|(_, user)| user != CONTROLLER);
        let back = writes
            .iter()
            .find(|(time, user)| user == CONTROLLER && deed.is_some_and(|(deed, _)| time > deed));
        let is_back = meaning(&product.get(what)?) == before;
        let times = deed.zip(back).map(|(deed, back)| (deed.0, back.0));
        Ok(times.filter(|_| is_back))
    })
    .unwrap_or_else(|error| {
        let found = meaning(&product.get(what).unwrap());
        panic!("{error:#}\nfound: {found}\nbefore: {before}")
    });
    let took = back_at.duration_since(deed_at).unwrap();
    println!("{what} {done}: reverted {:.3} s later", took.as_secs_f32());
    assert!(took <= AT_ONCE, "{what} {done}: {took:?}");
    wait(&format!("an event of {what}"), POLL, || {
        let told = put_back_events(cluster, begun)?;
        let told = told
            .iter()
            .any(|note| note.to_lowercase().contains(&format!("{kind} `{name}`")));
        Ok(told.then_some(()))
    });
    product.wait_synced().unwrap();
    // The writes end: the controller does not write the same object endlessly.
    let number = writes(cluster, begun, &resource, name)
        .iter()
        .filter(|(_, user)| user == CONTROLLER)
        .count();
    assert!(number <= 5, "{what} {done}: {number} writes");
}

/// The part of an object that the controller defines.
fn meaning(object: &Value) -> Value {
    let mut spec = object["spec"].clone();
    if object["kind"] == "NodePullSecret" {
        // It is assigned again, at another time.
        spec = spec["restore"].clone();
    }
    if let Some(template) = spec
        .pointer_mut("/template/metadata")
        .and_then(Value::as_object_mut)
    {
        // The recreated ServiceAccount has another UID.
        template.remove("annotations");
    }
    json!({
        "exists": !object.is_null(),
        "spec": spec,
        "rules": object["rules"],
        "subjects": object["subjects"],
        "content": object["data"][".dockerconfigjson"],
        "revision": object["metadata"]["annotations"]["globalps.io/revision"],
    })
}

/// Writers of the object after `since`, and when the API server received each request. The controller's reaction to a
/// deletion can be complete before the response to the deletion.
fn writes(
    cluster: &Cluster,
    since: SystemTime,
    resource: &str,
    name: &str,
) -> Vec<(SystemTime, String)> {
    let mut writes = Vec::new();
    for request in Request::all(cluster, resource).unwrap() {
        let (event, received) = (request.event, request.received);
        let is_write = is_write(&event, &["create", "update", "patch", "delete"]);
        let target = &event["objectRef"];
        let is_it = target["name"] == name && target["subresource"].is_null();
        let user = event["user"]["username"].as_str().unwrap_or_default();
        // Writes of the garbage collector and the DaemonSet controller don't count.
        let is_of_system = user.starts_with("system:") && user != CONTROLLER;
        if is_write && is_it && !is_of_system && received >= since {
            writes.push((received, user.to_owned()));
        }
    }
    writes.sort();
    writes
}

fn put_back_events(cluster: &Cluster, since: SystemTime) -> anyhow::Result<Vec<String>> {
    let selector = format!(
        "involvedObject.name={ADDITIONAL},involvedObject.kind=Secret,reason=DriftCorrected"
    );
    let events: Value = serde_json::from_str(&cluster.kubectl_line(&format!(
        "get events -n {NAMESPACE} --field-selector {selector} -o json"
    ))?)?;
    let mut notes = Vec::new();
    for event in events["items"].as_array().into_iter().flatten() {
        let time: Timestamp = event["eventTime"].as_str().unwrap_or_default().parse()?;
        if SystemTime::from(time) >= since {
            notes.push(event["message"].as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(notes)
}

fn who_fights_is_not_fought((cluster, product, _): Fleet) {
    in_force(product);
    let what = format!("role/{SYNCER}");
    let before = meaning(&product.get(&what).unwrap());
    let begun = (SystemTime::now(), Instant::now());
    let mut fought = 0;
    while begun.1.elapsed() < Duration::from_secs(20) {
        kubectl(
            cluster,
            &["patch", &what, "--type=merge", "-p", r#"{"rules":[]}"#],
        );
        fought += 1;
        thread::sleep(POLL);
    }
    let mut by: BTreeMap<String, usize> = BTreeMap::new();
    for (_, user) in writes(cluster, begun.0, "roles", SYNCER) {
        *by.entry(user).or_default() += 1;
    }
    let ours = by.get(CONTROLLER).copied().unwrap_or_default();
    let told = put_back_events(cluster, begun.0).unwrap().len();
    println!("{fought} changes of a Role in 20 s: reverted {ours} times, {told} events");
    assert!((1..=10).contains(&ours) && told <= 10, "{ours}, {told}");
    wait("the Role to be reverted after the conflict", POLL, || {
        Ok((meaning(&product.get(&what)?) == before).then_some(()))
    });
    // A restart resets the controller's rate limit for this Role.
    scale_controllers(cluster, 0);
    scale_controllers(cluster, 2);
}

fn a_secret_that_is_lost_while_nobody_looks_gets_a_new_revision((cluster, product, nodes): Fleet) {
    in_force(product);
    let revision = product.revision().unwrap();
    scale_controllers(cluster, 0);
    let starts = product.starts(nodes).unwrap();
    kubectl(cluster, &["delete", "secret/global-pull-secret"]);
    scale_controllers(cluster, 2);
    wait("another revision", POLL, || {
        let now = product.status()?["revision"].as_i64().unwrap_or_default();
        Ok((now > revision).then_some(()))
    });
    product.wait_synced().unwrap();
    for (node, starts) in nodes.iter().zip(starts) {
        let now = product.kubelet_starts(node).unwrap();
        assert_eq!(now, starts, "equivalent content restarts no kubelet");
    }
}

fn nothing_is_uninstalled_while_no_controller_runs((cluster, product, _): Fleet) {
    in_force(product);
    scale_controllers(cluster, 0);
    let everything = || {
        ["nodepullsecrets", "secrets", "daemonsets", "roles"]
            .map(|what| kubectl(cluster, &["get", what, "-o", "name"]))
    };
    let before = everything();
    let ran = product.types("uninstall --yes", "");
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stderr.contains("and the controller is not running"),
        "{}",
        ran.stderr
    );
    assert_eq!(everything(), before, "nothing is partly removed");
    scale_controllers(cluster, 2);
}

fn a_node_that_is_away_is_put_back_when_it_returns((_, product, nodes): Fleet) {
    let node = &nodes[2];
    in_force(product);
    node.power_cut().unwrap();
    product.delete().unwrap();
    let others = |product: &Product| {
        let objects = product.get("nodepullsecrets")?;
        let objects = objects["items"].as_array().cloned().unwrap_or_default();
        let restored = |object: &&Value| object["status"]["phase"] == "Restored";
        Ok((objects.iter().filter(restored).count() == 2).then_some(objects.len()))
    };
    let number = wait("the other nodes to be restored", POLL, || others(product));
    assert_eq!(number, 3, "the cleanup waits for the unreachable node");
    assert!(config_file::read(node).unwrap().is_some());
    node.boot().unwrap();
    product.wait_clean().unwrap();
    assert_eq!(config_file::read(node).unwrap(), None);
}

fn a_node_that_is_away_is_let_go_of_with_its_object((cluster, product, nodes): Fleet) {
    in_force(product);
    nodes[2].power_cut().unwrap();
    product.delete().unwrap();
    cluster
        .kubectl(&["delete", "node", nodes[2].name()])
        .unwrap();
    product.wait_clean().unwrap();
    for node in &nodes[..2] {
        assert_eq!(config_file::read(node).unwrap(), None);
    }
}

/// The last test, because it leaves nothing in the cluster. After the restore, watches use a version from the future,
/// and every cache has objects that no longer exist.
fn an_etcd_from_a_backup_is_seen_at_once((cluster, product, nodes): Fleet) {
    in_force(product);
    cluster.back_up_etcd().unwrap();
    for revision in 2..5 {
        product.apply(&content(revision)).unwrap();
        product.wait_synced().unwrap();
    }
    cluster.restore_etcd().unwrap();
    let begun = Instant::now();
    let has = |revision: u32| {
        let expected = common::base64(&format!("u:{revision}"));
        let is = |node: &Node| -> anyhow::Result<bool> {
            Ok(config_file::auth(node, "healing.example.com")? == Some(expected.clone()))
        };
        nodes
            .iter()
            .map(is)
            .try_fold(true, |all, one| Ok::<_, anyhow::Error>(all && one?))
    };
    wait("the content of the backup", POLL, || {
        Ok(has(1)?.then_some(()))
    });
    let took = begun.elapsed();
    println!(
        "the nodes have the backup's content after {:.1} s",
        took.as_secs_f32()
    );
    product.apply(&content(9)).unwrap();
    product.wait_synced().unwrap();
    assert!(has(9).unwrap());
}

fn an_uninstall_that_skips_unreachable_nodes_ends((cluster, product, nodes): Fleet) {
    product.apply(&content(4)).unwrap();
    product.wait_synced().unwrap();
    // This node must not run the controller: its pod would block the namespace's deletion, because no kubelet reports
    // that it has ended.
    scale_controllers(cluster, 1);
    let gone = wait("a node without a controller", POLL, || {
        let busy = cluster.kubectl(&[
            "get",
            "pods",
            "-n",
            "globalps-system",
            "-o",
            "jsonpath={.items[*].spec.nodeName}",
        ])?;
        let mut nodes = nodes.iter();
        Ok(nodes.find(|node| !busy.split_whitespace().any(|name| name == node.name())))
    });
    let other = nodes
        .iter()
        .find(|node| node.name() != gone.name())
        .unwrap();
    gone.power_cut().unwrap();
    // The plugin drops an unreachable node as soon as the Secret is deleted, before the controller treats the Secret as deleted.
    wait("the node to be unreachable", POLL, || {
        let node = cluster.get("", &format!("node/{}", gone.name()))?;
        let conditions = node["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let is_unknown = conditions.any(|it| it["type"] == "Ready" && it["status"] == "Unknown");
        Ok(is_unknown.then_some(()))
    });
    let ran = product.ends("uninstall --yes --skip-unreachable --timeout 4m", 0);
    let skipped = format!(
        "nodes were skipped and keep their credentials: `{}`",
        gone.name()
    );
    assert!(ran.stderr.contains(&skipped), "{ran:?}");
    assert_eq!(config_file::read(other).unwrap(), None);
    assert!(config_file::read(gone).unwrap().is_some(), "as announced");
    assert!(gone.kubelet_dir().join(".globalps").exists());
    let left = kubectl(cluster, &["get", "crd", "-o", "name"]);
    assert!(!left.contains("globalps"), "{left}");
}

fn kubectl(cluster: &Cluster, args: &[&str]) -> String {
    cluster
        .kubectl(&[args, &["-n", NAMESPACE]].concat())
        .unwrap()
}
