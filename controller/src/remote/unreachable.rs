//! Why another cluster's API server can't be used, as a reason and a sentence.

use std::error::Error;

use crate::telemetry::client::without_content;

/// What is in the chain of errors, and the reason then. The first that fits counts.
const CAUSES: [(&[&str], &str); 9] = [
    (&["a response of more than"], "ResponseTooLarge"),
    (&["Expired", "expired"], "CertificateExpired"),
    (
        &[
            "UnknownIssuer",
            "BadSignature",
            "unknown issuer",
            "self-signed",
        ],
        "UnknownAuthority",
    ),
    (
        &["NotValidForName", "not valid for name"],
        "WrongServerName",
    ),
    (&["proxy", "Proxy", "tunnel"], "Proxy"),
    (&["certificate", "Certificate", "alert"], "TlsFailed"),
    (&["dns error", "resolve", "lookup"], "NameNotResolved"),
    (&["refused"], "ConnectionRefused"),
    (&["timed out", "deadline", "elapsed", "timeout"], "Timeout"),
];

/// Of a request that failed. The sentence has nothing of a response's content, and not the server's address with its user.
pub(crate) fn reason(error: &kube::Error) -> (&'static str, String) {
    if let kube::Error::Api(status) = error {
        return match status.code {
            401 => (
                "Unauthorized",
                "the cluster does not accept the kubeconfig's token or certificate".to_owned(),
            ),
            403 => ("Forbidden", status.message.clone()),
            code => ("ServerError", format!("HTTP {code}: {}", status.message)),
        };
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
    let reason = cause.map_or("Unreachable", |(_, reason)| reason);
    let innermost = texts.pop().unwrap_or_default();
    (
        reason,
        format!("its API server can't be reached: {innermost}"),
    )
}

/// Of a request without a response.
pub(crate) fn timeout() -> (&'static str, String) {
    (
        "Timeout",
        "its API server can't be reached: no answer in time".to_owned(),
    )
}
