//! Pull secrets in namespaces, on a cluster whose nodes get no credentials: by admission, by service accounts, and errors.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use common::delivery::{
    FLAGS, NAME, install, registries, version, wait_failures, wait_reason, wait_registries,
};
use common::objects::{
    account, apply, apply_references, denying, get, merge_in, namespace, pod, references, wait_pod,
    wait_references,
};
use common::{cluster, docker_config, roll_out, write};
use globalps_testkit::product::{
    CONFIG, DEADLINE, NAMESPACE, Product, configuration, is_about_its_spec, pull_secret,
    reconfigure,
};
use globalps_testkit::{Access, Cluster, kubernetes, until, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(50);

fn nothing_runs_on_nodes(cluster: &Cluster) {
    for what in [
        "daemonsets",
        "nodepullsecrets",
        "serviceaccounts/global-pull-secret-syncer",
    ] {
        assert_eq!(
            cluster
                .types(&format!(
                    "get {what} -n kube-system -o name --ignore-not-found"
                ))
                .trim(),
            "",
            "{what}"
        );
    }
    for node in cluster.nodes().unwrap() {
        assert!(!node.kubelet_dir().join(".globalps").exists());
        assert!(!node.kubelet_dir().join("config.json").exists());
    }
}

/// How pods get the reference: by admission if the release supports it.
fn attach() -> &'static str {
    if has_admission() {
        "admission"
    } else {
        "service-accounts"
    }
}

/// Whether the API server serves `MutatingAdmissionPolicy` v1.
fn has_admission() -> bool {
    kubernetes::minor() >= 36
}

/// The behaviour of `install` on an API server without the policy.
fn service_accounts_take_its_place(cluster: &Cluster) {
    let product = Product::install_with(cluster, &FLAGS).unwrap();
    let refused = [&FLAGS[..], &["--attach", "admission"]].concat();
    let error = product.install_again(&refused).unwrap_err();
    let expected = "needs MutatingAdmissionPolicy v1, and the API server does not serve it";
    assert!(format!("{error:#}").contains(expected), "{error:#}");
    roll_out(&product, &[("quay.io", "u:1")]);
    wait_references(cluster, "default", "default", &[NAME]);
    let status = &product.status().unwrap()["imagePullSecrets"];
    assert_eq!(status["attach"], "ServiceAccounts", "{status}");
}

