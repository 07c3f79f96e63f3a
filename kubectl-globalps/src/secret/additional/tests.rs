use super::*;

/// User `u` with password `p` for each registry.
fn logins(registries: &[&str]) -> Vec<Login> {
    let credential = Credential {
        username: globalps_dockerconfig::Secret::new("u"),
        password: globalps_dockerconfig::Secret::new("p"),
    };
    let login = |registry: &&str| Login {
        registry: (*registry).to_owned(),
        credential: credential.clone(),
    };
    registries.iter().map(login).collect()
}

fn secret(config: &str) -> Secret {
    let mut secret = empty("kube-system", names::ADDITIONAL_SECRET);
    secret.metadata.resource_version = Some("7".to_owned());
    secret.data = Some(
        [
            ("other".to_owned(), ByteString(b"stays".to_vec())),
            (
                names::DATA_KEY.to_owned(),
                ByteString(config.as_bytes().to_vec()),
            ),
        ]
        .into(),
    );
    secret
}

fn add(existing: Option<Secret>, registries: &[&str]) -> Result<(Secret, WriteOutcome)> {
    let logins = logins(registries);
    with_logins(existing, "n", names::ADDITIONAL_SECRET, &logins)
}

fn text(secret: &Secret) -> String {
    let data = data_of(secret, names::DATA_KEY).expect("data");
    String::from_utf8(data.to_vec()).expect("UTF-8")
}

#[test]
fn adding_keeps_every_other_registry_and_key() {
    for (before, expected) in [
        (
            r#"{"auths":{"a":{"auth":"dTpx"}}}"#,
            r#"{"auths":{"a":{"auth":"dTpx"},"r":{"auth":"dTpw"}}}"#,
        ),
        (
            r#"{"auths":{"https://r/v1/":{"auth":"dTpx","email":"e"}},"credsStore":"x"}"#,
            r#"{"auths":{"r":{"auth":"dTpw"}},"credsStore":"x"}"#,
        ),
        (
            r#"{"auths":{"r":{"auth":"broken"}}}"#,
            r#"{"auths":{"r":{"auth":"dTpw"}}}"#,
        ),
    ] {
        let (secret, outcome) = add(Some(secret(before)), &["r"]).expect("valid");
        assert_eq!(outcome, WriteOutcome::Configured);
        assert_eq!(text(&secret), expected);
        assert_eq!(data_of(&secret, "other"), Some(&b"stays"[..]));
        assert_eq!(secret.metadata.resource_version.as_deref(), Some("7"));
    }
}

