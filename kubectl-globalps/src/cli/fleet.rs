//! Flags of `fleet`: one pull secret for many clusters.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use globalps_core::names::MAX_SHARDS;

use super::fleet_add::FleetAdd;
use super::fleet_join::FleetJoin;
use super::values::revision;
use super::{Applying, DryRun, Form, Formats, Span};

/// Roll out a pull secret to many clusters
///
/// Run this against the management cluster with the hub and the `FleetPullSecret`s; `-n` is the namespace of the
/// `FleetPullSecret`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Examples:
  # Show the phase of every cluster
  kubectl globalps fleet status -A
  kubectl globalps fleet status team-a -n clusters --watch

  # Try failed clusters again
  kubectl globalps fleet retry team-a -n clusters --wait

  # Go back to the previous credentials
  kubectl globalps fleet undo team-a -n clusters",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Fleet {
    #[command(subcommand)]
    pub command: FleetCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    Install(FleetInstall),
    Status(FleetStatus),
    Diff(FleetDiff),
    Pause(FleetPause),
    Resume(FleetResume),
    Retry(FleetRetry),
    Accept(FleetAccept),
    Undo(FleetUndo),
    Remove(FleetRemove),
    Add(Box<FleetAdd>),
    Join(FleetJoin),
}

/// Install the hub on the management cluster, or upgrade it
///
/// Shows what it creates and changes, asks, applies it, and waits until the hub runs. Without a terminal there is no question, so
/// it needs --yes.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  # For the clusters of two namespaces
  kubectl globalps fleet install --image REGISTRY/globalps-hub:TAG --namespaces clusters,edge

  # Change the image and keep the namespaces
  kubectl globalps fleet install --image REGISTRY/globalps-hub:NEWER

  # Print the manifests, for GitOps
  kubectl globalps fleet install --image REGISTRY/globalps-hub:TAG --namespaces clusters --dry-run=client -o yaml")]
pub(crate) struct FleetInstall {
    /// Image of the hub. Default: the installed image
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Namespaces of `FleetPullSecret`s and clusters, separated by commas. The hub can read every Secret in them. Default:
    /// those of the installed hub
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    pub namespaces: Vec<String>,
    /// All namespaces: the hub can read every Secret of the management cluster
    #[arg(short = 'A', long, conflicts_with = "namespaces")]
    pub all_namespaces: bool,
    /// Namespaces whose `FleetPullSecret`s may select clusters in other namespaces, and install globalps with images of their
    /// choice, separated by commas. Default: `globalps-system`, and those of the installed hub
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    pub trusted_namespaces: Vec<String>,
    /// Number of hub processes that share the clusters; one is enough for 1,000. Default: as installed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SHARDS)))]
    pub shards: Option<u32>,
    #[command(flatten)]
    pub applying: Applying,
}

/// Flags for waiting for a rollout to clusters.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FleetWait {
    /// Follow the rollout until every cluster is done
    #[arg(long)]
    pub wait: bool,
    /// Maximum time to wait
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "30m",
        requires = "wait"
    )]
    pub timeout: Span,
}

/// Show the clusters of one `FleetPullSecret`, or all of them
///
/// With --nodes it also shows the nodes of one cluster, like `kubectl globalps status` in that cluster. It connects with
/// --member-kubeconfig, or with the kubeconfig in the cluster's Secret on the hub, if you may read that Secret: `CLUSTER` for
/// a registered cluster, otherwise `CLUSTER-kubeconfig` of Cluster API. The identity created by `fleet join` may not read the
/// objects of nodes. With `-o json`, the cluster's field `status` has the format of `kubectl globalps status -o json`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(
    before_help = "\
Examples:
  # Every FleetPullSecret
  kubectl globalps fleet status --all-namespaces

  # The clusters of one, kept up to date
  kubectl globalps fleet status team-a -n clusters --watch

  # Two of its clusters, with messages
  kubectl globalps fleet status team-a m1 clusters/m2 -n clusters -o wide

  # The nodes of one cluster
  kubectl globalps fleet status team-a m1 -n clusters --nodes
  kubectl globalps fleet status team-a m1 -n clusters --nodes --member-kubeconfig m1.kubeconfig

  # In a script: wait until every cluster has the credentials
  kubectl globalps fleet status team-a -n clusters --wait --timeout 1h -o json",
    after_help = "Exit status: 0 all clusters are synced, 1 some are not, 2 error"
)]
pub(crate) struct FleetStatus {
    /// Name of the `FleetPullSecret`. Default: all in the namespace
    #[arg(value_name = "NAME")]
    pub fleet: Option<String>,
    /// Show only these clusters: NAME or NAMESPACE/NAME
    #[arg(value_name = "CLUSTER")]
    pub clusters: Vec<String>,
    /// Show the `FleetPullSecret`s of all namespaces
    #[arg(short = 'A', long, conflicts_with = "fleet")]
    pub all_namespaces: bool,
    /// Also show the nodes of the named cluster
    #[arg(long)]
    pub nodes: bool,
    /// Kubeconfig of that cluster, instead of the one in its Secret on the hub
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "nodes")]
    pub member_kubeconfig: Option<PathBuf>,
    /// Context of that kubeconfig
    #[arg(long, value_name = "NAME", requires = "member_kubeconfig")]
    pub member_context: Option<String>,
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = Formats::Table)]
    pub output: Form,
    /// Wait until all clusters are synced
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
        default_value = "30m",
        requires = "wait"
    )]
    pub timeout: Span,
}

