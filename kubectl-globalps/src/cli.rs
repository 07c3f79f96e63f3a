//! The command line: types only.

mod add;
mod check;
mod connection;
mod explain;
mod migrate;
mod remove;
mod rollout;
mod status;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use globalps_core::api::{Attach, DeliveryType};
use globalps_core::names;

pub(crate) use add::{Add, Asking, Credentials};
pub(crate) use check::Check;
pub(crate) use connection::Connection;
pub(crate) use explain::Explain;
pub(crate) use migrate::{Migrate, Tool};
pub(crate) use remove::Remove;
pub(crate) use rollout::{History, Pause, Resume, Retry, Undo};
pub(crate) use status::{Status, StatusFormat};
pub(crate) use values::{
    ControlPlane, KubeletFile, KubeletUnit, Named, Original, Provider, SecretName, Span,
};

/// Examples first: they are what people look for.
const TEMPLATE: &str = "\
{about-with-newline}
{before-help}{usage-heading} {usage}

{all-args}{after-help}";

/// Registry credentials for every node of a cluster
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-globalps",
    bin_name = "kubectl globalps",
    version,
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # Every node may pull from quay.io
  kubectl globalps add --registry quay.io -u robot --password-stdin --wait < token

  # How far is it?
  kubectl globalps status --watch

  # Put every node back as it was
  kubectl globalps remove --all --wait",
    after_help = "Exit status: 0 done, 1 the answer is no, 2 it could not be done",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub connection: Connection,
    /// Colors on the terminal; `NO_COLOR` is respected
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Output"
    )]
    pub color: Color,
    /// Show every request to the API server; never a credential
    #[arg(
        short = 'v', long, global = true, value_name = "LEVEL", help_heading = "Output",
        num_args = 0..=1, require_equals = true, default_value_t = 0, default_missing_value = "1"
    )]
    pub verbosity: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Add(Add),
    Status(Status),
    Diff(Diff),
    Remove(Remove),
    Check(Check),
    Retry(Retry),
    Pause(Pause),
    Resume(Resume),
    History(History),
    Undo(Undo),
    Install(Install),
    Uninstall(Uninstall),
    Migrate(Migrate),
    Validate(Validate),
    Explain(Explain),
    Version(Version),
    Completion(Completion),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

/// Waiting for a rollout.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Wait {
    /// Follow the rollout until every node has it
    #[arg(long)]
    pub wait: bool,
    /// How long to wait
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10m",
        requires = "wait"
    )]
    pub timeout: Span,
}

/// Who may change the Secret.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Owner {
    /// Change the Secret, and `spec.sources`, even where another program owns it
    #[arg(long)]
    pub force_conflicts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    None,
    /// Show it, and send nothing
    Client,
    /// Let the API server check it, and store nothing
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectFormat {
    Yaml,
    Json,
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    Table,
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextFormat {
    Text,
    Json,
}

/// Show what the additional pull secret changes
///
/// Compares it with what is in force on the nodes, one line for each registry. Without a file it shows changed scopes of
/// sources and another delivery, too. Credentials are never shown, and never handed to the program that
/// `$KUBECTL_EXTERNAL_DIFF` names.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # What is not in force yet?
  kubectl globalps diff

  # What would this Secret, or config.json, change?
  kubectl globalps diff -f secret.yaml
  kubectl globalps diff -f ~/.docker/config.json",
    after_help = "Exit status: 0 no differences, 1 differences (without -f: or nodes that lag), 2 an error"
)]
pub(crate) struct Diff {
    /// Secret manifest or config.json to compare instead of the cluster's; `-` is stdin
    #[arg(short = 'f', long, value_name = "FILE")]
    pub filename: Option<PathBuf>,
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: TextFormat,
}

