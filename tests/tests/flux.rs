//! Flux's kustomize-controller owns the pull secret and the configuration, with the manifests of `docs/ecosystem.md`. It applies,
//! reverts and prunes them. The test replaces Git and source-controller: it serves each commit's files as an artifact.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{base64, cluster};
use globalps_testkit::companions::{Companion, kustomize_controller};
use globalps_testkit::printed::manifest;
use globalps_testkit::product::{ADDITIONAL, CONFIG, DEADLINE, Product};
use globalps_testkit::web::Server;
use globalps_testkit::{Access, Cluster, Node, config_file, secrecy, until, wait};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const POLL: Duration = Duration::from_millis(50);
const PAGE: &str = "ecosystem.md";
const NAMESPACE: &str = "flux-system";
const OWNER: &str = "Flux (kustomize-controller)";

struct World<'a> {
    cluster: &'a Cluster,
    product: &'a Product<'a>,
    node: &'a Node,
    /// Address of the private registry.
    registry: String,
    artifacts: Server,
    artifact: Arc<Mutex<Vec<u8>>>,
}

#[test]
fn flux_applies_reverts_and_prunes_and_the_plugin_names_it() {
    let cluster = cluster("flux", 1);
    let product = Product::install(&cluster).unwrap();
    let artifact = Arc::new(Mutex::new(Vec::new()));
    let served = Arc::clone(&artifact);
    let answer = move |_: &_| (200, Vec::new(), served.lock().unwrap().clone());
    let world = World {
        cluster: &cluster,
        product: &product,
        node: &cluster.nodes().unwrap()[0],
        registry: cluster.registry().address(Access::Private),
        artifacts: Server::web(None, answer).unwrap(),
        artifact,
    };
    let _controller = world.start();

    world.a_commit_is_applied_and_the_next_one_is_one_change();
    world.what_undo_writes_is_reverted();
    world.a_pause_stays_with_the_annotation();
    world.without_the_configuration_nothing_changes();
    world.a_pruned_secret_restores_the_nodes();
}

