//! The commands that control a rollout, on a real API server, with objects in the state in which the controller and the
//! nodes would leave them.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use common::{base64, cluster, decode, docker_config, install_crds};
use globalps_testkit::product::{ADDITIONAL, CONFIG, Product, Ran, pull_secret, run};
use globalps_testkit::terminal::Terminal;
use globalps_testkit::{Cluster, wait};
use jiff::Timestamp;
use serde_json::{Value, json};

const NAMESPACE: &str = "kube-system";
const PASSWORD: &str = "0perations-s3cret";
const SOON: Duration = globalps_testkit::DEADLINE;

#[test]
fn the_plugin_steers_a_rollout() {
    let cluster = cluster("plugin-operations", 1);
    let stage = Stage::new(&cluster);
    nothing_is_steered_where_nothing_is_installed(&stage);
    install_crds(&cluster);
    pause_and_resume_change_that_one_field(&stage);
    failed_nodes_are_asked_to_try_again(&stage);
    history_shows_what_was_rolled_out(&stage);
    another_program_may_show_the_difference(&stage);
    explain_shows_every_source_in_the_kubelets_order(&stage);
    undo_brings_back_what_was_rolled_out(&stage);
    undo_asks_on_a_terminal(&stage);
    remove_asks_on_a_terminal(&stage);
    names_of_the_cluster_complete_a_command_line(&stage);
    status_shows_some_nodes_or_all(&stage);
    nodes_that_are_away_or_kept_out_are_told_whether_few_or_many(&stage);
    the_live_table_fits_its_terminal(&stage);
    off_a_terminal_there_are_plain_lines(&stage);
    ctrl_c_leaves_the_rollout_running(&stage);
    check_finds_what_is_in_the_way(&stage);
    stage
        .product
        .assert_never_shown(&[PASSWORD, &base64(&format!("robot:{PASSWORD}"))])
        .unwrap();
    what_is_shown_is_found(&stage);
}

/// The search at the end of every cluster finds credentials in all places.
fn what_is_shown_is_found(stage: &Stage<'_>) {
    let shown = |place: &str| {
        let found = stage.product.assert_never_shown(&["sh0wn-s3cret"]);
        let error = format!("{:#}", found.expect_err(place));
        assert!(error.contains(place) && !error.contains("sh0wn"), "{error}");
    };
    let nothing = || stage.product.assert_never_shown(&["sh0wn-s3cret"]).unwrap();
    nothing();
    let node = stage.cluster.node("node-1").unwrap();
    let file = node.root().join("var/tmp/left-behind");
    fs::write(&file, "robot:sh0wn-s3cret").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    shown("var/tmp/left-behind");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    nothing();
    let log = stage.cluster.logs().join("some.log");
    fs::write(&log, "first\nAuthorization: sh0wn-s3cret\n").unwrap();
    shown("some.log, line 2");
    fs::remove_file(&log).unwrap();
    stage.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "some"},
        "data": {"config": "password: sh0wn-s3cret"},
    }));
    shown("configmaps");
    stage
        .cluster
        .types(&format!("delete configmap some -n {NAMESPACE}"));
    nothing();
    let mut says = Command::new("echo");
    let printed = run(says.arg(format!("robot:{PASSWORD}")), "");
    let error = format!(
        "{:#}",
        printed.expect_err("the credential in the output is found")
    );
    assert!(
        error.starts_with("a credential is shown in the output of `echo`"),
        "{error}"
    );
}

/// A cluster without a controller, so that objects stay as the test wrote them.
struct Stage<'a> {
    cluster: &'a Cluster,
    product: Product<'a>,
}

