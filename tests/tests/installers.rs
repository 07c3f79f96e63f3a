//! The charts by everything that installs charts: what each step does to the definitions, and whether the objects of their kinds
//! survive. Prints the table of `docs/adr/0042-definitions-in-a-chart-of-their-own.md`.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::cluster;
use globalps_tests::Cluster;
use globalps_tests::companions::{argocd, flux_helm, helm, helm3};
use globalps_tests::product::{CONFIG, NAMESPACE, Ran, run};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Namespace of the releases.
const SYSTEM: &str = "globalps-system";
/// In this order.
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

/// What installs.
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

/// What a step did with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Created,
    /// The same object, as before or changed.
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
        // `kubectl delete` knows nothing of what a chart keeps: the nodes keep what they have without this object.
        let is_deleted = matches!(
            (installer, step),
            (Installer::Kubectl, Step::Uninstall | Step::InstallAgain)
        );
        let of = |first| if step == Step::Install { first } else { Fate::Kept };
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
        let crds = directory.path().join("next/globalps-crds/templates/crds.yaml");
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

    /// Helm says what is missing, before it has created anything.
    fn refuses_to_come_first(&self) {
        let Installer::Helm(helm) = self.installer else {
            return;
        };
        let ran = self.helm(helm, &["install", "globalps"], Some(&charts().join("globalps")));
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
                // The definitions are not deleted: what is theirs would go with them.
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
            self.cluster
                .kubectl(&["create", "namespace", SYSTEM])
                .unwrap();
        }
    }

    fn succeeds(&self, command: &mut Command, input: &str) -> String {
        let ran = run(command.env("KUBECONFIG", self.cluster.kubeconfig()), input).unwrap();
        assert_eq!(ran.code, Some(0), "{command:?}: {ran:?}");
        ran.stdout
    }

    /// As the controller does for a node.
    fn add_node(&self) {
        let node = json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret",
            "metadata": {"name": "node-1", "namespace": NAMESPACE}, "spec": {"revision": 1},
        });
        let mut kubectl = self.cluster.kubectl_command();
        self.succeeds(kubectl.args(["create", "-f", "-"]), &node.to_string());
    }

    /// Of the definitions, the configuration and a node's object.
    fn uids(&self) -> Vec<Option<String>> {
        let definitions = DEFINITIONS.map(|name| format!("crd/{name}.globalps.io"));
        let objects = [CONFIG, NODE].map(str::to_owned);
        let all = definitions.iter().chain(&objects);
        all.map(|name| self.uid(name)).collect()
    }

    /// `None`: the object, or its kind, does not exist.
    fn uid(&self, name: &str) -> Option<String> {
        let get = ["get", name, "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}"];
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

/// The definitions first, and last when they go.
fn order(step: Step) -> Vec<&'static str> {
    let mut charts = CHARTS.to_vec();
    if matches!(step, Step::Rollback | Step::Uninstall) {
        charts.reverse();
    }
    charts
}
