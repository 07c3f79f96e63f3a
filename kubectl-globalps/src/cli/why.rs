//! Flags of `why`.

use clap::Args;

use super::{Asking, TEMPLATE, TextFormat};

/// Show why a pod can't pull its image, and the command that fixes it
///
/// Finds the image that the kubelet means: of a container, of a volume, or of the pod's sandbox. Reads what the kubelet says, lists the credentials that the pod's node tries for the image, in order, and asks the
/// registry, from this machine, what it answers to each. Entries of other programs in a node's own file are not listed.
/// Passwords go to the registry only, and are never shown.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # One pod
  kubectl globalps why app-7d4f -n team-a
  kubectl globalps why team-a/app-7d4f

  # Every pod that can't pull, grouped by cause
  kubectl globalps why -A

  # Those of one namespace
  kubectl globalps why -n team-a

  # Don't ask the registries
  kubectl globalps why -A --no-ask -o json",
    after_help = "Exit status: 0 nothing is wrong, 1 a cause was found, 2 error",
    mut_arg("ca_file", |arg| arg.conflicts_with("no_ask")),
    mut_arg("insecure", |arg| arg.conflicts_with("no_ask")),
    mut_arg("check_timeout", |arg| arg.conflicts_with("no_ask"))
)]
pub(crate) struct Why {
    /// Pod, as NAMESPACE/NAME, or NAME in the namespace of `-n`, else in `default`. Here `-n` is the pod's namespace
    #[arg(value_name = "POD", value_parser = pod, conflicts_with = "all_namespaces")]
    pub pod: Option<PodName>,
    /// All pods that can't pull, of every namespace
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: TextFormat,
    /// Don't ask the registries
    #[arg(long)]
    pub no_ask: bool,
    /// Value of `-n`, where it is given: the namespace of the pods.
    #[arg(skip)]
    pub namespace: Option<String>,
    // Last, because its heading would also cover the flags after it.
    #[command(flatten, next_help_heading = "Check with the registry")]
    pub asking: Asking,
}

/// A pod; `namespace`: `None` where only its name is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodName {
    pub namespace: Option<String>,
    pub name: String,
}

fn pod(text: &str) -> Result<PodName, &'static str> {
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

    use super::super::tests::parse;
    use crate::cli::Command;

    #[test]
    fn a_pod_or_all_pods_are_asked_about() {
        for (line, expected) in [
            ("why a/b", None),
            ("why b -n a -o yaml --no-ask", None),
            ("why -A --insecure", None),
            ("why -n a --ca-file f --check-timeout 5s", None),
            ("why a/b -A", Some(ErrorKind::ArgumentConflict)),
            (
                "why -A --no-ask --insecure",
                Some(ErrorKind::ArgumentConflict),
            ),
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
        ] {
            let found = parse(line).err();
            assert_eq!(found.as_ref().map(clap::Error::kind), expected, "{line}");
        }
    }

    #[test]
    fn the_namespace_of_the_pods_is_the_one_that_is_given() {
        for (line, expected) in [
            ("why b", None),
            ("why b -n a", Some("a")),
            ("why --namespace=kube-system", Some("kube-system")),
        ] {
            let cli = parse(line).expect("flags");
            let Command::Why(why) = cli.command else {
                unreachable!("it is `why`")
            };
            assert_eq!(why.namespace.as_deref(), expected, "{line}");
        }
    }
}
