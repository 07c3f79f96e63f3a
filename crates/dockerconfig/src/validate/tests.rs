use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::super::finding::Severity;
use super::*;

fn found(text: &str) -> Vec<(Severity, Code, String)> {
    validate_bytes(text.as_bytes())
        .1
        .into_iter()
        .map(|f| (f.severity, f.code, f.to_string()))
        .collect()
}

#[test]
fn entries_without_credentials_replace_none_that_have_some() {
    let works = r#"{"auths":{"r":{"auth":"dTpw"},"s":{}}}"#;
    let empty = r#"{"auths":{"r":{"auth":""},"s":{"username":"u"}},"credsStore":"desktop"}"#;
    let keys = [
        "<no value>",
        "",
        "https://",
        "${REGISTRY}",
        "$REGISTRY",
        "quay.io/org/app:1",
        "quay.io/*",
        "*",
    ];
    for key in keys {
        let none = format!(r#"{{"auths":{{"{key}":{{"auth":"dTpw"}},"s":{{}}}}}}"#);
        let some = format!(r#"{{"auths":{{"{key}":{{"auth":"dTpw"}},"s":{{"auth":"dTpw"}}}}}}"#);
        for (after, expected) in [(none, false), (some, true)] {
            let before = Some(works.as_bytes());
            let (config, findings) = validate_replacement(Some(after.as_bytes()), before);
            assert_eq!(config.is_some(), expected, "{after}");
            assert!(findings.iter().any(Finding::limits_use), "{findings:?}");
        }
    }
    for (before, after, expected) in [
        (Some(works), empty, false),
        (Some(works), works, true),
        (Some(empty), empty, true),
        (Some(empty), works, true),
        (Some("{"), empty, true),
        (None, empty, true),
    ] {
        let before = before.map(str::as_bytes);
        let (config, findings) = validate_replacement(Some(after.as_bytes()), before);
        assert_eq!(config.is_some(), expected, "{before:?}: {after}");
        let is_error = findings.iter().any(Finding::is_error);
        assert_ne!(is_error, expected, "{findings:?}");
    }
}

#[test]
fn a_good_file_has_no_findings() {
    for text in [
        r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"}}}"#,
        r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"},"r2":{"auth":"dTpw","x":1}},"HttpHeaders":{"a":"b"}}"#,
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn what_works_on_some_nodes_is_a_warning() {
    #[rustfmt::skip]
    let cases = [
        (r#"{"auths":{"r":{"auth":"OnBhc3M="}}}"#, &[Code::EmptyUser][..]),
        (r#"{"auths":{"r":{"auth":"dXNlcjo="}}}"#, &[Code::EmptyPassword]),
        (r#"{"auths":{"r":{"auth":"dXNlcjpwYXNzd29yZA"}}}"#, &[Code::Unpadded]),
        (r#"{"auths":{"r":{"username":"u","password":"p"}}}"#, &[Code::NoAuth]),
        (r#"{"auths":{"r":{}}}"#, &[Code::NoCredential]),
        (r#"{"auths":{"r":null}}"#, &[Code::NoCredential]),
        (r#"{"auths":{"r":{"identitytoken":"t"}}}"#, &[Code::IdentityTokenOnly]),
        (r#"{"auths":{"r":{"auth":"dTpw"}},"credHelpers":{"x":"y"}}"#, &[Code::CredHelpers]),
        (r#"{"auths":{"r":{"auth":"dTpw"}},"credsStore":"x"}"#, &[Code::CredsStore]),
        (r#"{"auths":{"r":{"auth":"dTpw"}},"CREDSSTORE":"x"}"#, &[Code::CredsStore]),
        (r#"{"auths":{"r":{"auth":"dTpw"}},"credsStore":null,"credHelpers":null}"#, &[]),
        (r#"{"auths":{"r":{"auth":"dTpw"}},"credsStore":""}"#, &[]),
        (r#"{"auths":{"r":{"auth":"dTpw"}},"credsStore":"x","CREDSSTORE":""}"#, &[]),
        (r#"{"auths":{"r":{"auth":"dTpw"}},"credsStore":"x","credsStore":null}"#, &[Code::CredsStore]),
        (r#"{"auths":{"r":{"auth":"dTpw"}},"credHelpers":{"x":"y"},"credHelpers":null}"#, &[]),
        (r#"{"auths":{"r":{"auth":"dTpw"}},"credHelpers":{"r":null}}"#, &[Code::CredHelpers]),
        (r#"{"auths":{"r":{"auth":"dTpw"}},"credHelpers":[]}"#, &[Code::CredHelpers]),
        (
            r#"{"AUTHS":null,"auth\u017f":{"r":{"AUTH":"dTpw","Auth":null,"username":null,"email":null,"identityToken":null}},"HttpHeaders":null}"#,
            &[],
        ),
        (r#"{"auths":{"r.example.com":{"auth":"cm9ib3Q6c2VjcmV0Cg=="}}}"#, &[Code::StrayCharacters]),
        (r#"{"auths":{"r":{"username":"\ufeffu","password":"p"}}}"#, &[Code::StrayCharacters, Code::NoAuth]),
        (r#"{"auths":{"r":{"auth":"cm9ib3Q6cORzcw=="}}}"#, &[Code::NotUtf8]),
        (r#"{"auths":{"r":{"auth":"dTpw"},"https://r":{"auth":"dTpw"}}}"#, &[Code::DuplicateKey]),
        (
            r#"{"auths":{"docker.io":{"auth":"dTpw"},"https://index.docker.io/v1/":{"auth":"dTpx"}}}"#,
            &[Code::DuplicateKey],
        ),
        (r#"{"auths":{"r":{"auth":"dTpw"},"https://r":{}}}"#, &[Code::NoCredential]),
        (r#"{"auths":{" ":{"auth":"dTpw"}}}"#, &[Code::EmptyKey]),
        (r#"{"auths":{"*.*":{"auth":"dTpw"}}}"#, &[Code::GlobMatchesEverything]),
    ];
    for (text, expected) in cases {
        let (config, findings) = validate_bytes(text.as_bytes());
        assert!(config.is_some(), "{text}: {findings:?}");
        let codes: Vec<Code> = findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, expected, "{text}");
    }
}

#[test]
fn entries_that_are_not_used_are_named() {
    let text = r#"{"auths":{"quay.io":{},"https://index.docker.io/v1/":{"auth":"dTpw"},"docker.io":{"auth":"dTpx"}}}"#;
    let findings = validate_bytes(text.as_bytes()).1;
    let named: Vec<String> = findings
        .iter()
        .filter(|finding| finding.limits_use())
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        named,
        [
            "`quay.io`: no `auth`, and no `username` with `password`: there is nothing to send, so the entry is skipped",
            "`https://index.docker.io/v1/`: it is the same registry as `docker.io`, whose credentials are used",
        ]
    );
}

#[test]
fn what_is_too_large_for_a_secret_is_rejected() {
    let text = format!(
        r#"{{"auths":{{"r":{{"auth":"dTpw","x":"{}"}}}}}}"#,
        "x".repeat(MAX_BYTES)
    );
    assert_eq!(validate_bytes(text.as_bytes()).1[0].code, Code::TooLarge);
}

#[test]
fn every_bad_entry_is_reported_with_its_reason() {
    use Code::*;
    use Severity::*;
    #[rustfmt::skip]
    let cases = [
        ("invalid json", vec![(Error, NotJson, "not JSON (line 1, column 1)")]),
        ("[]", vec![(Error, NotObject, "not a JSON object")]),
        ("{}", vec![(Error, NoAuths, "there is no `auths`")]),
        (r#"{"auths":[]}"#, vec![(Error, AuthsNotObject, "`auths` is not an object")]),
        (r#"{"auths":{}}"#, vec![(Error, NoEntries, "`auths` has no entries")]),
        (
            r#"{"auths":{"a":{"auth":"Y205aWIzUTZjMlZqY21WMA=="},"b":"{\"auth\":\"dTpw\"}","c":"dTpw"}}"#,
            vec![
                (
                    Error,
                    EncodedTwice,
                    "`a`: `auth` was encoded twice: decoded, it is base64 of `user:password`",
                ),
                (
                    Error,
                    EncodedTwice,
                    "`b`: the entry is a string that contains an object: it was encoded twice",
                ),
                (Error, EntryNotObject, "`c`: the entry is not an object"),
            ],
        ),
        (r#"{"auths":{"r":false}}"#, vec![(Error, EntryNotObject, "`r`: the entry is not an object")]),
        (r#"{"auths":{"r":{"email":false}}}"#, vec![(Error, FieldNotString, "`r`: `email` is not a string")]),
        (
            r#"{"auths":{"a":{"auth":"pan ts"},"b":{"auth":"cGFudHM="},"c":{"auth":"dTpw"}}}"#,
            vec![
                (Error, BadBase64, "`a`: `auth` is not base64 (byte 3)"),
                (
                    Error,
                    NoColon,
                    "`b`: `auth` has no colon between user and password once decoded",
                ),
            ],
        ),
        (
            r#"{"quay.io":{"auth":"dTpw"}}"#,
            vec![(
                Error,
                OldForm,
                "this is the old `.dockercfg` format, without `auths`",
            )],
        ),
        (
            r#"{"auths":{"r":{"auth":"dTpw"}},"HttpHeaders":[]}"#,
            vec![(
                Error,
                HttpHeaders,
                "`HttpHeaders` is not an object of strings",
            )],
        ),
    ];
    for (text, expected) in cases {
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(s, c, m)| (s, c, m.to_owned()))
            .collect();
        assert_eq!(found(text), expected, "{text}");
    }
}

#[test]
fn content_that_contains_a_file_is_named() {
    use Code::*;
    const FILE: &str = r#"{"auths":{"r":{"auth":"dTpw"}}}"#;
    let utf16 = |to_bytes: fn(u16) -> [u8; 2], text: &str| -> Vec<u8> {
        text.encode_utf16().flat_map(to_bytes).collect()
    };
    let with_mark = format!("\u{feff}{FILE}");
    let encoded = BASE64_STANDARD.encode(FILE);
    let quoted = serde_json::json!(FILE).to_string();
    for (content, code, message) in [
            (with_mark.clone().into(), ByteOrderMark, "it contains a byte order mark (U+FEFF), so nodes reject it"),
            (format!("\r\n {with_mark}").into(), ByteOrderMark, "it contains a byte order mark (U+FEFF), so nodes reject it"),
            (format!("{FILE}\u{feff}").into(), ByteOrderMark, "it contains a byte order mark (U+FEFF), so nodes reject it"),
            (utf16(u16::to_le_bytes, &with_mark), Utf16, "it is UTF-16, and nodes read only UTF-8"),
            (utf16(u16::to_be_bytes, &with_mark), Utf16, "it is UTF-16, and nodes read only UTF-8"),
            (utf16(u16::to_le_bytes, FILE), Utf16, "it is UTF-16, and nodes read only UTF-8"),
            (utf16(u16::to_be_bytes, FILE), Utf16, "it is UTF-16, and nodes read only UTF-8"),
            (encoded.clone().into(), EncodedTwice, "it is base64 or a string instead of a JSON object: it was encoded twice"),
            (format!("{}\n", BASE64_STANDARD.encode(&encoded)).into(), EncodedTwice, "it is base64 or a string instead of a JSON object: it was encoded twice"),
            (quoted.clone().into(), EncodedTwice, "it is base64 or a string instead of a JSON object: it was encoded twice"),
            (format!("{encoded:?}").into(), EncodedTwice, "it is base64 or a string instead of a JSON object: it was encoded twice"),
            (format!(r#"{{"auths":{quoted}}}"#).into(), EncodedTwice, "`auths` is a string that contains an object: it was encoded twice"),
            (format!(r#"{{"auths":{encoded:?}}}"#).into(), EncodedTwice, "`auths` is a string that contains an object: it was encoded twice"),
            (format!("apiVersion: v1\nkind: Secret\ndata:\n  .dockerconfigjson: {encoded}\n").into(), Manifest, "it is a Kubernetes manifest, not the credentials file in it"),
            (format!(r#"{{"apiVersion":"v1","kind":"Secret","data":{{".dockerconfigjson":{encoded:?}}}}}"#).into(), Manifest, "it is a Kubernetes manifest, not the credentials file in it"),
            (format!(r#"{{".dockerconfigjson":{encoded:?}}}"#).into(), NoAuths, "`auths` is not at the top level"),
            (format!(r#"{{".dockerconfigjson":{FILE}}}"#).into(), NoAuths, "`auths` is not at the top level"),
        ] {
            let (config, findings) = validate_bytes(&content);
            assert!(config.is_none(), "{content:?}");
            let found: Vec<_> = findings.iter().map(|it| (it.code, it.to_string())).collect();
            assert_eq!(found, [(code, message.to_owned())], "{content:?}");
        }
}

#[test]
fn no_finding_holds_a_credential() {
    for text in [
        r#"{"auths":{"r":{"auth":"hunter2"}}}"#,
        r#"{"auths":{"r":{"auth":["hunter2"]}}}"#,
        r#"{"auths":{"r":"hunter2"}}"#,
        r#"{"auths":"hunter2"}"#,
        r#"{"auths":{"r":{"auth":"hunter2"}"#,
        "hunter2",
        r#"{"auths":{"r":{"username":"u","password":"hunter2\n"}}}"#,
        r#"{"auths":{"r":"{\"auth\":\"hunter2\"}"}}"#,
        r#"{"auths":"{\"r\":\"hunter2\"}"}"#,
        r#"{"hunter2":{"auths":{"r":{}}}}"#,
        "\u{feff}hunter2",
        "apiVersion: v1\nkind: Secret\nstringData: {x: hunter2}\n",
    ] {
        let (_, findings) = validate_bytes(text.as_bytes());
        assert!(!findings.is_empty(), "{text}");
        assert!(!format!("{findings:?}").contains("hunter2"), "{text}");
    }
}
