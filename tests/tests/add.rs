//! The changes that `kubectl globalps add` makes to the Secret on a real API server, and what it leaves unchanged.

mod common;

use std::thread;

use common::desk::Desk;
use common::{base64, cluster, decode, docker_config, write};
use globalps_testkit::lone_registry::{LoneRegistry, TokenServer, USER};
use globalps_testkit::product::{ADDITIONAL, NAMESPACE, Product, Ran};
use globalps_testkit::web::{Authority, Server, Validity};
use globalps_testkit::{Access, Cluster};
use serde_json::{Value, json};

const PASSWORD: &str = "4dd-s3cret";

#[test]
fn add_extends_the_secret_and_takes_it_from_nobody() {
    let cluster = cluster("add", 0);
    let product = Product::attach(&cluster);
    the_first_registry_makes_the_secret(&cluster, &product);
    the_next_one_leaves_it_and_everything_else(&cluster, &product);
    a_dry_run_changes_nothing_and_shows_everything(&product);
    several_at_once_lose_nothing(&product);
    many_come_from_one_file(&product);
    another_secret_is_copied(&cluster, &product);
    a_refused_password_changes_nothing(&cluster, &product);
    check_asks_every_registry_about_its_credentials(&cluster, &product);
    who_may_not_is_told_what(&product);
    what_another_program_owns_is_left_to_it(&cluster, &product);
    what_is_immutable_is_not_tried(&cluster, &product);
}

/// Runs `add ARGS` without a check of the registry. The password comes from stdin.
fn add(product: &Product, args: &[&str]) -> Ran {
    product
        .plugin(
            &[&["add", "--skip-check", "--force"], args].concat(),
            PASSWORD,
        )
        .unwrap()
}

fn add_user(product: &Product, registry: &str, args: &[&str]) -> Ran {
    let flags = ["--registry", registry, "-u", "robot", "--password-stdin"];
    add(product, &[&flags, args].concat())
}

/// Checks that the run succeeded with this stdout and stderr.
fn done(ran: &Ran, stdout: &str, stderr: &str) {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stdout, stdout);
    assert_eq!(ran.stderr, stderr);
}

fn refused(ran: &Ran, message: &str, hint: &str) {
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let end = format!("error: {message}\n\nhint: {hint}\n");
    assert!(ran.stderr.ends_with(&end), "{}\n{end}", ran.stderr);
    assert_eq!(ran.stdout, "");
}

/// The output after each change in a cluster without globalps.
const NOT_INSTALLED: &str = "the credentials were not checked; `kubectl globalps check --registries` checks them later\n\
     warning: globalps is not installed in this cluster, so this reaches no node\n\n\
     hint: `kubectl globalps install --help` shows how to install it\n";

fn secret(product: &Product) -> Value {
    product.get(&format!("secret/{ADDITIONAL}")).unwrap()
}

/// The registry and the base64 of `user:password` of each entry.
fn entries(product: &Product) -> Vec<(String, String)> {
    let secret = secret(product);
    let data = secret["data"][".dockerconfigjson"].as_str().unwrap();
    let config: Value = serde_json::from_slice(&decode(data)).unwrap();
    let auths = config["auths"].as_object().unwrap();
    let auth = |entry: &Value| entry["auth"].as_str().unwrap_or_default().to_owned();
    auths
        .iter()
        .map(|(key, entry)| (key.clone(), auth(entry)))
        .collect()
}

fn registries(product: &Product) -> Vec<String> {
    entries(product).into_iter().map(|(key, _)| key).collect()
}

fn the_first_registry_makes_the_secret(cluster: &Cluster, product: &Product) {
    done(
        &add_user(product, "one.example.com", &[]),
        "secret/additional-pull-secret created\n",
        &format!("+one.example.com: ***\n{NOT_INSTALLED}"),
    );
    let made = secret(product);
    assert_eq!(made["type"], "kubernetes.io/dockerconfigjson");
    let manager = "-o=jsonpath={.metadata.managedFields[*].manager}";
    assert_eq!(
        cluster.types(&format!(
            "get secret {ADDITIONAL} -n {NAMESPACE} --show-managed-fields {manager}"
        )),
        "kubectl-globalps"
    );
    let auth = base64(&format!("robot:{PASSWORD}"));
    assert_eq!(entries(product), [("one.example.com".to_owned(), auth)]);
    done(
        &add_user(product, "https://one.example.com/v2/", &[]),
        "secret/additional-pull-secret unchanged\n",
        NOT_INSTALLED,
    );
    let version = |secret: &Value| secret["metadata"]["resourceVersion"].clone();
    assert_eq!(
        version(&made),
        version(&secret(product)),
        "an existing entry is not rewritten"
    );
}

