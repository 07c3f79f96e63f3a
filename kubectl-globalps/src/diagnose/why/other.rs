//! Other causes that prevent a pod from running although its images are available. Pure.

use k8s_openapi::api::core::v1::{Event, Pod};

use super::cause::{Cause, Code};
use super::facts::PodSeen;
use super::failing::{own, waits_for_sandbox};
use crate::diagnose::owner::containers;

/// Why a pod doesn't run although its images are available; `None` if nothing is wrong. `events`: of pods of this name.
pub(crate) fn not_an_image(pod: &Pod, events: &[Event]) -> Option<Cause> {
    let seen = PodSeen::of(pod);
    let PodSeen {
        namespace, name, ..
    } = &seen;
    let status = pod.status.clone().unwrap_or_default();
    let cause = |message: String, command: String| Cause {
        code: Code::NotAnImage,
        registry: String::new(),
        message,
        command,
        hint: String::new(),
    };
    let describe = format!("kubectl -n {namespace} describe pod {name}");
    for container in containers(&status) {
        let waiting = container.state.as_ref().and_then(|it| it.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        let of = &container.name;
        match reason {
            None | Some("PodInitializing" | "ContainerCreating") => {}
            Some(reason @ "CrashLoopBackOff") => {
                return Some(cause(
                    format!("container `{of}` has its image, and its program fails: {reason}"),
                    format!("kubectl -n {namespace} logs {name} -c {of} --previous"),
                ));
            }
            Some(reason) => {
                let message = waiting.and_then(|waiting| waiting.message.as_deref());
                let colon = if message.is_some() { ": " } else { "" };
                let message = message.unwrap_or_default();
                let message = format!("container `{of}` waits: {reason}{colon}{message}");
                return Some(cause(message, describe));
            }
        }
    }
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled = conditions.find(|it| it.type_ == "PodScheduled" && it.status == "False");
    if let Some(condition) = unscheduled {
        let why = condition.message.clone().unwrap_or_default();
        return Some(cause(format!("the pod has no node: {why}"), describe));
    }
    if status.phase.as_deref() == Some("Failed") {
        let why = status.message.clone().or(status.reason).unwrap_or_default();
        return Some(cause(format!("the pod failed: {why}"), describe));
    }
    // Before the first container starts, no container status shows errors of volumes, network or sandbox.
    if waits_for_sandbox(&status) {
        let own = own(pod, events);
        let newest = own
            .last()
            .filter(|it| it.type_.as_deref() == Some("Warning"))?;
        let reason = newest.reason.as_deref().unwrap_or_default();
        let message = newest.message.as_deref().unwrap_or_default();
        return Some(cause(
            format!("the pod has not started: {reason}: {message}"),
            describe,
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_with_its_images_may_have_another_problem() {
        for (status, expected) in [
            (json!({"phase": "Running"}), None),
            (
                json!({"containerStatuses": [{
                    "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                }]}),
                Some("kubectl -n a logs p -c c --previous"),
            ),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]}),
                Some("kubectl -n a describe pod p"),
            ),
        ] {
            let pod = json!({"metadata": {"namespace": "a", "name": "p"}, "status": status});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let found = not_an_image(&pod, &[]);
            assert_eq!(found.as_ref().map(|cause| cause.command.as_str()), expected);
        }
    }
}
