//! Flags of `list`.

use clap::Args;

use super::{Form, Formats};

/// List the registries whose credentials are in force
///
/// For each registry: the user, the pull secret that provides the credentials and who may use them, the first revision with them
/// (`<=3`: an earlier one may have them too), and how many nodes or namespaces have them. A source that no pod gets is listed
/// with the delivery `NotDeliverable`. Passwords are never shown. What you may not read is named on stderr, and the rest is
/// shown.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  kubectl globalps list

  # Also the delivery, and when a token expires
  kubectl globalps list -o wide

  # The registries only, one a line
  kubectl globalps list -o name

  # After a password leaked: who still has the old one
  kubectl globalps list --where-old")]
pub(crate) struct List {
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = Formats::Table)]
    pub output: Form,
    /// List who still has credentials that were replaced: nodes, namespaces and Secrets
    ///
    /// Old is what `add --forget-old` replaced; without that, everything before the revision in force. Nodes are listed with what they
    /// report: `InForce`; `Journal`, the values from before the last change; `Quarantined`, a credentials file that could not be parsed;
    /// `OwnEntries`, if the state of globalps was lost on the node; `Unknown`. Exit status: 0 if nothing has old credentials, 1 otherwise.
    #[arg(long)]
    pub where_old: bool,
    /// Don't print the column headers
    #[arg(long)]
    pub no_headers: bool,
}
