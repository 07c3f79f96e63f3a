//! Runs the credential provider with kubelets of other releases, one cluster after the other, and prints what each
//! supports.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use globalps_tests::product::{CONFIG, DEADLINE, NAMESPACE, Product, merge, run};
use globalps_tests::{
    Access, Cluster, Node, Options, config_file, kubernetes, older_kubelet, until,
};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
const SOURCE: &str = "team-a-pull-secret";

/// Test the credential provider with kubelets of other releases
#[derive(Parser)]
struct Args {
    /// Releases of Kubernetes, such as `v1.34.4`
    #[arg(long, value_delimiter = ',', required = true)]
    kubelets: Vec<String>,
}

fn main() -> ExitCode {
    globalps_tests::exit_code(&try_all(&Args::parse()))
}

fn try_all(args: &Args) -> Result<()> {
    for version in &args.kubelets {
        let program = older_kubelet::build(version)?;
        let dir = kubernetes::target_dir().join("clusters/matrix");
        let cluster = Cluster::up(&Options { dir, nodes: 1 })?;
        let node = cluster.nodes()?.remove(0);
        older_kubelet::run_on(&node, &program)?;
        let found = match Tried::on(&cluster, &node, version) {
            Ok(found) => found,
            Err(error) => {
                let kubeconfig = cluster.kubeconfig();
                cluster.keep()?;
                eprintln!(
                    "the cluster is left running: KUBECONFIG={}",
                    kubeconfig.display()
                );
                return Err(error.context(version.clone()));
            }
        };
        println!("{version}: {found:?}");
        cluster.down()?;
    }
    Ok(())
}

/// Observed behavior that differs between kubelets. What must hold with every kubelet is checked instead.
#[derive(Debug)]
#[allow(dead_code, reason = "it is printed")]
struct Tried {
    /// A scope gives credentials to pods in its namespaces, and to no others.
    scopes: bool,
    /// The scope also holds for an image that is already on the node; `None`: no pod pulled it.
    pulled_images: Option<bool>,
    check: String,
}

