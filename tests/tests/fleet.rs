//! Events in a fleet of real nodes: new nodes during a halted rollout, a deleted configuration, a recreated Secret,
//! deletions in the wrong order, failing nodes, hostile statuses, syncers without pods.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use common::shared::{Fleet, Shared, tests_on};
use common::{base64, docker_config, scale_controllers};
use globalps_testkit::audit::Request;
use globalps_testkit::broken_kubelet::break_kubelet;
use globalps_testkit::product::{
    ADDITIONAL, CONFIG, DEADLINE, NAMESPACE, Product, configuration, is_about_its_spec,
    pull_secret, reconfigure, run,
};
use globalps_testkit::{Cluster, Node, config_file, until, wait};
use jiff::Timestamp;
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
const REGISTRY: &str = "fleet.example.com";
const MAX_REVISION: i64 = (1 << 53) - 1;

static SHARED: Shared = Shared::new("fleet", 4);

tests_on! { SHARED,
    in_a_pause_a_new_node_gets_what_the_fleet_has;
    a_new_node_does_not_get_a_revision_that_halted;
    nothing_changes_while_the_configuration_is_deleted;
    a_configuration_that_no_longer_names_its_only_source_is_held;
    a_secret_recreated_with_the_same_content_changes_nothing;
    a_secret_that_is_recreated_with_other_content_is_one_change;
    nodes_without_their_objects_are_restored_within_the_limit;
    a_symbolic_link_on_the_first_node_stops_only_that_node;
    the_canary_goes_first;
    a_control_plane_node_goes_last;
    a_kubelet_that_dies_soon_stops_the_rollout_at_the_canary;
    a_hostile_status_moves_no_revision;
}

fn content(password: &str) -> String {
    docker_config(&[(REGISTRY, &format!("u:{password}"))])
}

/// Replaces `spec` of the `GlobalPullSecret`.
fn configure(cluster: &Cluster, spec: &Value) {
    cluster.apply(configuration(spec)).unwrap();
}

/// Rolls out this password to every node, with this configuration. Returns the revision.
fn in_force(cluster: &Cluster, product: &Product, spec: &Value, password: &str) -> i64 {
    configure(cluster, spec);
    product.apply(&content(password)).unwrap();
    product.wait_synced().unwrap();
    product.revision().unwrap()
}

fn has(node: &Node, password: &str) -> bool {
    config_file::auth(node, REGISTRY).unwrap() == Some(base64(&format!("u:{password}")))
}

fn all_have(nodes: &[Node], password: &str) -> bool {
    nodes.iter().all(|node| has(node, password))
}

fn set_paused(cluster: &Cluster, paused: bool) {
    reconfigure(cluster, &json!({"rollout": {"paused": paused}})).unwrap();
}

/// Pauses the rollout, and waits until the controller has read this content.
fn pause_with(cluster: &Cluster, product: &Product, password: &str) {
    set_paused(cluster, true);
    product.apply(&content(password)).unwrap();
    wait("the paused rollout", POLL, || {
        let rolling = product.condition("Ready")?.1 == "RollingOut";
        Ok((rolling && product.condition("Progressing")?.1 == "Paused").then_some(()))
    });
}

fn in_a_pause_a_new_node_gets_what_the_fleet_has((cluster, product, nodes): Fleet) {
    let spec = json!({"rollout": {"maxUnavailable": 2}});
    let before = in_force(cluster, product, &spec, "one");
    pause_with(cluster, product, "two");
    let new = cluster.add_node().unwrap();
    new.wait_ready(DEADLINE).unwrap();
    let status = product.wait_phase(&new, "Synced").unwrap();
    assert_eq!(status["revision"], before);
    assert!(has(&new, "one") && all_have(nodes, "one"));
    set_paused(cluster, false);
    product.wait_synced().unwrap();
    assert!(has(&new, "two") && all_have(nodes, "two"));
    assert_eq!(product.revision().unwrap(), before + 1);
}

