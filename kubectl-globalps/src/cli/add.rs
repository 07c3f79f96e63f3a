//! Flags of `add`: the source of the credentials, and the check with the registry.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use globalps_core::api::SourceScope;
use globalps_provider::Pattern;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::values::{Original, SourceName, label, pattern};
use super::{DryRun, Form, Formats, Owner, Span, WaitAndRetry};

/// Add registry credentials to every node
///
/// Adds the credentials to the Secret `additional-pull-secret`, or to the one of --source; other registries in it stay.
/// Before it writes, the command checks the credentials with the registry.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  # Read the password from a file or another program
  kubectl globalps add quay.io -u robot --password-stdin < token

  # Prompt for the password, then follow the rollout
  kubectl globalps add registry.example.com:5000/team -u robot --wait

  # Copy the credentials of `docker login` or `podman login`, also from credential helpers
  kubectl globalps add quay.io ghcr.io --authfile ~/.docker/config.json

  # Copy all credentials of another Secret
  kubectl globalps add --from-secret openshift-config/pull-secret --all

  # A registry with its own certificate authority
  kubectl globalps add registry.example.com -u robot --ca-file ca.crt

  # Only pods of some namespaces may use the credentials
  kubectl globalps add quay.io -u robot --only-namespaces team-a,'team-a-*'

  # Replace a leaked password, and keep the old one nowhere
  kubectl globalps add quay.io -u robot --password-stdin --forget-old --wait < token

  # Print the Secret without changing the cluster
  kubectl globalps add quay.io -u robot --password-stdin --dry-run=client -o yaml < token")]
pub(crate) struct Add {
    /// Registry, optionally with a path: `quay.io`, `quay.io/org`
    #[arg(value_name = "REGISTRY", conflicts_with_all = ["registry", "all"])]
    pub registries: Vec<String>,
    /// Print what would change, without changing the cluster
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
    /// Skip the confirmation prompt for restarts of kubelets. Without a terminal there is no prompt
    #[arg(short, long)]
    pub yes: bool,
    /// Print the Secret; without `--dry-run`, its credentials are masked
    #[arg(short, long, value_name = "FORMAT", value_parser = Formats::Object)]
    pub output: Option<Form>,
    /// Write the Secret even if globalps is not installed, or no pod would get the credentials
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub owner: Owner,
    #[command(flatten)]
    pub wait: WaitAndRetry,
    /// A password leaked: forget the credentials that this replaces, so that `undo` can't bring them back
    ///
    /// Once every reachable node has the new ones, the controller deletes earlier additional pull secrets from the history and the
    /// Secret for new nodes, and each node deletes earlier values from its journal. Unreachable nodes follow when they return; nobody
    /// waits for them. If the rollout halts, nothing is forgotten. With --wait, the command waits for this as well.
    #[arg(long)]
    pub forget_old: bool,
    // Last, because their headings would also cover the flags after them.
    #[command(flatten)]
    pub from: Credentials,
    #[command(flatten)]
    pub to: To,
    #[command(flatten)]
    pub check: LiveCheck,
}

/// Characters of a derived name before its last part.
const LONGEST_NAME: usize = 200;

/// The Secret that gets the credentials, and its scope.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Scope",
    group(ArgGroup::new("namespaces").multiple(true))
)]
pub(crate) struct To {
    /// Add to this Secret instead of `additional-pull-secret`, and list it in `spec.sources`
    ///
    /// An existing source keeps its scope, unless --only-namespaces or --only-namespace-labels replace it. A new source
    /// without these flags is for every pod. With these flags, the default is a name made of them, such as `team-a-pull-secret`.
    #[arg(long, value_name = "SECRET")]
    pub source: Option<SourceName>,
    /// Only for pods in these namespaces; `*` matches any characters. Needs `spec.kubelet.delivery: CredentialProvider`
    #[arg(
        long, value_name = "NAMES", value_delimiter = ',', value_parser = pattern,
        group = "namespaces"
    )]
    pub only_namespaces: Vec<Pattern>,
    /// Only for pods in namespaces with all of these labels, in addition to --only-namespaces
    #[arg(
        long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label,
        group = "namespaces"
    )]
    pub only_namespace_labels: Vec<(String, String)>,
    /// Only for pods with these service accounts in the selected namespaces; `*` matches any characters
    #[arg(
        long, value_name = "NAMES", value_delimiter = ',', value_parser = pattern,
        requires = "namespaces"
    )]
    pub only_service_accounts: Vec<Pattern>,
}

