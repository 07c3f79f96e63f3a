//! Flags of `remove`.

use clap::{ArgGroup, Args};

use super::values::SourceName;
use super::{DryRun, Owner, TEMPLATE, Wait};

/// Take the credentials of a registry away from every node
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  kubectl globalps remove quay.io --wait

  # What would nodes lose?
  kubectl globalps remove quay.io --dry-run

  # Put every node back as it was, without a question
  kubectl globalps remove --all --yes --wait

  # The same, without nodes that never return
  kubectl globalps remove --all --skip-unreachable --wait

  # A registry of another source
  kubectl globalps remove quay.io --source team-a-pull-secret",
    group(ArgGroup::new("what").required(true))
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Remove {
    /// Registry, or registry and path, as it was added
    #[arg(value_name = "REGISTRY", group = "what")]
    pub registries: Vec<String>,
    /// The same as a flag; may be repeated
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
    #[arg(long, conflicts_with_all = ["registries", "registry", "source"])]
    pub skip_unreachable: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// It is no error if there is nothing to remove
    #[arg(long)]
    pub ignore_not_found: bool,
    /// Show what nodes lose, and do not change the cluster
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
    #[command(flatten)]
    pub owner: Owner,
    #[command(flatten)]
    pub wait: Wait,
}
