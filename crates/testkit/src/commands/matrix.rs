//! Runs tests on clusters of several releases of Kubernetes, one release after the other, then beside several releases of
//! kubeadm, and writes what works with which: `docs/compatibility.md`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::matrix_kubeadm as kubeadm;
use crate::compatibility::{Observed, Release, with_clusters};
use crate::product::{CONFIG, DEADLINE, NAMESPACE, Product, merge, pull_secret};
use crate::suite::{self, Capacity};
use crate::{Access, Cluster, Node, config_file, containerd, crio, kubernetes, until};
use anyhow::{Context as _, Result, ensure};
use jiff::Zoned;
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
const SOURCE: &str = "team-a-pull-secret";
/// Test programs that run on every release.
const PROGRAMS: [&str; 3] = ["flow", "refusals", "namespaces"];
pub(super) const CAPACITY: Capacity = Capacity { busy: 6, idle: 9 };
pub(super) const LIMIT: Duration = Duration::from_mins(20);
/// Prefix of the line with the observations.
const OBSERVED: &str = "observed: ";

/// For each minor version that globalps supports, the newest release that is complete on the Go module proxy.
const RELEASES: [&str; 8] = [
    "v1.30.14", "v1.31.4", "v1.32.5", "v1.33.13", "v1.34.4", "v1.35.4", "v1.36.3", "v1.37.2",
];
/// Further releases of containerd for the newest Kubernetes: the last 1.x, the one with long-term support, and the
/// newest. The machine's own is 1.6.
const CONTAINERD: [&str; 3] = ["v1.7.35", "v2.3.7", "v2.4.2"];

#[derive(clap::Args)]
pub struct Args {
    /// Releases of Kubernetes, such as `v1.34.4`. Without any of Kubernetes and containerd: all that are supported, and those of kubeadm
    #[arg(long, env = "VERSIONS", value_delimiter = ',')]
    releases: Vec<String>,
    /// Releases of containerd, such as `v2.4.2`, for a run each with the newest Kubernetes
    #[arg(long, env = "RUNTIMES", value_delimiter = ',')]
    containerd: Vec<String>,
    /// Directory with CRI-O's programs `crio` and `pinns`, which no package of Debian 12 and no Go module has, for a run with the newest
    /// Kubernetes
    #[arg(long, env)]
    crio: Option<String>,
    /// Write the result to this file, whose other parts stay
    #[arg(long)]
    output: Option<PathBuf>,
    /// Observe the release of the variable `KUBERNETES`, and nothing else
    #[arg(long, hide = true)]
    observe: bool,
}

pub fn run(args: &Args) -> Result<()> {
    if args.observe {
        observe()
    } else {
        try_all(args)
    }
}

impl Args {
    /// Releases of Kubernetes, containerd and kubeadm.
    fn chosen(&self) -> (Vec<&str>, Vec<&str>, Vec<&str>) {
        if self.releases.is_empty() && self.containerd.is_empty() {
            return (RELEASES.into(), CONTAINERD.into(), kubeadm::RELEASES.into());
        }
        (words(&self.releases), words(&self.containerd), Vec::new())
    }
}

