//! Flags of the commands that steer a rollout.

use clap::Args;

use super::{DryRun, ListFormat, Owner, TEMPLATE, Wait};

/// Try failed nodes once more
///
/// A node that did not take a revision is left alone until another one is rolled out. Once the cause is mended, this
/// lets it try the same revision again.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # Every failed node
  kubectl globalps retry --wait

  # One of them
  kubectl globalps retry node-2"
)]
pub(crate) struct Retry {
    /// Nodes; none: every failed one
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    #[command(flatten)]
    pub wait: Wait,
}

/// Hold the rollout: no further node is changed
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  kubectl globalps pause

  # And go on
  kubectl globalps resume"
)]
pub(crate) struct Pause {}

/// Go on with a rollout that was held
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  kubectl globalps resume --wait"
)]
pub(crate) struct Resume {
    #[command(flatten)]
    pub wait: Wait,
}

/// Show the additional pull secrets that were rolled out
///
/// What differs from the one in force is told a registry: `+` would come, `-` would go, `~` would change. Credentials
/// are never shown.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  kubectl globalps history

  # What would going back to revision 3 change?
  kubectl globalps history --revision 3

  # Back to one of them
  kubectl globalps undo --to-revision 3"
)]
pub(crate) struct History {
    /// Only this revision, with what going back to it changes
    #[arg(long, value_name = "REVISION")]
    pub revision: Option<i64>,
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: ListFormat,
}

/// Go back to an additional pull secret that was rolled out before
///
/// Writes it into the Secret `additional-pull-secret` again; from there it is a rollout like any other.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # To the last one that is not what is there now
  kubectl globalps undo

  # What would change?
  kubectl globalps undo --to-revision 3 --dry-run

  # Without a question
  kubectl globalps undo --to-revision 3 --yes --wait"
)]
pub(crate) struct Undo {
    /// Revision of `kubectl globalps history`
    #[arg(long, value_name = "REVISION")]
    pub to_revision: Option<i64>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Do not change the cluster
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