fn a_new_node_does_not_get_a_revision_that_halted((cluster, product, nodes): Fleet) {
    let spec = json!({"rollout": {"maxUnavailable": 2}});
    let before = in_force(cluster, product, &spec, "one");
    // The node that is first fails, whichever it is.
    for node in nodes {
        break_kubelet(node, "broken.example.com").unwrap();
    }
    let broken = docker_config(&[(REGISTRY, "u:two"), ("broken.example.com", "u:two")]);
    product.apply(&broken).unwrap();
    let (_, reason, _) = product.wait_condition("Degraded", "True").unwrap();
    assert_eq!(reason, "RolloutHalted");
    let new = cluster.add_node().unwrap();
    new.wait_ready(DEADLINE).unwrap();
    let status = product.wait_phase(&new, "Synced").unwrap();
    assert_eq!(status["revision"], before);
    assert!(has(&new, "one") && all_have(nodes, "one"));
}

fn nothing_changes_while_the_configuration_is_deleted((cluster, product, nodes): Fleet) {
    let spec = json!({"rollout": {"maxUnavailable": 2}});
    let before = in_force(cluster, product, &spec, "one");
    pause_with(cluster, product, "two");
    let begun = SystemTime::now();
    let starts_before = product.starts(nodes).unwrap();
    cluster.types(&format!("delete {CONFIG} -n {NAMESPACE}"));
    wait("the event ConfigMissing", POLL, || {
        let selector = "--field-selector=reason=ConfigMissing,type=Warning";
        let args = ["get", "events", "-n", NAMESPACE, selector, "-o", "json"];
        let events: Value = serde_json::from_str(&cluster.kubectl(&args)?)?;
        let events = events["items"].as_array().into_iter().flatten();
        let mut times = events.map(|event| time(&event["eventTime"]));
        Ok(times.any(|time| time >= begun).then_some(()))
    });
    sleep(Duration::from_secs(5));
    assert_eq!(product.get(CONFIG).unwrap(), Value::Null, "no defaults");
    assert!(all_have(nodes, "one"));
    assert_eq!(product.starts(nodes).unwrap(), starts_before);
    assert_eq!(assigned(cluster, begun, before + 1), Vec::<String>::new());

    // The command from the event.
    let ran = product.plugin(&["install", "--restore-configuration"], "");
    let ran = ran.unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let rollout = product.get(CONFIG).unwrap()["spec"]["rollout"].clone();
    assert_eq!(rollout["paused"], true, "as it was: {rollout}");
    assert_eq!(rollout["maxUnavailable"], 2, "as it was: {rollout}");
    set_paused(cluster, false);
    product.wait_synced().unwrap();
    assert!(all_have(nodes, "two"));
    assert_eq!(product.revision().unwrap(), before + 1);
}

