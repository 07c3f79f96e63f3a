use super::super::parse::parse;
use super::*;

/// A file with these keys; the user of each is the index of the key.
fn config(keys: &[&str]) -> DockerConfig {
    let entry = |(at, key): (usize, &&str)| {
        let credential = Credential {
            username: super::super::Secret::new(at.to_string()),
            password: super::super::Secret::new("p"),
        };
        Entry::from_credential(key, &credential)
    };
    DockerConfig::new(keys.iter().enumerate().map(entry).collect())
}

fn kubelet(keys: &[&str], image: &str) -> Vec<String> {
    explain(&config(keys), image)
        .unwrap()
        .tries
        .into_iter()
        .map(|found| found.key)
        .collect()
}

fn crio_key(config: &DockerConfig, image: &str) -> String {
    match &explain(config, image).unwrap().crio[0] {
        Crio::Credential(found) => found.key.clone(),
        Crio::None => "none".to_owned(),
        Crio::Error { .. } => "error".to_owned(),
    }
}

#[test]
fn only_keys_that_are_tried_may_serve_except_docker_hub() {
    let keys = [
        "quay.io",
        "quay.io/",
        "quay.io:",
        "quay.io:443",
        "quay.io:0443",
        "https://quay.io",
        "http://quay.io:443/v2/",
        "QUAY.io",
        "quay.io/org",
        "quay.io/v1/org",
        "u@quay.io/or",
        "*.io",
        "q?ay.io",
        "quay.i%6f",
        "quay.io#x",
        "quay",
        "index.docker.io",
        "https://index.docker.io/v1/",
        "docker.io",
        "docker.io/org",
        "",
        "/",
        ":443",
        "quay.io:x",
    ];
    for image in [
        "quay.io/org/app",
        "quay.io:443/org",
        "quay/a",
        "nginx",
        "org/app",
        "docker.io/a/b",
        "QUAY.io/a",
    ] {
        let may_serve = may_serve(image).unwrap();
        for key in keys {
            let is_tried = !attempts(&[&config(&[key])], image).unwrap().is_empty();
            assert_eq!(may_serve(key), is_tried, "{key} {image}");
        }
    }
}

#[test]
fn hosts_match_by_label_ports_by_text_and_paths_by_prefix() {
    #[rustfmt::skip]
    let cases = [
        ("*.kubernetes.io", "prefix.kubernetes.io", true),
        ("prefix.*.io", "prefix.kubernetes.io", true),
        ("prefix.kubernetes.*", "prefix.kubernetes.io", true),
        ("*-good.kubernetes.io", "prefix-good.kubernetes.io", true),
        ("*.kubernetes.io/blah", "prefix.kubernetes.io/blah", true),
        ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", true),
        ("*.kubernetes.io:1111/blah", "prefix.kubernetes.io:1111/blah", true),
        ("prefix.*.io:1111/foo", "prefix.kubernetes.io:1111/foo/bar", true),
        ("*.kubernetes.io", "kubernetes.io", false),
        ("*.*.kubernetes.io", "prefix.kubernetes.io", false),
        ("*.*.kubernetes.io", "kubernetes.io", false),
        ("*kubernetes.io", "a.kubernetes.io", false),
        ("*kubernetes.io", "kubernetes.io", true),
        ("*.*.*.kubernetes.io", "a.b.c.kubernetes.io", true),
        ("kubernetes.io", "kubernetes.com", false),
        ("k*.io", "quay.io", false),
        ("*.kubernetes.io:1234/blah", "prefix.kubernetes.io:1111/blah", false),
        ("prefix.*.io/foo", "prefix.kubernetes.io:1111/foo/bar", false),
        ("[::1]", "[::1]", false),
        ("[::1]:5000", "[::1]:5000/a", true),
        ("a*b*c", "aXbYbZc", true),
        ("a*b*c", "aXbYbZ", false),
    ];
    for (key, target, expected) in cases {
        let target_url = url::parse(target.as_bytes()).unwrap();
        assert_eq!(
            matches(key.as_bytes(), &target_url),
            expected,
            "{key} for {target}"
        );
    }
}

#[test]
fn the_kubelet_tries_every_matching_key_in_its_order() {
    #[rustfmt::skip]
    let cases = [
        (&["bar.example.com/pong", "bar.example.com"][..], "bar.example.com/ping", "bar.example.com"),
        (
            &["bar.example.com", "bar.example.com/pong"],
            "bar.example.com/pongz/x",
            "bar.example.com/pong bar.example.com",
        ),
        (&["bar.example.com"], "foo.example.com/x", ""),
        (&["https://quay.io/v1/"], "quay.io/foo/bar", "https://quay.io/v1/"),
        (
            &[
                "*.example.com",
                "reg.example.com",
                "reg.example.com/a",
                "reg.example.com/a/b",
                "*.example.com/a/b/c",
            ],
            "reg.example.com/a/b/c",
            "reg.example.com/a/b reg.example.com/a reg.example.com *.example.com/a/b/c *.example.com",
        ),
        (&["https://index.docker.io/v1/"], "jenkins", "https://index.docker.io/v1/"),
        (&["https://index.docker.io/v1/", "docker.io"], "jenkins", "docker.io"),
        (&["https://index.docker.io/v1/"], "world.mesos.org/foo/bar", ""),
    ];
    for (keys, image, expected) in cases {
        assert_eq!(
            kubelet(keys, image).join(" "),
            expected,
            "{keys:?} for {image}"
        );
    }
}

