//! The charts with each tool that installs charts: the effect of each step on the definitions, and whether their
//! objects survive. Prints the table of `docs/adr/0042-definitions-in-a-chart-of-their-own.md`. Also checks that the
//! API server's own schemas accept everything that the charts can render.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::cluster;
use globalps_testkit::Cluster;
use globalps_testkit::companions::{argocd, flux_helm, helm, helm3};
use globalps_testkit::product::{CONFIG, NAMESPACE, Ran, run};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Namespace of the releases.
const SYSTEM: &str = "globalps-system";
/// In order of installation.
const CHARTS: [&str; 2] = ["globalps-crds", "globalps"];
const DEFINITIONS: [&str; 4] = [
    "clusterpullsecrets",
    "fleetpullsecrets",
    "globalpullsecrets",
    "nodepullsecrets",
];
const NODE: &str = "nodepullsecret/node-1";
/// A field that only the next release of the definitions has.
const ADDED: &str = "ofATest";

/// The installing tool.
#[derive(Clone, Debug)]
enum Installer {
    Helm(PathBuf),
    /// With this policy for definitions; empty: Flux's default.
    Flux(&'static str),
    ArgoCd,
    Kubectl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Install,
    Upgrade,
    Rollback,
    Uninstall,
    InstallAgain,
}

/// The effect of a step on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Created,
    /// The object still exists, changed or not.
    Kept,
    Replaced,
    Deleted,
    Absent,
}

#[test]
fn definitions_and_objects_survive_every_installer() {
    let installers = [
        ("Helm 3.22", Installer::Helm(helm3().unwrap())),
        ("Helm 4.3", Installer::Helm(helm().unwrap())),
        ("Flux, its default policies", Installer::Flux("")),
        ("Flux, `CreateReplace`", Installer::Flux("CreateReplace")),
        ("Argo CD", Installer::ArgoCd),
        (
            "`helm template`, `kubectl apply --server-side`",
            Installer::Kubectl,
        ),
    ];
    let mut table = String::from(
        "| installer | step | definitions | upgraded field | GlobalPullSecret | NodePullSecrets |\n|---|---|---|---|---|---|\n",
    );
    for (name, installer) in installers {
        rows(name, &installer, &mut table);
    }
    println!("{table}");
}

/// Checks the schemas that the API server publishes, and sends a dry run.
#[test]
fn the_api_server_accepts_everything_that_is_rendered() {
    let cluster = cluster("rendered", 0);
    let budget = json!({"enabled": true});
    let values = json!({
        "commonLabels": {"team": "a"}, "registryAuthorities": "certificates", "detachServiceAccounts": true,
        "images": {"registry": "registry.example.com:5000/platform", "pullSecret": "images"},
        "controller": {"podDisruptionBudget": budget, "podLabels": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
        "hub": {"enabled": true, "shards": 2, "namespaces": ["clusters"], "podDisruptionBudget": budget},
        "operators": {"secrets": [{"namespace": "olm", "name": "pull"}]},
        "allow": {
            "units": ["my-kubelet.service"], "configFiles": ["/data/kubelet/auth.json"],
            "providers": [{"configPath": "/opt/providers/config.yaml", "binDir": "/opt/providers/bin"}],
        },
        "monitoring": {"dashboard": {"enabled": true}, "serviceMonitor": {"enabled": true}},
        "globalPullSecret": {
            "original": {"secretRef": {"namespace": "team", "name": "original"}},
            "sources": [{"name": "team-a"}],
            "imagePullSecrets": {"enabled": true, "attach": "Admission", "secretName": "pull"},
            "kubelet": {"unit": "my-kubelet.service"},
            "syncer": {
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
                "resources": {"requests": {"cpu": 1, "memory": "16Mi"}},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]},
                ]}}},
                "priorityClassName": "system-node-critical",
            },
        },
    });
    let world = World::new(&cluster, &Installer::Kubectl);
    fs::write(world.path("values.yaml"), values.to_string()).unwrap();
    for namespace in [SYSTEM, "clusters", "olm", "team"] {
        let create = ["create", "namespace", namespace];
        cluster.kubectl(&create).unwrap();
    }
    let mut schemas = BTreeMap::new();
    for chart in CHARTS {
        let text = world.rendered(Step::Install, chart);
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        // The Prometheus operator is not installed here.
        let documents = documents.into_iter().filter(|object| {
            let version = object["apiVersion"].as_str();
            version.is_some_and(|version| !version.starts_with("monitoring.coreos.com/"))
        });
        let documents: Vec<Value> = documents.collect();
        println!("{chart}: {} objects", documents.len());
        assert!(documents.len() >= 4);
        for object in &documents {
            let wrong = invalid(&cluster, &mut schemas, object);
            let name = &object["metadata"]["name"];
            assert!(wrong.is_empty(), "{} {name}: {wrong:?}", object["kind"]);
        }
        // The pod of `helm test` needs a service account of the other objects.
        let rest = documents.iter().filter(|object| object["kind"] != "Pod");
        let rest: Vec<Value> = rest.cloned().collect();
        for (dry_run, items) in [("server", &rest), ("none", &rest), ("server", &documents)] {
            let mut kubectl = cluster.kubectl_command();
            let flag = format!("--dry-run={dry_run}");
            kubectl.args([
                "apply",
                "--server-side",
                "--validate=strict",
                &flag,
                "-f",
                "-",
            ]);
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            world.succeeds(&mut kubectl, &list.to_string());
        }
        let wait = ["wait", "--for=condition=Established", "crd", "--all"];
        cluster.kubectl(&wait).unwrap();
    }
}

