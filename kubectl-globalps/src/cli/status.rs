//! Flags of `status`.

use clap::Args;

use super::{Form, Formats, Span};

/// Show the phase of every node
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(
    before_help = "\
Examples:
  kubectl globalps status

  # Watch it
  kubectl globalps status --watch

  # Some nodes only
  kubectl globalps status -l topology.kubernetes.io/zone=a
  kubectl globalps status --node node-2 -o wide

  # Every namespace, if globalps delivers to namespaces
  kubectl globalps status --namespaces

  # In a script: wait until every node has the credentials
  kubectl globalps status --wait --timeout 5m -o json",
    after_help = "Exit status: 0 all nodes or namespaces are synced, 1 some are not, 2 error"
)]
pub(crate) struct Status {
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = Formats::Table)]
    pub output: Form,
    /// Show only this node; may be repeated
    #[arg(long, value_name = "NODE")]
    pub node: Vec<String>,
    /// Show only nodes with these labels; same syntax as `kubectl get nodes -l`
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Show namespaces instead of nodes, with the state of each pull secret
    #[arg(long, conflicts_with_all = ["node", "selector", "wait", "watch"])]
    pub namespaces: bool,
    /// Wait until all nodes, and all namespaces that get a pull secret, are synced
    #[arg(long, conflicts_with = "watch")]
    pub wait: bool,
    /// Update the table until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Don't print the column headers
    #[arg(long)]
    pub no_headers: bool,
    /// Maximum time to wait
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10m",
        requires = "wait"
    )]
    pub timeout: Span,
}
