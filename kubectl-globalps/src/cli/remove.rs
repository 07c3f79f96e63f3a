//! Flags of `remove`.

use clap::{ArgGroup, Args};

use super::values::SourceName;
use super::{DryRun, Owner, Wait};

/// Remove registry credentials from every node
#[derive(Debug, Args)]
#[command(
    before_help = "\
Examples:
  kubectl globalps remove quay.io --wait

  # Show what nodes would lose
  kubectl globalps remove quay.io --dry-run

  # Restore every node, without a confirmation prompt
  kubectl globalps remove --all --yes --wait

  # The same, without waiting for unreachable nodes
  kubectl globalps remove --all --skip-unreachable --wait

  # A registry of another source
  kubectl globalps remove quay.io --source team-a-pull-secret",
    group(ArgGroup::new("what").required(true))
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Remove {
    /// Registry, optionally with a path, as it was added
    #[arg(value_name = "REGISTRY", group = "what")]
    pub registries: Vec<String>,
    /// REGISTRY as a flag; may be repeated
    #[arg(
        long,
        visible_alias = "docker-server",
        value_name = "REGISTRY",
        group = "what"
    )]
    pub registry: Vec<String>,
    /// Delete the Secret. Every node is restored, or keeps what `spec.sources` provides
    #[arg(long, group = "what")]
    pub all: bool,
    /// Remove from this Secret instead of `additional-pull-secret`; the last registry also removes the Secret and its entry in `spec.sources`
    #[arg(long, value_name = "SECRET")]
    pub source: Option<SourceName>,
    /// Finish without nodes that are unreachable or can't be restored, and list what stays on them
    #[arg(long, conflicts_with_all = ["registries", "registry", "source"])]
    pub skip_unreachable: bool,
    /// Skip the confirmation prompt
    #[arg(short, long)]
    pub yes: bool,
    /// Succeed if there is nothing to remove
    #[arg(long)]
    pub ignore_not_found: bool,
    /// Show what nodes would lose, without changing the cluster
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