impl<'a> Stage<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            product: Product::attach(cluster),
        }
    }

    fn plugin(&self, line: &str) -> Ran {
        self.product.types(line, "")
    }

    fn done(&self, line: &str) -> Ran {
        let ran = self.plugin(line);
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        assert!(!format!("{ran:?}").contains(PASSWORD), "{line}");
        ran
    }

    fn fails(&self, line: &str, text: &str) {
        let ran = self.plugin(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.stderr.contains(text), "{line}: {ran:?}");
        assert!(ran.stderr.contains("hint: "), "{line}: {ran:?}");
        assert_eq!(ran.stdout, "", "{line}");
    }

    fn on_terminal(&self, line: &str, columns: u16, rows: u16) -> Terminal {
        let mut command = Command::new(Product::plugin_path());
        command
            .args(line.split_whitespace())
            .env("KUBECONFIG", self.cluster.kubeconfig());
        Terminal::start(&command, columns, rows).unwrap()
    }

    fn apply(&self, object: &Value) {
        let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        let args = [&args[..], &["-n", NAMESPACE]].concat();
        self.cluster.kubectl_with(&args, object).unwrap();
    }

    /// Creates a node's object with this phase, as its syncer would report it.
    fn node(&self, name: &str, phase: &str) {
        self.apply(&json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret", "metadata": {"name": name},
            "spec": {"revision": 2},
        }));
        let status = json!({"status": {
            "observedGeneration": 1, "revision": 2, "phase": phase, "lastTransitionTime": "2026-01-01T00:00:00Z",
        }});
        let object = format!("nodepullsecret/{name}");
        let patched = self.cluster.patch_status(NAMESPACE, &object, &status);
        patched.unwrap();
    }

    /// Creates a Secret of the history, as the controller would leave it.
    fn slot(&self, slot: u32, revision: &str, content: &str) {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {
                "name": format!("additional-pull-secret-history-{slot}"),
                "annotations": {"globalps.io/revision": revision, "globalps.io/rolled-out": "2026-01-01T00:00:00Z"},
            },
            "stringData": {".dockerconfigjson": content},
        }));
    }

    fn paused(&self) -> Value {
        self.product
            .get("globalpullsecret/global-pull-secret")
            .unwrap()["spec"]["rollout"]["paused"]
            .clone()
    }

    fn additional(&self) -> String {
        let secret = self.product.get(&format!("secret/{ADDITIONAL}")).unwrap();
        secret["data"][".dockerconfigjson"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

fn config(entries: &[(&str, &str)]) -> String {
    let pairs: Vec<(&str, String)> = entries
        .iter()
        .map(|(registry, user)| (*registry, format!("{user}:{PASSWORD}")))
        .collect();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(r, p)| (*r, p.as_str())).collect();
    docker_config(&pairs)
}

fn nothing_is_steered_where_nothing_is_installed(stage: &Stage<'_>) {
    for line in ["pause", "retry", "history"] {
        stage.fails(line, "globalps is not installed in this cluster");
    }
    hypershifts_own_syncer_is_shown_as_far_as_it_can_be_seen(stage);
}

fn pause_and_resume_change_that_one_field(stage: &Stage<'_>) {
    stage.done("pause");
    assert_eq!(stage.paused(), true, "it is created if it does not exist");
    let again = stage.done("pause").stdout;
    assert!(again.contains("already paused"), "{again}");
    stage.apply(&json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "GlobalPullSecret",
        "metadata": {"name": "global-pull-secret"}, "spec": {"precedence": "Original"},
    }));
    let ran = stage.done("resume");
    assert_eq!(
        ran.stdout,
        "globalpullsecret.globalps.io/global-pull-secret resumed\n"
    );
    assert_eq!(stage.paused(), false);
    let object = stage
        .product
        .get("globalpullsecret/global-pull-secret")
        .unwrap();
    assert_eq!(object["spec"]["precedence"], "Original", "{object}");
}

fn failed_nodes_are_asked_to_try_again(stage: &Stage<'_>) {
    assert!(stage.done("retry").stderr.contains("no node has failed"));
    for (name, phase) in [
        ("node-1", "Synced"),
        ("node-2", "RolledBack"),
        ("node-3", "Failed"),
    ] {
        stage.node(name, phase);
    }
    let asked = |name: &str| {
        let object = stage
            .product
            .get(&format!("nodepullsecret/{name}"))
            .unwrap();
        object["metadata"]["annotations"]["globalps.io/retry"].clone()
    };
    stage.fails("retry node-2 node-9", "`node-9`");
    assert_eq!(asked("node-2"), Value::Null, "all or none");
    let ran = stage.done("retry node-1 node-2");
    assert!(ran.stderr.contains("`node-1` is Synced"), "{ran:?}");
    assert!(asked("node-2").as_str().unwrap().ends_with('Z'));
    assert_eq!(
        (asked("node-1"), asked("node-3")),
        (Value::Null, Value::Null)
    );
    let ran = stage.done("retry");
    assert!(
        ran.stdout.contains("node-3") && !ran.stdout.contains("node-1"),
        "{ran:?}"
    );
    assert!(asked("node-3").is_string());
}

