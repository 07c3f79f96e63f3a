use super::*;
use crate::secret::history::sorted;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

const ID: &str = "00000000000000ab";

/// Converts `"a:dTpw b:dTpx"` into the value of a Secret.
fn auths(text: &str) -> Value {
    let words = text.split_whitespace();
    let auths: serde_json::Map<String, Value> = words
        .filter_map(|word| word.split_once(':'))
        .map(|(key, auth)| (key.to_owned(), json!({ "auth": auth })))
        .collect();
    json!(ByteString(
        json!({ "auths": auths }).to_string().into_bytes()
    ))
}

/// `data`: values by key. `since`: the revision of each part.
fn secret(revision: &str, since: &Value, data: &[(&str, Value)]) -> Secret {
    let data: serde_json::Map<String, Value> = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"annotations": {
            names::REVISION_ANNOTATION: revision,
            names::ROLLED_OUT_ANNOTATION: format!("2026-01-01T00:0{revision}:00Z"),
            names::CONTENT_SINCE_ANNOTATION: since.to_string(),
        }},
        "data": data,
    }))
    .expect("a Secret")
}

fn gps(spec: Value) -> GlobalPullSecret {
    let mut gps = GlobalPullSecret::new("g", serde_json::from_value(spec).expect("a spec"));
    let status = json!({
        "imagePullSecrets": {"secretName": "s", "total": 9, "synced": 7},
        "sources": [{"name": "team", "valid": true, "registries": ["ghcr.io"], "total": 1}],
    });
    gps.status = serde_json::from_value(status).expect("a status");
    gps
}

fn node(revision: i64, delivery: &str) -> NodePullSecret {
    serde_json::from_value(json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret", "metadata": {"name": "n"},
        "spec": {}, "status": {"revision": revision, "delivery": delivery, "phase": "Synced"},
    }))
    .expect("a NodePullSecret")
}

fn table(listing: &Listing, wide: bool) -> String {
    let layout = Layout {
        wide,
        ..Layout::default()
    };
    listing.table("2026-01-01T00:15:00Z".parse().expect("a time"), layout)
}

/// Revision 5: `u:p` is `dTpw`, `u:q` is `dTpx`, `v:p` is `djpw`.
fn global() -> Secret {
    let scoped = r#"[{"source":"team","scope":{"namespaces":["team-*"],"serviceAccounts":["builder"]},
            "config":{"auths":{"ghcr.io":{"auth":"djpw"}}}}]"#;
    secret(
        "5",
        &json!({"": format!("5-{ID}"), "team": format!("2-{ID}")}),
        &[
            (
                names::DATA_KEY,
                auths("docker.io:djpw quay.io:dTpw new.io:dTpw more.io:dTpx old.io:dTpw"),
            ),
            (
                names::LAST_ADDITIONAL_KEY,
                auths("quay.io:dTpw new.io:dTpw docker.io:dTpw"),
            ),
            (
                names::LAST_ORIGINAL_KEY,
                auths("docker.io:djpw quay.io:dTpx"),
            ),
            ("last-good-source.more", auths("more.io:dTpx quay.io:dTpw")),
            ("last-good-source.team", auths("ghcr.io:djpw")),
            (
                names::SCOPED_KEY,
                json!(ByteString(scoped.as_bytes().to_vec())),
            ),
        ],
    )
}

fn spec() -> Value {
    json!({
        "original": {"secretRef": {"namespace": "openshift-config", "name": "pull-secret"}},
        "sources": [{"name": "team", "scope": {"namespaces": ["team-*"]}}, {"name": "more"}],
        "kubelet": {"delivery": "CredentialProvider"}, "imagePullSecrets": {"enabled": true},
    })
}

#[test]
fn each_registry_has_user_source_scope_revision_and_progress() {
    let global = global();
    let kept = |revision: &str, content: &str| {
        secret(revision, &json!({}), &[(names::DATA_KEY, auths(content))])
    };
    let slots = [
        kept("4", "quay.io:dTpw"),
        kept("3", "quay.io:dTpw old.io:dTpw"),
        kept("2", "quay.io:dTpx new.io:dTpw"),
    ];
    let nodes = [
        node(5, "CredentialProvider"),
        node(4, "CredentialProvider"),
        node(3, "ConfigFile"),
    ];
    let nodes: Vec<&NodePullSecret> = nodes.iter().collect();
    let seen = |is_ours, content: &str| SecretSeen {
        is_ours,
        content: content.replace('#', &format!("-{ID}")),
        written: None,
    };
    let in_namespaces = [
        seen(true, "5#,team@2#"),
        seen(true, "5#,team@1#"),
        seen(true, "5#,team@2"),
        seen(true, "5#"),
        seen(false, "5#,team@2#"),
    ];
    let gps = gps(spec());
    let listing = Listing::of(RegistrySnapshot {
        gps: &gps,
        global: Some(&global),
        revisions: &sorted(slots, Some(&global)),
        nodes: Some(&nodes),
        in_namespaces: Some(&in_namespaces),
        hidden: Vec::new(),
    });
    assert_eq!(
            table(&listing, false),
            "\
REGISTRY    USER   SOURCE                                  SCOPE                                       REVISION   AGE   NODES   NAMESPACES
docker.io   v      original openshift-config/pull-secret   every pod                                   <=5        10m   1/3     7
ghcr.io     v      team                                    pods of team-* (service accounts builder)   <=2        13m   2/3     1
more.io     u      more                                    every pod                                   <=5        10m   1/3     7
new.io      u      additional-pull-secret                  every pod                                   5          10m   1/3     7
old.io      u      ?                                       every pod                                   <=5        10m   1/3     7
quay.io     u      additional-pull-secret                  every pod                                   3          12m   3/3     7"
        );
    let text = json!(listing).to_string();
    assert!(!text.contains("dTpw") && !text.contains("djpw"), "{text}");
}

