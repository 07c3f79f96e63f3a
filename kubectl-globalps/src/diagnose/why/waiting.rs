//! Pods that wait for an image of a registry that was just added, and which of them may be evicted. Pure.

use std::time::Duration;

use globalps_dockerconfig::{Credential, DockerConfig, Entry, Secret, attempts};
use globalps_provider::{PodIdentity, Scope};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::failing::{Said, Use, failing};
use crate::cli::Span;
use crate::diagnose::owner::kept;
use crate::terminal::few;

/// The kubelet's maximum backoff between two pulls of an image.
pub(crate) const BACKOFF: Duration = Duration::from_mins(5);
/// Maximum number of pods that are listed per reason.
const NAMED: usize = 5;

/// The registries that were added, and their scope.
pub(crate) struct Added {
    config: DockerConfig,
    /// `None`: for every pod.
    scope: Option<Scope>,
}

impl Added {
    pub(crate) fn new<'a>(keys: impl Iterator<Item = &'a str>, scope: Option<Scope>) -> Self {
        let none = Credential {
            username: Secret::new(""),
            password: Secret::new(""),
        };
        let entries = keys.map(|key| Entry::from_credential(key, &none));
        Self {
            config: DockerConfig::new(entries.collect()),
            scope,
        }
    }

    /// Whether one of the registries has the image, and the pods are in the scope.
    pub(crate) fn serves(&self, image: &str) -> bool {
        attempts(&[&self.config], image).is_ok_and(|tries| !tries.is_empty())
    }
}

/// A pod that waits for an image of these registries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    /// Why the pod must not be evicted; `None` if it may be.
    pub kept: Option<&'static str>,
}

impl Waiting {
    /// `None` if the pod does not wait for such an image.
    pub(crate) fn of(pod: &Pod, added: &Added) -> Option<Self> {
        let identity = PodIdentity {
            namespace: pod.namespace().unwrap_or_default(),
            service_account: pod
                .spec
                .as_ref()?
                .service_account_name
                .clone()
                .unwrap_or_default(),
        };
        let is_covered = added
            .scope
            .as_ref()
            .is_none_or(|scope| scope.covers(&identity));
        let waits = failing(pod, &[]).iter().any(|failing| {
            let can_pull = !matches!(
                failing.said(),
                Said::InvalidName | Said::NeverPulled | Said::Unsigned | Said::NotAccess
            );
            // Evicting the pod would end a debugging session in a running pod.
            failing.used != Use::Ephemeral && can_pull && added.serves(&failing.image)
        });
        (is_covered && waits).then(|| Self {
            namespace: identity.namespace,
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            resource_version: pod.resource_version().unwrap_or_default(),
            kept: kept(pod),
        })
    }

    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// How many pods wait, and how long at most. `registries`: as text.
pub(crate) fn summary(number: usize, registries: &str) -> String {
    let (pods, each) = match number {
        1 => ("1 pod waits".to_owned(), "its kubelet"),
        number => (format!("{number} pods wait"), "the kubelet of each"),
    };
    format!(
        "{pods} for an image of {registries}: {each} tries again by itself, after {} at the latest",
        Span(BACKOFF)
    )
}

/// The pods by reason, one line per reason.
pub(crate) fn untouched(left: &[(String, &'static str)]) -> Vec<String> {
    let mut reasons: Vec<&str> = left.iter().map(|(_, reason)| *reason).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let line = |reason: &&str| {
        let names: Vec<&str> = left
            .iter()
            .filter(|(_, of)| of == reason)
            .map(|(name, _)| name.as_str())
            .collect();
        format!("not deleted ({reason}): {}", few(&names, NAMED))
    };
    reasons.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_provider::Pattern;
    use serde_json::{Value, json};

    fn pod(image: &str, reason: &str, metadata: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "1"},
            "spec": {"serviceAccountName": "ci", "containers": [{"name": "c", "image": image}]},
            "status": {"containerStatuses": [{
                "name": "c", "image": image, "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason}},
            }]},
        });
        json_patch::merge(&mut pod["metadata"], metadata);
        serde_json::from_value(pod).expect("a pod")
    }

    fn owner(version: &str, kind: &str, controller: bool) -> Value {
        json!({"ownerReferences": [{
            "apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": controller,
        }]})
    }

