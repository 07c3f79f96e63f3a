//! Flags of `images`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::add::Asking;
use super::{Form, Formats};

/// Copy the images of globalps to a registry of yours
#[derive(Debug, Args)]
#[command(
    before_help = "\
Examples:
  kubectl globalps images push registry.example.com/tools -u robot --password-stdin < token",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Images {
    #[command(subcommand)]
    pub command: ImagesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImagesCommand {
    Push(Push),
}

/// Push the image archives, and print the command that installs them
///
/// The archives are those of a release, or of `make image`.
/// Needs no other program and no cluster. What the registry has already is not sent again. The printed command names the images by
/// their digests, so that nodes run exactly these. A failed upload is repeated twice; each may take thirty times as long as
/// --check-timeout.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  # To REGISTRY/globalps-controller and so on, with the credentials of `docker login` or `podman login`
  kubectl globalps images push registry.example.com/tools

  # With a password, and the archives of a release
  kubectl globalps images push registry.example.com -u robot --password-stdin --dir globalps-0.1.0 < token

  # For scripts
  kubectl globalps images push registry.example.com -o json")]
pub(crate) struct Push {
    /// Registry, optionally with a path
    #[arg(value_name = "REGISTRY")]
    pub registry: String,
    /// Directory with the archives `globalps-controller.tar`, `globalps-syncer.tar` and, if present, `globalps-hub.tar`
    #[arg(long, value_name = "DIR", default_value = "target/images")]
    pub dir: PathBuf,
    /// Tag in the registry, instead of the one in the archive
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = Formats::Text)]
    pub output: Form,
    /// User name for the registry
    #[arg(short, long, value_name = "USER", help_heading = "Credentials")]
    pub username: Option<String>,
    /// Read the password from stdin, without a trailing newline
    #[arg(long, requires = "username", help_heading = "Credentials")]
    pub password_stdin: bool,
    /// Docker's config.json or podman's auth.json, instead of `$REGISTRY_AUTH_FILE` or docker's own
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "username",
        help_heading = "Credentials"
    )]
    pub authfile: Option<PathBuf>,
    #[command(flatten)]
    pub asking: Asking,
}