/// Show what the source Secret changes in the clusters
///
/// Compares the source Secret of the `FleetPullSecret` with the revision that the hub rolls out, one line per registry.
/// For each named cluster, it also compares the source with the revision in force there. Credentials are never shown, and are
/// not passed to the program in `$KUBECTL_EXTERNAL_DIFF`.
///
/// `-o json` prints `{"name": "clusters/team-a", "revision": 3, "changes": [{"registry": "quay.io", "change": "added"}],
/// "laggingClusters": ["clusters/m2"]}`, where `change` is `added`, `changed` or `removed`. With clusters it has
/// `"clusters": [{"name": "clusters/m2", "phase": "Failed", "revision": 2, "changes": []}]`, too.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Examples:
  # Show what is not in force yet
  kubectl globalps fleet diff team-a -n clusters

  # Also compare with the revision of one cluster
  kubectl globalps fleet diff team-a m1 -n clusters

  # Show what a Secret or a config.json would change
  kubectl globalps fleet diff team-a -n clusters -f ~/.docker/config.json",
    after_help = "Exit status: 0 no differences, 1 differences or clusters that lag, 2 error"
)]
pub(crate) struct FleetDiff {
    /// Name of the `FleetPullSecret`
    #[arg(value_name = "NAME")]
    pub fleet: String,
    /// Also compare with these clusters: NAME or NAMESPACE/NAME
    #[arg(value_name = "CLUSTER")]
    pub clusters: Vec<String>,
    /// Compare this Secret manifest or config.json instead of the source Secret; `-` reads stdin
    #[arg(short = 'f', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub filename: Option<PathBuf>,
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = Formats::Text)]
    pub output: Form,
}

/// Pause the rollout: no further cluster changes
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  kubectl globalps fleet pause team-a -n clusters")]
pub(crate) struct FleetPause {
    /// Name of the `FleetPullSecret`
    #[arg(value_name = "NAME")]
    pub fleet: String,
}

/// Resume a paused rollout
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  kubectl globalps fleet resume team-a -n clusters --wait")]
pub(crate) struct FleetResume {
    /// Name of the `FleetPullSecret`
    #[arg(value_name = "NAME")]
    pub fleet: String,
    #[command(flatten)]
    pub wait: FleetWait,
}

/// Retry failed and blocked clusters
///
/// A failed cluster waits for the next revision. When you have fixed the cause, this command makes the hub try the same
/// revision again. Failed nodes of the cluster try it again, too.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  # Every failed or blocked cluster
  kubectl globalps fleet retry team-a -n clusters --wait

  # One of them
  kubectl globalps fleet retry team-a m1 -n clusters")]
pub(crate) struct FleetRetry {
    /// Name of the `FleetPullSecret`
    #[arg(value_name = "NAME")]
    pub fleet: String,
    /// Clusters: NAME or NAMESPACE/NAME. Default: all failed and blocked clusters
    #[arg(value_name = "CLUSTER")]
    pub clusters: Vec<String>,
    #[command(flatten)]
    pub wait: FleetWait,
}

/// Accept that a kubeconfig leads to another cluster than before
///
/// The hub pins the identity of each cluster, the uid of its namespace `kube-system`, when it first reaches the cluster. If the
/// kubeconfig leads to a cluster with another identity, the hub writes nothing there and reports `IdentityChanged`. This command
/// accepts exactly the identity that the hub has found, for example after a cluster was installed again.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  kubectl globalps fleet accept team-a m1 -n clusters

  # Another namespace's cluster, and wait until it has the credentials
  kubectl globalps fleet accept team-a edge/m1 -n clusters --wait")]
pub(crate) struct FleetAccept {
    /// Name of the `FleetPullSecret`
    #[arg(value_name = "NAME")]
    pub fleet: String,
    /// Clusters: NAME or NAMESPACE/NAME
    #[arg(value_name = "CLUSTER", required = true)]
    pub clusters: Vec<String>,
    #[command(flatten)]
    pub wait: FleetWait,
}

/// Go back to the credentials of an earlier revision
///
/// Writes an earlier revision that every cluster had back to the source Secret, which starts a normal rollout.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  # To the last revision that differs from the source Secret
  kubectl globalps fleet undo team-a -n clusters

  # Show what would change
  kubectl globalps fleet undo team-a -n clusters --to-revision 3 --dry-run

  # Without a confirmation prompt
  kubectl globalps fleet undo team-a -n clusters --yes --wait")]
