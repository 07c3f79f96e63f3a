//! Flags of `fleet join`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::DryRun;
use super::values::label;

/// Register a cluster with the hub
///
/// Creates an identity for the hub in the member cluster. The identity may only write Secret
/// `kube-system/additional-pull-secret`, and read `GlobalPullSecret` `kube-system/global-pull-secret` and namespace
/// `kube-system`: every permission is limited to the name of its object. A `ValidatingAdmissionPolicy` prevents it from
/// turning that Secret into a token of another `ServiceAccount`. Then the command writes a kubeconfig with the identity's
/// token to a Secret on the hub. For a `Cluster` of the same name, the hub uses it instead of Cluster API's kubeconfig only if the
/// `Cluster` has the annotation `globalps.io/kubeconfig: CLUSTER`, with this name. The token does not expire. To revoke it, delete Secret `kube-system/globalps-hub-token` in the member; run the command again
/// to create another one.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  # The current context is the hub
  kubectl globalps fleet join m1 -n clusters --member-kubeconfig m1.kubeconfig --labels env=prod

  # A member that the hub reaches at another address
  kubectl globalps fleet join m1 -n clusters --member-kubeconfig m1.kubeconfig --server-for-hub https://10.0.0.7:6443

  # Print the objects
  kubectl globalps fleet join m1 -n clusters --member-kubeconfig m1.kubeconfig --dry-run")]
pub(crate) struct FleetJoin {
    /// Name of the cluster on the hub, and of its Secret there
    // Not `cluster`: kubectl's own flag has that name.
    #[arg(value_name = "CLUSTER")]
    pub member: String,
    /// Kubeconfig of the member, for a user who may create RBAC objects there
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub member_kubeconfig: PathBuf,
    /// Context of that kubeconfig
    #[arg(long, value_name = "NAME")]
    pub member_context: Option<String>,
    /// Address where the hub reaches the member's API server, if it differs from the kubeconfig
    #[arg(long, value_name = "URL", value_parser = https)]
    pub server_for_hub: Option<String>,
    /// Labels of the Secret on the hub, for the selector of a `FleetPullSecret`
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Print what would change, without changing the clusters
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
}

/// Parses the HTTPS address of an API server.
fn https(text: &str) -> Result<String, &'static str> {
    let rest = text.strip_prefix("https://").unwrap_or_default();
    if rest.is_empty() || rest.contains(char::is_whitespace) {
        return Err("must be `https://HOST:PORT`");
    }
    Ok(text.to_owned())
}
