//! The command line: types only.

mod add;
mod bundle;
mod check;
pub(crate) mod completion;
mod connection;
mod explain;
mod fleet;
mod fleet_add;
mod fleet_join;
pub(crate) mod help;
mod images;
mod install;
mod list;
mod migrate;
mod output;
mod parse;
mod remove;
mod rollout;
mod status;
mod usage;
mod values;
mod why;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub(crate) use add::{Add, Asking, Credentials, LiveCheck};
pub(crate) use bundle::Bundle;
pub(crate) use check::Check;
pub(crate) use connection::Connection;
pub(crate) use explain::Explain;
pub(crate) use fleet::{
    Fleet, FleetAccept, FleetCommand, FleetDiff, FleetInstall, FleetPause, FleetRemove,
    FleetResume, FleetRetry, FleetStatus, FleetUndo, FleetWait,
};
pub(crate) use fleet_add::{FleetAdd, NewFleet};
pub(crate) use fleet_join::FleetJoin;
pub(crate) use images::{Images, ImagesCommand, Push};
pub(crate) use install::Install;
pub(crate) use list::List;
pub(crate) use migrate::{Migrate, Tool};
pub(crate) use output::{Form, Formats};
pub(crate) use remove::Remove;
pub(crate) use rollout::{History, Pause, Resume, Retry, Undo};
pub(crate) use status::Status;
pub(crate) use usage::message;
pub(crate) use values::{
    CatalogSecret, ControlPlane, KubeletFile, KubeletUnit, Limit, Named, Original, Provider,
    SecretName, Span,
};
pub(crate) use why::{PodName, Why};

/// Registry credentials for every node of a cluster
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-globalps",
    bin_name = "kubectl globalps",
    version,
    before_help = "\
Examples:
  # Every node may pull from quay.io
  kubectl globalps add quay.io -u robot --password-stdin --wait < token

  # Show the progress
  kubectl globalps status --watch

  # Restore every node
  kubectl globalps remove --all --wait",
    after_help = "Exit status: 0 success, 1 negative result, 2 error, 130 interrupted with Ctrl-C",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub connection: Connection,
    /// When to use colors; `NO_COLOR` turns them off
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Output"
    )]
    pub color: Color,
    /// Print every request to the API server, without credentials
    #[arg(
        short = 'v', long, alias = "v", global = true, value_name = "LEVEL", help_heading = "Output",
        num_args = 0..=1, require_equals = true, default_value_t = 0, default_missing_value = "1"
    )]
    pub verbosity: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Add(Add),
    #[command(alias = "get")]
    Status(Status),
    #[command(alias = "ls")]
    List(List),
    Diff(Diff),
    #[command(aliases = ["delete", "rm"])]
    Remove(Remove),
    #[command(alias = "doctor")]
    Check(Check),
    Bundle(Bundle),
    Retry(Retry),
    #[command(alias = "suspend")]
    Pause(Pause),
    Resume(Resume),
    History(History),
    #[command(alias = "rollback")]
    Undo(Undo),
    Fleet(Fleet),
    Images(Images),
    Install(Install),
    Uninstall(Uninstall),
    Migrate(Migrate),
    Validate(Validate),
    #[command(hide = true)]
    Explain(Explain),
    Why(Why),
    Version(Version),
    Completion(Completion),
    Options(Options),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

/// Flags for waiting for a rollout.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Wait {
    /// Follow the rollout until every node is synced
    #[arg(long)]
    pub wait: bool,
    /// Maximum time to wait
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10m",
        requires = "wait"
    )]
    pub timeout: Span,
}

/// Flags for what follows the rollout of credentials.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitAndRetry {
    #[command(flatten)]
    pub rollout: Wait,
    /// After --wait, delete pods that wait for an image of these registries, so that they pull at once
    ///
    /// Only pods that a controller recreates, by the Eviction API, so that disruption budgets hold. Static pods, pods of Jobs
    /// and pods of controllers that may not recreate them stay. The command lists the pods that it does not delete, with the reason.
    #[arg(long, requires = "wait")]
    pub retry_pods: bool,
}

