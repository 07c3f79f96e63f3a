//! Flags of `install`.

use clap::{Args, ValueEnum};
use globalps_core::api::{Attach, DeliveryType};
use globalps_core::names;

use super::{
    CatalogSecret, ControlPlane, KubeletFile, KubeletUnit, Original, Provider, SecretName, Span,
    TEMPLATE,
};

/// Print or apply what globalps needs in a cluster
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "\
Examples:
  # Print the manifests
  kubectl globalps install --controller-image REGISTRY/globalps-controller:TAG --syncer-image REGISTRY/globalps-syncer:TAG

  # Apply them and wait until the controller runs
  kubectl globalps install --controller-image ... --syncer-image ... --apply

  # Let the Secret of another team be one more source
  kubectl globalps install --source team-a-pull-secret --apply

  # Keep a pull secret in every namespace, and change no node
  kubectl globalps install --image-pull-secrets --delivery None --apply

  # Copy the pull secret of a catalog of the Operator Lifecycle Manager to the operators that come from it
  kubectl globalps install --operators olm/pull --apply

  # Let `spec.kubelet.unit` name a unit that is of no known distribution
  kubectl globalps install --allow-unit my-kubelet.service --apply"
)]
pub(crate) struct Install {
    /// Image of the controller; with --apply, the one that is installed
    #[arg(long, value_name = "IMAGE", required_unless_present = "apply")]
    pub controller_image: Option<String>,
    /// Image of the agent that runs on every node; with --apply, the one that is installed
    #[arg(long, value_name = "IMAGE", required_unless_present = "apply")]
    pub syncer_image: Option<String>,
    /// Secret with the cluster's original pull secret, which the controller may read then
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub original: Option<Original>,
    /// Further Secret of the namespace with credentials, which the controller may read then; may be repeated. With --apply,
    /// beside those that are sources already
    #[arg(long, value_name = "NAME")]
    pub source: Vec<String>,
    /// `HostedControlPlane` whose pull secret is the original one, on its management cluster
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        requires = "kubeconfig_secret",
        conflicts_with = "original"
    )]
    pub hosted_control_plane: Option<ControlPlane>,
    /// Secret of namespace globalps-system with a kubeconfig of its management cluster, under the key `kubeconfig`
    #[arg(long, value_name = "NAME", requires = "hosted_control_plane")]
    pub kubeconfig_secret: Option<String>,
    /// systemd unit that `spec.kubelet.unit` can name beside those of known kubelets; may be repeated. Each node restarts it
    #[arg(long, value_name = "NAME.service")]
    pub allow_unit: Vec<KubeletUnit>,
    /// File that `spec.kubelet.configFile` can name beside those of known kubelets; may be repeated. Each node's syncer
    /// may write in its directory
    #[arg(long, value_name = "PATH")]
    pub allow_config_file: Vec<KubeletFile>,
    /// Paths that `spec.kubelet.credentialProvider` can name beside those of known distributions; may be repeated. Each
    /// node's syncer may write in these directories
    #[arg(long, value_name = "CONFIG:BIN_DIR")]
    pub allow_provider: Vec<Provider>,
    /// How credentials reach the kubelets: by their credentials file, by a credential provider, or not at all
    #[arg(long, value_enum, ignore_case = true)]
    pub delivery: Option<Delivery>,
    /// Keep a pull secret of this name in every namespace; without a name, `global-pull-secret`
    #[arg(
        long, value_name = "SECRET_NAME", num_args = 0..=1, require_equals = true,
        default_missing_value = names::GLOBAL_SECRET
    )]
    pub image_pull_secrets: Option<SecretName>,
    /// How pods refer to that Secret. Default: `admission`; with --apply, where the API server serves
    /// `MutatingAdmissionPolicy` v1, else `service-accounts`
    #[arg(long, value_enum, ignore_case = true, requires = "image_pull_secrets")]
    pub attach: Option<AttachBy>,
    /// Pull secret that a `CatalogSource` names, which the controller may read and copy for its operators then; may be repeated.
    /// With --apply, beside those that are granted already; to take one away, delete its name from `ClusterRole`
    /// globalps-operators and the Role of that name in its namespace, and install again
    #[arg(long, value_name = "NAMESPACE/SECRET", value_delimiter = ',')]
    pub operators: Vec<CatalogSecret>,
    /// Pull secret of globalps' own images, which you make in `globalps-system` and in the namespace of `-n`; with --apply,
    /// as installed
    #[arg(long, value_name = "SECRET_NAME")]
    pub images_pull_secret: Option<SecretName>,
    /// Apply the manifests, and wait until the controller runs
    #[arg(long)]
    pub apply: bool,
    /// How long to wait
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
    /// The kubelet's credentials file, and a restart for each change
    #[value(name = "ConfigFile")]
    ConfigFile,
    /// A program that the kubelet runs at each pull: no restarts, and sources can have a scope
    #[value(name = "CredentialProvider")]
    CredentialProvider,
    /// Not at all: no node runs anything of globalps
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

/// How pods refer to the Secret of their namespace.
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
