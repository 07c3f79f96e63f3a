use super::super::explanation::Crio;
use super::super::matching::explain;
use super::super::parse::parse;
use super::*;

const USER: &str = "dXNlcjpwYXNz";
const OLD: &str = "b2xkdXNlcjpvbGRwYXNz";

/// `"quay.io:USER r2:OLD"` as a file.
fn config(entries: &[(&str, &str)]) -> DockerConfig {
    let auths: Vec<String> = entries
        .iter()
        .map(|(key, auth)| format!(r#""{key}":{{"auth":"{auth}"}}"#))
        .collect();
    parse(format!(r#"{{"auths":{{{}}}}}"#, auths.join(",")).as_bytes()).unwrap()
}

fn text(config: &DockerConfig) -> String {
    String::from_utf8(config.render()).unwrap()
}

#[test]
fn merging_matches_the_reference_implementation() {
    #[rustfmt::skip]
    let cases = [
        (vec![("r1", USER)], vec![("r2", USER)], vec![("r1", USER), ("r2", USER)], vec![("r1", USER), ("r2", USER)]),
        (
            vec![("r1", USER), ("r2", USER)],
            vec![("r3", USER)],
            vec![("r1", USER), ("r2", USER), ("r3", USER)],
            vec![("r1", USER), ("r2", USER), ("r3", USER)],
        ),
        (vec![("r1", OLD)], vec![("r1", USER)], vec![("r1", USER)], vec![("r1", OLD)]),
        (
            vec![("r1", OLD), ("r2", OLD)],
            vec![("r1", USER), ("r3", USER)],
            vec![("r1", USER), ("r2", OLD), ("r3", USER)],
            vec![("r1", OLD), ("r2", OLD), ("r3", USER)],
        ),
        (
            vec![("quay.io", OLD)],
            vec![("quay.io", USER), ("quay.io/mycompany", USER)],
            vec![("quay.io", USER), ("quay.io/mycompany", USER)],
            vec![("quay.io", OLD), ("quay.io/mycompany", USER)],
        ),
        (vec![("https://quay.io", OLD)], vec![("quay.io", USER)], vec![("quay.io", USER)], vec![("quay.io", OLD)]),
    ];
    for (original, additional, additional_wins, original_wins) in cases {
        let (original, additional) = (config(&original), config(&additional));
        let merged = |precedence| text(&merge(&original, &additional, precedence).config);
        assert_eq!(
            merged(Precedence::Additional),
            text(&config(&additional_wins))
        );
        assert_eq!(merged(Precedence::Original), text(&config(&original_wins)));
    }
}

#[test]
fn only_entries_that_differ_in_meaning_are_conflicts() {
    let original = config(&[("https://r1/v1/", OLD), ("r2", USER), ("r3", OLD)]);
    let additional = config(&[("r1", USER), ("r2/", USER), ("r4", USER)]);
    let conflicts = merge(&original, &additional, Precedence::Additional).conflicts;
    assert_eq!(
        conflicts,
        [Conflict {
            registry: "r1".to_owned(),
            effective: Precedence::Additional
        }]
    );
}

#[test]
fn merged_entries_have_padded_auths_and_keep_unknown_fields() {
    let additional =
            parse(br#"{"auths":{"a":{"username":"u","password":"p","x":1},"b":{"auth":"dXNlcjpwYXNzd29yZA"}},"z":1}"#)
                .unwrap();
    let merged = merge(
        &DockerConfig::default(),
        &additional,
        Precedence::Additional,
    );
    assert_eq!(
        text(&merged.config),
        r#"{"auths":{"a":{"auth":"dTpw","password":"p","username":"u","x":1},"b":{"auth":"dXNlcjpwYXNzd29yZA=="}}}"#
    );
}

#[test]
fn a_field_that_only_crio_reads_hides_no_other_entry() {
    let bad = format!(r#"{{"auths":{{"r1":{{"auth":"{USER}","identitytoken":0,"x":1}}}}}}"#);
    let bad = parse(bad.as_bytes()).unwrap();
    let good = config(&[("r2", USER)]);
    for merged in [
        merge(&good, &bad, Precedence::Additional).config,
        merge_on_node(&good, &bad, &[], &[]).config,
    ] {
        assert_eq!(
            text(&merged),
            format!(r#"{{"auths":{{"r1":{{"auth":"{USER}","x":1}},"r2":{{"auth":"{USER}"}}}}}}"#)
        );
        assert_eq!(merged.crio_error(), None);
    }
}

#[test]
fn own_entries_survive_adding_and_removing_managed_ones() {
    type Entries = Vec<(&'static str, &'static str)>;
    let table: Vec<(&str, Entries, Entries, Entries, Entries, Entries)> = vec![
        // sentence, existing, desired, applied, result, overridden afterwards
        (
            "both sides are kept",
            vec![("ext", OLD)],
            vec![("h", USER)],
            vec![],
            vec![("ext", OLD), ("h", USER)],
            vec![],
        ),
        (
            "a managed entry takes precedence",
            vec![("s", OLD)],
            vec![("s", USER)],
            vec![],
            vec![("s", USER)],
            vec![("s", OLD)],
        ),
        (
            "an empty file gets the managed entries",
            vec![],
            vec![("h", USER)],
            vec![],
            vec![("h", USER)],
            vec![],
        ),
        (
            "without managed entries the file stays",
            vec![("ext", OLD)],
            vec![],
            vec![],
            vec![("ext", OLD)],
            vec![],
        ),
        (
            "a managed entry that is no longer desired is removed",
            vec![("gone", USER), ("ext", OLD)],
            vec![("h", USER)],
            vec![("gone", USER), ("h", USER)],
            vec![("ext", OLD), ("h", USER)],
            vec![],
        ),
        (
            "all managed entries are removed",
            vec![("a", USER), ("b", USER)],
            vec![],
            vec![("a", USER), ("b", USER)],
            vec![],
            vec![],
        ),
        (
            "another spelling is the same registry",
            vec![("https://s/v1/", OLD)],
            vec![("s", USER)],
            vec![],
            vec![("s", USER)],
            vec![("https://s/v1/", OLD)],
        ),
    ];
    for (sentence, existing, desired, applied, result, overridden) in table {
        let applied = [config(&applied)];
        let merged = merge_on_node(&config(&existing), &config(&desired), &applied, &[]);
        assert_eq!(text(&merged.config), text(&config(&result)), "{sentence}");
        assert_eq!(
            text(&DockerConfig::new(merged.overridden)),
            text(&config(&overridden)),
            "{sentence}"
        );
    }
}

#[test]
fn two_spellings_of_one_registry_are_kept_and_restored() {
    let own = config(&[("https://q", OLD), ("q", USER), ("x", USER)]);
    let none = [];
    let beside = merge_on_node(&own, &config(&[("r", USER)]), &none, &[]);
    assert_eq!(
        text(&beside.config),
        text(&config(&[
            ("https://q", OLD),
            ("q", USER),
            ("r", USER),
            ("x", USER)
        ]))
    );
    let over = merge_on_node(&own, &config(&[("q/", USER)]), &none, &[]);
    assert_eq!(
        text(&over.config),
        text(&config(&[("q", USER), ("x", USER)]))
    );
    let applied = [config(&[("q", USER)])];
    let back = merge_on_node(
        &over.config,
        &DockerConfig::default(),
        &applied,
        &over.overridden,
    );
    assert_eq!(text(&back.config), text(&own));
}

#[test]
fn all_names_of_a_registry_are_one_and_both_readers_find_it() {
    let hub = [
        "docker.io",
        "https://docker.io",
        "index.docker.io",
        "https://index.docker.io/v1/",
        "http://index.docker.io/v2/",
        "registry-1.docker.io",
        "https://registry-1.docker.io/v2/",
    ];
    let quay = [
        "quay.io",
        "quay.io/",
        "https://quay.io",
        "http://quay.io/v1/",
        "quay.io/v2/",
        "https://user@quay.io",
    ];
    let path = ["quay.io/org", "https://quay.io/org", "quay.io/v1/org"];
    for (spellings, image) in [
        (&hub[..], "library/nginx"),
        (&quay, "quay.io/org/app"),
        (&path, "quay.io/org/app"),
    ] {
        let pairs = spellings
            .iter()
            .flat_map(|one| spellings.iter().map(move |other| (*one, *other)));
        for (old, new) in pairs {
            // Less specific keys must not be found instead.
            let old = config(&[(old, OLD), ("*.io", OLD), ("x/y", OLD)]);
            let new = config(&[(new, USER)]);
            let own = merge_on_node(&old, &new, &[], &[]);
            let both = combine(&[&new, &old]).config();
            let merged = merge(&old, &new, Precedence::Additional);
            assert_eq!(merged.conflicts.len(), 1, "{old:?} {new:?}");
            for file in [&merged.config, &both, &own.config] {
                let found = explain(file, image).unwrap();
                let kubelet = found.tries[0].credential.password.expose().to_vec();
                assert_eq!(kubelet, b"pass", "{old:?} {new:?}: {file:?}");
                let crio = match found.crio.as_slice() {
                    [Crio::Credential(crio)] => Some(crio.credential.password.expose()),
                    _ => None,
                };
                assert_eq!(crio, Some(&b"pass"[..]), "{old:?} {new:?}");
            }
            let removed = DockerConfig::default();
            let applied = [own.managed.clone()];
            let back = merge_on_node(&own.config, &removed, &applied, &own.overridden);
            assert_eq!(text(&back.config), text(&old));
        }
    }
}

#[test]
fn paths_ports_and_similar_hosts_are_other_registries() {
    let all = [
        "docker.io",
        "docker.io/org",
        "docker.io/org/",
        "docker.io/library",
        "docker.io:443",
        "hub.docker.com",
        "index.docker.io.example.com",
        "Docker.io",
    ];
    let entries: Vec<(&str, &str)> = all.iter().map(|key| (*key, OLD)).collect();
    let old = config(&entries);
    let new = config(&[("https://index.docker.io/v1/", USER)]);
    let merged = merge(&old, &new, Precedence::Additional);
    assert_eq!(merged.config.entries().len(), all.len());
    assert_eq!(merged.conflicts.len(), 1);
}

#[test]
fn images_named_by_docker_hubs_server_keep_a_credential() {
    let old = config(&[("https://registry-1.docker.io/v2/", OLD)]);
    let new = config(&[("docker.io", USER)]);
    let expected = text(&config(&[
        ("docker.io", USER),
        ("registry-1.docker.io", USER),
    ]));
    let merged = merge(&old, &new, Precedence::Additional);
    assert_eq!(text(&merged.config), expected);
    let own = merge_on_node(&old, &new, &[], &[]);
    assert_eq!(text(&own.config), expected);
    let again = merge_on_node(
        &own.config,
        &new,
        std::slice::from_ref(&own.managed),
        &own.overridden,
    );
    assert_eq!(text(&again.config), expected);
}

#[test]
fn a_path_that_one_reader_takes_for_the_api_keeps_a_credential() {
    for (key, written) in [
        ("r.io/v2/app", &["r.io/app", "r.io/v2/app"][..]),
        (
            "registry-1.docker.io/v1/app",
            &[
                "docker.io/app",
                "registry-1.docker.io/app",
                "registry-1.docker.io/v1/app",
            ],
        ),
        ("https://r.io/v2", &["r.io"]),
    ] {
        let merged = merge(
            &config(&[(key, USER)]),
            &DockerConfig::default(),
            Precedence::Additional,
        );
        let expected: Vec<_> = written.iter().map(|key| (*key, USER)).collect();
        assert_eq!(text(&merged.config), text(&config(&expected)));
    }
}

#[test]
fn an_entry_that_cannot_authenticate_replaces_none_that_can() {
    let full = config(&[("quay.io", USER)]);
    let token = r#"{"auth":"Og==","identitytoken":"t"}"#;
    for dead in [
        "{}",
        "null",
        r#"{"auth":""}"#,
        r#"{"auth":"Og=="}"#,
        r#"{"username":"u"}"#,
        r#"{"identitytoken":"t"}"#,
        token,
        r#"{"auth":"cm9ib3Q6cORzcw=="}"#,
    ] {
        for key in ["quay.io", "https://quay.io/v1/"] {
            let auths = format!(r#"{{"auths":{{"{key}":{dead},"z":{{}}}}}}"#);
            let dead = parse(auths.as_bytes()).unwrap();
            for precedence in [Precedence::Additional, Precedence::Original] {
                let merged = merge(&full, &dead, precedence);
                assert_eq!(text(&merged.config), text(&full), "{auths}");
                let merged = merge(&dead, &full, precedence);
                assert_eq!(text(&merged.config), text(&full), "{auths}");
            }
            let own = merge_on_node(&full, &dead, &[], &[]);
            assert_eq!(text(&own.config), text(&full), "{auths}");
            assert!(own.managed.entries().is_empty() && own.overridden.is_empty());
            let own = merge_on_node(&dead, &full, &[], &[]);
            let found = explain(&own.config, "quay.io/a").unwrap();
            assert_eq!(found.tries[0].credential.password.expose(), b"pass");
            let applied = [own.managed.clone()];
            let nothing = DockerConfig::default();
            let back = merge_on_node(&own.config, &nothing, &applied, &own.overridden);
            assert_eq!(text(&back.config), text(&dead), "{auths}");
            let both =
                format!(r#"{{"auths":{{"{key}":{{}},"http://quay.io":{{"auth":"{USER}"}}}}}}"#);
            let both = merge(
                &full,
                &parse(both.as_bytes()).unwrap(),
                Precedence::Additional,
            );
            assert_eq!(text(&both.config), text(&full));
        }
    }
    // The file that Docker Desktop writes.
    let desktop =
        br#"{"auths":{"quay.io":{},"https://index.docker.io/v1/":{}},"credsStore":"desktop"}"#;
    let merged = merge(&full, &parse(desktop).unwrap(), Precedence::Additional);
    assert_eq!(text(&merged.config), text(&full));
    let token = parse(format!(r#"{{"auths":{{"quay.io":{token}}}}}"#).as_bytes()).unwrap();
    let shadowed = merge(&full, &token, Precedence::Additional).conflicts;
    let registry = "quay.io".to_owned();
    let effective = Precedence::Original;
    assert_eq!(
        shadowed,
        [Conflict {
            registry,
            effective
        }]
    );
    let alone = merge(&DockerConfig::default(), &token, Precedence::Additional);
    assert_eq!(alone.config.entries().len(), 1);
}

#[test]
fn a_foreign_entry_under_another_registry_name_is_restored() {
    let managed = config(&[("docker.io", USER)]);
    let first = merge_on_node(&DockerConfig::default(), &managed, &[], &[]);
    let file = config(&[("docker.io", USER), ("https://index.docker.io/v1/", OLD)]);
    let applied = [first.managed.clone()];
    let second = merge_on_node(&file, &managed, &applied, &first.overridden);
    assert_eq!(text(&second.config), text(&managed));
    let nothing = DockerConfig::default();
    let back = merge_on_node(&second.config, &nothing, &applied, &second.overridden);
    let theirs = config(&[("https://index.docker.io/v1/", OLD)]);
    assert_eq!(text(&back.config), text(&theirs));
}

#[test]
fn an_overridden_entry_is_restored_on_removal() {
    let own =
        parse(br#"{"auths":{"https://s/":{"auth":"b2xkdXNlcjpvbGRwYXNz","x":1}},"top":true}"#)
            .unwrap();
    let managed = config(&[("s", USER)]);
    let first = merge_on_node(&own, &managed, &[], &[]);
    let applied = [config(&[("s", USER)])];
    let again = merge_on_node(&first.config, &managed, &applied, &first.overridden);
    assert!(again.config.means_the_same(&first.config));
    let removed = merge_on_node(
        &again.config,
        &DockerConfig::default(),
        &applied,
        &again.overridden,
    );
    assert_eq!(text(&removed.config), text(&own));
    assert!(removed.overridden.is_empty());
}