#[test]
fn with_admission_every_new_pod_has_the_credentials() {
    let cluster = cluster("namespaces-admission", 1);
    if !has_admission() {
        return service_accounts_take_its_place(&cluster);
    }
    let registry = cluster.registry();
    let image = format!("{}/team/app:1", registry.address(Access::Private));
    apply(
        &cluster,
        &[namespace("early"), account("early", "default", &["own"])],
    );
    let product = install(&cluster, "admission");
    product.apply(&registry.docker_config().unwrap()).unwrap();
    product.wait_synced().unwrap();
    let private = registry.address(Access::Private);
    wait_registries(&cluster, "early", &[&private]);
    wait_registries(&cluster, "default", &[&private]);
    assert!(registries(&cluster, "kube-public").is_empty());
    // Namespace, service accounts and pods in one apply.
    let own = json!({"imagePullSecrets": [{"name": "mine"}]});
    let as_builder = json!({"serviceAccountName": "builder"});
    let mut excluded = namespace("excluded");
    excluded["metadata"]["labels"] = json!({"globalps.io/exclude": "true"});
    let mut patched = namespace("patched");
    let annotation = "k8s.titansoft.com/imagepullsecret-patcher-exclude";
    patched["metadata"]["annotations"] = json!({annotation: "true"});
    apply(
        &cluster,
        &[
            namespace("new"),
            account("new", "builder", &[]),
            pod("new", "plain", &image, &json!({})),
            pod("new", "own", &image, &own),
            pod("new", "builder", &image, &as_builder),
            excluded,
            pod("excluded", "plain", &image, &json!({})),
            patched,
            pod("patched", "plain", &image, &json!({})),
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": "early"},
                "spec": {"template": {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "c", "image": image, "imagePullPolicy": "Always"}]}}}}),
        ],
    );
    for name in ["plain", "own", "builder"] {
        wait_pod(&cluster, "new", name, false);
    }
    wait("the Job's pod", POLL, || {
        let job = get(&cluster, "early", "job/job");
        Ok((job["status"]["ready"] == 1).then_some(()))
    });
    for namespace in ["excluded", "patched"] {
        wait_pod(&cluster, namespace, "plain", true);
        assert!(registries(&cluster, namespace).is_empty());
    }
    let of_pod = get(&cluster, "new", "pod/own");
    let expected = json!([{"name": "mine"}, {"name": NAME}]);
    assert_eq!(of_pod["spec"]["imagePullSecrets"], expected);
    assert_eq!(
        references(&cluster, "early", "default"),
        ["own"],
        "no service account changes"
    );
    assert!(references(&cluster, "new", "builder").is_empty());
    nothing_runs_on_nodes(&cluster);

    // A rotation, which is in force for the next pull.
    registry.set_password("rotated").unwrap();
    product.apply(&registry.docker_config().unwrap()).unwrap();
    product.wait_synced().unwrap();
    apply(&cluster, &[pod("new", "rotated", &image, &json!({}))]);
    wait_pod(&cluster, "new", "rotated", false);

    // Disabled: no object of globalps remains.
    reconfigure(&cluster, &json!({"imagePullSecrets": {"enabled": false}})).unwrap();
    for namespace in ["new", "early", "default"] {
        wait_registries(&cluster, namespace, &[]);
    }
    wait("no status", POLL, || {
        Ok(product.status()?["imagePullSecrets"]
            .is_null()
            .then_some(()))
    });
    apply(&cluster, &[pod("new", "late", &image, &json!({}))]);
    assert!(get(&cluster, "new", "pod/late")["spec"]["imagePullSecrets"].is_null());
    reconfigure(&cluster, &json!({"imagePullSecrets": {"enabled": true}})).unwrap();
    wait_registries(&cluster, "new", &[&private]);
    configuration_is_lost(&cluster, &product, &private);
    product.delete().unwrap();
    product.wait_clean().unwrap();
    for namespace in ["new", "early", "default"] {
        assert!(registries(&cluster, namespace).is_empty(), "{namespace}");
    }
    nothing_runs_on_nodes(&cluster);
}

/// The configuration is deleted, and created again without delivery to namespaces. No Secret is left behind, and the
/// advised command restores the Secrets.
fn configuration_is_lost(cluster: &Cluster, product: &Product<'_>, private: &str) {
    let all = ["new", "early", "default"];
    let delete = ["delete", CONFIG, "-n", NAMESPACE];
    cluster.kubectl(&delete).unwrap();
    sleep(Duration::from_secs(3));
    for namespace in all {
        assert_eq!(registries(cluster, namespace), [private], "{namespace}");
    }
    let spec = json!({"kubelet": {"delivery": "None"}});
    apply(cluster, &[configuration(&spec)]);
    for namespace in all {
        wait_registries(cluster, namespace, &[]);
    }
    let ran = product.plugin(&["install", "--restore-configuration"], "");
    let ran = ran.unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for namespace in all {
        wait_registries(cluster, namespace, &[private]);
    }
}

/// The maximum number of references.
fn fifty() -> Vec<&'static str> {
    let names = (0..50).map(|at| &*format!("secret-{at}").leak());
    names.collect()
}

