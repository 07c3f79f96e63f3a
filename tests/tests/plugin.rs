//! `kubectl globalps` on a real cluster, as users run it.

mod common;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::objects::{apply, denying};
use common::{base64, cluster, decode, docker_config, roll_out, wait_refused};
use flate2::read::GzDecoder;
use globalps_testkit::product::{ADDITIONAL, DEADLINE, Product, Ran};
use globalps_testkit::secrecy::Search;
use globalps_testkit::terminal::Terminal;
use globalps_testkit::{Access, Cluster, config_file, kubernetes, wait};
use serde_json::{Value, json};

const PASSWORD: &str = "pl4gin-s3cret";

#[test]
fn the_plugin_does_the_whole_job_and_tells_the_truth() {
    let cluster = cluster("plugin", 2);
    what_is_said_before_anything_is_installed(&cluster);
    let product = Product::install(&cluster).unwrap();
    what_is_said_before_anything_is_added(&product);
    passwords_come_in_as_with_docker_login(&product);
    add_waits_for_every_node(&cluster, &product);
    list_shows_what_is_in_force(&product);
    diff_shows_what_is_not_in_force(&product);
    a_bad_secret_is_refused_with_the_controllers_words(&product);
    remove_takes_one_registry_or_all(&cluster, &product);
    a_pod_runs_with_what_add_brought(&cluster, &product);
    a_bundle_has_what_helps_and_no_credential(&cluster, &product);
    kubectl_finds_it_as_a_plugin(&cluster);
    install_shows_what_it_changes_before_it_does(&cluster, &product);
    a_dry_run_of_uninstall_names_what_goes(&product);
    product
        .assert_never_shown(&[PASSWORD, &base64(&format!("robot:{PASSWORD}"))])
        .unwrap();
    uninstall_restores_first_and_leaves_nothing(&cluster, &product);
    globalps_works_when_installed_again(&cluster, &product);
    a_write_that_the_api_server_rejects_is_reported(&cluster, &product);
    the_status_is_at_rest_after_the_last_removal(&product);
}

#[test]
fn validate_and_explain_need_no_cluster_and_show_no_secret() {
    let plugin = |args: &[&str], input: &str| {
        let mut command = Command::new(Product::plugin_path());
        command.args(args).env("KUBECONFIG", "/nowhere");
        globalps_testkit::product::run(&mut command, input).unwrap()
    };
    let good = docker_config(&[("quay.io/org", &format!("robot:{PASSWORD}"))]);
    let bad =
        format!(r#"{{"auths":{{"quay.io":{{"auth":"{PASSWORD}!"}},"x.io":{{"auth":"dTpw"}}}}}}"#);
    let manifest = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData:\n  .dockerconfigjson: '{good}'\n"
    );
    for (sentence, input, code, valid) in [
        ("a config.json", good.as_str(), 0, true),
        ("a manifest", manifest.as_str(), 0, true),
        ("a bad entry", bad.as_str(), 1, false),
        ("no JSON at all", PASSWORD, 1, false),
    ] {
        let ran = plugin(&["validate", "-o", "json"], input);
        assert_eq!(ran.code, Some(code), "{sentence}: {ran:?}");
        assert_eq!(json(&ran)["valid"], valid, "{sentence}");
        let text = plugin(&["validate", "-"], input);
        assert!(
            !format!("{ran:?}{text:?}").contains(PASSWORD),
            "{sentence}: {text:?}"
        );
    }
    let finding = &json(&plugin(&["validate", "-o", "json"], &bad))["findings"][0];
    let expected = json!({
        "severity": "error", "code": "BadBase64", "registry": "quay.io", "message": "`auth` is not base64 (byte 6)",
    });
    assert_eq!(*finding, expected, "{finding}");
    fails(&plugin(&["validate", "/nowhere"], ""), 2, "/nowhere");

    let explain = |image: &str, input: &str| {
        plugin(&["explain", image, "--authfile", "-", "-o", "json"], input)
    };
    let ran = explain("quay.io/org/app:1", &good);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found = json(&ran);
    assert_eq!(found["repository"], "quay.io/org/app");
    let tries = json!({"accepted": true, "tries": [{"key": "quay.io/org", "username": "robot"}]});
    assert_eq!(found["kubelet"], tries);
    assert_eq!(
        found["crio"],
        json!({"outcome": "credential", "key": "quay.io/org", "username": "robot"})
    );
    assert!(!ran.stdout.contains(PASSWORD));
    let none = explain("quay.io/other/app", &good);
    assert_eq!(
        (none.code, json(&none)["crio"]["outcome"].clone()),
        (Some(1), json!("none"))
    );
    assert_eq!(
        json(&explain("quay.io/a", &bad))["kubelet"],
        json!({"accepted": false, "tries": []})
    );
    fails(&explain("Quay", &good), 2, "lower case");
}

