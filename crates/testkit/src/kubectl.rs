//! kubectl for the cluster's admin.

use std::fmt::Display;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::run::run;
use crate::wait::{DEADLINE, until};
use crate::{Cluster, control_plane, objects};

impl Cluster {
    /// Runs kubectl as the cluster's admin. Returns standard output; an error contains standard error.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        control_plane::kubectl(self.layout(), args)
    }

    /// Like [`Self::kubectl`], for a line of words.
    pub fn kubectl_line(&self, line: &str) -> Result<String> {
        self.kubectl(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Like [`Self::kubectl_line`], for a command that must succeed.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn types(&self, line: &str) -> String {
        self.kubectl_line(line)
            .unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Runs kubectl with this standard input.
    pub fn kubectl_with(&self, args: &[&str], input: impl Display) -> Result<String> {
        let ran = run(self.kubectl_command().args(args), &input.to_string())?;
        // Omits the arguments, because a patch may contain a credential.
        let verb = args.first().copied().unwrap_or_default();
        ensure!(ran.code == Some(0), "kubectl {verb} failed: {}", ran.stderr);
        Ok(ran.stdout)
    }

    /// Runs `kubectl apply --server-side`, and takes over fields of other managers.
    pub fn apply(&self, manifests: impl Display) -> Result<()> {
        let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.kubectl_with(&args, manifests).map(drop)
    }

    /// Like [`Self::apply`], for several objects.
    pub fn apply_all(&self, objects: &[Value]) -> Result<()> {
        self.apply(json!({"apiVersion": "v1", "kind": "List", "items": objects}))
    }

    /// Runs `kubectl patch --type=merge`.
    pub fn patch(&self, namespace: &str, what: &str, patch: impl Display) -> Result<()> {
        let patch = patch.to_string();
        let args = ["patch", what, "-n", namespace, "--type=merge", "-p", &patch];
        self.kubectl(&args).map(drop)
    }

    /// Like [`Self::patch`], for the status.
    pub fn patch_status(&self, namespace: &str, what: &str, patch: impl Display) -> Result<()> {
        let patch = patch.to_string();
        let args = ["patch", what, "-n", namespace, "--subresource=status"];
        let args = [&args[..], &["--type=merge", "-p", &patch]].concat();
        self.kubectl(&args).map(drop)
    }

    /// A kubectl command as the cluster's admin, for the caller to extend and start.
    pub fn kubectl_command(&self) -> Command {
        control_plane::kubectl_command(self.layout())
    }

    /// The object `KIND/NAME`, or the list of a kind in the namespace, in the format of `kubectl get -o json`; null if
    /// it does not exist.
    pub fn get(&self, namespace: &str, what: &str) -> Result<Value> {
        objects::read(self.layout(), namespace, what)
    }

    /// Waits for the service account that Kubernetes' own controllers create in a new namespace.
    pub(crate) fn wait_default_account(&self, namespace: &str) -> Result<()> {
        let what = format!("the default service account of {namespace}");
        let poll = Duration::from_millis(100);
        until(&what, DEADLINE, poll, || {
            let found = self.get(namespace, "serviceaccount/default").ok();
            Ok(found.filter(|found| !found.is_null()).map(drop))
        })
    }
}
