//! The cluster and user that the plugin selects, and its errors: kubectl's own flags, on a real API server.

mod common;

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{cluster, decode};
use globalps_testkit::product::{Product, Ran, run};
use globalps_testkit::terminal::Terminal;
use globalps_testkit::{Cluster, kubernetes, secrecy, until, wait};
use serde_json::{Value, json};

/// The output of `status` for a reachable cluster without globalps.
const REACHED: &str = "globalps is not installed in this cluster";
const SOON: Duration = globalps_testkit::DEADLINE;

#[test]
fn the_plugin_finds_its_cluster_as_kubectl_does() {
    let cluster = cluster("plugin-connection", 0);
    let directory = tempfile::tempdir().unwrap();
    let access = Access::of(&cluster, directory.path());
    a_list_of_kubeconfigs_is_one(&access);
    proxies_are_those_of_kubectl(&cluster, &access);
    flags_alone_are_enough_and_no_home_is_needed(&access);
    the_parts_of_a_context_may_be_named(&access);
    another_one_is_impersonated_in_every_respect(&cluster, &access);
    a_login_program_is_asked(&cluster, &access);
    tls_is_checked_as_told(&access);
    a_silent_server_is_given_up(&access);
    what_is_left_out_is_completed_as_by_kubectl(&cluster, &access);
    colors_are_for_terminals(&cluster, &access);
    a_reader_that_went_away_is_no_error();
    who_is_refused_is_told_what_is_missing(&cluster, &access);
    a_watch_outlasts_an_outage_and_a_login(&cluster, &access);
}

/// The parts of the admin's kubeconfig, as files.
struct Access<'a> {
    directory: &'a Path,
    config: Value,
    server: String,
}

impl<'a> Access<'a> {
    fn of(cluster: &Cluster, directory: &'a Path) -> Self {
        let text = fs::read(cluster.kubeconfig()).unwrap();
        let config: Value = serde_json::from_slice(&text).unwrap();
        let access = Self {
            directory,
            server: cluster.api_url(),
            config,
        };
        #[rustfmt::skip]
        let cases = [
            ("ca.crt", &access.config["clusters"][0]["cluster"]["certificate-authority-data"]),
            ("user.crt", &access.config["users"][0]["user"]["client-certificate-data"]),
            ("user.key", &access.config["users"][0]["user"]["client-key-data"]),
        ];
        for (file, data) in cases {
            fs::write(directory.join(file), decode(data.as_str().unwrap())).unwrap();
        }
        access
    }

    /// A kubeconfig with these parts of the admin's.
    fn kubeconfig(&self, name: &str, parts: &[&str]) -> String {
        let mut config = json!({"apiVersion": "v1", "kind": "Config"});
        for part in parts {
            config[*part] = self.config[*part].clone();
        }
        self.write(name, &config)
    }

