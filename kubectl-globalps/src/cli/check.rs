//! Flags of `check`.

use clap::Args;

use super::{TEMPLATE, TextFormat};

/// Find out what is in the way: of an installation, of a rollout, of this user
///
/// √ is well, ‼ deserves a look, × is in the way. Nothing is changed, in the cluster or on a node.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # Before the installation, and whenever something is wrong
  kubectl globalps check

  # In a script
  kubectl globalps check -o json",
    after_help = "Exit status: 0 nothing is in the way, 1 something is, 2 the cluster could not be asked"
)]
pub(crate) struct Check {
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: TextFormat,
}
