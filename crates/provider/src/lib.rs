//! Delivery by the kubelet's credential provider API (`credentialprovider.kubelet.k8s.io/v1`): the program that the kubelet runs
//! at each pull, the file that the program reads, and the kubelet's configuration of it. It follows the kubelet's
//! `pkg/credentialprovider/plugin` (Kubernetes 1.37).

mod answer;
mod config;
mod content;
mod environment_file;
mod flags;
#[cfg(test)]
mod properties;
mod scope;
mod shared_file;
mod token;
mod trial;

pub use answer::{Audience, Offer, ProviderError, answer, is_asked, offers, response};
pub use config::{
    API_VERSION, AUDIENCE, BINARY, Delivery, MIN_KUBELET, MIN_KUBELET_FOR_SCOPES, MOST_LABELS,
    PROVIDERS, ProviderConfig, SCOPED_BINARY, kubelet_version, ports,
};
pub use content::{
    CHECKSUM_START, Content, ContentError, Data, ScopedConfig, checksum, parse_data, parse_scoped,
    render_data, render_scoped,
};
pub use flags::{
    BIN_DIR_FLAG, CONFIG_FLAG, FLAGS_VARIABLE, FlagsError, add_flags, remove_flags, running_flags,
};
pub use scope::{Pattern, PatternError, PodIdentity, Scope};
pub use shared_file::{SharedFileError, add_entries, has_providers, remove_entries};
pub use token::pod_identity;
pub use trial::{Trial, trials};

/// Name of the file that the program reads, beside its own directory.
pub const DATA_FILE: &str = "credentials.json";
