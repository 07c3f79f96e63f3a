//! Programs of other projects: Helm, Argo CD's sync engine, and controllers as processes beside a test cluster with its admin's permissions: External
//! Secrets, and Flux's kustomize-controller. Each is built from the Go module proxy the first time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::kubernetes::{build_beside, module_dir, target_dir, workspace};
use crate::pki::{Authority, write_private};
use crate::process::spawn;
use crate::{Cluster, control_plane};

const EXTERNAL_SECRETS: &str = "external-secrets";
const EXTERNAL_SECRETS_MODULE: &str = "github.com/external-secrets/external-secrets";
const KUSTOMIZE_CONTROLLER: &str = "kustomize-controller";
const KUSTOMIZE_CONTROLLER_MODULE: &str = "github.com/fluxcd/kustomize-controller";
/// The parts of the module that the build of External Secrets needs.
const PARTS: [&str; 6] = ["apis", "cmd", "pkg", "main.go", "go.mod", "go.sum"];

/// The program `helm`.
pub fn helm() -> Result<PathBuf> {
    let flags = ["-ldflags", "-s -w"];
    build_beside("tests/helm", &flags, "helm.sh/helm/v4/cmd/helm", "helm")
}

/// The program `helm` of Helm 3. Like its own builds, it assumes the Kubernetes release of its client library if there
/// is no cluster.
pub fn helm3() -> Result<PathBuf> {
    let kubernetes = "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=37";
    let flags = ["-ldflags", &format!("-s -w {kubernetes}")];
    build_beside("tests/helm3", &flags, "helm.sh/helm/v3/cmd/helm", "helm3")
}

/// A program that handles a chart with Helm's SDK, like Flux's helm-controller.
pub fn flux_helm() -> Result<PathBuf> {
    build_beside("tests/helm", &["-ldflags", "-s -w"], "./flux", "flux-helm")
}

/// A program that runs one synchronization by Argo CD's sync engine.
pub fn argocd() -> Result<PathBuf> {
    build_beside("tests/argocd", &["-ldflags", "-s -w"], ".", "argocd")
}

/// A running program; it ends when this is dropped.
pub struct Companion<'a> {
    cluster: &'a Cluster,
    name: &'static str,
    /// Its temporary files.
    _temporary: Option<TempDir>,
}

impl Drop for Companion<'_> {
    fn drop(&mut self) {
        if let Err(error) = control_plane::kill(self.cluster.layout(), self.name) {
            eprintln!("could not stop {}: {error:#}", self.name);
        }
    }
}

/// Starts the controller of External Secrets, and installs its custom resources. `env`: such as `AWS_ECR_ENDPOINT`.
pub fn external_secrets<'a>(cluster: &'a Cluster, env: &[(&str, &str)]) -> Result<Companion<'a>> {
    let source = module_dir("tests/external-secrets", EXTERNAL_SECRETS_MODULE)?;
    let program = build_external_secrets(&source)?;
    install_crds(cluster, "-k", &source.join("config/crds/bases"))?;
    let mut command = Command::new(program);
    command
        .args(["--metrics-addr=0", "--live-addr=0"])
        .envs(env.iter().copied());
    start(cluster, EXTERNAL_SECRETS, &mut command)
}

/// Starts Flux's kustomize-controller, and installs its custom resource and those of sources.
pub fn kustomize_controller(cluster: &Cluster) -> Result<Companion<'_>> {
    let directory = "tests/flux";
    let flags = ["-ldflags", "-s -w"];
    let module = KUSTOMIZE_CONTROLLER_MODULE;
    let program = build_beside(directory, &flags, module, KUSTOMIZE_CONTROLLER)?;
    let bases = Path::new("config/crd/bases");
    install_crds(cluster, "-f", &module_dir(directory, module)?.join(bases))?;
    let sources = module_dir("tests/flux/source", "github.com/fluxcd/source-controller")?;
    install_crds(cluster, "-f", &sources.join(bases))?;
    let mut command = Command::new(program);
    command
        .args(["--metrics-addr=0", "--health-addr=0"])
        .env("RUNTIME_NAMESPACE", "flux-system");
    start(cluster, KUSTOMIZE_CONTROLLER, &mut command)
}