#[test]
fn service_accounts_get_a_reference_and_lose_exactly_that() {
    let cluster = cluster("namespaces-accounts", 1);
    apply(
        &cluster,
        &[
            namespace("a"),
            namespace("b"),
            account("a", "ci", &["one", "two"]),
            account("b", "default", &[NAME]),
            account("b", "crowd", &fifty()),
        ],
    );
    let product = install(&cluster, "service-accounts");
    reconfigure(
        &cluster,
        &json!({"imagePullSecrets": {"serviceAccounts": ["default", "c*"]}}),
    )
    .unwrap();
    roll_out(&product, &[("quay.io", "u:1")]);
    wait_references(&cluster, "a", "default", &[NAME]);
    wait_references(&cluster, "a", "ci", &["one", "two", NAME]);
    wait_references(&cluster, "b", "crowd", &[&fifty()[..], &[NAME]].concat());
    // The API server creates a new namespace's default service account a moment later.
    apply(&cluster, &[namespace("c"), account("c", "other", &[])]);
    wait_references(&cluster, "c", "default", &[NAME]);
    assert!(references(&cluster, "c", "other").is_empty());
    assert!(references(&cluster, "kube-system", "default").is_empty());
    // A reference of another client in `b` is not managed.
    let theirs = get(&cluster, "b", "serviceaccount/default");
    assert!(theirs["metadata"]["annotations"]["globalps.io/attached"].is_null());

    // A removed reference is restored, five times.
    for _ in 0..5 {
        apply_references(&cluster, "a", "ci", &["one"]);
        wait_references(&cluster, "a", "ci", &["one", NAME]);
    }
    apply_references(&cluster, "a", "ci", &["one"]);
    let message = wait_reason(&product, "Conflict");
    assert!(message.contains("a/ci"), "{message}");
    assert_eq!(references(&cluster, "a", "ci"), ["one"]);
    apply_references(&cluster, "a", "ci", &["one", NAME, "three"]);
    wait_reason(&product, "Synced");

    // Excluded again, without changes of other clients' objects.
    let out = ["label", "namespace", "a", "globalps.io/exclude=true"];
    cluster.kubectl(&out).unwrap();
    wait_references(&cluster, "a", "ci", &["one", "three"]);
    wait_references(&cluster, "a", "default", &[]);
    wait_registries(&cluster, "a", &[]);
    if has_admission() {
        admission_takes_over(&cluster, &product);
    }
    product.delete().unwrap();
    product.wait_clean().unwrap();
    assert_eq!(
        references(&cluster, "b", "default"),
        [NAME],
        "somebody's own"
    );
    assert!(references(&cluster, "c", "default").is_empty());
    assert_eq!(references(&cluster, "b", "crowd"), fifty());
    for (namespace, name) in [("a", "ci"), ("a", "default"), ("c", "default")] {
        let account = get(&cluster, namespace, &format!("serviceaccount/{name}"));
        let annotation = &account["metadata"]["annotations"]["globalps.io/attached"];
        assert!(annotation.is_null(), "{account}");
    }
}

/// The permission to change service accounts exists until the last reference is removed, but no longer.
fn admission_takes_over(cluster: &Cluster, product: &Product<'_>) {
    let flags = [&FLAGS[..], &["--attach", "admission"]].concat();
    product.install_again(&flags).unwrap();
    wait_references(cluster, "c", "default", &[]);
    wait_references(cluster, "b", "crowd", &fifty());
    wait("the number of service accounts to be zero", POLL, || {
        let status = &product.status()?["imagePullSecrets"];
        let is_over = status["attach"] == "Admission" && status["serviceAccounts"] == 0;
        Ok(is_over.then_some(()))
    });
    let rules = || {
        let role = get(cluster, "", "clusterrole/globalps-image-pull-secrets");
        role["rules"].to_string().contains("serviceaccounts")
    };
    assert!(rules());
    product.install_again(&flags).unwrap();
    assert!(!rules());
}

