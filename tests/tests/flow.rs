//! The main use case with plain kubectl: after a Secret is created, every node can pull a private image; after it is
//! deleted, every node has its original state.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use common::{base64, cluster, docker_config};
use globalps_testkit::product::{DEADLINE, NAMESPACE, Product};
use globalps_testkit::watch::Watch;
use globalps_testkit::{Access, Cluster, Node, config_file, until, wait};
use serde_json::{Value, json};

const OTHERS: &str = "own.example.com";
/// Every user can read this file in the end, so its password is used in no other file.
const OWN_FILE: &str = "{\n\t\"auths\": {\n\t\t\"own.example.com\": { \"auth\": \"b3duOmZpbGU=\" }\n\t},\n\t\"credsStore\": \"none\"\n}\n";

#[test]
fn with_plain_kubectl_a_secret_comes_and_goes_without_a_trace() {
    let cluster = cluster("flow", 3);
    let product = Product::install(&cluster).unwrap();
    let nodes = cluster.nodes().unwrap();
    let [first, second, third] = &nodes[..] else {
        panic!("three nodes")
    };
    let registry = cluster.registry();
    let private = registry.address(Access::Private);
    let image = format!("{private}/team/app:1");
    let password = registry.password().unwrap();

    // The first node has no file; the second has its own; the third has one with this registry and a wrong password.
    own_file(second, OWN_FILE, 0o644);
    let overridden = docker_config(&[(&private, "puller:wrong"), (OTHERS, "own:own")]);
    own_file(third, &overridden, 0o640);
    for node in &nodes {
        node.exec(&["systemctl", "restart", "kubelet.service"])
            .unwrap()
            .ok()
            .unwrap();
    }
    let before: Vec<_> = nodes
        .iter()
        .map(|node| config_file::read(node).unwrap())
        .collect();
    assert_eq!(before[0], None);

    product.start_pod("before", &image, first.name()).unwrap();
    let refusal = product.wait_pod("before", true).unwrap();
    assert!(
        refusal.contains("401") || refusal.contains("auth"),
        "{refusal}"
    );
    the_cause_is(&product, "before", &image, "NoCredentials");
    product.delete_pod("before").unwrap();

    // Create.
    let starts = product.starts(&nodes).unwrap();
    let good = registry.docker_config().unwrap();
    product.apply(&good).unwrap();
    product.wait_synced().unwrap();
    assert_eq!(
        product.more_starts(&nodes, &starts).unwrap(),
        [1, 1, 1],
        "one kubelet start per node"
    );
    for node in &nodes {
        let name = format!("on-{}", node.name());
        product.start_pod(&name, &image, node.name()).unwrap();
        product.wait_pod(&name, false).unwrap();
    }
    for (node, before) in nodes.iter().zip(&before) {
        let file = config_file::read(node).unwrap().unwrap();
        let owner = before.as_ref().map_or((0, 0), |before| before.owner);
        assert_eq!((file.mode, file.owner), (0o600, owner), "{}", node.name());
    }
    for (node, own) in [(second, "own:file"), (third, "own:own")] {
        assert_eq!(
            config_file::auth(node, OTHERS).unwrap(),
            Some(base64(own)),
            "the node's own entry survives"
        );
    }
    let second_file = config_file::read(second).unwrap().unwrap();
    assert!(
        String::from_utf8_lossy(&second_file.bytes).contains("credsStore"),
        "the file's other members survive"
    );

    the_standard_checks_hold(&cluster, &nodes);
    a_restart_ends_a_pod_that_no_longer_matches_its_node(&cluster, &product, &image, first);
    status_tells_the_truth(&product, 1);

    // The same content in another form changes nothing.
    let starts = product.starts(&nodes).unwrap();
    product.apply(&format!("{{ \"auths\": {{ \"https://{private}/v1/\": {{\"username\": \"puller\", \"password\": \"{password}\"}} }} }}"))
        .unwrap();
    product.wait_synced().unwrap();
    status_tells_the_truth(&product, 1);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(
        product.more_starts(&nodes, &starts).unwrap(),
        [0, 0, 0],
        "no kubelet start for another form"
    );

    // A rotation, one node after the other.
    let rotated = docker_config(&[
        (&private, &format!("puller:{password}")),
        ("more.example.com", "more:m0re-s3cret"),
    ]);
    let watch = Watch::start(&cluster, nodes.len()).unwrap();
    product.apply(&rotated).unwrap();
    product.wait_synced().unwrap();
    assert_eq!(
        product.more_starts(&nodes, &starts).unwrap(),
        [1, 1, 1],
        "one kubelet start per node and rotation"
    );
    assert_eq!(
        watch.most_at_once(2).unwrap(),
        1,
        "at most one node between assignment and `Synced`"
    );
    for node in &nodes {
        assert_eq!(
            config_file::auth(node, "more.example.com").unwrap(),
            Some(base64("more:m0re-s3cret"))
        );
    }

    // Delete.
    let starts = product.starts(&nodes).unwrap();
    product.delete().unwrap();
    product.wait_clean().unwrap();
    let after: Vec<_> = nodes
        .iter()
        .map(|node| config_file::read(node).unwrap())
        .collect();
    assert_eq!(after, before, "the same bytes, mode and owner, or no file");
    for node in &nodes {
        assert!(
            !node.kubelet_dir().join(".globalps").exists(),
            "nothing of globalps is left on {}",
            node.name()
        );
    }
    assert_eq!(
        product.more_starts(&nodes, &starts).unwrap(),
        [1, 1, 1],
        "one kubelet start to restore"
    );
    product.start_pod("after", &image, first.name()).unwrap();
    product.wait_pod("after", true).unwrap();
    for what in ["serviceaccount", "role", "rolebinding", "daemonset"] {
        assert_eq!(
            product
                .get(&format!("{what}/global-pull-secret-syncer"))
                .unwrap(),
            Value::Null,
            "{what} is gone"
        );
    }
    for reason in ["Merged", "RolledOut", "Restored"] {
        assert!(
            has_event(&cluster, reason),
            "an event {reason} on the Secret"
        );
    }

    product.delete_pod("after").unwrap();
    causes_of_failing_pulls(&product, &image, first, &good);
    waiting_pods_are_evicted_within_their_budget(&cluster, &product, &image, first);
    product
        .assert_never_shown(&[
            &password,
            "wr0ng-s3cret",
            &base64(&format!("puller:{password}")),
            "m0re-s3cret",
        ])
        .unwrap();
}

