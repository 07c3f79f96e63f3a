//! Go templates. kubectl executes them, so that the output is the same as kubectl's.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::error::{Failure, Result};
use crate::platform;

/// A template that kubectl has not parsed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoTemplate(pub(crate) String);

impl GoTemplate {
    /// The output of the template for this value. kubectl reads the value from stdin and sends no request to an API server.
    pub(crate) fn text(&self, value: &Value) -> Result<String> {
        let program = kubectl(std::env::var_os("KUBECTL_PATH"));
        let output = format!("-o=go-template={}", self.wrapped());
        let not_run = |error: std::io::Error| {
            let program = program.to_string_lossy();
            Failure::new(
                format!("`{program}` executes Go templates, and could not be run: {error}"),
                "install kubectl, or print with `-o jsonpath=TEMPLATE`, which needs no other program",
            )
        };
        let mut child = Command::new(&program)
            .args([
                "patch",
                "--local",
                "--type=merge",
                "--patch={}",
                "--filename=-",
            ])
            .arg(output)
            // kubectl needs no user configuration here, and a broken one would make it fail.
            .env(
                "KUBECONFIG",
                if cfg!(windows) { "NUL" } else { "/dev/null" },
            )
            .env("KUBERC", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(not_run)?;
        if let Some(mut stdin) = child.stdin.take() {
            // If kubectl exits before it has read everything, it prints the reason.
            let _ = stdin.write_all(object(value).to_string().as_bytes());
        }
        let ran = child.wait_with_output().map_err(not_run)?;
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        Err(Failure::new(
            format!(
                "kubectl could not execute the Go template: {}",
                reason(&String::from_utf8_lossy(&ran.stderr))
            ),
            "`-o json` prints what the template is executed on",
        ))
    }

    /// Wraps the template to apply it to the value in [`object`].
    fn wrapped(&self) -> String {
        let Self(template) = self;
        format!("{{{{template \"value\" .value}}}}{{{{define \"value\"}}}}{template}{{{{end}}}}")
    }
}

/// kubectl only accepts objects with a kind, and would split a list at the root into its items.
fn object(value: &Value) -> Value {
    json!({"apiVersion": "globalps.io/v1alpha1", "kind": "Output", "value": value})
}

/// Since 1.37, kubectl passes its own path to plugins; older versions are searched on the PATH.
fn kubectl(own: Option<OsString>) -> OsString {
    let own = own.filter(|path| !path.is_empty());
    own.unwrap_or_else(|| platform::program("kubectl"))
}

/// kubectl's error without the template, and without positions, which count in the wrapped template.
fn reason(stderr: &str) -> &str {
    let stderr = stderr.trim_end();
    let Some((_, reason)) = stderr.rsplit_once("template: output:") else {
        return stderr.lines().last().unwrap_or("it says no reason");
    };
    let reason = reason.split_once(": ").map_or(reason, |(_, reason)| reason);
    reason
        .strip_prefix("executing \"value\" at ")
        .unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubectl_that_started_the_plugin_is_the_one_that_runs() {
        for (own, expected) in [
            (Some("/opt/kubectl-1.37"), "/opt/kubectl-1.37"),
            (Some(""), "kubectl"),
            (None, "kubectl"),
        ] {
            let own = own.map(OsString::from);
            assert_eq!(kubectl(own), platform::program(expected));
        }
    }

    #[test]
    fn a_reason_is_without_what_the_user_did_not_write() {
        for (stderr, expected) in [
            (
                "error: error parsing template {{template \"value\" .value}}{{define \"value\"}}{{foo}}{{end}}, template: output:1: function \"foo\" not defined\n",
                "function \"foo\" not defined",
            ),
            (
                "error: error executing template \"...\": template: output:1:47: executing \"value\" at <index .items 9>: error calling index: index out of range: 9\n",
                "<index .items 9>: error calling index: index out of range: 9",
            ),
            (
                "I0101\nerror: unknown flag: --local\n",
                "error: unknown flag: --local",
            ),
            ("", "it says no reason"),
        ] {
            assert_eq!(reason(stderr), expected);
        }
    }
}