pub(super) fn words(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

fn try_all(args: &Args) -> Result<()> {
    let (mut releases, mut failed) = (Vec::new(), Vec::new());
    let newest = |containerd, crio| (kubernetes::VERSION, containerd, crio);
    let (kubernetes, containerd, kubeadm) = args.chosen();
    let kubernetes = kubernetes.into_iter().map(|version| (version, "", ""));
    let containerd = containerd.into_iter().map(|release| newest(release, ""));
    let crio = args.crio.iter().map(|directory| newest("", directory));
    for (version, containerd, crio) in kubernetes.chain(containerd).chain(crio) {
        println!("\n##### Kubernetes {version} {containerd}{crio}");
        let built = Command::new(std::env::current_exe()?)
            .args(["cluster", "build"])
            .env("KUBERNETES", version)
            .status()?;
        if !built.success() {
            println!("Kubernetes {version} could not be built");
            failed.push(version.to_owned());
            continue;
        }
        let programs = suite::build(&PROGRAMS.map(str::to_owned))?;
        let variables = [
            ("KUBERNETES", version),
            ("CONTAINERD", containerd),
            ("CRIO", crio),
        ];
        let outcomes = suite::run(programs, CAPACITY, LIMIT, &variables)?;
        let observed = observed(&variables);
        if let Err(error) = &observed {
            println!("{version}: {error:#}");
        }
        releases.push(Release {
            version: version.to_owned(),
            runtime: match (containerd, crio) {
                ("", "") => None,
                ("", _) => Some("CRI-O".to_owned()),
                _ => Some(format!("containerd {containerd}")),
            },
            programs: outcomes
                .iter()
                .map(|outcome| (outcome.name.to_owned(), outcome.passed))
                .collect(),
            observed: observed.ok(),
        });
        releases.sort_by_key(Release::minor);
        write(args.output.as_deref(), |old| {
            with_clusters(old, &releases, Zoned::now().date())
        })?;
    }
    failed.extend(kubeadm::test(&kubeadm, args.output.as_deref())?);
    let broken = releases.iter().filter(|release| !release.works());
    failed.extend(broken.map(|release| release.version.clone()));
    verdict(&failed)
}

pub(super) fn verdict(failed: &[String]) -> Result<()> {
    ensure!(
        failed.is_empty(),
        "failed with Kubernetes {}",
        failed.join(", ")
    );
    Ok(())
}

/// Prints the page, and writes it to the file, if one is given. `page`: makes the page from the old one.
pub(super) fn write(output: Option<&Path>, page: impl Fn(&str) -> String) -> Result<()> {
    let old = output.map(std::fs::read_to_string);
    let page = page(&old.transpose()?.unwrap_or_default());
    println!("\n{page}");
    if let Some(output) = output {
        std::fs::write(output, &page)?;
    }
    Ok(())
}

/// Runs in a process of its own, because variables of the process select the releases.
fn observed(variables: &[(&str, &str)]) -> Result<Observed> {
    let ran = Command::new(std::env::current_exe()?)
        .args(["matrix", "--observe"])
        .envs(variables.iter().copied())
        .stderr(std::process::Stdio::inherit())
        .output()?;
    let said = String::from_utf8_lossy(&ran.stdout);
    let line = said.lines().find_map(|line| line.strip_prefix(OBSERVED));
    let line = line.context("the credential provider failed with this release")?;
    Ok(serde_json::from_str(line)?)
}

fn observe() -> Result<()> {
    let version = kubernetes::version();
    let cluster = Cluster::up_named("matrix", 1)?;
    let node = cluster.nodes()?.remove(0);
    let found = on(&cluster, &node, &version).context(version)?;
    println!("{OBSERVED}{}", serde_json::to_string(&found)?);
    cluster.down()
}

/// A node with this release, and its files before any delivery.
struct World<'a> {
    cluster: &'a Cluster,
    node: &'a Node,
    product: Product<'a>,
    version: &'a str,
    /// An image in the private registry.
    image: String,
    before: Files,
}

/// The kubelet's flags, and the credentials file.
type Files = (Vec<u8>, Option<config_file::ConfigFile>);

