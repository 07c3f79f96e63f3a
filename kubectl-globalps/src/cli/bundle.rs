//! Flags of `bundle`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Write an archive for support, without credentials
///
/// The archive contains the custom resources, the Deployments, `DaemonSets` and pods of globalps, the end of their logs, events,
/// `check` and `status`, the versions of nodes, and names, types, keys and sizes of the Secrets. It never contains data of
/// Secrets. Only known fields are included. The command then searches every file for the credentials of the Secrets that you
/// may read, and omits a file with a credential. `manifest.json` lists the files, and what is missing and why. Each request has
/// the limit of --request-timeout, and all together 5 minutes: what has not arrived by then is missing.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Examples:
  # Write globalps-bundle-TIME.tar.gz
  kubectl globalps bundle

  # Write another file
  kubectl globalps bundle --file support.tar.gz",
    after_help = "Exit status: 0 success, also if some objects may not be read,\n1 a file was omitted because it contains a credential, 2 error"
)]
pub(crate) struct Bundle {
    /// File to write, with mode 0600. Default: `globalps-bundle-TIME.tar.gz` in the current directory
    #[arg(long, value_name = "FILE.tar.gz", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub force: bool,
}
