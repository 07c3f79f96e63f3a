//! `add`: where the credentials come from, and how they are tried.

use std::path::PathBuf;

use clap::Args;

use super::values::Original;
use super::{DryRun, ObjectFormat, Owner, Span, TEMPLATE, Wait};

/// Give every node the credentials of a registry
///
/// Extends the Secret `additional-pull-secret`; other registries in it stay. Before anything is written, the registry is
/// asked whether it takes the credentials.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # The password comes from a file or another program
  kubectl globalps add --registry quay.io -u robot --password-stdin < token

  # Ask for the password, then follow the rollout
  kubectl globalps add --registry registry.example.com:5000/team -u robot --wait

  # What `docker login` or `podman login` left, credential helpers included
  kubectl globalps add --registry quay.io --registry ghcr.io --authfile ~/.docker/config.json

  # All that another Secret has
  kubectl globalps add --from-secret openshift-config/pull-secret --all

  # A registry with a certificate authority of its own
  kubectl globalps add --registry registry.example.com -u robot --ca-file ca.crt

  # Only show the Secret
  kubectl globalps add --registry quay.io -u robot --password-stdin --dry-run=client -o yaml < token"
)]
pub(crate) struct Add {
    /// Do not change the cluster
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
    /// Print the Secret; its credentials are in it with `--dry-run` only
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
    #[command(flatten)]
    pub owner: Owner,
    #[command(flatten)]
    pub wait: Wait,
    // With headings of their own, which what follows would come under too.
    #[command(flatten)]
    pub from: Credentials,
    #[command(flatten)]
    pub check: LiveCheck,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Credentials")]
pub(crate) struct Credentials {
    /// Registry, or registry and path: `quay.io`, `quay.io/org`; may be repeated
    #[arg(long, visible_alias = "docker-server", value_name = "REGISTRY")]
    pub registry: Vec<String>,
    /// User of the registry
    #[arg(short, long, visible_alias = "docker-username", value_name = "USER")]
    pub username: Option<String>,
    /// Read the password from stdin; one line ending at its end is dropped
    #[arg(long, requires = "username", conflicts_with = "password")]
    pub password_stdin: bool,
    /// Password; others on this machine can see it, so rather use --password-stdin
    #[arg(
        short,
        long,
        visible_alias = "docker-password",
        value_name = "PASSWORD",
        requires = "username"
    )]
    pub password: Option<String>,
    /// No registry asks for it
    #[arg(long, hide = true, requires = "username")]
    pub docker_email: Option<String>,
    /// Docker's config.json or podman's auth.json; credential helpers are asked here; may be repeated
    ///
    /// Without it and without a user, `$REGISTRY_AUTH_FILE`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["username", "from_secret", "from_file"])]
    pub authfile: Vec<PathBuf>,
    /// Another Secret of the cluster
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with_all = ["username", "from_file"])]
    pub from_secret: Option<Original>,
    /// A Secret manifest or a config.json, as it is; `-`: from stdin
    #[arg(long, value_name = "FILE", conflicts_with = "username")]
    pub from_file: Option<PathBuf>,
    /// Every registry of the files or the Secret
    #[arg(long, conflicts_with_all = ["registry", "username"])]
    pub all: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Check with the registry")]
pub(crate) struct LiveCheck {
    /// Do not ask the registry whether it takes the credentials
    #[arg(long, conflicts_with_all = ["ca_file", "insecure", "check_timeout"])]
    pub skip_check: bool,
    #[command(flatten)]
    pub asking: Asking,
}

/// How registries are asked.
#[derive(Debug, Args)]
pub(crate) struct Asking {
    /// Certificate authorities to trust beside the machine's own, as PEM
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub ca_file: Option<PathBuf>,
    /// Take any certificate, and plain HTTP: others on the way can read the password
    #[arg(long)]
    pub insecure: bool,
    /// Time for each question to a registry
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub check_timeout: Span,
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::super::tests::parse;

    #[test]
    fn flags_go_together_as_docker_and_podman_users_expect() {
        for (line, expected) in [
            ("add --registry r -u u --password-stdin", None),
            (
                "add --docker-server r --docker-username u --docker-password p",
                None,
            ),
            ("add --registry r -u u -p p --wait --timeout 90s", None),
            ("add --registry r -u u --dry-run -o yaml", None),
            ("add --registry r --dry-run=server", None),
            ("add --registry a --registry b -u u --password-stdin", None),
            ("add --authfile f --authfile g --all", None),
            ("add --registry r --from-secret a/b --skip-check", None),
            ("add --registry r --from-file - --insecure", None),
            ("add --registry r -u u --ca-file f --check-timeout 5s", None),
            ("add --all", None),
            ("add --registry r --all", Some(ErrorKind::ArgumentConflict)),
            (
                "add --authfile f -u u --password-stdin",
                Some(ErrorKind::ArgumentConflict),
            ),
            (
                "add --authfile f --from-secret a/b",
                Some(ErrorKind::ArgumentConflict),
            ),
            (
                "add --from-file f --from-secret a/b",
                Some(ErrorKind::ArgumentConflict),
            ),
            (
                "add --from-secret a --all",
                Some(ErrorKind::ValueValidation),
            ),
            (
                "add --registry r --skip-check --insecure",
                Some(ErrorKind::ArgumentConflict),
            ),
            (
                "add --registry r --skip-check --check-timeout 5s",
                Some(ErrorKind::ArgumentConflict),
            ),
            (
                "add --registry r --ca-file f --insecure",
                Some(ErrorKind::ArgumentConflict),
            ),
            (
                "add --registry r --password-stdin",
                Some(ErrorKind::MissingRequiredArgument),
            ),
            (
                "add --registry r -p p",
                Some(ErrorKind::MissingRequiredArgument),
            ),
            (
                "add --registry r -u u -p p --password-stdin",
                Some(ErrorKind::ArgumentConflict),
            ),
            (
                "add --registry r -u u --timeout 90s",
                Some(ErrorKind::MissingRequiredArgument),
            ),
            (
                "add --registry r --wait --timeout soon",
                Some(ErrorKind::ValueValidation),
            ),
            (
                "add --registry r --wait --timeout 0",
                Some(ErrorKind::ValueValidation),
            ),
        ] {
            let found = parse(line).err();
            assert_eq!(found.as_ref().map(clap::Error::kind), expected, "{line}");
        }
    }
}