/// `check` reports this before the restart, which here the node's admin causes, not globalps.
fn a_restart_ends_a_pod_that_no_longer_matches_its_node(
    cluster: &Cluster,
    product: &Product,
    image: &str,
    node: &Node,
) {
    let found = || {
        let ran = product.types("check -o json", "");
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        let mut checks = report["checks"].as_array().unwrap().iter();
        let check = checks
            .find(|it| it["name"] == "kubelet-readmission")
            .unwrap();
        let text = |field: &str| check[field].as_str().unwrap().to_owned();
        (text("result"), text("message"))
    };
    let label = |label: &str| {
        cluster.types(&format!("label node {} {label}", node.name()));
    };
    label("tier=front");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "selects", "namespace": "default"},
        "spec": {
            "nodeName": node.name(), "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"tier": "front"},
            "containers": [{"name": "app", "image": image}],
        },
    });
    cluster.kubectl_with(&["apply", "-f", "-"], &pod).unwrap();
    product.wait_pod("selects", false).unwrap();
    assert_eq!(found().0, "ok");
    label("tier-");
    let (result, message) = found();
    assert_eq!(result, "warning");
    let on = format!("default/selects on {}", node.name());
    let named = format!("ends 1 pod that no longer matches the labels of the node: {on}");
    assert!(message.contains(&named), "{message}");
    node.exec(&["systemctl", "restart", "kubelet.service"])
        .unwrap()
        .ok()
        .unwrap();
    let is_it =
        |it: &Value| it["reason"] == "NodeAffinity" && it["involvedObject"]["name"] == "selects";
    wait(
        "the kubelet to reject the pod",
        Duration::from_millis(250),
        || {
            let events = cluster.get("default", "events")?;
            let mut events = events["items"].as_array().into_iter().flatten();
            Ok(events.any(is_it).then_some(()))
        },
    );
    product.delete_pod("selects").unwrap();
    product.wait_synced().unwrap();
}

