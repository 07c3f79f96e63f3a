//! What can be wrong.

use globalps_core::provider::ProviderError;

use crate::data::DataError;
use crate::request::RequestError;

/// Why there is no credential although there might be one. Never a part of the request or of the data.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the request can't be used: {0}")]
    Request(#[from] RequestError),
    #[error("the data file can't be used: {0}")]
    File(#[from] DataError),
    #[error(transparent)]
    Provider(#[from] ProviderError),
}
