//! Kubelets of other releases, built from the Go module proxy. Each takes about four minutes the first time.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::kubernetes::{bin_dir, version_flags};
use crate::node_files::BIN;
use crate::{Node, product};

/// Directory of such a kubelet on a node.
const PLACE: &str = "/opt/older-kubelet";

/// Builds the kubelet of a release such as `v1.34.4`, unless it exists.
pub fn build(version: &str) -> Result<PathBuf> {
    let directory = std::path::absolute(bin_dir())?.with_file_name(version);
    let program = directory.join("kubelet");
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("go.mod"), go_mod(&directory, version)?)?;
    eprintln!("building the kubelet {version} (about 4 minutes the first time)");
    let half = directory.join("kubelet.half");
    let flags = version_flags(version);
    go(&directory)
        .args(["build", "-mod=mod", "-trimpath", "-ldflags", &flags, "-o"])
        .arg(&half)
        .arg("k8s.io/kubernetes/cmd/kubelet")
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit())
        .status()
        .map_err(Into::into)
        .and_then(|status| {
            ensure!(
                status.success(),
                "`go build` of the kubelet {version} failed"
            );
            Ok(())
        })?;
    fs::rename(half, &program)?;
    Ok(program)
}

/// Writes a go.mod: the Kubernetes module refers to its parts by directories of its repository, which are published as
/// modules too.
fn go_mod(directory: &Path, version: &str) -> Result<String> {
    let module = format!("k8s.io/kubernetes@{version}");
    let Output { status, stdout, .. } = go(directory)
        .args(["mod", "download", "-json", &module])
        .output()?;
    ensure!(status.success(), "`go mod download` of {module} failed");
    let found: Value = serde_json::from_slice(&stdout)?;
    let theirs = fs::read_to_string(found["GoMod"].as_str().context("no go.mod")?)?;
    let language = theirs
        .lines()
        .find(|line| line.starts_with("go "))
        .context("no Go version")?;
    let parts = version.replacen("v1.", "v0.", 1);
    let mut text = format!("module older\n\n{language}\n\nrequire k8s.io/kubernetes {version}\n\n");
    for line in theirs.lines().filter(|line| line.contains("=> ./staging/")) {
        let part = line
            .trim_start_matches("replace ")
            .split_whitespace()
            .next();
        let part = part.context("no module")?;
        writeln!(text, "replace {part} => {part} {parts}")?;
    }
    Ok(text)
}

fn go(directory: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(directory)
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null());
    go
}

/// From now on the node runs this kubelet.
pub fn run_on(node: &Node, program: &Path) -> Result<()> {
    let of_node = |path: &str| node.root().join(path.trim_start_matches('/'));
    fs::create_dir_all(of_node(PLACE))?;
    fs::copy(program, of_node(PLACE).join("kubelet"))?;
    let unit = of_node("/etc/systemd/system/kubelet.service");
    let text = fs::read_to_string(&unit)?;
    fs::write(
        &unit,
        text.replace(&format!("{BIN}/kubelet"), &format!("{PLACE}/kubelet")),
    )?;
    let config = of_node("/etc/kubernetes/kubelet.json");
    let mut fields: Value = serde_json::from_slice(&fs::read(&config)?)?;
    let fields_of = fields.as_object_mut().context("no object")?;
    // Requires a feature gate.
    fields_of.remove("crashLoopBackOff");
    // 1.30 does not have the field, and 1.35 defaults it to true.
    let directory = program.parent().and_then(Path::file_name);
    if directory.is_some_and(|it| it.to_string_lossy().starts_with("v1.30.")) {
        fields_of.remove("failCgroupV1");
    }
    fs::write(&config, fields.to_string())?;
    for command in ["daemon-reload", "restart kubelet.service"] {
        let words: Vec<&str> = ["systemctl"]
            .into_iter()
            .chain(command.split(' '))
            .collect();
        node.exec(&words)?.ok()?;
    }
    node.wait_ready(product::DEADLINE)
}