/// `kubectl globalps why`, with `--insecure` because the registry's certificate is not trusted here.
fn the_cause_is(product: &Product, pod: &str, image: &str, code: &str) {
    let name = format!("default/{pod}");
    let ran = product
        .plugin(&["why", &name, "--insecure", "-o", "json"], "")
        .unwrap();
    assert_eq!(ran.code, Some(i32::from(!code.is_empty())), "{ran:?}");
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        answer["cause"]["code"].as_str().unwrap_or_default(),
        code,
        "{answer:#}"
    );
    if !code.is_empty() {
        assert_eq!(answer["containers"][0]["image"], image);
        product.ends("why -n default --no-ask -o json", 1);
    }
}

/// A wrong password on every node, a missing image, and both fixed.
fn causes_of_failing_pulls(product: &Product, image: &str, node: &Node, good: &str) {
    let registry = image.split('/').next().unwrap();
    let wrong = docker_config(&[(registry, "puller:wr0ng-s3cret")]);
    product.apply(&wrong).unwrap();
    product.wait_synced().unwrap();
    product.start_pod("wrong", image, node.name()).unwrap();
    product.wait_pod("wrong", true).unwrap();
    the_cause_is(product, "wrong", image, "CredentialsRefused");
    product.delete_pod("wrong").unwrap();
    product.apply(good).unwrap();
    product.wait_synced().unwrap();
    let missing = format!("{registry}/team/app:missing");
    product.start_pod("missing", &missing, node.name()).unwrap();
    product.wait_pod("missing", true).unwrap();
    the_cause_is(product, "missing", &missing, "ImageNotFound");
    product.delete_pod("missing").unwrap();
    product.start_pod("fixed", image, node.name()).unwrap();
    product.wait_pod("fixed", false).unwrap();
    the_cause_is(product, "fixed", image, "");
    product.delete_pod("fixed").unwrap();
}

/// The credentials are in force already, because otherwise pods would pull by themselves once their kubelet has
/// restarted. One pod waits for an image that is pushed too late. Another, whose disruption budget permits no eviction,
/// waits for one that is never pushed.
fn waiting_pods_are_evicted_within_their_budget(
    cluster: &Cluster,
    product: &Product,
    image: &str,
    node: &Node,
) {
    let registry = image.split('/').next().unwrap();
    let late = format!("{registry}/team/app:late");
    let labels = |name: &str| json!({"app": name});
    let deployment = |name: &str, image: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels(name)}, "template": {
                "metadata": {"labels": labels(name)},
                "spec": {
                    "nodeName": node.name(), "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "c", "image": image, "imagePullPolicy": "Always"}],
                },
            }},
        })
    };
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "withheld"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels("withheld")}},
    });
    let items = [
        deployment("withheld", image),
        deployment("waiting", &late),
        budget,
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    cluster.kubectl_with(&["apply", "-f", "-"], &list).unwrap();
    let pods = |name: &str| -> Vec<Value> {
        let list = cluster
            .kubectl(&["get", "pods", "-l", &format!("app={name}"), "-o", "json"])
            .unwrap();
        let list: Value = serde_json::from_str(&list).unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    };
    let the_one = |name: &str, is: &dyn Fn(&Value) -> bool| {
        let found = until(name, DEADLINE, Duration::from_millis(200), || {
            Ok(pods(name).into_iter().find(|pod| is(pod)))
        });
        found.unwrap()
    };
    let waits = |pod: &Value| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        ["ErrImagePull", "ImagePullBackOff"]
            .iter()
            .any(|reason| waiting["reason"] == *reason)
    };
    let runs = |pod: &Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    let withheld = the_one("withheld", &runs);
    // A budget only protects pods that have run: the API server always evicts pending ones.
    let own = withheld["metadata"]["name"].as_str().unwrap();
    let missing = format!("{registry}/team/app:missing");
    let patch = json!({"spec": {"containers": [{"name": "c", "image": missing}]}}).to_string();
    cluster
        .kubectl(&["patch", "pod", own, "-p", &patch])
        .unwrap();
    the_one("withheld", &waits);
    let waiting = the_one("waiting", &waits);
    // After a second attempt the kubelet backs off for at least 20 seconds, during which the pod does not pull by
    // itself. Its name sorts before that of the other pod, which delays `add`.
    let name = waiting["metadata"]["name"].as_str().unwrap().to_owned();
    let selector = format!("involvedObject.name={name},reason=Pulling");
    let attempts = || -> anyhow::Result<u32> {
        let flag = ["--field-selector", &selector];
        let counts = "jsonpath={.items[*].count}";
        let counts = cluster.kubectl(&["get", "events", flag[0], flag[1], "-o", counts])?;
        let counts = counts.split_whitespace();
        Ok(counts.filter_map(|it| it.parse::<u32>().ok()).sum())
    };
    let seen = attempts().unwrap().max(1);
    let pause = Duration::from_millis(200);
    until("another attempt", DEADLINE, pause, || {
        Ok((attempts()? > seen).then_some(()))
    })
    .unwrap();
    the_one("waiting", &waits);
    let access = cluster.registry();
    access
        .tag("team/app:1", Access::Private, "team/app:late")
        .unwrap();
    let words = "-u puller --password-stdin --skip-check --wait --timeout 8s --retry-pods";
    let add: Vec<&str> = ["add", registry]
        .into_iter()
        .chain(words.split(' '))
        .collect();
    let ran = product.plugin(&add, &access.password().unwrap()).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains("1 pod evicted, to pull again"),
        "{ran:?}"
    );
    let kept = "their disruption budget did not allow it in time";
    assert!(
        ran.stderr.contains(kept) && ran.stderr.contains(own),
        "{ran:?}"
    );
    let new = the_one("waiting", &runs);
    assert_ne!(new["metadata"]["uid"], waiting["metadata"]["uid"]);
    let same = |pod: &Value| pod["metadata"]["uid"] == withheld["metadata"]["uid"];
    assert!(pods("withheld").iter().any(same), "the withheld pod stays");
    let left = ["deployment/waiting", "deployment/withheld", "pdb/withheld"];
    let delete = ["delete", "--wait=true"].into_iter().chain(left);
    cluster.kubectl(&delete.collect::<Vec<_>>()).unwrap();
}