fn the_next_one_leaves_it_and_everything_else(cluster: &Cluster, product: &Product) {
    let patch = json!({"metadata": {"labels": {"mine": "yes"}}, "data": {"other": "c3RheXM="}});
    let what = format!("secret/{ADDITIONAL}");
    cluster.patch(NAMESPACE, &what, &patch).unwrap();
    let before = entries(product);
    done(
        &add_user(product, "docker.io", &[]),
        "secret/additional-pull-secret configured\n",
        &format!("+docker.io: ***\n{NOT_INSTALLED}"),
    );
    let after = entries(product);
    assert_eq!(after.len(), 2);
    assert!(
        before.iter().all(|entry| after.contains(entry)),
        "{after:?}"
    );
    let secret = secret(product);
    assert_eq!(secret["metadata"]["labels"]["mine"], "yes");
    assert_eq!(secret["data"]["other"], "c3RheXM=");
    // Docker Hub is one registry with two names.
    let hub = product.plugin(
        &[
            "add",
            "--skip-check",
            "--force",
            "--registry",
            "https://index.docker.io/v1/",
            "-u",
            "other",
            "--password-stdin",
        ],
        PASSWORD,
    );
    done(
        &hub.unwrap(),
        "secret/additional-pull-secret configured\n",
        &format!("-docker.io: *** (before)\n+docker.io: *** (after)\n{NOT_INSTALLED}"),
    );
    assert_eq!(registries(product), ["docker.io", "one.example.com"]);
}

fn a_dry_run_changes_nothing_and_shows_everything(product: &Product) {
    let before = secret(product);
    for (how, word) in [("client", "dry run"), ("server", "server dry run")] {
        let flag = format!("--dry-run={how}");
        done(
            &add_user(product, "dry.example.com", &[&flag]),
            &format!("secret/additional-pull-secret configured ({word})\n"),
            "+dry.example.com: ***\n",
        );
        for format in ["yaml", "json"] {
            let ran = add_user(product, "dry.example.com", &[&flag, "-o", format]);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let encoded = base64(&format!("robot:{PASSWORD}"));
            let data = ran
                .stdout
                .lines()
                .find_map(|line| {
                    line.trim()
                        .trim_start_matches('"')
                        .strip_prefix(".dockerconfigjson")
                })
                .unwrap();
            let data = data
                .trim_start_matches(['"', ':', ' '])
                .trim_end_matches([',', '"']);
            let config = String::from_utf8(decode(data)).unwrap();
            assert!(
                config.contains("dry.example.com") && config.contains(&encoded),
                "{how} {format}"
            );
        }
        let name = add_user(product, "dry.example.com", &[&flag, "-o", "name"]);
        assert_eq!(name.stdout, "secret/additional-pull-secret\n");
    }
    assert_eq!(secret(product), before);
    // Output about a real change contains no credential.
    let ran = add_user(product, "two.example.com", &["-o", "yaml"]);
    assert!(
        ran.stdout.contains("  .dockerconfigjson: \"***\"\n"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("  other: \"***\"\n"), "{ran:?}");
    refused(
        &add_user(product, "two.example.com", &["--dry-run", "--wait"]),
        "a dry run changes nothing, so there is nothing to wait for",
        "leave out `--wait` or `--dry-run`",
    );
}

fn several_at_once_lose_nothing(product: &Product) {
    let names = ["a", "b", "c", "d"].map(|name| format!("{name}.race.example.com"));
    thread::scope(|scope| {
        let all: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(|| add_user(product, name, &[])))
            .collect();
        for one in all {
            let ran = one.join().unwrap();
            assert_eq!(ran.code, Some(0), "{ran:?}");
        }
    });
    let there = registries(product);
    assert!(names.iter().all(|name| there.contains(name)), "{there:?}");
    assert!(there.contains(&"one.example.com".to_owned()));
}

fn many_come_from_one_file(product: &Product) {
    let file = docker_config(&[
        ("x.example.com", "robot:x"),
        ("https://y.example.com/v1/", "robot:y"),
        ("z.example.com", "robot:z"),
    ]);
    let from_file = |args: &[&str]| {
        let flags = ["add", "--skip-check", "--force", "--from-file", "-"];
        product.plugin(&[&flags, args].concat(), &file).unwrap()
    };
    refused(
        &from_file(&[]),
        "`-` has 3 registries: `x.example.com`, `y.example.com`, `z.example.com`",
        "choose with `--registry`, or take them all with `--all`",
    );
    done(
        &from_file(&[
            "--registry",
            "x.example.com",
            "--registry",
            "https://y.example.com",
        ]),
        "secret/additional-pull-secret configured\n",
        &format!("+x.example.com: ***\n+y.example.com: ***\n{NOT_INSTALLED}"),
    );
    done(
        &from_file(&["--all"]),
        "secret/additional-pull-secret configured\n",
        &format!("+z.example.com: ***\n{NOT_INSTALLED}"),
    );
}