/// The same holds after the object was deleted and recreated with an empty spec. The commands come from the condition.
fn a_configuration_that_no_longer_names_its_only_source_is_held((cluster, product, nodes): Fleet) {
    const SOURCE: &str = "fleet-team";
    let plugin = |line: &str| {
        let ran = product.types(line, "");
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
    };
    let secret = pull_secret(NAMESPACE, SOURCE, &content("one"));
    cluster.apply(secret).unwrap();
    configure(cluster, &json!({"rollout": {"maxUnavailable": 2}}));
    plugin(&format!("install --apply --source {SOURCE}"));
    wait("the source on every node", POLL, || {
        Ok(all_have(nodes, "one").then_some(()))
    });
    product.wait_synced().unwrap();
    let starts_before = product.starts(nodes).unwrap();
    let held = || {
        let (_, reason, message) = product.wait_condition("Degraded", "True").unwrap();
        assert_eq!(reason, "Held", "{message}");
        assert!(message.contains(SOURCE), "{message}");
        sleep(Duration::from_secs(5));
        assert!(all_have(nodes, "one"));
        assert_eq!(product.starts(nodes).unwrap(), starts_before);
        let commands = message
            .split('`')
            .filter_map(|part| part.strip_prefix("kubectl globalps "));
        commands.map(str::to_owned).collect::<Vec<_>>()
    };

    cluster.types(&format!("delete {CONFIG} -n {NAMESPACE}"));
    configure(cluster, &json!({}));
    let advice = held();
    plugin(&advice[0]);
    product.wait_synced().unwrap();
    let spec = product.get(CONFIG).unwrap()["spec"].clone();
    assert_eq!(spec["rollout"]["maxUnavailable"], 2, "{spec}");
    assert_eq!(spec["sources"][0]["name"], SOURCE, "{spec}");
    assert_eq!(product.starts(nodes).unwrap(), starts_before);

    reconfigure(cluster, &json!({"sources": []})).unwrap();
    assert_eq!(held(), advice);
    plugin(&format!("{} --yes --wait --timeout 3m", advice[1]));
    for node in nodes {
        assert_eq!(config_file::auth(node, REGISTRY).unwrap(), None);
    }
    product.wait_clean().unwrap();
    let left = "secret/global-pull-secret-state";
    assert_eq!(product.get(left).unwrap(), Value::Null);
    let source = format!("secret/{SOURCE}");
    assert_ne!(
        product.get(&source).unwrap(),
        Value::Null,
        "only the nodes lose it"
    );
    cluster.types(&format!("delete {source} -n {NAMESPACE}"));
}

/// `kubectl replace --force`: a deletion, immediately followed by a creation.
fn recreate(cluster: &Cluster, password: &str) {
    let secret = pull_secret(NAMESPACE, ADDITIONAL, &content(password));
    let begun = SystemTime::now();
    cluster
        .kubectl_with(&["replace", "--force", "-f", "-"], &secret)
        .unwrap();
    let [deleted, created] = ["delete", "create"].map(|verb| written(cluster, begun, verb));
    let took = created.duration_since(deleted).unwrap();
    println!("created {:.2} s after the deletion", took.as_secs_f32());
    assert!(took < Duration::from_secs(2), "too slow for this test");
}

/// When the additional Secret was first written with this verb after `since`.
fn written(cluster: &Cluster, since: SystemTime, verb: &str) -> SystemTime {
    wait("the audit log", POLL, || {
        let mut requests = Request::all(cluster, "secrets")?.into_iter();
        let found = requests.find(|request| {
            let event = &request.event;
            let is_it = event["objectRef"]["name"] == ADDITIONAL && event["verb"] == verb;
            is_it && request.answered >= since
        });
        Ok(found.map(|request| request.answered))
    })
}

fn a_secret_recreated_with_the_same_content_changes_nothing((cluster, product, nodes): Fleet) {
    let spec = json!({"rollout": {"maxUnavailable": "100%"}});
    let before = in_force(cluster, product, &spec, "one");
    let starts_before = product.starts(nodes).unwrap();
    let begun = SystemTime::now();
    recreate(cluster, "one");
    product.wait_synced().unwrap();
    // Longer than the controller waits before it treats the Secret as deleted.
    sleep(Duration::from_secs(4));
    product.wait_synced().unwrap();
    assert_eq!(product.revision().unwrap(), before);
    assert!(all_have(nodes, "one"));
    assert_eq!(product.starts(nodes).unwrap(), starts_before);
    assert_eq!(specs(cluster, begun).count(), 0, "nothing is assigned");
}

fn a_secret_that_is_recreated_with_other_content_is_one_change((cluster, product, nodes): Fleet) {
    let spec = json!({"rollout": {"maxUnavailable": "100%"}});
    let before = in_force(cluster, product, &spec, "one");
    let starts_before = product.starts(nodes).unwrap();
    let begun = SystemTime::now();
    recreate(cluster, "two");
    product.wait_synced().unwrap();
    sleep(Duration::from_secs(4));
    assert_eq!(product.revision().unwrap(), before + 1);
    assert!(all_have(nodes, "two"));
    let once: Vec<_> = starts_before.iter().map(|starts| starts + 1).collect();
    assert_eq!(product.starts(nodes).unwrap(), once);
    let restored = specs(cluster, begun).any(|write| write.object["spec"]["restore"] == true);
    assert!(!restored, "no node was restored in between");
}

