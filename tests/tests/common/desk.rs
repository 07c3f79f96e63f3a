//! A user's machine without a cluster, for tests of `kubectl globalps add`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use globalps_testkit::lone_registry::USER;
use globalps_testkit::product::{Product, Ran, run};
use globalps_testkit::web::Server;
use tempfile::TempDir;

pub const PASSWORD: &str = "l1ve-s3cret";
/// Printed for `--insecure` before any request.
pub const LOUD: &str = "warning: `--insecure` accepts any certificate and plain HTTP, so others on the network can read the password\n";

/// A user's machine: an API server without objects, and a directory.
pub struct Desk {
    pub api: Server,
    pub directory: TempDir,
}

impl Desk {
    pub fn new() -> Self {
        let status = r#"{"apiVersion":"v1","kind":"Status","status":"Failure","code":404,"reason":"NotFound","message":"no"}"#;
        let api = Server::web(None, |_| {
            let json = ("content-type", "application/json".to_owned());
            (404, vec![json], status.to_owned())
        })
        .unwrap();
        let desk = Self {
            api,
            directory: TempDir::new().unwrap(),
        };
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n",
            desk.api.address()
        );
        desk.write("kubeconfig", &kubeconfig);
        desk
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    /// Installs a credential helper that runs this script.
    pub fn helper(&self, name: &str, script: &str) {
        let text = self.write(&format!("{name}.sh"), &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
        // Copied by another process, because a program can't be executed while another test's new child process still
        // has it open.
        let program = self.path(&format!("docker-credential-{name}"));
        let copied = Command::new("cp").arg(text).arg(program).status().unwrap();
        assert!(copied.success());
    }

    /// `add ARGS` as a dry run, with only these environment variables.
    pub fn command(&self, args: &[&str], env: &[(&str, &str)]) -> Command {
        let path = format!("{}:/usr/bin:/bin", self.directory.path().display());
        let mut command = Command::new(Product::plugin_path());
        command
            .args(["add", "--dry-run=client", "-o", "name"])
            .args(args)
            .env_clear()
            .env("PATH", path)
            .env("KUBECONFIG", self.path("kubeconfig"))
            .envs(env.iter().copied());
        command
    }

    pub fn add_with(&self, args: &[&str], env: &[(&str, &str)], input: &str) -> Ran {
        let ran = run(&mut self.command(args, env), input).unwrap();
        let shown = format!("{ran:?}");
        assert!(!shown.contains(PASSWORD), "a password is shown: {shown}");
        ran
    }

    /// Runs `add --registry REGISTRY -u puller --password-stdin ARGS` with the right password.
    pub fn add(&self, registry: &str, args: &[&str], env: &[(&str, &str)]) -> Ran {
        self.add_as(PASSWORD, registry, args, env)
    }

    pub fn add_as(
        &self,
        password: &str,
        registry: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Ran {
        let flags = ["--registry", registry, "-u", USER, "--password-stdin"];
        self.add_with(&[&flags, args].concat(), env, password)
    }
}

/// Stderr, with a name in place of each address.
pub fn said(ran: &Ran, names: &[(&str, &str)]) -> String {
    names
        .iter()
        .fold(ran.stderr.clone(), |text, (address, name)| {
            text.replace(address, name)
        })
}

/// The expected result of `add`.
pub trait Expected {
    /// Checks that it succeeded with this output.
    fn goes_on(&self, names: &[(&str, &str)], expected: &str);
    /// Checks that it failed with this message and this hint.
    fn refuses(&self, names: &[(&str, &str)], message: &str, hint: &str);
}

impl Expected for Ran {
    fn goes_on(&self, names: &[(&str, &str)], expected: &str) {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert_eq!(self.stdout, "secret/additional-pull-secret\n");
        assert_eq!(said(self, names), expected);
    }

    fn refuses(&self, names: &[(&str, &str)], message: &str, hint: &str) {
        let expected = format!("error: {message}\n\nhint: {hint}\n");
        let found = said(self, names);
        assert!(
            found.ends_with(&expected),
            "\nfound:\n{found}\nexpected:\n{expected}"
        );
        assert_eq!(self.code, Some(2), "{self:?}");
        assert_eq!(self.stdout, "");
    }
}