fn another_secret_is_copied(cluster: &Cluster, product: &Product) {
    let apply = |manifest: Value| {
        cluster
            .kubectl_with(&["apply", "-f", "-"], &manifest)
            .unwrap();
    };
    let manifest = |name: &str, type_: &str, key: &str, data: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"},
            "type": type_, "stringData": {key: data},
        })
    };
    let config = docker_config(&[("new.example.com", "robot:n")]);
    apply(manifest(
        "new",
        "kubernetes.io/dockerconfigjson",
        ".dockerconfigjson",
        &config,
    ));
    let old = json!({"https://old.example.com": {"auth": base64("robot:o")}}).to_string();
    apply(manifest(
        "old",
        "kubernetes.io/dockercfg",
        ".dockercfg",
        &old,
    ));
    apply(manifest("none", "Opaque", "x", "y"));
    for (name, registry) in [("new", "new.example.com"), ("old", "old.example.com")] {
        done(
            &add(product, &["--from-secret", &format!("default/{name}")]),
            "secret/additional-pull-secret configured\n",
            &format!("+{registry}: ***\n{NOT_INSTALLED}"),
        );
    }
    refused(
        &add(product, &["--from-secret", "default/none"]),
        "Secret `default/none` has no registry credentials: it has no key `.dockerconfigjson`",
        "name a Secret of type `kubernetes.io/dockerconfigjson`",
    );
    refused(
        &add(product, &["--from-secret", "default/gone"]),
        "there is no Secret `default/gone`",
        "see `kubectl get secrets -n default`",
    );
}

fn a_refused_password_changes_nothing(cluster: &Cluster, product: &Product) {
    let registry = cluster.registry();
    let address = registry.address(Access::Private);
    let before = secret(product);
    let flags = [
        "add",
        "--registry",
        &address,
        "-u",
        registry.user(),
        "--password-stdin",
        "--insecure",
        "--force",
    ];
    let ran = product.plugin(&flags, PASSWORD).unwrap();
    refused(
        &ran,
        &format!(
            "`{address}` rejects the user or password: `http://{address}/v2/` responds with 401"
        ),
        &format!("try them with `podman login {address}`. Nothing was changed"),
    );
    assert_eq!(secret(product), before);
    let ran = product
        .plugin(&flags, &registry.password().unwrap())
        .unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stderr.contains(&format!(
            "`{address}` accepts the credentials\n+{address}: ***\n"
        )),
        "{ran:?}"
    );
}

