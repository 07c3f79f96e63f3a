//! Kubernetes' own programs, built from the Go module proxy: about four minutes the first time on two CPUs, and no time
//! later. Test clusters run the release in the variable `KUBERNETES`, or [`VERSION`].

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::{older_release, until};

pub const VERSION: &str = "v1.37.2";
/// etcd's program is named after its Go package.
pub(crate) const ETCD: &str = "server";
const PROGRAMS: [&str; 6] = [
    ETCD,
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
];

/// Script that builds the programs, in the module's directory.
const SCRIPT: &str = "build";

const CAPI: &str = "tests/capi";
const CAPI_MODULE: &str = "sigs.k8s.io/cluster-api";
const NO_GO: &str = "could not run `go`: install Go 1.26 or newer, see https://go.dev/dl";
/// Several times as long as the largest program takes on two busy CPUs.
const BUILD_DEADLINE: Duration = Duration::from_mins(20);
const BUILD_POLL: Duration = Duration::from_millis(20);

/// Cargo's target directory of this workspace.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// The release that test clusters of this process run, such as `v1.34.4`.
pub fn version() -> String {
    std::env::var("KUBERNETES").unwrap_or_else(|_| VERSION.to_owned())
}

/// The minor version of [`version`].
pub fn minor() -> u32 {
    let version = version();
    minor_of(&version).unwrap_or_else(|| panic!("`{version}` is no release such as `{VERSION}`"))
}

/// The minor version of a release; `None` if it can't be parsed.
pub fn minor_of(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

/// Directory of the programs after [`build`].
pub fn bin_dir() -> PathBuf {
    match version().as_str() {
        VERSION => default_bin_dir(),
        other => target_dir().join("kubernetes").join(other),
    }
}

/// Directory of the programs of [`VERSION`], and of those that don't depend on the release.
fn default_bin_dir() -> PathBuf {
    target_dir().join("kubernetes/bin")
}

/// Root of the repository.
pub fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_owned()
}

/// Builds the programs unless they exist in this version. A lock makes other processes wait for the build.
pub fn build() -> Result<()> {
    build_default()?;
    let (bin, version) = (std::path::absolute(bin_dir())?, version());
    if version == VERSION {
        return Ok(());
    }
    older_release::build(&version, &bin)?;
    for program in [ETCD, "kubectl"] {
        let link = bin.join(program);
        if !link.exists() {
            // Nodes only see this directory.
            fs::hard_link(std::path::absolute(default_bin_dir())?.join(program), link)?;
        }
    }
    Ok(())
}

fn build_default() -> Result<()> {
    let bin = std::path::absolute(default_bin_dir())?;
    fs::create_dir_all(&bin)?;
    let lock = File::create(bin.join(".lock"))?;
    lock.lock()?;
    let module = workspace().join("tests/kubernetes");
    let wanted = fingerprint(&module)?;
    let stamp = bin.join(".built");
    let there = PROGRAMS.iter().all(|program| bin.join(program).exists());
    if there && fs::read_to_string(&stamp).is_ok_and(|built| built == wanted) {
        return Ok(());
    }
    eprintln!(
        "building Kubernetes {VERSION} into `{}` (about five minutes the first time)",
        bin.display()
    );
    let start = Instant::now();
    let status = Command::new(module.join(SCRIPT))
        .arg(&bin)
        .stdin(Stdio::null())
        .status()
        .context(NO_GO)?;
    if !status.success() {
        bail!("`{}` failed ({status})", module.join(SCRIPT).display());
    }
    fs::write(stamp, wanted)?;
    eprintln!("built Kubernetes in {} s", start.elapsed().as_secs());
    Ok(())
}

/// Builds the oracle of `tests/kubernetes/oracle`, which takes some seconds the first time, and returns its path.
pub fn build_oracle() -> Result<PathBuf> {
    // Without the tag, containers/image needs a C library.
    let flags = ["-tags", "containers_image_openpgp"];
    build_beside("tests/kubernetes", &flags, "./oracle", "oracle")
}

/// Builds ECR's own credential provider, which takes about a minute the first time, and returns its path.
pub fn build_ecr_provider() -> Result<PathBuf> {
    const NAME: &str = "ecr-credential-provider";
    let package = format!("k8s.io/cloud-provider-aws/cmd/{NAME}");
    build_beside("tests/ecr", &[], &package, NAME)
}

/// Builds cosign, which signs releases. Takes about three minutes the first time. Returns its path.
pub fn build_cosign() -> Result<PathBuf> {
    let package = "github.com/sigstore/cosign/v3/cmd/cosign";
    build_beside("tests/cosign", &["-ldflags", "-s -w"], package, "cosign")
}