/// Fields that the API server's `OpenAPI` schema of the kind lacks, and required ones that are missing.
fn invalid(
    cluster: &Cluster,
    schemas: &mut BTreeMap<String, Value>,
    object: &Value,
) -> Vec<String> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, of_group) = version.split_once('/').unwrap_or(("", version));
    let document = schemas.entry(version.to_owned()).or_insert_with(|| {
        let path = match group {
            "" => "/openapi/v3/api/v1".to_owned(),
            _ => format!("/openapi/v3/apis/{version}"),
        };
        let text = cluster.kubectl(&["get", "--raw", &path]).unwrap();
        serde_json::from_str(&text).unwrap()
    });
    let kind = json!([{"group": group, "kind": object["kind"], "version": of_group}]);
    let all = &document["components"]["schemas"];
    let mut of_kind = all.as_object().unwrap().values();
    let schema = of_kind.find(|schema| schema["x-kubernetes-group-version-kind"] == kind);
    let mut wrong = Vec::new();
    mismatches(
        all,
        schema.expect("a schema of the kind"),
        object,
        "",
        &mut wrong,
    );
    wrong
}

fn mismatches(all: &Value, schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
    let reference = schema["allOf"][0]["$ref"]
        .as_str()
        .or(schema["$ref"].as_str());
    if let Some(name) = reference.and_then(|name| name.rsplit('/').next()) {
        return mismatches(all, &all[name], value, path, wrong);
    }
    let fits = match schema["type"].as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    if !fits {
        wrong.push(format!("{path} has another type"));
    }
    for item in value.as_array().into_iter().flatten() {
        mismatches(all, &schema["items"], item, &format!("{path}[]"), wrong);
    }
    let required = schema["required"].as_array().into_iter().flatten();
    let missing = required.filter(|name| value.get(name.as_str().unwrap_or_default()).is_none());
    wrong.extend(missing.map(|name| format!("{path}.{name} is missing")));
    let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Object(known), _) => {
                mismatches(all, &Value::Object(known.clone()), value, &path, wrong);
            }
            (_, Value::Object(known)) => {
                mismatches(all, &Value::Object(known.clone()), value, &path, wrong);
            }
            _ if is_open || schema.get("properties").is_none() => {}
            _ => wrong.push(format!("{path} is unknown")),
        }
    }
}