/// Print or apply what globalps needs in a cluster
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # Print the manifests
  kubectl globalps install --controller-image REGISTRY/globalps-controller:TAG --syncer-image REGISTRY/globalps-syncer:TAG

  # Apply them and wait until the controller runs
  kubectl globalps install --controller-image ... --syncer-image ... --apply

  # Let the Secret of another team be one more source
  kubectl globalps install --source team-a-pull-secret --apply

  # Keep a pull secret in every namespace, and change no node
  kubectl globalps install --image-pull-secrets --delivery None --apply

  # Let `spec.kubelet.unit` name a unit that is of no known distribution
  kubectl globalps install --allow-unit my-kubelet.service --apply"
)]
pub(crate) struct Install {
    /// Image of the controller; with --apply, the one that is installed
    #[arg(long, value_name = "IMAGE", required_unless_present = "apply")]
    pub controller_image: Option<String>,
    /// Image of the agent that runs on every node; with --apply, the one that is installed
    #[arg(long, value_name = "IMAGE", required_unless_present = "apply")]
    pub syncer_image: Option<String>,
    /// Secret with the cluster's original pull secret, which the controller may read then
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub original: Option<Original>,
    /// Further Secret of the namespace with credentials, which the controller may read then; may be repeated. With --apply,
    /// beside those that are sources already
    #[arg(long, value_name = "NAME")]
    pub source: Vec<String>,
    /// `HostedControlPlane` whose pull secret is the original one, on its management cluster
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        requires = "kubeconfig_secret",
        conflicts_with = "original"
    )]
    pub hosted_control_plane: Option<ControlPlane>,
    /// Secret of namespace globalps-system with a kubeconfig of its management cluster, under the key `kubeconfig`
    #[arg(long, value_name = "NAME", requires = "hosted_control_plane")]
    pub kubeconfig_secret: Option<String>,
    /// systemd unit that `spec.kubelet.unit` can name beside those of known kubelets; may be repeated. Each node restarts it
    #[arg(long, value_name = "NAME.service")]
    pub allow_unit: Vec<KubeletUnit>,
    /// File that `spec.kubelet.configFile` can name beside those of known kubelets; may be repeated. Each node's syncer
    /// may write in its directory
    #[arg(long, value_name = "PATH")]
    pub allow_config_file: Vec<KubeletFile>,
    /// Paths that `spec.kubelet.credentialProvider` can name beside those of known distributions; may be repeated. Each
    /// node's syncer may write in these directories
    #[arg(long, value_name = "CONFIG:BIN_DIR")]
    pub allow_provider: Vec<Provider>,
    /// How credentials reach the kubelets: by their credentials file, by a credential provider, or not at all
    #[arg(long, value_enum, ignore_case = true)]
    pub delivery: Option<Delivery>,
    /// Keep a pull secret of this name in every namespace; without a name, `global-pull-secret`
    #[arg(
        long, value_name = "SECRET_NAME", num_args = 0..=1, require_equals = true,
        default_missing_value = names::GLOBAL_SECRET
    )]
    pub image_pull_secrets: Option<SecretName>,
    /// How pods refer to that Secret. Default: `admission`; with --apply, where the API server serves
    /// `MutatingAdmissionPolicy` v1, else `service-accounts`
    #[arg(long, value_enum, ignore_case = true, requires = "image_pull_secrets")]
    pub attach: Option<AttachBy>,
    /// Apply the manifests, and wait until the controller runs
    #[arg(long)]
    pub apply: bool,
    /// How long to wait
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        requires = "apply"
    )]
    pub timeout: Span,
}

/// How credentials reach the kubelets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delivery {
    /// The kubelet's credentials file, and a restart for each change
    #[value(name = "ConfigFile")]
    ConfigFile,
    /// A program that the kubelet runs at each pull: no restarts, and sources can have a scope
    #[value(name = "CredentialProvider")]
    CredentialProvider,
    /// Not at all: no node runs anything of globalps
    #[value(name = "None")]
    None,
}

impl From<Delivery> for DeliveryType {
    fn from(delivery: Delivery) -> Self {
        match delivery {
            Delivery::ConfigFile => Self::ConfigFile,
            Delivery::CredentialProvider => Self::CredentialProvider,
            Delivery::None => Self::None,
        }
    }
}

