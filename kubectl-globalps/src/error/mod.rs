//! Errors for users and scripts.

mod permission;

use std::error::Error;
use std::process::ExitCode;

use kube::client::AuthError;
use kube::config::{KubeconfigError, LoadDataError};

use crate::error::permission::Missing;
pub(crate) use crate::error::permission::quoted;

/// Exit status of every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success, or a positive result.
    Done = 0,
    /// Negative result: not synced, differences, or a rollout that failed or timed out.
    No = 1,
    Failed = 2,
    Interrupted = 130,
}

impl Exit {
    pub(crate) fn of(is_positive: bool) -> Self {
        if is_positive { Self::Done } else { Self::No }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// `E` differs only for the few functions whose error users don't see.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// `None` if this user has no permission to read it.
pub(crate) fn allowed<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(failure) if failure.is(403) => Ok(None),
        found => found.map(Some),
    }
}

/// `None` also if the API server doesn't serve the kind.
pub(crate) fn or_absent<T>(answer: Result<Option<T>>) -> Result<Option<T>> {
    match answer {
        Err(failure) if failure.is(404) => Ok(None),
        found => found,
    }
}

/// An error and a hint. Neither contains credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// One sentence in lower case, without a full stop.
    pub message: String,
    pub hint: String,
    pub exit: Exit,
    /// HTTP status of the API server's response.
    code: Option<u16>,
    /// The API server did not respond.
    is_unreachable: bool,
    /// The user answered a prompt with no.
    pub is_aborted: bool,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
            exit: Exit::Failed,
            code: None,
            is_unreachable: false,
            is_aborted: false,
        }
    }

    /// The user answered a prompt with no, which is not an error.
    pub(crate) fn aborted() -> Self {
        Self {
            is_aborted: true,
            ..Self::no("aborted: nothing was changed", "")
        }
    }

    /// A negative result.
    pub(crate) fn no(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            exit: Exit::No,
            ..Self::new(message, hint)
        }
    }

    /// The server did not respond.
    pub(crate) fn unreachable(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            is_unreachable: true,
            ..Self::new(message, hint)
        }
    }

    pub(crate) fn not_found(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code: Some(404),
            ..Self::new(message, hint)
        }
    }

    /// The error of a request. `doing` describes it, for example "get Secret `x`".
    pub(crate) fn from_kube(doing: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self {
                code: Some(status.code),
                ..api_answer(doing, status.code, &status.message)
            },
            // The error text may quote the response, which can be a Secret.
            kube::Error::SerdeError(_) => Self::new(
                format!("could not {doing}: the API server's response could not be parsed"),
                "check with `kubectl globalps version` that the plugin and the controller have the same version",
            ),
            other => match auth_cause(other) {
                Some(cause) => auth(cause),
                None => Self::unreachable(
                    format!("could not {doing}: {}", innermost(other)),
                    "check the connection with `kubectl cluster-info`; choose another cluster with `--context` or `--server`",
                ),
            },
        }
    }

    pub(crate) fn from_kubeconfig(error: &KubeconfigError) -> Self {
        // Parse errors quote the file, which contains tokens.
        let message = match error {
            KubeconfigError::ReadConfig(cause, path) => {
                format!("kubeconfig `{}` could not be read: {cause}", path.display())
            }
            KubeconfigError::Parse(_) => "the file is not a valid kubeconfig".to_owned(),
            KubeconfigError::CurrentContextNotSet => {
                "no cluster is configured: there is no current context".to_owned()
            }
            KubeconfigError::LoadClusterOfContext(_) => {
                "the kubeconfig has no such cluster".to_owned()
            }
            KubeconfigError::LoadCertificateAuthority(LoadDataError::ReadFile(cause, path))
            | KubeconfigError::LoadClientCertificate(LoadDataError::ReadFile(cause, path))
            | KubeconfigError::LoadClientKey(LoadDataError::ReadFile(cause, path)) => {
                format!("`{}` could not be read: {cause}", path.display())
            }
            other => without_user(&other.to_string()),
        };
        Self::new(
            message,
            "check with `kubectl config view`; choose with `--kubeconfig` and `--context`",
        )
    }

    /// Adds the server's address if it did not respond.
    pub(crate) fn of_server(mut self, server: &str) -> Self {
        if self.is_unreachable {
            self.message = format!("{} (API server `{server}`)", self.message);
        }
        self
    }

    /// Whether the same request may succeed later without a user's action: no response, or a server error.
    pub(crate) fn may_pass(&self) -> bool {
        let passes = |code| matches!(code, 408 | 410 | 429 | 500..);
        self.is_unreachable || self.code.is_some_and(passes)
    }

    /// Whether the API server answered with this HTTP status.
    pub(crate) fn is(&self, code: u16) -> bool {
        self.code == Some(code)
    }
}

