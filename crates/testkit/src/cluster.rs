//! A whole cluster: start, attach, stop.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::control_plane;
use crate::instance;
use crate::layout::{Layout, MAX_NODES, bridge, usable_dir};
use crate::node::{Node, is_ready};
use crate::pki::{Authority, write_private};
use crate::process::marked;
use crate::reaper::Reaper;
use crate::registry::{Access, Registry};
use crate::secrecy::Search;
use crate::state::State;
use crate::teardown::{adopt, clear, take_down};
use crate::wait::until;
use crate::{containerd, kubernetes, net, pause, preflight};

/// Options of a new cluster.
pub struct Options {
    /// Directory for all files of the cluster. One directory, one cluster.
    pub dir: PathBuf,
    /// Number of nodes, named `node-1` and so on; 0: only a control plane.
    pub nodes: u8,
}

/// A running cluster. If this process started it, dropping this stops it.
pub struct Cluster {
    layout: Layout,
    /// `Some` if this process started the cluster and did not call `keep`.
    reaper: Option<Reaper>,
}

/// Default directory of `testkit cluster`.
pub fn default_dir() -> PathBuf {
    kubernetes::target_dir().join("cluster")
}

impl Cluster {
    /// Starts a cluster, and returns when pods can be created and every node is Ready. First removes what a killed run
    /// left in the directory or under the same cluster number.
    pub fn up(options: &Options) -> Result<Self> {
        let start = Instant::now();
        let say = |what: &str| eprintln!("[{:5.1} s] {what}", start.elapsed().as_secs_f32());
        if options.nodes > MAX_NODES {
            bail!("a cluster has at most {MAX_NODES} nodes");
        }
        let dir = usable_dir(&options.dir)?;
        preflight::check(&dir)?;
        kubernetes::build()?;
        containerd::build()?;
        if is_running(&dir)? {
            bail!("a cluster is already running in `{}`", dir.display());
        }
        let mut reaper = Reaper::start(&dir)?;
        let claim = instance::claim(&dir, reaper.pid())?;
        reaper.arm()?;
        clear(&claim, &dir)?;
        adopt(&dir)?;
        let layout = Layout {
            dir,
            instance: claim.instance,
        };
        // From here on a failure drops this, which removes everything that was started.
        let cluster = Self {
            layout,
            reaper: Some(reaper),
        };
        say(&format!(
            "cluster {} at `{}`",
            cluster.layout.bridge(),
            cluster.layout.dir.display()
        ));
        cluster.start(options.nodes, &say).inspect_err(|_| {
            eprintln!("the logs are kept in `{}`", cluster.logs().display());
        })?;
        Ok(cluster)
    }

    /// Starts the cluster of a test or another program of this repository, which has this name.
    pub fn up_named(name: &str, nodes: u8) -> Result<Self> {
        let dir = kubernetes::target_dir().join("clusters").join(name);
        Self::up(&Options { dir, nodes })
    }

    fn start(&self, nodes: u8, say: &(impl Fn(&str) + Sync)) -> Result<()> {
        let layout = &self.layout;
        for directory in ["logs", "pki", "nodes"] {
            fs::create_dir_all(layout.path(directory))?;
        }
        let mut state = State {
            instance: layout.instance,
            complete: false,
            nodes: Vec::new(),
        };
        for _ in 0..nodes {
            state.nodes.push(state.next_node());
        }
        state.save(&layout.dir)?;
        let authority = Authority::create(layout)?;
        let admin = authority.kubeconfig(layout, "admin", Some("system:masters"))?;
        write_private(&layout.kubeconfig(), &admin)?;
        net::create(layout)?;
        let all: Vec<_> = state
            .nodes
            .iter()
            .map(|node| Node::new(layout, node.clone()))
            .collect();
        thread::scope(|scope| {
            let mut work = vec![
                scope.spawn(|| {
                    control_plane::start(layout, &authority)?;
                    say("API server ready");
                    Ok(())
                }),
                scope.spawn(|| {
                    self.registry().start()?;
                    let image = pause::archive(layout)?;
                    self.registry().push(&image, Access::Open, "pause:1")?;
                    self.registry()
                        .push(&image, Access::Private, "team/app:1")?;
                    say("registries ready");
                    Ok(())
                }),
            ];
            for node in &all {
                let authority = &authority;
                work.push(scope.spawn(move || {
                    node.prepare(authority)?;
                    node.boot()
                        .with_context(|| format!("could not start {}", node.name()))
                }));
            }
            work.into_iter().try_for_each(finish)
        })?;
        say(&format!("nodes booted: {nodes}"));
        self.wait_ready(&all, Duration::from_mins(3))?;
        State::update(&layout.dir, |state| {
            state.complete = true;
            Ok(())
        })?;
        say(&format!("nodes Ready: {nodes}"));
        Ok(())
    }