#[test]
fn hidden_values_are_unknown_and_the_status_names_sources() {
    let gps = gps(spec());
    let hidden = Listing::of(RegistrySnapshot {
        gps: &gps,
        global: None,
        revisions: &[],
        nodes: None,
        in_namespaces: None,
        hidden: vec!["x".to_owned()],
    });
    assert_eq!(
        table(&hidden, false),
        "\
REGISTRY   USER   SOURCE   SCOPE            REVISION   AGE   NODES
ghcr.io           team     pods of team-*   ?                ?"
    );
    assert_eq!(json!(hidden)["hidden"], json!(["x"]));
    let token = "dTplMzAuZXlKbGVIQWlPakUzTmpjeU1qVTJNREI5LmMybG4=";
    let data = auths(&format!("quay.io:{token}"));
    let global = secret(
        "1",
        &json!({}),
        &[
            (names::DATA_KEY, data.clone()),
            (names::LAST_ADDITIONAL_KEY, data),
        ],
    );
    let gps = self::gps(json!({}));
    let wide = Listing::of(RegistrySnapshot {
        gps: &gps,
        global: Some(&global),
        revisions: &[],
        nodes: Some(&[]),
        in_namespaces: None,
        hidden: Vec::new(),
    });
    assert_eq!(
            table(&wide, true),
            "\
REGISTRY   USER   SOURCE                   SCOPE       REVISION   AGE   NODES   DELIVERY     EXPIRES
quay.io    u      additional-pull-secret   every pod   1                0/0     ConfigFile   2026-01-01T00:00:00Z"
        );
}

#[test]
fn a_source_that_no_pod_gets_is_listed_with_its_state() {
    let mut gps = gps(json!({
        "sources": [{"name": "team", "scope": {"namespaces": ["team-a"]}}, {"name": "more"}],
    }));
    let status = gps.status.as_mut().expect("a status");
    status.sources[0].delivery = NOT_DELIVERABLE.to_owned();
    let global = secret("1", &json!({}), &[(names::DATA_KEY, auths("quay.io:dTpw"))]);
    let node = node(1, "ConfigFile");
    for content in [Some(&global), None] {
        let listing = Listing::of(RegistrySnapshot {
            gps: &gps,
            global: content,
            revisions: &[],
            nodes: Some(&[&node]),
            in_namespaces: None,
            hidden: Vec::new(),
        });
        let row = json!(listing)["registries"][0].clone();
        assert_eq!(
            (
                &row["registry"],
                &row["source"],
                &row["delivery"],
                &row["nodes"]
            ),
            (
                &json!("ghcr.io"),
                &json!("team"),
                &json!("NotDeliverable"),
                &json!(0)
            )
        );
        let text = table(&listing, false);
        assert!(text.contains("   0/1     NotDeliverable"), "{text}");
        assert_eq!(text.matches("ghcr.io").count(), 1, "{text}");
    }
}

#[test]
fn times_have_seconds_as_those_of_other_commands() {
    let data = auths("quay.io:dTpw");
    let mut global = secret("1", &json!({}), &[(names::DATA_KEY, data)]);
    let annotations = global.metadata.annotations.as_mut().expect("some");
    let time = "2026-01-01T07:15:56.683212867Z".to_owned();
    annotations.insert(names::ROLLED_OUT_ANNOTATION.to_owned(), time);
    global.data.as_mut().expect("data").insert(
        names::LAST_ADDITIONAL_KEY.to_owned(),
        ByteString(br#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#.to_vec()),
    );
    let listing = Listing::of(RegistrySnapshot {
        gps: &gps(json!({})),
        global: Some(&global),
        revisions: &sorted([], Some(&global)),
        nodes: Some(&[]),
        in_namespaces: None,
        hidden: Vec::new(),
    });
    let since = json!(listing)["registries"][0]["since"].clone();
    assert_eq!(since, "2026-01-01T07:15:56Z");
}
