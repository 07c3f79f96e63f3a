//! Flags of `fleet add`.

use clap::Args;

use super::values::label;
use super::{Credentials, DryRun, FleetWait, LiveCheck, Owner, TEMPLATE};

/// Give clusters the credentials of a registry
///
/// Extends the source Secret of the `FleetPullSecret`; other registries in it stay. Where there is no such `FleetPullSecret`,
/// creates it for the clusters that --cluster-selector and --registered name, with its source Secret. Before anything is
/// written, the registry is asked whether it accepts the credentials.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # Another registry, or another password, for the clusters of team-a
  kubectl globalps fleet add team-a -n clusters --registry quay.io -u robot --password-stdin --wait < token

  # A new FleetPullSecret for some clusters of Cluster API
  kubectl globalps fleet add team-b -n clusters --registry quay.io -u robot --cluster-selector env=prod

  # For clusters that `fleet join` registered
  kubectl globalps fleet add team-c -n clusters --authfile ~/.docker/config.json --all --registered"
)]
pub(crate) struct FleetAdd {
    /// Name of the `FleetPullSecret`
    #[arg(value_name = "NAME")]
    pub fleet: String,
    /// Do not change the cluster
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
    #[command(flatten)]
    pub owner: Owner,
    #[command(flatten)]
    pub wait: FleetWait,
    // With headings of their own, which what follows would come under too.
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
    /// Labels of the `Cluster`s of Cluster API in its namespace
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    pub cluster_selector: Vec<(String, String)>,
    /// Clusters of its namespace that a Secret registers; without --cluster-selector no others
    #[arg(long)]
    pub registered: bool,
    /// Source Secret; by default it has the name of the `FleetPullSecret`
    #[arg(long, value_name = "SECRET")]
    pub source: Option<String>,
}
