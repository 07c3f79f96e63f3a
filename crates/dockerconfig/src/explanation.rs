//! What the readers of a credentials file do for an image.

use super::entry::Credential;

/// One credential for an image, with its key as written.
#[derive(Clone, Debug)]
pub struct Try {
    /// As in the file, for people: two spellings of a registry stay apart.
    pub key: String,
    /// What is sent; user or password may be empty.
    pub credential: Credential,
}

/// What CRI-O does for an image.
#[derive(Clone, Debug)]
pub enum Crio {
    /// It sends this one and tries no other.
    Credential(Try),
    /// It asks without credentials.
    None,
    /// The pull fails before CRI-O contacts the registry. The key of the entry that causes it, if any.
    Error {
        /// As written; empty: the image's name is the cause.
        key: String,
        /// A clause about the key or the image.
        why: &'static str,
    },
}

/// What the readers of a file do for one image.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// `HOST/PATH` with Docker's defaults, as the kubelet matches it: `docker.io/library/nginx`.
    pub repository: String,
    /// Whether the kubelet accepts the file; if not, it uses no entry of it.
    pub accepted: bool,
    /// Tried in this order until a pull succeeds.
    pub tries: Vec<Try>,
    /// What CRI-O may do. Several if it picks one of several keys that are the same to it.
    pub crio: Vec<Crio>,
}