/// Checks what must work with every release, and returns what differs.
fn on(cluster: &Cluster, node: &Node, version: &str) -> Result<Observed> {
    let path = "jsonpath={.items[0].status.nodeInfo['kubeletVersion','containerRuntimeVersion']}";
    let runtime = until("the version", DEADLINE, POLL, || {
        let seen = cluster.kubectl(&["get", "nodes", "-o", path])?;
        let seen = seen
            .strip_prefix(version)
            .map(|rest| rest.trim().to_owned());
        Ok(seen.filter(|runtime| !runtime.is_empty()))
    })?;
    let wanted = match (crio::directory(), containerd::version()) {
        (Some(_), _) => "cri-o://".to_owned(),
        (None, Some(release)) => release.trim_start_matches('v').to_owned(),
        (None, None) => String::new(),
    };
    ensure!(
        runtime.contains(&wanted),
        "the nodes run {runtime}, not {wanted}"
    );
    let world = World {
        cluster,
        node,
        product: Product::install_with(cluster, &["--source", SOURCE])?,
        version,
        image: format!("{}/team/app:1", cluster.registry().address(Access::Private)),
        before: files(node)?,
    };
    // Comes first, because the kubelet remembers images that it has pulled for every pod.
    let (scopes, pulled_images, check) = world.scopes()?;
    world.a_provider_for_every_pod()?;
    let admission =
        cluster.kubectl(&["api-resources", "--api-group=admissionregistration.k8s.io"])?;
    let admission = admission.lines().any(|line| {
        line.starts_with("mutatingadmissionpolicies ")
            && line.contains("admissionregistration.k8s.io/v1 ")
    });
    let minor = kubernetes::minor();
    for (feature, is_there, since) in [
        ("scopes", scopes, 34),
        ("a scope for pulled images", pulled_images == Some(true), 35),
        ("MutatingAdmissionPolicy v1", admission, 36),
    ] {
        ensure!(
            is_there == (minor >= since),
            "{feature}: {is_there} with {version}, and 1.{since} is the first release with it"
        );
    }
    Ok(Observed {
        runtime,
        scopes,
        pulled_images,
        admission,
        check,
    })
}

fn files(node: &Node) -> Result<Files> {
    let flags = std::fs::read(node.kubelet_dir().join("kubeadm-flags.env"))?;
    Ok((flags, config_file::read(node)?))
}

impl World<'_> {
    /// With every kubelet, a scope excludes other namespaces; only some kubelets get credentials for the scope's own.
    /// Returns whether this one does, whether it also checks images that are already on the node, and the line of
    /// `check`.
    fn scopes(&self) -> Result<(bool, Option<bool>, String)> {
        let other = json!({"auths": {"everybodys.example.com": {"auth": "dTpldmVyeWJvZHlz"}}});
        self.product.apply(&other.to_string())?;
        let content = self.cluster.registry().docker_config()?;
        let secret = pull_secret(NAMESPACE, SOURCE, &content);
        self.cluster.kubectl_with(&["apply", "-f", "-"], &secret)?;
        self.configure(&json!({
            "kubelet": {"delivery": "CredentialProvider"},
            "sources": [{"name": SOURCE, "scope": {"namespaces": ["team-a"]}}],
        }))?;
        self.delivered("CredentialProvider")?;
        for namespace in ["team-a", "team-b"] {
            self.cluster.kubectl(&["create", "namespace", namespace])?;
        }
        let scopes = self.runs("team-a", "Always")?;
        ensure!(
            !self.runs("team-b", "Always")?,
            "a pod outside the scope could pull"
        );
        let pulled_images = match scopes {
            true => Some(!self.runs("team-b", "IfNotPresent")?),
            false => None,
        };
        let status = self.product.status()?;
        let source = &status["sources"][0];
        let version = self.version.trim_start_matches('v');
        let says_why = |text: &str| text.contains(version);
        ensure!(
            scopes || source["message"].as_str().is_some_and(says_why),
            "the source does not report why: {source}"
        );
        let check = self.product.plugin(&["check"], "")?.stdout;
        let who = format!("({})", self.version);
        let check = check.lines().find(|line| line.contains(&who));
        let check = check.with_context(|| format!("`check` does not name {who}"))?;
        let check = check.trim().to_owned();
        self.cluster
            .kubectl(&["delete", "secret", SOURCE, "-n", NAMESPACE])?;
        self.removed()?;
        self.configure(&json!({"kubelet": {"delivery": "ConfigFile"}, "sources": null}))?;
        Ok((scopes, pulled_images, check))
    }

    /// Enables the provider, rotates, and disables it, which works with every kubelet.
    fn a_provider_for_every_pod(&self) -> Result<()> {
        let registry = self.cluster.registry();
        let starts = || self.product.kubelet_starts(self.node);
        self.product.apply(&registry.docker_config()?)?;
        self.product.wait_synced()?;
        let known = starts()?;
        self.configure(&json!({"kubelet": {"delivery": "CredentialProvider"}}))?;
        self.delivered("CredentialProvider")?;
        ensure!(
            starts()? - known == 1,
            "{} kubelet starts when the provider was enabled",
            starts()? - known
        );
        ensure!(
            config_file::auth(self.node, &registry.address(Access::Private))?.is_none(),
            "the credentials file has the entry too"
        );
        ensure!(
            self.runs("default", "Always")?,
            "a pull with the provider failed"
        );
        registry.set_password(&format!("rotated-{}", self.version))?;
        self.product.apply(&registry.docker_config()?)?;
        self.product.wait_synced()?;
        ensure!(
            self.runs("default", "Always")?,
            "a pull after a rotation failed"
        );
        ensure!(starts()? - known == 1, "a rotation restarted the kubelet");
        self.removed()?;
        ensure!(
            starts()? - known == 2,
            "{} kubelet starts in total",
            starts()? - known
        );
        Ok(())
    }

    fn configure(&self, spec: &Value) -> Result<()> {
        let patch = json!({"spec": spec});
        until("the GlobalPullSecret", DEADLINE, POLL, || {
            Ok(merge(self.cluster, CONFIG, &patch).ok())
        })
    }

    fn delivered(&self, delivery: &str) -> Result<()> {
        let nodes = std::slice::from_ref(self.node);
        self.product.wait_delivered(nodes, delivery)
    }

    /// Deletes the additional Secret, and checks that the node is in its original state.
    fn removed(&self) -> Result<()> {
        self.product.delete()?;
        self.product.wait_clean()?;
        ensure!(
            files(self.node)? == self.before,
            "the files differ from before"
        );
        Ok(())
    }

    fn runs(&self, namespace: &str, policy: &str) -> Result<bool> {
        runs(self.cluster, namespace, &self.image, policy)
    }
}

