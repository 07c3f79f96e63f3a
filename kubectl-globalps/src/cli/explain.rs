//! Flags of `explain`.

use std::path::PathBuf;

use clap::Args;

use super::{Named, TEMPLATE, TextFormat};

/// Say which credentials go with an image: what the kubelet tries, and what CRI-O sends
///
/// Without a file it asks the cluster, and shows the sources in the kubelet's order: the Secrets that the pod names, those of
/// its service account, and what globalps puts on every node: the credentials file, or what the credential provider gives to
/// this pod, with the scope that gives it or does not. Entries that somebody else put on a node can't be seen from here.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # What do nodes have for an image?
  kubectl globalps explain quay.io/org/app:1

  # Why can't this pod pull it?
  kubectl globalps explain quay.io/org/app:1 --pod default/app-7d4f

  # May a pod of that service account use the credentials of a source with a scope?
  kubectl globalps explain quay.io/org/app:1 --service-account team-a/builder

  # Of a file; no cluster is asked
  kubectl globalps explain quay.io/org/app:1 --authfile config.json",
    after_help = "Exit status: 0 the kubelet has a credential for it, 1 it has none, 2 it could not be found out"
)]
pub(crate) struct Explain {
    /// Name of an image, as in a pod
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// A config.json or a Secret manifest instead of the cluster; `-`: from stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pod", "service_account"])]
    pub authfile: Option<PathBuf>,
    /// Pod that pulls it, as NAMESPACE/NAME or NAME in `default`
    #[arg(long, value_name = "POD", conflicts_with = "service_account")]
    pub pod: Option<Named>,
    /// Service account of a pod that is still to be made, as NAMESPACE/NAME or NAME in `default`
    #[arg(long, value_name = "ACCOUNT")]
    pub service_account: Option<Named>,
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: TextFormat,
}
