use super::*;

/// Parses `"a:dTpw b:dTpx"`.
fn config(text: &str) -> DockerConfig {
    let auths: Vec<String> = text
        .split_whitespace()
        .filter_map(|word| word.split_once(':'))
        .map(|(key, auth)| format!(r#""{key}":{{"auth":"{auth}"}}"#))
        .collect();
    globalps_dockerconfig::parse(format!(r#"{{"auths":{{{}}}}}"#, auths.join(",")).as_bytes())
        .expect("credentials")
}

#[test]
fn a_change_is_named_by_what_it_does_to_the_nodes() {
    use ChangeKind::{Added, Changed, Overridden, Removed, Shadowed};
    use Precedence::{Additional, Original};
    #[rustfmt::skip]
    let cases = [
        ("the same is none", "", "a:dTpw", "a:dTpw", Additional, None),
        ("new", "", "", "a:dTpw", Additional, Some(Added)),
        ("another password", "", "a:dTpw", "a:dTpx", Additional, Some(Changed)),
        ("revoked", "", "a:dTpw", "", Additional, Some(Removed)),
        ("instead of the original's", "a:dTpw", "", "a:dTpx", Additional, Some(Overridden)),
        ("which wins where it is to win", "a:dTpw", "", "a:dTpx", Original, Some(Shadowed)),
        ("the original's own changes nothing", "a:dTpw", "", "a:dTpw", Additional, None),
        ("again another one", "a:dTpw", "a:dTpx", "a:dTpy", Additional, Some(Changed)),
        ("back to the original's", "a:dTpw", "a:dTpx", "a:dTpw", Additional, Some(Changed)),
        ("shadowed before and after", "a:dTpw", "a:dTpx", "a:dTpx", Original, None),
    ];
    for (sentence, original, before, after, precedence, expected) in cases {
        let in_force = InForce {
            additional: config(before),
            original: config(original),
            precedence,
            ..InForce::default()
        };
        let found = changes(&in_force, &config(after));
        let kinds: Vec<ChangeKind> = found.iter().map(|change| change.change).collect();
        assert_eq!(kinds, Vec::from_iter(expected), "{sentence}");
    }
}

#[test]
fn what_counts_is_what_nodes_have() {
    use ChangeKind::{Overridden, Replaced, Shadowed};
    #[rustfmt::skip]
    let cases = [
        ("nodes keep the original's", "", "", "", "r:dTpx", Some(Replaced)),
        ("another source takes its place", "", "r:dTpy", "", "r:dTpx", Some(Replaced)),
        ("another source has the same", "", "r:dTpx", "", "r:dTpx", None),
        ("the original's was in force already", "", "", "", "r:dTpw", None),
        ("it replaces another source's", "", "r:dTpy", "r:dTpx", "", Some(Overridden)),
        ("another source wins", "r:dTpy", "", "r:dTpx", "", Some(Shadowed)),
    ];
    for (sentence, before, after, proposed, in_force_now, expected) in cases {
        let in_force = InForce {
            additional: config(in_force_now),
            original: config("r:dTpw"),
            before: config(before),
            after: config(after),
            ..InForce::default()
        };
        let found = changes(&in_force, &config(proposed));
        let kinds: Vec<ChangeKind> = found.iter().map(|change| change.change).collect();
        assert_eq!(kinds, Vec::from_iter(expected), "{sentence}");
    }
}

#[test]
fn sources_are_compared_in_their_order_of_precedence() {
    let mut global = Secret::default();
    let bytes = |text: &str| k8s_openapi::ByteString(config(text).render());
    let contents = [
        (names::LAST_ADDITIONAL_KEY, "a:dTpw"),
        (names::LAST_ORIGINAL_KEY, "o:dTpw"),
        ("last-good-source.s", "a:dTpx s:dTpw t:dTpw"),
        ("last-good-source.t", "t:dTpx"),
    ];
    let contents = contents.map(|(key, text)| (key.to_owned(), bytes(text)));
    global.data = Some(contents.into());
    let spec = r#"{"sources":[{"name":"s"},{"name":"t"},{"name":"unread"}]}"#;
    let spec: GlobalPullSecretSpec = serde_json::from_str(spec).expect("a spec");
    let keys = |config: &DockerConfig| -> Vec<String> {
        let all = config.by_canonical_key();
        all.keys().map(ToString::to_string).collect()
    };
    for (compared, before, own, after) in [
        (
            names::ADDITIONAL_SECRET,
            vec![],
            vec!["a"],
            vec!["a", "s", "t"],
        ),
        ("s", vec!["a"], vec!["a", "s", "t"], vec!["t"]),
        ("new", vec!["a", "s", "t"], vec![], vec![]),
    ] {
        let found = InForce::of(Some(&global), Some(&spec), compared);
        let parts = [&found.before, &found.additional, &found.after].map(keys);
        assert_eq!(parts, [before, own, after], "{compared}");
        let effective = found.effective(&found.additional);
        assert!(effective.means_the_same(&config("a:dTpw s:dTpw t:dTpw o:dTpw")));
    }
}

#[test]
fn another_spelling_of_a_registry_is_no_change() {
    let in_force = InForce {
        additional: config("quay.io:dTpw"),
        ..InForce::default()
    };
    let same = globalps_dockerconfig::parse(
        br#"{"auths":{"https://quay.io/v1/":{"username":"u","password":"p"}}}"#,
    )
    .expect("credentials");
    assert_eq!(changes(&in_force, &same), []);
}

#[test]
fn other_registry_names_are_overridden_empty_entries_do_nothing() {
    let in_force = InForce {
        original: config("docker.io:dTpw quay.io:dTpw"),
        ..InForce::default()
    };
    let proposed = globalps_dockerconfig::parse(
        br#"{"auths":{"https://index.docker.io/v1/":{"auth":"dTpx"},"quay.io":{}}}"#,
    )
    .expect("credentials");
    let registry = "docker.io".to_owned();
    let change = ChangeKind::Overridden;
    assert_eq!(
        changes(&in_force, &proposed),
        [RegistryChange { registry, change }]
    );
}

#[test]
fn credentials_are_masked() {
    let all = [
        ChangeKind::Added,
        ChangeKind::Removed,
        ChangeKind::Changed,
        ChangeKind::Replaced,
        ChangeKind::Overridden,
        ChangeKind::Shadowed,
    ]
    .map(|change| RegistryChange {
        registry: "r".to_owned(),
        change,
    });
    assert_eq!(
        text(&all),
        "\
+r: ***
-r: ***
-r: *** (before)
+r: *** (after)
-r: *** (before)
+r: *** (after, another pull secret)
-r: *** (before, another pull secret)
+r: *** (after)
 r: *** (shadowed: another pull secret wins)
"
    );
}

#[test]
fn both_sides_have_every_registry_and_no_credential() {
    let in_force = InForce {
        additional: config("a:dTpw b:dTpw same:dTpw"),
        ..InForce::default()
    };
    let proposed = config("b:dTpx c:dTpw same:dTpw");
    let changes = changes(&in_force, &proposed);
    let (before, after) = sides(&in_force, &proposed, &changes);
    assert_eq!(before, "a: ***\nb: *** (before)\nsame: ***\n");
    assert_eq!(after, "b: *** (after)\nc: ***\nsame: ***\n");
}

#[test]
fn the_json_is_what_scripts_rely_on() {
    let mut difference = Difference {
        changes: vec![RegistryChange {
            registry: "quay.io".to_owned(),
            change: ChangeKind::Overridden,
        }],
        lagging_nodes: vec!["node-2".to_owned()],
        scopes: Vec::new(),
        effects: Effects::default(),
        pull_secret: None,
    };
    assert_eq!(
        serde_json::to_string(&difference).expect("JSON"),
        r#"{"changes":[{"registry":"quay.io","change":"overridden"}],"laggingNodes":["node-2"]}"#
    );
    difference.changes.clear();
    assert!(difference.is_empty());
    difference.scopes = vec![ScopeChange {
        source: "s".to_owned(),
        before: String::new(),
        after: "pods of a".to_owned(),
    }];
    difference.effects.new_ports = vec!["r:99".to_owned()];
    difference.effects.restarts_kubelets = Some(true);
    assert_eq!(
        serde_json::to_string(&difference).expect("JSON"),
        r#"{"changes":[],"laggingNodes":["node-2"],"scopes":[{"source":"s","before":"","after":"pods of a"}],"newPorts":["r:99"],"restartsKubelets":true}"#
    );
    assert!(!difference.is_empty());
    assert_eq!(difference.beside(), "+source `s`: pods of a\n");
}

#[test]
fn sources_in_force_are_for_every_pod_or_for_some() {
    use globalps_provider::{ScopedConfig, render_scoped};
    use k8s_openapi::ByteString;
    let scope: Scope = serde_json::from_str(r#"{"namespaces":["team-*"]}"#).expect("a scope");
    let scoped = render_scoped(&[ScopedConfig {
        source: "team".to_owned(),
        scope: scope.clone(),
        config: config("a:dTpw"),
    }]);
    let mut global = Secret::default();
    let keys = ["last-good-source.team", "last-good-source.all", "other"];
    let data = keys.map(|key| (key.to_owned(), ByteString(b"{}".to_vec())));
    let data = data.into_iter();
    let scoped = (names::SCOPED_KEY.to_owned(), ByteString(scoped));
    global.data = Some(data.chain([scoped]).collect());
    let in_force = InForce::of(Some(&global), None, names::ADDITIONAL_SECRET);
    assert_eq!(in_force.scoped, [("team".to_owned(), scope)]);
    assert_eq!(in_force.everybodys, ["all"]);
}
