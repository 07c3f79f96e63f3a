//! A validating admission webhook of another program: an HTTPS server on this machine that the API server calls before
//! it writes. It runs until it is dropped.

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::web::{Authority, Reply, Server, Validity};

/// Answers the API server's calls, with a certificate of its own authority.
pub struct Webhook {
    server: Server,
    authority: Authority,
}

impl Webhook {
    /// `refusal` returns why a request (the `request` of an `AdmissionReview`) is denied; `None` allows it.
    pub fn start(
        refusal: impl Fn(&Value) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self> {
        let authority = Authority::new()?;
        let identity = authority.issue(&["127.0.0.1"], Validity::Now)?;
        let server = Server::web(Some(&identity), move |request| {
            answer(request.body(), &refusal)
        })?;
        Ok(Self { server, authority })
    }

    /// Number of requests that it received.
    pub fn asked(&self) -> usize {
        self.server.asked().len()
    }

    /// The webhook configuration for the API server. `rules` adds fields of the webhook, such as the resources that it
    /// is called for.
    pub fn configuration(&self, name: &str, rules: &Value) -> Value {
        configuration(name, &self.server, self.authority.pem(), rules)
    }
}

/// Like [`Webhook::configuration`], for any server.
pub fn configuration(name: &str, server: &Server, authority: &str, rules: &Value) -> Value {
    let mut webhook = json!({
        "name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {
            "url": format!("https://{}/", server.address()),
            "caBundle": BASE64_STANDARD.encode(authority),
        },
    });
    for (field, value) in rules.as_object().into_iter().flatten() {
        webhook[field] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [webhook]})
}

fn answer(body: &[u8], refusal: impl Fn(&Value) -> Option<String>) -> Reply {
    let Ok(review) = serde_json::from_slice::<Value>(body) else {
        return (400, Vec::new(), String::new());
    };
    let request = &review["request"];
    let refused = refusal(request);
    let mut response = json!({"uid": request["uid"], "allowed": refused.is_none()});
    if let Some(message) = refused {
        response["status"] = json!({"message": message});
    }
    let review =
        json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
    let json = ("content-type", "application/json".to_owned());
    (200, vec![json], review.to_string())
}
