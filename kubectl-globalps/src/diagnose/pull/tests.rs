use super::*;

/// `dTpw` is `u:p`, `djpw` is `v:p`, `dzpw` is `w:p`.
fn keyring(name: &str, content: &str) -> Keyring {
    Keyring {
        name: name.to_owned(),
        bytes: content.as_bytes().to_vec(),
        origin: Origin::Pod,
    }
}

fn asked(of_pod: Vec<Keyring>, of_node: &str) -> Answer {
    let asked = Asked {
        image: "quay.io/org/app:1".to_owned(),
        of_pod,
        of_node: Some(keyring("the node's file", of_node)),
        ..Asked::default()
    };
    Answer::of(asked).expect("an image's name")
}

#[test]
fn a_pods_secrets_come_first_and_their_longest_path_foremost() {
    let answer = asked(
        vec![
            keyring("Secret d/one", r#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#),
            keyring(
                "Secret d/two",
                r#"{"auths":{"quay.io":{"auth":"djpw"},"quay.io/org":{"auth":"djpw"}}}"#,
            ),
        ],
        r#"{"auths":{"quay.io/org/app":{"auth":"dzpw"}}}"#,
    );
    let text = answer.text();
    let (sources, _) = text.split_once("warning:").unwrap_or((&text, ""));
    assert_eq!(
        sources,
        "\
repository: quay.io/org/app
kubelet:    `quay.io/org`, as v, from Secret d/two
  then:     `quay.io`, as u, from Secret d/one
  then:     `quay.io`, as v, from Secret d/two
  then:     `quay.io/org/app`, as w, from the node's file
CRI-O:      `quay.io/org/app`, as w
"
    );
    assert_eq!(
        answer.json()["kubelet"]["tries"][0],
        json!({"key": "quay.io/org", "username": "v", "source": "Secret d/two"})
    );
}

#[test]
fn a_secret_that_no_kubelet_reads_stops_the_pull_and_says_so() {
    let answer = asked(
        vec![keyring(
            "Secret d/bad",
            r#"{"auths":{"quay.io":{"auth":"hunter2!"}}}"#,
        )],
        r#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#,
    );
    let text = answer.text();
    assert!(
        text.contains("note:       Secret d/bad can't be read by a kubelet"),
        "{text}"
    );
    assert!(!text.contains("hunter2"), "{text}");
    assert_eq!(answer.json()["findings"][0]["source"], "Secret d/bad");
}

#[test]
fn a_file_kubelets_reject_lists_bad_entries_and_what_crio_does() {
    for (content, crio, code) in [
        (
            r#"{"auths":{"quay.io":{"auth":"dTpw"},"ghcr.io":{"auth":"bm90YWNvbG9u"}}}"#,
            "credential",
            "NoColon",
        ),
        (
            r#"{"auths":{"example.com":{"auth":"dTpw"},"ghcr.io":{"auth":"bm90YWNvbG9u"}}}"#,
            "none",
            "NoColon",
        ),
        ("{", "error", "NotJson"),
    ] {
        let asked = Asked {
            image: "quay.io/a".to_owned(),
            of_node: Some(keyring("", content)),
            ..Asked::default()
        };
        let answer = Answer::of(asked).expect("an image's name");
        let json = answer.json();
        assert_eq!(json["kubelet"]["accepted"], false, "{content}");
        assert_eq!(json["kubelet"]["tries"], json!([]), "{content}");
        assert_eq!(json["crio"]["outcome"], crio, "{content}");
        assert_eq!(json["findings"][0]["code"], code, "{content}");
        assert!(answer.text().contains("error: "), "{}", answer.text());
    }
}

#[test]
fn a_single_file_is_shown_without_its_name() {
    let asked = Asked {
        image: "quay.io/a".to_owned(),
        of_node: Some(keyring("", r#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#)),
        ..Asked::default()
    };
    let answer = Answer::of(asked).expect("an image's name");
    assert_eq!(
        answer.json()["kubelet"],
        json!({"accepted": true, "tries": [{"key": "quay.io", "username": "u"}]})
    );
    assert!(answer.has_some());
}

/// `team-a` may use `quay.io/org` as v, and every pod `quay.io` as u.
fn provided() -> Provided {
    let config = |text: &str| parse(text.as_bytes()).expect("credentials");
    let scope = r#"{"namespaces":["team-a"],"serviceAccounts":["ci"]}"#;
    Provided {
        content: Content {
            config: config(r#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#),
            scoped: vec![globalps_provider::ScopedConfig {
                source: "team-a".to_owned(),
                scope: serde_json::from_str(scope).expect("a scope"),
                config: config(r#"{"auths":{"quay.io/org":{"auth":"djpw"}}}"#),
            }],
            ..Content::default()
        },
        nodes: (3, 1),
    }
}

fn pod(namespace: &str, service_account: &str) -> Puller {
    Puller::Pod(PodIdentity {
        namespace: namespace.to_owned(),
        service_account: service_account.to_owned(),
    })
}

#[test]
fn by_the_provider_the_scope_says_who_gets_which_credential() {
    const BOTH: &str = "\
kubelet:    `quay.io/org`, as v, from source `team-a` by the credential provider
  then:     `quay.io`, as u, from the credential provider
";
    const ONE: &str = "kubelet:    `quay.io`, as u, from the credential provider\n";
    const WHO: &str = "scope:      source `team-a` is for pods of team-a (service accounts ci)";
    for (image, puller, tries, scope, json) in [
        (
            "quay.io/org/app:1",
            pod("team-a", "ci"),
            BOTH,
            ", which covers a pod of `team-a` with service account `ci`",
            json!({"source": "team-a", "allowed": true, "for": "pods of team-a (service accounts ci)"}),
        ),
        (
            "quay.io/org/app:1",
            pod("team-b", "ci"),
            ONE,
            ", which does not cover a pod of `team-b` with service account `ci`",
            json!({"source": "team-a", "allowed": false, "for": "pods of team-a (service accounts ci)"}),
        ),
        (
            "quay.io/org/app:1",
            Puller::Static,
            ONE,
            ", which does not cover a static pod",
            json!({"source": "team-a", "allowed": false, "for": "pods of team-a (service accounts ci)"}),
        ),
        (
            "quay.io/org/app:1",
            Puller::Unknown,
            ONE,
            ": see `--pod`",
            json!(null),
        ),
        ("quay.io/other:1", pod("team-a", "ci"), ONE, "", json!(null)),
    ] {
        let answer = Answer::of(Asked {
            image: image.to_owned(),
            provided: Some(provided()),
            puller: puller.clone(),
            ..Asked::default()
        });
        let answer = answer.expect("an image's name");
        let (_, text) = answer
            .text()
            .split_once('\n')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .expect("lines");
        let scope = match scope {
            "" => String::new(),
            scope => format!("{WHO}{scope}\n"),
        };
        let crio = "CRI-O:      has no credential for it\n";
        assert_eq!(text, format!("{tries}{scope}{crio}"), "{puller:?}");
        let found = answer.json();
        assert_eq!(found["scope"], json, "{puller:?}");
        assert_eq!(found.get("scope").is_some(), puller != Puller::Unknown);
    }
}

#[test]
fn both_deliveries_are_shown_if_some_nodes_keep_the_file() {
    let answer = Answer::of(Asked {
        image: "quay.io/org/app:1".to_owned(),
        of_node: Some(keyring(
            "the nodes' file",
            r#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#,
        )),
        provided: Some(provided()),
        puller: pod("team-a", "ci"),
        ..Asked::default()
    });
    let answer = answer.expect("an image's name");
    assert_eq!(
            answer.text(),
            "\
repository: quay.io/org/app
nodes:      3 with the credential provider, 1 with the credentials file
kubelet:    `quay.io/org`, as v, from source `team-a` by the credential provider
  then:     `quay.io`, as u, from the credential provider
by file:    `quay.io`, as u, from the nodes' file
scope:      source `team-a` is for pods of team-a (service accounts ci), which covers a pod of `team-a` with service account `ci`
CRI-O:      has no credential for it
"
        );
    assert_eq!(
        answer.json()["byFile"],
        json!({"nodes": 1, "tries": [{"key": "quay.io", "username": "u", "source": "the nodes' file"}]})
    );
}