#[test]
fn every_shell_gets_a_script_that_it_can_read() {
    for (shell, reads) in [
        (
            "bash",
            Some("source /dev/stdin && complete -p kubectl-globalps"),
        ),
        ("zsh", None),
        ("fish", None),
        ("powershell", None),
    ] {
        let mut command = Command::new(Product::plugin_path());
        command.args(["completion", shell]).env_clear();
        let script = done(globalps_testkit::product::run(&mut command, "").unwrap()).stdout;
        assert!(
            script.contains("kubectl-globalps") && script.contains("validate"),
            "{shell}"
        );
        if let Some(reads) = reads {
            let mut command = Command::new(shell);
            command.args(["-c", reads]);
            let ran = done(globalps_testkit::product::run(&mut command, &script).unwrap());
            assert!(ran.stdout.contains("kubectl-globalps"), "{ran:?}");
        }
    }
    let mut command = Command::new(Product::plugin_path());
    command.args(["completion", "tcsh"]);
    let ran = globalps_testkit::product::run(&mut command, "").unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("'tcsh'"), "{ran:?}");
    assert!(ran.stderr.contains("[possible values: bash, "), "{ran:?}");
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// Checks that the run has this exit status, and that stderr contains this text.
fn fails(ran: &Ran, code: i32, text: &str) {
    ends_with(ran, code, text);
    assert_eq!(ran.stdout, "", "errors go to standard error only");
}

/// Like [`fails`], for a command that may have printed its earlier results.
fn ends_with(ran: &Ran, code: i32, text: &str) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert!(ran.stderr.contains(text), "{ran:?}");
    assert!(
        ran.stderr.contains("hint: "),
        "every error has a hint: {ran:?}"
    );
}

