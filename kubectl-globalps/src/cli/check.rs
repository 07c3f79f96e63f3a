//! Flags of `check`.

use clap::Args;

use super::{Asking, Form, Formats};

/// Diagnose the installation, the rollout and your permissions
///
/// √ passed, ‼ warning, × failed. The command changes nothing in the cluster or on a node.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Examples:
  # Before the installation, and when something fails
  kubectl globalps check

  # Check whether the registries still accept the credentials
  kubectl globalps check --registries

  # What to do about a reason of a condition, an event or a node
  kubectl globalps check --explain RolloutHalted

  # In a script
  kubectl globalps check -o json",
    after_help = "Exit status: 0 no check failed, 1 a check failed, 2 error",
    mut_arg("ca_file", |arg| arg.requires("registries")),
    mut_arg("insecure", |arg| arg.requires("registries")),
    mut_arg("check_timeout", |arg| arg.requires("registries"))
)]
pub(crate) struct Check {
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = Formats::Text)]
    pub output: Form,
    /// Ask every registry, from this machine, whether it accepts the cluster's credentials
    #[arg(long)]
    pub registries: bool,
    /// Only print the guide's section about this reason, without a cluster
    #[arg(long, value_name = "REASON", conflicts_with_all = ["registries", "output"])]
    pub explain: Option<String>,
    // Last, because its heading would also cover the flags after it.
    #[command(flatten, next_help_heading = "Check with the registry")]
    pub asking: Asking,
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::super::tests::assert_kinds;

    #[test]
    fn how_registries_are_asked_is_for_who_asks_them() {
        #[rustfmt::skip]
        let cases = [
            ("check", None),
            ("check --registries -o json", None),
            ("check --registries --ca-file f --check-timeout 5s", None),
            ("check --registries --insecure", None),
            ("check --explain RolloutHalted", None),
            ("check --explain x --registries", Some(ErrorKind::ArgumentConflict)),
            ("check --insecure", Some(ErrorKind::MissingRequiredArgument)),
            ("check --ca-file f", Some(ErrorKind::MissingRequiredArgument)),
            ("check --check-timeout 5s", Some(ErrorKind::MissingRequiredArgument)),
            ("check --registries --insecure --ca-file f", Some(ErrorKind::ArgumentConflict)),
            ("check --registries --skip-check", Some(ErrorKind::UnknownArgument)),
        ];
        assert_kinds(&cases);
    }
}
