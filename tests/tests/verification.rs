//! `spec.verify`: the controller, in its pod, checks with a real registry whether it accepts the credentials.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use common::{cluster, docker_config};
use globalps_testkit::lone_registry::{LoneRegistry, USER};
use globalps_testkit::product::{CONFIG, NAMESPACE, Product};
use globalps_testkit::web::{Authority, Validity};
use globalps_testkit::{Access, Cluster, secrecy, until};
use serde_json::{Value, json};

const CONDITION: &str = "CredentialsRejected";
const POLL: Duration = Duration::from_millis(200);
const SOON: Duration = globalps_testkit::DEADLINE;
/// The interval and the second check, both with their jitter, and a margin for a busy machine.
const AN_INTERVAL: Duration = Duration::from_secs(66 + 33 + 30);
const FIRST: &str = "v3rify-first";
const SECOND: &str = "v3rify-second";

#[test]
fn a_revoked_password_is_reported_before_a_pull_fails() {
    let cluster = cluster("verification", 1);
    let authority = Authority::new().unwrap();
    trust(&cluster, authority.pem());
    let product = Product::install(&cluster).unwrap();
    for password in [FIRST, SECOND] {
        secrecy::remember_login(USER, password);
    }
    let host = host(&cluster);
    let identity = authority
        .issue(&[&host.to_string()], Validity::Now)
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let any_port = SocketAddr::new(host, 0);
    let registry = LoneRegistry::basic_at(any_port, dir, Some(&identity), FIRST).unwrap();
    let key = registry.address();

    let content = |password: &str| {
        docker_config(&[
            (&key, &format!("{USER}:{password}")),
            ("127.0.0.1:5000", "u:n0t-sent-1"),
            ("*.example.com", "u:n0t-sent-2"),
        ])
    };
    product.apply(&content(FIRST)).unwrap();
    product.wait_synced().unwrap();
    assert!(
        is_absent(&product),
        "nothing is asked without `spec.verify`"
    );

    verify(&cluster, Some("1m"));
    let (message, _) = wait(&product, "False", "Accepted", SOON);
    assert_eq!(
        message,
        "could not be asked: `127.0.0.1:5000`: its address is loopback or link-local"
    );

    // The password is changed at the registry.
    drop(registry);
    let _registry =
        LoneRegistry::basic_at(key.parse().unwrap(), dir, Some(&identity), SECOND).unwrap();
    let (message, time) = wait(&product, "True", "Rejected", AN_INTERVAL);
    println!("a revoked password was reported after {time:.1?}");
    let rejected = format!("registries reject the credentials: `{key}` (401); ");
    assert!(message.starts_with(&rejected), "{message}");
    let status = product.types("status", "");
    assert!(
        status.stderr.contains(&message) && status.stderr.contains("globalps add"),
        "{status:?}"
    );
    let check = product.ends("check", 1);
    assert!(check.stdout.contains(&message), "{check:?}");
    event(&cluster, "CredentialsRejected");

    product.apply(&content(SECOND)).unwrap();
    let (_, time) = wait(&product, "False", "Accepted", SOON);
    println!("its successor was accepted after {time:.1?}");
    event(&cluster, "CredentialsAccepted");

    verify(&cluster, None);
    until("the condition is gone", SOON, POLL, || {
        Ok(is_absent(&product).then_some(()))
    })
    .unwrap();
    product.assert_never_shown(&[FIRST, SECOND]).unwrap();
}

/// Makes the controller's pods trust the registry's certificate authority, before they start.
fn trust(cluster: &Cluster, pem: &str) {
    let namespace = "globalps-system";
    cluster.types(&format!("create namespace {namespace}"));
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "globalps-registry-authorities", "namespace": namespace},
        "data": {"ca.crt": pem},
    });
    cluster
        .kubectl_with(&["create", "-f", "-"], &config)
        .unwrap();
}

/// The address of the cluster's own registries.
fn host(cluster: &Cluster) -> IpAddr {
    let known: SocketAddr = cluster.registry().address(Access::Open).parse().unwrap();
    known.ip()
}

fn verify(cluster: &Cluster, interval: Option<&str>) {
    let verify = interval.map_or(Value::Null, |interval| json!({"interval": interval}));
    let patch = json!({"spec": {"verify": verify}});
    cluster.patch(NAMESPACE, CONFIG, &patch).unwrap();
}

fn is_absent(product: &Product) -> bool {
    product.condition(CONDITION).unwrap().0.is_empty()
}

/// Waits for the condition. Returns its message and how long it took.
fn wait(product: &Product, status: &str, reason: &str, deadline: Duration) -> (String, Duration) {
    let begun = Instant::now();
    let what = format!("{CONDITION}={status} {reason}");
    let message = until(&what, deadline, POLL, || {
        let (found, why, message) = product.condition(CONDITION)?;
        Ok((found == status && why == reason).then_some(message))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:?}", product.condition(CONDITION)));
    (message, begun.elapsed())
}

fn event(cluster: &Cluster, reason: &str) {
    until(&format!("event {reason}"), SOON, POLL, || {
        let events = cluster.kubectl(&["get", "events", "-n", NAMESPACE, "-o", "json"])?;
        let events: Value = serde_json::from_str(&events)?;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let found = events.iter().any(|event| event["reason"] == reason);
        Ok(found.then_some(()))
    })
    .unwrap();
}