fn history_shows_what_was_rolled_out(stage: &Stage<'_>) {
    let ran = stage.done("history");
    assert!(ran.stderr.contains("nothing was rolled out yet"), "{ran:?}");
    stage.slot(0, "4", &config(&[("a.example.com", "robot")]));
    stage.slot(
        1,
        "3",
        &config(&[("a.example.com", "old"), ("b.example.com", "robot")]),
    );
    // Revisions beyond `historyLimit` don't count.
    stage.slot(2, "2", &config(&[("c.example.com", "robot")]));
    let in_force = config(&[("a.example.com", "robot")]);
    stage.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {
            "name": "global-pull-secret", "annotations": {"globalps.io/revision": "5"},
        },
        "stringData": {".dockerconfigjson": in_force, "last-good-additional": in_force},
    }));
    let ran = stage.done("history");
    assert!(ran.stdout.contains("rolling out"), "{ran:?}");
    stage.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {
            "name": "global-pull-secret", "annotations": {
                "globalps.io/revision": "5", "globalps.io/rolled-out": "2026-01-01T00:00:00Z",
            },
        },
        "stringData": {".dockerconfigjson": in_force, "last-good-additional": in_force},
    }));
    let ran = stage.done("history");
    for text in [
        "REVISION",
        "a.example.com, b.example.com",
        "in force",
        "+b.example.com",
        "~a.example.com",
    ] {
        assert!(ran.stdout.contains(text), "{ran:?}");
    }
    assert!(!ran.stdout.contains("c.example.com"), "{ran:?}");
    let json: Value = serde_json::from_str(&stage.done("history -o json").stdout).unwrap();
    let numbers: Vec<&Value> = (0..3)
        .map(|at| &json["revisions"][at]["revision"])
        .collect();
    assert_eq!(numbers, [5, 4, 3], "the current revision, and the history");
    assert_eq!(json["revisions"][0]["inForce"], true);
    assert_eq!(
        json["revisions"][2]["changes"],
        json!([
            {"registry": "a.example.com", "change": "changed"},
            {"registry": "b.example.com", "change": "added"},
        ])
    );
}

fn undo_brings_back_what_was_rolled_out(stage: &Stage<'_>) {
    let before = config(&[("a.example.com", "robot")]);
    stage.product.apply(&before).unwrap();
    stage.fails("undo", "--yes");
    stage.fails("undo --to-revision 7 --yes", "revision 7 is not kept");
    stage.fails("undo --dry-run --wait", "dry run");
    for how in ["client", "server"] {
        let ran = stage.done(&format!("undo --dry-run={how}"));
        assert_eq!(
            ran.stdout,
            "-a.example.com: *** (before)\n+a.example.com: *** (after)\n+b.example.com: ***\n"
        );
        assert_eq!(
            stage.additional(),
            base64(&before),
            "a dry run changes nothing"
        );
    }
    let ran = stage.done("undo --yes");
    assert_eq!(
        ran.stdout,
        "secret/additional-pull-secret rolled back to revision 3\n"
    );
    let old = config(&[("a.example.com", "old"), ("b.example.com", "robot")]);
    assert_eq!(stage.additional(), base64(&old), "byte for byte");
    let ran = stage.done("undo --to-revision 3 --yes");
    assert!(ran.stderr.contains("already"), "{ran:?}");
    stage.product.delete().unwrap();
    stage.done("undo --to-revision 4 --yes");
    assert_eq!(
        stage.additional(),
        base64(&before),
        "a deleted Secret is recreated"
    );
}

fn undo_asks_on_a_terminal(stage: &Stage<'_>) {
    for (answer, code, revision) in [("n", 1, 4), ("y", 0, 3)] {
        let mut terminal = stage.on_terminal("undo", 80, 24);
        terminal
            .wait_for("Go back to the additional pull secret of revision 3?", SOON)
            .unwrap();
        terminal.press(&format!("{answer}\n")).unwrap();
        let (exit, shown) = terminal.end(SOON).unwrap();
        assert_eq!(exit, Some(code), "{shown}");
        assert!(shown.contains("+b.example.com: ***"), "{shown}");
        let there = stage.additional();
        let users = if revision == 4 { "robot" } else { "old" };
        let first = base64(&format!("{users}:{PASSWORD}"));
        let text = String::from_utf8(decode(&there)).unwrap();
        assert!(text.contains(&first), "{answer}");
    }
}