fn nodes_without_their_objects_are_restored_within_the_limit((cluster, product, nodes): Fleet) {
    in_force(
        cluster,
        product,
        &json!({"rollout": {"maxUnavailable": 1}}),
        "one",
    );
    let starts_before = product.starts(nodes).unwrap();
    scale_controllers(cluster, 0);
    cluster.types(&format!("delete nodepullsecrets --all -n {NAMESPACE}"));
    product.delete().unwrap();
    let begun = SystemTime::now();
    // Longer than the controller waits before it treats the Secret as deleted.
    sleep(Duration::from_secs(4));
    assert!(all_have(nodes, "one"), "no restore is requested");
    scale_controllers(cluster, 2);
    product.wait_clean().unwrap();
    for node in nodes {
        assert_eq!(config_file::read(node).unwrap(), None);
    }
    let once: Vec<_> = starts_before.iter().map(|starts| starts + 1).collect();
    assert_eq!(product.starts(nodes).unwrap(), once);

    let mut restoring = BTreeSet::new();
    let mut restored_at = BTreeMap::new();
    for write in writes(cluster, begun) {
        let is_over =
            is_about_its_spec(&write.object) && write.object["status"]["phase"] == "Restored";
        if write.object["spec"]["restore"] == true && !is_over {
            restoring.insert(write.node);
        } else {
            restoring.remove(&write.node);
            if is_over {
                restored_at.entry(write.node).or_insert(write.time);
            }
        }
        assert!(restoring.len() <= 1, "at the same time: {restoring:?}");
    }
    // The order of kubelet starts shows the same.
    let mut last_starts: Vec<_> = nodes
        .iter()
        .map(|node| (last_start(node), node.name()))
        .collect();
    last_starts.sort();
    for pair in last_starts.windows(2) {
        let [(_, first), (second_start, second)] = pair else {
            unreachable!("two each");
        };
        let restored = restored_at[*first];
        assert!(
            restored <= *second_start,
            "{second} restarted its kubelet before {first} was restored"
        );
    }
}

fn a_symbolic_link_on_the_first_node_stops_only_that_node((cluster, product, nodes): Fleet) {
    let spec = json!({"rollout": {"maxUnavailable": 1, "onFailure": "Rollback"}});
    let before = in_force(cluster, product, &spec, "one");
    let (first, others) = nodes.split_first().unwrap();
    let begun = SystemTime::now();
    let link = "cd /var/lib/kubelet && cp -p config.json kept && ln -s kept link && mv -T link config.json";
    first.exec(&["sh", "-c", link]).unwrap().ok().unwrap();
    product.apply(&content("two")).unwrap();
    wait("the other nodes to have the revision", POLL, || {
        let mut synced = true;
        for node in others {
            let status = product.node_status(node.name())?;
            synced &= status["phase"] == "Synced" && status["revision"] == before + 1;
        }
        Ok(synced.then_some(()))
    });
    assert!(all_have(others, "two"));
    assert_eq!(assigned(cluster, begun, before + 1)[0], first.name());
    let status = product.node_status(first.name()).unwrap();
    assert_eq!(status["phase"], "Failed", "{status}");
    assert_eq!(status["reason"], "NotARegularFile");
    let (_, reason, message) = product.wait_condition("Degraded", "True").unwrap();
    assert_eq!(reason, "NodesBlocked");
    assert!(message.contains(first.name()), "{message}");
    let progressing = product.condition("Progressing").unwrap();
    assert_ne!(progressing.1, "Halted", "{progressing:?}");
    assert_eq!(
        product.revision().unwrap(),
        before + 1,
        "nothing is rolled back"
    );

    let mend = "cd /var/lib/kubelet && mv -T kept config.json";
    first.exec(&["sh", "-c", mend]).unwrap().ok().unwrap();
    let mended = Instant::now();
    product.wait_phase(first, "Synced").unwrap();
    product.wait_synced().unwrap();
    let took = mended.elapsed();
    println!("synced {:.1} s after the link was gone", took.as_secs_f32());
    assert!(took < Duration::from_secs(90), "{took:?}");
    assert!(all_have(nodes, "two"));
    assert_eq!(product.revision().unwrap(), before + 1);
}

