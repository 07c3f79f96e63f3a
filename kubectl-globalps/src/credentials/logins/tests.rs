use super::*;

fn set(registries: &[&str]) -> BTreeSet<String> {
    registries.iter().map(|name| (*name).to_owned()).collect()
}

fn files(texts: &[&str]) -> Vec<AuthFile> {
    let file = |(text, name): (&&str, char)| AuthFile::new(format!("`{name}`"), text.as_bytes());
    let files = texts.iter().zip('a'..).map(file);
    files.collect::<Result<_, _>>().expect("files")
}

fn shown(logins: &Result<Vec<Login>>) -> String {
    match logins {
        Ok(logins) => logins
            .iter()
            .map(|login| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let password = text(login.credential.password.expose());
                format!("{} {password}\n", login.registry)
            })
            .collect::<Vec<_>>()
            .concat(),
        Err(failure) => format!("{}\n  hint: {}\n", failure.message, failure.hint),
    }
}

#[tokio::test]
async fn registries_are_chosen_by_name_and_never_all_by_chance() {
    const ONE: &str = r#"{"auths":{"https://one.example.com/v1/":{"auth":"dTox"}}}"#;
    const TWO: &str =
        r#"{"auths":{"one.example.com":{"auth":"dTox"},"two.example.com":{"auth":"dToy"}}}"#;
    const OTHER: &str = r#"{"auths":{"one.example.com":{"auth":"dTpw"}}}"#;
    const EMPTY: &str = r#"{"auths":{}}"#;
    const MARK: &str = r#"{"auths":{"one.example.com":{}}}"#;
    #[rustfmt::skip]
    let cases = [
        ("one is meant", &[ONE][..], &[][..], false, "one.example.com 1\n"),
        (
            "several are not",
            &[TWO],
            &[],
            false,
            "`a` has 2 registries: `one.example.com`, `two.example.com`\n  \
                 hint: choose with `--registry`, or take them all with `--all`\n",
        ),
        ("unless said so", &[TWO], &[], true, "one.example.com 1\ntwo.example.com 2\n"),
        ("by name", &[TWO], &["two.example.com"], false, "two.example.com 2\n"),
        (
            "several by name",
            &[TWO],
            &["two.example.com", "one.example.com"],
            false,
            "one.example.com 1\ntwo.example.com 2\n",
        ),
        ("twice the same", &[TWO, ONE], &["one.example.com"], false, "one.example.com 1\n"),
        (
            "twice, and not the same",
            &[OTHER, ONE],
            &["one.example.com"],
            false,
            "`a` and `b` have different credentials for `one.example.com`\n  \
                 hint: name one of the two files, and the other registries in another run\n",
        ),
        ("one file each", &[OTHER, TWO], &["two.example.com"], false, "two.example.com 2\n"),
        (
            "not there",
            &[ONE],
            &["quay.io"],
            false,
            "`a` has no credentials for `quay.io`\n  hint: there are some for `one.example.com`\n",
        ),
        (
            "a path is another key",
            &[ONE],
            &["one.example.com/team"],
            false,
            "`a` has no credentials for `one.example.com/team`\n  hint: there are some for `one.example.com`\n",
        ),
        (
            "nothing there",
            &[EMPTY],
            &[],
            false,
            "`a` has no credentials\n  \
                 hint: log in first (`docker login REGISTRY`, `podman login --authfile FILE REGISTRY`), or name another file\n",
        ),
        (
            "a mark is none",
            &[MARK],
            &[],
            false,
            "`a` has no credentials for `one.example.com`\n  \
                 hint: log in once more, as with `docker login one.example.com`, or name another file\n",
        ),
    ];
    for (sentence, texts, registries, all, expected) in cases {
        let found = of_files(&files(texts), &set(registries), all).await;
        assert_eq!(shown(&found), expected, "{sentence}");
    }
}