fn remove_asks_on_a_terminal(stage: &Stage<'_>) {
    let before = stage.additional();
    let all = "Remove every registry of `additional-pull-secret` from all nodes?";
    let one = "Remove `b.example.com` from all nodes?";
    for (line, question) in [
        ("remove --all", all),
        ("remove --registry b.example.com", one),
    ] {
        let mut terminal = stage.on_terminal(line, 100, 24);
        terminal.wait_for(question, SOON).unwrap();
        terminal.press("n\n").unwrap();
        let (code, shown) = terminal.end(SOON).unwrap();
        assert_eq!(code, Some(1), "{line}: {shown}");
        assert_eq!(
            stage.additional(),
            before,
            "{line}: without a yes nothing changes"
        );
    }
    let mut terminal = stage.on_terminal("remove --registry b.example.com", 100, 24);
    terminal.wait_for(one, SOON).unwrap();
    terminal.press("y\n").unwrap();
    let (code, shown) = terminal.end(SOON).unwrap();
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        shown.contains("secret/additional-pull-secret configured"),
        "{shown}"
    );
    let left = String::from_utf8(decode(&stage.additional())).unwrap();
    assert!(left.contains("a.example.com") && !left.contains("b.example.com"));
    let content = String::from_utf8(decode(&before)).unwrap();
    stage.product.apply(&content).unwrap();
}

fn names_of_the_cluster_complete_a_command_line(stage: &Stage<'_>) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("kubectl_complete-globalps");
    std::os::unix::fs::symlink(Product::plugin_path(), &program).unwrap();
    #[rustfmt::skip]
    let cases = [
        (
            vec!["remove", "--registry", ""],
            "a.example.com\tin additional-pull-secret\nb.example.com\tin additional-pull-secret\n:4\n",
        ),
        (vec!["retry", "node"], "node-2\tRolledBack\nnode-3\tFailed\n:4\n"),
        (vec!["retry", "node-2", "node"], "node-3\tFailed\n:4\n"),
        (vec!["undo", "--to-revision", ""], "5\t2026-01-01T00:00:00Z\n4\t2026-01-01T00:00:00Z\n3\t2026-01-01T00:00:00Z\n:4\n"),
        (vec!["diff", "-f", ""], ":0\n"),
        (vec!["--context", "nothing-like-it"], ":4\n"),
    ];
    for (words, expected) in cases {
        let complete = || {
            let mut command = Command::new(&program);
            command
                .args(&words)
                .env("KUBECONFIG", stage.cluster.kubeconfig());
            run(&mut command, "").unwrap()
        };
        // It gives up early if the API server is slow.
        let mut runs = std::iter::repeat_with(complete).take(5);
        let ran = runs.find(|ran| ran.stdout == expected);
        let ran = ran.unwrap_or_else(|| panic!("{words:?}: {:?}", complete()));
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(0), expected),
            "{words:?}"
        );
        assert_eq!(ran.stderr, "", "{words:?}");
    }
    // If the cluster does not respond, the completion returns soon.
    let mut command = Command::new(&program);
    command.args(["-s", "https://192.0.2.1:6443", "remove", "--registry", ""]);
    let start = std::time::Instant::now();
    let ran = run(&mut command, "").unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ":4\n"));
    assert!(start.elapsed() < Duration::from_secs(15));
}