impl World<'_> {
    fn start(&self) -> Companion<'_> {
        let begun = Instant::now();
        let controller = kustomize_controller(self.cluster).unwrap();
        println!(
            "kustomize-controller runs after {} s",
            begun.elapsed().as_secs()
        );
        self.cluster.types(&format!("create namespace {NAMESPACE}"));
        self.apply(&manifest(PAGE, "flux").unwrap());
        controller
    }

    fn a_commit_is_applied_and_the_next_one_is_one_change(&self) {
        let starts = self.starts();
        self.commit("first", &[self.secret_file(), self.config_file()]);
        self.wait_rolled_out();
        assert_eq!(self.starts() - starts, 1);
        let config = self.product.get(CONFIG).unwrap();
        assert_eq!(config["spec"]["rollout"]["maxUnavailable"], 1);
        assert_eq!(config["spec"]["historyLimit"], 5);

        self.rotate("committed");
        self.commit("rotated", &[self.secret_file(), self.config_file()]);
        self.wait_rolled_out();
        assert_eq!(self.starts() - starts, 2);
    }

    fn what_undo_writes_is_reverted(&self) {
        let starts = self.starts();
        let refusal =
            format!("Secret `{ADDITIONAL}` belongs to `{OWNER}`, which would undo the change");
        for args in [
            &["undo", "--yes"][..],
            &["remove", "--all", "--yes"],
            &[
                "add",
                "--skip-check",
                "--registry",
                "x.io",
                "-u",
                "u",
                "--password-stdin",
            ],
        ] {
            let ran = self.product.plugin(args, "of-mine-own").unwrap();
            assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
            assert!(ran.stderr.contains(&refusal), "{args:?}: {ran:?}");
        }
        let before = config_file::auth(self.node, &self.registry).unwrap();
        let ran = self
            .product
            .types("undo --yes --force-conflicts --wait --timeout 2m", "");
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let warning = format!("warning: `{OWNER}` may revert the change");
        assert!(ran.stderr.contains(&warning), "{ran:?}");
        let undone = config_file::auth(self.node, &self.registry).unwrap();
        assert_ne!(undone, before);
        self.reconcile();
        self.wait_rolled_out();
        assert_eq!(
            self.starts() - starts,
            2,
            "the change and what Flux restored"
        );
    }

    fn a_pause_stays_with_the_annotation(&self) {
        let paused = || self.product.get(CONFIG).unwrap()["spec"]["rollout"]["paused"] == true;
        let run = |command: &str| {
            let ran = self.product.plugin(&[command], "").unwrap();
            assert_eq!(ran.code, Some(0), "{ran:?}");
            ran.stderr.contains("Flux will revert this")
        };
        let (file, text) = self.config_file();
        let without = text.replace("kustomize.toolkit.fluxcd.io/ssa: Merge", "of-a-test: x");
        self.commit("no-annotation", &[self.secret_file(), (file, without)]);
        assert!(run("pause"), "it warns");
        assert!(paused());
        self.reconcile();
        assert!(!paused(), "Flux removes what kubectl and its plugins wrote");

        self.commit("annotation", &[self.secret_file(), self.config_file()]);
        assert!(!run("pause"), "it does not warn");
        self.reconcile();
        assert!(paused());
        assert!(!run("resume"));
        assert!(!paused());
    }

    fn without_the_configuration_nothing_changes(&self) {
        let starts = self.starts();
        let before = config_file::read(self.node).unwrap();
        // Not in the same commit, because Flux writes the Secret before it prunes.
        self.commit("no-configuration", &[self.secret_file()]);
        wait("the configuration to be pruned", POLL, || {
            Ok(self.product.get(CONFIG)?.is_null().then_some(()))
        });
        self.rotate("without-configuration");
        self.commit("rotated-without-configuration", &[self.secret_file()]);
        std::thread::sleep(Duration::from_secs(5));
        assert_eq!(config_file::read(self.node).unwrap(), before);
        assert_eq!(self.starts(), starts);
        self.commit("configuration", &[self.secret_file(), self.config_file()]);
        self.wait_rolled_out();
        assert_eq!(self.starts() - starts, 1);
    }

    fn a_pruned_secret_restores_the_nodes(&self) {
        self.commit("no-secret", &[self.config_file()]);
        self.product.wait_clean().unwrap();
        assert_eq!(config_file::read(self.node).unwrap(), None);
    }

    /// The file of the repository with the registry's current password.
    fn secret_file(&self) -> (&'static str, String) {
        let login = self.cluster.registry();
        let password = login.password().unwrap();
        secrecy::remember_login(login.user(), &password);
        let text = manifest(PAGE, "flux-secret").unwrap();
        let text = text
            .replace("registry.example.com", &self.registry)
            .replace("\"robot\"", &format!("\"{}\"", login.user()))
            .replace("\"secret\"", &format!("\"{password}\""));
        ("additional-pull-secret.yaml", text)
    }

    fn config_file(&self) -> (&'static str, String) {
        let text = manifest(PAGE, "flux-config").unwrap();
        ("global-pull-secret.yaml", text)
    }

    fn rotate(&self, password: &str) {
        self.cluster.registry().set_password(password).unwrap();
    }

    /// Makes these files the newest commit, and returns when Flux has applied it.
    fn commit(&self, name: &str, files: &[(&str, String)]) {
        let directory = tempfile::tempdir().unwrap();
        for (file, text) in files {
            fs::write(directory.path().join(file), text).unwrap();
        }
        let packed = Command::new("tar")
            .arg("-cz")
            .arg("-C")
            .arg(directory.path())
            .args(files.iter().map(|(file, _)| file))
            .output()
            .unwrap();
        assert!(packed.status.success());
        let bytes = packed.stdout;
        let digest = Sha256::digest(&bytes)
            .iter()
            .fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
        let size = bytes.len();
        *self.artifact.lock().unwrap() = bytes;
        let revision = format!("main@sha1:{}", &digest[..40]);
        let now = jiff::Timestamp::now().to_string();
        let status = json!({"status": {
            "observedGeneration": 1,
            "artifact": {
                "path": format!("gitrepository/{NAMESPACE}/pull-secrets/{name}.tar.gz"),
                "url": format!("http://{}/{name}.tar.gz", self.artifacts.address()),
                "revision": revision, "digest": format!("sha256:{digest}"), "size": size, "lastUpdateTime": now,
            },
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact",
                "lastTransitionTime": now, "observedGeneration": 1,
            }],
        }});
        let repository = "gitrepository/pull-secrets";
        let patched = self.cluster.patch_status(NAMESPACE, repository, &status);
        patched.unwrap();
        self.wait_flux(&format!("`{name}` to be applied"), |status| {
            status["lastAppliedRevision"] == revision.as_str()
        });
    }

    /// Requests a reconcile like `flux reconcile`, and returns when Flux has finished it.
    fn reconcile(&self) {
        let requested = jiff::Timestamp::now().to_string();
        let request = format!("reconcile.fluxcd.io/requestedAt={requested}");
        let annotate = ["annotate", "kustomization", "pull-secrets", "-n", NAMESPACE];
        self.cluster
            .kubectl(&[&annotate[..], &["--overwrite", &request]].concat())
            .unwrap();
        self.wait_flux("the reconciliation", |status| {
            status["lastHandledReconcileAt"] == requested.as_str()
        });
    }

    fn wait_flux(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let get = ["get", "kustomization", "pull-secrets", "-n", NAMESPACE];
        let status = || -> anyhow::Result<Value> {
            let text = self
                .cluster
                .kubectl(&[&get[..], &["-o", "json"]].concat())?;
            let found: Value = serde_json::from_str(&text)?;
            Ok(found["status"].clone())
        };
        until(what, DEADLINE, POLL, || Ok(is_so(&status()?).then_some(())))
            .unwrap_or_else(|error| panic!("{error:#}: {:#}", status().unwrap()));
    }

    /// Returns when the node has the registry's current password.
    fn wait_rolled_out(&self) {
        let registry = self.cluster.registry();
        let password = registry.password().unwrap();
        let wanted = Some(base64(&format!("{}:{password}", registry.user())));
        until("the expected entry on the node", DEADLINE, POLL, || {
            Ok((config_file::auth(self.node, &self.registry)? == wanted).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {:#}", self.product.status().unwrap()));
        self.product.wait_synced().unwrap();
    }

    fn apply(&self, text: &str) {
        self.cluster
            .kubectl_with(&["apply", "--server-side", "-f", "-"], text)
            .unwrap();
    }

    fn starts(&self) -> usize {
        self.product.kubelet_starts(self.node).unwrap()
    }
}
