//! Extracts the pod's identity from a service account token.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::scope::PodIdentity;

#[derive(Deserialize)]
struct Claims {
    #[serde(rename = "kubernetes.io")]
    kubernetes: Kubernetes,
}

#[derive(Deserialize)]
struct Kubernetes {
    namespace: String,
    serviceaccount: ServiceAccount,
}

#[derive(Deserialize)]
struct ServiceAccount {
    name: String,
}

/// Namespace and service account of a token's pod; `None` if it is not a service account token or lacks these claims. The kubelet
/// itself requested the token from the API server for this pull, so the signature is not checked.
pub fn pod_identity(token: &str) -> Option<PodIdentity> {
    let mut parts = token.split('.');
    let payload = parts.nth(1)?;
    if parts.count() != 1 {
        return None;
    }
    let payload = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?);
    let claims: Claims = serde_json::from_slice(&payload).ok()?;
    let Kubernetes {
        namespace,
        serviceaccount: ServiceAccount { name },
    } = claims.kubernetes;
    (!namespace.is_empty() && !name.is_empty()).then_some(PodIdentity {
        namespace,
        service_account: name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claims_of_a_token_name_the_pod() {
        let token = |payload: &str| {
            let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
            format!("{}.{}.{}", part("{}"), part(payload), part("signature"))
        };
        let good =
            r#"{"kubernetes.io":{"namespace":"a","serviceaccount":{"name":"ci","uid":"u"}}}"#;
        let pod = pod_identity(&token(good)).map(|pod| (pod.namespace, pod.service_account));
        assert_eq!(pod, Some(("a".to_owned(), "ci".to_owned())));
        for bad in [
            String::new(),
            "a.b".to_owned(),
            "a.b.c".to_owned(),
            format!("{}.more", token(good)),
            token("{}"),
            token(r#"{"kubernetes.io":{"namespace":"a"}}"#),
            token(r#"{"kubernetes.io":{"namespace":"","serviceaccount":{"name":"ci"}}}"#),
            token(r#"{"kubernetes.io":{"namespace":"a","serviceaccount":{"name":""}}}"#),
            token(r#"{"kubernetes.io":{"namespace":["a"],"serviceaccount":{"name":"ci"}}}"#),
        ] {
            assert_eq!(pod_identity(&bad), None, "{bad}");
        }
    }
}
