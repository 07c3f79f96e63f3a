//! The controller of External Secrets writes the pull secrets, with the manifests of `docs/ecosystem.md`. It rotates,
//! deletes and recreates them, and no node loses its credentials.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::admin::Admin;
use common::{base64, cluster};
use globalps_testkit::companions::external_secrets;
use globalps_testkit::printed::{console, manifest};
use globalps_testkit::product::{ADDITIONAL, DEADLINE, NAMESPACE, Product};
use globalps_testkit::{Access, Cluster, Node, config_file, secrecy, until, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(50);
const PAGE: &str = "ecosystem.md";
/// Longer than the controller waits before it restores nodes, and than a change takes to begin.
const QUIET: Duration = Duration::from_secs(5);
const TEAM: &str = "team-a-pull-secret";
const TEAM_REGISTRY: &str = "team-a.example.com";

struct World<'a> {
    cluster: &'a Cluster,
    product: &'a Product<'a>,
    node: &'a Node,
    /// Address of the private registry.
    registry: String,
}

#[test]
fn nodes_keep_credentials_whatever_external_secrets_does() {
    let cluster = cluster("external-secrets", 1);
    let product = Product::install(&cluster).unwrap();
    let world = World {
        cluster: &cluster,
        product: &product,
        node: &cluster.nodes().unwrap()[0],
        registry: cluster.registry().address(Access::Private),
    };
    let begun = Instant::now();
    let _controller = external_secrets(&cluster, &[]).unwrap();
    println!(
        "External Secrets runs after {} s",
        begun.elapsed().as_secs()
    );
    cluster.types("create namespace credentials");
    let api = world.cluster.api_url();
    let store = manifest(PAGE, "external-secrets-store").unwrap();
    world.apply(&store.replace("https://kubernetes.default.svc", &api));

    world.the_secret_is_created_and_rolled_out();
    world.a_refresh_without_a_change_is_none();
    world.a_rotation_is_one_change();
    world.a_secret_that_is_deleted_is_back_before_a_node_notices(ADDITIONAL, &world.registry);
    world.an_entry_that_disappears_from_the_store_changes_nothing();
    world.the_plugin_leaves_the_secret_to_its_owner();
    world.an_external_secret_without_its_secret_can_go_and_return();
    world.a_source_works_the_same_way();
    world.without_the_external_secrets_the_nodes_are_restored();
}