#[test]
fn a_namespace_in_trouble_is_named_and_holds_up_nobody() {
    let cluster = cluster("namespaces-trouble", 1);
    let theirs = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": "foreign"},
        "type": "Opaque", "stringData": {"key": "theirs"}});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "quota"},
        "spec": {"hard": {"count/secrets": "0"}}});
    let refusal = refusal("refused");
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": "going", "finalizers": ["example.com/held"]}});
    apply(
        &cluster,
        &[
            namespace("a"),
            namespace("foreign"),
            theirs,
            namespace("quota"),
            quota,
            namespace("refused"),
            refusal[0].clone(),
            refusal[1].clone(),
            namespace("going"),
            held,
            namespace("zzz"),
        ],
    );
    // The namespace is terminating until everything in it is deleted.
    let delete = ["delete", "namespace", "going", "--wait=false"];
    cluster.kubectl(&delete).unwrap();
    let product = install(&cluster, attach());
    write(&product, &[("quay.io", "u:1")]);
    for namespace in ["a", "zzz"] {
        wait_registries(&cluster, namespace, &["quay.io"]);
    }
    let failures = [
        ("foreign", "ForeignSecret"),
        ("quota", "QuotaExceeded"),
        ("refused", "Rejected"),
    ];
    wait_failures(&product, &failures);
    let message = wait_reason(&product, "ForeignSecret");
    assert!(
        message.contains("foreign") && message.contains("2 more"),
        "{message}"
    );
    assert_eq!(
        get(&cluster, "foreign", &format!("secret/{NAME}"))["data"]["key"],
        "dGhlaXJz"
    );
    // Without the cause, the failure disappears.
    cluster.types("delete resourcequota q -n quota");
    wait_registries(&cluster, "quota", &["quay.io"]);
    let binding = "validatingadmissionpolicybinding/refusal";
    cluster.kubectl(&["delete", binding]).unwrap();
    wait_registries(&cluster, "refused", &["quay.io"]);
    cluster.types(&format!("delete secret {NAME} -n foreign"));
    wait_registries(&cluster, "foreign", &["quay.io"]);
    wait_reason(&product, "Synced");

    // Changed and deleted by another client: restored five times, then left for ten minutes, or until the content changes.
    for _ in 0..5 {
        overwrite(&cluster, "a");
        wait_registries(&cluster, "a", &["quay.io"]);
    }
    cluster.types(&format!("delete secret {NAME} -n zzz"));
    wait_registries(&cluster, "zzz", &["quay.io"]);
    overwrite(&cluster, "a");
    let message = wait_reason(&product, "Conflict");
    assert!(message.contains("a/global-pull-secret"), "{message}");
    assert_eq!(registries(&cluster, "a"), ["overwritten"]);
    write(&product, &[("quay.io", "u:2"), ("ghcr.io", "u:2")]);
    wait_registries(&cluster, "a", &["ghcr.io", "quay.io"]);
    wait_reason(&product, "Synced");

    // Sources with a scope are only for their namespaces.
    product
        .install_again(&[
            "--source",
            "team",
            "--deliver-to-namespaces",
            "--attach",
            attach(),
        ])
        .unwrap();
    let source = json!([{"name": "team", "scope": {"namespaces": ["a", "team-*"]}}]);
    reconfigure(&cluster, &json!({"sources": source})).unwrap();
    // Created only now, because with `--source` alone every namespace would get it for a moment.
    let scoped = docker_config(&[("team.io", "t:1")]);
    apply(&cluster, &[pull_secret(NAMESPACE, "team", &scoped)]);
    wait_registries(&cluster, "a", &["ghcr.io", "quay.io", "team.io"]);
    let before = version(&cluster, "zzz");
    apply(&cluster, &[namespace("team-7")]);
    wait_registries(&cluster, "team-7", &["ghcr.io", "quay.io", "team.io"]);
    assert_eq!(registries(&cluster, "zzz"), ["ghcr.io", "quay.io"]);
    let after = version(&cluster, "zzz");
    assert_eq!(before, after, "unchanged Secrets are not written");

    // Paused: no content changes, and a new namespace gets the current content.
    reconfigure(&cluster, &json!({"rollout": {"paused": true}})).unwrap();
    wait("the pause to be known", POLL, || {
        Ok(is_about_its_spec(&product.get(CONFIG)?).then_some(()))
    });
    write(&product, &[("new.io", "u:3")]);
    wait_reason(&product, "RollingOut");
    apply(&cluster, &[namespace("late")]);
    wait_registries(&cluster, "late", &["ghcr.io", "quay.io"]);
    assert_eq!(registries(&cluster, "zzz"), ["ghcr.io", "quay.io"]);
    reconfigure(&cluster, &json!({"rollout": {"paused": false}})).unwrap();
    for namespace in ["late", "zzz"] {
        wait_registries(&cluster, namespace, &["new.io"]);
    }
}

/// A policy of the cluster's owner that forbids Secrets in this namespace.
fn refusal(namespace: &str) -> [Value; 2] {
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"]});
    let matches = json!({"namespaceSelector": selector, "resourceRules": [rule]});
    denying(
        "refusal",
        &matches,
        &json!({"expression": "false", "message": "no Secrets here"}),
    )
}

fn overwrite(cluster: &Cluster, namespace: &str) {
    let config = docker_config(&[("overwritten", "r:1")]);
    let patch = json!({"stringData": {".dockerconfigjson": config}});
    merge_in(cluster, namespace, &format!("secret/{NAME}"), &patch);
}