fn rows(name: &str, installer: &Installer, table: &mut String) {
    let cluster = cluster("installers", 0);
    let world = World::new(&cluster, installer);
    world.refuses_to_come_first();
    for step in [
        Step::Install,
        Step::Upgrade,
        Step::Rollback,
        Step::Uninstall,
        Step::InstallAgain,
    ] {
        let before = world.uids();
        world.take(step);
        if step == Step::Install {
            world.add_node();
        }
        let after = world.uids();
        let fates: Vec<Fate> = before.iter().zip(&after).map(fate).collect();
        let (definitions, objects) = fates.split_at(DEFINITIONS.len());
        let is_added = world.knows_added();
        writeln!(
            table,
            "| {name} | {step:?} | {definitions:?} | {is_added} | {:?} | {:?} |",
            objects[0], objects[1]
        )
        .unwrap();
        let what = format!("{name}: {step:?}: {fates:?}");
        // `kubectl delete` ignores the chart's keep policy: the nodes keep their content without this object.
        let is_deleted = matches!(
            (installer, step),
            (Installer::Kubectl, Step::Uninstall | Step::InstallAgain)
        );
        let of = |first| {
            if step == Step::Install {
                first
            } else {
                Fate::Kept
            }
        };
        let config = match (is_deleted, step) {
            (true, Step::Uninstall) => Fate::Deleted,
            (true, _) => Fate::Created,
            (false, _) => of(Fate::Created),
        };
        assert!(
            definitions.iter().all(|fate| *fate == of(Fate::Created)),
            "{what}"
        );
        assert_eq!(objects[0], config, "{what}");
        assert_eq!(objects[1], of(Fate::Created), "{what}");
        assert_eq!(is_added, step == Step::Upgrade, "{what}");
    }
}

fn fate((before, after): (&Option<String>, &Option<String>)) -> Fate {
    match (before, after) {
        (None, None) => Fate::Absent,
        (None, Some(_)) => Fate::Created,
        (Some(_), None) => Fate::Deleted,
        (Some(before), Some(after)) if before == after => Fate::Kept,
        _ => Fate::Replaced,
    }
}

struct World<'a> {
    cluster: &'a Cluster,
    installer: &'a Installer,
    /// Values, and the charts of the next release in `next`.
    directory: TempDir,
}