    fn wait_ready(&self, nodes: &[Node], deadline: Duration) -> Result<()> {
        let all = format!("all {} nodes to be Ready", nodes.len());
        until(&all, deadline, Duration::from_millis(200), || {
            control_plane::check_alive(&self.layout)?;
            let list = self.get("", "nodes")?;
            for node in nodes {
                let ready = node
                    .boot_id()?
                    .is_some_and(|boot| is_ready(&list, node.name(), &boot));
                if !ready {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })?;
        // The API server rejects pods until their namespace has its service account.
        self.wait_default_account("default")?;
        self.wait_default_account("kube-system")
    }

    /// Attaches to the cluster that another process left running in a directory.
    pub fn attach(dir: &Path) -> Result<Self> {
        let dir = usable_dir(dir)?;
        match state_of(&dir)? {
            Some(state) if state.complete => Ok(Self {
                layout: Layout {
                    dir,
                    instance: state.instance,
                },
                reaper: None,
            }),
            Some(_) => bail!(
                "the cluster at `{}` is not up yet, or its start was killed: `testkit cluster up` starts a new one",
                dir.display()
            ),
            None => bail!(
                "there is no cluster at `{}`: `testkit cluster up` starts one",
                dir.display()
            ),
        }
    }

    /// The cluster in a directory, if its start is complete and its API server runs.
    pub fn running_at(dir: &Path) -> Result<Option<Self>> {
        let dir = usable_dir(dir)?;
        is_running(&dir)?.then(|| Self::attach(&dir)).transpose()
    }

    /// Removes everything that belongs to the cluster of a directory, running or not. A directory without a cluster is
    /// not an error.
    pub fn down_at(dir: &Path) -> Result<()> {
        take_down(&usable_dir(dir)?, false)
    }

    /// Leaves the cluster running after this process ends: `testkit cluster down` stops it.
    pub fn keep(mut self) -> Result<()> {
        instance::keep(self.layout.instance, &self.layout.dir)?;
        self.reaper.take().map_or(Ok(()), Reaper::dismiss)
    }

    /// Stops the cluster, also one that another process started: removes its processes, mounts, network and files.
    pub fn down(mut self) -> Result<()> {
        self.end(false)
    }

    fn end(&mut self, keep_logs: bool) -> Result<()> {
        take_down(&self.layout.dir, keep_logs)?;
        self.reaper.take().map_or(Ok(()), Reaper::dismiss)
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Path of the cluster admin's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    /// URL of the API server.
    pub fn api_url(&self) -> String {
        self.layout.api_url()
    }

    pub fn registry(&self) -> Registry {
        Registry::new(&self.layout)
    }

    /// Directory with one log per component; `node-N.log` is the whole journal of the node.
    pub fn logs(&self) -> PathBuf {
        self.layout.path("logs")
    }

    /// The API server's audit log: one JSON event per line, with the metadata of every request and the object of a
    /// write to a `NodePullSecret`.
    pub fn audit_log(&self) -> PathBuf {
        self.layout.log("audit")
    }

    /// Every node, including those that are down.
    pub fn nodes(&self) -> Result<Vec<Node>> {
        let state = State::load(&self.layout.dir)?.context("the cluster is gone")?;
        Ok(state
            .nodes
            .into_iter()
            .map(|node| Node::new(&self.layout, node))
            .collect())
    }

    pub fn node(&self, name: &str) -> Result<Node> {
        let nodes = self.nodes()?;
        let names: Vec<_> = nodes.iter().map(|node| node.name().to_owned()).collect();
        nodes
            .into_iter()
            .find(|node| node.name() == name)
            .with_context(|| {
                format!(
                    "there is no node `{name}`; the nodes are {}",
                    names.join(", ")
                )
            })
    }

    /// Adds a node and boots it; use [`Node::wait_ready`] to wait until it is Ready.
    pub fn add_node(&self) -> Result<Node> {
        let state = State::update(&self.layout.dir, |state| {
            let node = state.next_node();
            if node.index > MAX_NODES {
                bail!("a cluster has at most {MAX_NODES} nodes");
            }
            state.nodes.push(node.clone());
            Ok(node)
        })?;
        let node = Node::new(&self.layout, state);
        node.prepare(&Authority::load(&self.layout)?)?;
        node.boot()?;
        Ok(node)
    }

    /// Sends a signal to a component of the control plane. The signal's name is as for `kill`.
    pub fn signal(&self, component: &str, signal: &str) -> Result<()> {
        for process in marked(&self.layout.bridge())? {
            if process.component == component {
                let status = Command::new("kill")
                    .args([&format!("-{signal}"), &process.pid.to_string()])
                    .status()?;
                anyhow::ensure!(status.success(), "could not send a signal to `{component}`");
            }
        }
        Ok(())
    }

    /// From now on, pods have Kubernetes' own priority classes only in namespaces whose quota names these.
    pub fn limit_priority_classes(&self) -> Result<()> {
        control_plane::limit_priority_classes(&self.layout)
    }

    /// Kills the API server, starts a new one after `pause`, and returns when it is ready.
    pub fn restart_api_server(&self, pause: Duration) -> Result<()> {
        control_plane::restart_api_server(&self.layout, pause)
    }

    /// Copies etcd's data. The API server is down meanwhile.
    pub fn back_up_etcd(&self) -> Result<()> {
        control_plane::back_up_etcd(&self.layout)
    }

    /// Restores that copy: objects go back to earlier versions. The API server is down meanwhile.
    pub fn restore_etcd(&self) -> Result<()> {
        control_plane::restore_etcd(&self.layout)
    }

    /// The running components of the control plane, and the registries.
    pub fn components(&self) -> Result<Vec<String>> {
        let nodes: Vec<_> = self
            .nodes()?
            .iter()
            .map(|node| node.name().to_owned())
            .collect();
        let mut running: Vec<_> = marked(&self.layout.bridge())?
            .into_iter()
            .map(|process| process.component)
            .filter(|component| !nodes.contains(component))
            .collect();
        running.sort();
        running.dedup();
        Ok(running)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.reaper.is_some() {
            let failed = thread::panicking()
                || !State::load(&self.layout.dir)
                    .is_ok_and(|state| state.is_some_and(|state| state.complete));
            let shown = if failed {
                Ok(())
            } else {
                Search::for_all().last(self)
            };
            if let Err(error) = self.end(failed || shown.is_err()) {
                eprintln!(
                    "could not take down the cluster at `{}`: {error:#}",
                    self.layout.dir.display()
                );
            }
            if let Err(error) = shown {
                panic!("{error:#}");
            }
        }
    }
}

fn finish(work: thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    work.join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The state in the directory, if the cluster still owns its number: after a reboot of the machine another cluster may
/// have it.
fn state_of(dir: &Path) -> Result<Option<State>> {
    let own = instance::of(dir)?;
    Ok(State::load(dir)?.filter(|state| own == Some(state.instance)))
}

/// Whether the start of the directory's cluster is complete and its API server runs.
fn is_running(dir: &Path) -> Result<bool> {
    let Some(state) = state_of(dir)?.filter(|state| state.complete) else {
        return Ok(false);
    };
    let processes = marked(&bridge(state.instance))?;
    Ok(processes
        .iter()
        .any(|process| process.component == "kube-apiserver"))
}
