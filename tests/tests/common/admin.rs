//! An admin who types the commands of the documentation as printed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use globalps_testkit::product::Product;
use globalps_testkit::terminal::Terminal;
use globalps_testkit::{Access, Cluster, kubernetes, printed};
use serde_json::json;
use tempfile::TempDir;

use super::base64;

/// An admin's machine: a directory, and kubectl with the plugin.
pub struct Admin {
    directory: TempDir,
    /// Examples on the page, and their values.
    pub names: Vec<(&'static str, String)>,
}

impl Admin {
    /// The machine has a kubeconfig of the cluster, and credentials of its registry: `config.json`, `password` and
    /// `ca.crt`.
    pub fn new(cluster: &Cluster) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("bin")).unwrap();
        let registry = cluster.registry();
        let admin = Self {
            directory,
            names: Vec::new(),
        };
        admin.has("kubectl", &kubernetes::bin_dir().join("kubectl"));
        admin.has("kubectl-globalps", &Product::plugin_path());
        admin.write("config.json", &login(cluster));
        admin.write("password", &registry.password().unwrap());
        admin.write("ca.crt", &fs::read_to_string(registry.authority()).unwrap());
        admin.write(
            "kubeconfig",
            &fs::read_to_string(cluster.kubeconfig()).unwrap(),
        );
        admin
    }

    /// Adds a program to the path.
    pub fn has(&self, name: &str, program: &Path) {
        let program = std::path::absolute(program).unwrap();
        symlink(program, self.path("bin").join(name)).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    /// Runs the commands below a heading on a terminal, and answers yes to each question. `after`: called after each command.
    pub fn follows(&self, page: &str, heading: &str, mut after: impl FnMut(&str)) {
        for line in printed::commands(page, heading).unwrap() {
            self.types(&line);
            after(&line);
        }
    }

    /// Like [`Self::follows`], for the block `name` of a page.
    pub fn runs(&self, page: &str, name: &str) {
        for line in printed::console(page, name).unwrap() {
            self.types(&line);
        }
    }

    pub fn types(&self, line: &str) {
        let mut terminal = self.starts(line);
        terminal.press("y\n").unwrap();
        let (code, shown) = terminal.end(Duration::from_mins(3)).unwrap();
        println!("$ {line}\n{shown}");
        assert_eq!(code, Some(0), "{line}");
    }

    /// Starts a command on a terminal, with its examples replaced.
    pub fn starts(&self, line: &str) -> Terminal {
        let mut own = line.to_owned();
        for (example, name) in &self.names {
            own = own.replace(example, name);
        }
        let path = std::env::var("PATH").unwrap();
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "cd \"$0\" && exec sh -ec \"$1\""])
            .arg(self.directory.path())
            .arg(&own)
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("KUBECONFIG", self.path("kubeconfig"))
            .env("SSL_CERT_FILE", self.path("ca.crt"))
            .env("REGISTRY_AUTH_FILE", self.path("config.json"));
        Terminal::start(&shell, 120, 40).unwrap()
    }
}

/// Credentials of the registry with TLS.
pub fn login(cluster: &Cluster) -> String {
    let registry = cluster.registry();
    let pair = format!("{}:{}", registry.user(), registry.password().unwrap());
    let address = registry.address(Access::Tls);
    json!({"auths": {address: {"auth": base64(&pair)}}}).to_string()
}
