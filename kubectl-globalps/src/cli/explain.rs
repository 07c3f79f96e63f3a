//! Flags of `explain`.

use std::path::PathBuf;

use clap::{ArgMatches, Args};

use super::{Named, TEMPLATE, TextFormat};

/// Show which credentials the kubelet and CRI-O use for an image
///
/// Without --authfile it reads the cluster and lists the sources in the kubelet's order: the Secrets of the pod, those of its
/// service account, and the credentials of globalps on every node. These come from the credentials file, or from the
/// credential provider with the scope that includes or excludes the pod. Entries of other programs on a node are not listed.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
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
    /// Pod that pulls the image, as NAMESPACE/NAME, or NAME in `default`. With `-n`, which is for the pull secrets, NAMESPACE is needed
    #[arg(long, value_name = "POD", conflicts_with = "service_account")]
    pub pod: Option<Named>,
    /// Service account of a pod that doesn't exist yet, as NAMESPACE/NAME, or NAME in `default`
    #[arg(long, value_name = "ACCOUNT")]
    pub service_account: Option<Named>,
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: TextFormat,
}

/// Whether a pod or a service account is given by its name only.
pub(super) fn names_without_namespace(flags: &ArgMatches) -> bool {
    let mut given = ["pod", "service_account"]
        .iter()
        .filter_map(|id| flags.get_raw(id))
        .flatten();
    given.any(|name| !name.to_string_lossy().contains('/'))
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::super::tests::parse;

    #[test]
    fn with_n_a_pod_is_named_with_its_namespace() {
        let refused = Some(ErrorKind::ArgumentConflict);
        for (flags, expected) in [
            ("--pod web", None),
            ("--pod team/web -n kube-system", None),
            ("-n kube-system", None),
            ("--pod web -n team", refused),
            ("--service-account builder -n team", refused),
            ("--service-account team/builder -n kube-system", None),
        ] {
            let found = parse(&format!("explain r.io/a:1 {flags}")).err();
            assert_eq!(found.map(|error| error.kind()), expected, "{flags}");
        }
    }
}
