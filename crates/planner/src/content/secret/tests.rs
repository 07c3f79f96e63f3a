use globalps_provider::{ProviderConfig, ScopedConfig};

use super::*;

fn scope(namespace: &str) -> Scope {
    Scope {
        namespaces: vec![namespace.to_owned().try_into().unwrap()],
        service_accounts: Vec::new(),
    }
}

#[test]
fn the_secret_decodes_to_what_was_encoded() {
    let data = |text: &str| Data(Some(text.as_bytes().to_vec()));
    let full = Global {
        revision: revision_of_test(7),
        content: None,
        last_scopes: [("one".to_owned(), scope("team-a"))].into(),
        provider_since: 3,
        last_additional: Some(data("a")),
        last_original: Some(data("b")),
        last_sources: [("one".to_owned(), data("c")), ("two".to_owned(), data("d"))].into(),
        canary_passed: false,
        rolled_out: Some(Timestamp::UNIX_EPOCH),
        additional_was_rolled_out: true,
        rejected: Some(data("e")),
        rejected_reason: Some("it failed on n1".to_owned()),
        restoring: false,
        config_file: Some("/var/lib/kubelet/config.json".to_owned()),
        content_since: [
            (String::new(), revision_of_test(5)),
            ("one".to_owned(), revision_of_test(7)),
        ]
        .into(),
    };
    let canary_passed = Global {
        revision: revision_of_test(7),
        canary_passed: true,
        restoring: true,
        ..Global::default()
    };
    for (sentence, global) in [
        ("nothing", Global::default()),
        ("everything", full),
        ("a canary", canary_passed),
    ] {
        let merged = br#"{"auths":{"a":{"auth":"dTpw"}}}"#;
        let config = globalps_dockerconfig::parse(merged).unwrap();
        let ports = ["1234".to_owned()].into();
        let scoped = ScopedConfig {
            source: "one".to_owned(),
            scope: scope("team-a"),
            config: config.clone(),
        };
        for content in [
            Content {
                config: config.clone(),
                ..Content::default()
            },
            Content {
                config: config.clone(),
                scoped: vec![scoped],
                delivery: Delivery::CredentialProvider(ProviderConfig {
                    ports,
                    scopes: true,
                }),
            },
        ] {
            let write = GlobalWrite {
                content,
                global: global.clone(),
            };
            let decoded = decode(&encode(&write));
            assert!(decoded.has_same_state(&write.global), "{sentence}");
            let content = decoded.content.unwrap();
            assert!(content.means_the_same(&write.content), "{sentence}");
        }
    }
}
#[test]
fn every_field_of_the_state_counts() {
    let same = Global::default();
    assert!(same.has_same_state(&same.clone()));
    let empty = || Some(Data(None));
    for other in [
        Global {
            revision: revision_of_test(1),
            ..same.clone()
        },
        Global {
            last_additional: empty(),
            ..same.clone()
        },
        Global {
            last_original: empty(),
            ..same.clone()
        },
        Global {
            last_sources: [("one".to_owned(), Data(None))].into(),
            ..same.clone()
        },
        Global {
            last_scopes: [("one".to_owned(), scope("a"))].into(),
            ..same.clone()
        },
        Global {
            provider_since: 1,
            ..same.clone()
        },
        Global {
            canary_passed: true,
            ..same.clone()
        },
        Global {
            rolled_out: Some(Timestamp::UNIX_EPOCH),
            ..same.clone()
        },
        Global {
            additional_was_rolled_out: true,
            ..same.clone()
        },
        Global {
            rejected: empty(),
            ..same.clone()
        },
        Global {
            rejected_reason: Some(String::new()),
            ..same.clone()
        },
        Global {
            restoring: true,
            ..same.clone()
        },
        Global {
            config_file: Some(String::new()),
            ..same.clone()
        },
        Global {
            content_since: [(String::new(), revision_of_test(1))].into(),
            ..same.clone()
        },
    ] {
        assert!(!same.has_same_state(&other), "{other:?}");
    }
}

/// The Secret of this state after a change of its annotations.
fn annotated(global: Global, change: &[(&str, &str)]) -> Global {
    let mut secret = encode(&GlobalWrite {
        content: Content::default(),
        global,
    });
    let change = change.iter();
    let change = change.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    secret.annotations_mut().extend(change);
    add_checksum(&mut secret, &[]);
    decode(&secret)
}

