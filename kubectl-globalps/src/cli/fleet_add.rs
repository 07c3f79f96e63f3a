//! Flags of `fleet add`.

use clap::Args;

use super::values::label;
use super::{Credentials, DryRun, FleetWait, Form, Formats, LiveCheck, Owner};

/// Add registry credentials to clusters
///
/// Adds the credentials to the source Secret of the `FleetPullSecret`; other registries in it stay. If the `FleetPullSecret`
/// doesn't exist, the command creates it and its source Secret, for the clusters of --cluster-selector and --registered.
/// Before it writes, the command checks the credentials with the registry.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  # Add a registry or change a password for the clusters of team-a
  kubectl globalps fleet add team-a -n clusters --registry quay.io -u robot --password-stdin --wait < token

  # A new FleetPullSecret for some clusters of Cluster API
  kubectl globalps fleet add team-b -n clusters --registry quay.io -u robot --cluster-selector env=prod

  # For clusters that `fleet join` registered
  kubectl globalps fleet add team-c -n clusters --authfile ~/.docker/config.json --all --registered")]
pub(crate) struct FleetAdd {
    /// Name of the `FleetPullSecret`
    #[arg(value_name = "NAME")]
    pub fleet: String,
    /// Print what would change, without changing the cluster
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
    /// Print the source Secret; without `--dry-run`, its credentials are masked
    #[arg(short, long, value_name = "FORMAT", value_parser = Formats::Object)]
    pub output: Option<Form>,
    #[command(flatten)]
    pub owner: Owner,
    #[command(flatten)]
    pub wait: FleetWait,
    // Last, because their headings would also cover the flags after them.
    #[command(flatten)]
    pub from: Credentials,
    #[command(flatten)]
    pub to: NewFleet,
    #[command(flatten)]
    pub check: LiveCheck,
}

/// What a new `FleetPullSecret` selects.
#[derive(Debug, Args)]
#[command(next_help_heading = "New FleetPullSecret")]
pub(crate) struct NewFleet {
    /// Select the Cluster API `Cluster`s with these labels in its namespace
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    pub cluster_selector: Vec<(String, String)>,
    /// Select the clusters that `fleet join` registered in its namespace; without --cluster-selector, only these
    #[arg(long)]
    pub registered: bool,
    /// Source Secret. Default: the name of the `FleetPullSecret`
    #[arg(long, value_name = "SECRET")]
    pub source: Option<String>,
}

impl NewFleet {
    pub(crate) fn selects(&self) -> bool {
        !self.cluster_selector.is_empty() || self.registered
    }
}
