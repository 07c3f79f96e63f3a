//! `why` on a real kubelet and runtime: names the broken image of a container, a volume or a sandbox. globalps is not
//! installed, so no printed command adds credentials.

mod common;

use std::time::Duration;

use common::cluster;
use common::objects::apply;
use globalps_testkit::product::{DEADLINE, Product, pull_secret};
use globalps_testkit::{Access, Cluster, Node, until};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(200);

/// The answer, as soon as it has this cause.
fn cause(cluster: &Cluster, pod: &str, code: &str) -> Value {
    let (product, name) = (Product::attach(cluster), format!("default/{pod}"));
    let mut last = String::new();
    let found = until(&format!("{code} of {pod}"), DEADLINE, POLL, || {
        let ran = product.plugin(&["why", &name, "--insecure", "-o", "json"], "")?;
        last = format!("{}{}", ran.stdout, ran.stderr);
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        Ok((answer["cause"]["code"] == code).then_some(answer))
    });
    found.unwrap_or_else(|error| panic!("{error:#}: {last}"))
}

fn pod(name: &str, node: &Node, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node.name(), "terminationGracePeriodSeconds": 0},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

#[test]
fn the_image_that_was_broken_is_named() {
    let cluster = cluster("why", 1);
    let node = cluster.node("node-1").unwrap();
    let registry = cluster.registry();
    let open = registry.address(Access::Open);
    let private = registry.address(Access::Private);
    let (pause, image) = (format!("{open}/pause:1"), format!("{private}/team/app:1"));
    let secret = |name: &str, content: &str| pull_secret("default", name, content);
    let unreadable = json!({"auths": {&private: {"auth": "x"}}}).to_string();
    let container = |image: &str| json!([{"name": "c", "image": image}]);
    let volume = json!({
        "containers": [{"name": "c", "image": pause, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "image": {"reference": image}}],
    });
    let init =
        json!({"initContainers": [{"name": "i", "image": image}], "containers": container(&pause)});
    let with = |secret: &str| json!({"containers": container(&image), "imagePullSecrets": [{"name": secret}]});
    apply(
        &cluster,
        &[
            secret("good", &registry.docker_config().unwrap()),
            secret("unreadable", &unreadable),
            pod("volume", &node, &volume),
            pod("init", &node, &init),
            pod("debugged", &node, &json!({"containers": container(&pause)})),
            pod("unreadable", &node, &with("unreadable")),
        ],
    );
    for name in ["volume", "init"] {
        let answer = cause(&cluster, name, "NoCredentials");
        let found = &answer["containers"][0];
        assert_eq!(found["image"], image, "{answer:#}");
        assert_eq!(found["cause"]["registry"], private, "{answer:#}");
        assert_eq!(found["cause"]["command"], "", "{answer:#}");
        assert_eq!(found["volume"].is_null(), name != "volume", "{answer:#}");
    }
    cause(&cluster, "unreadable", "SecretUnreadable");
    let running = [
        "wait",
        "--for=condition=Ready",
        "pod/debugged",
        "--timeout=60s",
    ];
    cluster.kubectl(&running).unwrap();
    let flag = format!("--image={image}");
    cluster.types(&format!("debug debugged {flag} --container=d"));
    let answer = cause(&cluster, "debugged", "NoCredentials");
    assert_eq!(answer["containers"][0]["container"], "d", "{answer:#}");

    // The image was pulled with a Secret, and is not permitted for a pod without it.
    apply(&cluster, &[pod("pulled", &node, &with("good"))]);
    cluster.types("wait --for=condition=Ready pod/pulled --timeout=60s");
    let mut never = json!({"containers": container(&image)});
    never["containers"][0]["imagePullPolicy"] = json!("Never");
    apply(&cluster, &[pod("never", &node, &never)]);
    cause(&cluster, "never", "ImageNotAllowed");

    sandbox(&cluster, &node, (&pause, &format!("{private}/pause:1")));
}

/// The sandbox image must be pulled again, from a repository that requires a login.
fn sandbox(cluster: &Cluster, node: &Node, (usual, image): (&str, &str)) {
    let script = format!(
        "sed -i 's|{usual}|{image}|' /etc/containerd/config.toml && systemctl restart containerd.service"
    );
    node.exec(&["sh", "-c", &script]).unwrap().ok().unwrap();
    node.wait_ready(DEADLINE).unwrap();
    let spec = json!({"containers": [{"name": "c", "image": usual}]});
    apply(cluster, &[pod("sandbox", node, &spec)]);
    let answer = cause(cluster, "sandbox", "SandboxImage");
    assert_eq!(answer["containers"][0]["image"], image, "{answer:#}");
    let hint = answer["cause"]["hint"].as_str().unwrap_or_default();
    assert!(
        hint.contains("containerd reads") && !hint.contains("CRI-O"),
        "{hint}"
    );
    let ran = Product::attach(cluster)
        .plugin(&["why", "-A", "--no-ask", "-o", "json"], "")
        .unwrap();
    assert!(ran.stdout.contains("SandboxImage"), "{ran:?}");
}