pub(crate) struct FleetUndo {
    /// Name of the `FleetPullSecret`
    #[arg(value_name = "NAME")]
    pub fleet: String,
    /// Number of the revision
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    pub to_revision: Option<i64>,
    /// Skip the confirmation prompt
    #[arg(short, long)]
    pub yes: bool,
    /// Change the Secret even if another program owns it
    #[arg(long)]
    pub force_conflicts: bool,
    /// Print what would change, without changing the cluster
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
    #[command(flatten)]
    pub wait: FleetWait,
}

/// Delete a `FleetPullSecret`
///
/// With `spec.deletionPolicy: Remove` the hub first removes the Secret from every cluster, a few at a time. With `Orphan` the
/// Secret stays in the clusters, unmanaged. In both cases the source Secret stays.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  kubectl globalps fleet remove team-a -n clusters

  # Without a confirmation prompt; returns when no cluster has the Secret
  kubectl globalps fleet remove team-a -n clusters --yes --wait")]
pub(crate) struct FleetRemove {
    /// Name of the `FleetPullSecret`
    #[arg(value_name = "NAME")]
    pub fleet: String,
    /// Skip the confirmation prompt
    #[arg(short, long)]
    pub yes: bool,
    /// Succeed if there is nothing to remove
    #[arg(long)]
    pub ignore_not_found: bool,
    #[command(flatten)]
    pub wait: FleetWait,
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::super::tests::{assert_kinds, parse};

    #[test]
    fn flags_of_fleet_go_together() {
        #[rustfmt::skip]
        let cases = [
            ("fleet", Some(ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)),
            ("fleet status", None),
            ("fleet status -A -o json", None),
            ("fleet status team-a m1 clusters/m2 -n clusters -w", None),
            // kubectl's own flag, which names a cluster of the kubeconfig.
            ("fleet status team-a --cluster hub", None),
            ("fleet status team-a -A", Some(ErrorKind::ArgumentConflict)),
            ("fleet status --wait --watch", Some(ErrorKind::ArgumentConflict)),
            ("fleet status --timeout 5m", Some(ErrorKind::MissingRequiredArgument)),
            ("fleet status team-a m1 --nodes -o json", None),
            ("fleet status team-a m1 --nodes --member-kubeconfig f --member-context c", None),
            ("fleet status team-a m1 --member-kubeconfig f", Some(ErrorKind::MissingRequiredArgument)),
            ("fleet status team-a m1 --nodes --member-context c", Some(ErrorKind::MissingRequiredArgument)),
            ("fleet diff team-a m1 clusters/m2 -f - -o json", None),
            ("fleet diff", Some(ErrorKind::MissingRequiredArgument)),
            ("fleet pause team-a", None),
            ("fleet pause", Some(ErrorKind::MissingRequiredArgument)),
            ("fleet resume team-a --wait --timeout 5m", None),
            ("fleet retry team-a m1 clusters/m2 --wait", None),
            ("fleet accept team-a m1 clusters/m2 --wait", None),
            ("fleet accept team-a", Some(ErrorKind::MissingRequiredArgument)),
            ("fleet undo team-a --to-revision 3 --dry-run=server", None),
            ("fleet undo team-a --to-revision last", Some(ErrorKind::ValueValidation)),
            ("fleet remove team-a --yes --wait", None),
            ("fleet join m1 --member-kubeconfig f --labels a=b,c=d --server-for-hub https://h:1", None),
            ("fleet add t --registry r -u u --password-stdin --cluster-selector a=b,c=d --registered --wait", None),
            ("fleet add t --all --registered --dry-run=server", None),
            ("fleet add t --registry r --cluster-selector a", Some(ErrorKind::ValueValidation)),
            ("fleet join m1", Some(ErrorKind::MissingRequiredArgument)),
            ("fleet join m1 --member-kubeconfig f --server-for-hub http://h:1", Some(ErrorKind::ValueValidation)),
            ("fleet remove", Some(ErrorKind::MissingRequiredArgument)),
        ];
        assert_kinds(&cases);
    }
    #[test]
    fn the_cluster_of_the_kubeconfig_is_another_one_than_the_member() {
        for line in [
            "fleet join m1 --member-kubeconfig f --cluster hub",
            "fleet status team-a m1 --cluster hub",
            "fleet diff team-a m1 --cluster hub",
            "fleet retry team-a m1 --cluster hub",
        ] {
            let cli = parse(line).expect("flags");
            assert_eq!(cli.connection.cluster.as_deref(), Some("hub"), "{line}");
            let cli = parse(line.trim_end_matches(" --cluster hub")).expect("flags");
            assert_eq!(cli.connection.cluster, None, "{line}");
        }
    }
}