    fn write(&self, name: &str, config: &Value) -> String {
        let path = self.directory.join(name);
        fs::write(&path, config.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    fn admin(&self) -> String {
        self.write("admin", &self.config)
    }
}

/// Runs the plugin with no environment variable except `$KUBECONFIG`, if given.
fn plugin(kubeconfig: Option<&str>, args: &[&str]) -> Ran {
    let mut command = Command::new(Product::plugin_path());
    command.args(args).env_clear();
    if let Some(kubeconfig) = kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    run(&mut command, "").unwrap()
}

fn reaches(kubeconfig: Option<&str>, args: &[&str]) {
    let ran = plugin(kubeconfig, args);
    assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
    assert!(ran.stderr.contains(REACHED), "{args:?}: {ran:?}");
}

fn fails(kubeconfig: Option<&str>, args: &[&str], text: &str) {
    let ran = plugin(kubeconfig, args);
    assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
    assert!(ran.stderr.contains(text), "{args:?}: {ran:?}");
    assert!(ran.stderr.contains("hint: "), "{args:?}: {ran:?}");
    assert_eq!(ran.stdout, "", "{args:?}");
}

fn a_list_of_kubeconfigs_is_one(access: &Access<'_>) {
    let first = access.kubeconfig("first", &["clusters", "contexts", "current-context"]);
    let second = access.kubeconfig("second", &["users"]);
    let list = format!("{first}:/nowhere/at/all::{second}");
    reaches(Some(&list), &["status"]);
    let context = access.config["current-context"].as_str().unwrap();
    let contexts = access.kubeconfig("contexts", &["clusters", "contexts", "users"]);
    reaches(Some(&contexts), &["status", "--context", context]);
    reaches(None, &["status", "--kubeconfig", &access.admin()]);
    let empty = access.write("empty", &json!({"current-context": ""}));
    reaches(Some(&format!("{empty}:{}", access.admin())), &["status"]);
    fails(
        Some(&list),
        &["status", "--context", "none"],
        "no context `none`",
    );
    fails(
        None,
        &["status", "--kubeconfig", "/nowhere/config"],
        "/nowhere/config",
    );
    let broken = access.file("broken");
    fs::write(&broken, "users: [{token: hunter2").unwrap();
    let ran = plugin(Some(&broken), &["status"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
}

/// Checks whether the plugin and kubectl each connect to the proxy.
fn proxies_are_those_of_kubectl(cluster: &Cluster, access: &Access<'_>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    // Ends with the test. A client whose connection is closed at once also fails at once.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    let admin = access.admin();
    let is_proxied = |command: &mut Command, proxy: &str, none: &str| {
        let before = connections.load(Ordering::SeqCst);
        command.env("KUBECONFIG", &admin);
        command.env("HTTPS_PROXY", proxy).env("NO_PROXY", none);
        let ran = run(command, "").unwrap();
        assert_ne!(ran.code, Some(0), "{ran:?}");
        connections.load(Ordering::SeqCst) > before
    };
    // No server responds there.
    let (ip, name) = ("https://192.0.2.1:6443", "https://api.example.com:6443");
    let mut found = Vec::new();
    for (server, scheme, none) in [
        (ip, "", ""),
        (ip, "http://", ""),
        (ip, "socks5://", ""),
        (ip, "", "192.0.2.0/24"),
        (ip, "", "192.0.2.1:6443"),
        (ip, "", "192.0.2.1:443"),
        (ip, "", " , example.org ,192.0.2.1,"),
        (name, "", ""),
        (name, "", "example.com"),
        (name, "", "*.example.com"),
        (name, "", "api.example.com:443"),
        (name, "", "ample.com,"),
        (name, "", "*"),
    ] {
        let proxy = format!("{scheme}{address}");
        let mut ours = Command::new(Product::plugin_path());
        ours.args(["status", "--request-timeout", "1s", "-s", server]);
        let mut kubectl = cluster.kubectl_command();
        kubectl.args([
            "get",
            "--raw",
            "/version",
            "--request-timeout=1s",
            "-s",
            server,
        ]);
        let expected = is_proxied(&mut kubectl, &proxy, none);
        assert_eq!(
            is_proxied(&mut ours, &proxy, none),
            expected,
            "{server} {scheme:?} {none:?}"
        );
        found.push(expected);
    }
    assert_eq!(found.iter().filter(|it| **it).count(), 7, "{found:?}");
    // The flag takes precedence over the variables.
    let proxy = format!("http://{address}");
    let mut ours = Command::new(Product::plugin_path());
    ours.args(["status", "--request-timeout", "1s", "-s", ip, "--proxy-url"]);
    let mut kubectl = cluster.kubectl_command();
    kubectl.args(["get", "--raw", "/version", "-s", ip]);
    kubectl.args(["--request-timeout=1s", "--proxy-url"]);
    for command in [ours.arg(&proxy), kubectl.arg(&proxy)] {
        let shown = format!("{command:?}");
        assert!(is_proxied(command, "http://192.0.2.2:1", "*"), "{shown}");
    }
}

fn flags_alone_are_enough_and_no_home_is_needed(access: &Access<'_>) {
    let (ca, certificate, key) = (
        access.file("ca.crt"),
        access.file("user.crt"),
        access.file("user.key"),
    );
    let all = [
        "status",
        "-s",
        &access.server,
        "--certificate-authority",
        &ca,
        "--client-certificate",
        &certificate,
        "--client-key",
        &key,
    ];
    reaches(None, &all);
    fails(None, &["status"], "no cluster is configured");
    fails(None, &["status", "-s", "no address"], "`no address`");
    let mut missing = all;
    missing[4] = "/nowhere/ca.crt";
    fails(None, &missing, "/nowhere/ca.crt");
}

fn the_parts_of_a_context_may_be_named(access: &Access<'_>) {
    let mut config = access.config.clone();
    #[rustfmt::skip]
    let cases = [
        ("clusters", json!({"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}})),
        ("users", json!({"name": "nobody", "user": {}})),
        ("contexts", json!({"name": "gone", "context": {"cluster": "gone", "user": "nobody"}})),
    ];
    for (part, other) in cases {
        config[part].as_array_mut().unwrap().push(other);
    }
    config["current-context"] = json!("gone");
    let mixed = access.write("mixed", &config);
    let (cluster, user) = (&config["clusters"][0]["name"], &config["users"][0]["name"]);
    let (cluster, user) = (cluster.as_str().unwrap(), user.as_str().unwrap());
    fails(Some(&mixed), &["status"], "could not ");
    fails(
        Some(&mixed),
        &["status", "--cluster", cluster],
        "user `system:anonymous` may not ",
    );
    reaches(
        Some(&mixed),
        &["status", "--cluster", cluster, "--user", user],
    );
    let other = ["--pull-secret-namespace", "default", "--as", "nobody"];
    let args = [&["diff"], &other[..]].concat();
    fails(Some(&access.admin()), &args, "in namespace `default`");
    for flag in ["-n", "--namespace"] {
        let args = ["diff", flag, "default"];
        fails(Some(&access.admin()), &args, "says nothing to `diff`");
    }
}

/// Waits until the API server knows a permission that was granted to an account.
fn wait_allowed(cluster: &Cluster, right: &str, account: &str) {
    let line = format!("auth can-i {right} --as system:serviceaccount:default:{account}");
    wait(&line, Duration::from_millis(100), || {
        Ok(cluster.kubectl_line(&line).ok())
    });
}

fn another_one_is_impersonated_in_every_respect(cluster: &Cluster, access: &Access<'_>) {
    for line in [
        "create serviceaccount deputy",
        "create clusterrole deputy --verb=impersonate --resource=users",
        "create clusterrolebinding deputy --clusterrole=deputy --serviceaccount=default:deputy",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        cluster.kubectl(&words).unwrap();
    }
    wait_allowed(cluster, "impersonate users", "deputy");
    let token = cluster.types("create token deputy");
    secrecy::remember(token.trim());
    let deputy = ["diff", "--token", token.trim(), "--as", "alice"];
    let admin = access.admin();
    fails(Some(&admin), &deputy, "user `alice` may not ");
    // The API server rejects an impersonation that is not allowed, which shows that it was requested.
    fails(
        Some(&admin),
        &[&deputy[..], &["--as-group", "guests"]].concat(),
        "groups",
    );
    fails(
        Some(&admin),
        &[&deputy[..], &["--as-uid", "7"]].concat(),
        "uids",
    );
    fails(
        Some(&admin),
        &[&deputy[..], &["--as-user-extra", "reason=audit"]].concat(),
        "userextras/reason",
    );
}

fn a_login_program_is_asked(cluster: &Cluster, access: &Access<'_>) {
    cluster.types("create serviceaccount operator");
    cluster
        .types("create clusterrolebinding operator --clusterrole=cluster-admin --serviceaccount=default:operator");
    wait_allowed(cluster, "* *", "operator");
    let token = cluster.types("create token operator");
    let token = token.trim();
    secrecy::remember(token);
    let admin = access.admin();
    reaches(Some(&admin), &["status", "--token", token]);
    let verbose = plugin(Some(&admin), &["status", "--token", token, "-v=9"]);
    assert!(verbose.stderr.contains(" ms"), "{verbose:?}");
    assert!(!format!("{verbose:?}").contains(token), "no token is shown");

    let with_program = |name: &str, script: &str| {
        let program = access.file(&format!("{name}.sh"));
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let mut config = access.config.clone();
        config["users"][0]["user"] = json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": program, "interactiveMode": "Never",
        }});
        access.write(name, &config)
    };
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token},
    });
    let good = with_program("login", &format!("echo '{credential}'"));
    reaches(Some(&good), &["status"]);
    let bad = with_program("no-login", "echo hunter2; exit 3");
    let ran = plugin(Some(&bad), &["status", "-v"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr
            .contains("the login program of the kubeconfig failed"),
        "{ran:?}"
    );
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    let wrong = with_program(
        "wrong",
        &format!("echo '{credential}' | sed s/token\\\":\\\"./\\&x/"),
    );
    fails(Some(&wrong), &["status"], "rejected your login");
}

fn tls_is_checked_as_told(access: &Access<'_>) {
    let admin = access.admin();
    let mut config = access.config.clone();
    config["clusters"][0]["cluster"]
        .as_object_mut()
        .unwrap()
        .remove("certificate-authority-data");
    let no_ca = access.write("no-ca", &config);
    let ca = access.file("ca.crt");
    fails(Some(&no_ca), &["status"], "certificate");
    reaches(Some(&no_ca), &["status", "--insecure-skip-tls-verify"]);
    reaches(Some(&no_ca), &["status", "--certificate-authority", &ca]);
    fails(
        Some(&no_ca),
        &[
            "status",
            "--certificate-authority",
            &ca,
            "--insecure-skip-tls-verify",
        ],
        "contradict",
    );
    fails(
        Some(&admin),
        &["status", "--tls-server-name", "another.example.com"],
        "another.example.com",
    );
    reaches(
        Some(&admin),
        &["status", "--tls-server-name", "kubernetes.default.svc"],
    );
}

/// Runs the command in each hint, which grants a missing permission, until none is missing.
fn who_is_refused_is_told_what_is_missing(cluster: &Cluster, access: &Access<'_>) {
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/crds.yaml");
    cluster.kubectl(&["apply", "-f", crds]).unwrap();
    cluster
        .kubectl(&["wait", "--for=condition=Established", "-f", crds])
        .unwrap();
    let admin = access.admin();
    let path = format!(
        "{}:{}",
        kubernetes::bin_dir().display(),
        std::env::var("PATH").unwrap()
    );
    let run_as = |args: &[&str]| plugin(Some(&admin), args);
    let args = [
        "history",
        "--as",
        "alice",
        "--as-group",
        "guests",
        "--as-uid",
        "7",
    ];
    let mut granted = 0;
    let mut last = String::new();
    let ran = loop {
        // The API server learns about a granted permission a moment later.
        let ran = wait("another answer", Duration::from_millis(100), || {
            let ran = run_as(&args);
            let is_known = last.is_empty() || !ran.stderr.contains(&last);
            Ok(is_known.then_some(ran))
        });
        let Some((_, rest)) = ran.stderr.split_once("grants it with `") else {
            break ran;
        };
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("user `alice` may not "), "{ran:?}");
        let (grant, _) = rest.split_once('`').unwrap();
        grant.clone_into(&mut last);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", grant])
            .env("PATH", &path)
            .env("KUBECONFIG", cluster.kubeconfig());
        let shell = run(&mut shell, "").unwrap();
        assert_eq!(shell.code, Some(0), "{grant}: {shell:?}");
        granted += 1;
        assert!(granted < 6, "the hints never end: {ran:?}");
    };
    assert!(granted >= 1, "an unknown user has no rights");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    fails(Some(&admin), &["status", "--as-group", "guests"], "`--as`");
}

fn a_silent_server_is_given_up(access: &Access<'_>) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("https://{}", silent.local_addr().unwrap());
    let start = Instant::now();
    let args = ["status", "-s", &server, "--request-timeout", "1s"];
    fails(Some(&access.admin()), &args, "within 1 s");
    assert!(start.elapsed() < Duration::from_secs(15));
    drop(silent);
    fails(Some(&access.admin()), &args, "could not");
}

/// Checks that both reach the API server, or neither does.
fn what_is_left_out_is_completed_as_by_kubectl(cluster: &Cluster, access: &Access<'_>) {
    let mut config = access.config.clone();
    config["current-context"] = json!("");
    let empty = access.write("empty-context", &config);
    let token = cluster.types("create token operator");
    let token = token.trim();
    secrecy::remember(token);
    let (server, ca) = (access.server.as_str(), access.file("ca.crt"));
    let context = access.config["current-context"].as_str().unwrap();
    let name = |part: &str| access.config[part][0]["name"].as_str().unwrap();
    let (of_cluster, user) = (name("clusters"), name("users"));
    let kubeconfig = ["--kubeconfig", empty.as_str()];
    let with_server = ["--server", server, "--certificate-authority", &ca];
    #[rustfmt::skip]
    let cases = [
        ("an empty context is none", vec![], false),
        ("it may be named", vec!["--context", context], true),
        ("without a timeout", vec!["--context", context, "--request-timeout=0"], true),
        ("the same", vec!["--context", context, "--request-timeout=0s"], true),
        ("a server needs no context", [&with_server[..], &["--token", token]].concat(), true),
        ("nor do its users", [&with_server[..], &["--user", user]].concat(), true),
        ("nor a cluster", vec!["--cluster", of_cluster, "--user", user], true),
        ("a cluster's server may be another", vec!["--cluster", of_cluster, "--server", server, "--token", token], true),
        ("a context that is named must exist", [&with_server[..], &["--token", token, "--context", "none"]].concat(), false),
        ("so must a cluster", [&with_server[..], &["--token", token, "--cluster", "none"]].concat(), false),
    ];
    for (sentence, flags, reached) in cases {
        let flags = [&kubeconfig[..], &flags].concat();
        let ours = plugin(None, &[&["status"], &flags[..]].concat());
        assert_eq!(
            ours.stderr.contains(REACHED),
            reached,
            "{sentence}: {ours:?}"
        );
        let mut kubectl = Command::new(kubernetes::bin_dir().join("kubectl"));
        let cache = access.file("cache");
        kubectl
            .env_clear()
            .args(["get", "namespaces", "--cache-dir", &cache]);
        kubectl.args(flags);
        let ran = run(&mut kubectl, "").unwrap();
        assert_eq!(ran.code == Some(0), reached, "{sentence}: {ran:?}");
    }
}

fn colors_are_for_terminals(cluster: &Cluster, access: &Access<'_>) {
    let colored = |color: &str, no_color: Option<&str>| {
        let mut command = Command::new(Product::plugin_path());
        command
            .args(["status", "--context", "none", color])
            .env("KUBECONFIG", cluster.kubeconfig());
        if let Some(value) = no_color {
            command.env("NO_COLOR", value);
        } else {
            command.env_remove("NO_COLOR");
        }
        let terminal = Terminal::start(&command, 80, 24).unwrap();
        terminal.end(SOON).unwrap().1.contains("\u{1b}[31m")
    };
    for (sentence, color, no_color, expected) in [
        ("a terminal shows colors", "--color=auto", None, true),
        ("NO_COLOR disables them", "--color=auto", Some("1"), false),
        (
            "an empty variable has no effect",
            "--color=auto",
            Some(""),
            true,
        ),
        ("a flag takes precedence", "--color=never", None, false),
        ("either way", "--color=always", Some("1"), true),
    ] {
        assert_eq!(colored(color, no_color), expected, "{sentence}");
    }
    let admin = access.admin();
    let ran = plugin(Some(&admin), &["status", "--context", "none"]);
    assert!(!ran.stderr.contains('\u{1b}'), "{ran:?}");
    let ran = plugin(
        Some(&admin),
        &["status", "--context", "none", "--color=always"],
    );
    assert!(ran.stderr.contains('\u{1b}'), "{ran:?}");
}

fn a_reader_that_went_away_is_no_error() {
    let script = "\"$1\" install --controller-image c --syncer-image s --dry-run=client -o yaml | head -c1 >/dev/null; echo ${PIPESTATUS[0]}";
    let mut bash = Command::new("bash");
    bash.args(["-c", script, "bash"])
        .arg(Product::plugin_path());
    let ran = run(&mut bash, "").unwrap();
    assert_eq!(ran.stdout, "0\n", "{ran:?}");
    assert_eq!(ran.stderr, "");
}

/// A watch with a login program, through a relay that can fail.
fn a_watch_outlasts_an_outage_and_a_login(cluster: &Cluster, access: &Access<'_>) {
    let upstream = access.server.strip_prefix("https://").unwrap().to_owned();
    let relay = Relay::start(upstream).unwrap();
    let token = access.file("token");
    // The old token is invalid once its account has been recreated.
    let renew = || {
        let delete = ["delete", "serviceaccount", "operator", "--ignore-not-found"];
        cluster.kubectl(&delete).unwrap();
        cluster.types("create serviceaccount operator");
        let new = cluster.types("create token operator");
        secrecy::remember(new.trim());
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": new.trim()},
        });
        fs::write(&token, credential.to_string()).unwrap();
    };
    renew();
    let mut config = access.config.clone();
    config["users"][0]["user"] = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": [token.as_str()],
        "interactiveMode": "Never",
    }});
    let kubeconfig = access.write("relayed", &config);
    let server = format!("https://{}", relay.address);
    let (shown, messages) = (access.file("watch.out"), access.file("watch.err"));
    let mut watch = Command::new(Product::plugin_path())
        .args([
            "status",
            "--watch",
            "--kubeconfig",
            &kubeconfig,
            "-s",
            &server,
        ])
        .args(["--tls-server-name", "kubernetes.default.svc"])
        .stdin(Stdio::null())
        .stdout(fs::File::create(shown).unwrap())
        .stderr(fs::File::create(&messages).unwrap())
        .spawn()
        .unwrap();
    let lines = |text: &str, number: usize| {
        until(
            text,
            Duration::from_secs(90),
            Duration::from_millis(100),
            || {
                let found = fs::read_to_string(&messages)?;
                Ok((found.matches(text).count() == number).then_some(()))
            },
        )
        .unwrap();
    };
    // The initial read does not survive an outage. Without nodes it prints nothing.
    std::thread::sleep(Duration::from_secs(10));
    let ended = watch.try_wait().unwrap();
    let printed = fs::read_to_string(&messages).unwrap();
    assert!(ended.is_none(), "{ended:?}: {printed}");
    for (number, state) in [(1, CUT), (2, SILENT)] {
        relay.state.store(state, Ordering::SeqCst);
        lines("the cluster can't be reached since ", number);
        relay.state.store(OPEN, Ordering::SeqCst);
        lines("the cluster can be reached again", number);
    }
    // The next watches begin within 20 seconds.
    renew();
    std::thread::sleep(Duration::from_secs(30));
    assert!(watch.try_wait().unwrap().is_none(), "it goes on");
    cluster.types("delete serviceaccount operator");
    lines("the API server rejected your login", 1);
    assert_eq!(watch.wait().unwrap().code(), Some(2));
}

