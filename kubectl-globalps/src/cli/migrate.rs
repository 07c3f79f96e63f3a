//! Flags of `migrate`.

use clap::{Args, ValueEnum};

use super::{SecretName, Span, TEMPLATE};

/// Another tool that keeps pull secrets in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    /// titansoft-pte-ltd/imagepullsecret-patcher
    #[value(name = "imagepullsecret-patcher")]
    ImagepullsecretPatcher,
}

/// Replace the pull secrets of another tool by those of globalps
///
/// Shows the plan first. Stops the other tool, then removes its references from service accounts and its Secrets, in each
/// namespace only where the pull secret of globalps is in force. Running pods are not changed. It can be repeated at any time,
/// and goes on where it stopped.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # What would it do?
  kubectl globalps migrate imagepullsecret-patcher --dry-run

  # Do it, without a question
  kubectl globalps migrate imagepullsecret-patcher --yes

  # Its Secrets have another name than image-pull-secret
  kubectl globalps migrate imagepullsecret-patcher --secret-name registry-credentials",
    after_help = "Exit status: 0 nothing of the tool is left, 1 something is left, or it was refused, 2 it could not be done"
)]
pub(crate) struct Migrate {
    /// The tool
    #[arg(value_name = "TOOL")]
    pub tool: Tool,
    /// Name of its Secrets. Default: as its Deployment says, else `image-pull-secret`
    #[arg(long, value_name = "NAME")]
    pub secret_name: Option<SecretName>,
    /// Show the plan, and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Delete Secrets even where running pods refer to nothing else: they keep running, but can't pull their image again
    #[arg(long)]
    pub ignore_running_pods: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// How long to wait until its pods are gone
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    pub timeout: Span,
}