impl<'a> World<'a> {
    fn new(cluster: &'a Cluster, installer: &'a Installer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let values = json!({
            "images": {"registry": "registry.example.com/platform"},
            "globalPullSecret": {"historyLimit": 3},
        });
        fs::write(directory.path().join("values.yaml"), values.to_string()).unwrap();
        let copied = Command::new("cp")
            .arg("-r")
            .arg(charts())
            .arg(directory.path().join("next"))
            .status()
            .unwrap();
        assert!(copied.success());
        let crds = directory
            .path()
            .join("next/globalps-crds/templates/crds.yaml");
        let text = fs::read_to_string(&crds).unwrap();
        let field = text.lines().find(|line| line.trim() == "historyLimit:");
        let field = field.expect("a field of the spec");
        let indent = &field[..field.len() - field.trim_start().len()];
        let added = format!("{indent}{ADDED}:\n{indent}  type: string\n{field}\n");
        fs::write(&crds, text.replacen(&format!("{field}\n"), &added, 1)).unwrap();
        Self {
            cluster,
            installer,
            directory,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Charts of the release that this step installs.
    fn charts(&self, step: Step) -> PathBuf {
        match step {
            Step::Upgrade => self.path("next"),
            _ => charts(),
        }
    }

    /// Helm reports what is missing before it creates anything.
    fn refuses_to_come_first(&self) {
        let Installer::Helm(helm) = self.installer else {
            return;
        };
        let ran = self.helm(
            helm,
            &["install", "globalps"],
            Some(&charts().join("globalps")),
        );
        assert_ne!(ran.code, Some(0), "{ran:?}");
        let says = "install the chart globalps-crds first";
        assert!(ran.stderr.contains(says), "{ran:?}");
        assert_eq!(self.uid("clusterrole/globalps-controller"), None);
    }

    fn take(&self, step: Step) {
        match self.installer {
            Installer::Helm(helm) => {
                for name in order(step) {
                    let chart = self.charts(step).join(name);
                    let (command, chart) = match step {
                        Step::Install | Step::InstallAgain => ("install", Some(chart)),
                        Step::Upgrade => ("upgrade", Some(chart)),
                        Step::Rollback => ("rollback", None),
                        Step::Uninstall => ("uninstall", None),
                    };
                    let ran = self.helm(helm, &[command, name], chart.as_deref());
                    assert_eq!(ran.code, Some(0), "{step:?} {name}: {ran:?}");
                }
            }
            Installer::Flux(policy) => {
                for name in order(step) {
                    let command = match step {
                        Step::Install | Step::InstallAgain => "install",
                        Step::Upgrade => "upgrade",
                        Step::Rollback => "rollback",
                        Step::Uninstall => "uninstall",
                    };
                    let mut flux = Command::new(flux_helm().unwrap());
                    flux.args(["-n", SYSTEM, "-crds", policy, "-f"])
                        .arg(self.path("values.yaml"))
                        .args([command, name])
                        .arg(self.charts(step).join(name));
                    self.succeeds(&mut flux, "");
                }
            }
            Installer::ArgoCd => {
                let objects = match step {
                    Step::Uninstall => String::new(),
                    _ => CHARTS.map(|name| self.rendered(step, name)).concat(),
                };
                self.namespace();
                let file = self.path("objects.yaml");
                fs::write(&file, objects).unwrap();
                let mut sync = Command::new(argocd().unwrap());
                self.succeeds(sync.arg("globalps").arg(file), "");
            }
            Installer::Kubectl => {
                self.namespace();
                let args: &[&str] = match step {
                    Step::Uninstall => &["delete", "-f", "-"],
                    _ => &["apply", "--server-side", "-f", "-"],
                };
                // The definitions are not deleted, because their objects would be deleted with them.
                let charts = CHARTS.iter().skip(usize::from(step == Step::Uninstall));
                for name in charts {
                    let mut kubectl = self.cluster.kubectl_command();
                    self.succeeds(kubectl.args(args), &self.rendered(step, name));
                    let wait = ["wait", "--for=condition=Established", "--timeout=60s"];
                    let wait = [&wait[..], &["crd", "--all"]].concat();
                    self.cluster.kubectl(&wait).unwrap();
                }
            }
        }
    }

    fn helm(&self, helm: &Path, args: &[&str], chart: Option<&Path>) -> Ran {
        let mut command = Command::new(helm);
        command.args(args).args(["-n", SYSTEM]);
        if let Some(chart) = chart {
            command.arg(chart).arg("-f").arg(self.path("values.yaml"));
            if args[0] == "install" {
                command.arg("--create-namespace");
            }
        }
        command.env("KUBECONFIG", self.cluster.kubeconfig());
        run(&mut command, "").unwrap()
    }

    fn rendered(&self, step: Step, name: &str) -> String {
        let mut template = Command::new(helm().unwrap());
        template
            .args(["template", name, "-n", SYSTEM, "-f"])
            .arg(self.path("values.yaml"))
            .arg(self.charts(step).join(name));
        self.succeeds(&mut template, "")
    }

    fn namespace(&self) {
        if self.uid(&format!("namespace/{SYSTEM}")).is_none() {
            self.cluster.types(&format!("create namespace {SYSTEM}"));
        }
    }

    fn succeeds(&self, command: &mut Command, input: &str) -> String {
        let ran = run(command.env("KUBECONFIG", self.cluster.kubeconfig()), input).unwrap();
        assert_eq!(ran.code, Some(0), "{command:?}: {ran:?}");
        ran.stdout
    }

    /// Like the controller for a node.
    fn add_node(&self) {
        let node = json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret",
            "metadata": {"name": "node-1", "namespace": NAMESPACE}, "spec": {"revision": 1},
        });
        let mut kubectl = self.cluster.kubectl_command();
        self.succeeds(kubectl.args(["create", "-f", "-"]), &node.to_string());
    }

    /// UIDs of the definitions, the configuration and a node's object.
    fn uids(&self) -> Vec<Option<String>> {
        let definitions = DEFINITIONS.map(|name| format!("crd/{name}.globalps.io"));
        let objects = [CONFIG, NODE].map(str::to_owned);
        let all = definitions.iter().chain(&objects);
        all.map(|name| self.uid(name)).collect()
    }

    /// `None` if the object or its kind does not exist.
    fn uid(&self, name: &str) -> Option<String> {
        let get = [
            "get",
            name,
            "-n",
            NAMESPACE,
            "-o",
            "jsonpath={.metadata.uid}",
        ];
        self.cluster.kubectl(&get).ok()
    }

    fn knows_added(&self) -> bool {
        let get = ["get", "crd/globalpullsecrets.globalps.io", "-o", "json"];
        let crd = self.cluster.kubectl(&get).unwrap();
        let crd: Value = serde_json::from_str(&crd).unwrap();
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        crd.pointer(spec).unwrap().get(ADDED).is_some()
    }
}

fn charts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts")
}

/// Installs the definitions first, and uninstalls them last.
fn order(step: Step) -> Vec<&'static str> {
    let mut charts = CHARTS.to_vec();
    if matches!(step, Step::Rollback | Step::Uninstall) {
        charts.reverse();
    }
    charts
}