fn the_canary_goes_first((cluster, product, nodes): Fleet) {
    let canary = &nodes[2];
    let spec = json!({"rollout": {
        "maxUnavailable": "100%",
        "canary": {"nodeSelector": {"example.com/canary": "true"}},
    }});
    label(cluster, canary, "example.com/canary=true");
    let before = in_force(cluster, product, &spec, "one");
    let begun = SystemTime::now();
    let after = in_force(cluster, product, &spec, "two");
    assert_eq!(after, before + 1);
    assert_eq!(assigned(cluster, begun, after)[0], canary.name());
    for node in nodes.iter().filter(|node| node.name() != canary.name()) {
        assert!(
            synced_at(cluster, begun, canary, after) <= assigned_at(cluster, begun, node, after),
            "{} did not wait for the canary",
            node.name()
        );
    }
    label(cluster, canary, "example.com/canary-");
}

fn a_control_plane_node_goes_last((cluster, product, nodes): Fleet) {
    let control_plane = &nodes[0];
    let spec = json!({"rollout": {"maxUnavailable": "100%"}});
    label(
        cluster,
        control_plane,
        "node-role.kubernetes.io/control-plane=",
    );
    let before = in_force(cluster, product, &spec, "one");
    let begun = SystemTime::now();
    let after = in_force(cluster, product, &spec, "two");
    assert_eq!(after, before + 1);
    let order = assigned(cluster, begun, after);
    assert_eq!(order.last().map(String::as_str), Some(control_plane.name()));
    for node in &nodes[1..] {
        assert!(
            synced_at(cluster, begun, node, after)
                <= assigned_at(cluster, begun, control_plane, after),
            "{} had not finished",
            node.name()
        );
    }
    label(
        cluster,
        control_plane,
        "node-role.kubernetes.io/control-plane-",
    );
}

fn a_kubelet_that_dies_soon_stops_the_rollout_at_the_canary((cluster, product, nodes): Fleet) {
    let spec = json!({"rollout": {"maxUnavailable": "100%", "canary": {"minReadySeconds": 60}}});
    // Without `minReadySeconds`, which would only lengthen the test.
    in_force(
        cluster,
        product,
        &json!({"rollout": {"maxUnavailable": "100%"}}),
        "one",
    );
    configure(cluster, &spec);
    let before = product.revision().unwrap();
    let begun = SystemTime::now();
    product.apply(&content("two")).unwrap();
    let served = until("a kubelet to serve with it", DEADLINE, POLL, || {
        for node in nodes {
            let status = product.node_status(node.name())?;
            if status["phase"] == "Synced" && status["revision"] == before + 1 {
                return Ok(Some(node));
            }
        }
        Ok(None)
    });
    let kill = ["pkill", "-9", "-x", "kubelet"];
    served.unwrap().exec(&kill).unwrap().ok().unwrap();
    let (_, reason, message) = product.wait_condition("Degraded", "True").unwrap();
    assert_eq!(reason, "RolloutHalted", "{message}");
    let order = assigned(cluster, begun, before + 1);
    let [canary] = order.as_slice() else {
        panic!("one node, not {order:?}");
    };
    assert!(message.contains(canary.as_str()), "{message}");
    assert_eq!(product.node_status(canary).unwrap()["phase"], "RolledBack");
    assert!(all_have(nodes, "one"));
}

