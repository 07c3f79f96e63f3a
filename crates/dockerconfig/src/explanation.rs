//! The behaviour of the readers of a credentials file for an image.

use super::entry::Credential;

/// One credential for an image, with its key as written.
#[derive(Clone, Debug)]
pub struct Try {
    /// The key as in the file, for users: two spellings of a registry stay distinct.
    pub key: String,
    /// The credential that is sent; user or password may be empty.
    pub credential: Credential,
}

/// CRI-O's behaviour for an image.
#[derive(Clone, Debug)]
pub enum Crio {
    /// It sends this credential and tries no other.
    Credential(Try),
    /// It sends a request without credentials.
    None,
    /// The pull fails before CRI-O contacts the registry. The key of the entry that causes it, if any.
    Error {
        /// The key as written; empty if the image's name is the cause.
        key: String,
        /// A clause about the key or the image.
        why: &'static str,
    },
}

/// The behaviour of the readers of a file for one image.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// `HOST/PATH` with Docker's defaults, as the kubelet matches it: `docker.io/library/nginx`.
    pub repository: String,
    /// Whether the kubelet accepts the file; if not, it uses no entry of it.
    pub accepted: bool,
    /// Tried in this order until a pull succeeds.
    pub tries: Vec<Try>,
    /// What CRI-O may do. Several if it picks one of several keys that it treats as equal.
    pub crio: Vec<Crio>,
}
