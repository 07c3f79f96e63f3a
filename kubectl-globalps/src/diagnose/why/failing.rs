//! Images that a pod's containers wait for, and the runtime's messages about them. Pure.

use k8s_openapi::api::core::v1::{Event, Pod, PodSpec, PodStatus, Volume, VolumeMount};

use super::named::{names, sandbox_image};
use crate::diagnose::owner::{containers, is_of_pod};

/// An image that could not be pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    /// Empty if the image is the pod's sandbox image.
    pub container: String,
    pub used: Use,
    /// As in the pod's spec. Empty if the message does not tell which of several images it is about.
    pub image: String,
    /// The kubelet's reason: `ImagePullBackOff`.
    pub reason: String,
    /// The runtime's message, or the kubelet's if no event has more details.
    pub message: String,
}

/// What the image is used for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    Container,
    Ephemeral,
    /// The volume of this name, which the container mounts.
    Volume(String),
    Sandbox,
}

/// The kind of the runtime's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Said {
    /// 401 or 403. Some registries also answer this for a repository that does not exist.
    Denied,
    Missing,
    RateLimited,
    /// Network, DNS or TLS errors, and server errors.
    Unreachable,
    InvalidName,
    /// `imagePullPolicy: Never`, and the node does not have the image, or not for this pod.
    NeverPulled,
    /// A policy of the node requires signed images.
    Unsigned,
    /// A problem of the node or the image, not of access.
    NotAccess,
    /// An unknown message.
    Other,
}

const REASONS: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];
/// If the kubelet can't read the pod's credentials, the reason is an error message, which contains spaces.
const IS_TEXT: char = ' ';

/// Images that the pod waits for, in the order in which its containers start. `events`: of pods of this name.
pub(crate) fn failing(pod: &Pod, events: &[Event]) -> Vec<Failing> {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else {
        return Vec::new();
    };
    let events = own(pod, events);
    let found = containers(status).filter_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.clone()?;
        if !REASONS.contains(&reason.as_str()) && !reason.contains(IS_TEXT) {
            return None;
        }
        let message = waiting.message.clone().unwrap_or_default();
        let failing = Failing {
            container: container.name.clone(),
            used: Use::Container,
            // The spec can spell the image differently.
            image: container.image.clone(),
            reason,
            message,
        };
        Some(failing.of_spec(spec, &events).with_events(&events))
    });
    let found: Vec<Failing> = found.collect();
    if found.is_empty() {
        return sandbox(status, &events).into_iter().collect();
    }
    found
}

/// Events of this pod, oldest first. An earlier pod may have had the same name.
pub(super) fn own<'a>(pod: &Pod, events: &'a [Event]) -> Vec<&'a Event> {
    let events = events.iter();
    let mut own: Vec<&Event> = events
        .filter(|event| is_of_pod(&event.involved_object, pod))
        .collect();
    own.sort_by_key(|event| time(event));
    own
}

fn time(event: &Event) -> Option<jiff::Timestamp> {
    let series = event.series.as_ref();
    let last = series.and_then(|series| series.last_observed_time.as_ref());
    let last = last.or(event.event_time.as_ref()).map(|time| time.0);
    event.last_timestamp.as_ref().map(|time| time.0).or(last)
}

/// The sandbox image, if the runtime could not pull it.
fn sandbox(status: &PodStatus, events: &[&Event]) -> Option<Failing> {
    if !waits_for_sandbox(status) {
        return None;
    }
    let mut events = events.iter().rev();
    let newest = events.find(|event| event.reason.as_deref() == Some(SANDBOX))?;
    let message = newest.message.clone()?;
    let image = sandbox_image(&message)?.to_owned();
    Some(Failing {
        container: String::new(),
        used: Use::Sandbox,
        image,
        reason: SANDBOX.to_owned(),
        message,
    })
}

pub(crate) const SANDBOX: &str = "FailedCreatePodSandBox";

/// Whether the kubelet has yet to create the sandbox, or must create it again.
pub(super) fn waits_for_sandbox(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    let is_ready = match conditions.find(|it| it.type_ == "PodReadyToStartContainers") {
        Some(condition) => condition.status == "True",
        None => status.pod_ip.is_some(),
    };
    let phase = status.phase.as_deref();
    !is_ready && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The images in a container's spec: its own, and those that it mounts.
fn of_container<'a>(spec: &'a PodSpec, name: &str) -> Option<(Use, &'a str, &'a [VolumeMount])> {
    let usual = spec.init_containers.iter().flatten();
    let usual = usual.chain(&spec.containers).map(|one| {
        let parts = (&one.name, &one.image, &one.volume_mounts);
        (Use::Container, parts)
    });
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|one| {
        let parts = (&one.name, &one.image, &one.volume_mounts);
        (Use::Ephemeral, parts)
    });
    let mut all = usual.chain(ephemeral);
    let (used, (_, image, mounts)) = all.find(|(_, (of, ..))| *of == name)?;
    Some((used, image.as_deref()?, mounts.as_deref().unwrap_or(&[])))
}