fn done(ran: Ran) -> Ran {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

fn what_is_said_before_anything_is_installed(cluster: &Cluster) {
    let product = Product::attach(cluster);
    product.ends("status", 2);
    fails(
        &product.types("install --controller-image c:1 --syncer-image s:1", ""),
        2,
        "--yes",
    );
    let refused = product.types(
        "add r.example.com -u u --password-stdin --skip-check",
        PASSWORD,
    );
    fails(&refused, 2, "--force");
    let printed = done(product.types(
        "install --controller-image c:1 --syncer-image s:1 --dry-run=client -o yaml",
        "",
    ));
    for text in [
        "image: c:1",
        "--syncer-image=s:1",
        "kind: CustomResourceDefinition",
        "pod-security.kubernetes.io/enforce: restricted",
    ] {
        assert!(printed.stdout.contains(text), "{text}");
    }
    assert_eq!(
        cluster.types("get crd -o name"),
        "",
        "printing changes nothing"
    );
}

fn what_is_said_before_anything_is_added(product: &Product) {
    let status = product.ends("status -o json", 1);
    assert_eq!(json(&status)["ready"], false);
    fails(&product.types("remove --all --yes", ""), 2, ADDITIONAL);
    done(product.types("remove --all --yes --ignore-not-found", ""));
}

fn passwords_come_in_as_with_docker_login(product: &Product) {
    let add = |args: &[&str], input: &str| {
        let all: Vec<&str> = [
            "add",
            "--registry",
            "r.example.com",
            "--skip-check",
            "--dry-run=client",
            "-o",
            "json",
        ]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
        product.plugin(&all, input).unwrap()
    };
    let auth = |ran: Ran| {
        let secret = json(&done(ran));
        let data = secret["data"][".dockerconfigjson"]
            .as_str()
            .unwrap()
            .to_owned();
        let config: Value = serde_json::from_slice(&decode(&data)).unwrap();
        config["auths"]["r.example.com"]["auth"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    for (sentence, input, password) in [
        ("one line ending is not a part of it", "p\n", "p"),
        ("nor is that of another system", "p\r\n", "p"),
        ("none need be there", "p", "p"),
    ] {
        assert_eq!(
            auth(add(&["-u", "u", "--password-stdin"], input)),
            base64(&format!("u:{password}")),
            "{sentence}"
        );
    }
    let warned = add(&["-u", "u", "-p", "p"], "");
    assert!(warned.stderr.contains("warning"), "{warned:?}");
    assert_eq!(auth(warned), base64("u:p"));
    let docker = [
        "--docker-username",
        "u",
        "--docker-password",
        "p",
        "--docker-email",
        "u@example.com",
    ];
    assert_eq!(
        auth(add(&docker, "")),
        base64("u:p"),
        "the address of a registry is optional"
    );
    fails(&add(&["-u", "u", "--password-stdin"], ""), 2, "empty");
    fails(
        &add(&["-u", "u", "--password-stdin"], "p\n\n"),
        2,
        "line break",
    );
    fails(&add(&["-u", "u"], ""), 2, "password");
    for args in [
        vec!["--password-stdin"],
        vec!["-u", "u", "-p", "p", "--password-stdin"],
    ] {
        let ran = add(&args, "p");
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
}

fn add_waits_for_every_node(cluster: &Cluster, product: &Product) {
    let ran = done(product.types("add --registry one.example.com -u robot --password-stdin --skip-check --dry-run=none --wait -v=9", PASSWORD));
    assert!(
        ran.stderr
            .contains("create Secret `kube-system/additional-pull-secret`: "),
        "{ran:?}"
    );
    shows_nothing_secret(&ran);
    for node in cluster.nodes().unwrap() {
        let auth = config_file::auth(&node, "one.example.com").unwrap();
        assert_eq!(
            auth,
            Some(base64(&format!("robot:{PASSWORD}"))),
            "when `add --wait` returns, the content is in effect"
        );
    }
    done(product.types("add --docker-server two.example.com --docker-username robot --password-stdin --skip-check --wait", PASSWORD));

    // A restarted kubelet reports its pods as not ready until it has probed them again.
    let syncers = json!({"state": "Healthy", "ready": 2, "desired": 2, "message": ""});
    let status = wait("both syncers", Duration::from_millis(100), || {
        let status = json(&done(product.plugin(&["status", "-o", "json"], "")?));
        Ok((status["syncers"] == syncers).then_some(status))
    });
    assert_eq!(status["ready"], true);
    assert_eq!(status["revision"], 2);
    assert_eq!(status["paused"], false);
    let counts = json!({"total": 2, "synced": 2, "progressing": 0, "failed": 0, "unreachable": 0, "unsupported": 0});
    assert_eq!(status["counts"], counts);
    assert_eq!(status["controller"]["state"], "Healthy", "{status}");
    assert!(status["controller"]["leader"].is_string(), "{status}");
    let node = &status["nodes"][0];
    for (field, value) in [
        ("name", "node-1"),
        ("phase", "Synced"),
        ("reason", ""),
        ("message", ""),
    ] {
        assert_eq!(node[field], value, "{node}");
    }
    assert!(node["since"].as_str().unwrap().ends_with('Z'), "{node}");
    assert!(
        status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True")
    );
    let table = done(product.types("status", "")).stdout;
    for text in [
        "Controller   running, ",
        "Syncers      2/2 ready",
        "NODE",
        "PHASE",
        "REVISION",
        "AGE",
        "REASON",
        "node-2",
        "Synced",
        "2/2",
    ] {
        assert!(table.contains(text), "{table}");
    }
    assert!(!table.contains('\u{1b}'), "no colour without a terminal");
    let out = |format| done(product.plugin(&["status", "-o", format], "").unwrap()).stdout;
    // The number of ready controllers and the message of Ready can still change.
    wait(
        "YAML with the same content as JSON",
        Duration::from_millis(100),
        || {
            let yaml: Value = serde_saphyr::from_str(&out("yaml"))?;
            let json: Value = serde_json::from_str(&out("json"))?;
            Ok((yaml == json).then_some(()))
        },
    );
    assert_eq!(
        out("name"),
        "nodepullsecret.globalps.io/node-1\nnodepullsecret.globalps.io/node-2\n"
    );
    assert!(out("table").starts_with(table.lines().next().unwrap()));
    assert!(out("wide").contains("MESSAGE"));
    done(product.types("status --wait --timeout 1m", ""));
}

fn list_shows_what_is_in_force(product: &Product) {
    let ran = done(product.types("list -o json", ""));
    shows_nothing_secret(&ran);
    let listing = json(&ran);
    assert_eq!(listing["hidden"], json!([]));
    for (at, (registry, revision)) in [("one.example.com", 1), ("two.example.com", 2)]
        .into_iter()
        .enumerate()
    {
        let row = &listing["registries"][at];
        for (field, value) in [
            ("registry", json!(registry)),
            ("user", json!("robot")),
            ("source", json!(ADDITIONAL)),
            ("scope", json!(null)),
            ("delivery", json!("ConfigFile")),
            ("revision", json!(revision)),
            ("orEarlier", json!(false)),
            ("nodes", json!(2)),
            ("nodesTotal", json!(2)),
        ] {
            assert_eq!(row[field], value, "{field}: {row}");
        }
    }
    let table = done(product.types("list", ""));
    assert_eq!(table.stdout.lines().count(), 3, "{table:?}");
    assert_eq!(table.stderr, "");
}

/// Checks that the output contains neither the registry's password nor a credential of the kubeconfig.
fn shows_nothing_secret(ran: &Ran) {
    let shown = format!("{ran:?}");
    for secret in [
        PASSWORD,
        &base64(&format!("robot:{PASSWORD}")),
        "uthorization",
        "Bearer",
    ] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

fn diff_shows_what_is_not_in_force(product: &Product) {
    for line in [["diff", "-v=9"], ["history", "-v=9"], ["check", "-v=9"]] {
        shows_nothing_secret(&done(product.plugin(&line, "").unwrap()));
    }
    for flags in [&["--nonsense"][..], &["-o", "xml"], &["-f"]] {
        let args = [&["diff"], flags].concat();
        let ran = product.plugin(&args, "").unwrap();
        assert_eq!(
            ran.code,
            Some(2),
            "a usage error reports no differences: {ran:?}"
        );
        assert!(ran.stderr.contains("try '--help'"), "{ran:?}");
    }
    let none = done(product.types("diff -o json", ""));
    assert_eq!(json(&none), json!({"changes": [], "laggingNodes": []}));
    let proposed = docker_config(&[
        ("one.example.com", "robot:other"),
        ("three.example.com", "u:p"),
    ]);
    let ran = product.types("diff -f - -o json", &proposed);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let changes = json(&ran)["changes"].clone();
    assert_eq!(
        changes,
        json!([
            {"registry": "one.example.com", "change": "changed"},
            {"registry": "three.example.com", "change": "added"},
            {"registry": "two.example.com", "change": "removed"},
        ])
    );
    let text = product.types("diff -f -", &proposed);
    assert!(
        text.stdout.contains("***") && !text.stdout.contains(PASSWORD),
        "{text:?}"
    );
    fails(&product.types("diff -f /nowhere", ""), 2, "/nowhere");
}

fn a_bad_secret_is_refused_with_the_controllers_words(product: &Product) {
    let bad = format!(r#"{{"auths":{{"bad.example.com":{{"auth":"{PASSWORD}!"}}}}}}"#);
    product.apply(&bad).unwrap();
    let (_, _, words) = product.wait_condition("AdditionalValid", "False").unwrap();
    let words = words.split(';').next().unwrap().to_owned();
    assert!(
        words.contains("`bad.example.com`: `auth` is not base64"),
        "{words}"
    );
    fails(
        &product.types(
            "add --registry one.example.com -u robot --password-stdin --skip-check",
            PASSWORD,
        ),
        2,
        &words,
    );
    let status = product.ends("status", 1);
    assert!(
        format!("{}{}", status.stdout, status.stderr).contains("bad.example.com"),
        "{status:?}"
    );
    let waited = product.types("status --wait --timeout 30s", "");
    assert_eq!(
        waited.code,
        Some(1),
        "it does not wait for an invalid Secret: {waited:?}"
    );
    roll_out(
        product,
        &[
            ("one.example.com", "robot:1"),
            ("two.example.com", "robot:2"),
        ],
    );
}

fn remove_takes_one_registry_or_all(cluster: &Cluster, product: &Product) {
    fails(
        &product.types("remove --registry one.example.com", ""),
        2,
        "--yes",
    );
    fails(
        &product.types("remove --registry none.example.com --yes", ""),
        2,
        "none.example.com",
    );
    done(product.types("remove --registry one.example.com --yes --wait", ""));
    for node in cluster.nodes().unwrap() {
        assert_eq!(config_file::auth(&node, "one.example.com").unwrap(), None);
        assert!(
            config_file::auth(&node, "two.example.com")
                .unwrap()
                .is_some()
        );
    }
    let ran = done(product.types("remove --all --yes --wait", ""));
    assert!(ran.stderr.contains("stay usable"), "{ran:?}");
    product.wait_clean().unwrap();
    for node in cluster.nodes().unwrap() {
        assert_eq!(
            config_file::read(&node).unwrap(),
            None,
            "when `remove --wait` returns, the content is gone"
        );
    }
}

fn a_pod_runs_with_what_add_brought(cluster: &Cluster, product: &Product) {
    let registry = cluster.registry();
    let private = registry.address(Access::Private);
    let args = [
        "add",
        "--registry",
        &private,
        "-u",
        registry.user(),
        "--password-stdin",
        "--insecure",
        "--wait",
    ];
    done(
        product
            .plugin(&args, &registry.password().unwrap())
            .unwrap(),
    );
    product
        .start_pod("app", &format!("{private}/team/app:1"), "node-2")
        .unwrap();
    product.wait_pod("app", false).unwrap();
    product.delete_pod("app").unwrap();
}

/// Runs the search of the end of every cluster on a support archive of a cluster with credentials, with a Secret that
/// `kubectl apply` wrote, and with events and logs about it.
fn a_bundle_has_what_helps_and_no_credential(cluster: &Cluster, product: &Product) {
    // Its annotation `last-applied-configuration` contains the credentials.
    let name = "bundle-source";
    let content = docker_config(&[("bundle.example.com", &format!("robot:{PASSWORD}"))]);
    let source = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name, "namespace": "kube-system", "annotations": {"note": PASSWORD}},
        "stringData": {".dockerconfigjson": content},
    });
    cluster
        .kubectl_with(&["apply", "-f", "-"], &source)
        .unwrap();
    done(
        product
            .plugin(&["install", "--apply", "--source", name], "")
            .unwrap(),
    );
    product.wait_condition("SourcesValid", "True").unwrap();
    product.wait_synced().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("support.tar.gz");
    let path = file.display().to_string();
    let bundle = ["bundle", "--file", &path, "-v=9"];
    let ran = done(product.plugin(&bundle, "").unwrap());
    shows_nothing_secret(&ran);
    assert_eq!(ran.stdout.trim_end(), path);
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let files = unpacked(&file);
    let auth = base64(&format!("robot:{PASSWORD}"));
    let some = Search::for_some(&[PASSWORD, &auth, "last-applied-configuration"]);
    for (path, content) in &files {
        some.bytes(path, content).unwrap();
        Search::for_all().bytes(path, content).unwrap();
    }
    let text = |path: &str| String::from_utf8_lossy(&files[path]).into_owned();
    let manifest: Value = serde_json::from_str(&text("manifest.json")).unwrap();
    // The hub's resources are not installed; a log before a restart, and that of a pod that is being deleted, may be gone.
    for missing in manifest["missing"].as_array().unwrap() {
        let what = missing["what"].as_str().unwrap();
        assert!(
            ["fleetpullsecrets", "clusterpullsecrets"].contains(&what)
                || what.ends_with(".previous.log")
                || what.starts_with("logs/")
                    && (missing["reason"].as_str().unwrap())
                        .contains("could not find the requested resource"),
            "{manifest}"
        );
    }
    for log in ["/controller.log", "/syncer.log"] {
        assert!(files.keys().any(|path| path.ends_with(log)), "{manifest}");
    }
    for (path, expected) in [
        ("objects/secrets.json", "\".dockerconfigjson\": "),
        ("objects/secrets.json", name),
        ("objects/nodepullsecrets.json", "Synced"),
        ("objects/daemonsets.json", "global-pull-secret-syncer"),
        ("objects/deployments.json", "globalps-controller"),
        ("nodes.json", "containerRuntimeVersion"),
        ("check.txt", "the API server responds"),
        ("status.txt", "node-2"),
        ("events.json", "additional-pull-secret"),
    ] {
        assert!(text(path).contains(expected), "{path}: {}", text(path));
    }
    for container in ["controller", "syncer"] {
        let end = format!("/{container}.log");
        let mut logs = files.iter().filter(|(path, _)| path.ends_with(&end));
        assert!(logs.any(|(_, content)| !content.is_empty()), "{container}");
    }
    fails(&product.plugin(&bundle, "").unwrap(), 2, "--force");
    a_shown_credential_keeps_its_file_out(cluster, product, &file);
    let sources = json!({"spec": {"sources": []}});
    globalps_testkit::product::merge(cluster, globalps_testkit::product::CONFIG, &sources).unwrap();
    cluster.types(&format!("delete secret {name} -n kube-system"));
    product.wait_synced().unwrap();
}

/// Tests the second line of defence alone, with an event that contains a credential of a Secret.
fn a_shown_credential_keeps_its_file_out(cluster: &Cluster, product: &Product, file: &Path) {
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "shown", "namespace": "kube-system"},
        "involvedObject": {
            "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret", "namespace": "kube-system", "name": "node-1",
        },
        "reason": "Shown", "message": format!("wrong password {PASSWORD}"), "type": "Warning",
    });
    cluster
        .kubectl_with(&["create", "-f", "-"], &event)
        .unwrap();
    let path = file.display().to_string();
    let bundle = ["bundle", "--force", "--file", &path];
    let ran = product.plugin(&bundle, "").unwrap();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("events.json"), "{ran:?}");
    shows_nothing_secret(&ran);
    let files = unpacked(file);
    assert!(!files.contains_key("events.json"));
    for (path, content) in &files {
        Search::for_all().bytes(path, content).unwrap();
    }
    let delete = ["delete", "event", "shown", "-n", "kube-system"];
    cluster.kubectl(&delete).unwrap();
}