fn check_asks_every_registry_about_its_credentials(cluster: &Cluster, product: &Product) {
    let desk = Desk::new();
    let authority = Authority::new().unwrap();
    let identity = authority.issue(&["127.0.0.1"], Validity::Now).unwrap();
    let ca = desk.write("ca.crt", authority.pem());
    let tokens = TokenServer::start(Some(&identity), PASSWORD).unwrap();
    let bearer = LoneRegistry::bearer(&desk.path("r"), &identity, &tokens).unwrap();
    let silent = Server::silent().unwrap();
    let plain = cluster.registry().address(Access::Private);
    let (bearer, silent) = (bearer.address(), silent.address());
    let good = format!("{USER}:{PASSWORD}");
    let was = secret(product);
    write(
        product,
        &[
            (&bearer, &good),
            (&format!("{bearer}/other/app"), &good),
            (&silent, &good),
            (&plain, &good),
            ("*.example.com", &good),
        ],
    );
    // Content on the nodes: one entry is the same, and one was corrected by the user since.
    let in_force = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "global-pull-secret", "namespace": NAMESPACE},
        "stringData": {".dockerconfigjson": docker_config(&[(&bearer, &good), (&format!("{bearer}/team"), "puller:0ld-s3cret")])},
    });
    cluster.apply(&in_force).unwrap();
    let check = |flags: &[&str]| {
        let line = [&["check", "--registries", "--check-timeout", "5s"], flags].concat();
        let ran = product.plugin(&line, "").unwrap();
        assert_eq!(ran.code, Some(1), "{ran:?}");
        for shown in [PASSWORD, "0ld-s3cret", &base64(&good)] {
            assert!(!format!("{ran:?}").contains(shown), "{ran:?}");
        }
        ran
    };
    let report = check(&["--ca-file", &ca, "-o", "json"]).stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    let found: Vec<(&str, String)> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["group"] == "registries")
        .map(|check| {
            let result = check["result"].as_str().unwrap();
            let names = [(&bearer, "B"), (&silent, "S"), (&plain, "P")];
            let message = check["message"].as_str().unwrap().to_owned();
            let message = names.iter().fold(message, |text, (address, name)| {
                text.replace(*address, name)
            });
            assert_eq!(check["hint"] == "", result == "ok", "{check}");
            (result, message)
        })
        .collect();
    let token_server = tokens.server.address();
    #[rustfmt::skip]
    let cases = [
        ("ok", "`B` accepts the credentials (`additional-pull-secret`, `global-pull-secret`)"),
        (
            "warning",
            "`B/other/app` accepts the credentials, but they may not pull `other/app`, if that is a repository \
             (`additional-pull-secret`)",
        ),
        (
            "failure",
            &format!(
                "`B/team` rejects the user or password: `https://{token_server}/token` responds with 401 (`global-pull-secret`)"
            ),
        ),
        (
            "warning",
            "`S` could not be checked: `S` accepted the connection but did not respond within 5 s (`additional-pull-secret`)",
        ),
        ("warning", "`P` could not be checked: `P` does not speak TLS (`additional-pull-secret`)"),
        (
            "warning",
            "`*.example.com` stands for many registries, so its credentials could not be checked (`additional-pull-secret`)",
        ),
    ];
    for (result, message) in cases {
        let line = (result, message.to_owned());
        assert!(found.contains(&line), "{line:?} is not in {found:#?}");
    }
    assert_eq!(found.len(), 6, "{found:#?}");
    let text = check(&["--insecure"]);
    assert!(
        text.stderr
            .starts_with("warning: `--insecure` accepts any certificate"),
        "{text:?}"
    );
    for part in [
        "\nregistries\n  ‼ `*.example.com` stands".to_owned(),
        format!("× `{plain}` rejects the user or password: `http://{plain}/v2/` responds with 401"),
        format!(
            "    hint: try them with `podman login {plain}`; `kubectl globalps add --registry {plain} -u USER` takes new ones; until then, \
             public images of `{plain}` fail too"
        ),
        "    see docs/troubleshooting.md#registry\n".to_owned(),
    ] {
        assert!(
            text.stdout.contains(&part),
            "{part} is not in {}",
            text.stdout
        );
    }
    let hidden = check(&["--as", "nobody"]).stdout;
    let message = "Secret `additional-pull-secret` can't be read by this user, so its registries were not checked";
    assert!(hidden.contains(message), "{hidden}");
    cluster.types(&format!("delete secret global-pull-secret -n {NAMESPACE}"));
    let was = was["data"][".dockerconfigjson"].as_str().unwrap();
    product
        .apply(&String::from_utf8(decode(was)).unwrap())
        .unwrap();
}

fn who_may_not_is_told_what(product: &Product) {
    let ran = add_user(product, "no.example.com", &["--as", "nobody"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let start = "error: not allowed to get Secret `kube-system/additional-pull-secret`: ";
    assert!(ran.stderr.starts_with(start), "{ran:?}");
}

fn what_another_program_owns_is_left_to_it(cluster: &Cluster, product: &Product) {
    product.delete().unwrap();
    let config = docker_config(&[("argo.example.com", "robot:a")]);
    let manifest = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": ADDITIONAL, "namespace": NAMESPACE},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": base64(&config)},
    });
    let manager = "--field-manager=argocd-controller";
    let args = ["apply", "--server-side", manager, "-f", "-"];
    cluster.kubectl_with(&args, &manifest).unwrap();
    let before = secret(product);
    refused(
        &add_user(product, "mine.example.com", &[]),
        "Secret `additional-pull-secret` belongs to `argocd-controller`, which would undo the change",
        "change it at that program's source; `--force-conflicts` changes it here anyway",
    );
    refused(
        &product.types("remove --registry argo.example.com --yes", ""),
        "Secret `additional-pull-secret` belongs to `argocd-controller`, which would undo the change",
        "change it at that program's source; `--force-conflicts` changes it here anyway",
    );
    assert_eq!(secret(product), before);
    done(
        &add_user(product, "mine.example.com", &["--force-conflicts"]),
        "secret/additional-pull-secret configured\n",
        &format!(
            "warning: `argocd-controller` may revert the change\n+mine.example.com: ***\n{NOT_INSTALLED}"
        ),
    );
    assert_eq!(
        registries(product),
        ["argo.example.com", "mine.example.com"]
    );
}

fn what_is_immutable_is_not_tried(cluster: &Cluster, product: &Product) {
    let patch = r#"{"immutable": true}"#;
    cluster
        .kubectl(&["patch", "secret", ADDITIONAL, "-n", NAMESPACE, "-p", patch])
        .unwrap();
    refused(
        &add_user(product, "late.example.com", &["--force-conflicts"]),
        "Secret `additional-pull-secret` is immutable",
        "its owner must replace it without `immutable: true`, in one step: `kubectl replace --force -f FILE`; if it is absent for longer, its credentials are removed until it exists again",
    );
    done(
        &add_user(product, "mine.example.com", &[]),
        "secret/additional-pull-secret unchanged\n",
        NOT_INSTALLED,
    );
}