/// Edited like with `kubectl patch`, while no controller runs.
#[test]
fn neither_content_nor_progress_of_an_edited_secret_is_believed() {
    let full = Global {
        revision: revision_of_test(7),
        last_additional: Some(Data(Some(b"a".to_vec()))),
        canary_passed: true,
        rolled_out: Some(Timestamp::UNIX_EPOCH),
        config_file: Some("/var/lib/kubelet/config.json".to_owned()),
        ..Global::default()
    };
    let content = Content::default();
    let whole = encode(&GlobalWrite {
        content: content.clone(),
        global: full.clone(),
    });
    let write = RolledOutWrite {
        revision: full.revision,
        content,
    };
    let rolled_out = encode_rolled_out(&write);
    assert!(decode(&whole).has_same_state(&full));
    assert!(decode_rolled_out(&rolled_out).is_some());
    let edits: [fn(&mut Secret); 5] = [
        |it| {
            let other = ByteString(br#"{"auths":{"a":{"auth":"dTpw"}}}"#.to_vec());
            it.data.as_mut().unwrap().insert(DATA_KEY.to_owned(), other);
        },
        |it| {
            let newest = MAX_REVISION.to_string();
            let annotations = it.annotations_mut();
            annotations.insert(REVISION_ANNOTATION.to_owned(), newest);
        },
        |it| {
            let id = RevisionId::from_random(9).to_string();
            let annotations = it.annotations_mut();
            annotations.insert(REVISION_ID_ANNOTATION.to_owned(), id);
        },
        |it| {
            let annotations = it.annotations_mut();
            annotations.insert(RESTORING_ANNOTATION.to_owned(), "7".to_owned());
        },
        |it| {
            let kept = it.data.as_mut().unwrap();
            let last = kept.get(LAST_ADDITIONAL_KEY).cloned().unwrap_or_default();
            kept.insert(REJECTED_KEY.to_owned(), last);
            let annotations = it.annotations_mut();
            annotations.insert(REJECTED_ANNOTATION.to_owned(), "reason".to_owned());
        },
    ];
    for edit in edits {
        let [mut whole, mut rolled_out] = [whole.clone(), rolled_out.clone()];
        edit(&mut whole);
        edit(&mut rolled_out);
        let found = decode(&whole);
        assert_eq!((found.revision, found.rolled_out), (Revision::NONE, None));
        assert!(found.content.is_none() && !found.canary_passed && !found.restoring);
        assert!(found.rejected.is_none() && found.rejected_reason.is_none());
        assert_eq!(found.last_additional, full.last_additional);
        assert_eq!(found.config_file, full.config_file);
        assert_eq!(revision(&rolled_out), Revision::NONE);
        assert!(decode_rolled_out(&rolled_out).is_none());
    }
}

#[test]
fn a_secret_changed_by_another_client_is_read_defensively() {
    let global = Global {
        revision: revision_of_test(7),
        last_additional: Some(Data(Some(b"a".to_vec()))),
        ..Global::default()
    };
    let with = |key: &str, value: &str| annotated(global.clone(), &[(key, value)]);
    for (text, expected) in [("1", 1), ("7", 7), ("8", 0), ("0", 0), ("-1", 0), ("x", 0)] {
        let found = with(PROVIDER_SINCE_ANNOTATION, text).provider_since;
        assert_eq!(found, expected, "the provider since {text}");
    }
    let newest = MAX_REVISION.to_string();
    let beyond = (MAX_REVISION + 1).to_string();
    for (text, expected) in [
        ("1", 1),
        (&*newest, MAX_REVISION),
        (&*beyond, 0),
        ("0", 0),
        ("x", 0),
    ] {
        let found = with(REVISION_ANNOTATION, text).revision.number;
        assert_eq!(found, expected, "revision {text}");
    }
    for (text, expected) in [("0000000000000001", true), ("1", false), ("", false)] {
        let found = with(REVISION_ID_ANNOTATION, text).revision;
        assert_eq!(found.is_identified(), expected, "id {text}");
    }
    assert!(with(CANARY_PASSED_ANNOTATION, "7").canary_passed);
    assert!(!with(CANARY_PASSED_ANNOTATION, "6").canary_passed);
    let time = (ROLLED_OUT_ANNOTATION, "2026-01-01T00:00:00Z");
    for (number, expected) in [("7", true), ("6", false), ("", false)] {
        let number = (ROLLED_OUT_REVISION_ANNOTATION, number);
        let found = annotated(global.clone(), &[time, number]).rolled_out;
        assert_eq!(found.is_some(), expected, "{number:?}");
    }
    let alone = annotated(global.clone(), &[time]);
    assert_eq!(alone.rolled_out, None, "of which revision is not said");
    for (text, expected) in [("7", true), ("6", false), ("true", false)] {
        let proven = with(ADDITIONAL_ROLLED_OUT_ANNOTATION, text);
        assert_eq!(proven.additional_was_rolled_out, expected, "{text}");
        assert_eq!(
            with(RESTORING_ANNOTATION, text).restoring,
            expected,
            "{text}"
        );
    }
}

#[test]
fn default_values_have_no_annotation() {
    let secret = encode(&GlobalWrite {
        content: Content::default(),
        global: Global::default(),
    });
    let keys: Vec<&str> = secret.annotations().keys().map(String::as_str).collect();
    assert_eq!(keys, [REVISION_ANNOTATION]);
}

#[test]
fn lost_sources_do_not_begin_a_restore() {
    let global = Global {
        revision: revision_of_test(7),
        ..Global::default()
    };
    assert!(!annotated(global, &[]).restoring);
}

#[test]
fn the_rolled_out_content_outlives_the_secret() {
    let write = RolledOutWrite {
        revision: revision_of_test(7),
        content: Content {
            delivery: Delivery::CredentialProvider(ProviderConfig::default()),
            ..Content::default()
        },
    };
    let secret = encode_rolled_out(&write);
    assert_eq!(secret.type_.as_deref(), Some(SECRET_TYPE));
    assert_eq!(
        (secret.name_any(), revision(&secret)),
        (ROLLED_OUT_SECRET.to_owned(), revision_of_test(7))
    );
    assert!(
        decode_content(&secret)
            .unwrap()
            .means_the_same(&write.content)
    );
    assert!(secret.owner_references().is_empty());
}