fn check_finds_what_is_in_the_way(stage: &Stage<'_>) {
    let check = |line: &str, code: i32| {
        let ran = stage.plugin(line);
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        assert_eq!(ran.stderr, "", "the output is data");
        ran.stdout
    };
    let results = |text: &str| {
        let report: Value = serde_json::from_str(text).unwrap();
        let checks = report["checks"].as_array().unwrap().clone();
        assert_eq!(
            report["healthy"],
            !checks.iter().any(|check| check["result"] == "failure"),
            "{report}"
        );
        for check in &checks {
            let well = check["result"] == "ok";
            assert_eq!(check["hint"] == "", well, "{check}");
        }
        move |name: &str| -> Vec<String> {
            checks
                .iter()
                .filter(|check| check["name"] == name)
                .map(|check| check["result"].as_str().unwrap().to_owned())
                .collect()
        }
    };
    let found = results(&check("check -o json", 1));
    for (name, result) in [
        ("api", "ok"),
        ("version", "ok"),
        ("custom-resources", "ok"),
        ("controller", "failure"),
        ("syncer-pods", "failure"),
        ("node-rolled-back", "failure"),
        ("node-failed", "failure"),
    ] {
        assert_eq!(found(name), [result], "{name}");
    }
    assert_eq!(found("permissions"), ["ok"; 42]);
    let text = check("check", 1);
    for part in [
        "√ the API server responds",
        "× there is no controller",
        "hint: ",
        "docs/troubleshooting.md#controller",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let found = results(&check("check -o json --as nobody-in-particular", 1));
    assert_eq!(found("api"), ["ok"]);
    assert_eq!(
        found("controller"),
        ["warning"],
        "an object that can't be read may exist"
    );
    assert!(found("permissions").contains(&"failure".to_owned()));
    let found = results(&check("check -o json -s https://127.0.0.1:1", 2));
    assert_eq!(found("api"), ["failure"]);

    foreign_daemon_set(stage);
    let found = results(&check("check -o json", 1));
    assert_eq!(found("hypershift"), ["warning"]);
}

/// The DaemonSet of HyperShift's own controller.
fn foreign_daemon_set(stage: &Stage<'_>) {
    stage.apply(&json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "global-pull-secret-syncer"},
        "spec": {
            "selector": {"matchLabels": {"name": "global-pull-secret-syncer"}},
            "template": {
                "metadata": {"labels": {
                    "name": "global-pull-secret-syncer", "hypershift.openshift.io/globalps-config-hash": "6f1ed002",
                }},
                "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "c", "image": "example.com/c:1"}]},
            },
        },
    }));
}

fn hypershifts_own_syncer_is_shown_as_far_as_it_can_be_seen(stage: &Stage<'_>) {
    foreign_daemon_set(stage);
    let status = stage.plugin("status");
    assert_eq!(status.code, Some(1), "{status:?}");
    assert!(
        status
            .stdout
            .contains("HyperShift's own syncer  0/0 pods ready"),
        "{status:?}"
    );
    assert!(
        status.stderr.contains("whether a node's file is written"),
        "{status:?}"
    );
    let status: Value = serde_json::from_str(&stage.plugin("status -o json").stdout).unwrap();
    assert_eq!(status["ready"], false);
    assert_eq!(
        status["hypershift"]["secrets"]["additional-pull-secret"],
        false
    );
    stage.fails(
        "install --controller-image r/c:1 --syncer-image r/s:1 --yes",
        "HyperShift delivers the pull secret of this cluster",
    );
    stage.cluster.types(&format!(
        "delete daemonset global-pull-secret-syncer -n {NAMESPACE}"
    ));
}

fn status_shows_some_nodes_or_all(stage: &Stage<'_>) {
    let names = |line: &str| stage.plugin(line).stdout;
    assert_eq!(
        names("status -o name --node node-2"),
        "nodepullsecret.globalps.io/node-2\n"
    );
    assert_eq!(
        names("status -o name -l kubernetes.io/hostname=node-1"),
        "nodepullsecret.globalps.io/node-1\n"
    );
    stage.fails("status --node node-9", "`node-9`");
    stage.fails("status -l no=where", "such labels");
    stage.fails("status -l a=b=c", "could not list the Nodes");
    stage.fails("status -l a=b --as nobody-in-particular", "may not ");
    let bare = names("status --no-headers --node node-2 --node node-3");
    assert_eq!(bare.lines().count(), 2, "{bare}");
    let wide = names("status -o wide");
    assert!(wide.contains("MESSAGE"), "{wide}");
}

