//! Several sources of credentials: each is validated separately, merged in order, and readable by a permission for its
//! name. Also unusual Secrets: near the maximum size, immutable, of another type.

mod common;

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use common::{base64, cluster, docker_config, roll_out, wait_auth, write};
use globalps_testkit::product::{
    ADDITIONAL, DEADLINE, NAMESPACE, Product, configuration, pull_secret, reconfigure,
};
use globalps_testkit::{Cluster, Node, config_file, until, wait};
use jiff::Timestamp;
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(50);
const HIDDEN: &str = "s0urce-hidden";

#[test]
fn sources_are_judged_alone_and_odd_secrets_lose_nothing() {
    let cluster = cluster("sources", 2);
    let product = Product::install(&cluster).unwrap();
    let nodes = cluster.nodes().unwrap();

    sources_alone_are_rolled_out_and_put_back(&cluster, &product, &nodes);
    an_oversized_secret_is_refused_and_what_was_in_force_stays(&product, &nodes);
    an_immutable_one_of_another_type_is_taken_with_a_warning(&product, &nodes);

    an_expiring_credential_is_reported_at_its_time(&cluster, &product);

    product
        .assert_never_shown(&[HIDDEN, &base64(&format!("u:{HIDDEN}"))])
        .unwrap();
}

fn sources_alone_are_rolled_out_and_put_back(cluster: &Cluster, product: &Product, nodes: &[Node]) {
    source(
        cluster,
        "team-a",
        &docker_config(&[("a.example.com", "u:a"), ("both.example.com", "u:a")]),
    );
    let spec = json!({"sources": [{"name": "team-a"}, {"name": "team-b"}]});
    cluster.apply(configuration(&spec)).unwrap();
    let forbidden = wait_sources(product, "False", "Forbidden");
    assert!(
        forbidden.contains("`team-a`: the controller may not read it")
            && forbidden.contains("`kubectl globalps install --source team-a --source team-b`"),
        "{forbidden}"
    );
    // The other source is created later.
    let ran = product.types("install --source team-a --source team-b --apply", "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    wait_auth(nodes, "a.example.com", Some("u:a"));
    let absent = wait_sources(product, "False", "Absent");
    assert_eq!(absent, "`team-b`: the Secret does not exist");

    let content = [
        ("b.example.com", "u:b"),
        ("both.example.com", &*format!("u:{HIDDEN}")),
    ];
    source(cluster, "team-b", &docker_config(&content));
    wait_auth(nodes, "b.example.com", Some("u:b"));
    wait_auth(nodes, "both.example.com", Some("u:a"));
    wait_sources(product, "True", "Valid");
    let status = product.status().unwrap();
    assert_eq!(
        status["sources"],
        json!([
            {"name": "team-a", "valid": true, "message": "", "delivery": "Nodes", "registries": ["a.example.com", "both.example.com"], "total": 2},
            {"name": "team-b", "valid": true, "message": "", "delivery": "Nodes", "registries": ["b.example.com"], "total": 1},
        ])
    );
    assert_eq!(
        status["conflicts"],
        json!([{"registry": "both.example.com", "effective": "Additional", "source": "team-a", "shadowed": "team-b"}])
    );

    // An invalid source keeps its last valid content, and the other source is updated.
    source(
        cluster,
        "team-a",
        r#"{"auths":{"a.example.com":{"auth":"!"}}}"#,
    );
    let invalid = wait_sources(product, "False", "Invalid");
    assert!(
        invalid.contains("`a.example.com`: `auth` is not base64"),
        "{invalid}"
    );
    source(
        cluster,
        "team-b",
        &docker_config(&[("b.example.com", "u:b2")]),
    );
    wait_auth(nodes, "b.example.com", Some("u:b2"));
    wait_auth(nodes, "a.example.com", Some("u:a"));

    // The additional Secret overrides both; deleting it keeps them.
    write(
        product,
        &[("b.example.com", "u:first"), ("c.example.com", "u:c")],
    );
    wait_auth(nodes, "b.example.com", Some("u:first"));
    product.wait_synced().unwrap();
    let ran = product.ends("remove --all --yes --wait", 0);
    let difference = "-b.example.com: *** (before)\n+b.example.com: *** (after, another pull secret)\n-c.example.com: ***\n";
    assert!(ran.stderr.starts_with(difference), "{ran:?}");
    let keep = "nodes keep the credentials of `team-a`, `team-b`, which `spec.sources` names\n";
    assert!(ran.stderr.contains(keep), "{ran:?}");
    for node in nodes {
        let auth = |registry| config_file::auth(node, registry).unwrap();
        assert_eq!(
            auth("c.example.com"),
            None,
            "it waited until the other sources were in effect"
        );
        assert_eq!(auth("b.example.com"), Some(base64("u:b2")));
    }
    product.ends("status", 0);
    check_tells_of_sources(product);

    for name in ["team-a", "team-b"] {
        cluster.types(&format!("delete secret {name} -n {NAMESPACE}"));
    }
    product.wait_clean().unwrap();
    for node in nodes {
        assert_eq!(config_file::read(node).unwrap(), None);
    }
    reconfigure(cluster, &json!({"sources": []})).unwrap();
}

fn an_oversized_secret_is_refused_and_what_was_in_force_stays(product: &Product, nodes: &[Node]) {
    let large = |bytes: usize| {
        let mut content: Value =
            serde_json::from_str(&docker_config(&[("large.example.com", "u:large")])).unwrap();
        content["auths"]["large.example.com"]["note"] = "x".repeat(bytes).into();
        content.to_string()
    };
    roll_out(product, &[("first.example.com", "u:first")]);
    product.apply(&large(1_048_000)).unwrap();
    let (_, reason, message) = product.wait_condition("AdditionalValid", "False").unwrap();
    assert_eq!(reason, "Invalid");
    for part in [
        "more than a Secret's limit of 1048576",
        "remove registries",
        "stays in force",
    ] {
        assert!(message.contains(part), "{message}");
    }
    wait_auth(nodes, "first.example.com", Some("u:first"));
    assert_eq!(product.status().unwrap()["revision"], 1);
    // The maximum size.
    product.apply(&large(520_000)).unwrap();
    product.wait_synced().unwrap();
    wait_auth(nodes, "large.example.com", Some("u:large"));
    product.delete().unwrap();
    product.wait_clean().unwrap();
}

fn an_immutable_one_of_another_type_is_taken_with_a_warning(product: &Product, nodes: &[Node]) {
    let content = docker_config(&[("fixed.example.com", "u:fixed")]);
    product
        .apply_secret(&json!({
            "type": "example.com/mine", "immutable": true, "stringData": {".dockerconfigjson": content},
        }))
        .unwrap();
    product.wait_synced().unwrap();
    wait_auth(nodes, "fixed.example.com", Some("u:fixed"));
    let (status, _, message) = product.condition("AdditionalValid").unwrap();
    assert_eq!(status, "True");
    assert!(
        message.contains("its type is `example.com/mine`"),
        "{message}"
    );
    product.delete().unwrap();
    product.wait_clean().unwrap();
    assert_eq!(
        product.get(&format!("secret/{ADDITIONAL}")).unwrap(),
        Value::Null
    );
}

/// The condition changes without any other event, because the controller wakes up for it.
fn an_expiring_credential_is_reported_at_its_time(cluster: &Cluster, product: &Product) {
    const EXPIRING: &str = "CredentialsExpiring";
    // The rollout must be over when the warning begins, because it causes reconciles of its own.
    let begins = Timestamp::now().as_second() + 40;
    let claims = format!(r#"{{"exp":{}}}"#, begins + 3 * 24 * 3600);
    let token = format!("u:e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims));
    write(
        product,
        &[
            ("token.example.com", &token),
            ("plain.example.com", "u:plain"),
        ],
    );
    let (_, reason, message) = product.wait_condition(EXPIRING, "False").unwrap();
    assert_eq!((reason.as_str(), message.as_str()), ("NoneExpiring", ""));
    product.wait_synced().unwrap();
    let (_, reason, message) = product.wait_condition(EXPIRING, "True").unwrap();
    assert_eq!(reason, "ExpiringSoon");
    let expires = Timestamp::from_second(begins + 3 * 24 * 3600).unwrap();
    let expected =
        format!("the credential for `token.example.com` of `{ADDITIONAL}` expires at {expires}");
    assert_eq!(message, expected);
    let status = product.status().unwrap();
    let conditions = status["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|found| found["type"] == EXPIRING);
    let since: Timestamp = found.unwrap()["lastTransitionTime"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let late = since.as_second() - begins;
    println!("{EXPIRING} is True {late} s after the warning begins");
    assert!((0..=15).contains(&late), "{late} s");
    let check = product.types("check", "");
    assert!(check.stdout.contains(&format!("‼ {expected}")), "{check:?}");
    let shown = product.ends("status", 0);
    assert!(shown.stderr.contains(&expected), "{shown:?}");

    let events = |reason: &str| -> anyhow::Result<usize> {
        let selector = format!("reason={reason}");
        Ok(cluster
            .kubectl_line(&format!(
                "get events -n {NAMESPACE} --field-selector {selector} -o name"
            ))?
            .lines()
            .count())
    };
    let wait_event = |reason: &str| {
        wait(&format!("an event {reason}"), POLL, || {
            Ok((events(reason)? > 0).then_some(()))
        });
    };
    wait_event(EXPIRING);
    // A reconcile that changes nothing about it.
    roll_out(
        product,
        &[
            ("token.example.com", &token),
            ("plain.example.com", "u:other"),
        ],
    );
    assert_eq!(events(EXPIRING).unwrap(), 1, "once");

    let renewed = docker_config(&[("token.example.com", "u:renewed")]);
    product.apply(&renewed).unwrap();
    let (_, reason, _) = product.wait_condition(EXPIRING, "False").unwrap();
    assert_eq!(reason, "NoneExpiring");
    wait_event("CredentialsRenewed");
    assert_eq!(events(EXPIRING).unwrap(), 1, "once");
    product.wait_synced().unwrap();
    product.delete().unwrap();
    product.wait_clean().unwrap();
}

/// `team-a` has an entry that can't be decoded; `team-b` is valid.
fn check_tells_of_sources(product: &Product) {
    let ran = product.ends("check --registries --check-timeout 1s", 1);
    for part in [
        "× a Secret in `spec.sources` is not valid: `team-a`: `a.example.com`: `auth` is not base64",
        "√ revision ",
        "`b.example.com` could not be checked: ",
        "(`team-b`, `global-pull-secret`)",
    ] {
        assert!(ran.stdout.contains(part), "{part} is not in {}", ran.stdout);
    }
}

fn source(cluster: &Cluster, name: &str, content: &str) {
    let secret = pull_secret(NAMESPACE, name, content);
    cluster.apply(secret).unwrap();
}

/// Waits for this status and reason of `SourcesValid`. Returns its message.
fn wait_sources(product: &Product, wanted: &str, wanted_reason: &str) -> String {
    let what = format!("SourcesValid={wanted} {wanted_reason}");
    let waited = until(&what, DEADLINE, POLL, || {
        let (status, reason, message) = product.condition("SourcesValid")?;
        Ok((status == wanted && reason == wanted_reason).then_some(message))
    });
    waited.unwrap_or_else(|error| panic!("{error:#}, but {}", product.status().unwrap()))
}
