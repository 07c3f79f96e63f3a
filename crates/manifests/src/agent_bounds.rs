//! What the controller may write to an agent's objects: the builders' output for any `GlobalPullSecret`, and the fields
//! that the API server adds.

use std::collections::BTreeSet;

use globalps_core::api::GlobalPullSecretSpec;
use globalps_core::names::ACCOUNT_ANNOTATION;
use serde_json::{Value, json};

use super::allowed::{Allowed, cel_list};
use super::bounds::{agent_metadata, object};
use super::daemon_set::{allowed_args, container, daemon_set as built, volumes};
use super::rbac::role_binding as built_binding;
use super::shape::{Shape, Values, cel};
use super::syncer::rules;
use super::{Agent, value};

/// The name of the object, which is also that of its account, Role and pods.
const NAME: &str = "object.metadata.name";

/// The object as the API server completes it.
fn completed(namespace: &str) -> Value {
    let spec = GlobalPullSecretSpec::default();
    let mut set = built(Agent::Syncer, namespace, "", &spec);
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

/// Expressions for the items `i` of these lists that an agent can get from some spec, as the API server completes them.
struct AllowedItems {
    env: String,
    volumes: String,
    mounts: String,
}

fn allowed_items(allowed: &Allowed) -> AllowedItems {
    let files = allowed.config_files().iter().map(|file| (Some(file), None));
    let providers = allowed.providers().iter().map(|paths| (None, Some(paths)));
    let (mut variables, mut paths) = (BTreeSet::new(), BTreeSet::new());
    // The ones that no spec changes.
    let (mut others, mut mounts) = (BTreeSet::new(), BTreeSet::new());
    let cases = files.chain(providers).collect::<Vec<_>>();
    let agents = [Agent::Syncer, Agent::Observer].into_iter();
    let cases = agents.flat_map(|agent| cases.iter().map(move |case| (agent, *case)));
    for (agent, (config_file, provider)) in cases {
        let mut spec = GlobalPullSecretSpec::default();
        if let Some(config_file) = config_file {
            spec.kubelet.config_file.clone_from(config_file);
        }
        spec.kubelet.credential_provider = provider.cloned();
        let container = container(agent, "", "", &spec);
        for mut variable in container.env.into_iter().flatten() {
            match &mut variable.value_from {
                None => {
                    let text = variable.value.unwrap_or_default();
                    variables.insert(format!("{}={text}", variable.name));
                }
                Some(source) => {
                    if let Some(field) = &mut source.field_ref {
                        field.api_version = Some("v1".to_owned());
                    }
                    others.insert(cel(&value(variable)));
                }
            }
        }
        for volume in volumes(agent, &spec) {
            match &volume.host_path {
                Some(source) => paths.insert(format!("{}:{}", volume.name, source.path)),
                None => others.insert(cel(&value(volume))),
            };
        }
        let of_container = container.volume_mounts.into_iter().flatten();
        mounts.extend(of_container.map(|mount| cel(&value(mount))));
    }
    let list = |texts: BTreeSet<String>| cel_list(&texts.into_iter().collect::<Vec<_>>());
    let joined = |items: BTreeSet<String>| items.into_iter().collect::<Vec<_>>().join(", ");
    let others = joined(others);
    AllowedItems {
        env: format!(
            "i in [{others}] || (i.all(k, k in ['name', 'value']) && \
             (i.name + '=' + i[?'value'].orValue('')) in {})",
            list(variables)
        ),
        volumes: format!(
            "i in [{others}] || (i.all(k, k in ['name', 'hostPath']) && 'hostPath' in i && \
             i.hostPath.all(k, k == 'path' || (k == 'type' && i.hostPath.type == '')) && \
             (i.name + ':' + i.hostPath.path) in {})",
            list(paths)
        ),
        mounts: format!("i in [{}]", joined(mounts)),
    }
}

pub(super) fn daemon_set(namespace: &str, allowed: &Allowed) -> Shape {
    let mut set = completed(namespace);
    let container = set["spec"]["template"]["spec"]["containers"][0].take();
    let named = format!("[{NAME}]");
    let labels = Shape::default().with("name", Values::OneOf(named.clone()));
    let annotations = Shape::default().with(ACCOUNT_ANNOTATION, Values::Any);
    let template = Shape::default()
        .with("creationTimestamp", Values::Any)
        .with("labels", Values::Fields(labels))
        .with("annotations", Values::Fields(annotations));
    let items = allowed_items(allowed);
    let resources = ["requests", "limits"]
        .into_iter()
        .fold(Shape::default(), |shape, name| {
            shape.with(name, Values::Any)
        });
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
        .with("env", Values::Items(items.env))
        .with("resources", Values::Fields(resources))
        .with("volumeMounts", Values::Items(items.mounts));
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
        .at(&pod("tolerations"), Values::Any)
        .at(&pod("priorityClassName"), Values::Any)
        .at(&pod("containers"), Values::Item("syncer", container))
        .at(&pod("volumes"), Values::Items(items.volumes))
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

    use globalps_core::api::{Kubelet, Restart};
    use globalps_core::names::OBSERVER;

    use super::super::daemon_set::DBUS_DIR;
    use super::super::syncer_objects;
    use super::*;

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
                    for agent in [objects.syncer, objects.restorer, objects.observer] {
                        let set = agent.daemon_set;
                        let pod = &set["spec"]["template"]["spec"];
                        let found = pod["containers"][0]["args"].as_array();
                        for arg in found.into_iter().flatten() {
                            let is_allowed = args.iter().any(|allowed| arg == allowed);
                            assert!(is_allowed, "{arg}");
                        }
                        let volumes = pod["volumes"].to_string();
                        assert_eq!(
                            volumes.contains(DBUS_DIR),
                            restart == Restart::Always && set["metadata"]["name"] != OBSERVER,
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
