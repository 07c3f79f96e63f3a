use super::*;
use crate::content::secret::{GlobalWrite, encode};

/// Without namespaces.
fn resolve(
    spec: &GlobalPullSecretSpec,
    additional: &Source,
    original: &Source,
    sources: &[(String, Source)],
    global: Option<&Global>,
) -> Resolved {
    let scopes = Scopes {
        spec,
        namespaces: None,
        waits_with_namespaces: false,
    };
    super::resolve(&scopes, additional, original, sources, global)
}

const A: &str = r#"{"auths":{"a":{"auth":"dTpw"}}}"#;
const B: &str = r#"{"auths":{"b":{"auth":"dTpw"}}}"#;
const C: &str = r#"{"auths":{"c":{"auth":"dTpw"}}}"#;
const BAD: &str = r#"{"auths":{"c":{"auth":"cGFudHM="}}}"#;
const HALF: &str = r#"{"auths":{"b":{"auth":"dTpw"},"c":{"auth":"cGFudHM="}}}"#;

fn data(text: &str) -> Data {
    Data(Some(text.as_bytes().to_vec()))
}

fn found(text: &str) -> Source {
    Source::Found(data(text))
}

fn keys(resolved: &Resolved) -> String {
    let desired = resolved.desired.as_ref();
    desired.map_or("nothing".to_owned(), |desired| {
        desired
            .content
            .config
            .entries()
            .iter()
            .map(globalps_dockerconfig::Entry::key)
            .collect::<Vec<_>>()
            .join(" ")
    })
}

#[test]
fn entries_that_are_not_used_are_named_and_replace_none() {
    let original = r#"{"auths":{"quay.io":{"auth":"dTpw"},"docker.io":{"auth":"dTpw"}}}"#;
    let additional = r#"{"auths":{"quay.io":{},"https://index.docker.io/v1/":{"auth":"dTpx"}}}"#;
    let spec = serde_json::from_value(serde_json::json!({"sources": [
        {"name": "one"}, {"name": "two", "scope": {"namespaces": ["a"]}},
    ]}));
    let spec: GlobalPullSecretSpec = spec.unwrap();
    let one = r#"{"auths":{"registry-1.docker.io":{"auth":"dTpy"}}}"#;
    let sources = [("one", one), ("two", additional)];
    let sources = sources.map(|(name, text)| (name.to_owned(), found(text)));
    let resolved = resolve(&spec, &found(additional), &found(original), &sources, None);
    assert_eq!(keys(&resolved), "docker.io registry-1.docker.io quay.io");
    let conflicts = resolved.conflicts.iter().map(ConflictStatus::sides);
    let sides = |effective: &str, shadowed: &str| (effective.to_owned(), shadowed.to_owned());
    assert_eq!(
        conflicts.collect::<Vec<_>>(),
        [
            sides("the additional pull secret", "the original"),
            sides("`additional-pull-secret`", "`one`"),
        ]
    );
    for verdict in [&resolved.additional, &resolved.sources[1].verdict] {
        let Verdict::Valid(named) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(named.len(), 1);
        assert_eq!(named[0].registry, "quay.io");
    }
    assert_eq!(resolved.sources[1].registries, ["docker.io"]);
}