fn nodes_that_are_away_or_kept_out_are_told_whether_few_or_many(stage: &Stage<'_>) {
    let node = |name: &str, ready: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"conditions": [{
                "type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z",
                "lastHeartbeatTime": Timestamp::now(),
            }]},
        })
    };
    let create = |nodes: Vec<Value>| {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": nodes});
        let create = ["create", "-f", "-"];
        stage.cluster.kubectl_with(&create, &list).unwrap();
    };
    let told = |name: &str| {
        let ran = stage.plugin("status -o json");
        let status: Value = serde_json::from_str(&ran.stdout).unwrap();
        let nodes = status["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["name"] == name);
        node.map_or(Value::Null, |node| node["phase"].clone())
    };
    // It would notice that the Ready nodes send no heartbeats.
    stage
        .cluster
        .signal("kube-controller-manager", "STOP")
        .unwrap();
    create(vec![
        node("x-ready", "True", json!({})),
        node("x-silent", "Unknown", json!({})),
        node("x-broken", "False", json!({})),
        node("x-out", "True", json!({"globalps.io/exclude": "true"})),
        node("x-in", "True", json!({"globalps.io/exclude": "false"})),
        node(
            "x-other",
            "True",
            json!({"kubernetes.io/os": "linux", "pool": "b"}),
        ),
    ]);
    for name in ["x-ready", "x-silent", "x-broken", "x-in", "x-other"] {
        stage.node(name, "Synced");
    }
    let expected = [
        ("x-ready", "Synced"),
        ("x-silent", "Unreachable"),
        ("x-broken", "Unreachable"),
        ("x-out", "Excluded"),
        ("x-in", "Synced"),
    ];
    for (name, phase) in expected {
        assert_eq!(told(name), phase, "{name}");
    }
    let select = |labels: Value| {
        let patch = json!({"spec": {"nodeSelector": labels}});
        stage.cluster.patch(NAMESPACE, CONFIG, &patch).unwrap();
    };
    for (labels, phase) in [
        (json!({}), "Synced"),
        (json!({"pool": "a"}), "Excluded"),
        (json!({"pool": "b"}), "Synced"),
        (json!({"pool": null}), "Synced"),
    ] {
        select(labels.clone());
        assert_eq!(told("x-other"), phase, "{labels}");
    }
    let many = (0..40).map(|at| node(&format!("x-silent-{at}"), "Unknown", json!({})));
    create(many.collect());
    for (name, phase) in expected {
        assert_eq!(told(name), phase, "{name} beside many");
    }
    let selected = stage.plugin("status -o name -l globalps.io/exclude").stdout;
    assert_eq!(
        selected,
        "nodepullsecret.globalps.io/x-in\nnodepullsecret.globalps.io/x-out\n"
    );
    stage
        .cluster
        .signal("kube-controller-manager", "CONT")
        .unwrap();
    let nodes = stage.cluster.types("get nodes -o name");
    let mut delete = vec!["delete", "--wait=false"];
    delete.extend(nodes.lines().filter(|name| name.starts_with("node/x-")));
    stage.cluster.kubectl(&delete).unwrap();
    let delete = "delete nodepullsecret -n kube-system x-ready x-silent x-broken x-in x-other";
    let delete: Vec<&str> = delete.split(' ').collect();
    stage.cluster.kubectl(&delete).unwrap();
}

fn the_live_table_fits_its_terminal(stage: &Stage<'_>) {
    for (columns, rows) in [(40, 24), (120, 8)] {
        let mut terminal = stage.on_terminal("status --watch", columns, rows);
        terminal.wait_for("RolledBack", SOON).unwrap();
        stage.node("node-2", "Synced");
        terminal.wait_for("33%", SOON).unwrap();
        let shown = terminal.wait_for("hint:", SOON).unwrap();
        terminal.press("\u{3}").unwrap();
        let (code, _) = terminal.end(SOON).unwrap();
        assert_eq!(code, Some(130), "Ctrl-C ends it");
        for frame in shown.split("\u{1b}[J") {
            let lines: Vec<String> = frame.lines().map(plain).collect();
            assert!(lines.len() <= usize::from(rows), "{frame}");
            for line in lines {
                assert!(line.chars().count() <= usize::from(columns), "{line:?}");
            }
        }
        stage.node("node-2", "RolledBack");
    }
}

fn ctrl_c_leaves_the_rollout_running(stage: &Stage<'_>) {
    // Without the controller's Deployment, a wait ends at once.
    let system = "globalps-system";
    let kubectl = |args: &[&str]| stage.cluster.kubectl(args).unwrap();
    kubectl(&["create", "namespace", system]);
    let controller = ["deployment", "globalps-controller", "-n", system];
    kubectl(
        &[
            &["create"],
            &controller[..],
            &["--image=none.example.com/c"],
        ]
        .concat(),
    );
    for line in ["status --wait", "resume --wait"] {
        let mut terminal = stage.on_terminal(line, 80, 24);
        terminal.wait_for("node-1", SOON).unwrap();
        terminal.press("\u{3}").unwrap();
        let (code, shown) = terminal.end(SOON).unwrap();
        assert_eq!(code, Some(130), "{line}: {shown}");
        let look_again = "the rollout continues; follow it with `kubectl globalps status --watch`";
        assert!(shown.contains(look_again), "{line}: {shown}");
    }
    kubectl(&[&["delete"], &controller[..]].concat());
}