fn a_hostile_status_moves_no_revision((cluster, product, nodes): Fleet) {
    let spec = json!({"rollout": {"maxUnavailable": 2}});
    let before = in_force(cluster, product, &spec, "one");
    let hostile = &nodes[1];
    let patch = |status: Value| {
        let what = format!("nodepullsecret/{}", hostile.name());
        let patch = json!({"status": status}).to_string();
        let mut kubectl = cluster.kubectl_command();
        kubectl.args(["patch", &what, "-n", NAMESPACE, "--subresource=status"]);
        kubectl.args(["--type=merge", "-p", &patch]);
        run(&mut kubectl, "").unwrap()
    };
    for beyond in [MAX_REVISION + 1, i64::MAX - 1, -1] {
        let ran = patch(json!({"revision": beyond}));
        assert_ne!(ran.code, Some(0), "{beyond}: {ran:?}");
        assert!(ran.stderr.contains("status.revision"), "{ran:?}");
    }
    let honest: Vec<Node> = nodes
        .iter()
        .filter(|node| node.name() != hostile.name())
        .cloned()
        .collect();
    for (rotation, status) in [
        ("two", json!({"revision": MAX_REVISION})),
        ("three", json!({"phase": "Dreaming", "reason": "Hostile"})),
    ] {
        let before = product.revision().unwrap();
        let ran = patch(status.clone());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        sleep(Duration::from_secs(3));
        assert_eq!(product.revision().unwrap(), before, "{status}");
        let list = product.get("nodepullsecrets").unwrap();
        assert_eq!(list["items"].as_array().map(Vec::len), Some(nodes.len()));
        let ran = product.types("status -o json", "");
        let shown: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(shown["revision"], before, "{ran:?}");
        product.apply(&content(rotation)).unwrap();
        wait("the honest nodes to have the revision", POLL, || {
            Ok(all_have(&honest, rotation).then_some(()))
        });
        assert_eq!(product.revision().unwrap(), before + 1, "{status}");
        // Its syncer reports again, and every node is synced.
        product.wait_synced().unwrap();
    }
    assert_eq!(product.revision().unwrap(), before + 2);
    // Its syncer corrects the status although it has nothing new to report.
    patch(json!({"revision": 1, "revisionId": "00000000000000ff"}));
    wait("the corrected status", POLL, || {
        let status = product.node_status(hostile.name())?;
        Ok((status["revision"] == before + 2).then_some(()))
    });
    product.wait_synced().unwrap();
}

#[test]
fn syncers_whose_pods_the_api_server_refuses_are_a_condition() {
    let cluster = common::cluster("fleet-quota", 1);
    let product = Product::install(&cluster).unwrap();
    product.apply(&content("one")).unwrap();
    product.wait_synced().unwrap();
    let (status, reason, _) = healthy(&product, "True");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "AllRunning"));
    let kubectl = |args: &[&str]| {
        cluster
            .kubectl(&[args, &["-n", NAMESPACE]].concat())
            .unwrap()
    };
    kubectl(&["create", "quota", "none", "--hard=pods=0"]);
    let effective = "--for=jsonpath={.status.hard.pods}=0";
    kubectl(&["wait", effective, "quota/none", "--timeout=60s"]);
    kubectl(&["delete", "pod", "-l", "name=global-pull-secret-syncer"]);
    let begun = Instant::now();
    let (_, reason, message) = healthy(&product, "False");
    let took = begun.elapsed();
    println!("SyncersHealthy is False after {:.0} s", took.as_secs_f32());
    assert_eq!(reason, "PodsNotCreated");
    assert!(
        message.contains("kubectl -n kube-system describe daemonset"),
        "{message}"
    );
    assert!((30..100).contains(&took.as_secs()), "{took:?}");
    kubectl(&["delete", "quota", "none"]);
    // The control plane retries with exponential backoff; any change of the DaemonSet triggers a retry at once.
    kubectl(&[
        "annotate",
        "daemonset/global-pull-secret-syncer",
        "example.com/try=now",
    ]);
    healthy(&product, "True");
    product.wait_synced().unwrap();
}