impl To {
    /// The source, or the name that the flags of a scope make: `team-a-pull-secret` of `team-a,team-a-*`.
    pub(super) fn name_source(&mut self) {
        let labels = self.only_namespace_labels.iter();
        let labels = labels.map(|(key, value)| format!("{key}-{value}"));
        let patterns = self.only_namespaces.iter().map(ToString::to_string);
        let mut parts: Vec<String> = Vec::new();
        for text in patterns.chain(labels) {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let words: String = text
                .to_lowercase()
                .chars()
                .map(|c| if plain(c) { c } else { '-' })
                .collect();
            let words = words.trim_matches('-');
            let words = if words.is_empty() { "all" } else { words };
            if !parts.iter().any(|part| part == words) {
                parts.push(words.to_owned());
            }
        }
        if self.source.is_none() && !parts.is_empty() {
            let mut name = parts.join("-");
            name.truncate(LONGEST_NAME);
            let name = format!("{}-pull-secret", name.trim_end_matches('-'));
            self.source = Some(SourceName(name));
        }
    }

    /// `None` without flags for a scope.
    pub(crate) fn scope(&self) -> Option<SourceScope> {
        let texts = |patterns: &[Pattern]| patterns.iter().map(ToString::to_string).collect();
        let labels = &self.only_namespace_labels;
        if self.only_namespaces.is_empty() && labels.is_empty() {
            return None;
        }
        Some(SourceScope {
            namespaces: texts(&self.only_namespaces),
            namespace_selector: (!labels.is_empty()).then(|| LabelSelector {
                match_labels: Some(labels.iter().cloned().collect()),
                ..LabelSelector::default()
            }),
            service_accounts: texts(&self.only_service_accounts),
        })
    }
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Credentials")]
pub(crate) struct Credentials {
    /// REGISTRY as a flag; may be repeated
    #[arg(long, visible_alias = "docker-server", value_name = "REGISTRY")]
    pub registry: Vec<String>,
    /// User name for the registry
    #[arg(short, long, visible_alias = "docker-username", value_name = "USER")]
    pub username: Option<String>,
    /// Read the password from stdin, without a trailing newline
    #[arg(long, requires = "username", conflicts_with = "password")]
    pub password_stdin: bool,
    /// Password; other users of this machine can see it, so prefer --password-stdin
    #[arg(
        short,
        long,
        visible_alias = "docker-password",
        value_name = "PASSWORD",
        requires = "username"
    )]
    pub password: Option<String>,
    /// Registries don't use it
    #[arg(long, hide = true, requires = "username")]
    pub docker_email: Option<String>,
    /// Docker's config.json or podman's auth.json; may be repeated. Its credential helpers run on this machine
    ///
    /// Without --authfile and --username, `$REGISTRY_AUTH_FILE` applies.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["username", "from_secret", "from_file"])]
    pub authfile: Vec<PathBuf>,
    /// Copy from another Secret of the cluster
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with_all = ["username", "from_file"])]
    pub from_secret: Option<Original>,
    /// A Secret manifest or a config.json, used as it is; `-` reads stdin
    #[arg(long, value_name = "FILE", conflicts_with = "username")]
    pub from_file: Option<PathBuf>,
    /// Add all registries of the files or the Secret
    #[arg(long, conflicts_with_all = ["registry", "username"])]
    pub all: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Check with the registry")]
pub(crate) struct LiveCheck {
    /// Don't check the credentials with the registry
    #[arg(long, conflicts_with_all = ["ca_file", "insecure", "check_timeout"])]
    pub skip_check: bool,
    #[command(flatten)]
    pub asking: Asking,
}

/// Flags for requests to registries.
#[derive(Debug, Args)]
pub(crate) struct Asking {
    /// PEM file with certificate authorities to trust in addition to the machine's own
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub ca_file: Option<PathBuf>,
    /// Accept any certificate and plain HTTP; others on the network can then read the password
    #[arg(long)]
    pub insecure: bool,
    /// Timeout of each request to a registry
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub check_timeout: Span,
}