/// Builds Cluster API's own core manager, which takes about two minutes the first time, and returns its path.
pub fn build_capi_manager() -> Result<PathBuf> {
    let package = format!("{CAPI_MODULE}/core");
    build_beside(CAPI, &["-ldflags", "-s -w"], &package, "capi-manager")
}

/// Directory with Cluster API's published custom resources.
pub fn capi_crds() -> Result<PathBuf> {
    Ok(module_dir(CAPI, CAPI_MODULE)?.join("core/config/crd/bases"))
}

/// The Operator Lifecycle Manager's published custom resources for operators.
pub fn olm_crds() -> Result<Vec<PathBuf>> {
    let files = module_dir("tests/olm", "github.com/operator-framework/api")?.join("crds");
    let kinds = ["catalogsources", "clusterserviceversions", "subscriptions"];
    let file = |kind: &str| files.join(format!("operators.coreos.com_{kind}.yaml"));
    Ok(kinds.map(file).into())
}

/// `OpenShift`'s published custom resources of the Machine Config Operator's pools and nodes.
pub fn openshift_crds() -> Result<Vec<PathBuf>> {
    let module = module_dir("tests/openshift", "github.com/openshift/api")?;
    let files = module.join("payload-manifests/crds");
    let kinds = ["machineconfigpools", "machineconfignodes-SelfManagedHA"];
    let file =
        |kind: &str| files.join(format!("0000_80_machine-config_01_{kind}-Default.crd.yaml"));
    Ok(kinds.map(file).into())
}

/// Directory of a Go module that the module in `directory` requires. Downloads it the first time.
pub(crate) fn module_dir(directory: &str, module: &str) -> Result<PathBuf> {
    let directory = workspace().join(directory);
    let downloaded = Command::new("go")
        .current_dir(&directory)
        .args(["mod", "download", "-json", module])
        .stdin(Stdio::null())
        .output()
        .context(NO_GO)?;
    if !downloaded.status.success() {
        let said = String::from_utf8_lossy(&downloaded.stdout);
        bail!(
            "`go mod download {module}` in `{}` failed: {said}",
            directory.display()
        );
    }
    let module: serde_json::Value = serde_json::from_slice(&downloaded.stdout)?;
    let dir = module["Dir"].as_str().context("the module's directory")?;
    Ok(dir.into())
}

/// Builds a program from a Go module of the tests, next to those of Kubernetes. A lock makes other processes wait for the build.
pub(crate) fn build_beside(
    module: &str,
    flags: &[&str],
    package: &str,
    name: &str,
) -> Result<PathBuf> {
    let bin = std::path::absolute(default_bin_dir())?;
    fs::create_dir_all(&bin)?;
    let lock = File::create(bin.join(format!(".lock-{name}")))?;
    lock.lock()?;
    let module = workspace().join(module);
    let program = bin.join(name);
    let mut go = Command::new("go")
        .current_dir(&module)
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath"])
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(package)
        .stdin(Stdio::null())
        .spawn()
        .context(NO_GO)?;
    let what = format!("`go build` of {name} in `{}`", module.display());
    let ended = until(&what, BUILD_DEADLINE, BUILD_POLL, || Ok(go.try_wait()?));
    if ended.is_err() {
        // Its child processes fail at their next step.
        let _ = go.kill();
        let _ = go.wait();
    }
    let status = ended?;
    if !status.success() {
        bail!("{what} failed ({status})");
    }
    Ok(program)
}

/// Linker flags that give a program of another release its version, such as `v1.34.4`.
pub(crate) fn version_flags(full: &str) -> String {
    let (major, minor) = full
        .trim_start_matches('v')
        .split_once('.')
        .unwrap_or(("1", "0"));
    let minor = minor.split('.').next().unwrap_or(minor);
    let version = "k8s.io/component-base/version";
    format!(
        "-s -w -X {version}.gitVersion={full} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    )
}

/// Fingerprint of the module versions and how they are built. Without file times, which differ in each clone.
fn fingerprint(module: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    for name in ["go.mod", "go.sum", SCRIPT] {
        let path = module.join(name);
        hash.update(
            fs::read(&path).with_context(|| format!("could not read `{}`", path.display()))?,
        );
    }
    Ok(hash.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_module() {
        let module = fs::read_to_string(workspace().join("tests/kubernetes/go.mod")).unwrap();
        assert!(module.contains(&format!("k8s.io/kubernetes {VERSION}")));
        let flags = version_flags("v1.34.4");
        assert!(flags.ends_with("gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"));
    }
}
