//! Flags of `status`.

use clap::{Args, ValueEnum};

use super::{Span, TEMPLATE};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusFormat {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

/// Show how far every node is
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  kubectl globalps status

  # Watch it
  kubectl globalps status --watch

  # Some nodes only
  kubectl globalps status -l topology.kubernetes.io/zone=a
  kubectl globalps status --node node-2 -o wide

  # Every namespace, where namespaces get pull secrets
  kubectl globalps status --namespaces

  # In a script: wait until every node has the credentials
  kubectl globalps status --wait --timeout 5m -o json",
    after_help = "Exit status: 0 every node or namespace is synced, 1 not, 2 it could not be found out"
)]
pub(crate) struct Status {
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: StatusFormat,
    /// This node only; may be repeated
    #[arg(long, value_name = "NODE")]
    pub node: Vec<String>,
    /// Nodes with these labels only, as `kubectl get nodes -l` takes them
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Namespaces instead of nodes, each with the state of its pull secret
    #[arg(long, conflicts_with_all = ["node", "selector", "wait", "watch"])]
    pub namespaces: bool,
    /// Wait until every node, and every namespace that gets a pull secret, is synced
    #[arg(long, conflicts_with = "watch")]
    pub wait: bool,
    /// Keep the table up to date until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// No line with the names of the columns
    #[arg(long)]
    pub no_headers: bool,
    /// How long to wait
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10m",
        requires = "wait"
    )]
    pub timeout: Span,
}
