//! Flags of the commands that control a rollout.

use clap::Args;

use super::values::revision;
use super::{DryRun, Form, Formats, Owner, Wait, WaitAndRetry};

/// Retry failed nodes
///
/// A failed node waits for the next revision. When you have fixed the cause, this command makes it try the same revision
/// again.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  # Every failed node
  kubectl globalps retry --wait

  # One of them
  kubectl globalps retry node-2")]
pub(crate) struct Retry {
    /// Nodes. Default: all failed nodes
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    #[command(flatten)]
    pub wait: Wait,
}

/// Pause the rollout: no further node changes
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  kubectl globalps pause

  # Resume it
  kubectl globalps resume")]
pub(crate) struct Pause {}

/// Resume a paused rollout
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  kubectl globalps resume --wait")]
pub(crate) struct Resume {
    #[command(flatten)]
    pub wait: Wait,
}

/// List the additional pull secrets that were rolled out
///
/// For each registry that differs from the Secret in force: `+` would be added, `-` removed, `~` changed. Credentials are
/// never shown.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  kubectl globalps history

  # Show what going back to revision 3 would change
  kubectl globalps history --revision 3

  # Go back to revision 3
  kubectl globalps undo --to-revision 3")]
pub(crate) struct History {
    /// Show only this revision, and what going back to it would change
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    pub revision: Option<i64>,
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = Formats::Table)]
    pub output: Form,
}

/// Go back to an earlier additional pull secret
///
/// Writes the earlier content back to the Secret `additional-pull-secret`, which starts a normal rollout.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  # To the last one that differs from the current Secret
  kubectl globalps undo

  # Show what would change
  kubectl globalps undo --to-revision 3 --dry-run

  # Without a confirmation prompt
  kubectl globalps undo --to-revision 3 --yes --wait")]
pub(crate) struct Undo {
    /// Revision listed by `kubectl globalps history`
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    pub to_revision: Option<i64>,
    /// Skip the confirmation prompt
    #[arg(short, long)]
    pub yes: bool,
    /// Print what would change, without changing the cluster
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
    #[command(flatten)]
    pub owner: Owner,
    #[command(flatten)]
    pub wait: WaitAndRetry,
}