/// Whether the event reports a failed pull for this use. Events about volumes name no container.
fn is_about(event: &Event, used: &Use, container: &str) -> bool {
    let path = event.involved_object.field_path.as_deref();
    let path = path.unwrap_or_default();
    let is_own = match used {
        Use::Volume(_) => path.is_empty(),
        _ => path.ends_with(&format!("{{{container}}}")),
    };
    is_own && event.reason.as_deref() == Some("Failed")
}

impl Failing {
    /// Adds the image that the message is about. The kubelet pulls a container's image volumes first, and reports the
    /// last one that fails in place of the container's own image.
    fn of_spec(mut self, spec: &PodSpec, events: &[&Event]) -> Self {
        let Some((used, own, mounts)) = of_container(spec, &self.container) else {
            return self;
        };
        let reference = |mount: &VolumeMount| {
            let mut volumes = spec.volumes.iter().flatten();
            let volume: &Volume = volumes.find(|it| it.name == mount.name)?;
            let image = volume.image.as_ref()?.reference.clone()?;
            Some((Use::Volume(volume.name.clone()), image))
        };
        let mut all: Vec<(Use, String)> = mounts.iter().rev().filter_map(reference).collect();
        all.push((used, own.to_owned()));
        let is_only = all.len() == 1 || self.reason.contains(IS_TEXT);
        let named = |message: &str| all.iter().find(|(_, image)| names(message, image));
        let of_event = |event: &&Event| {
            let message = event.message.as_deref().unwrap_or_default();
            all.iter().find(|(used, image)| {
                names(message, image) && is_about(event, used, &self.container)
            })
        };
        let found = match all.last() {
            Some(own) if is_only => Some(own),
            _ => named(&self.message).or_else(|| events.iter().rev().find_map(of_event)),
        };
        (self.used, self.image) = found.cloned().unwrap_or((Use::Container, String::new()));
        self
    }

    /// Uses the runtime's message of the newest event if the container's state no longer has it.
    fn with_events(mut self, events: &[&Event]) -> Self {
        let mut newest = events.iter().rev().filter_map(|event| {
            let message = event.message.as_ref()?;
            let is_own = is_about(event, &self.used, &self.container)
                && message.starts_with("Failed to pull image")
                && names(message, &self.image);
            is_own.then_some(message)
        });
        if let (Some(message), Said::Other) = (newest.next(), self.said()) {
            self.message.clone_from(message);
        }
        self
    }

    /// Whether a new pod with other credentials might get the image.
    pub(crate) fn may_lack_credentials(&self) -> bool {
        ["ErrImagePull", "ImagePullBackOff"].contains(&self.reason.as_str())
            && self.used != Use::Ephemeral
            && matches!(self.said(), Said::Denied | Said::RateLimited | Said::Other)
    }

    pub(crate) fn said(&self) -> Said {
        match self.reason.as_str() {
            "InvalidImageName" => return Said::InvalidName,
            "ErrImageNeverPull" => return Said::NeverPulled,
            "RegistryUnavailable" => return Said::Unreachable,
            "SignatureValidationFailed" => return Said::Unsigned,
            _ => {}
        }
        // A tag such as `v1.403` must not count as a registry's status code.
        let message = self.message.replace(&self.image, "").to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if has(&["signaturevalidationfailed", "signature validation failed"]) {
            Said::Unsigned
        } else if has(&["invalid reference format", "couldn't parse image"]) {
            Said::InvalidName
        } else if has(&[
            "no space left on device",
            "read-only file system",
            "input/output error",
            "failed to extract layer",
            "no match for platform",
            "no image found in image index",
            "no image found in manifest list",
        ]) {
            Said::NotAccess
        } else if has(&["toomanyrequests", "429 too many", "rate limit"]) {
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
            "registryunavailable",
            "registry is unavailable",
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
                used: Use::Container,
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
                "involvedObject": {"name": "p", "fieldPath": format!("spec.containers{{{container}}}")},
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
            "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "r/a:1"}]},
            "status": {"containerStatuses": [{
                "name": "c", "image": "docker.io/r/a:1", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}},
            }]},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let found = failing(&pod, &events);
        assert_eq!(found.len(), 1);
        let found = &found[0];
        assert_eq!(
            (found.message.as_str(), found.said()),
            (denied, Said::Denied)
        );
        assert_eq!(found.image, "r/a:1");
    }
}
