//! Errors.

use globalps_provider::ProviderError;

use crate::data::DataError;
use crate::request::RequestError;

/// Why there is no answer although a credential may exist. Contains no part of the request or of the data.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("invalid request: {0}")]
    Request(#[from] RequestError),
    #[error("the data file is unusable: {0}")]
    File(#[from] DataError),
    #[error(transparent)]
    Provider(#[from] ProviderError),
}