impl Tried {
    fn on(cluster: &Cluster, node: &Node, version: &str) -> Result<Self> {
        let kubelet = "{.items[0].status.nodeInfo.kubeletVersion}";
        until("the version", DEADLINE, POLL, || {
            let seen = cluster.kubectl(&["get", "nodes", "-o", &format!("jsonpath={kubelet}")])?;
            Ok((seen == version).then_some(()))
        })?;
        let product = Product::install_with(cluster, &["--source", SOURCE])?;
        let registry = cluster.registry();
        let private = registry.address(Access::Private);
        let image = format!("{private}/team/app:1");
        let files = || -> Result<_> {
            let flags = std::fs::read(node.kubelet_dir().join("kubeadm-flags.env"))?;
            Ok((flags, config_file::read(node)?))
        };
        let before = files()?;
        let starts = || product.kubelet_starts(node);
        let delivered = |delivery: &str| {
            until(&format!("delivery by {delivery}"), DEADLINE, POLL, || {
                let status = product.node_status(node.name())?;
                let is_ready = product.condition("Ready")?.0 == "True";
                Ok((is_ready && status["delivery"] == delivery).then_some(()))
            })
        };

        // Enabling the provider, a rotation, and disabling it: works with every kubelet.
        product.apply(&registry.docker_config()?)?;
        product.wait_synced()?;
        let known = starts()?;
        deliver(cluster, &json!({"delivery": "CredentialProvider"}))?;
        delivered("CredentialProvider")?;
        ensure!(
            starts()? - known == 1,
            "{} kubelet starts when the provider was enabled",
            starts()? - known
        );
        ensure!(
            config_file::auth(node, &private)?.is_none(),
            "the credentials file has the entry too"
        );
        ensure!(
            runs(cluster, "default", &image, "Always")?,
            "a pull with the provider failed"
        );
        registry.set_password(&format!("rotated-{version}"))?;
        product.apply(&registry.docker_config()?)?;
        product.wait_synced()?;
        ensure!(
            runs(cluster, "default", &image, "Always")?,
            "a pull after a rotation failed"
        );
        ensure!(starts()? - known == 1, "a rotation restarted the kubelet");
        product.delete()?;
        product.wait_clean()?;
        ensure!(files()? == before, "the files differ from before");
        ensure!(
            starts()? - known == 2,
            "{} kubelet starts in total",
            starts()? - known
        );

        // With every kubelet a scope keeps other namespaces out; only some kubelets get credentials for the scope's
        // own.
        let other = json!({"auths": {"everybodys.example.com": {"auth": "dTpldmVyeWJvZHlz"}}});
        product.apply(&other.to_string())?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SOURCE, "namespace": NAMESPACE},
            "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": registry.docker_config()?},
        });
        let mut kubectl = cluster.kubectl_command();
        let ran = run(kubectl.args(["apply", "-f", "-"]), &secret.to_string())?;
        ensure!(ran.code == Some(0), "kubectl apply failed: {}", ran.stderr);
        let patch = json!({"spec": {
            "kubelet": {"delivery": "CredentialProvider"},
            "sources": [{"name": SOURCE, "scope": {"namespaces": ["team-a"]}}],
        }});
        until("the GlobalPullSecret", DEADLINE, POLL, || {
            Ok(merge(cluster, CONFIG, &patch).ok())
        })?;
        delivered("CredentialProvider")?;
        for namespace in ["team-a", "team-b"] {
            cluster.kubectl(&["create", "namespace", namespace])?;
        }
        // Remove the image, so that no namespace has pulled it on this node.
        node.exec(&[
            "sh",
            "-c",
            "ctr -n k8s.io images ls -q | grep team/app | xargs -r ctr -n k8s.io images rm --sync",
        ])?
        .ok()?;
        let scopes = runs(cluster, "team-a", &image, "Always")?;
        ensure!(
            !runs(cluster, "team-b", &image, "Always")?,
            "a pod outside the scope could pull"
        );
        let pulled_images = match scopes {
            true => Some(!runs(cluster, "team-b", &image, "IfNotPresent")?),
            false => None,
        };
        let status = product.status()?;
        let source = &status["sources"][0];
        ensure!(
            scopes
                || source["message"]
                    .as_str()
                    .is_some_and(|text| text.contains(version.trim_start_matches('v'))),
            "the source does not report why: {source}"
        );
        let check = product.plugin(&["check"], "")?.stdout;
        let who = format!("({version})");
        let check = check.lines().find(|line| line.contains(&who));
        let check = check.with_context(|| format!("`check` does not name {who}"))?;
        let check = check.trim().to_owned();
        cluster.kubectl(&["delete", "secret", SOURCE, "-n", NAMESPACE])?;
        product.delete()?;
        product.wait_clean()?;
        ensure!(files()? == before, "the files differ from before");
        Ok(Self {
            scopes,
            pulled_images,
            check,
        })
    }
}

fn deliver(cluster: &Cluster, kubelet: &Value) -> Result<()> {
    merge(cluster, CONFIG, &json!({"spec": {"kubelet": kubelet}}))
}

/// Whether a pod in this namespace runs. `false`: its image could not be pulled.
fn runs(cluster: &Cluster, namespace: &str, image: &str, policy: &str) -> Result<bool> {
    let gone = [
        "delete",
        "pod",
        "p",
        "-n",
        namespace,
        "--ignore-not-found",
        "--force",
        "--grace-period=0",
    ];
    cluster.kubectl(&gone)?;
    let policy = format!("--image-pull-policy={policy}");
    let image = format!("--image={image}");
    until("the pod", DEADLINE, POLL, || {
        // A new namespace does not have its service account yet.
        Ok(cluster
            .kubectl(&["run", "p", "-n", namespace, &image, &policy])
            .ok())
    })?;
    until(&format!("a pod of {namespace}"), DEADLINE, POLL, || {
        let pod = cluster.kubectl(&["get", "pod", "p", "-n", namespace, "-o", "json"])?;
        let pod: Value = serde_json::from_str(&pod)?;
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
        let is_refused = ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"]
            .iter()
            .any(|reason| waiting == reason);
        let is_running = pod["status"]["phase"] == "Running";
        Ok((is_running || is_refused).then_some(is_running))
    })
}
