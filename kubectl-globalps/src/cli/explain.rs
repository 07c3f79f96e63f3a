//! Flags of `explain`.

use std::path::PathBuf;

use clap::Args;

use super::why::{PodName, pod};
use super::{Form, Formats};

/// Show which credentials the kubelet and CRI-O use for an image
///
/// Without --authfile it reads the cluster and lists the sources in the kubelet's order: the Secrets of the pod, those of its
/// service account, and the credentials of globalps on every node. These come from the credentials file, or from the
/// credential provider with the scope that includes or excludes the pod. Entries of other programs on a node are not listed.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Examples:
  # Show what nodes have for an image
  kubectl globalps explain quay.io/org/app:1

  # Show why a pod can't pull it
  kubectl globalps explain quay.io/org/app:1 --pod default/app-7d4f

  # Show which scopes include the pods of a service account
  kubectl globalps explain quay.io/org/app:1 --service-account team-a/builder

  # Read a file instead of the cluster
  kubectl globalps explain quay.io/org/app:1 --authfile config.json",
    after_help = "Exit status: 0 the kubelet has a credential, 1 it has none, 2 error"
)]
pub(crate) struct Explain {
    /// Image name, as in a pod
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Read a config.json or a Secret manifest instead of the cluster; `-` reads stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pod", "service_account"])]
    pub authfile: Option<PathBuf>,
    /// Pod that pulls the image, as NAMESPACE/NAME, or NAME in the namespace of `-n`
    #[arg(long, value_name = "POD", value_parser = pod, conflicts_with = "service_account")]
    pub pod: Option<PodName>,
    /// Service account of a pod that doesn't exist yet, as NAMESPACE/NAME, or NAME in the namespace of `-n`
    #[arg(long, value_name = "ACCOUNT", value_parser = pod)]
    pub service_account: Option<PodName>,
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = Formats::Text)]
    pub output: Form,
}
