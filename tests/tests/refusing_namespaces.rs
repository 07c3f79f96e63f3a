//! Namespaces whose Secret can't be written, for reasons in the cluster: each is reported, and blocks no other.

mod common;

use std::time::{Duration, Instant};

use common::delivery::{
    FLAGS, NAME, install, registries, version, wait_failures, wait_reason, wait_registries,
};
use common::objects::{apply, get, namespace};
use common::{base64, cluster, docker_config, wait_refused};
use globalps_testkit::product::{DEADLINE, Product, pull_secret, reconfigure};
use globalps_testkit::until;
use globalps_testkit::web::{Authority, Server};
use globalps_testkit::webhook::{Webhook, configuration};
use globalps_testkit::{Cluster, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(50);
const HOOK: &str = "validatingwebhookconfiguration/gate";

/// Calls the webhook for every write of a Secret in this namespace.
fn secrets_in(namespace: &str) -> Value {
    json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
            "operations": ["CREATE", "UPDATE"]}],
    })
}

fn refusing() -> Webhook {
    Webhook::start(|request| Some(format!("no {} here", request["name"].as_str()?))).unwrap()
}

/// A webhook configuration takes effect a moment after it was written.
fn wait_in_force(cluster: &Cluster, namespace: &str, is_refused: bool) {
    let what = format!("the webhook refuses in {namespace}: {is_refused}");
    wait(&what, Duration::from_millis(50), || {
        Ok((cluster
            .kubectl_line(&format!(
                "create secret generic probe -n {namespace} --dry-run=server"
            ))
            .is_err()
            == is_refused)
            .then_some(()))
    });
}

#[test]
fn a_refused_namespace_is_named_and_covered_once_allowed() {
    let cluster = cluster("refusing-webhook", 1);
    // The first in order, so it would be the canary.
    apply(&cluster, &["first", "other", "zzz"].map(namespace));
    let hook = refusing();
    apply(
        &cluster,
        &[hook.configuration("gate", &secrets_in("first"))],
    );
    wait_in_force(&cluster, "first", true);
    let product = install(&cluster, "admission");
    let content = |number: u8| docker_config(&[(&format!("r{number}.example.com"), "u:1")]);
    product.apply(&content(1)).unwrap();
    for name in ["other", "zzz"] {
        wait_registries(&cluster, name, &["r1.example.com"]);
    }
    let message = wait_failures(&product, &[("first", "Rejected")]);
    assert!(message.contains("no global-pull-secret here"), "{message}");
    let (status, reason, message) = product.condition("NamespacesSynced").unwrap();
    assert_eq!((&*status, &*reason), ("False", "NamespacesFailed"));
    assert!(message.contains("first: "), "{message}");
    // The namespace is retried, and no other Secret is rewritten.
    let (versions, asked) = (
        ["other", "zzz"].map(|name| version(&cluster, name)),
        hook.asked(),
    );
    wait("another try", Duration::from_millis(50), || {
        Ok((hook.asked() > asked).then_some(()))
    });
    assert_eq!(
        versions,
        ["other", "zzz"].map(|name| version(&cluster, name))
    );
    assert!(registries(&cluster, "first").is_empty());
    cluster.kubectl(&["delete", HOOK]).unwrap();
    wait_registries(&cluster, "first", &["r1.example.com"]);
    wait_reason(&product, "Synced");

    // A rejected rotation leaves the old content.
    apply(
        &cluster,
        &[hook.configuration("gate", &secrets_in("first"))],
    );
    wait_in_force(&cluster, "first", true);
    product.apply(&content(2)).unwrap();
    for name in ["other", "zzz"] {
        wait_registries(&cluster, name, &["r2.example.com"]);
    }
    wait_failures(&product, &[("first", "Rejected")]);
    assert_eq!(registries(&cluster, "first"), ["r1.example.com"]);

    // The webhook stays registered, but its server is gone.
    drop(hook);
    product.apply(&content(3)).unwrap();
    for name in ["other", "zzz"] {
        wait_registries(&cluster, name, &["r3.example.com"]);
    }
    let message = wait_failures(&product, &[("first", "Unavailable")]);
    assert!(message.contains("gate.example.com"), "{message}");
    assert_eq!(registries(&cluster, "first"), ["r1.example.com"]);
    apply(&cluster, &[namespace("new")]);
    wait_registries(&cluster, "new", &["r3.example.com"]);
    // Another server, which allows the writes.
    let hook = Webhook::start(|_| None).unwrap();
    apply(
        &cluster,
        &[hook.configuration("gate", &secrets_in("first"))],
    );
    wait_registries(&cluster, "first", &["r3.example.com"]);
    wait_reason(&product, "Synced");
    assert!(hook.asked() > 0);
}

/// A credentials file of about this size, in bytes.
fn sized(registry: &str, bytes: usize) -> String {
    let mut content: Value = serde_json::from_str(&docker_config(&[(registry, "u:1")])).unwrap();
    content["auths"][registry]["note"] = "x".repeat(bytes).into();
    content.to_string()
}