fn own_file(node: &Node, content: &str, mode: u32) {
    let path = node.kubelet_dir().join("config.json");
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

/// The checks that users of the reference implementation rely on.
fn the_standard_checks_hold(cluster: &Cluster, nodes: &[Node]) {
    let poll = Duration::from_millis(200);
    wait("every pod of the DaemonSet is ready", poll, || {
        let ready = cluster.kubectl_line(&format!(
            "get daemonset global-pull-secret-syncer -n {NAMESPACE} -o jsonpath={{.status.numberReady}}"
        ))?;
        Ok((ready == nodes.len().to_string()).then_some(()))
    });
    let type_ = cluster.types(&format!(
        "get secret global-pull-secret -n {NAMESPACE} -o jsonpath={{.type}}"
    ));
    assert_eq!(type_, "kubernetes.io/dockerconfigjson");
    let pods = cluster.types(&format!(
        "get pods -n {NAMESPACE} -l name=global-pull-secret-syncer --no-headers"
    ));
    assert_eq!(
        pods.lines().filter(|line| line.contains("Running")).count(),
        nodes.len(),
        "{pods}"
    );
    let table = cluster.types(&format!("get nps -n {NAMESPACE}"));
    for column in ["PHASE", "REVISION", "AGE", "REASON", "Synced"] {
        assert!(table.contains(column), "{table}");
    }
    cluster
        .types(&format!("wait --for=condition=Ready globalpullsecret/global-pull-secret -n {NAMESPACE} --timeout=10s"));
}

fn status_tells_the_truth(product: &Product, revision: i64) {
    let status = product.status().unwrap();
    assert_eq!(status["revision"], revision);
    assert_eq!(status["counts"]["total"], 3);
    assert_eq!(status["counts"]["synced"], 3);
    for (type_, expected) in [
        ("Ready", "True"),
        ("Progressing", "False"),
        ("Degraded", "False"),
        ("AdditionalValid", "True"),
        ("OriginalValid", "True"),
    ] {
        assert_eq!(product.condition(type_).unwrap().0, expected, "{type_}");
    }
}

fn has_event(cluster: &Cluster, reason: &str) -> bool {
    let selector = format!("reason={reason},involvedObject.name=additional-pull-secret");
    let events = cluster.kubectl_line(&format!(
        "get events -n {NAMESPACE} --field-selector {selector} -o name"
    ));
    !events.unwrap().trim().is_empty()
}