const OPEN: usize = 0;
/// Connections are closed at once.
const CUT: usize = 1;
/// Connections stay open without any data.
const SILENT: usize = 2;

/// Forwards data between clients and the API server; its threads end with the test.
struct Relay {
    address: String,
    state: Arc<AtomicUsize>,
}

impl Relay {
    fn start(upstream: String) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let relay = Self {
            address: listener.local_addr()?.to_string(),
            state: Arc::default(),
        };
        let state = Arc::clone(&relay.state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (upstream, state) = (upstream.clone(), Arc::clone(&state));
                std::thread::spawn(move || both_ways(&client, &upstream, &state));
            }
        });
        Ok(relay)
    }
}

fn both_ways(client: &TcpStream, upstream: &str, state: &AtomicUsize) -> std::io::Result<()> {
    if state.load(Ordering::SeqCst) == CUT {
        return Ok(());
    }
    let server = TcpStream::connect(upstream)?;
    std::thread::scope(|scope| {
        scope.spawn(|| pass(client, &server, state));
        pass(&server, client, state)
    })
}

/// Data that arrives while the relay is silent is lost, so such a connection never works again.
fn pass(mut from: &TcpStream, mut to: &TcpStream, state: &AtomicUsize) -> std::io::Result<()> {
    from.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut buffer = [0; 16 * 1024];
    let mut is_dead = false;
    loop {
        let length = match from.read(&mut buffer) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                None
            }
            Err(_) | Ok(0) => break,
            Ok(length) => Some(length),
        };
        match state.load(Ordering::SeqCst) {
            CUT => break,
            SILENT => is_dead = true,
            _ => {}
        }
        if let Some(length) = length.filter(|_| !is_dead) {
            to.write_all(&buffer[..length])?;
        }
    }
    // Either end may be closed already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
    Ok(())
}