fn healthy(product: &Product, wanted: &str) -> (String, String, String) {
    until(&format!("SyncersHealthy={wanted}"), DEADLINE, POLL, || {
        let found = product.condition("SyncersHealthy")?;
        Ok((found.0 == wanted).then_some(found))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:?}", product.status()))
}

fn label(cluster: &Cluster, node: &Node, label: &str) {
    cluster.types(&format!("label node {} {label} --overwrite", node.name()));
}

/// A write to a `NodePullSecret` that the API server accepted, with the whole object after it.
struct Write {
    /// Higher for a later write. The response to a write may arrive after its effects.
    version: u64,
    time: SystemTime,
    node: String,
    is_status: bool,
    object: Value,
}

/// Every creation and change after `since`, in order.
fn writes(cluster: &Cluster, since: SystemTime) -> Vec<Write> {
    let mut found = Vec::new();
    for request in Request::all(cluster, "nodepullsecrets").unwrap() {
        let (event, time) = (request.event, request.answered);
        let object = &event["responseObject"];
        let code = event["responseStatus"]["code"].as_u64().unwrap_or(500);
        if event["verb"] == "delete"
            || object["kind"] != "NodePullSecret"
            || code >= 300
            || time < since
        {
            continue;
        }
        let version = object["metadata"]["resourceVersion"].as_str().unwrap();
        found.push(Write {
            version: version.parse().unwrap(),
            time,
            node: object["metadata"]["name"].as_str().unwrap().to_owned(),
            is_status: event["objectRef"]["subresource"] == "status",
            object: object.clone(),
        });
    }
    found.sort_by_key(|write| write.version);
    found
}

fn specs(cluster: &Cluster, since: SystemTime) -> impl Iterator<Item = Write> {
    let writes = writes(cluster, since).into_iter();
    writes.filter(|write| !write.is_status)
}

fn is_synced(object: &Value, revision: i64) -> bool {
    let status = &object["status"];
    is_about_its_spec(object) && status["phase"] == "Synced" && status["revision"] == revision
}

/// The nodes that were assigned the revision after `since`, in order.
fn assigned(cluster: &Cluster, since: SystemTime, revision: i64) -> Vec<String> {
    let mut order = Vec::new();
    for write in specs(cluster, since) {
        if write.object["spec"]["revision"] == revision && !order.contains(&write.node) {
            order.push(write.node);
        }
    }
    order
}

/// Version of the write that assigned the revision to the node.
fn assigned_at(cluster: &Cluster, since: SystemTime, node: &Node, revision: i64) -> u64 {
    let mut writes = specs(cluster, since);
    let is_it =
        |write: &Write| write.node == node.name() && write.object["spec"]["revision"] == revision;
    writes.find(is_it).unwrap().version
}

fn synced_at(cluster: &Cluster, since: SystemTime, node: &Node, revision: i64) -> u64 {
    let writes = writes(cluster, since);
    let mut writes = writes.into_iter();
    let is_it = |write: &Write| write.node == node.name() && is_synced(&write.object, revision);
    writes.find(is_it).unwrap().version
}

fn time(value: &Value) -> SystemTime {
    let time: Timestamp = value.as_str().unwrap_or_default().parse().unwrap();
    time.into()
}

/// Time of the last start of the node's kubelet.
fn last_start(node: &Node) -> SystemTime {
    let started = "MESSAGE_ID=39f53479d3a045ac8e11786248231fbf";
    let journal = ["journalctl", "-u", "kubelet.service", started];
    let show = ["-n", "1", "-o", "json", "--no-pager"];
    let line = node
        .exec(&[&journal[..], &show].concat())
        .unwrap()
        .ok()
        .unwrap();
    let entry: Value = serde_json::from_str(&line).unwrap();
    let micros: u64 = entry["__REALTIME_TIMESTAMP"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}
