//! Flags of `why`.

use std::path::PathBuf;

use clap::Args;

use super::{Asking, Explain, Form, Formats, Named};

/// Show why pods can't pull their images, and what fixes it
///
/// Without POD: all pods that can't pull, grouped by cause. Finds the image that the kubelet means: of a container, of a volume, or of the pod's sandbox. Reads what the kubelet says, lists the credentials that the pod's node tries for the image, in order, and asks the
/// registry, from this machine, what it answers to each. Entries of other programs in a node's own file are not listed.
/// Passwords go to the registry only, and are never shown. With --image: which credentials the kubelet and CRI-O use for an image,
/// whether or not a pod names it.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Examples:
  # Every pod that can't pull, grouped by cause
  kubectl globalps why

  # Those of one namespace
  kubectl globalps why -n team-a

  # One pod
  kubectl globalps why app-7d4f -n team-a
  kubectl globalps why team-a/app-7d4f

  # Which credentials nodes have for an image, and with which a service account's pods pull it
  kubectl globalps why --image quay.io/org/app:1
  kubectl globalps why --image quay.io/org/app:1 --service-account team-a/builder

  # Don't ask the registries
  kubectl globalps why --no-ask -o json",
    after_help = "Exit status: 0 nothing is wrong, 1 a cause was found, 2 error\n\
                  With --image: 0 the kubelet has a credential, 1 it has none, 2 error",
    mut_arg("ca_file", |arg| arg.conflicts_with("no_ask")),
    mut_arg("insecure", |arg| arg.conflicts_with("no_ask")),
    mut_arg("check_timeout", |arg| arg.conflicts_with("no_ask"))
)]
pub(crate) struct Why {
    /// Pod, as NAMESPACE/NAME, or NAME in the namespace of `-n`. Default: all pods that you may list
    #[arg(value_name = "POD", value_parser = pod, conflicts_with = "all_namespaces")]
    pub pod: Option<PodName>,
    /// Pods of every namespace; an error without the permission to list them
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Show the credentials for this image, as nodes, POD or --service-account try them
    #[arg(long, value_name = "IMAGE", conflicts_with = "all_namespaces")]
    pub image: Option<String>,
    /// Service account of a pod that doesn't exist yet, as NAMESPACE/NAME, or NAME in the namespace of `-n`
    #[arg(long, value_name = "ACCOUNT", value_parser = pod, requires = "image", conflicts_with = "pod")]
    pub service_account: Option<PodName>,
    /// Read a config.json or a Secret manifest instead of the cluster; `-` reads stdin
    #[arg(long, value_name = "FILE", requires = "image", conflicts_with_all = ["pod", "service_account"])]
    pub authfile: Option<PathBuf>,
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = Formats::Text)]
    pub output: Form,
    /// Don't ask the registries
    #[arg(long)]
    pub no_ask: bool,
    // Last, because its heading would also cover the flags after it.
    #[command(flatten, next_help_heading = "Check with the registry")]
    pub asking: Asking,
}

/// A pod; `namespace` is `None` if only its name is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodName {
    pub namespace: Option<String>,
    pub name: String,
}

impl PodName {
    /// `own`: the default namespace.
    pub(crate) fn named(&self, own: &str) -> Named {
        Named {
            namespace: self.namespace.clone().unwrap_or_else(|| own.to_owned()),
            name: self.name.clone(),
        }
    }
}

impl Why {
    /// `None` without `--image`.
    pub(crate) fn explain(&self) -> Option<Explain> {
        Some(Explain {
            image: self.image.clone()?,
            authfile: self.authfile.clone(),
            pod: self.pod.clone(),
            service_account: self.service_account.clone(),
            output: self.output.clone(),
        })
    }
}

pub(super) fn pod(text: &str) -> Result<PodName, &'static str> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, text),
    };
    if namespace.as_deref() == Some("") || name.is_empty() || name.contains('/') {
        return Err("must be NAME or NAMESPACE/NAME");
    }
    Ok(PodName {
        namespace,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::super::tests::{assert_kinds, parse};

    #[test]
    fn a_pod_or_all_pods_are_asked_about() {
        assert_kinds(&[
            ("why a/b", None),
            ("why b -n a -o yaml --no-ask", None),
            ("why -A --insecure", None),
            ("why -n a --ca-file f --check-timeout 5s", None),
            ("why a/b -A", Some(ErrorKind::ArgumentConflict)),
            (
                "why -A --no-ask --insecure",
                Some(ErrorKind::ArgumentConflict),
            ),
            ("why --image r.io/a:1", None),
            ("why --image r.io/a:1 --service-account a/b -o json", None),
            ("why b --image r.io/a:1", None),
            ("why --image r.io/a:1 --authfile f", None),
            ("why --authfile f", Some(ErrorKind::MissingRequiredArgument)),
            ("why a/b/c", Some(ErrorKind::ValueValidation)),
            ("why /b", Some(ErrorKind::ValueValidation)),
            ("add r -u u --wait --retry-pods", None),
            (
                "add r -u u --retry-pods",
                Some(ErrorKind::MissingRequiredArgument),
            ),
            ("undo --wait --retry-pods", None),
            (
                "undo --retry-pods",
                Some(ErrorKind::MissingRequiredArgument),
            ),
        ]);
    }

    #[test]
    fn n_is_the_namespace_of_what_the_command_line_names() {
        for (line, expected) in [
            ("why b", None),
            ("why b -n a", Some("a")),
            ("-n a why b", Some("a")),
            ("why --namespace=kube-system", Some("kube-system")),
            ("explain r.io/a:1 --pod web -n team", Some("team")),
            ("fleet status -n clusters", Some("clusters")),
        ] {
            let cli = parse(line).expect("flags");
            assert_eq!(cli.connection.namespace.as_deref(), expected, "{line}");
            let secrets = cli.connection.pull_secret_namespace;
            assert_eq!(secrets, "kube-system", "{line}");
        }
        // This is the namespace of the pull secrets.
        parse("status -n kube-system").expect("flags");
        for line in ["status -n a", "-n a add r -u u", "install -n a --apply"] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{line}");
        }
    }
}
