//! Reason and message for an error of another cluster's API server.

use std::error::Error;

use globalps_core::reasons::Reason;
use globalps_runtime::request::{is_timeout, without_content};

/// Texts in the chain of errors, and their reason. The first match counts.
const CAUSES: [(&[&str], Reason); 9] = [
    (&["a response of more than"], Reason::ResponseTooLarge),
    (&["Expired", "expired"], Reason::CertificateExpired),
    (
        &[
            "UnknownIssuer",
            "BadSignature",
            "unknown issuer",
            "self-signed",
        ],
        Reason::UnknownAuthority,
    ),
    (
        &["NotValidForName", "not valid for name"],
        Reason::WrongServerName,
    ),
    (&["proxy", "Proxy", "tunnel"], Reason::Proxy),
    (&["certificate", "Certificate", "alert"], Reason::TlsFailed),
    (&["dns error", "resolve", "lookup"], Reason::NameNotResolved),
    (&["refused"], Reason::ConnectionRefused),
    (
        &["timed out", "deadline", "elapsed", "timeout"],
        Reason::Timeout,
    ),
];

/// Reason and message for a failed request. The message contains neither content of a response nor credentials in the server's URL.
pub(crate) fn reason(error: &kube::Error) -> (Reason, String) {
    if let kube::Error::Api(status) = error {
        return match status.code {
            401 => (
                Reason::Unauthorized,
                "the cluster rejects the token or certificate in the kubeconfig".to_owned(),
            ),
            403 => (Reason::Forbidden, status.message.clone()),
            code => (
                Reason::ServerError,
                format!("HTTP {code}: {}", status.message),
            ),
        };
    }
    if is_timeout(error) {
        return timeout();
    }
    let mut texts = vec![without_content(error)];
    let mut source = error.source();
    while let Some(error) = source {
        texts.push(error.to_string());
        source = error.source();
    }
    let is_cause = |words: &[&str]| {
        texts
            .iter()
            .any(|text| words.iter().any(|word| text.contains(word)))
    };
    let cause = CAUSES.iter().find(|(words, _)| is_cause(words));
    let reason = cause.map_or(Reason::Unreachable, |(_, reason)| *reason);
    let innermost = texts.pop().unwrap_or_default();
    (
        reason,
        format!("its API server can't be reached: {innermost}"),
    )
}

/// Reason and message for a request without a response.
pub(crate) fn timeout() -> (Reason, String) {
    (
        Reason::Timeout,
        "its API server can't be reached: no response in time".to_owned(),
    )
}
