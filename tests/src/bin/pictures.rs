//! Pictures of the plugin at work, for `docs/img`: the real program, on a terminal, against a cluster of three real nodes.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use globalps_tests::broken_kubelet::break_kubelet;
use globalps_tests::product::Product;
use globalps_tests::terminal::Terminal;
use globalps_tests::{Access, Cluster, Options, kubernetes, picture};

const COLUMNS: u16 = 96;
const DEADLINE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    globalps_tests::exit_code(&pictures())
}

fn pictures() -> Result<()> {
    let dir = kubernetes::target_dir().join("clusters/pictures");
    let cluster = Cluster::up(&Options { dir, nodes: 3 })?;
    let product = Product::install(&cluster)?;
    let registry = cluster.registry();
    let private = registry.address(Access::Private);
    let add = [
        "add",
        "--registry",
        &private,
        "-u",
        registry.user(),
        "--insecure",
        "--wait",
    ];

    let mut terminal = Terminal::start(&plugin(&cluster, &add), COLUMNS, 30)?;
    terminal.wait_for("assword", DEADLINE)?;
    terminal.press(&format!("{}\n", registry.password()?))?;
    let (code, shown) = terminal.end(DEADLINE)?;
    ensure!(code == Some(0), "add failed: {shown}");
    picture("add", &add, &shown)?;
    for (name, args) in [
        ("status", &["status"][..]),
        ("check", &["check"]),
        ("history", &["history"]),
        ("explain", &["explain", &format!("{private}/team/app:1")]),
    ] {
        let shown = run(&cluster, args)?;
        picture(name, args, &shown)?;
    }

    let nodes = cluster.nodes()?;
    break_kubelet(&nodes[1], "ghcr.io")?;
    let config = r#"{"auths":{"ghcr.io":{"auth":"cm9ib3Q6dG9rZW4="}}}"#;
    product.apply(config)?;
    product.wait_condition("Degraded", "True")?;
    for (name, args) in [("failed", &["status"][..]), ("diff", &["diff"])] {
        let shown = run(&cluster, args)?;
        picture(name, args, &shown)?;
    }
    Ok(())
}

fn plugin(cluster: &Cluster, args: &[&str]) -> Command {
    let mut command = Command::new(Product::plugin_path());
    command.args(args).env("KUBECONFIG", cluster.kubeconfig());
    command
}

/// Everything that it shows until its end, whatever its exit status.
fn run(cluster: &Cluster, args: &[&str]) -> Result<String> {
    let terminal = Terminal::start(&plugin(cluster, args), COLUMNS, 60)?;
    Ok(terminal.end(DEADLINE)?.1)
}

fn picture(name: &str, args: &[&str], shown: &str) -> Result<()> {
    let prompt = format!("\x1b[32m$\x1b[0m kubectl globalps {}\r\n", args.join(" "));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/img/{name}.svg"));
    fs::create_dir_all(path.parent().context("no folder")?)?;
    fs::write(&path, picture::svg(&format!("{prompt}{shown}"), COLUMNS))?;
    println!("docs/img/{name}.svg");
    Ok(())
}