fn api_answer(doing: &str, code: u16, message: &str) -> Failure {
    if message.trim_start().starts_with('<') {
        return Failure::new(
            format!(
                "could not {doing}: the response is a web page (HTTP {code}), not one of an API server"
            ),
            "is there a proxy or a login page in between? Choose the API server with `--server` or `--context`",
        );
    }
    match code {
        401 => Failure::new(
            format!("could not {doing}: the API server rejected your login"),
            "log in to the cluster again, or choose another `--context`, `--user` or `--token`",
        ),
        403 => match Missing::of(message) {
            Some(missing) => Failure::new(
                format!("not allowed to {doing}: {missing}"),
                format!(
                    "an administrator of the cluster grants it with `{}`",
                    missing.grant()
                ),
            ),
            None => Failure::new(
                format!("not allowed to {doing}: {message}"),
                "ask an administrator of the cluster; `kubectl auth can-i --list` shows what you may do",
            ),
        },
        404 => Failure::new(
            format!("could not {doing}: {message}"),
            "is globalps installed here? See `kubectl globalps install --help`",
        ),
        409 => Failure::new(
            format!("could not {doing}: another client changed it at the same time"),
            "run the command again",
        ),
        _ => Failure::new(
            format!("could not {doing}: {message}"),
            "see the API server's message above; `-v` shows every request",
        ),
    }
}

fn auth_cause(error: &kube::Error) -> Option<&AuthError> {
    if let kube::Error::Auth(cause) = error {
        return Some(cause);
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<AuthError>() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

/// Omits the output of the login program, which can contain a token.
fn auth(error: &AuthError) -> Failure {
    let message = match error {
        // Omits the command too: it contains the program's arguments and environment.
        AuthError::AuthExecRun { out, .. } => {
            format!(
                "the login program of the kubeconfig failed ({})",
                out.status
            )
        }
        AuthError::AuthExecStart(cause) => {
            format!("the login program of the kubeconfig could not be started: {cause}")
        }
        AuthError::ReadTokenFile(cause, path) => {
            format!("token file `{}` could not be read: {cause}", path.display())
        }
        _ => "the login with the kubeconfig failed".to_owned(),
    };
    Failure::new(
        message,
        "does `kubectl get nodes` work with the same kubeconfig and context?",
    )
}

/// The last cause in the chain: the most specific one.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    without_user(&cause.to_string())
}

/// Removes users and passwords from URLs in the text.
pub(crate) fn without_user(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let is_end = |c: char| c.is_whitespace() || "`'\"<>".contains(c);
        let (url, tail) = after.split_at(after.find(is_end).unwrap_or(after.len()));
        shown.push_str(before);
        // At the last `@`: an unencoded password can contain one too.
        shown.push_str(url.rsplit_once('@').map_or(url, |(_, host)| host));
        rest = tail;
    }
    shown + rest
}

/// Location of a section of this version's guide: a URL if `repository` is set in Cargo.toml, otherwise a path in the repository.
pub(crate) fn guide(section: &str) -> String {
    guide_in(env!("CARGO_PKG_REPOSITORY"), section)
}

/// Location of another page below `docs`.
pub(crate) fn page(file: &str) -> String {
    page_in(env!("CARGO_PKG_REPOSITORY"), file)
}

fn guide_in(repository: &str, section: &str) -> String {
    page_in(repository, &format!("troubleshooting.md#{section}"))
}