/// Whether a pod in this namespace runs; `false` if its image could not be pulled.
fn runs(cluster: &Cluster, namespace: &str, image: &str, policy: &str) -> Result<bool> {
    cluster.kubectl_line(&format!(
        "delete pod p -n {namespace} --ignore-not-found --force --grace-period=0"
    ))?;
    let policy = format!("--image-pull-policy={policy}");
    let image = format!("--image={image}");
    until("the pod", DEADLINE, POLL, || {
        // A new namespace does not have its service account yet.
        Ok(cluster
            .kubectl(&["run", "p", "-n", namespace, &image, &policy])
            .ok())
    })?;
    until(&format!("a pod of {namespace}"), DEADLINE, POLL, || {
        let pod = cluster.get(namespace, "pod/p")?;
        ensure!(!pod.is_null(), "there is no pod");
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
        let is_refused = ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"]
            .iter()
            .any(|reason| waiting == reason);
        let is_running = pod["status"]["phase"] == "Running";
        Ok((is_running || is_refused).then_some(is_running))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_releases_leave_out_the_others_and_those_of_kubeadm() {
        let args = |releases: &[&str], containerd: &[&str]| Args {
            releases: releases.iter().map(ToString::to_string).collect(),
            containerd: containerd.iter().map(ToString::to_string).collect(),
            crio: None,
            output: None,
            observe: false,
        };
        let all = (RELEASES.into(), CONTAINERD.into(), kubeadm::RELEASES.into());
        assert_eq!(args(&[], &[]).chosen(), all);
        let one = args(&["v1.36.3"], &[]);
        assert_eq!(one.chosen(), (vec!["v1.36.3"], vec![], vec![]));
        let one = args(&[], &["v2.4.2"]);
        assert_eq!(one.chosen(), (vec![], vec!["v2.4.2"], vec![]));
    }
}