    #[test]
    fn only_pods_that_a_controller_recreates_are_evicted() {
        let added = Added::new(["quay.io/org"].into_iter(), None);
        let unknown = Some("their controller may not recreate them");
        for (metadata, kept) in [
            (owner("apps/v1", "ReplicaSet", true), None),
            (owner("apps/v1", "StatefulSet", true), None),
            (owner("apps/v1", "DaemonSet", true), None),
            (owner("v1", "ReplicationController", true), None),
            (owner("apps.kruise.io/v1alpha1", "CloneSet", true), None),
            (owner("argoproj.io/v1alpha1", "Workflow", true), unknown),
            (owner("tekton.dev/v1", "TaskRun", true), unknown),
            (owner("x.example/v1", "ReplicaSet", true), unknown),
            (json!({}), Some("no controller would recreate them")),
            (
                owner("apps/v1", "ReplicaSet", false),
                Some("no controller would recreate them"),
            ),
            (
                owner("batch/v1", "Job", true),
                Some("their Job would count them as failed"),
            ),
            (
                json!({"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": owner("v1", "Node", true)["ownerReferences"]}),
                Some("static pods, which only their node can restart"),
            ),
            (
                json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
                Some("already being deleted"),
            ),
        ] {
            let found = Waiting::of(
                &pod("quay.io/org/a:1", "ImagePullBackOff", &metadata),
                &added,
            );
            assert_eq!(found.map(|found| found.kept), Some(kept), "{metadata}");
        }
    }

    #[test]
    fn only_pods_that_wait_for_the_added_registry_count() {
        let scope = |name: &str| Scope {
            namespaces: vec![Pattern::try_from(name.to_owned()).expect("a pattern")],
            service_accounts: Vec::new(),
        };
        for (image, reason, scope, expected) in [
            ("quay.io/org/a:1", "ImagePullBackOff", None, true),
            ("quay.io/org/a:1", "ErrImagePull", None, true),
            ("quay.io/org/a:1", "CrashLoopBackOff", None, false),
            ("quay.io/org/a:1", "ErrImageNeverPull", None, false),
            ("quay.io/other/a:1", "ImagePullBackOff", None, false),
            ("ghcr.io/org/a:1", "ImagePullBackOff", None, false),
            (
                "quay.io/org/a:1",
                "ImagePullBackOff",
                Some(scope("a")),
                true,
            ),
            (
                "quay.io/org/a:1",
                "ImagePullBackOff",
                Some(scope("b")),
                false,
            ),
        ] {
            let added = Added::new(["quay.io/org"].into_iter(), scope);
            let found = Waiting::of(&pod(image, reason, &json!({})), &added);
            assert_eq!(found.is_some(), expected, "{image} {reason}");
        }
    }

    #[test]
    fn a_pod_that_runs_is_not_evicted_for_the_image_that_debugs_it() {
        let added = Added::new(["quay.io"].into_iter(), None);
        let mut pod = pod("quay.io/a:1", "ImagePullBackOff", &json!({}));
        assert!(Waiting::of(&pod, &added).is_some());
        let status = pod.status.as_mut().expect("a status");
        status.ephemeral_container_statuses = status.container_statuses.take();
        let debugs = json!([{"name": "c", "image": "quay.io/a:1"}]);
        let spec = pod.spec.as_mut().expect("a spec");
        spec.containers.clear();
        spec.ephemeral_containers = serde_json::from_value(debugs).expect("a container");
        assert!(Waiting::of(&pod, &added).is_none());
    }

    #[test]
    fn what_is_left_alone_is_listed_by_reason() {
        assert_eq!(
            summary(2, "`quay.io`"),
            "2 pods wait for an image of `quay.io`: the kubelet of each tries again by itself, after 5 min at the latest"
        );
        let mut left: Vec<(String, &str)> = (0..6).map(|at| (format!("a/p{at}"), "one")).collect();
        left.push(("b/q".to_owned(), "two"));
        assert_eq!(
            untouched(&left),
            [
                "not deleted (one): a/p0, a/p1, a/p2, a/p3, a/p4 and 1 more",
                "not deleted (two): b/q"
            ]
        );
    }
}
