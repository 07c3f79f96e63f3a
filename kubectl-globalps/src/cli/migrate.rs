//! Flags of `migrate`.

use clap::{Args, ValueEnum};

use super::{DryRun, SecretName, Span};

/// Tools that keep pull secrets in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    /// titansoft-pte-ltd/imagepullsecret-patcher
    #[value(name = "imagepullsecret-patcher")]
    ImagepullsecretPatcher,
}

/// Replace the pull secrets of another tool with those of globalps
///
/// Shows the plan first. Then it stops the other tool and removes the tool's Secrets and their references in service
/// accounts. It skips namespaces where the pull secret of globalps is not in force. Running pods don't change. You can repeat
/// the command at any time: it continues where it stopped.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Examples:
  # Show the plan
  kubectl globalps migrate imagepullsecret-patcher --dry-run

  # Migrate without a confirmation prompt
  kubectl globalps migrate imagepullsecret-patcher --yes

  # If the tool's Secrets are not named image-pull-secret
  kubectl globalps migrate imagepullsecret-patcher --secret-name registry-credentials",
    after_help = "Exit status: 0 nothing of the tool is left, 1 something is left, 2 error"
)]
pub(crate) struct Migrate {
    /// Tool to replace
    #[arg(value_name = "TOOL")]
    pub tool: Tool,
    /// Name of its Secrets. Default: the name in its Deployment, otherwise `image-pull-secret`
    #[arg(long, value_name = "NAME")]
    pub secret_name: Option<SecretName>,
    /// Show the plan, without changing the cluster
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client"
    )]
    pub dry_run: DryRun,
    /// Delete Secrets even if running pods have no other reference: they keep running, but can't pull their image again
    #[arg(long)]
    pub ignore_running_pods: bool,
    /// Skip the confirmation prompt
    #[arg(short, long)]
    pub yes: bool,
    /// Maximum time to wait until its pods are gone
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    pub timeout: Span,
}
