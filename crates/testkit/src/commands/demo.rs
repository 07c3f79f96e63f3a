//! A demonstration on three real nodes: the pull of a private image fails; after one command it succeeds; after another
//! command every node is in its original state.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::product::Product;
use crate::{Access, Cluster, Node, Options, config_file, default_dir};
use anyhow::{Context, Result, ensure};

/// Prints each step before it runs, and its duration afterwards.
struct Story {
    begun: Instant,
    step: Option<Instant>,
}

impl Story {
    fn say(&mut self, what: &str) {
        self.done();
        println!("\n==> {what}");
        self.step = Some(Instant::now());
    }

    fn done(&mut self) {
        if let Some(step) = self.step.take() {
            println!("    ({:.1} s)", step.elapsed().as_secs_f32());
        }
    }

    /// Runs the plugin on this terminal, as a user would.
    fn plugin(&self, cluster: &Cluster, args: &[&str], input: Option<&str>) -> Result<i32> {
        println!("    $ kubectl globalps {}", args.join(" "));
        let mut command = Command::new(Product::plugin_path());
        command.args(args).env("KUBECONFIG", cluster.kubeconfig());
        let Some(input) = input else {
            return command.status()?.code().context("the plugin was killed");
        };
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        std::io::Write::write_all(
            &mut child.stdin.take().context("no pipe")?,
            input.as_bytes(),
        )?;
        child.wait()?.code().context("the plugin was killed")
    }
}

pub fn run() -> Result<()> {
    let mut story = Story {
        begun: Instant::now(),
        step: None,
    };
    let keep = std::env::var_os("KEEP").is_some_and(|keep| keep == "1");

    story.say("Three real nodes: systemd, containerd and kubelet each");
    let cluster = Cluster::up(&Options {
        dir: default_dir(),
        nodes: 3,
    })?;
    println!("{}", cluster.kubectl(&["get", "nodes"])?.trim_end());

    story.say("Installing globalps");
    let product = Product::install(&cluster)?;
    let nodes = cluster.nodes()?;
    let [first, second, third] = &nodes[..] else {
        anyhow::bail!("not three nodes")
    };
    let own = "{ \"auths\": { \"own.example.com\": { \"auth\": \"b3duOm93bg==\" } } }\n";
    std::fs::write(second.kubelet_dir().join("config.json"), own)?;
    println!(
        "    {} has credentials of its own in /var/lib/kubelet/config.json; the others have none",
        second.name()
    );
    let before = files(&nodes)?;

    let registry = cluster.registry();
    let private = registry.address(Access::Tls);
    let authority = registry.authority();
    let image = format!("{private}/team/app:1");
    story.say(&format!(
        "A pod with the private image {image} cannot pull it"
    ));
    product.start_pod("app", &image, first.name())?;
    println!("    {}", product.wait_pod("app", true)?);
    product.delete_pod("app")?;

    story.say("One command gives the password to every node");
    let add = [
        "add",
        &private,
        "-u",
        registry.user(),
        "--password-stdin",
        "--ca-file",
        authority.to_str().context("the path is not UTF-8")?,
        "--wait",
    ];
    ensure!(
        story.plugin(&cluster, &add, Some(&registry.password()?))? == 0,
        "add failed"
    );

    story.say("The pod now runs on every node");
    for node in [first, second, third] {
        let name = format!("app-{}", node.name());
        product.start_pod(&name, &image, node.name())?;
        product.wait_pod(&name, false)?;
    }
    println!(
        "{}",
        cluster.kubectl(&["get", "pods", "-o", "wide"])?.trim_end()
    );

    story.say("The state of every node");
    ensure!(
        story.plugin(&cluster, &["status"], None)? == 0,
        "not every node is synced"
    );
    ensure!(
        story.plugin(&cluster, &["diff"], None)? == 0,
        "some content is not in effect"
    );

    story.say("One command restores every node");
    ensure!(
        story.plugin(&cluster, &["remove", "--all", "--yes", "--wait"], None)? == 0,
        "remove failed"
    );
    product.wait_clean()?;
    let after = files(&nodes)?;
    for ((node, before), after) in nodes.iter().zip(&before).zip(&after) {
        ensure!(
            before == after,
            "{} is not in its original state",
            node.name()
        );
        let what = if before.is_some() {
            "the same bytes, mode and owner as before"
        } else {
            "no file, as before"
        };
        println!("    {}: {what}", node.name());
    }
    story.done();
    println!(
        "\nall of it in {:.0} s",
        story.begun.elapsed().as_secs_f32()
    );

    if keep {
        let kubeconfig = cluster.kubeconfig();
        cluster.keep()?;
        println!(
            "the cluster keeps running; `make cluster-down` stops it\n  export KUBECONFIG={}",
            kubeconfig.display()
        );
        println!("  export PATH=$PATH:{}", parent(&Product::plugin_path()));
        println!(
            "  export PATH=$PATH:{}",
            crate::kubernetes::bin_dir().display()
        );
        println!("  kubectl globalps status");
        println!(
            "  kubectl globalps add {private} -u {} --password-stdin --ca-file {} --wait < {}/registry/password",
            registry.user(),
            authority.display(),
            parent(&kubeconfig)
        );
    }
    Ok(())
}

fn parent(path: &std::path::Path) -> String {
    path.parent().unwrap_or(path).display().to_string()
}

fn files(nodes: &[Node]) -> Result<Vec<Option<config_file::ConfigFile>>> {
    nodes.iter().map(config_file::read).collect()
}