fn off_a_terminal_there_are_plain_lines(stage: &Stage<'_>) {
    let mut command = Command::new("timeout");
    command
        .args(["--signal=INT", "--preserve-status", "10"])
        .arg(Product::plugin_path())
        .args(["status", "--watch"])
        .env("KUBECONFIG", stage.cluster.kubeconfig());
    let ran = run(&mut command, "").unwrap();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(
        ran.stdout.contains("node-2  RolledBack  revision 2\n"),
        "{ran:?}"
    );
    assert!(!ran.stdout.contains('\u{1b}'), "{ran:?}");
}

/// The line without escape sequences.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        text.push_str(&part[end + 1..]);
    }
    text
}

fn another_program_may_show_the_difference(stage: &Stage<'_>) {
    stage
        .product
        .apply(&config(&[
            ("a.example.com", "other"),
            ("new.example.com", "robot"),
        ]))
        .unwrap();
    let diff = |program: &str| {
        let mut command = Command::new(Product::plugin_path());
        command
            .arg("diff")
            .env("KUBECONFIG", stage.cluster.kubeconfig())
            .env("KUBECTL_EXTERNAL_DIFF", program);
        run(&mut command, "").unwrap()
    };
    for (program, code) in [("diff -U0 -r", 1), ("true", 1), ("false", 1)] {
        let ran = diff(program);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(!format!("{ran:?}").contains(PASSWORD), "{ran:?}");
    }
    let shown = diff("diff -U0 -r").stdout;
    for line in [
        "-a.example.com: *** (before)\n",
        "+a.example.com: *** (after)\n",
        "+new.example.com: ***\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let ran = diff("/nowhere/diff");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("`/nowhere/diff` could not be run"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("hint: "), "{ran:?}");
}

fn explain_shows_every_source_in_the_kubelets_order(stage: &Stage<'_>) {
    let team = |name: &str, content: &str| {
        let secret = pull_secret("default", name, content);
        stage
            .cluster
            .kubectl_with(&["apply", "-f", "-"], &secret)
            .unwrap();
    };
    team(
        "team",
        &config(&[("a.example.com", "team"), ("a.example.com/org", "org")]),
    );
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app", "namespace": "default"},
        "spec": {
            "nodeName": "node-1", "imagePullSecrets": [{"name": "team"}, {"name": "gone"}],
            "containers": [{"name": "c", "image": "a.example.com/org/app:1"}],
        },
    });
    let apply = ["apply", "-f", "-"];
    stage.cluster.kubectl_with(&apply, &pod).unwrap();
    // The kubelet of node-1 attempts the pull, and reports why it fails.
    wait("the kubelet's word", Duration::from_millis(200), || {
        let ran = stage.done("explain a.example.com/org/app:1 --pod app");
        Ok(ran.stdout.contains("the kubelet says ").then_some(()))
    });
    let text = stage
        .done("explain a.example.com/org/app:1 --pod default/app")
        .stdout;
    let places: Vec<Option<usize>> = [
        "as org, from Secret default/team",
        "as team, from Secret default/team",
        "as robot, from the nodes' file",
        "Secret default/gone does not exist",
    ]
    .iter()
    .map(|place| text.find(place))
    .collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{text}"
    );
    let answer: Value =
        serde_json::from_str(&stage.done("explain a.example.com/x -o json").stdout).unwrap();
    assert_eq!(
        answer["kubelet"]["tries"],
        json!([{"key": "a.example.com", "username": "robot", "source": "the nodes' file"}])
    );
    let none = stage.plugin("explain elsewhere.example.com/x --service-account default/default");
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.stdout.contains("no Secret is named"), "{none:?}");
    stage.fails(
        "explain a.example.com/x --pod nowhere/app",
        "there is no Pod `nowhere/app`",
    );
    stage.fails("explain UPPER", "lower case");
    stage.product.delete_pod("app").unwrap();
}