fn page_in(repository: &str, page: &str) -> String {
    let file = format!("docs/{page}");
    match repository.trim_end_matches('/') {
        "" => file,
        base => format!("{base}/blob/v{}/{file}", env!("CARGO_PKG_VERSION")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn the_guide_is_a_url_once_the_project_has_an_address() {
        assert_eq!(guide_in("", "lease"), "docs/troubleshooting.md#lease");
        let version = env!("CARGO_PKG_VERSION");
        for repository in ["https://h/a/b", "https://h/a/b/"] {
            let expected = format!("https://h/a/b/blob/v{version}/docs/troubleshooting.md#lease");
            assert_eq!(guide_in(repository, "lease"), expected);
        }
    }

    fn answered(code: u16, message: &str) -> Failure {
        let status = Status {
            code,
            ..Status::failure(message, "")
        };
        Failure::from_kube("get Secret `s`", &kube::Error::Api(status.boxed()))
    }

    #[test]
    fn an_error_of_the_api_server_is_reported_by_its_code() {
        for (code, expected) in [
            (
                401,
                "could not get Secret `s`: the API server rejected your login",
            ),
            (403, "not allowed to get Secret `s`: because"),
            (404, "could not get Secret `s`: because"),
            (
                409,
                "could not get Secret `s`: another client changed it at the same time",
            ),
            (500, "could not get Secret `s`: because"),
        ] {
            let failure = answered(code, "because");
            assert_eq!(failure.message, expected);
            assert_eq!(failure.exit, Exit::Failed);
            assert!(failure.is(code) && !failure.hint.is_empty());
        }
    }

    #[test]
    fn a_web_page_is_not_repeated() {
        let failure = answered(403, "<html>\nhunter2");
        assert_eq!(
            failure.message,
            "could not get Secret `s`: the response is a web page (HTTP 403), not one of an API server"
        );
    }

    #[test]
    fn what_cannot_be_parsed_is_never_quoted() {
        let error = serde_json::from_str::<u8>("\"hunter2\"").expect_err("not a number");
        assert!(error.to_string().contains("hunter2"));
        let failure = Failure::from_kube("get it", &kube::Error::SerdeError(error));
        assert!(!format!("{failure:?}").contains("hunter2"));
    }

    #[test]
    fn users_and_passwords_in_urls_are_not_shown() {
        for (text, expected) in [
            (
                "no `http://u:hunter2@proxy:3128` for https://h/path",
                "no `http://proxy:3128` for https://h/path",
            ),
            ("socks5://u:hunt@er2@p", "socks5://p"),
            ("u@h has no scheme", "u@h has no scheme"),
        ] {
            assert_eq!(without_user(text), expected);
        }
        let proxy = kube::Error::ProxyProtocolUnsupported {
            proxy_url: Box::new("ftp://u:hunter2@proxy".parse().expect("a URL")),
        };
        let failure = Failure::from_kube("connect to the cluster", &proxy);
        assert!(failure.message.contains("ftp://proxy"), "{failure:?}");
        assert!(!format!("{failure:?}").contains("hunter2"));
    }

    #[cfg(unix)]
    #[test]
    fn the_command_of_a_login_program_is_not_shown() {
        let ran = std::process::Command::new("sh")
            .args(["-c", "echo hunter2 >&2; exit 3"])
            .output();
        let error = AuthError::AuthExecRun {
            cmd: r#"TOKEN="hunter2" "aws" "--password" "hunter2""#.to_owned(),
            out: Box::new(ran.expect("sh")),
        };
        let failure = Failure::from_kube("get it", &kube::Error::Auth(error));
        assert_eq!(
            failure.message,
            "the login program of the kubeconfig failed (exit status: 3)"
        );
        assert!(!format!("{failure:?}").contains("hunter2"));
    }

    #[test]
    fn exit_codes_are_what_scripts_rely_on() {
        for (exit, code) in [
            (Exit::Done, 0),
            (Exit::No, 1),
            (Exit::Failed, 2),
            (Exit::Interrupted, 130),
        ] {
            assert_eq!(exit as u8, code);
        }
    }
}