impl World<'_> {
    fn the_secret_is_created_and_rolled_out(&self) {
        let starts = self.starts();
        self.write_login("registry", &self.user(), &self.password());
        self.apply_external_secret();
        self.wait_auth(&self.registry, Some(&self.login()));
        self.settle();
        assert_eq!(self.starts() - starts, 1);
        let image = format!("{}/team/app:1", self.registry);
        self.product
            .start_pod("app", &image, self.node.name())
            .unwrap();
        self.product.wait_pod("app", false).unwrap();
    }

    fn a_refresh_without_a_change_is_none(&self) {
        let before = (self.starts(), self.revision());
        self.refresh(ADDITIONAL);
        thread::sleep(QUIET);
        assert_eq!((self.starts(), self.revision()), before);
    }

    fn a_rotation_is_one_change(&self) {
        let starts = self.starts();
        let registry = self.cluster.registry();
        registry.set_password("rotated-in-the-vault").unwrap();
        self.without_loss(&self.registry, || {
            self.write_login("registry", &self.user(), &self.password());
            self.refresh(ADDITIONAL);
            self.wait_auth(&self.registry, Some(&self.login()));
            self.settle();
        });
        assert_eq!(self.starts() - starts, 1);
    }

    fn a_secret_that_is_deleted_is_back_before_a_node_notices(&self, name: &str, registry: &str) {
        let before = (self.starts(), self.revision());
        let uid = |secret: &Value| secret["metadata"]["uid"].as_str().map(str::to_owned);
        let old = uid(&self.secret(name)).unwrap();
        self.without_loss(registry, || {
            let begun = Instant::now();
            let delete = ["delete", "secret", name, "-n", NAMESPACE];
            self.cluster.kubectl(&delete).unwrap();
            wait("the Secret to be back", POLL, || {
                let new = uid(&self.secret(name));
                Ok(new.filter(|new| *new != old).map(drop))
            });
            println!("`{name}` is back after {} ms", begun.elapsed().as_millis());
            thread::sleep(QUIET);
            self.settle();
        });
        assert_eq!((self.starts(), self.revision()), before);
    }

    fn an_entry_that_disappears_from_the_store_changes_nothing(&self) {
        let before = (self.starts(), self.revision());
        self.without_loss(&self.registry, || {
            let delete = ["delete", "secret", "registry", "-n", "credentials"];
            self.cluster.kubectl(&delete).unwrap();
            self.annotate(ADDITIONAL);
            self.wait_external_secret(ADDITIONAL, "False");
            thread::sleep(QUIET);
            self.write_login("registry", &self.user(), &self.password());
            self.annotate(ADDITIONAL);
            self.wait_external_secret(ADDITIONAL, "True");
            self.settle();
        });
        assert_eq!((self.starts(), self.revision()), before);
    }

    fn the_plugin_leaves_the_secret_to_its_owner(&self) {
        let starts = self.starts();
        let refusal = format!(
            "Secret `{ADDITIONAL}` belongs to `ExternalSecret/{ADDITIONAL}`, which would undo the change"
        );
        let add = [
            "add",
            "--skip-check",
            "--registry",
            "mine.example.com",
            "-u",
            "robot",
            "--password-stdin",
        ];
        for (args, input) in [
            (&add[..], "of-mine-own"),
            (&["undo", "--yes"], ""),
            (&["remove", "--all", "--yes"], ""),
        ] {
            let ran = self.product.plugin(args, input).unwrap();
            assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
            assert!(ran.stderr.contains(&refusal), "{args:?}: {ran:?}");
        }
        let content = self.secret(ADDITIONAL)["data"].clone();
        let undo = ["undo", "--yes", "--force-conflicts"];
        let ran = self.product.plugin(&undo, "").unwrap();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let warning = format!("warning: `ExternalSecret/{ADDITIONAL}` may revert the change");
        assert!(ran.stderr.contains(&warning), "{ran:?}");
        let begun = Instant::now();
        wait("the content of the owner", POLL, || {
            Ok((self.secret(ADDITIONAL)["data"] == content).then_some(()))
        });
        println!("reverted after {} ms", begun.elapsed().as_millis());
        self.wait_auth(&self.registry, Some(&self.login()));
        self.settle();
        let starts = self.starts() - starts;
        println!("`undo --force-conflicts`, reverted: {starts} kubelet starts");
        assert!(starts <= 2, "{starts}");
    }

    fn an_external_secret_without_its_secret_can_go_and_return(&self) {
        let before = (self.starts(), self.revision());
        let owners = || {
            let secret = self.secret(ADDITIONAL);
            secret["metadata"]["ownerReferences"]
                .as_array()
                .map(Vec::len)
        };
        self.without_loss(&self.registry, || {
            let admin = Admin::new(self.cluster);
            let [release, delete]: [String; 2] =
                console(PAGE, "release").unwrap().try_into().unwrap();
            admin.types(&release);
            wait("the Secret to be released", POLL, || {
                Ok(owners().unwrap_or(0).eq(&0).then_some(()))
            });
            admin.types(&delete);
            thread::sleep(QUIET);
            self.apply_external_secret();
            wait("the Secret to be taken over", POLL, || {
                Ok((owners() == Some(1)).then_some(()))
            });
            self.settle();
        });
        assert_eq!((self.starts(), self.revision()), before);
    }

    fn a_source_works_the_same_way(&self) {
        let install = ["install", "--source", TEAM, "--apply"];
        let ran = self.product.plugin(&install, "").unwrap();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        self.settle();
        for password in ["of-team-a", "of-team-a-rotated"] {
            let starts = self.starts();
            self.write_login("team-a", "team-a", password);
            if password == "of-team-a" {
                self.apply(&manifest(PAGE, "external-secrets-source").unwrap());
            } else {
                self.refresh(TEAM);
            }
            self.wait_auth(TEAM_REGISTRY, Some(&format!("team-a:{password}")));
            self.settle();
            assert_eq!(self.starts() - starts, 1, "{password}");
        }
        self.a_secret_that_is_deleted_is_back_before_a_node_notices(TEAM, TEAM_REGISTRY);
    }

    fn without_the_external_secrets_the_nodes_are_restored(&self) {
        self.cluster.types(&format!(
            "delete externalsecret {ADDITIONAL} {TEAM} -n {NAMESPACE}"
        ));
        self.product.wait_clean().unwrap();
        assert_eq!(config_file::read(self.node).unwrap(), None);
    }

    fn user(&self) -> String {
        self.cluster.registry().user().to_owned()
    }

    fn password(&self) -> String {
        self.cluster.registry().password().unwrap()
    }

    fn login(&self) -> String {
        format!("{}:{}", self.user(), self.password())
    }

    /// Writes a user and a password into the store.
    fn write_login(&self, name: &str, user: &str, password: &str) {
        secrecy::remember_login(user, password);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "credentials"},
            "stringData": {"username": user, "password": password},
        });
        self.apply(&secret.to_string());
    }

    fn apply_external_secret(&self) {
        let printed = manifest(PAGE, "external-secrets").unwrap();
        self.apply(&printed.replace("registry.example.com", &self.registry));
    }

    fn apply(&self, text: &str) {
        self.cluster.apply(text).unwrap();
    }

    fn secret(&self, name: &str) -> Value {
        self.product.get(&format!("secret/{name}")).unwrap()
    }

    fn external_secret(&self, name: &str) -> Value {
        self.product.get(&format!("externalsecret/{name}")).unwrap()
    }

    /// Requests a refresh.
    fn annotate(&self, name: &str) {
        let now = jiff::Timestamp::now().as_nanosecond();
        let force = format!("force-sync={now}");
        let annotate = ["annotate", "externalsecret", name, "-n", NAMESPACE];
        self.cluster
            .kubectl(&[&annotate[..], &["--overwrite", &force]].concat())
            .unwrap();
    }

    /// Returns when External Secrets has refreshed the Secret. Its timestamps have a resolution of one second.
    fn refresh(&self, name: &str) {
        let time = || self.external_secret(name)["status"]["refreshTime"].clone();
        let before = time();
        thread::sleep(Duration::from_secs(1));
        self.annotate(name);
        wait("a refresh", POLL, || Ok((time() != before).then_some(())));
    }

    fn wait_external_secret(&self, name: &str, wanted: &str) {
        let what = format!("Ready={wanted} of ExternalSecret `{name}`");
        until(&what, DEADLINE, POLL, || {
            let found = self.external_secret(name);
            let conditions = found["status"]["conditions"].as_array().cloned();
            let mut conditions = conditions.into_iter().flatten();
            let is_so = conditions.any(|it| it["type"] == "Ready" && it["status"] == wanted);
            Ok(is_so.then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {:#}", self.external_secret(name)["status"]));
    }

    fn starts(&self) -> usize {
        self.product.kubelet_starts(self.node).unwrap()
    }

    fn revision(&self) -> i64 {
        self.product.revision().unwrap()
    }

    fn settle(&self) {
        self.product.wait_node_synced(self.node.name()).unwrap();
    }

    fn wait_auth(&self, registry: &str, pair: Option<&str>) {
        let wanted = pair.map(base64);
        until("the expected entry on the node", DEADLINE, POLL, || {
            Ok((config_file::auth(self.node, registry)? == wanted).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {:#}", self.product.status().unwrap()));
    }

    /// Fails if the node lacks an entry for the registry at any moment of the change.
    fn without_loss(&self, registry: &str, change: impl FnOnce()) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut lost = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let auth = config_file::auth(self.node, registry);
                    lost += u32::from(!matches!(auth, Ok(Some(_))));
                    thread::sleep(Duration::from_millis(10));
                }
                lost
            });
            let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(change));
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(watch.join().unwrap(), 0, "the node lost its credentials");
            if let Err(panic) = changed {
                std::panic::resume_unwind(panic);
            }
        });
    }
}