/// How pods refer to the Secret of their namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachBy {
    /// A `MutatingAdmissionPolicy` adds the reference to each new pod
    Admission,
    /// The controller adds the reference to service accounts
    ServiceAccounts,
}

impl From<AttachBy> for Attach {
    fn from(attach: AttachBy) -> Self {
        match attach {
            AttachBy::Admission => Self::Admission,
            AttachBy::ServiceAccounts => Self::ServiceAccounts,
        }
    }
}

/// Put every node back as it was and take globalps out of the cluster
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  kubectl globalps uninstall

  # Without a question
  kubectl globalps uninstall --yes

  # Without nodes that never return
  kubectl globalps uninstall --skip-unreachable"
)]
pub(crate) struct Uninstall {
    /// Finish without unreachable nodes, and name what stays on them
    #[arg(long)]
    pub skip_unreachable: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// How long to wait for the nodes
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub timeout: Span,
}

/// Say what nodes would make of a credentials file; no cluster is asked
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  kubectl globalps validate ~/.docker/config.json

  # In a pipeline, before the Secret is applied
  kubectl globalps validate secret.yaml -o json",
    after_help = "Exit status: 0 valid, 1 not valid, 2 it could not be read"
)]
pub(crate) struct Validate {
    /// A config.json or a Secret manifest; `-`: from stdin
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: TextFormat,
}

/// Show the versions of the plugin and of the controller
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  kubectl globalps version
  kubectl globalps version --client -o json"
)]
pub(crate) struct Version {
    /// Of the plugin only; no cluster is asked
    #[arg(long)]
    pub client: bool,
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: TextFormat,
}

