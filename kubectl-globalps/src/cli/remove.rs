//! Flags of `remove`.

use clap::{ArgGroup, Args};

use super::values::SourceName;
use super::{Owner, TEMPLATE, Wait};

/// Take the credentials of a registry away from every node
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  kubectl globalps remove --registry quay.io --wait

  # Put every node back as it was, without a question
  kubectl globalps remove --all --yes --wait

  # The same, without nodes that never return
  kubectl globalps remove --all --skip-unreachable --wait

  # A registry of another source
  kubectl globalps remove --registry quay.io --source team-a-pull-secret",
    group(ArgGroup::new("what").required(true))
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Remove {
    /// Registry; may be repeated
    #[arg(
        long,
        visible_alias = "docker-server",
        value_name = "REGISTRY",
        group = "what"
    )]
    pub registry: Vec<String>,
    /// Every registry: deletes the Secret. Every node is restored, or keeps what `spec.sources` gives
    #[arg(long, group = "what")]
    pub all: bool,
    /// Of this Secret instead of `additional-pull-secret`; with its last registry it goes, and leaves `spec.sources`
    #[arg(long, value_name = "SECRET")]
    pub source: Option<SourceName>,
    /// Finish without unreachable nodes, and name what stays on them
    #[arg(long, conflicts_with_all = ["registry", "source"])]
    pub skip_unreachable: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// It is no error if there is nothing to remove
    #[arg(long)]
    pub ignore_not_found: bool,
    #[command(flatten)]
    pub owner: Owner,
    #[command(flatten)]
    pub wait: Wait,
}
