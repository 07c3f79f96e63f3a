//! Containers that wait for their image, and what the runtime says about it. Pure.

use k8s_openapi::api::core::v1::{Event, Pod};

/// A container whose image was not pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    pub container: String,
    /// As in the pod's spec.
    pub image: String,
    /// As the kubelet names it: `ImagePullBackOff`.
    pub reason: String,
    /// Of the runtime, or of the kubelet where no event has more.
    pub message: String,
}

/// The kind of answer that the runtime got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Said {
    /// 401 or 403. Some registries say the same of a repository that does not exist.
    Denied,
    Missing,
    RateLimited,
    /// Network, DNS or TLS, and servers that fail.
    Unreachable,
    InvalidName,
    /// `imagePullPolicy: Never`, and the node does not have it.
    NeverPulled,
    /// Nothing that is known here.
    Other,
}

/// Containers of the pod that wait for their image, in the order of their start.
pub(crate) fn failing(pod: &Pod) -> Vec<Failing> {
    const REASONS: [&str; 5] = [
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "RegistryUnavailable",
    ];
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else {
        return Vec::new();
    };
    let all = [&status.init_container_statuses, &status.container_statuses];
    let found = all.into_iter().flatten().flatten().filter_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        if !REASONS.contains(&reason) {
            return None;
        }
        // The status can have another spelling of the image.
        let mut specs = spec
            .init_containers
            .iter()
            .flatten()
            .chain(&spec.containers);
        let of_spec = specs.find(|one| one.name == container.name);
        let image = of_spec.and_then(|one| one.image.clone());
        Some(Failing {
            container: container.name.clone(),
            image: image.unwrap_or_else(|| container.image.clone()),
            reason: reason.to_owned(),
            message: waiting.message.clone().unwrap_or_default(),
        })
    });
    found.collect()
}

impl Failing {
    /// Takes the runtime's message from the newest event where the container's state no longer has it.
    pub(crate) fn with_events(mut self, events: &[Event]) -> Self {
        let place = format!("{{{}}}", self.container);
        let mut own: Vec<&Event> = events
            .iter()
            .filter(|event| {
                let path = event.involved_object.field_path.as_deref();
                let is_failed = event.reason.as_deref() == Some("Failed");
                let message = event.message.as_deref().unwrap_or_default();
                is_failed
                    && path.is_some_and(|path| path.ends_with(&place))
                    && message.starts_with("Failed to pull image")
                    && message.contains(&self.image)
            })
            .collect();
        own.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
        let newest = own.last().and_then(|event| event.message.clone());
        if let (Some(message), Said::Other) = (newest, self.said()) {
            self.message = message;
        }
        self
    }

    pub(crate) fn said(&self) -> Said {
        match self.reason.as_str() {
            "InvalidImageName" => return Said::InvalidName,
            "ErrImageNeverPull" => return Said::NeverPulled,
            "RegistryUnavailable" => return Said::Unreachable,
            _ => {}
        }
        // A tag such as `v1.403` is no answer of a registry.
        let message = self.message.replace(&self.image, "").to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if has(&["toomanyrequests", "429 too many", "rate limit"]) {
            Said::RateLimited
        } else if has(&[
            "unauthorized",
            "authentication required",
            "authorization failed",
            "may require authorization",
            "insufficient_scope",
            "invalid username/password",
            "401 ",
            "403 forbidden",
            "access denied",
            "access to the resource is denied",
            "no basic auth credentials",
        ]) {
            Said::Denied
        } else if has(&[
            "x509:",
            "tls:",
            "tls handshake",
            "dial tcp",
            "no such host",
            "connection refused",
            "connection reset",
            "network is unreachable",
            "no route to host",
            "i/o timeout",
            "deadline exceeded",
            "http response to https client",
            "500 internal",
            "502 bad",
            "503 service",
            "504 gateway",
            ": eof",
        ]) {
            Said::Unreachable
        } else if has(&[
            "not found",
            "manifest unknown",
            "name unknown",
            "no such manifest",
        ]) {
            Said::Missing
        } else {
            Said::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_containerd_and_crio_say_is_understood() {
        for (reason, message, expected) in [
            (
                "ErrImagePull",
                "failed to pull and unpack image \"r/a:1\": failed to resolve reference \"r/a:1\": pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials",
                Said::Denied,
            ),
            (
                "ErrImagePull",
                "failed to resolve image: unexpected status from HEAD request to https://r/v2/a/manifests/1: 401 Unauthorized",
                Said::Denied,
            ),
            (
                "ErrImagePull",
                "initializing source docker://r/a:1: reading manifest 1 in r/a: unauthorized: authentication required",
                Said::Denied,
            ),
            (
                "ErrImagePull",
                "initializing source docker://r/a:1: reading manifest 1 in r/a: manifest unknown",
                Said::Missing,
            ),
            (
                "ErrImagePull",
                "rpc error: code = NotFound desc = failed to pull and unpack image \"r/a:1\": r/a:1: not found",
                Said::Missing,
            ),
            (
                "ErrImagePull",
                "429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit",
                Said::RateLimited,
            ),
            (
                "ErrImagePull",
                "failed to do request: Head \"https://r/v2/a/manifests/1\": dial tcp: lookup r: no such host",
                Said::Unreachable,
            ),
            (
                "ErrImagePull",
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
                Said::Unreachable,
            ),
            ("InvalidImageName", "", Said::InvalidName),
            ("ErrImageNeverPull", "", Said::NeverPulled),
            (
                "ImagePullBackOff",
                "Back-off pulling image \"r/a:1\"",
                Said::Other,
            ),
        ] {
            let failing = Failing {
                container: "c".to_owned(),
                image: "r/a:1".to_owned(),
                reason: reason.to_owned(),
                message: message.to_owned(),
            };
            assert_eq!(failing.said(), expected, "{message}");
        }
    }

    #[test]
    fn an_event_has_the_message_that_the_state_lost() {
        let event = |container: &str, time: &str, message: &str| -> Event {
            let event = json!({
                "metadata": {}, "reason": "Failed", "lastTimestamp": time, "message": message,
                "involvedObject": {"fieldPath": format!("spec.containers{{{container}}}")},
            });
            serde_json::from_value(event).expect("an event")
        };
        let denied = "Failed to pull image \"r/a:1\": 401 Unauthorized";
        let events = [
            event("c", "2026-01-01T00:02:00Z", denied),
            event(
                "c",
                "2026-01-01T00:01:00Z",
                "Failed to pull image \"r/a:1\": manifest unknown",
            ),
            event(
                "other",
                "2026-01-01T00:03:00Z",
                "Failed to pull image \"r/a:1\": x509: no",
            ),
            event("c", "2026-01-01T00:04:00Z", "Error: ErrImagePull"),
        ];
        let pod = json!({
            "metadata": {}, "spec": {"containers": [{"name": "c", "image": "r/a:1"}]},
            "status": {"containerStatuses": [{
                "name": "c", "image": "docker.io/r/a:1", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}},
            }]},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let found = failing(&pod);
        assert_eq!(found.len(), 1);
        let found = found[0].clone().with_events(&events);
        assert_eq!(
            (found.message.as_str(), found.said()),
            (denied, Said::Denied)
        );
        assert_eq!(found.image, "r/a:1");
    }
}
