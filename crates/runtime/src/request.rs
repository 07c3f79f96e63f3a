//! What requests to an API server have in common.

/// The error without the content of an unparsable response, which may contain credentials. Of an API error only its message.
pub fn without_content(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::SerdeError(_) => "could not decode the API server's response".to_owned(),
        other => other.to_string(),
    }
}
