//! What the controller may write of an agent's objects: what the builders make of some `GlobalPullSecret`, and what the API server
//! adds to it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::allowed::{Allowed, cel_list};
use super::bounds::{agent_metadata, object};
use super::daemon_set::{allowed_args, container, daemon_set as built, volumes};
use super::rbac::role_binding as built_binding;
use super::shape::{Shape, Values, cel};
use super::syncer::rules;
use super::{Agent, value};
use crate::api::GlobalPullSecretSpec;
use crate::names::ACCOUNT_ANNOTATION;

/// The name of the object, which is also that of its account, Role and pods.
const NAME: &str = "object.metadata.name";

/// As the API server completes it.
fn completed(namespace: &str) -> Value {
    let spec = GlobalPullSecretSpec::default();
    let mut set = value(built(Agent::Syncer, namespace, "", &spec));
    for (path, defaults) in [
        ("/spec", json!({"revisionHistoryLimit": 10})),
        ("/spec/updateStrategy/rollingUpdate", json!({"maxSurge": 0})),
        (
            "/spec/template/spec",
            json!({
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                "securityContext": {},
            }),
        ),
        (
            "/spec/template/spec/containers/0",
            json!({"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}),
        ),
        (
            "/spec/template/spec/containers/0/readinessProbe",
            json!({"successThreshold": 1, "failureThreshold": 3}),
        ),
    ] {
        let fields = set.pointer_mut(path).and_then(Value::as_object_mut);
        if let (Some(fields), Value::Object(defaults)) = (fields, defaults) {
            fields.extend(defaults);
        }
    }
    set
}

/// Every item of these lists that an agent can get from some spec, as the API server completes it.
struct AllowedItems {
    env: Vec<Value>,
    volumes: Vec<Value>,
    mounts: Vec<Value>,
}

fn allowed_items(allowed: &Allowed) -> AllowedItems {
    let mut items = AllowedItems {
        env: Vec::new(),
        volumes: Vec::new(),
        mounts: Vec::new(),
    };
    let files = allowed.config_files().iter().map(|file| (Some(file), None));
    let providers = allowed.providers().iter().map(|paths| (None, Some(paths)));
    for (config_file, provider) in files.chain(providers) {
        let mut spec = GlobalPullSecretSpec::default();
        if let Some(config_file) = config_file {
            spec.kubelet.config_file.clone_from(config_file);
        }
        spec.kubelet.credential_provider = provider.cloned();
        let container = container(Agent::Syncer, "", "", &spec);
        let mut env = container.env.map(value).unwrap_or_default();
        for variable in env.as_array_mut().into_iter().flatten() {
            if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
                field["apiVersion"] = "v1".into();
            }
        }
        let mut volumes = value(volumes(&spec));
        for volume in volumes.as_array_mut().into_iter().flatten() {
            if let Some(path) = volume.get_mut("hostPath") {
                path["type"] = "".into();
            }
        }
        let mounts = container.volume_mounts.map(value).unwrap_or_default();
        for (list, found) in [
            (&mut items.env, env),
            (&mut items.volumes, volumes),
            (&mut items.mounts, mounts),
        ] {
            list.extend(found.as_array().into_iter().flatten().cloned());
        }
    }
    items
}

pub(super) fn daemon_set(namespace: &str, allowed: &Allowed) -> Shape {
    let mut set = completed(namespace);
    let container = set["spec"]["template"]["spec"]["containers"][0].take();
    let named = format!("[{NAME}]");
    let labels = |shape: Shape| shape.with("name", Values::OneOf(named.clone()));
    let annotations = Shape::default().with(ACCOUNT_ANNOTATION, Values::Any);
    let template = Shape::default()
        .with("creationTimestamp", Values::Any)
        .with("labels", Values::Fields(labels(Shape::default())))
        .with("annotations", Values::Fields(annotations));
    let items = allowed_items(allowed);
    let one_of = |values: &[Value]| {
        let values: BTreeSet<String> = values.iter().map(cel).collect();
        let values: Vec<String> = values.into_iter().collect();
        Values::Items(format!("i in [{}]", values.join(", ")))
    };
    let container = Shape::of(&container)
        .with("name", Values::Any)
        .with("image", Values::Any)
        .with(
            "imagePullPolicy",
            Values::OneOf(cel_list(&["Always", "IfNotPresent"])),
        )
        .with(
            "args",
            Values::Items(format!(
                "i in {}",
                cel_list(&allowed_args(namespace, allowed))
            )),
        )
        .with("env", one_of(&items.env))
        .with("volumeMounts", one_of(&items.mounts));
    let nodes = Shape::default().with("nodeSelectorTerms", Values::Any);
    let affinity = Shape::default().with(
        "nodeAffinity",
        Values::Fields(Shape::default().with(
            "requiredDuringSchedulingIgnoredDuringExecution",
            Values::Fields(nodes),
        )),
    );
    let pod = |name: &'static str| ["spec", "template", "spec", name];
    Shape::of(&set)
        .with("apiVersion", Values::Any)
        .with("kind", Values::Any)
        .with("metadata", Values::Fields(agent_metadata()))
        .at(
            &[
                "metadata",
                "annotations",
                "deprecated.daemonset.template.generation",
            ],
            Values::Any,
        )
        .with("status", Values::Any)
        .at(
            &["spec", "selector"],
            Values::OneOf(format!("[{{'matchLabels': {{'name': {NAME}}}}}]")),
        )
        .at(&["spec", "template", "metadata"], Values::Fields(template))
        .at(&pod("serviceAccountName"), Values::OneOf(named.clone()))
        .at(&pod("serviceAccount"), Values::OneOf(named.clone()))
        .at(&pod("imagePullSecrets"), Values::Any)
        .at(&pod("hostNetwork"), Values::AbsentOr("[true]".to_owned()))
        .at(&pod("affinity"), Values::Fields(affinity))
        .at(&pod("containers"), Values::Item("syncer", container))
        .at(&pod("volumes"), one_of(&items.volumes))
}

/// RBAC itself prevents granting permissions that one doesn't hold. The controller holds more than an agent needs, though, and an
/// agent's token is available to its node.
pub(super) fn role() -> Shape {
    let of = |agent: Agent| {
        let rules: Vec<Value> = rules(agent).into_iter().map(value).collect();
        let name = agent.name();
        format!("({NAME} == '{name}' && i in {})", cel(&rules.into()))
    };
    let allowed = Agent::ALL.map(of).join(" || ");
    object(agent_metadata()).with("rules", Values::Items(allowed))
}

pub(super) fn role_binding(namespace: &str) -> Shape {
    let agent = Agent::Syncer.name();
    let binding = value(built_binding(agent, namespace, (agent, namespace)));
    // Each refers to the Role and to the account of its own name.
    let renamed = |value: &Value| cel(value).replace(&json!(agent).to_string(), NAME);
    object(agent_metadata())
        .with(
            "roleRef",
            Values::OneOf(format!("[{}]", renamed(&binding["roleRef"]))),
        )
        .with(
            "subjects",
            Values::Items(format!("i in {}", renamed(&binding["subjects"]))),
        )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::daemon_set::DBUS_DIR;
    use super::super::syncer_objects;
    use super::*;
    use crate::api::{Kubelet, Restart};

    /// Tests on a real API server cover the rest.
    #[test]
    fn every_argument_and_directory_of_the_syncer_is_allowed() {
        let allowed = Allowed::with(
            &["own.service".to_owned()],
            &["/etc/k/auth.json".to_owned()],
            &[],
        );
        let args = allowed_args("kube-system", &allowed);
        for unit in allowed.units() {
            for config_file in allowed.config_files() {
                for restart in [Restart::Always, Restart::Never] {
                    let provider = allowed.providers().get(config_file.len() % 7).cloned();
                    let spec = GlobalPullSecretSpec {
                        node_selector: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
                        kubelet: Kubelet {
                            unit: unit.clone(),
                            config_file: config_file.clone(),
                            restart,
                            credential_provider: provider,
                            ..Kubelet::default()
                        },
                        ..GlobalPullSecretSpec::default()
                    };
                    let objects = syncer_objects("kube-system", "i", &spec);
                    for agent in [objects.syncer, objects.restorer] {
                        let set = value(agent.daemon_set);
                        let pod = &set["spec"]["template"]["spec"];
                        let found = pod["containers"][0]["args"].as_array();
                        for arg in found.into_iter().flatten() {
                            let is_allowed = args.iter().any(|allowed| arg == allowed);
                            assert!(is_allowed, "{arg}");
                        }
                        let volumes = pod["volumes"].to_string();
                        assert_eq!(
                            volumes.contains(DBUS_DIR),
                            restart == Restart::Always,
                            "without a restart there is no bus: {volumes}"
                        );
                    }
                }
            }
        }
        assert!(
            !args
                .iter()
                .any(|arg| arg == "--unit=systemd-poweroff.service")
        );
    }
}