#[test]
fn keys_match_as_in_both_readers() {
    #[rustfmt::skip]
    let cases = [
        ("quay.io", "quay.io/org/img", true, true),
        ("quay.io/", "quay.io/org/img", true, false),
        ("https://quay.io", "quay.io/org/img", true, true),
        ("http://quay.io", "quay.io/org/img", true, true),
        ("https://quay.io/v1/", "quay.io/org/img", true, true),
        ("https://quay.io/v2/", "quay.io/org/img", true, true),
        ("quay.io/v1/", "quay.io/org/img", true, false),
        ("quay.io/org", "quay.io/org/img", true, true),
        ("quay.io/org", "quay.io/org-evil/img", true, false),
        ("quay.io/org/", "quay.io/org/img", true, false),
        ("https://quay.io/org", "quay.io/org/img", true, true),
        ("quay.io/org/img", "quay.io/org/img", true, true),
        ("quay.io/org/img:1.0", "quay.io/org/img", false, false),
        ("quay.io/org/img@sha256", "quay.io/org/img", false, false),
        ("quay.io:443", "quay.io/org/img", false, false),
        ("quay.io:443", "quay.io:443/org/img", true, true),
        ("*.io", "quay.io/org/img", true, false),
        ("*.*", "quay.io/org/img", true, false),
        ("q[tu]ay.io", "quay.io/org/img", false, false),
        ("*", "quay.io/org/img", false, false),
        ("*.azurecr.io", "foo.azurecr.io/a/b", true, false),
        ("*.dkr.ecr.*.amazonaws.com", "1234.dkr.ecr.us-east-1.amazonaws.com/a", true, false),
        ("quay.io/*/img", "quay.io/org/img", false, false),
        ("quay.io:*", "quay.io:443/org/img", false, false),
        ("docker.io", "docker.io/library/nginx", true, true),
        ("docker.io/library", "docker.io/library/nginx", true, true),
        ("https://index.docker.io/v1/", "docker.io/library/nginx", true, true),
        ("index.docker.io", "docker.io/library/nginx", true, true),
        ("https://index.docker.io/v2/", "docker.io/library/nginx", true, true),
        ("registry-1.docker.io", "docker.io/library/nginx", false, true),
        ("https://registry-1.docker.io/v2/", "docker.io/library/nginx", false, true),
        ("hub.docker.com", "docker.io/library/nginx", false, false),
        ("docker.io/myorg", "docker.io/myorg/app", true, true),
        ("10.0.0.1:5000", "10.0.0.1:5000/a", true, true),
        ("localhost:5000", "localhost:5000/a", true, true),
        ("docker://quay.io", "quay.io/org/img", false, false),
        (" quay.io", "quay.io/org/img", false, false),
        ("quay.io ", "quay.io/org/img", false, false),
        ("", "quay.io/org/img", false, false),
        ("quay.io//org", "quay.io/org/img", false, false),
        ("registry:abc", "registry.io:5000/x", false, false),
    ];
    for (key, image, kubelet_takes, crio_takes) in cases {
        assert_eq!(
            !kubelet(&[key], image).is_empty(),
            kubelet_takes,
            "kubelet, {key} for {image}"
        );
        assert_eq!(
            crio_key(&config(&[key]), image) != "none",
            crio_takes,
            "CRI-O, {key} for {image}"
        );
    }
}

#[test]
fn crio_reads_less_than_the_kubelet_or_fails() {
    #[rustfmt::skip]
    let cases = [
        ("padded auth", r#"{"auths":{"r.io":{"auth":"dXNlcjpwYXNzd29yZA=="}}}"#, "r.io"),
        ("auth without padding", r#"{"auths":{"r.io":{"auth":"dXNlcjpwYXNzd29yZA"}}}"#, "error"),
        ("user and password", r#"{"auths":{"r.io":{"username":"u","password":"p"}}}"#, "none"),
        ("a user that isn't a string", r#"{"auths":{"r.io":{"auth":"dTpw","username":1}}}"#, "r.io"),
        ("an auth that isn't a string", r#"{"auths":{"r.io":{"auth":"dTpw"},"x":{"auth":1}}}"#, "error"),
        ("no colon", r#"{"auths":{"r.io":{"auth":"dXNlcg=="}}}"#, "none"),
        ("a helper", r#"{"auths":{"r.io":{"auth":"dTpw"}},"credHelpers":{"r.io":"x"}}"#, "error"),
        ("a helper of another registry", r#"{"auths":{"r.io":{"auth":"dTpw"}},"credHelpers":{"y.io":"x"}}"#, "r.io"),
        ("invalid helpers", r#"{"auths":{"r.io":{"auth":"dTpw"}},"credHelpers":[]}"#, "error"),
        ("an identity token", r#"{"auths":{"r.io":{"auth":"Og==","identitytoken":"t"}}}"#, "r.io"),
    ];
    for (sentence, text, expected) in cases {
        assert_eq!(
            crio_key(&parse(text.as_bytes()).unwrap(), "r.io/a/b"),
            expected,
            "{sentence}"
        );
    }
}

#[test]
fn only_the_kubelet_supports_an_ipv6_registry() {
    assert_eq!(kubelet(&["[::1]:5000"], "[::1]:5000/a"), ["[::1]:5000"]);
    assert_eq!(crio_key(&config(&["[::1]:5000"]), "[::1]:5000/a"), "error");
}

#[test]
fn one_bad_entry_makes_the_kubelet_reject_the_file() {
    let text = r#"{"auths":{"r.io":{"auth":"dTpw"},"x":{"auth":"pants"}}}"#;
    let explanation = explain(&parse(text.as_bytes()).unwrap(), "r.io/a").unwrap();
    assert!(!explanation.accepted && explanation.tries.is_empty());
}