#[test]
fn the_first_registry_creates_the_secret_of_the_right_type() {
    let (secret, outcome) = add(None, &["r"]).expect("valid");
    assert_eq!(outcome, WriteOutcome::Created);
    assert_eq!(text(&secret), r#"{"auths":{"r":{"auth":"dTpw"}}}"#);
    assert_eq!(secret.type_.as_deref(), Some(names::SECRET_TYPE));
    assert_eq!(secret.metadata.namespace.as_deref(), Some("n"));
}

#[test]
fn the_same_credential_again_changes_nothing() {
    let before = r#"{"auths": {"https://r": {"username":"u","password":"p"}}}"#;
    let (after, outcome) = add(Some(secret(before)), &["r"]).expect("valid");
    assert_eq!(outcome, WriteOutcome::Unchanged);
    assert_eq!(text(&after), before);
}

#[test]
fn nothing_is_added_to_a_secret_that_is_not_valid() {
    for (before, expected) in [
        (
            "hunter2",
            "Secret `additional-pull-secret` can't be extended or cut: not JSON (line 1, column 1)",
        ),
        (
            r#"{"auths":{"a":{"auth":"hunter2!"},"b":{"auth":"cGFudHM="}}}"#,
            "the additional pull secret is not valid: `a`: `auth` is not base64 (byte 7); \
                 `b`: `auth` has no colon between user and password once decoded",
        ),
    ] {
        let failure = add(Some(secret(before)), &["r"]).expect_err("not valid");
        assert_eq!(failure.message, expected);
    }
}

#[test]
fn removing_takes_out_what_was_named_and_nothing_else() {
    let before = r#"{"auths":{"a":{"auth":"dTpx"},"https://r/":{"auth":"dTpw"}}}"#;
    let cut = |registries: &[&str]| {
        let registries: Vec<String> = registries.iter().map(|r| (*r).to_owned()).collect();
        without_registries(secret(before), &registries).expect("valid")
    };
    let (rest, missing) = cut(&["r", "x"]);
    let Rest::Some(rest) = rest else {
        unreachable!("one is left")
    };
    assert_eq!(text(&rest), r#"{"auths":{"a":{"auth":"dTpx"}}}"#);
    assert_eq!(missing, ["x"]);
    assert!(matches!(cut(&["r", "a"]), (Rest::Nothing, missing) if missing.is_empty()));
    assert!(matches!(cut(&["x"]), (Rest::Same, missing) if missing == ["x"]));
    let empty = r#"{"auths":{"a":{},"r":{"auth":"dTpw"}}}"#;
    let registries = ["r".to_owned()];
    let (rest, _) = without_registries(secret(empty), &registries).expect("valid");
    assert!(
        matches!(rest, Rest::Nothing),
        "what is left has no credentials"
    );
}

#[test]
fn a_secret_belongs_to_the_program_that_wrote_its_credentials() {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
    #[rustfmt::skip]
    let cases = [
        ("argocd-controller", ".dockerconfigjson", Some("argocd-controller")),
        ("kustomize-controller", ".dockerconfigjson", Some("Flux (kustomize-controller)")),
        ("externalsecrets.external-secrets.io/pull-secret", ".dockerconfigjson", Some("ExternalSecret/pull-secret")),
        ("external-secrets", ".dockerconfigjson", Some("external-secrets")),
        ("Helm", ".dockerconfigjson", Some("Helm")),
        ("argocd-controller", "other", None),
        ("kubectl", ".dockerconfigjson", None),
        ("kubectl-client-side-apply", ".dockerconfigjson", None),
        (names::PLUGIN_MANAGER, ".dockerconfigjson", None),
        ("oc", ".dockerconfigjson", None),
        ("before-first-apply", ".dockerconfigjson", None),
    ];
    for (manager, fields, expected) in cases {
        let mut secret = secret("{}");
        let fields = serde_json::json!({"f:data": {".": {}, format!("f:{fields}"): {}}});
        secret.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            fields_v1: Some(FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        }]);
        let forced = may_change(&secret, true);
        assert_eq!(forced, Ok(expected.map(str::to_owned)), "{manager}");
        assert_eq!(
            may_change(&secret, false).is_err(),
            expected.is_some(),
            "{manager}"
        );
    }
}

#[test]
fn an_immutable_secret_is_not_changed_and_says_so() {
    let mut secret = secret(r#"{"auths":{"r":{"auth":"dTpx"}}}"#);
    secret.immutable = Some(true);
    let failure = add(Some(secret), &["r"]).expect_err("immutable");
    assert_eq!(
        failure.message,
        "Secret `additional-pull-secret` is immutable"
    );
    // A user can't delete and create the Secret within two seconds.
    assert!(
        failure.hint.contains("`kubectl replace --force -f FILE`"),
        "{}",
        failure.hint
    );
}

#[test]
fn another_source_is_named_as_it_is() {
    let (secret, _) = with_logins(None, "n", "team-a", &logins(&["r"])).expect("valid");
    assert_eq!(secret.metadata.name.as_deref(), Some("team-a"));
    let mut bad = secret;
    bad.data = Some([(names::DATA_KEY.to_owned(), ByteString(b"{".to_vec()))].into());
    let failure = with_logins(Some(bad), "n", "team-a", &logins(&["r"])).expect_err("bad");
    assert!(
        failure.message.starts_with("Secret `team-a` can't"),
        "{failure:?}"
    );
    assert!(
        failure.hint.contains("kubectl edit secret team-a") && !failure.hint.contains("remove"),
        "{failure:?}"
    );
    let findings = validate_bytes(br#"{"auths":{"r":{"auth":"hunter2!"}}}"#).1;
    let failure = refuse_invalid("team-a", &findings).expect_err("not valid");
    assert!(
        failure
            .message
            .starts_with("Secret `team-a` is not valid: `r`:"),
        "{failure:?}"
    );
}

#[test]
fn docker_hub_is_one_registry_by_either_name() {
    let before = r#"{"auths":{"https://index.docker.io/v1/":{"auth":"dTpx"}}}"#;
    let (after, _) = add(Some(secret(before)), &["docker.io"]).expect("valid");
    assert_eq!(text(&after), r#"{"auths":{"docker.io":{"auth":"dTpw"}}}"#);
    let (rest, _) = without_registries(secret(before), &["docker.io".to_owned()]).expect("valid");
    assert!(matches!(rest, Rest::Nothing));
}
