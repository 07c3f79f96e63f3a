//! `why`, for a registry that only requires a login at the image, and for an image that needs none.

use super::why::{RIGHT, pod, web, with_pods};
use super::*;

#[test]
fn why_sends_the_credential_where_only_the_manifest_asks_for_it() {
    let registry = web(|request, _| {
        if request.contains("/v2/ ") || request.contains(RIGHT) {
            "200 X".to_owned()
        } else {
            "401 X\r\nWWW-Authenticate: Basic realm=\"x\"".to_owned()
        }
    });
    let image = format!("{registry}/team/app:1");
    for (auth, expected) in [(AUTH, "WaitsForRetry"), (OTHER_AUTH, "CredentialsRefused")] {
        let api = with_pods(&[(&registry, auth)], &[("p", pod(&image, &json!({})))]);
        let (_, [out, _]) = api.printed("why a/p --insecure -o json");
        let answer: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(answer["cause"]["code"], expected, "{out}");
    }
}

#[test]
fn why_names_a_rejected_entry_in_front_of_a_public_image() {
    // Returns a token without a password, and none for a wrong password.
    let registry = web(|request, own| {
        if request.contains("authorization: bearer t") {
            "200 X".to_owned()
        } else if !request.contains("/token") {
            format!("401 X\r\nWWW-Authenticate: Bearer realm=\"http://{own}/token\"")
        } else if request.contains("authorization:") {
            "403 X".to_owned()
        } else {
            "200 X\r\n\r\n{\"token\": \"t\"}".to_owned()
        }
    });
    let image = format!("{registry}/team/app:1");
    let of_team = format!("{registry}/team");
    for (key, names_path) in [(&registry, true), (&of_team, false)] {
        let api = || with_pods(&[(key, AUTH)], &[("p", pod(&image, &json!({})))]);
        for line in ["why a/p --insecure", "why -A --insecure"] {
            let (_, [out, _]) = api().printed(line);
            assert!(
                out.contains(" (403), although the image is public\n"),
                "{out}"
            );
            let path = format!("use an entry for their path instead: `{registry}/ORG`\n");
            assert_eq!(out.contains(&path), names_path, "{out}");
        }
    }
}
