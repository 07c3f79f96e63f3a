//! Delivery with the kubelet's credential provider, on real nodes: one restart to enable it, none for a rotation, one
//! to disable it, and credentials for some namespaces only.

mod common;

use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use common::shared::{Fleet, Shared, tests_on};
use common::{base64, write};
use globalps_testkit::product::{DEADLINE, NAMESPACE, Product, pull_secret, reconfigure};
use globalps_testkit::{Access, Cluster, Node, config_file, until, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
const OWN_FILE: &str = "{ \"auths\": { \"own.example.com\": {\"auth\": \"b3duOmZpbGU=\"} } }\n";
const SOURCE: &str = "team-a-pull-secret";

static SHARED: Shared = Shared::new("credential-provider", 3);

tests_on! { SHARED,
    one_restart_in_none_for_a_rotation_and_one_out;
    a_scope_is_for_the_pods_of_its_namespaces;
    damaged_data_holds_up_no_pull_that_needs_nothing;
    a_hundred_pulls_at_once_go_on_while_the_data_is_damaged;
    flags_that_somebody_rewrites_come_back;
    a_kubelet_without_flags_keeps_the_file_and_says_why;
}

fn deliver(cluster: &Cluster, delivery: &str) {
    reconfigure(cluster, &json!({"kubelet": {"delivery": delivery}})).unwrap();
}

/// Waits until the status of each node reports this delivery of the current content.
fn wait_delivered(product: &Product, nodes: &[Node], delivery: &str) {
    product.wait_synced().unwrap();
    product.wait_delivered(nodes, delivery).unwrap();
}

fn flags(node: &Node) -> String {
    fs::read_to_string(node.kubelet_dir().join("kubeadm-flags.env")).unwrap()
}

/// Creates a pod in this namespace with this service account; replaces an existing one.
fn start_pod(cluster: &Cluster, namespace: &str, image: &str, node: &Node, policy: &str) {
    cluster.types(&format!(
        "delete pod p -n {namespace} --ignore-not-found --force --grace-period=0"
    ));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace},
        "spec": {
            "nodeName": node.name(), "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": image, "imagePullPolicy": policy}],
        },
    });
    apply(cluster, &pod);
}

fn apply(cluster: &Cluster, object: &Value) {
    wait("kubectl apply", POLL, || {
        // A new namespace does not have its service account yet.
        Ok(cluster.apply(object).ok())
    });
}