/// Objects of imagepullsecret-patcher v0.14: its Deployment, a Secret in each namespace, and a reference of each
/// default account.
fn patched(namespaces: &[String], config: &str) -> Vec<Value> {
    let annotation = json!({"app.kubernetes.io/managed-by": "imagepullsecret-patcher"});
    let labels = json!({"name": "imagepullsecret-patcher"});
    let container = json!({"name": "imagepullsecret-patcher", "image": "quay.io/titansoft/imagepullsecret-patcher:v0.14"});
    let mut objects = vec![
        namespace("imagepullsecret-patcher"),
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "imagepullsecret-patcher", "namespace": "imagepullsecret-patcher"},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [container]}}}}),
    ];
    for name in namespaces {
        objects.push(namespace(name));
        objects.push(
            json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "image-pull-secret", "namespace": name, "annotations": annotation},
            "stringData": {".dockerconfigjson": config}}),
        );
        objects.push(account(name, "default", &["image-pull-secret"]));
    }
    objects
}

#[test]
fn migrating_from_the_patcher_leaves_no_pod_without_credentials() {
    let cluster = cluster("namespaces-migration", 1);
    let registry = cluster.registry();
    let image = format!("{}/team/app:1", registry.address(Access::Private));
    let config = registry.docker_config().unwrap();
    let names: Vec<String> = (0..20).map(|at| format!("team-{at}")).collect();
    apply(&cluster, &patched(&names, &config));
    let product = install(&cluster, attach());
    // Not before globalps delivers the same content.
    let migrate = ["migrate", "imagepullsecret-patcher", "--yes"];
    let refused = product.plugin(&migrate, "").unwrap();
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert_eq!(
        references(&cluster, "team-7", "default"),
        ["image-pull-secret"]
    );
    product.apply(&config).unwrap();
    product.wait_synced().unwrap();
    wait_reason(&product, "Synced");

    // The API server checks every write and stores none.
    let before = get(&cluster, "team-7", "serviceaccount/default");
    let dry = ["migrate", "imagepullsecret-patcher", "--dry-run=server"];
    let dry = product
        .plugin(&[&dry[..], &["--ignore-running-pods"]].concat(), "")
        .unwrap();
    assert_eq!(dry.code, Some(0), "{}{}", dry.stdout, dry.stderr);
    for line in [
        "deployment.apps/imagepullsecret-patcher of namespace imagepullsecret-patcher scaled to 0 (server dry run)",
        "serviceaccount/default of namespace team-7 detached (server dry run)",
        "secret/image-pull-secret of namespace team-7 deleted (server dry run)",
    ] {
        assert!(dry.stdout.contains(line), "{line}: {}", dry.stdout);
    }
    assert_eq!(get(&cluster, "team-7", "serviceaccount/default"), before);
    assert!(!get(&cluster, "team-7", "secret/image-pull-secret").is_null());

    // At least three pods before the change and three after it, however slow the machine is.
    let (created, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let pods = std::thread::scope(|scope| {
        let creating = scope.spawn(|| {
            let mut pods = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let (namespace, name) = (&names[pods.len() % 20], format!("p{}", pods.len()));
                apply(&cluster, &[pod(namespace, &name, &image, &json!({}))]);
                pods.push((namespace.clone(), name));
                created.store(pods.len(), Ordering::Relaxed);
                // A node takes 110 pods.
                std::thread::sleep(Duration::from_millis(10 * pods.len() as u64));
            }
            pods
        });
        let three_more = || {
            let goal = created.load(Ordering::Relaxed) + 3;
            until("three more pods", DEADLINE, POLL, || {
                Ok((created.load(Ordering::Relaxed) >= goal).then_some(()))
            })
        };
        let started = three_more();
        let flags = [&migrate[..], &["--ignore-running-pods"]].concat();
        let ran = product.plugin(&flags, "");
        let went_on = three_more();
        is_over.store(true, Ordering::Relaxed);
        let pods = creating.join().unwrap();
        started.and(went_on).unwrap();
        let ran = ran.unwrap();
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
        pods
    });
    for (namespace, name) in &pods {
        wait_pod(&cluster, namespace, name, false);
    }
    for name in &names {
        let left = references(&cluster, name, "default");
        let ours: &[&str] = if has_admission() { &[] } else { &[NAME] };
        assert_eq!(left, ours, "{name}");
        assert!(
            get(&cluster, name, "secret/image-pull-secret").is_null(),
            "{name}"
        );
        assert_eq!(registries(&cluster, name).len(), 1);
    }
    let deployment = get(
        &cluster,
        "imagepullsecret-patcher",
        "deployment/imagepullsecret-patcher",
    );
    assert_eq!(deployment["spec"]["replicas"], 0);
    let again = product.plugin(&migrate, "").unwrap();
    assert_eq!(again.code, Some(0), "{}", again.stderr);
}