/// The files of an archive, relative to its top-level directory.
fn unpacked(file: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(file).unwrap()));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (path.split_once('/').unwrap().1.to_owned(), content)
    });
    entries.collect()
}

fn install_shows_what_it_changes_before_it_does(cluster: &Cluster, product: &Product) {
    let generation = || {
        let found: Value = serde_json::from_str(
            &cluster.types("get deployment/globalps-controller -n globalps-system -o json"),
        )
        .unwrap();
        found["metadata"]["generation"].as_u64().unwrap()
    };
    let before = generation();
    let install = |more: &[&str]| {
        let line = [&["install", "--apply"], more].concat();
        done(product.plugin(&line, "").unwrap())
    };
    for how in ["--dry-run=server", "--dry-run=client"] {
        let same = install(&[how]);
        assert!(
            !same.stdout.contains("deployment.apps/globalps-controller"),
            "{how}: {same:?}"
        );
        if how == "--dry-run=server" {
            let line = same.stdout.trim_end();
            let is_one_line = !line.contains('\n');
            assert!(
                is_one_line && line.ends_with("objects unchanged"),
                "{same:?}"
            );
        }
        let other = install(&[how, "--controller-image", "other:1"]);
        for text in [
            "deployment.apps/globalps-controller (namespace globalps-system) changed",
            "spec.template.spec.containers[controller].image: ",
            "-> \"other:1\"\n",
        ] {
            assert!(other.stdout.contains(text), "{how}: {other:?}");
        }
    }
    let line = [
        "install",
        "--apply",
        "--dry-run=server",
        "--controller-image",
        "other:1",
    ];
    let mut command = Command::new(Product::plugin_path());
    command
        .args(line)
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("KUBECTL_EXTERNAL_DIFF", "diff -U0 -r");
    let ran = done(globalps_testkit::product::run(&mut command, "").unwrap());
    assert!(
        ran.stdout.contains("+      - ") || ran.stdout.contains("other:1"),
        "{ran:?}"
    );
    let mut command = Command::new(Product::plugin_path());
    command
        .args(["install", "--controller-image", "other:1"])
        .env("KUBECONFIG", cluster.kubeconfig());
    let mut terminal = Terminal::start(&command, 120, 40).unwrap();
    terminal.wait_for("Apply this?", DEADLINE).unwrap();
    terminal.press("n\n").unwrap();
    let (code, shown) = terminal.end(DEADLINE).unwrap();
    assert_eq!(code, Some(1), "{shown}");
    let aborted = shown.contains("aborted: nothing was changed") && !shown.contains("error:");
    assert!(aborted, "{shown}");
    let changed = "globalps-controller (namespace globalps-system) would be changed";
    assert!(shown.contains(changed), "{shown}");
    // Nothing changes, so there is no question on a terminal.
    let mut command = Command::new(Product::plugin_path());
    command
        .arg("install")
        .env("KUBECONFIG", cluster.kubeconfig());
    let terminal = Terminal::start(&command, 120, 40).unwrap();
    assert_eq!(terminal.end(DEADLINE).unwrap().0, Some(0));
    assert_eq!(generation(), before, "nothing was changed");
}

