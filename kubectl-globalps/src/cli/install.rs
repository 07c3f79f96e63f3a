//! Flags of `install`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use globalps_core::api::{Attach, DeliveryType};
use globalps_core::names;

use super::{
    Applying, CatalogSecret, ControlPlane, KubeletFile, KubeletUnit, Original, Provider, SecretName,
};

/// Install globalps, or upgrade it
///
/// Shows what it creates and changes, asks, applies it, and waits until the controller runs. Without a terminal there is no
/// question, so it needs --yes. An upgrade keeps what no flag names.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  # Install it
  kubectl globalps install --controller-image REGISTRY/globalps-controller:TAG --syncer-image REGISTRY/globalps-syncer:TAG

  # Upgrade it
  kubectl globalps install --controller-image REGISTRY/globalps-controller:NEWER --syncer-image REGISTRY/globalps-syncer:NEWER

  # Show what an upgrade changes
  kubectl globalps install --controller-image ... --syncer-image ... --dry-run=server

  # Print the manifests, for GitOps
  kubectl globalps install --controller-image ... --syncer-image ... --dry-run=client -o yaml

  # With the settings of a GlobalPullSecret, and the permissions that they need
  kubectl globalps install --controller-image ... --syncer-image ... -f globalpullsecret.yaml

  # Credentials without kubelet restarts
  kubectl globalps install --controller-image ... --syncer-image ... --delivery CredentialProvider

  # A pull secret in every namespace instead of changing nodes
  kubectl globalps install --controller-image ... --syncer-image ... --deliver-to-namespaces --delivery None

  # Let globalps read the Secret of another team
  kubectl globalps install --source team-a-pull-secret

  # Copy the pull secret of a catalog (Operator Lifecycle Manager) to the operators installed from it
  kubectl globalps install --operators olm/pull

  # Create a deleted GlobalPullSecret again as it was
  kubectl globalps install --restore-configuration

  # Allow `spec.kubelet.unit` to name another systemd unit
  kubectl globalps install --allow-unit my-kubelet.service")]
pub(crate) struct Install {
    /// Image of the controller. Default: the installed image
    #[arg(long, value_name = "IMAGE")]
    pub controller_image: Option<String>,
    /// Image of the agent on every node. Default: the installed image
    #[arg(long, value_name = "IMAGE")]
    pub syncer_image: Option<String>,
    /// Settings: a `GlobalPullSecret` as YAML or JSON; `-` reads stdin. Grants what they need; replaces the fields in force
    #[arg(
        short = 'f', long, value_name = "FILE",
        conflicts_with_all = [
            "original", "source", "hosted_control_plane", "delivery", "deliver_to_namespaces", "attach",
        ]
    )]
    pub filename: Option<PathBuf>,
    /// The cluster's original pull secret; lets the controller read it
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub original: Option<Original>,
    /// Further Secret with credentials in the namespace; lets the controller read it; may be repeated. Existing sources
    /// stay
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
    pub delivery: Option<DeliveryFlag>,
    /// Keep a pull secret in every namespace. Default name: `global-pull-secret`
    #[arg(
        long, value_name = "SECRET_NAME", num_args = 0..=1, require_equals = true,
        default_missing_value = names::GLOBAL_SECRET
    )]
    pub deliver_to_namespaces: Option<SecretName>,
    /// How pods get the reference to that Secret. Default: `admission`, or `service-accounts` if the API server
    /// doesn't serve `MutatingAdmissionPolicy` v1
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        requires = "deliver_to_namespaces"
    )]
    pub attach: Option<AttachBy>,
    /// Pull secret of a `CatalogSource`; lets the controller read it and copy it for the catalog's operators; may be repeated.
    /// Earlier grants stay. To revoke one, take the Secret out of the `CatalogSource` and wait until the copies are
    /// gone, delete its name from `ClusterRole` globalps-operators, delete the Role of that name in its namespace, and run
    /// install again
    #[arg(long, value_name = "NAMESPACE/SECRET", value_delimiter = ',')]
    pub operators: Vec<CatalogSecret>,
    /// Pull secret for the images of globalps. Create it in `globalps-system` and in the namespace of the syncer. Default:
    /// the installed one
    #[arg(long, value_name = "SECRET_NAME")]
    pub pull_secret: Option<SecretName>,
    /// Only create the `GlobalPullSecret` again as it last was in force, or undo a change of it that is held
    #[arg(
        long,
        conflicts_with_all = [
            "controller_image", "syncer_image", "original", "source", "hosted_control_plane", "kubeconfig_secret",
            "allow_unit", "allow_config_file", "allow_provider", "delivery", "deliver_to_namespaces", "attach", "operators",
            "pull_secret", "filename",
        ]
    )]
    pub restore_configuration: bool,
    #[command(flatten)]
    pub applying: Applying,
}

/// How credentials reach the kubelets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeliveryFlag {
    /// The kubelet's credentials file; each change restarts the kubelet
    #[value(name = "ConfigFile")]
    ConfigFile,
    /// A program that the kubelet runs at each pull; changes restart nothing, and sources can have a scope
    #[value(name = "CredentialProvider")]
    CredentialProvider,
    /// No delivery to nodes: globalps runs nothing on them
    #[value(name = "None")]
    None,
    /// `HyperShift`'s own controller delivers: globalps checks the pull secret and reports what each node's file has
    #[value(name = "Observe")]
    Observe,
    /// The cluster's own pull secret, which `OpenShift`'s Machine Config Operator brings to the nodes
    #[value(name = "OpenShift")]
    OpenShift,
}

impl From<DeliveryFlag> for DeliveryType {
    fn from(delivery: DeliveryFlag) -> Self {
        match delivery {
            DeliveryFlag::ConfigFile => Self::ConfigFile,
            DeliveryFlag::CredentialProvider => Self::CredentialProvider,
            DeliveryFlag::None => Self::None,
            DeliveryFlag::Observe => Self::Observe,
            DeliveryFlag::OpenShift => Self::OpenShift,
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