impl Add {
    /// Whether it refuses to write what reaches no pod.
    pub(crate) fn refuses(&self) -> bool {
        self.dry_run != DryRun::Client && !self.force
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::super::tests::{assert_kinds, parse};

    #[test]
    fn flags_go_together_as_docker_and_podman_users_expect() {
        #[rustfmt::skip]
        let cases = [
            ("add --registry r -u u --password-stdin", None),
            ("add --docker-server r --docker-username u --docker-password p", None),
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
            ("add --authfile f -u u --password-stdin", Some(ErrorKind::ArgumentConflict)),
            ("add --authfile f --from-secret a/b", Some(ErrorKind::ArgumentConflict)),
            ("add --from-file f --from-secret a/b", Some(ErrorKind::ArgumentConflict)),
            ("add --from-secret a --all", Some(ErrorKind::ValueValidation)),
            ("add --registry r --skip-check --insecure", Some(ErrorKind::ArgumentConflict)),
            ("add --registry r --skip-check --check-timeout 5s", Some(ErrorKind::ArgumentConflict)),
            ("add --registry r --ca-file f --insecure", Some(ErrorKind::ArgumentConflict)),
            ("add --registry r --password-stdin", Some(ErrorKind::MissingRequiredArgument)),
            ("add --registry r -p p", Some(ErrorKind::MissingRequiredArgument)),
            ("add --registry r -u u -p p --password-stdin", Some(ErrorKind::ArgumentConflict)),
            ("add --registry r -u u --timeout 90s", Some(ErrorKind::MissingRequiredArgument)),
            ("add --registry r --wait --timeout soon", Some(ErrorKind::ValueValidation)),
            ("add --registry r --wait --timeout 0", Some(ErrorKind::ValueValidation)),
        ];
        assert_kinds(&cases);
    }

    #[test]
    fn a_scope_goes_with_a_source_and_names_namespaces() {
        #[rustfmt::skip]
        let cases = [
            ("add --registry r -u u --source s", None),
            ("add --registry r -u u --source s --only-namespaces a,b-* --only-service-accounts ci", None),
            ("add --registry r --source s --only-namespaces a --only-namespace-labels t=a,u=b", None),
            ("add --registry r --source s --only-namespaces team-[", Some(ErrorKind::ValueValidation)),
            ("add --registry r --source s --only-namespaces a,,b", Some(ErrorKind::ValueValidation)),
            ("add --registry r --only-namespaces a", None),
            ("add --registry r --source s --only-service-accounts ci", Some(ErrorKind::MissingRequiredArgument)),
            ("add --registry r --source additional-pull-secret", Some(ErrorKind::ValueValidation)),
        ];
        assert_kinds(&cases);
    }

    #[test]
    fn a_scope_without_a_source_names_one() {
        for (flags, expected) in [
            ("--only-namespaces team-a", Some("team-a-pull-secret")),
            (
                "--only-namespaces team-a,team-a-*",
                Some("team-a-pull-secret"),
            ),
            ("--only-namespaces *", Some("all-pull-secret")),
            ("--only-namespaces a,b-*", Some("a-b-pull-secret")),
            ("--only-namespace-labels t=A", Some("t-a-pull-secret")),
            ("--only-namespaces a --source s", Some("s")),
            ("", None),
        ] {
            let cli = parse(&format!("add --registry r {flags}")).expect("flags");
            let crate::cli::Command::Add(add) = cli.command else {
                unreachable!("it is `add`")
            };
            let source = add.to.source.as_ref().map(|source| source.0.as_str());
            assert_eq!(source, expected, "{flags}");
        }
    }

    #[test]
    fn flags_make_a_scope() {
        for (flags, expected) in [
            ("", serde_json::json!(null)),
            (
                "--only-namespaces a,b-*",
                serde_json::json!({"namespaces": ["a", "b-*"]}),
            ),
            (
                "--only-namespace-labels t=a,u=b --only-service-accounts ci",
                serde_json::json!({
                    "namespaceSelector": {"matchLabels": {"t": "a", "u": "b"}},
                    "serviceAccounts": ["ci"],
                }),
            ),
        ] {
            let cli = parse(&format!("add --registry r --source s {flags}")).expect("flags");
            let crate::cli::Command::Add(add) = cli.command else {
                unreachable!("it is `add`")
            };
            assert_eq!(serde_json::json!(add.to.scope()), expected, "{flags}");
        }
    }
}