fn wait_source_refused(product: &Product) -> String {
    until("the source to be rejected", DEADLINE, POLL, || {
        let (status, reason, message) = product.condition("SourcesValid")?;
        Ok((status == "False" && reason == "Invalid").then_some(message))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:?}", product.status()))
}

/// `global-pull-secret` contains everything twice: in the sources, and in the merged content. So content that fits
/// there fits everywhere.
#[test]
fn what_is_too_large_is_refused_at_its_source_or_named() {
    let cluster = cluster("refusing-size", 1);
    apply(&cluster, &["a", "full", "team-1"].map(namespace));
    let flags = [&FLAGS[..], &["--attach", "admission", "--source", "team"]].concat();
    let product = Product::install_with(&cluster, &flags).unwrap();
    let scope = json!([{"name": "team", "scope": {"namespaces": ["team-*"]}}]);
    reconfigure(&cluster, &json!({"sources": scope})).unwrap();
    let team = |bytes| {
        apply(
            &cluster,
            &[pull_secret("kube-system", "team", &sized("team.io", bytes))],
        )
    };
    team(350_000);
    product.apply(&sized("r1.io", 100_000)).unwrap();
    wait_registries(&cluster, "team-1", &["r1.io", "team.io"]);
    // The reason may still be that of the source alone.
    for name in ["a", "full"] {
        wait_registries(&cluster, name, &["r1.io"]);
    }
    wait_reason(&product, "Synced");

    // Together with the 100,000 bytes for every pod this does not fit: 2 x 550,000.
    let versions = || ["a", "full", "team-1"].map(|name| version(&cluster, name));
    let before = versions();
    team(450_000);
    let message = wait_source_refused(&product);
    for part in ["`team`", "more than a Secret's limit of 1048576"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(before, versions(), "no Secret is written");
    // The content for every pod is still rolled out, with the source's last valid content.
    product.apply(&sized("r2.io", 50_000)).unwrap();
    for name in ["a", "full"] {
        wait_registries(&cluster, name, &["r2.io"]);
    }
    wait_registries(&cluster, "team-1", &["r2.io", "team.io"]);
    team(250_000);
    wait("the source to be valid", POLL, || {
        Ok((product.condition("SourcesValid")?.0 == "True").then_some(()))
    });
    wait_reason(&product, "Synced");

    // Another client stores its own data in the Secret.
    let theirs = base64(&"y".repeat(900_000));
    let filled = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": "full"},
        "data": {"theirs": theirs}});
    apply(&cluster, &[filled]);
    product.apply(&sized("r3.io", 200_000)).unwrap();
    wait_registries(&cluster, "a", &["r3.io"]);
    wait_registries(&cluster, "team-1", &["r3.io", "team.io"]);
    let message = wait_failures(&product, &[("full", "TooLarge")]);
    assert!(message.contains("1048576"), "{message}");
    assert_eq!(registries(&cluster, "full"), ["r2.io"]);
    let secret = || get(&cluster, "full", &format!("secret/{NAME}"));
    assert_eq!(secret()["data"]["theirs"], theirs.as_str());
    let out = json!([{"op": "remove", "path": "/data/theirs"}]).to_string();
    cluster.types(&format!("patch secret {NAME} -n full --type=json -p {out}"));
    wait_registries(&cluster, "full", &["r3.io"]);
    wait_reason(&product, "Synced");
}

/// Creates a namespace, and returns the time until it has its Secret.
fn time_without(cluster: &Cluster, name: &str, registry: &str) -> Duration {
    let start = Instant::now();
    apply(cluster, &[namespace(name)]);
    wait_registries(cluster, name, &[registry]);
    start.elapsed()
}

#[test]
fn a_webhook_that_never_answers_holds_up_nobody() {
    let cluster = cluster("refusing-silence", 1);
    apply(&cluster, &["first", "other"].map(namespace));
    let product = install(&cluster, "admission");
    let content = |number: u8| docker_config(&[(&format!("r{number}.example.com"), "u:1")]);
    product.apply(&content(1)).unwrap();
    wait_registries(&cluster, "first", &["r1.example.com"]);
    wait_reason(&product, "Synced");
    let silent = Server::silent().unwrap();
    let authority = Authority::new().unwrap();
    let mut rules = secrets_in("first");
    rules["timeoutSeconds"] = json!(30);
    let hook = configuration("gate", &silent, authority.pem(), &rules);
    apply(&cluster, &[hook]);
    let create = "create secret generic tried -n first --dry-run=server --request-timeout=1s";
    wait_refused(&cluster, create, "");
    product.apply(&content(2)).unwrap();
    wait_registries(&cluster, "other", &["r2.example.com"]);
    let beside = ["new-1", "new-2", "new-3", "new-4"];
    let beside = beside.map(|name| time_without(&cluster, name, "r2.example.com"));
    eprintln!(
        "while a webhook of another namespace did not respond, new namespaces had their Secret after {beside:?}"
    );
    // A namespace that waits for the webhook takes 10 s each time.
    let fastest = beside.iter().min().unwrap();
    assert!(*fastest < Duration::from_secs(5), "{beside:?}");
    wait_failures(&product, &[("first", "Unavailable")]);
    assert_eq!(registries(&cluster, "first"), ["r1.example.com"]);
    cluster.kubectl(&["delete", HOOK]).unwrap();
    wait_registries(&cluster, "first", &["r2.example.com"]);
    wait_reason(&product, "Synced");
}
