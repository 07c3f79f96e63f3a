//! The meaning of a `config.json` with registry credentials on a node.
//!
//! It follows the kubelet's `pkg/credentialprovider` (Kubernetes 1.37) and containers/image.

mod canonical;
mod effective;
mod encoded;
mod entry;
mod exact;
mod expiry;
mod explanation;
mod finding;
mod form;
mod helpers;
mod image;
mod json;
mod keys;
mod matching;
mod merge;
mod parse;
mod shared;
mod stray;
mod url;
mod validate;

pub use canonical::{canonical_key, shown_key};
pub use entry::{Credential, Entry, Secret};
pub use exact::by_exact_name;
pub use expiry::{Expiry, Lifetime, expiry, lifetime};
pub use explanation::{Crio, Explanation, Try};
pub use finding::{Code, Finding, Severity};
pub use form::FileForm;
pub use helpers::Helpers;
pub use image::ImageError;
pub use matching::{attempts, explain, host_labels, may_serve};
pub use merge::{
    Combined, Conflict, Merged, NodeMerge, Precedence, Shadowed, combine, merge, merge_on_node,
};
pub use parse::{DockerConfig, ParseError, parse, parse_with};
pub use shared::{Applied, Fate, Rules, SharedError, SharedMerge, merge_shared};
pub use validate::{validate, validate_bytes, validate_data, validate_replacement};

/// Key of a Secret's data that holds registry credentials.
pub const DATA_KEY: &str = ".dockerconfigjson";