/// Waits until the pod in this namespace runs, or until its image cannot be pulled.
fn wait_pod(cluster: &Cluster, namespace: &str, runs: bool) {
    let what = format!(
        "the pod of {namespace} {}",
        if runs { "runs" } else { "is refused" }
    );
    let mut seen = String::new();
    until(&what, DEADLINE, POLL, || {
        let pod = cluster.get(namespace, "pod/p")?;
        anyhow::ensure!(!pod.is_null(), "there is no pod");
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        let reason = waiting["reason"].as_str().unwrap_or_default();
        seen = format!("{waiting}");
        let is_refused = matches!(reason, "ErrImagePull" | "ImagePullBackOff");
        let is_running = pod["status"]["phase"] == "Running";
        anyhow::ensure!(
            !(runs && is_refused || !runs && is_running),
            "the pod's state is {seen}"
        );
        Ok((is_running || is_refused).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}; {seen}"));
}

fn one_restart_in_none_for_a_rotation_and_one_out((cluster, product, nodes): Fleet) {
    let registry = cluster.registry();
    let private = registry.address(Access::Private);
    let image = format!("{private}/team/app:1");
    fs::write(nodes[1].kubelet_dir().join("config.json"), OWN_FILE).unwrap();
    let files = |nodes: &[Node]| -> Vec<_> {
        let files = nodes
            .iter()
            .map(|node| (config_file::read(node).unwrap(), flags(node)));
        files.collect()
    };
    let before = files(nodes);
    product.apply(&registry.docker_config().unwrap()).unwrap();
    wait_delivered(product, nodes, "ConfigFile");

    // Enable.
    let known = product.starts(nodes).unwrap();
    deliver(cluster, "CredentialProvider");
    wait_delivered(product, nodes, "CredentialProvider");
    assert_eq!(
        product.more_starts(nodes, &known).unwrap(),
        [1, 1, 1],
        "one start per node"
    );
    for (node, (file, _)) in nodes.iter().zip(&before) {
        let has = config_file::auth(node, &private).unwrap();
        assert_eq!(has, None, "the file has no managed entries");
        let now = config_file::read(node).unwrap().map(|file| file.bytes);
        assert_eq!(
            now,
            file.as_ref().map(|file| file.bytes.clone()),
            "{}",
            node.name()
        );
        assert!(flags(node).contains("--image-credential-provider-config="));
        product
            .start_pod(&format!("in-{}", node.name()), &image, node.name())
            .unwrap();
        product
            .wait_pod(&format!("in-{}", node.name()), false)
            .unwrap();
    }

    // A rotation: the registry now rejects the old password, and the next pull already uses the new one.
    let known = product.starts(nodes).unwrap();
    registry.set_password("rotated-in-place").unwrap();
    let begun = Instant::now();
    product.apply(&registry.docker_config().unwrap()).unwrap();
    wait_delivered(product, nodes, "CredentialProvider");
    println!(
        "a rotation in place: Synced after {:.2} s",
        begun.elapsed().as_secs_f32()
    );
    for node in nodes {
        let pod = format!("rotated-{}", node.name());
        product.start_pod(&pod, &image, node.name()).unwrap();
        product.wait_pod(&pod, false).unwrap();
    }
    assert_eq!(
        product.more_starts(nodes, &known).unwrap(),
        [0, 0, 0],
        "no start"
    );

    // A registry with a port that the provider's configuration doesn't match yet.
    write(
        product,
        &[
            (
                &private,
                &format!("puller:{}", registry.password().unwrap()),
            ),
            ("other.example.com:4711", "u:p-of-another-port"),
        ],
    );
    wait_delivered(product, nodes, "CredentialProvider");
    assert_eq!(
        product.more_starts(nodes, &known).unwrap(),
        [1, 1, 1],
        "one start for a new port"
    );

    // Back to the file, and enable again.
    let known = product.starts(nodes).unwrap();
    deliver(cluster, "ConfigFile");
    wait_delivered(product, nodes, "ConfigFile");
    assert_eq!(
        product.more_starts(nodes, &known).unwrap(),
        [1, 1, 1],
        "one start to disable it"
    );
    for (node, (_, before)) in nodes.iter().zip(&before) {
        assert_eq!(flags(node), *before);
        let password = registry.password().unwrap();
        let expected = Some(base64(&format!("puller:{password}")));
        assert_eq!(config_file::auth(node, &private).unwrap(), expected);
    }
    deliver(cluster, "CredentialProvider");
    wait_delivered(product, nodes, "CredentialProvider");

    // Disable.
    let known = product.starts(nodes).unwrap();
    product.delete().unwrap();
    product.wait_clean().unwrap();
    assert_eq!(
        product.more_starts(nodes, &known).unwrap(),
        [1, 1, 1],
        "one start to disable it"
    );
    assert_eq!(
        files(nodes),
        before,
        "both files are restored byte for byte"
    );
    for node in nodes {
        assert!(!node.kubelet_dir().join(".globalps").exists());
    }
    fs::remove_file(nodes[1].kubelet_dir().join("config.json")).unwrap();
}

/// Writes the source with the private registry's password, for these namespaces.
fn scope(cluster: &Cluster, namespaces: &[&str]) {
    reconfigure(
        cluster,
        &json!({
            "kubelet": {"delivery": "CredentialProvider"},
            "sources": [{"name": SOURCE, "scope": {"namespaces": namespaces}}],
        }),
    )
    .unwrap();
}

fn a_scope_is_for_the_pods_of_its_namespaces((cluster, product, nodes): Fleet) {
    let registry = cluster.registry();
    let private = registry.address(Access::Private);
    let image = format!("{private}/team/app:1");
    let node = &nodes[0];
    for namespace in ["team-a", "team-b"] {
        cluster.types(&format!("create namespace {namespace}"));
    }
    product.install_again(&["--source", SOURCE]).unwrap();
    let content = registry.docker_config().unwrap();
    apply(cluster, &pull_secret(NAMESPACE, SOURCE, &content));
    write(product, &[("everybodys.example.com", "u:everybodys")]);
    scope(cluster, &["team-a", "team-a-*"]);
    wait("the source to be in effect", POLL, || {
        let source = product.status()?["sources"][0].clone();
        Ok((source["valid"] == true && !source["scope"].is_null()).then_some(()))
    });
    wait_delivered(product, nodes, "CredentialProvider");
    let known = product.starts(nodes).unwrap();

    start_pod(cluster, "team-a", &image, node, "Always");
    wait_pod(cluster, "team-a", true);
    for policy in ["Always", "IfNotPresent"] {
        start_pod(cluster, "team-b", &image, node, policy);
        wait_pod(cluster, "team-b", false);
    }
    // The kubelet makes the same check for an image that is already on the node.
    start_pod(cluster, "team-a", &image, node, "IfNotPresent");
    wait_pod(cluster, "team-a", true);
    assert!(
        config_file::auth(node, &private).unwrap().is_none(),
        "never in the file"
    );

    // A namespace that is only a second old.
    cluster.types("create namespace team-a-new");
    start_pod(cluster, "team-a-new", &image, node, "Always");
    wait_pod(cluster, "team-a-new", true);

    scope(cluster, &["team-b"]);
    wait("the other scope to be in effect", POLL, || {
        let status = product.status()?;
        Ok((status["sources"][0]["scope"] == "team-b").then_some(()))
    });
    wait_delivered(product, nodes, "CredentialProvider");
    start_pod(cluster, "team-a", &image, node, "Always");
    wait_pod(cluster, "team-a", false);
    start_pod(cluster, "team-b", &image, node, "Always");
    wait_pod(cluster, "team-b", true);
    assert_eq!(
        product.more_starts(nodes, &known).unwrap(),
        [0, 0, 0],
        "scopes restart no kubelet"
    );

    // An invalid scope blocks no other source, and the last valid one stays.
    scope(cluster, &["team-["]);
    wait("the source to be invalid", POLL, || {
        let source = product.status()?["sources"][0].clone();
        let message = source["message"].as_str().unwrap_or_default().to_owned();
        Ok((source["valid"] == false && message.contains("team-[")).then_some(()))
    });
    start_pod(cluster, "team-b", &image, node, "Always");
    wait_pod(cluster, "team-b", true);

    for namespace in ["team-a", "team-b", "team-a-new"] {
        cluster.types(&format!("delete namespace {namespace} --wait=false"));
    }
    cluster.types(&format!("delete secret {SOURCE} -n {NAMESPACE}"));
}

fn damaged_data_holds_up_no_pull_that_needs_nothing((cluster, product, nodes): Fleet) {
    let registry = cluster.registry();
    let open = format!("{}/pause:1", registry.address(Access::Open));
    product.apply(&registry.docker_config().unwrap()).unwrap();
    deliver(cluster, "CredentialProvider");
    wait_delivered(product, nodes, "CredentialProvider");
    let known = product.starts(nodes).unwrap();
    let node = &nodes[0];
    let data = node.kubelet_dir().join(".globalps/credentials.json");
    let good = fs::read(&data).unwrap();
    for (case, bytes) in [
        ("gone", None),
        ("cut", Some(good[..good.len() / 2].to_vec())),
        ("garbage", Some(b"\xff\x00{".to_vec())),
    ] {
        match &bytes {
            Some(bytes) => fs::write(&data, bytes).unwrap(),
            None => fs::remove_file(&data).unwrap(),
        }
        product.start_pod("open", &open, node.name()).unwrap();
        product.wait_pod("open", false).unwrap();
        wait(&format!("{case}: the syncer to repair it"), POLL, || {
            Ok((fs::read(&data).ok().as_ref() == Some(&good)).then_some(()))
        });
    }
    assert_eq!(product.more_starts(nodes, &known).unwrap(), [0, 0, 0]);
    // Stays below the limit of conflicts, which another test covers.
    sleep(Duration::from_secs(1));
}

/// A hundred pods on one node, each with its own tag, half of them from the private registry.
fn a_hundred_pulls_at_once_go_on_while_the_data_is_damaged((cluster, product, nodes): Fleet) {
    const PODS: usize = 100;
    let registry = cluster.registry();
    let (open, private) = (
        registry.address(Access::Open),
        registry.address(Access::Private),
    );
    let node = &nodes[0];
    let image = |pod: usize| {
        if pod.is_multiple_of(2) {
            (Access::Open, format!("many:{pod}"))
        } else {
            (Access::Private, format!("team/many:{pod}"))
        }
    };
    for pod in 0..PODS {
        let (access, name) = image(pod);
        registry.tag("team/app:1", access, &name).unwrap();
    }
    product.apply(&registry.docker_config().unwrap()).unwrap();
    deliver(cluster, "CredentialProvider");
    wait_delivered(product, nodes, "CredentialProvider");
    let known = product.starts(nodes).unwrap();
    let pods: Vec<Value> = (0..PODS)
        .map(|pod| {
            let (access, name) = image(pod);
            let address = if access == Access::Open { &open } else { &private };
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("many-{pod}"), "labels": {"many": access.name()}},
                "spec": {
                    "nodeName": node.name(), "hostNetwork": true, "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": false,
                    "containers": [{
                        "name": "c", "image": format!("{address}/{name}"), "imagePullPolicy": "Always",
                    }],
                },
            })
        })
        .collect();
    let data = node.kubelet_dir().join(".globalps/credentials.json");
    let good = fs::read(&data).unwrap();
    let pulled = |which: &str| -> anyhow::Result<(usize, Vec<String>)> {
        let selector = format!("--selector=many={which}");
        let list = cluster.kubectl(&["get", "pods", &selector, "-o", "json"])?;
        let list: Value = serde_json::from_str(&list)?;
        let statuses = list["items"].as_array().into_iter().flatten();
        let containers: Vec<&Value> = statuses
            .map(|pod| &pod["status"]["containerStatuses"][0])
            .collect();
        let running = containers
            .iter()
            .filter(|container| container["state"]["running"].is_object());
        let refused = containers.iter().filter_map(|container| {
            let waiting = &container["state"]["waiting"];
            let reason = waiting["reason"].as_str()?;
            reason.contains("Image").then(|| waiting.to_string())
        });
        Ok((running.count(), refused.collect()))
    };
    apply(
        cluster,
        &json!({"apiVersion": "v1", "kind": "List", "items": pods}),
    );
    let begun = Instant::now();
    // The syncer repairs four conflicts in ten minutes at once, and gives up at the fifth. Every second conflict occurs
    // while the repair of the previous one is still in progress.
    let damages: [(Duration, &dyn Fn() -> io::Result<()>); 4] = [
        (Duration::ZERO, &|| fs::remove_file(&data)),
        (Duration::ZERO, &|| {
            fs::write(&data, &good[..good.len() / 2])
        }),
        (Duration::from_secs(1), &|| fs::write(&data, b"\xff\x00{")),
        (Duration::ZERO, &|| fs::write(&data, b"")),
    ];
    for (number, (pause, damage)) in damages.into_iter().enumerate() {
        let what = format!("intact data after {number} damages");
        let at_once = Duration::from_millis(1);
        until(&what, DEADLINE, at_once, || {
            Ok(fs::read(&data).is_ok_and(|data| data == good).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {:#?}", product.node_status(node.name())));
        sleep(pause);
        damage().unwrap();
    }
    println!("damaged for {:.1} s", begun.elapsed().as_secs_f32());
    let mut running = 0;
    until("the public images", Duration::from_mins(5), POLL, || {
        let (now, refused) = pulled("open")?;
        running = now;
        anyhow::ensure!(
            refused.is_empty(),
            "a public image was not pulled: {refused:?}"
        );
        Ok((running == PODS / 2).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {running} run"));
    println!(
        "{} public images after {:.1} s",
        PODS / 2,
        begun.elapsed().as_secs_f32()
    );
    until("the private images", Duration::from_mins(5), POLL, || {
        Ok((pulled("private")?.0 == PODS / 2).then_some(()))
    })
    .unwrap();
    println!("all after {:.1} s", begun.elapsed().as_secs_f32());
    assert_eq!(product.more_starts(nodes, &known).unwrap(), [0, 0, 0]);
    cluster.types("delete pods --selector=many --force --grace-period=0");
}

fn flags_that_somebody_rewrites_come_back((cluster, product, nodes): Fleet) {
    let registry = cluster.registry();
    let private = registry.address(Access::Private);
    let image = format!("{private}/team/app:1");
    product.apply(&registry.docker_config().unwrap()).unwrap();
    deliver(cluster, "CredentialProvider");
    wait_delivered(product, nodes, "CredentialProvider");
    let node = &nodes[2];
    let with = flags(node);
    let without = format!("KUBELET_KUBEADM_ARGS=\"--node-ip={} --v=1\"\n", node.ip());
    fs::write(node.kubelet_dir().join("kubeadm-flags.env"), &without).unwrap();
    wait("the flags to be restored", POLL, || {
        let flags = flags(node);
        Ok((flags != without && flags.contains("--v=1")).then_some(()))
    });
    assert!(with.contains("--image-credential-provider-bin-dir="));
    wait("the repair to be reported", POLL, || {
        let status = product.node_status(node.name())?;
        Ok((status["reason"] == "DriftRepaired" && status["phase"] == "Synced").then_some(()))
    });
    product.start_pod("drift", &image, node.name()).unwrap();
    product.wait_pod("drift", false).unwrap();
    product.delete().unwrap();
    product.wait_clean().unwrap();
    assert_eq!(
        flags(node),
        without,
        "later changes of another process stay"
    );
}

fn a_kubelet_without_flags_keeps_the_file_and_says_why((cluster, product, nodes): Fleet) {
    let registry = cluster.registry();
    let node = &nodes[1];
    let path = node.kubelet_dir().join("kubeadm-flags.env");
    let before = flags(node);
    let foreign = before.replace(
        "\"\n",
        " --image-credential-provider-config=/etc/x.yaml --image-credential-provider-bin-dir=/opt/x\"\n",
    );
    product.apply(&registry.docker_config().unwrap()).unwrap();
    wait_delivered(product, nodes, "ConfigFile");
    // Its kubelet would not start with these flags. It is not restarted here, because the file's content is the same.
    fs::write(&path, &foreign).unwrap();
    let known = product.kubelet_starts(node).unwrap();
    deliver(cluster, "CredentialProvider");
    until(
        "the node to report why it can't switch",
        DEADLINE,
        POLL,
        || {
            let status = product.node_status(node.name())?;
            let message = status["message"].as_str().unwrap_or_default().to_owned();
            let is_said =
                status["reason"] == "ProviderNotPossible" && message.contains("/etc/x.yaml");
            Ok(
                (is_said && status["delivery"] == "ConfigFile" && status["phase"] == "Synced")
                    .then_some(()),
            )
        },
    )
    .unwrap_or_else(|error| panic!("{error:#}: {:#}", product.node_status(node.name()).unwrap()));
    assert_eq!(flags(node), foreign, "nothing changes");
    assert_eq!(product.kubelet_starts(node).unwrap(), known);
    let private = registry.address(Access::Private);
    assert!(
        config_file::auth(node, &private).unwrap().is_some(),
        "delivery to the file continues"
    );
    fs::write(&path, &before).unwrap();
}