#[test]
fn an_invalid_source_blocks_no_other_and_changes_nothing() {
    let before = Global {
        last_additional: Some(data(A)),
        last_original: Some(data(B)),
        ..Global::default()
    };
    let unreadable = Source::Unreadable("forbidden".to_owned());
    for (sentence, additional, original, global, expected) in [
        ("additional alone", found(A), Source::Absent, None, "a"),
        ("both", found(A), found(B), None, "a b"),
        (
            "an initially invalid additional Secret adds nothing",
            found(BAD),
            found(B),
            None,
            "nothing",
        ),
        (
            "an invalid additional Secret keeps the last valid one",
            found(BAD),
            found(B),
            Some(&before),
            "a b",
        ),
        (
            "so do entries that can't authenticate",
            found(r#"{"auths":{"a":{},"b":{"auth":""}}}"#),
            Source::Absent,
            Some(&before),
            "a",
        ),
        (
            "and those of an original",
            found(A),
            found(r#"{"auths":{"b":{}}}"#),
            Some(&before),
            "a b",
        ),
        (
            "a new original still applies",
            found("{}"),
            found(A),
            Some(&before),
            "a",
        ),
        (
            "without an additional Secret there is no content",
            Source::Absent,
            found(B),
            Some(&before),
            "nothing",
        ),
        (
            "an invalid original keeps the last valid one",
            found(A),
            found("x"),
            Some(&before),
            "a b",
        ),
        (
            "so does an unreadable original",
            found(A),
            unreadable,
            Some(&before),
            "a b",
        ),
        (
            "an original with a bad entry contributes its good ones",
            found(A),
            found(HALF),
            None,
            "a b",
        ),
        (
            "an additional Secret with a bad entry contributes none",
            found(HALF),
            Source::Absent,
            None,
            "nothing",
        ),
        (
            "a missing key is invalid",
            Source::Found(Data(None)),
            Source::Absent,
            Some(&before),
            "a",
        ),
        (
            "a deleted original is removed",
            found(A),
            Source::Absent,
            Some(&before),
            "a",
        ),
    ] {
        let resolved = resolve(
            &GlobalPullSecretSpec::default(),
            &additional,
            &original,
            &[],
            global,
        );
        assert_eq!(keys(&resolved), expected, "{sentence}");
    }
}

/// `additional one two`, each a file, `-`: absent, `403`: forbidden; with the state in force before.
#[test]
fn where_hypershift_merges_it_must_read_the_same() {
    let before = Global {
        last_additional: Some(data(A)),
        ..Global::default()
    };
    let upper = r#"{"Auths":{"b":{"auth":"dTpw"}}}"#;
    let twice = r#"{"auths":{"b":{"auth":"dTpw"}},"auths":{"c":{"auth":"dTpw"}}}"#;
    for (delivery, text, is_valid, expected) in [
        (DeliveryType::Observe, B, true, "b"),
        (DeliveryType::Observe, upper, false, "a"),
        (DeliveryType::Observe, twice, false, "a"),
        (DeliveryType::ConfigFile, upper, true, "b"),
        (DeliveryType::ConfigFile, twice, true, "b c"),
    ] {
        let mut spec = GlobalPullSecretSpec::default();
        spec.kubelet.delivery = delivery;
        let resolved = resolve(&spec, &found(text), &Source::Absent, &[], Some(&before));
        let found = (
            matches!(resolved.additional, Verdict::Valid(_)),
            &*keys(&resolved),
        );
        assert_eq!(found, (is_valid, expected), "{delivery:?} {text}");
    }
}

fn with_sources(texts: [&str; 3], before: Option<&Global>) -> Resolved {
    let source = |text: &str| match text {
        "-" => Source::Absent,
        "403" => Source::Forbidden,
        text => found(text),
    };
    let [additional, one, two] = texts.map(source);
    let sources = [("one".to_owned(), one), ("two".to_owned(), two)];
    let spec = GlobalPullSecretSpec::default();
    resolve(&spec, &additional, &Source::Absent, &sources, before)
}

#[test]
fn an_invalid_source_does_not_block_others() {
    let before = Global {
        last_additional: Some(data(A)),
        last_sources: BTreeMap::from([("one".to_owned(), data(B))]),
        ..Global::default()
    };
    for (sentence, texts, before, expected, verdicts) in [
        (
            "each contributes its own",
            [A, B, C],
            None,
            "a b c",
            "Valid Valid",
        ),
        (
            "a source alone is enough",
            ["-", B, "-"],
            None,
            "b",
            "Valid Absent",
        ),
        (
            "an invalid one contributes nothing",
            [A, BAD, C],
            None,
            "a c",
            "Invalid Valid",
        ),
        (
            "or its last valid content",
            [A, BAD, C],
            Some(&before),
            "a b c",
            "Invalid Valid",
        ),
        (
            "so does a forbidden one",
            [A, "403", C],
            Some(&before),
            "a b c",
            "Forbidden Valid",
        ),
        (
            "a deleted one is removed",
            [A, "-", C],
            Some(&before),
            "a c",
            "Absent Valid",
        ),
        (
            "an invalid additional Secret does not block sources",
            [BAD, B, C],
            None,
            "b c",
            "Valid Valid",
        ),
        (
            "all of them are absent",
            ["-", "-", "-"],
            Some(&before),
            "nothing",
            "Absent Absent",
        ),
        (
            "none was ever valid",
            ["-", BAD, "403"],
            None,
            "nothing",
            "Invalid Forbidden",
        ),
    ] {
        let resolved = with_sources(texts, before);
        assert_eq!(keys(&resolved), expected, "{sentence}");
        let found: Vec<String> = resolved
            .sources
            .iter()
            .map(|source| format!("{:?}", source.verdict))
            .map(|text| text.split('(').next().unwrap().to_owned())
            .collect();
        assert_eq!(found.join(" "), verdicts, "{sentence}");
    }
}

#[test]
fn a_source_has_the_registries_that_are_effective_from_it() {
    let both = r#"{"auths":{"a":{"auth":"dTpx"},"b":{"auth":"dTpw"}}}"#;
    let sources = with_sources([A, both, C], None).sources;
    let registries = sources.iter().map(|source| source.registries.join(" "));
    assert_eq!(registries.collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn a_rolled_back_additional_secret_stays_out_until_it_changes() {
    let before = Global {
        last_additional: Some(data(A)),
        rejected: Some(data(C)),
        rejected_reason: Some("two nodes failed".to_owned()),
        ..Global::default()
    };
    let rolled_back = Verdict::RolledBack("two nodes failed".to_owned());
    for (additional, expected, verdict) in [
        (found(C), "a", rolled_back),
        (found(B), "b", Verdict::Valid(Vec::new())),
        (Source::Forbidden, "a", Verdict::Forbidden),
        (Source::Absent, "nothing", Verdict::Absent),
    ] {
        let spec = GlobalPullSecretSpec::default();
        let resolved = resolve(&spec, &additional, &Source::Absent, &[], Some(&before));
        assert_eq!(keys(&resolved), expected);
        assert_eq!(resolved.rejected.is_some(), additional == found(C));
        assert_eq!(resolved.additional, verdict);
    }
}

#[test]
fn content_that_does_not_fit_is_rejected_and_the_previous_stays() {
    let large = |name: &str, bytes: usize| {
        format!(
            r#"{{"auths":{{"{name}":{{"auth":"dTpw","x":"{}"}}}}}}"#,
            "x".repeat(bytes)
        )
    };
    let (half, most) = (large("h", 500_000), large("m", 1_000_000));
    let before = Global {
        last_additional: Some(data(A)),
        last_sources: BTreeMap::from([("one".to_owned(), data(&half))]),
        ..Global::default()
    };
    for (sentence, texts, before, expected, who) in [
        ("half of it fits, twice", [&*half, "-", "-"], None, "h", ""),
        (
            "nearly all of it does not",
            [&*most, "-", "-"],
            None,
            "nothing",
            "additional",
        ),
        (
            "a source is rejected before the additional one",
            [&*half, B, &*half],
            None,
            "b h",
            "two",
        ),
        (
            "new content is rejected before content in force",
            [&*half, &*half, "-"],
            Some(&before),
            "a h",
            "additional",
        ),
    ] {
        let resolved = with_sources(texts, before);
        assert_eq!(keys(&resolved), expected, "{sentence}");
        let verdicts = resolved
            .sources
            .iter()
            .map(|s| (s.name.as_str(), &s.verdict));
        let mut rejected = [("additional", &resolved.additional)]
            .into_iter()
            .chain(verdicts)
            .filter_map(|(name, verdict)| match verdict {
                Verdict::Invalid(findings) => Some((name, findings[0].to_string())),
                _ => None,
            });
        let found = rejected.next();
        assert_eq!(
            found.as_ref().map_or("", |(name, _)| *name),
            who,
            "{sentence}"
        );
        assert!(found.is_none_or(|(_, text)| text.contains("limit of 1048576")));
        assert_eq!(rejected.next(), None, "{sentence}");
    }
}

/// Size of all values of `global-pull-secret` in bytes, which the API server limits.
fn written(resolved: &Resolved) -> usize {
    let desired = resolved.desired.clone().unwrap();
    let secret = encode(&GlobalWrite {
        content: desired.content,
        global: Global {
            last_additional: desired.additional,
            last_original: desired.original,
            last_sources: desired.sources,
            last_scopes: desired.scopes,
            rejected: resolved.rejected.clone(),
            ..Global::default()
        },
    });
    secret
        .data
        .unwrap()
        .values()
        .map(|value| value.0.len())
        .sum()
}

/// Message of the only source, if it exceeds the remaining space.
fn refusal(resolved: &Resolved) -> Option<String> {
    match &resolved.sources[0].verdict {
        Verdict::Valid(_) => None,
        Verdict::Invalid(findings) if findings[0].code == Code::TooLarge => {
            Some(findings[0].to_string())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_source_may_fill_the_secret_to_its_last_byte() {
    // 2 bytes per padding character and 1 per space: only the copy of the source has them.
    let one = |padding: usize, spaces: usize| {
        let (padding, spaces) = ("x".repeat(padding), " ".repeat(spaces));
        format!(r#"{{"auths":{{"one":{{"auth":"dTpw","x":"{padding}"}}}}}}{spaces}"#)
    };
    let rejected = Global {
        last_additional: Some(data(A)),
        rejected: Some(data(C)),
        ..Global::default()
    };
    let many: Vec<String> = (0..1_000).map(|n| format!("namespace-{n}")).collect();
    let most: Vec<String> = (0..20_000).map(|n| format!("namespace-{n}")).collect();
    let scope = |namespaces: &[String]| serde_json::json!({"namespaces": namespaces});
    let nobody = serde_json::Value::Null;
    for (sentence, additional, original, scope, before) in [
        (
            "alone",
            Source::Absent,
            Source::Absent,
            nobody.clone(),
            None,
        ),
        ("with others", found(A), found(HALF), nobody.clone(), None),
        (
            "with a rejected one",
            found(C),
            found(B),
            nobody,
            Some(&rejected),
        ),
        ("for some", found(A), found(B), scope(&many[..1]), None),
        ("for many", found(A), found(B), scope(&many), None),
        ("for most", found(A), Source::Absent, scope(&most), None),
    ] {
        let spec = serde_json::from_value(serde_json::json!({
            "kubelet": {"delivery": "CredentialProvider"},
            "sources": [{"name": "one", "scope": scope}],
        }))
        .unwrap();
        let with = |text: &str, before: Option<&Global>| {
            let sources = [("one".to_owned(), found(text))];
            resolve(&spec, &additional, &original, &sources, before)
        };
        let room = SECRET_LIMIT - written(&with(&one(0, 0), before));
        let fits = with(&one(room / 2, room % 2), before);
        assert_eq!(refusal(&fits), None, "{sentence}");
        assert_eq!(written(&fits), SECRET_LIMIT, "{sentence}");
        let text = one(room / 2, room % 2 + 1);
        let exceeds = with(&text, before);
        let refusal = refusal(&exceeds).expect(sentence);
        let expected = format!(
            "has {} bytes; `global-pull-secret` would have {} bytes ",
            text.len(),
            SECRET_LIMIT + 1
        );
        assert!(refusal.contains(&expected), "{sentence}: {refusal}");
        assert_eq!(exceeds.too_large, None, "{sentence}");
        let desired = fits.desired.unwrap();
        let in_force = Global {
            last_additional: desired.additional,
            last_original: desired.original,
            last_scopes: desired.scopes,
            last_sources: BTreeMap::from([("one".to_owned(), data(&text))]),
            ..before.cloned().unwrap_or_default()
        };
        let nothing_new = with(&text, Some(&in_force));
        assert_eq!(nothing_new.too_large, Some(SECRET_LIMIT + 1), "{sentence}");
    }
}

/// The author of one Secret can't take memory or space from the others.
#[test]
fn an_oversized_source_is_rejected_unparsed_and_harms_no_other() {
    let of_size = |name: &str, bytes: usize| {
        let auths: Vec<String> = (0..=bytes / 40)
            .map(|number| format!(r#""{name}.example.com/{number:08}":{{"auth":"dTpw"}}"#))
            .collect();
        found(&format!(r#"{{"auths":{{{}}}}}"#, auths.join(",")))
    };
    let sources = [
        ("a", 0),
        ("b", 2 * SECRET_LIMIT),
        ("c", 0),
        ("d", SECRET_LIMIT),
    ]
    .map(|(name, bytes)| (name.to_owned(), of_size(name, bytes)));
    let spec = GlobalPullSecretSpec::default();
    let resolved = resolve(&spec, &of_size("own", 0), &Source::Absent, &sources, None);
    let verdicts = resolved.sources.iter().map(|source| match &source.verdict {
        Verdict::Valid(_) => "valid",
        Verdict::Invalid(findings) if findings[0].code == Code::TooLarge => "too large",
        other => panic!("{}: {other:?}", source.name),
    });
    let expected = ["valid", "too large", "valid", "too large"];
    assert_eq!(verdicts.collect::<Vec<_>>(), expected);
}

/// Creating namespaces that a selector selects can't block a rollout.
#[test]
fn a_scope_that_grows_beyond_the_limit_is_not_changed() {
    let spec = |namespaces: &[String]| {
        serde_json::json!({"kubelet": {"delivery": "CredentialProvider"}, "sources": [
                {"name": "one"}, {"name": "two", "scope": {"namespaces": namespaces}}]})
    };
    let few = spec(&["team-a".to_owned()]);
    let (_, resolved) = scoped(&few, B, C, None);
    let desired = resolved.desired.unwrap();
    let before = Global {
        last_additional: desired.additional,
        last_sources: desired.sources,
        last_scopes: desired.scopes,
        content: Some(desired.content),
        ..Global::default()
    };
    let most: Vec<String> = (0..40_000).map(|n| format!("namespace-{n}")).collect();
    let (text, resolved) = scoped(&spec(&most), A, C, Some(&before));
    assert_eq!(text, "a; two for team-a: c", "the others change");
    assert_eq!(resolved.sources[0].verdict, Verdict::Valid(Vec::new()));
    let verdict = &resolved.sources[1].verdict;
    assert!(
        matches!(verdict, Verdict::Invalid(findings) if findings[0].code == Code::TooLarge),
        "{verdict:?}"
    );
    assert_eq!(resolved.too_large, None);
    assert!(written(&resolved) < SECRET_LIMIT);
}

#[test]
fn a_source_is_parsed_only_if_it_fits() {
    let before = Global {
        last_sources: BTreeMap::from([("one".to_owned(), data(C)), ("two".to_owned(), data(B))]),
        ..Global::default()
    };
    for (additional, original, one, before, kept) in [
        (Source::Absent, Source::Absent, Source::Absent, None, 0),
        (
            found(A),
            found(B),
            found(C),
            None,
            A.len() + B.len() + C.len(),
        ),
        (found(A), Source::Absent, found(BAD), None, A.len()),
        (
            found(A),
            Source::Absent,
            found(BAD),
            Some(&before),
            A.len() + C.len(),
        ),
        (
            Source::Absent,
            found(B),
            Source::Absent,
            Some(&before),
            B.len(),
        ),
    ] {
        let own = SECRET_LIMIT - kept;
        let verdict = |bytes: usize| {
            let two = found(&"x".repeat(bytes));
            let sources = [("one".to_owned(), one.clone()), ("two".to_owned(), two)];
            let spec = GlobalPullSecretSpec::default();
            let resolved = resolve(&spec, &additional, &original, &sources, before);
            match &resolved.sources[1].verdict {
                Verdict::Invalid(findings) => findings[0].to_string(),
                other => panic!("{other:?}"),
            }
        };
        let read = verdict(own);
        assert!(read.contains("JSON"), "{kept}: {read}");
        let unread = verdict(own + 1);
        let expected = format!(
            "has {} bytes; `global-pull-secret` would have {} bytes ",
            own + 1,
            SECRET_LIMIT + 1
        );
        assert!(unread.contains(&expected), "{kept}: {unread}");
    }
}

#[test]
fn every_bad_entry_is_in_the_verdict() {
    let spec = GlobalPullSecretSpec::default();
    let resolved = resolve(&spec, &found(BAD), &found(HALF), &[], None);
    let Verdict::Invalid(additional) = resolved.additional else {
        panic!("{:?}", resolved.additional)
    };
    let Verdict::Partly(original) = resolved.original else {
        panic!("{:?}", resolved.original)
    };
    assert_eq!(additional[0].registry, "c");
    assert_eq!(original[0].registry, "c");
}

/// Sources of this spec with these contents: the unscoped keys, then each scoped source.
fn scoped(
    spec: &serde_json::Value,
    one: &str,
    two: &str,
    before: Option<&Global>,
) -> (String, Resolved) {
    let spec = serde_json::from_value(spec.clone()).unwrap();
    let sources = [
        ("one".to_owned(), found(one)),
        ("two".to_owned(), found(two)),
    ];
    let resolved = resolve(&spec, &found(A), &Source::Absent, &sources, before);
    let mut text = keys(&resolved);
    for scoped in &resolved.desired.as_ref().unwrap().content.scoped {
        let keys: Vec<&str> = scoped
            .config
            .entries()
            .iter()
            .map(globalps_dockerconfig::Entry::key)
            .collect();
        let line = format!(
            "; {} for {}: {}",
            scoped.source,
            scoped.scope,
            keys.join(" ")
        );
        text.push_str(&line);
    }
    (text, resolved)
}

#[test]
fn a_source_with_a_scope_is_for_its_pods_only() {
    let spec = |delivery: &str, one: &str, two: &str| {
        serde_json::json!({"kubelet": {"delivery": delivery}, "sources": [
                {"name": "one", "scope": {"namespaces": [one]}}, {"name": "two", "scope": {"namespaces": [two]}}]})
    };
    let provider = |one, two| spec("CredentialProvider", one, two);
    let (text, resolved) = scoped(&provider("team-a", "team-b-*"), B, B, None);
    assert_eq!(
        text, "a; one for team-a: b; two for team-b-*: b",
        "one registry, two teams"
    );
    assert!(resolved.conflicts.is_empty());
    assert_eq!(resolved.sources[1].registries, ["b"]);
    let desired = resolved.desired.unwrap();
    let before = Global {
        last_additional: desired.additional,
        last_sources: desired.sources,
        last_scopes: desired.scopes,
        content: Some(desired.content),
        ..Global::default()
    };
    let (text, resolved) = scoped(&provider("team-[", "team-c"), C, C, Some(&before));
    assert_eq!(
        text, "a; one for team-a: b; two for team-c: c",
        "with an invalid scope the last content stays with its scope"
    );
    assert!(matches!(resolved.sources[0].verdict, Verdict::Invalid(_)));
    assert_eq!(resolved.sources[1].verdict, Verdict::Valid(Vec::new()));
    let (text, _) = scoped(&provider("team-b", "team-c"), BAD, C, Some(&before));
    assert_eq!(
        text, "a; one for team-b: b; two for team-c: c",
        "a narrower scope applies immediately, even with invalid content"
    );
    let (text, _) = scoped(&provider("team-[", "x"), B, B, None);
    assert_eq!(
        text, "a; two for x: b",
        "content that was never valid is not delivered"
    );
    let spec_of_bad = serde_json::from_value(provider("team-[", "x")).unwrap();
    let gone = ["one", "two"].map(|name| (name.to_owned(), Source::Absent));
    let resolved = resolve(
        &spec_of_bad,
        &found(A),
        &Source::Absent,
        &gone,
        Some(&before),
    );
    assert_eq!(resolved.sources[0].verdict, Verdict::Absent);
    assert!(
        resolved.desired.unwrap().content.scoped.is_empty(),
        "a deleted source is removed, whatever its scope"
    );
    let (text, resolved) = scoped(&spec("ConfigFile", "team-a", "x"), B, B, Some(&before));
    assert_eq!(text, "a", "every pod can use a node's file");
    let scopes = resolved.desired.unwrap().scopes;
    assert_eq!(scopes["one"].to_string(), "team-a", "and the scope is kept");
}
