//! Pull secrets of operators, with the Operator Lifecycle Manager's own resources and the objects that it would create.

mod common;

use std::time::{Duration, Instant};

use common::objects::{
    account, apply, apply_references, get, merge_in, namespace, pod, references, registries_of,
    wait_pod, wait_references,
};
use common::{cluster, docker_config, scale_controllers};
use globalps_testkit::olm::{
    OLM, catalog, delete, install_olm, set_versions, subscription, version,
};
use globalps_testkit::product::{DEADLINE, Product, pull_secret, reconfigure};
use globalps_testkit::{Access, Cluster, until, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(50);
/// Handles an accepted version like the Operator Lifecycle Manager: creates its service account, then the Deployment.
fn roll_out(cluster: &Cluster, csv: &Value) {
    let (namespace, name) = (text(csv, "namespace"), text(csv, "name"));
    let uid = get(
        cluster,
        &namespace,
        &format!("clusterserviceversion/{name}"),
    )["metadata"]["uid"]
        .clone();
    let mut deployment = csv["spec"]["install"]["spec"]["deployments"][0].clone();
    deployment["apiVersion"] = json!("apps/v1");
    deployment["kind"] = json!("Deployment");
    deployment["metadata"] = json!({"name": name, "namespace": namespace, "ownerReferences": [
        {"apiVersion": OLM, "kind": "ClusterServiceVersion", "name": name, "uid": uid}]});
    deployment.as_object_mut().unwrap().remove("name");
    apply(cluster, &[deployment]);
}

fn text(object: &Value, field: &str) -> String {
    let text = object["metadata"][field].as_str();
    text.unwrap_or_default().to_owned()
}

fn wait_copy(cluster: &Cluster, namespace: &str, name: &str, wanted: &[&str]) -> Duration {
    let start = Instant::now();
    let found = || registries_of(cluster, namespace, name);
    until(
        &format!("{wanted:?} in {namespace}/{name}"),
        DEADLINE,
        POLL,
        || Ok((found() == wanted).then_some(())),
    )
    .unwrap_or_else(|error| panic!("{error:#}: {:?}", found()));
    start.elapsed()
}

/// Waits until `OperatorsSynced` has this reason; returns its message.
fn wait_reason(product: &Product, reason: &str) -> String {
    product.wait_reason("OperatorsSynced", reason).unwrap()
}

/// Waits until a pod of the Deployment runs.
fn wait_available(cluster: &Cluster, namespace: &str, name: &str) {
    wait(&format!("Deployment {namespace}/{name}"), POLL, || {
        let deployment = get(cluster, namespace, &format!("deployment/{name}"));
        Ok((deployment["status"]["availableReplicas"] == 1).then_some(()))
    });
}

#[test]
fn only_an_operator_gets_the_pull_secrets_of_its_catalog() {
    let cluster = cluster("operators", 1);
    let registry = cluster.registry();
    let private = registry.address(Access::Private);
    let image = format!("{private}/team/app:1");
    let config = || registry.docker_config().unwrap();
    let copy = "globalps-olm.pull";
    apply(&cluster, &["olm", "ops", "other"].map(namespace));
    apply(&cluster, &[pull_secret("olm", "pull", &config())]);
    let flags = ["--operators", "olm/pull", "--delivery", "none"];
    let product = Product::install_with(&cluster, &flags).unwrap();
    wait_reason(&product, "NotInstalled");

    // The custom resources are installed after the controller.
    install_olm(&cluster);
    let v1 = version("ops", "app.v1", "op", &image, None);
    let copied = version("other", "app.v1", "op", &image, Some("ops"));
    apply(
        &cluster,
        &[
            catalog("olm", "one", &["pull"]),
            subscription("ops", "app", ("olm", "one")),
            account("ops", "op", &["own"]),
            account("other", "op", &[]),
            v1.clone(),
            copied,
        ],
    );
    set_versions(&cluster, "ops", "app", "app.v1", "app.v1");
    wait_references(&cluster, "ops", "op", &["own", copy]);
    wait_copy(&cluster, "ops", copy, &[&private]);
    wait_reason(&product, "Synced");
    roll_out(&cluster, &v1);
    wait_available(&cluster, "ops", "app.v1");
    // Other pods of the namespace get no reference, nor do copies of the version in other namespaces.
    apply(&cluster, &[pod("ops", "other", &image, &json!({}))]);
    wait_pod(&cluster, "ops", "other", true);
    assert!(references(&cluster, "ops", "default").is_empty());
    assert!(references(&cluster, "other", "op").is_empty());
    assert!(registries_of(&cluster, "other", copy).is_empty());

    // A rotation updates the copy automatically.
    registry.set_password("rotated").unwrap();
    let before = get(&cluster, "ops", &format!("secret/{copy}"))["data"].clone();
    apply(&cluster, &[pull_secret("olm", "pull", &config())]);
    let start = Instant::now();
    wait("the rotated copy", POLL, || {
        let now = get(&cluster, "ops", &format!("secret/{copy}"))["data"].clone();
        Ok((now != before).then_some(()))
    });
    eprintln!(
        "a rotation reached the operator's namespace in {} ms",
        start.elapsed().as_millis()
    );

    // An upgrade: a new service account, and the old one restored byte for byte.
    let v2 = version("ops", "app.v2", "op-2", &image, None);
    apply(&cluster, &[account("ops", "op-2", &[]), v2.clone()]);
    set_versions(&cluster, "ops", "app", "app.v1", "app.v2");
    wait_references(&cluster, "ops", "op-2", &[copy]);
    let patch = json!({"imagePullSecrets": [{"name": "own"}],
        "metadata": {"annotations": {"globalps.io/operator-secrets": null}}});
    merge_in(&cluster, "ops", "serviceaccount/op", &patch);
    wait_references(&cluster, "ops", "op", &["own", copy]);
    roll_out(&cluster, &v2);
    wait_available(&cluster, "ops", "app.v2");
    set_versions(&cluster, "ops", "app", "app.v2", "app.v2");
    delete(&cluster, "ops", "clusterserviceversion/app.v1");
    wait_references(&cluster, "ops", "op", &["own"]);
    wait_copy(&cluster, "ops", copy, &[&private]);

    // Two Subscriptions to one catalog: removing the first leaves what the other needs.
    let second = version("ops", "second.v1", "op", &image, None);
    apply(
        &cluster,
        &[subscription("ops", "second", ("olm", "one")), second],
    );
    set_versions(&cluster, "ops", "second", "second.v1", "second.v1");
    wait_references(&cluster, "ops", "op", &["own", copy]);
    // The Subscription is deleted before its version.
    delete(&cluster, "ops", "subscription/app");
    wait_references(&cluster, "ops", "op-2", &[]);
    assert_eq!(references(&cluster, "ops", "op"), ["own", copy]);
    assert_eq!(registries_of(&cluster, "ops", copy), [private]);
    delete(&cluster, "ops", "subscription/second");
    wait_references(&cluster, "ops", "op", &["own"]);
    assert!(
        registries_of(&cluster, "ops", copy).is_empty(),
        "the copy is deleted first"
    );
}

#[test]
fn what_an_operator_no_longer_needs_goes_whoever_leads() {
    let cluster = cluster("operators-removal", 1);
    install_olm(&cluster);
    let config = |registry: &str| docker_config(&[(registry, "u:1")]);
    apply(&cluster, &["olm", "more", "ops"].map(namespace));
    apply(
        &cluster,
        &[
            pull_secret("olm", "pull", &config("quay.io")),
            pull_secret("more", "pull", &config("ghcr.io")),
            catalog("olm", "one", &["pull"]),
            catalog("more", "two", &["pull"]),
            subscription("ops", "a", ("olm", "one")),
            subscription("ops", "b", ("more", "two")),
            account("ops", "op-a", &[]),
            account("ops", "op-b", &["own"]),
            version("ops", "a.v1", "op-a", "quay.io/a:1", None),
            version("ops", "b.v1", "op-b", "ghcr.io/b:1", None),
        ],
    );
    set_versions(&cluster, "ops", "a", "a.v1", "a.v1");
    set_versions(&cluster, "ops", "b", "b.v1", "b.v1");
    // Another client's Secret has the name of a copy.
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "globalps-more.pull", "namespace": "ops"}, "stringData": {"key": "theirs"}});
    let theirs = || get(&cluster, "ops", "secret/globalps-more.pull")["data"]["key"].clone();
    apply(&cluster, &[foreign]);
    let flags = ["--operators", "olm/pull,more/pull", "--delivery", "none"];
    let product = Product::install_with(&cluster, &flags).unwrap();
    // Two catalogs with the same Secret name.
    wait_copy(&cluster, "ops", "globalps-olm.pull", &["quay.io"]);
    wait_references(&cluster, "ops", "op-a", &["globalps-olm.pull"]);
    let message = wait_reason(&product, "OperatorsFailed");
    assert!(
        message.contains("ops/b") && message.contains("another client created or changed Secret"),
        "{message}"
    );
    assert_eq!(theirs(), "dGhlaXJz");
    delete(&cluster, "ops", "secret/globalps-more.pull");
    wait_copy(&cluster, "ops", "globalps-more.pull", &["ghcr.io"]);
    wait_references(&cluster, "ops", "op-b", &["own", "globalps-more.pull"]);
    wait_reason(&product, "Synced");

    // A pull secret that is invalid or missing changes nothing.
    apply(
        &cluster,
        &[pull_secret(
            "olm",
            "pull",
            r#"{"auths":{"quay.io":{"auth":"!"}}}"#,
        )],
    );
    let message = wait_reason(&product, "OperatorsFailed");
    assert!(message.contains("olm/pull"), "{message}");
    delete(&cluster, "olm", "secret/pull");
    wait("SourceMissing", POLL, || {
        let failures = product.status()?["operators"]["failures"].clone();
        Ok((failures[0]["reason"] == "SourceMissing").then_some(()))
    });
    assert_eq!(
        registries_of(&cluster, "ops", "globalps-olm.pull"),
        ["quay.io"]
    );
    apply(&cluster, &[pull_secret("olm", "pull", &config("quay.io"))]);
    wait_reason(&product, "Synced");

    // While no controller runs, an entry is removed from a catalog, and a version is deleted with its objects.
    scale_controllers(&cluster, 0);
    apply(&cluster, &[catalog("more", "two", &[])]);
    delete(&cluster, "ops", "clusterserviceversion/a.v1");
    wait_copy(&cluster, "ops", "globalps-olm.pull", &[]);
    scale_controllers(&cluster, 2);
    wait_references(&cluster, "ops", "op-b", &["own"]);
    wait_references(&cluster, "ops", "op-a", &[]);
    assert!(registries_of(&cluster, "ops", "globalps-more.pull").is_empty());

    // Disabled: no object of globalps remains, except those that other clients took over.
    apply(&cluster, &[catalog("more", "two", &["pull"])]);
    wait_references(&cluster, "ops", "op-b", &["own", "globalps-more.pull"]);
    wait_copy(&cluster, "ops", "globalps-more.pull", &["ghcr.io"]);
    apply_references(&cluster, "ops", "op-b", &["globalps-more.pull", "later"]);
    reconfigure(&cluster, &json!({"operators": {"enabled": false}})).unwrap();
    wait_references(&cluster, "ops", "op-b", &["later"]);
    wait_copy(&cluster, "ops", "globalps-more.pull", &[]);
    wait("no status", POLL, || {
        Ok(product.status()?["operators"].is_null().then_some(()))
    });

    // Enabled again, then uninstalled.
    reconfigure(&cluster, &json!({"operators": {"enabled": true}})).unwrap();
    wait_references(&cluster, "ops", "op-b", &["later", "globalps-more.pull"]);
    let ran = product.types("uninstall --yes", "");
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(references(&cluster, "ops", "op-b"), ["later"]);
    assert!(registries_of(&cluster, "ops", "globalps-more.pull").is_empty());
    for what in [
        "clusterroles",
        "clusterrolebindings",
        "roles",
        "rolebindings",
    ] {
        let names = cluster.types(&format!("get {what} -A -o name"));
        assert!(!names.contains("globalps-operators"), "{names}");
    }
}
