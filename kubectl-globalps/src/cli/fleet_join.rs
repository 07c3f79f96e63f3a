//! Flags of `fleet join`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::values::label;
use super::{DryRun, TEMPLATE};

/// Register a cluster with the hub
///
/// Creates in the member cluster an identity for the hub that may write Secret `kube-system/additional-pull-secret`, read
/// `GlobalPullSecret` `kube-system/global-pull-secret` and read namespace `kube-system`, and nothing else: every permission is
/// bound to the name of its object. A `ValidatingAdmissionPolicy` keeps it from making that Secret one with the token of
/// another `ServiceAccount`. Then writes a kubeconfig with the identity's token into a Secret on the hub, which takes
/// precedence over the kubeconfig of Cluster API for a `Cluster` of the same name. The token does not expire: to revoke it,
/// delete Secret `kube-system/globalps-hub-token` in the member; run the command again for another one.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # Against the hub of the current context
  kubectl globalps fleet join m1 -n clusters --member-kubeconfig m1.kubeconfig --labels env=prod

  # A member that the hub reaches at another address
  kubectl globalps fleet join m1 -n clusters --member-kubeconfig m1.kubeconfig --server-for-hub https://10.0.0.7:6443

  # Which objects?
  kubectl globalps fleet join m1 -n clusters --member-kubeconfig m1.kubeconfig --dry-run"
)]
pub(crate) struct FleetJoin {
    /// Name of the cluster on the hub, and of the Secret there
    // Not `cluster`: kubectl's own flag has that name.
    #[arg(value_name = "CLUSTER")]
    pub member: String,
    /// Kubeconfig of the member, of a user who may create RBAC objects there
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub member_kubeconfig: PathBuf,
    /// Context of that kubeconfig
    #[arg(long, value_name = "NAME")]
    pub member_context: Option<String>,
    /// Address of the member's API server for the hub, where it is another one than in the kubeconfig
    #[arg(long, value_name = "URL", value_parser = https)]
    pub server_for_hub: Option<String>,
    /// Labels of the Secret on the hub, by which a `FleetPullSecret` selects it
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Do not change the clusters
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
}

/// The address of an API server that gets a token.
fn https(text: &str) -> Result<String, &'static str> {
    let rest = text.strip_prefix("https://").unwrap_or_default();
    if rest.is_empty() || rest.contains(char::is_whitespace) {
        return Err("must be `https://HOST:PORT`");
    }
    Ok(text.to_owned())
}