fn a_dry_run_of_uninstall_names_what_goes(product: &Product) {
    for how in ["--dry-run=client", "--dry-run=server"] {
        let ran = done(product.plugin(&["uninstall", how], "").unwrap());
        for line in [
            "node/node-1 restored, with a kubelet restart\n",
            "node/node-2 restored, with a kubelet restart\n",
            "secret/additional-pull-secret (namespace kube-system) deleted",
            "daemonset.apps/global-pull-secret-syncer (namespace kube-system) deleted",
            "deployment.apps/globalps-controller (namespace globalps-system) deleted",
            "customresourcedefinition.apiextensions.k8s.io/nodepullsecrets.globalps.io deleted",
        ] {
            assert!(ran.stdout.contains(line), "{how}: {ran:?}");
        }
        assert!(ran.stdout.contains("dry run)\n"), "{how}: {ran:?}");
        done(product.types("status", ""));
    }
}

fn kubectl_finds_it_as_a_plugin(cluster: &Cluster) {
    let directory = Product::plugin_path().parent().unwrap().to_owned();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    // kubectl accepts no flag before a plugin's name, so the environment selects the cluster.
    let kubectl = || Command::new(kubernetes::bin_dir().join("kubectl"));
    // Also under its long name, through a link.
    let links = tempfile::tempdir().unwrap();
    for name in [
        "kubectl-global_pull_secret",
        "kubectl_complete-global_pull_secret",
    ] {
        std::os::unix::fs::symlink(Product::plugin_path(), links.path().join(name)).unwrap();
    }
    let mut long = kubectl();
    long.args(["global-pull-secret", "version", "--client"])
        .env("PATH", links.path());
    done(globalps_testkit::product::run(&mut long, "").unwrap());
    let mut complete = Command::new(links.path().join("kubectl_complete-global_pull_secret"));
    let ran = done(globalps_testkit::product::run(complete.arg("val"), "").unwrap());
    assert!(ran.stdout.starts_with("validate\t"), "{ran:?}");

    let mut kubectl = kubectl();
    kubectl
        .args(["globalps", "version", "-o", "json"])
        .env("PATH", path)
        .env("KUBECONFIG", cluster.kubeconfig());
    let ran = globalps_testkit::product::run(&mut kubectl, "").unwrap();
    let version = json(&done(ran));
    assert_eq!(version["client"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(
        version["controller"]["image"]
            .as_str()
            .unwrap()
            .contains("globalps-controller"),
        "{version}"
    );
}

fn uninstall_restores_first_and_leaves_nothing(cluster: &Cluster, product: &Product) {
    fails(&product.types("uninstall", ""), 2, "--yes");
    let mut command = Command::new(Product::plugin_path());
    command
        .arg("uninstall")
        .env("KUBECONFIG", cluster.kubeconfig());
    let mut terminal = Terminal::start(&command, 100, 24).unwrap();
    // The question may be longer than a line of the terminal.
    let question = "Restore every node, delete the additional pull secret";
    terminal.wait_for(question, DEADLINE).unwrap();
    terminal.press("n\n").unwrap();
    assert_eq!(terminal.end(DEADLINE).unwrap().0, Some(1));
    done(product.types("status", ""));
    done(product.types("uninstall --yes", ""));
    for node in cluster.nodes().unwrap() {
        assert_eq!(config_file::read(&node).unwrap(), None);
        assert!(!node.kubelet_dir().join(".globalps").exists());
    }
    let kinds = "crd,clusterroles,clusterrolebindings,namespaces";
    let left = cluster.kubectl(&["get", kinds, "-o", "name"]).unwrap();
    assert!(!left.contains("globalps"), "{left}");
    let left = cluster
        .kubectl_line(
            "get roles,rolebindings,secrets,serviceaccounts,daemonsets -n kube-system -o name",
        )
        .unwrap();
    assert!(
        !left.contains("globalps") && !left.contains("pull-secret"),
        "{left}"
    );
}

/// The API server is the same, with all its state from the first installation.
fn globalps_works_when_installed_again(cluster: &Cluster, product: &Product) {
    product.install_again(&[]).unwrap();
    let add = ["add", "again.example.com", "--skip-check"];
    let how = ["-u", "robot", "--password-stdin", "--wait"];
    done(
        product
            .plugin(&[&add[..], &how].concat(), PASSWORD)
            .unwrap(),
    );
    for node in cluster.nodes().unwrap() {
        let auth = config_file::auth(&node, "again.example.com").unwrap();
        assert_eq!(auth, Some(base64(&format!("robot:{PASSWORD}"))));
    }
    // The API server knows the new leader, so it rejects other writers.
    let account = "--as=system:serviceaccount:globalps-system:globalps-controller";
    let delete = ["delete", "secret", "global-pull-secret", "-n=kube-system"];
    let mut kubectl = cluster.kubectl_command();
    kubectl.args(delete).args([account, "--dry-run=server"]);
    let ran = globalps_testkit::product::run(&mut kubectl, "").unwrap();
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("another controller leads"), "{ran:?}");
}

fn a_write_that_the_api_server_rejects_is_reported(cluster: &Cluster, product: &Product) {
    let name = "of-the-test";
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["secrets"], "resourceNames": ["global-pull-secret"],
    });
    let validation = json!({"expression": "false", "message": "the test rejects this"});
    apply(
        cluster,
        &denying(name, &json!({"resourceRules": [rule]}), &validation),
    );
    let change = "annotate secret/global-pull-secret -n kube-system of-the-test=1 --dry-run=server";
    wait_refused(cluster, change, "the test rejects this");
    let add = ["add", "rejected.example.com", "--skip-check"];
    let how = ["-u", "robot", "--password-stdin", "--wait", "--timeout=2m"];
    let begun = Instant::now();
    let ran = product
        .plugin(&[&add[..], &how].concat(), PASSWORD)
        .unwrap();
    println!("reported after {:.1} s", begun.elapsed().as_secs_f64());
    ends_with(&ran, 1, "the test rejects this");
    ends_with(&product.types("status", ""), 1, "the test rejects this");
    let ran = product.types("check", "");
    assert!(ran.stdout.contains("the test rejects this"), "{ran:?}");
    let kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding";
    cluster.kubectl(&["delete", kinds, name]).unwrap();
    product.wait_synced().unwrap();
    done(product.types("status", ""));
}

fn the_status_is_at_rest_after_the_last_removal(product: &Product) {
    done(product.types("remove --all --yes --wait", ""));
    wait(
        "a status without a restore in progress",
        Duration::from_millis(100),
        || {
            let status = product.status()?;
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let reason = |type_: &str| {
                let found = conditions.iter().find(|found| found["type"] == type_);
                found.map(|found| found["reason"].clone())
            };
            let is_at_rest = reason("Ready") == Some(json!("NoAdditional"))
                && reason("Progressing") == Some(json!("NothingToDo"));
            Ok(is_at_rest.then_some(()))
        },
    );
}
