//! Flags of `install`.

use clap::{Args, ValueEnum};
use globalps_core::api::{Attach, DeliveryType};
use globalps_core::names;

use super::{
    CatalogSecret, ControlPlane, DryRun, KubeletFile, KubeletUnit, Original, Provider, SecretName,
    Span, TEMPLATE,
};

/// Print or apply the manifests of globalps
///
/// With --apply, the command shows what it creates and changes before it writes. On a terminal it asks for confirmation if it
/// changes existing objects.
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # Print the manifests
  kubectl globalps install --controller-image REGISTRY/globalps-controller:TAG --syncer-image REGISTRY/globalps-syncer:TAG

  # Apply them and wait until the controller runs
  kubectl globalps install --controller-image ... --syncer-image ... --apply

  # Show what an upgrade changes
  kubectl globalps install --controller-image ... --syncer-image ... --apply --dry-run=server

  # Add the Secret of another team as a source
  kubectl globalps install --source team-a-pull-secret --apply

  # Keep a pull secret in every namespace instead of changing nodes
  kubectl globalps install --image-pull-secrets --delivery None --apply

  # Copy the pull secret of a catalog (Operator Lifecycle Manager) to the operators installed from it
  kubectl globalps install --operators olm/pull --apply

  # Create a deleted GlobalPullSecret again as it was
  kubectl globalps install --restore-configuration

  # Allow `spec.kubelet.unit` to name another systemd unit
  kubectl globalps install --allow-unit my-kubelet.service --apply"
)]
pub(crate) struct Install {
    /// Image of the controller. Default with --apply: the installed image
    #[arg(long, value_name = "IMAGE", required_unless_present_any = ["apply", "restore_configuration"])]
    pub controller_image: Option<String>,
    /// Image of the agent on every node. Default with --apply: the installed image
    #[arg(long, value_name = "IMAGE", required_unless_present_any = ["apply", "restore_configuration"])]
    pub syncer_image: Option<String>,
    /// The cluster's original pull secret; lets the controller read it
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub original: Option<Original>,
    /// Further Secret with credentials in the namespace; lets the controller read it; may be repeated. With --apply, existing
    /// sources stay
    #[arg(long, value_name = "NAME")]
    pub source: Vec<String>,
    /// Use the pull secret of this `HostedControlPlane` on the management cluster as the original
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        requires = "kubeconfig_secret",
        conflicts_with = "original"
    )]
    pub hosted_control_plane: Option<ControlPlane>,
    /// Secret in namespace globalps-system with a kubeconfig of the management cluster, under the key `kubeconfig`
    #[arg(long, value_name = "NAME", requires = "hosted_control_plane")]
    pub kubeconfig_secret: Option<String>,
    /// Allow `spec.kubelet.unit` to name this systemd unit, in addition to known kubelets; may be repeated. Each node restarts it
    #[arg(long, value_name = "NAME.service")]
    pub allow_unit: Vec<KubeletUnit>,
    /// Allow `spec.kubelet.configFile` to name this file, in addition to those of known kubelets; may be repeated. Each node's
    /// syncer may write to its directory
    #[arg(long, value_name = "PATH")]
    pub allow_config_file: Vec<KubeletFile>,
    /// Allow `spec.kubelet.credentialProvider` to name these paths, in addition to those of known distributions; may be
    /// repeated. Each node's syncer may write to these directories
    #[arg(long, value_name = "CONFIG:BIN_DIR")]
    pub allow_provider: Vec<Provider>,
    /// How credentials reach the kubelets
    #[arg(long, value_enum, ignore_case = true)]
    pub delivery: Option<Delivery>,
    /// Keep a pull secret in every namespace. Default name: `global-pull-secret`
    #[arg(
        long, value_name = "SECRET_NAME", num_args = 0..=1, require_equals = true,
        default_missing_value = names::GLOBAL_SECRET
    )]
    pub image_pull_secrets: Option<SecretName>,
    /// How pods get the reference to that Secret. Default: `admission`. With --apply, `service-accounts` if the API server
    /// doesn't serve `MutatingAdmissionPolicy` v1
    #[arg(long, value_enum, ignore_case = true, requires = "image_pull_secrets")]
    pub attach: Option<AttachBy>,
    /// Pull secret of a `CatalogSource`; lets the controller read it and copy it for the catalog's operators; may be repeated.
    /// With --apply, earlier grants stay. To revoke one, take the Secret out of the `CatalogSource` and wait until the copies are
    /// gone, delete its name from `ClusterRole` globalps-operators, delete the Role of that name in its namespace, and run
    /// install again
    #[arg(long, value_name = "NAMESPACE/SECRET", value_delimiter = ',')]
    pub operators: Vec<CatalogSecret>,
    /// Pull secret for the images of globalps. Create it in `globalps-system` and in the namespace of `-n`. Default with
    /// --apply: the installed one
    #[arg(long, value_name = "SECRET_NAME")]
    pub images_pull_secret: Option<SecretName>,
    /// Only create the `GlobalPullSecret` again as it last was in force, or undo a change of it that is held
    #[arg(
        long,
        conflicts_with_all = [
            "controller_image", "syncer_image", "original", "source", "hosted_control_plane", "kubeconfig_secret",
            "allow_unit", "allow_config_file", "allow_provider", "delivery", "image_pull_secrets", "attach", "operators",
            "images_pull_secret", "apply",
        ]
    )]
    pub restore_configuration: bool,
    /// Show the changes, apply the manifests, and wait until the controller runs
    #[arg(long)]
    pub apply: bool,
    /// Apply without a confirmation prompt. Without a terminal there is no prompt
    #[arg(short, long, requires = "apply")]
    pub yes: bool,
    /// Show what would be created and changed, without changing the cluster: `client` compares the fields of the manifests,
    /// `server` lets the API server apply them without storing them. `$KUBECTL_EXTERNAL_DIFF` applies
    #[arg(
        long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "client", requires = "apply"
    )]
    pub dry_run: DryRun,
    /// Maximum time to wait
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        requires = "apply"
    )]
    pub timeout: Span,
}

/// How credentials reach the kubelets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delivery {
    /// The kubelet's credentials file; each change restarts the kubelet
    #[value(name = "ConfigFile")]
    ConfigFile,
    /// A program that the kubelet runs at each pull; changes restart nothing, and sources can have a scope
    #[value(name = "CredentialProvider")]
    CredentialProvider,
    /// No delivery to nodes: globalps runs nothing on them
    #[value(name = "None")]
    None,
}

impl From<Delivery> for DeliveryType {
    fn from(delivery: Delivery) -> Self {
        match delivery {
            Delivery::ConfigFile => Self::ConfigFile,
            Delivery::CredentialProvider => Self::CredentialProvider,
            Delivery::None => Self::None,
        }
    }
}

/// How pods get the reference to the Secret of their namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachBy {
    /// A `MutatingAdmissionPolicy` adds the reference to each new pod
    Admission,
    /// The controller adds the reference to service accounts
    ServiceAccounts,
}

impl From<AttachBy> for Attach {
    fn from(attach: AttachBy) -> Self {
        match attach {
            AttachBy::Admission => Self::Admission,
            AttachBy::ServiceAccounts => Self::ServiceAccounts,
        }
    }
}