fn start<'a>(
    cluster: &'a Cluster,
    name: &'static str,
    command: &mut Command,
) -> Result<Companion<'a>> {
    let layout = cluster.layout();
    let kubeconfig = layout.pki(&format!("{name}.kubeconfig"));
    let admin = Authority::load(layout)?.kubeconfig(layout, name, Some("system:masters"))?;
    write_private(&kubeconfig, &admin)?;
    // Flux clears this directory when it starts.
    let temporary = tempfile::tempdir()?;
    command
        .env("KUBECONFIG", kubeconfig)
        .env("TMPDIR", temporary.path());
    spawned(cluster, name, command, Some(temporary))
}

/// Starts a program beside a cluster. `temporary`: its files, which are removed when it ends.
pub(crate) fn spawned<'a>(
    cluster: &'a Cluster,
    name: &'static str,
    command: &mut Command,
    temporary: Option<TempDir>,
) -> Result<Companion<'a>> {
    spawn(cluster.layout(), name, command)?;
    Ok(Companion {
        cluster,
        name,
        _temporary: temporary,
    })
}

/// `kind`: `-f` for manifests, `-k` for a kustomization.
fn install_crds(cluster: &Cluster, kind: &str, path: &Path) -> Result<()> {
    let path = path.to_string_lossy();
    cluster.kubectl(&["apply", "--server-side", kind, &path])?;
    let established = ["wait", "--for=condition=Established", "--timeout=60s"];
    cluster.kubectl(&[&established[..], &["crd", "--all"]].concat())?;
    Ok(())
}

/// Builds its own program with few providers and generators, from a copy, because Go can't replace files of a downloaded module.
fn build_external_secrets(source: &Path) -> Result<PathBuf> {
    let release = source.file_name().context("a release")?;
    let sources = std::path::absolute(target_dir())?.join("kubernetes/src");
    let copy = sources.join(release);
    fs::create_dir_all(&copy)?;
    let lock = File::create(sources.join(".lock"))?;
    lock.lock()?;
    for part in PARTS {
        let copied = Command::new("cp")
            .args(["-r", "--no-preserve=mode"])
            .arg(source.join(part))
            .arg(&copy)
            .status()
            .context("could not run `cp`")?;
        ensure!(
            copied.success(),
            "could not copy `{part}` of External Secrets"
        );
    }
    let ours = workspace().join("tests/external-secrets");
    for (list, package) in [("providers", "provider"), ("generators", "generator")] {
        let text = fs::read(ours.join(format!("{list}.go.txt")))?;
        let file = copy.join(format!("pkg/{package}/register/register.go"));
        fs::write(file, text)?;
    }
    let directory = copy.to_string_lossy();
    build_beside(&directory, &["-ldflags", "-s -w"], ".", EXTERNAL_SECRETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_the_releases_that_are_tested() {
        let read = |path: &str| fs::read_to_string(workspace().join(path)).unwrap();
        let (page, charts) = ("docs/ecosystem.md", "charts/globalps/README.md");
        for (page, module, name) in [
            (page, "tests/external-secrets", EXTERNAL_SECRETS_MODULE),
            (page, "tests/flux", KUSTOMIZE_CONTROLLER_MODULE),
            (charts, "tests/helm", "helm.sh/helm/v4"),
            (charts, "tests/helm3", "helm.sh/helm/v3"),
        ] {
            let page = read(page);
            let requirements = read(&format!("{module}/go.mod"));
            let line = requirements
                .lines()
                .map(|line| line.trim_start_matches("require").trim())
                .find(|line| line.starts_with(&format!("{name} ")));
            let version = line.and_then(|line| line.split(' ').nth(1)).unwrap();
            assert!(page.contains(version), "{name} {version}");
        }
    }
}
