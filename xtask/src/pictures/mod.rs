//! Takes the pictures in `docs/img`: the real plugin, on a terminal, with a cluster of real nodes.

pub mod dashboard;
mod panels;
mod svg;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use globalps_testkit::broken_kubelet::break_kubelet;
use globalps_testkit::lone_registry::{LoneRegistry, USER};
use globalps_testkit::product::{DEADLINE, NAMESPACE, Product};
use globalps_testkit::terminal::Terminal;
use globalps_testkit::web::{Authority, Validity};
use globalps_testkit::{Cluster, kubernetes};

const NODES: u8 = 6;
const COLUMNS: u16 = 96;
const ROWS: u16 = 60;
const RECORDED_ROWS: u16 = 26;
/// Name of the registry, which only the plugin can resolve.
const REGISTRY: &str = "registry.example.com";
const REGISTRY_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);

/// Takes them all.
pub fn take() -> Result<()> {
    let cluster = Cluster::up_named("pictures", NODES)?;
    let product = Product::install(&cluster)?;
    let directory = tempfile::tempdir()?;
    let authority = Authority::new()?;
    let identity = authority.issue(&[REGISTRY], Validity::Now)?;
    let password = cluster.registry().password()?;
    let _registry = LoneRegistry::basic_at(
        SocketAddr::from((REGISTRY_ADDRESS, 443)),
        &directory.path().join("registry"),
        Some(&identity),
        &password,
    )?;
    fs::write(directory.path().join("ca.pem"), authority.pem())?;
    fs::write(
        directory.path().join("hosts"),
        format!("{REGISTRY_ADDRESS} {REGISTRY}\n"),
    )?;
    let studio = Studio {
        cluster: &cluster,
        directory: directory.path(),
    };

    let line = format!("add {REGISTRY} -u {USER} --wait");
    let mut terminal = studio.start(&line)?;
    terminal.wait_for("assword", DEADLINE)?;
    terminal.wait_hidden(DEADLINE)?;
    terminal.press(&format!("{password}\n"))?;
    terminal.wait_for("restarts these kubelets?", DEADLINE)?;
    terminal.press("y\n")?;
    let (code, shown) = terminal.end(DEADLINE)?;
    ensure!(code == Some(0), "add failed: {shown}");
    picture("add", &line, &shown)?;
    studio.take(
        "explain",
        &format!("explain {REGISTRY}/team/app:1.4"),
        Some(0),
    )?;

    fs::write(directory.path().join("new.json"), content(2))?;
    studio.take("diff", "diff -f new.json", Some(1))?;
    let mut terminal = studio.start("status --watch")?;
    terminal.wait_for("100%", DEADLINE)?;
    product.apply(&content(2))?;
    let half = format!("revision 2  {}/{NODES} nodes synced", NODES / 2);
    let shown = terminal.wait_for(&half, DEADLINE)?;
    picture("watch", "status --watch", &shown)?;
    drop(terminal);
    product.wait_synced()?;
    studio.take("history", "history", Some(0))?;

    break_kubelet(&cluster.nodes()?[1], "ghcr.io")?;
    product.apply(&content(3))?;
    product.wait_condition("Degraded", "True")?;
    studio.take("failed", "status", Some(1))?;
    // The kubelet probes the readiness of a pod only every few seconds.
    let ready = format!("--for=jsonpath={{.status.numberReady}}={NODES}");
    cluster.kubectl_line(&format!(
        "wait daemonset/global-pull-secret-syncer -n {NAMESPACE} {ready} --timeout=120s"
    ))?;
    studio.take("check", "check", Some(1))?;
    drop(cluster);
    record()
}

/// Records `make demo`, once everything is built, in `docs/img/demo.svg`.
fn record() -> Result<()> {
    let mut demo = Command::new(std::env::current_exe()?.with_file_name("testkit"))
        .arg("demo")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("could not run the demo: build it with `cargo build --bin testkit`")?;
    let output = demo.stdout.take().context("no pipe")?;
    let start = Instant::now();
    let mut lines = vec![(Duration::ZERO, "$ make demo".to_owned())];
    for line in BufReader::new(output).lines() {
        lines.push((start.elapsed(), line?));
    }
    ensure!(demo.wait()?.success(), "the demo failed");
    let recording = svg::recording(&lines, COLUMNS, RECORDED_ROWS);
    fs::write(path("demo"), recording)?;
    println!("docs/img/demo.svg: written");
    Ok(())
}

/// Content of the additional Secret at this revision. The registry does not accept this password, but no pod uses it
/// here.
fn content(revision: u8) -> String {
    let entries = [
        format!(r#""{REGISTRY}":{{"auth":"cHVsbGVyOnJvdGF0ZWQ="}}"#),
        r#""quay.io":{"auth":"cm9ib3Q6dG9rZW4="}"#.to_owned(),
        r#""ghcr.io":{"auth":"cm9ib3Q6dG9rZW4="}"#.to_owned(),
    ];
    format!(
        r#"{{"auths":{{{}}}}}"#,
        entries[..usize::from(revision)].join(",")
    )
}

/// Environment in which the plugin runs: it resolves the registry's name and trusts its certificate.
struct Studio<'a> {
    cluster: &'a Cluster,
    directory: &'a Path,
}

impl Studio<'_> {
    fn start(&self, line: &str) -> Result<Terminal> {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--wd"])
            .arg(self.directory)
            .args([
                "sh",
                "-c",
                r#"mount --bind hosts /etc/hosts && exec "$0" "$@""#,
            ])
            .arg(Product::plugin_path())
            .args(line.split(' '))
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("SSL_CERT_FILE", self.directory.join("ca.pem"));
        Terminal::start(&command, COLUMNS, ROWS)
    }

    /// Takes a picture of the whole output of a command, which must exit with `expected`.
    fn take(&self, name: &str, line: &str, expected: Option<i32>) -> Result<()> {
        let (code, shown) = self.start(line)?.end(DEADLINE)?;
        ensure!(code == expected, "`{line}` ended with {code:?}: {shown}");
        picture(name, line, &shown)
    }
}

fn path(name: &str) -> PathBuf {
    kubernetes::workspace().join(format!("docs/img/{name}.svg"))
}

/// Writes the picture, unless it differs from the existing one in times only.
fn picture(name: &str, line: &str, shown: &str) -> Result<()> {
    let prompt = format!("\x1b[32m$\x1b[0m kubectl globalps {line}\r\n");
    let picture = svg::svg(&format!("{prompt}{shown}"), COLUMNS);
    let path = path(name);
    let news = match fs::read_to_string(&path) {
        Ok(old) => svg::words(&old) != svg::words(&picture),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => bail!("`{}` could not be read: {error}", path.display()),
    };
    if news {
        fs::create_dir_all(path.parent().context("no parent directory")?)?;
        fs::write(&path, picture)?;
    }
    let what = if news { "written" } else { "unchanged" };
    println!("docs/img/{name}.svg: {what}");
    Ok(())
}
