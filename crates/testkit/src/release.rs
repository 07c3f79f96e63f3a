//! A release of globalps as manifests, images, plugin and chart, for tests of upgrades and downgrades: this tree, the previous
//! release, which `make previous` builds, or the previous one with its plugin, which `make previous-chart` builds.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::product::Product;
use crate::{Access, Cluster, kubernetes};

const CONTROLLER_LINE: &str = "image: globalps-controller:";
const SYNCER_LINE: &str = "- --syncer-image=globalps-syncer:";
/// A line of the policy that limits the DaemonSet.
const POLICY_LINE: &str = r#"- expression: "\"globalps-syncer:"#;

/// A release whose images are built.
#[derive(Clone, Debug)]
pub struct Release {
    /// Tag of its images.
    tag: &'static str,
    /// Its source code.
    source: PathBuf,
    images: PathBuf,
    plugin: PathBuf,
}

/// A release whose images are in a cluster's registry.
#[derive(Clone, Debug)]
pub struct Pushed {
    manifests: String,
    /// References of the images.
    pub controller: String,
    pub syncer: String,
}

impl Release {
    /// This tree; needs `make image`.
    pub fn current() -> Self {
        Self {
            tag: "current",
            source: kubernetes::workspace(),
            images: kubernetes::target_dir().join("images"),
            plugin: Product::plugin_path(),
        }
    }

    /// The previous release; needs `make previous`. It has no chart, and its plugin is not built.
    pub fn previous() -> Self {
        Self::built("previous")
    }

    /// The previous release with its plugin and chart; needs `make previous-chart`.
    pub fn previous_chart() -> Self {
        Self::built("previous-chart")
    }

    fn built(name: &'static str) -> Self {
        let root = kubernetes::target_dir().join(name);
        Self {
            tag: name,
            source: root.join("source"),
            images: root.join("images"),
            plugin: root.join("kubectl-globalps"),
        }
    }

    /// Path of the plugin's program.
    pub fn plugin(&self) -> &Path {
        &self.plugin
    }

    /// Directory of the Helm chart.
    pub fn chart(&self) -> PathBuf {
        self.source.join("charts/globalps")
    }

    /// Pushes both images into the cluster's open registry.
    pub fn push(&self, cluster: &Cluster) -> Result<Pushed> {
        let push = |name: &str| {
            let archive = self.images.join(format!("{name}.tar"));
            ensure!(
                archive.exists(),
                "`{}` is missing: run `make image previous previous-chart`",
                archive.display()
            );
            let name = format!("{name}:{}", self.tag);
            cluster.registry().push(&archive, Access::Open, &name)
        };
        let mut manifests = Vec::new();
        for name in ["crds.yaml", "install.yaml"] {
            let path = self.source.join("manifests").join(name);
            let text = fs::read_to_string(&path)
                .with_context(|| format!("could not read `{}`", path.display()))?;
            manifests.push(text);
        }
        Ok(Pushed {
            manifests: manifests.join("\n---\n"),
            controller: push("globalps-controller")?,
            syncer: push("globalps-syncer")?,
        })
    }
}

/// Applies the controller's manifests, with the syncer of this or another release, and waits until this controller is
/// the only one. The controller replaces the syncers later.
pub fn install(cluster: &Cluster, controller: &Pushed, syncer: &Pushed) -> Result<()> {
    let manifests = with_images(
        &controller.manifests,
        &controller.controller,
        &syncer.syncer,
    )?;
    cluster.apply(manifests)?;
    cluster.kubectl_line(
        "rollout status deployment/globalps-controller --namespace=globalps-system --timeout=2m",
    )?;
    Ok(())
}

/// Whether every syncer belongs to this release and is ready.
pub fn syncers_are(cluster: &Cluster, release: &Pushed) -> Result<bool> {
    let status = cluster.kubectl(&[
        "get",
        "daemonset/global-pull-secret-syncer",
        "--namespace=kube-system",
        "-o=jsonpath={.spec.template.spec.containers[0].image} {.metadata.generation} {.status.observedGeneration} \
         {.status.desiredNumberScheduled} {.status.updatedNumberScheduled} {.status.numberReady}",
    ])?;
    let words: Vec<&str> = status.split(' ').collect();
    Ok(match words[..] {
        [image, generation, observed, desired, updated, ready] => {
            image == release.syncer
                && generation == observed
                && desired == updated
                && desired == ready
        }
        // The DaemonSet's status is not updated yet.
        _ => false,
    })
}

/// The manifests with these images.
fn with_images(manifests: &str, controller: &str, syncer: &str) -> Result<String> {
    let mut replaced = 0;
    let lines: Vec<String> = manifests
        .lines()
        .map(|line| {
            let indent = &line[..line.len() - line.trim_start().len()];
            let new = if line.trim_start().starts_with(CONTROLLER_LINE) {
                format!("{indent}image: {controller}")
            } else if line.trim_start().starts_with(SYNCER_LINE) {
                format!("{indent}- --syncer-image={syncer}")
            } else if line.trim_start().starts_with(POLICY_LINE) {
                format!("{indent}- expression: '\"{syncer}\"'")
            } else {
                return line.to_owned();
            };
            replaced += 1;
            new
        })
        .collect();
    ensure!(
        replaced == 3,
        "the manifests name {replaced} images, not the controller's and twice the syncer's"
    );
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_images_of_committed_manifests_are_replaced() {
        let path = Release::current().source.join("manifests/install.yaml");
        let before = fs::read_to_string(path).unwrap();
        let after = with_images(&before, "r/c:1", "r/s:1").unwrap();
        let changed: Vec<&str> = before
            .lines()
            .zip(after.lines())
            .filter(|(before, after)| before != after)
            .map(|(_, after)| after.trim())
            .collect();
        let expected = [
            "- expression: '\"r/s:1\"'",
            "- --syncer-image=r/s:1",
            "image: r/c:1",
        ];
        assert_eq!(changed, expected);
        with_images("image: other:1", "r/c:1", "r/s:1").unwrap_err();
    }
}