/// How manifests are applied.
#[derive(Clone, Debug, Args)]
pub(crate) struct Applying {
    /// What --yes is called now.
    #[arg(long, hide = true)]
    pub apply: bool,
    /// Skip the confirmation prompt. Required without a terminal
    #[arg(short, long)]
    pub yes: bool,
    /// Install over what another program, such as Helm, installed
    #[arg(long)]
    pub force_conflicts: bool,
    /// Show what would be created and changed, without changing the cluster: `client` compares the fields of the manifests,
    /// `server` lets the API server apply them without storing them. `$KUBECTL_EXTERNAL_DIFF` applies
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
    /// With --dry-run=client: print the manifests, and don't read the cluster
    #[arg(short, long, value_name = "FORMAT", value_parser = Formats::Object)]
    pub output: Option<Form>,
    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: Span,
}

impl Applying {
    /// Without a question.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.yes || self.apply
    }
}

/// Conflicts with another owner of the Secret.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Owner {
    /// Change the Secret and `spec.sources` even if another program owns them
    #[arg(long)]
    pub force_conflicts: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    #[default]
    None,
    /// Print the result and send nothing
    Client,
    /// Let the API server validate the change without storing it
    Server,
}

impl DryRun {
    /// The suffix that kubectl prints after a line such as `configured`.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// Show what the additional pull secret changes
///
/// Compares the Secret with the credentials in force on the nodes, one line per registry. Without --filename, it also shows
/// changes of scopes and delivery. Credentials are never shown, and are not passed to the program in
/// `$KUBECTL_EXTERNAL_DIFF`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Examples:
  # Show what is not in force yet
  kubectl globalps diff

  # Show what a Secret or a config.json would change
  kubectl globalps diff -f secret.yaml
  kubectl globalps diff -f ~/.docker/config.json",
    after_help = "Exit status: 0 no differences, 1 differences or nodes that are behind, 2 error"
)]
pub(crate) struct Diff {
    /// Compare this Secret manifest or config.json instead of the cluster's Secret; `-` reads stdin
    #[arg(short = 'f', long, value_name = "FILE")]
    pub filename: Option<PathBuf>,
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = Formats::Text)]
    pub output: Form,
}

/// Restore every node and remove globalps with its pull secret
///
/// Deletes everything that `install` created, and also Secret `additional-pull-secret` and its history. Save the credentials first if you need them again: `kubectl get secret additional-pull-secret -n kube-system -o yaml > FILE`. The Secrets of other sources stay.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  kubectl globalps uninstall

  # Show what it would restore and delete
  kubectl globalps uninstall --dry-run

  # Without a confirmation prompt
  kubectl globalps uninstall --yes

  # Don't wait for unreachable nodes
  kubectl globalps uninstall --skip-unreachable")]
pub(crate) struct Uninstall {
    /// Finish without nodes that are unreachable or can't be restored, and list what stays on them
    #[arg(long)]
    pub skip_unreachable: bool,
    /// Skip the confirmation prompt
    #[arg(short, long)]
    pub yes: bool,
    /// Show which nodes would be restored, which kubelets would restart, and which objects would be deleted, without changing
    /// the cluster
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
    /// Maximum time to wait for the nodes
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub timeout: Span,
}

/// Check a credentials file as a node would, without a cluster
#[derive(Debug, Args)]
#[command(
    before_help = "\
Examples:
  kubectl globalps validate ~/.docker/config.json

  # In a pipeline, before it applies the Secret
  kubectl globalps validate secret.yaml -o json",
    after_help = "Exit status: 0 valid, 1 invalid, 2 error"
)]
pub(crate) struct Validate {
    /// A config.json or a Secret manifest; `-` reads stdin
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// FILE as a flag
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub filename: Option<PathBuf>,
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = Formats::Text)]
    pub output: Form,
}

/// Show the versions of the plugin and of the controller
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  kubectl globalps version
  kubectl globalps version --client -o json")]
pub(crate) struct Version {
    /// Print only the plugin's version, without a cluster
    #[arg(long)]
    pub client: bool,
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = Formats::Text)]
    pub output: Form,
}

/// List the flags of every command
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  kubectl globalps options")]
pub(crate) struct Options {}

/// Print a shell's completion script
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  # For `kubectl globalps`, if kubectl's own completion is set up; also completes registries and nodes
  ln -s \"$(command -v kubectl-globalps)\" /usr/local/bin/kubectl_complete-globalps

  # For `kubectl-globalps`
  source <(kubectl-globalps completion bash)")]
pub(crate) struct Completion {
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

#[cfg(test)]
mod tests;