/// Print a shell's completion script
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # For kubectl globalps, where kubectl's own completion is set up: names of registries and nodes too
  ln -s \"$(command -v kubectl-globalps)\" /usr/local/bin/kubectl_complete-globalps

  # For the program under its own name
  source <(kubectl-globalps completion bash)"
)]
pub(crate) struct Completion {
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    pub(super) fn parse(line: &str) -> Result<Cli, clap::Error> {
        let words = std::iter::once("kubectl-globalps").chain(line.split_whitespace());
        Cli::try_parse_from(words)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_go_together_as_kubectl_users_expect() {
        for (line, expected) in [
            ("status --wait -o json", None),
            ("status --node a --node b -l x=y,!z --no-headers", None),
            ("status --wait --watch", Some(ErrorKind::ArgumentConflict)),
            ("status -o xml", Some(ErrorKind::InvalidValue)),
            ("remove --registry a --registry b --yes", None),
            ("remove --all", None),
            ("remove --all --skip-unreachable --wait", None),
            (
                "remove --registry a --skip-unreachable",
                Some(ErrorKind::ArgumentConflict),
            ),
            ("remove --registry a --source s", None),
            ("remove --all --source s --yes", None),
            (
                "remove --source s",
                Some(ErrorKind::MissingRequiredArgument),
            ),
            (
                "remove --all --source s --skip-unreachable",
                Some(ErrorKind::ArgumentConflict),
            ),
            ("uninstall --skip-unreachable --yes", None),
            ("remove", Some(ErrorKind::MissingRequiredArgument)),
            (
                "remove --all --registry a",
                Some(ErrorKind::ArgumentConflict),
            ),
            (
                "install --controller-image c --syncer-image s --original a/b",
                None,
            ),
            (
                "install --apply --source a --source b --hosted-control-plane a/b --kubeconfig-secret k",
                None,
            ),
            (
                "install --apply --hosted-control-plane a/b",
                Some(ErrorKind::MissingRequiredArgument),
            ),
            (
                "install --apply --hosted-control-plane a/b --kubeconfig-secret k --original a/b",
                Some(ErrorKind::ArgumentConflict),
            ),
            (
                "install --controller-image c",
                Some(ErrorKind::MissingRequiredArgument),
            ),
            (
                "install --controller-image c --syncer-image s --original a",
                Some(ErrorKind::ValueValidation),
            ),
            ("diff -f -", None),
            ("explain i --pod a/b", None),
            ("explain i --service-account b", None),
            ("explain i --pod a/b/c", Some(ErrorKind::ValueValidation)),
            (
                "explain i --pod a --authfile f",
                Some(ErrorKind::ArgumentConflict),
            ),
            ("diff --color=sometimes", Some(ErrorKind::InvalidValue)),
            ("--context c status -n ns -v", None),
            (
                "status -v=6 --as u --as-group a --as-group b -s https://x",
                None,
            ),
            ("retry", None),
            ("retry node-1 node-2 --wait --timeout 5m", None),
            ("pause", None),
            ("pause --wait", Some(ErrorKind::UnknownArgument)),
            ("resume --wait", None),
            ("history -o yaml", None),
            ("history -o wide", Some(ErrorKind::InvalidValue)),
            ("undo --to-revision 3 --yes --dry-run=server", None),
            ("undo --to-revision last", Some(ErrorKind::ValueValidation)),
            ("stats", Some(ErrorKind::InvalidSubcommand)),
        ] {
            let found = parse(line).err();
            assert_eq!(found.as_ref().map(clap::Error::kind), expected, "{line}");
            if let Some(error) = found {
                assert_eq!(error.exit_code(), 2, "{line}");
            }
        }
    }

    #[test]
    fn flags_about_namespaces_go_together() {
        for (line, expected) in [
            ("status --namespaces -o name", None),
            (
                "status --namespaces --wait",
                Some(ErrorKind::ArgumentConflict),
            ),
            ("migrate imagepullsecret-patcher --dry-run", None),
            (
                "migrate imagepullsecret-patcher --secret-name s --yes",
                None,
            ),
            ("migrate other", Some(ErrorKind::InvalidValue)),
            ("migrate", Some(ErrorKind::MissingRequiredArgument)),
            ("install --apply --image-pull-secrets", None),
            (
                "install --apply --image-pull-secrets=x --attach service-accounts --delivery none",
                None,
            ),
            (
                "install --apply --image-pull-secrets=A",
                Some(ErrorKind::ValueValidation),
            ),
            (
                "install --apply --attach admission",
                Some(ErrorKind::MissingRequiredArgument),
            ),
        ] {
            let found = parse(line).err();
            assert_eq!(found.as_ref().map(clap::Error::kind), expected, "{line}");
        }
    }

    #[test]
    fn every_command_takes_the_flags_of_kubectl() {
        for command in [
            "status",
            "diff",
            "remove --all",
            "uninstall",
            "version",
            "check",
            "retry",
            "pause",
            "resume",
            "history",
            "undo",
            "add --registry r",
            "install --apply",
            "migrate imagepullsecret-patcher",
            "explain i",
        ] {
            for flag in [
                "--kubeconfig f",
                "--context c",
                "--cluster c",
                "--user u",
                "-n ns",
                "--namespace ns",
                "-s https://x",
                "--server https://x",
                "--token t",
                "--as u",
                "--as-group g --as-group h",
                "--as-uid 1",
                "--certificate-authority f",
                "--client-certificate f",
                "--client-key f",
                "--insecure-skip-tls-verify",
                "--tls-server-name n",
                "--request-timeout 5s",
            ] {
                let line = format!("{command} {flag}");
                assert!(parse(&line).is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn help_shows_the_plugin_as_kubectl_runs_it_and_examples_before_flags() {
        let all = Cli::command();
        let lines = all.get_subcommands().flat_map(|command| {
            let name = command.get_name();
            [format!("{name} --help"), format!("{name} -h")]
        });
        for line in lines.chain(["--help".to_owned()]) {
            let help = parse(&line).expect_err("help").to_string();
            let usage = help.find("Usage: kubectl globalps");
            let examples = help.find("Examples:");
            assert!(examples.is_some() && examples < usage, "{line}: {help}");
        }
    }
}
