//! Credential helpers, called by docker's protocol: `docker-credential-NAME get` reads the server from stdin and prints
//! JSON. The password appears in no argument and no message.

use std::io::ErrorKind;

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use globalps_dockerconfig::{Credential, Secret, shown_key};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::cli::Span;
use crate::credentials::auth_file::identity_token;
use crate::error::{Failure, Result};
use crate::platform;

/// Long enough for a user to type the password of a keychain.
const TIME: Duration = Duration::from_mins(1);
/// User name that docker's helpers report for an identity token, which only some programs can use.
const TOKEN_USER: &str = "<token>";
const MAX_ANSWER: u64 = 64 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    #[serde(default)]
    username: String,
    #[serde(default)]
    secret: String,
}

/// The helper's answer; `None` if it has no credentials for the server.
pub(crate) async fn get(helper: &str, server: &str, registry: &str) -> Result<Option<Credential>> {
    let program = format!("docker-credential-{helper}");
    let registry = &shown_key(registry);
    if helper.is_empty() || helper.contains(['/', '\\']) {
        return Err(Failure::new(
            format!(
                "`{program}`, configured for `{registry}`, is not the name of a credential helper"
            ),
            "`credHelpers` and `credsStore` name programs without `docker-credential-` and without a directory",
        ));
    }
    let (status, stdout) = tokio::time::timeout(TIME, run(&program, server))
        .await
        .map_err(|_| {
            Failure::new(
                format!("`{program}` did not answer for `{registry}` within {}", Span(TIME)),
                "does it wait for a keychain to be unlocked? Without a desktop, give user and password with `-u` and `--password-stdin`",
            )
        })?
        .map_err(|error| not_run(&program, registry, &error))?;
    understand(
        &program,
        registry,
        status.success(),
        &status.to_string(),
        &stdout,
    )
}

async fn run(program: &str, server: &str) -> std::io::Result<(ExitStatus, Vec<u8>)> {
    let mut child = Command::new(platform::program(program))
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // As docker does: the helper may print what it waits for.
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(server.as_bytes()).await {
            // The helper may answer without reading its stdin.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written?,
        }
    }
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_ANSWER).read_to_end(&mut answer).await?;
    }
    Ok((child.wait().await?, answer))
}

fn not_run(program: &str, registry: &str, error: &std::io::Error) -> Failure {
    if error.kind() == ErrorKind::NotFound {
        return Failure::new(
            format!(
                "the credential helper `{program}`, configured for `{registry}`, is not on the PATH"
            ),
            "install it, or give user and password with `-u` and `--password-stdin`",
        );
    }
    Failure::new(
        format!("the credential helper `{program}` could not be run: {error}"),
        "give user and password with `-u` and `--password-stdin`",
    )
}

/// Never shows the helper's output, which may be the password.
fn understand(
    program: &str,
    registry: &str,
    success: bool,
    status: &str,
    stdout: &[u8],
) -> Result<Option<Credential>> {
    if !success {
        let text = String::from_utf8_lossy(stdout);
        if text.contains("credentials not found") {
            return Ok(None);
        }
        return Err(Failure::new(
            format!("the credential helper `{program}` failed for `{registry}` ({status})"),
            "does logging in work, as in `docker login`? Else give user and password with `-u` and `--password-stdin`",
        ));
    }
    let answer: HelperAnswer = serde_json::from_slice(stdout).map_err(|_| {
        Failure::new(
            format!("the credential helper `{program}` answered for `{registry}` with something that is not its protocol"),
            "it must print {\"Username\": ..., \"Secret\": ...}",
        )
    })?;
    if answer.username == TOKEN_USER {
        return Err(identity_token(registry, &format!("`{program}`")));
    }
    let credential = Credential {
        username: Secret::new(answer.username),
        password: Secret::new(answer.secret),
    };
    Ok(Some(credential).filter(Credential::is_complete))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_parsed_and_errors_distinguished() {
        let understand = |success, text: &str| {
            let found = understand(
                "docker-credential-x",
                "r",
                success,
                "exit status: 1",
                text.as_bytes(),
            );
            match found {
                Ok(Some(c)) => format!(
                    "{}:{}",
                    String::from_utf8_lossy(c.username.expose()),
                    String::from_utf8_lossy(c.password.expose())
                ),
                Ok(None) => "none".to_owned(),
                Err(failure) => failure.message,
            }
        };
        for (success, text, expected) in [
            (
                true,
                r#"{"ServerURL":"r","Username":"u","Secret":"p"}"#,
                "u:p",
            ),
            (true, r#"{"Username":"u","Secret":""}"#, "none"),
            (true, r#"{"Username":"","Secret":"hunter2"}"#, "none"),
            (
                true,
                r#"{"Username":"<token>","Secret":"hunter2"}"#,
                "what `docker-credential-x` has for `r` is an identity token, which a kubelet can't use",
            ),
            (
                true,
                "hunter2",
                "the credential helper `docker-credential-x` answered for `r` with something that is not its protocol",
            ),
            (
                true,
                "",
                "the credential helper `docker-credential-x` answered for `r` with something that is not its protocol",
            ),
            (false, "credentials not found in native keychain\n", "none"),
            (
                false,
                "hunter2",
                "the credential helper `docker-credential-x` failed for `r` (exit status: 1)",
            ),
        ] {
            assert_eq!(understand(success, text), expected, "{text}");
        }
    }
}