#[tokio::test]
async fn a_password_in_the_name_of_a_registry_is_in_no_failure() {
    let entries = |value: &str| {
        let keys = [
            "https://robot:pa/s3cret@quay.io",
            "robot:s3cret@ghcr.io/v1/",
        ];
        keys.map(|key| format!(r#""{key}":{value}"#)).join(",")
    };
    let auths = |value: &str| format!(r#"{{"auths":{{{}}}}}"#, entries(value));
    let helpers = |name: &str| {
        format!(
            r#"{{"credHelpers":{{{}}}}}"#,
            entries(&format!(r#""{name}""#))
        )
    };
    let own = |text: String| AuthFile::new("`f`", text.as_bytes()).expect("a file");
    let of_others = |text: String| AuthFile::of_others("`f`", text.as_bytes()).expect("a file");
    let mut failures = 0;
    for files in [
        vec![
            own(auths(r#"{"auth":"dTox"}"#)),
            own(auths(r#"{"auth":"dToy"}"#)),
        ],
        vec![own(auths("{}"))],
        vec![own(auths(r#"{"auth":"cGFudHM="}"#))],
        vec![own(auths(r#"{"auth":"MDo=","identitytoken":"t"}"#))],
        vec![own(helpers("globalps-is-not-there"))],
        vec![own(helpers("a/b"))],
        vec![of_others(helpers("pass"))],
    ] {
        for all in [true, false] {
            let named: Vec<String> = files[0].registries().into_iter().collect();
            let named = named.iter().map(|name| set(&[name]));
            for chosen in named.chain([set(&[]), set(&["r.io"])]) {
                let found = of_files(&files, &chosen, all).await;
                failures += usize::from(found.is_err());
                let shown = shown(&found.map(|_| Vec::new()));
                assert!(!shown.contains("s3cret"), "{shown}");
            }
        }
    }
    assert!(failures > 40, "{failures}");
}

#[test]
fn a_user_goes_before_the_variable_and_a_flag_before_both() {
    use clap::Parser as _;
    for (line, variable, expected) in [
        ("--registry r -u u", Some("v"), "User"),
        ("--registry r", None, "User"),
        ("--registry r", Some(""), "User"),
        ("--registry r", Some("v"), r#"Variable("v")"#),
        ("--all", Some("v"), r#"Variable("v")"#),
        (
            "--authfile a --authfile b",
            Some("v"),
            r#"AuthFiles(["a", "b"])"#,
        ),
        ("--from-file -", Some("v"), r#"File("-")"#),
    ] {
        let words = ["kubectl-globalps", "add"].into_iter();
        let cli = crate::cli::Cli::parse_from(words.chain(line.split_whitespace()));
        let crate::cli::Command::Add(add) = cli.command else {
            unreachable!("it is `add`")
        };
        let found = choose(&add.from, variable.map(OsString::from));
        assert_eq!(format!("{found:?}"), expected, "{line}");
    }
}

#[test]
fn credentials_that_expire_are_named_with_the_time() {
    // `{"exp":1800000000}`
    const TOKEN: &str = "e30.eyJleHAiOjE4MDAwMDAwMDB9.c2ln";
    let login = |registry: &str, user: &str, password: &str| Login {
        registry: registry.to_owned(),
        credential: Credential {
            username: globalps_dockerconfig::Secret::new(user),
            password: globalps_dockerconfig::Secret::new(password),
        },
    };
    let logins = [
        login("1.dkr.ecr.eu-west-1.amazonaws.com", "AWS", "p"),
        login("gcr.io", "oauth2accesstoken", "p"),
        login("jwt.example.com", "u", TOKEN),
        login("quay.io", "team+robot", "p"),
        login("registry.gitlab.example.com", "gitlab-ci-token", "p"),
    ];
    for (now, jwt) in [
        (1_799_999_999, "expire at 2027-01-15T08:00:00Z"),
        (1_800_000_000, "expired at 2027-01-15T08:00:00Z"),
    ] {
        let now = Timestamp::from_second(now).expect("a time");
        let found: Vec<String> = short_lived(&logins, now).into_values().collect();
        assert_eq!(
                found,
                [
                    "the credentials of `1.dkr.ecr.eu-west-1.amazonaws.com` expire 12 hours after they were issued".to_owned(),
                    "the credentials of `gcr.io` expire an hour after they were issued".to_owned(),
                    format!("the credentials of `jwt.example.com` {jwt}"),
                    "the credentials of `registry.gitlab.example.com` expire with the CI job that they were issued for, or after hours".to_owned(),
                ]
            );
    }
}
