//! Flags of `list`.

use clap::Args;

use super::{TEMPLATE, TableFormat};

/// List the registries whose credentials are in force
///
/// For each registry: the user, the pull secret that provides the credentials and who may use them, the first revision with them
/// (`<=3`: an earlier one may have them too), and how many nodes or namespaces have them. A source that no pod gets is listed
/// with the delivery `NotDeliverable`. Passwords are never shown. What you may not read is named on stderr, and the rest is
/// shown.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  kubectl globalps list

  # Also the delivery, and when a token expires
  kubectl globalps list -o wide

  # The registries only, one a line
  kubectl globalps list -o name"
)]
pub(crate) struct List {
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: TableFormat,
    /// Don't print the column headers
    #[arg(long)]
    pub no_headers: bool,
}
