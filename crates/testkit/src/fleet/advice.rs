//! Executes the commands that the controller's messages advise, in the situations in which they are printed. API
//! server, controller and plugin are real.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::absolute;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use globalps_core::names::{ADDITIONAL_SECRET, CONTROLLER, CONTROLLER_NAMESPACE, GLOBAL_SECRET};
use serde_json::{Value, json};

use super::stage::Stage;
use crate::product::{CONFIG, NAMESPACE, Product, pull_secret};
use crate::until;

/// Watches that lack permission are retried within this time.
const SOON: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(200);

/// A change of the configuration that needs permissions that are not installed, and the advised command.
#[rustfmt::skip]
const SITUATIONS: [(&str, &str); 5] = [
    (r#"{"sources": [{"name": "one"}, {"name": "two"}]}"#, "kubectl globalps install --source one --source two"),
    (
        r#"{"sources": [{"name": "one", "scope": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}, {"name": "two"}]}"#,
        "kubectl globalps install",
    ),
    (
        r#"{"original": {"secretRef": {"namespace": "team", "name": "original"}}}"#,
        "kubectl globalps install --original team/original",
    ),
    (r#"{"imagePullSecrets": {"enabled": true}}"#, "kubectl globalps install --deliver-to-namespaces"),
    (r#"{"operators": {"enabled": true}}"#, "kubectl globalps install --operators NAMESPACE/SECRET"),
];

/// Follows the advice in each situation, one after the other. A later command must not undo what an earlier one did.
pub fn run() -> Result<usize> {
    let stage = Stage::with("advice", None)?;
    let desk = Desk { stage: &stage };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    stage.apply(&namespace)?;
    for (namespace, name) in [
        (NAMESPACE, ADDITIONAL_SECRET),
        (NAMESPACE, "one"),
        (NAMESPACE, "two"),
        ("team", "original"),
    ] {
        let auths = json!({"auths": {format!("{name}.example.com"): {"auth": "dTpw"}}});
        stage.apply(pull_secret(namespace, name, &auths.to_string()))?;
    }
    stage.start_controller()?;
    // The controller creates the configuration.
    until("a configuration", SOON, POLL, || Ok(desk.config().ok()))?;
    for (spec, command) in SITUATIONS {
        if spec.contains("namespaceSelector") {
            desk.forbid_namespaces()?;
        }
        let spec: Value = serde_json::from_str(spec)?;
        let patch = json!({"spec": spec});
        stage.cluster.patch(NAMESPACE, CONFIG, &patch)?;
        until(command, SOON, POLL, || {
            Ok(desk.advised()?.contains(command).then_some(()))
        })?;
        eprintln!("{command}");
        desk.follow(&command.replace("NAMESPACE/SECRET", "team/original"))?;
        // The earlier commands are still effective, too.
        let is_over = || Ok(desk.advised()?.is_empty().then_some(()));
        until(&format!("{command} to help"), SOON, POLL, is_over)
            .with_context(|| format!("{:?}", desk.advised()))?;
    }
    let config = desk.config()?;
    for (spec, _) in SITUATIONS {
        let wanted: Value = serde_json::from_str(spec)?;
        for (field, wanted) in wanted.as_object().into_iter().flatten() {
            let found = &config["spec"][field];
            let is_kept = field == "sources" || contains(found, wanted);
            ensure!(is_kept, "{field}: {found}");
        }
    }
    ensure!(contains(
        &config["spec"]["sources"][0]["scope"],
        &json!({"namespaceSelector": {"matchLabels": {"a": "b"}}})
    ));
    Ok(SITUATIONS.len())
}

struct Desk<'a> {
    stage: &'a Stage,
}

impl Desk<'_> {
    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.stage
            .cluster
            .kubectl(&[&["-n", NAMESPACE], arguments].concat())
    }

    fn config(&self) -> Result<Value> {
        let config = self.kubectl(&["get", "globalpullsecret", GLOBAL_SECRET, "-o", "json"])?;
        Ok(serde_json::from_str(&config)?)
    }

    /// Removes the permission to list namespaces from the role, like another client. An existing watch continues until
    /// the next leader.
    fn forbid_namespaces(&self) -> Result<()> {
        let rules =
            json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}]);
        let patch = json!({"rules": rules});
        let role = format!("clusterrole/{CONTROLLER}");
        self.stage.cluster.patch(NAMESPACE, &role, &patch)?;
        self.stage.stop_controller()?;
        self.stage.start_controller().map(drop)
    }

    /// The commands in the messages of the status.
    fn advised(&self) -> Result<BTreeSet<String>> {
        let status = self.config()?["status"].to_string();
        let quoted = status.split('`').skip(1).step_by(2);
        Ok(quoted
            .filter(|it| it.starts_with("kubectl "))
            .map(str::to_owned)
            .collect())
    }

    /// Runs a command in a shell, like a user who copies it. `install` waits for the controller's pods, which nothing runs here.
    fn follow(&self, command: &str) -> Result<()> {
        let ready = json!({"status": {
            "observedGeneration": 1000, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        }});
        let cluster = &self.stage.cluster;
        let deployment = format!("deployment/{CONTROLLER}");
        cluster.patch_status(CONTROLLER_NAMESPACE, &deployment, &ready)?;
        let kubectl = cluster.kubectl_command();
        let programs = [Product::plugin_path(), kubectl.get_program().into()];
        let mut path = OsString::new();
        for program in programs {
            path.push(absolute(program)?.parent().context("a directory")?);
            path.push(":");
        }
        path.push(std::env::var_os("PATH").unwrap_or_default());
        // On a terminal it would prompt.
        let command = format!("{command} --yes");
        let output = Command::new("sh")
            .args(["-c", &command])
            .env("PATH", path)
            .env("KUBECONFIG", self.stage.cluster.kubeconfig())
            .output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command}: {error}");
        Ok(())
    }
}

/// Whether all fields of `part` are in `whole`.
fn contains(whole: &Value, part: &Value) -> bool {
    match part.as_object() {
        Some(fields) => fields
            .iter()
            .all(|(name, part)| contains(&whole[name], part)),
        None => whole == part,
    }
}
