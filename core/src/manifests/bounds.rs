//! Admission policies that limit the controller's account.
//!
//! RBAC lets the controller write a `DaemonSet` in `kube-system`, with any image, any `ServiceAccount` and any directory of
//! every node. The policies allow only the objects that the controller needs. They also apply to the agents' accounts,
//! because the controller writes the agents' Roles. The controller can change neither the policies nor their parameter, its
//! own Deployment.

use k8s_openapi::api::admissionregistration::v1::Validation;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::allowed::{Allowed, cel_list};
use super::daemon_set::{DBUS_DIR, allowed_args, allowed_environment, directory, ready_command};
use super::policy::{Policy, binding, only_named, param, validation, writes};
use super::syncer::rules;
use super::{Agent, value};
use crate::names::{CONTROLLER, CONTROLLER_NAMESPACE, SECRET_TYPE};

const RBAC: &str = "rbac.authorization.k8s.io";

/// `namespace`: the agents' namespace. `delivered`: names of the Secrets in other namespaces.
pub(super) fn objects(namespace: &str, allowed: &Allowed, delivered: &[String]) -> Vec<Value> {
    let mut accounts = vec![(CONTROLLER, CONTROLLER_NAMESPACE.to_owned())];
    accounts.extend(Agent::ALL.map(|agent| (agent.name(), namespace.to_owned())));
    let policies = [
        ("globalps-daemonsets", daemon_sets(namespace, allowed)),
        ("globalps-roles", roles()),
        ("globalps-rolebindings", role_bindings(namespace)),
        ("globalps-serviceaccounts", service_accounts(delivered)),
        ("globalps-secrets", secrets()),
    ];
    let mut objects = Vec::new();
    for (name, policy) in policies {
        let parameter = policy.params.map(|_| param(CONTROLLER));
        let policy = Policy {
            accounts: accounts.clone(),
            ..policy
        };
        objects.push(value(policy.build(name)));
        objects.push(value(binding(name, parameter)));
    }
    objects
}

/// An unchanged pod template always passes, so the controller can still update the rest of a `DaemonSet` that another client
/// changed, or that an earlier release wrote while its nodes are restored. The allowed image comes from the controller's
/// Deployment, so an upgrade or downgrade changes no policy.
fn daemon_sets(namespace: &str, allowed: &Allowed) -> Policy {
    let args = cel_list(&allowed_args(namespace, allowed));
    let environment = cel_list(&allowed_environment(allowed));
    let directories = cel_list(&directories(allowed));
    let ready = cel_list(&ready_command());
    let rules = [
        (
            "the pods run as the ServiceAccount of the DaemonSet's name",
            "has(variables.pod.serviceAccountName) && variables.pod.serviceAccountName == object.metadata.name"
                .to_owned(),
        ),
        (
            "the pods have exactly one container",
            "variables.pod.containers.size() == 1 && \
             (!has(variables.pod.initContainers) || variables.pod.initContainers.size() == 0) && \
             (!has(variables.pod.ephemeralContainers) || variables.pod.ephemeralContainers.size() == 0)"
                .to_owned(),
        ),
        (
            "the image is the one that Deployment `globalps-controller` names with --syncer-image=IMAGE",
            "variables.pod.containers.all(c, has(c.image) && params.spec.template.spec.containers.exists(p, \
             has(p.args) && ('--syncer-image=' + c.image) in p.args))"
                .to_owned(),
        ),
        (
            "the container runs the image's own program, `run`, with arguments that `kubectl globalps install` allows",
            format!(
                "variables.pod.containers.all(c, !has(c.command) && has(c.args) && c.args.size() > 0 && \
                 c.args[0] == 'run' && c.args.all(a, a in {args}))"
            ),
        ),
        (
            "the container runs no other program: no lifecycle hooks, and no probe but the readiness probe",
            format!(
                "variables.pod.containers.all(c, {} && (!has(c.readinessProbe) || \
                 (has(c.readinessProbe.exec) && c.readinessProbe.exec.command == {ready})))",
                absent("c", &["lifecycle", "livenessProbe", "startupProbe"]),
            ),
        ),
        (
            "the environment is what `kubectl globalps install` allows; nothing comes from Secrets or ConfigMaps",
            format!(
                "variables.pod.containers.all(c, !has(c.envFrom) && (!has(c.env) || c.env.all(e, has(e.valueFrom) ? \
                 has(e.valueFrom.fieldRef) : (e.name + '=' + (has(e.value) ? e.value : '')) in {environment})))"
            ),
        ),
        (
            "no privileged container, no added capabilities, no unmasked /proc, no devices",
            format!(
                "variables.pod.containers.all(c, {} && (!has(c.securityContext) || \
                 ((!has(c.securityContext.privileged) || !c.securityContext.privileged) && \
                 (!has(c.securityContext.capabilities) || !has(c.securityContext.capabilities.add)) && \
                 (!has(c.securityContext.procMount) || c.securityContext.procMount == 'Default')))) && {}",
                absent("c", &["volumeDevices"]),
                absent("variables.pod", &["resourceClaims"]),
            ),
        ),
        (
            "the pods share no process or IPC namespace with the node",
            "(!has(variables.pod.hostPID) || !variables.pod.hostPID) && \
             (!has(variables.pod.hostIPC) || !variables.pod.hostIPC)"
                .to_owned(),
        ),
        (
            "the volumes are the directories of the kubelet and of its credential providers, /run/dbus and emptyDirs",
            format!(
                "!has(variables.pod.volumes) || variables.pod.volumes.all(v, has(v.emptyDir) || \
                 (has(v.hostPath) && v.hostPath.path in {directories}))"
            ),
        ),
    ];
    let mut validations: Vec<Validation> = rules
        .into_iter()
        .map(|(message, rule)| validation(message, format!("variables.isUnchanged || ({rule})")))
        .collect();
    for field in ["labels", "annotations"] {
        validations.push(validation(
            format!("the pods have no {field} but globalps' own, which other programs may act on"),
            only_ours_are_new(&format!("spec.template.metadata.{field}"), "k == 'name'"),
        ));
    }
    Policy {
        params: Some(("apps/v1", "Deployment")),
        rules: vec![only_named(
            writes("apps", "v1", ["daemonsets"]),
            &Agent::ALL.map(Agent::name),
        )],
        variables: vec![
            ("pod", "object.spec.template.spec".to_owned()),
            (
                "isUnchanged",
                "oldObject != null && object.spec.template.spec == oldObject.spec.template.spec"
                    .to_owned(),
            ),
        ],
        validations,
        ..Policy::default()
    }
}

/// CEL: the object has none of the fields.
fn absent(object: &str, fields: &[&str]) -> String {
    let absent = fields.iter().map(|field| format!("!has({object}.{field})"));
    absent.collect::<Vec<_>>().join(" && ")
}

/// Every directory of a node that an agent may mount.
fn directories(allowed: &Allowed) -> Vec<&str> {
    let mut directories: Vec<&str> = vec![DBUS_DIR];
    directories.extend(allowed.config_files().iter().map(|file| directory(file)));
    for provider in allowed.providers() {
        directories.extend([provider.config_dir(), &provider.bin_dir]);
    }
    directories.sort_unstable();
    directories.dedup();
    directories
}

/// CEL: each key of this map of strings belongs to globalps, or existed before with the same value. `also`: a condition for
/// further keys of globalps.
fn only_ours_are_new(path: &str, also: &str) -> String {
    format!(
        "!has(object.{path}) || object.{path}.all(k, k.startsWith('globalps.io/') || {also} || \
         (oldObject != null && has(oldObject.{path}) && k in oldObject.{path} && \
         oldObject.{path}[k] == object.{path}[k]))"
    )
}

/// RBAC prevents a client from granting permissions that it does not have. The controller has more than an agent needs, and a
/// compromised node would get these permissions with the agent's token.
fn roles() -> Policy {
    let roles = Agent::ALL.map(|agent| {
        let allowed: Vec<String> = rules(agent).iter().map(covers).collect();
        let name = agent.name();
        let allowed = allowed.join(" || ");
        format!("(object.metadata.name == '{name}' && object.rules.all(r, {allowed}))")
    });
    Policy {
        rules: vec![writes(RBAC, "v1", ["roles"])],
        validations: vec![validation(
            "a Role allows no more than its agent needs",
            format!("!has(object.rules) || {}", roles.join(" || ")),
        )],
        ..Policy::default()
    }
}

fn role_bindings(namespace: &str) -> Policy {
    Policy {
        rules: vec![writes(RBAC, "v1", ["rolebindings"])],
        validations: vec![
            validation(
                "a RoleBinding refers to the Role with its own name",
                "object.roleRef.kind == 'Role' && object.roleRef.name == object.metadata.name",
            ),
            validation(
                "a RoleBinding binds only the agent's ServiceAccount with its own name",
                format!(
                    "!has(object.subjects) || object.subjects.all(s, s.kind == 'ServiceAccount' && \
                     s.name == object.metadata.name && has(s.namespace) && s.namespace == '{namespace}')"
                ),
            ),
        ],
        ..Policy::default()
    }
}

/// CEL: rule `r` allows no more than this one.
fn covers(rule: &PolicyRule) -> String {
    let within = |field: &str, values: &Option<Vec<String>>| {
        let values = cel_list(values.as_deref().unwrap_or_default());
        format!("has(r.{field}) && r.{field}.all(x, x in {values})")
    };
    let mut parts = vec![
        within("apiGroups", &rule.api_groups),
        within("resources", &rule.resources),
        within("verbs", &Some(rule.verbs.clone())),
    ];
    if rule.resource_names.is_some() {
        // A rule without names applies to all objects.
        parts.push("has(r.resourceNames) && r.resourceNames.size() > 0".to_owned());
        parts.push(within("resourceNames", &rule.resource_names));
    }
    format!("({})", parts.join(" && "))
}

/// Cloud providers give pods a cloud identity by annotations and labels of their `ServiceAccount`.
fn service_accounts(delivered: &[String]) -> Policy {
    let names = cel_list(delivered);
    let list =
        |object: &str| format!("(has({object}.imagePullSecrets) ? {object}.imagePullSecrets : [])");
    // Every reference of the one, except the controller's own, is in the other.
    let within = |one: &str, other: &str| {
        format!(
            "{}.all(s, (has(s.name) && s.name in {names}) || s in {})",
            list(one),
            list(other)
        )
    };
    Policy {
        rules: vec![writes("", "v1", ["serviceaccounts"])],
        validations: vec![
            validation(
                "the `secrets` of a ServiceAccount don't change",
                "!has(object.secrets) || (oldObject != null && has(oldObject.secrets) && \
                 object.secrets == oldObject.secrets)",
            ),
            validation(
                format!(
                    "the imagePullSecrets of a ServiceAccount don't change, except globalps' own: {names}"
                ),
                format!(
                    "oldObject == null ? !has(object.imagePullSecrets) : ({} && {})",
                    within("object", "oldObject"),
                    within("oldObject", "object")
                ),
            ),
            validation(
                "a ServiceAccount has no annotations but globalps' own, which other programs may act on",
                only_ours_are_new("metadata.annotations", "false"),
            ),
            validation(
                "a ServiceAccount has no labels but globalps' own, which other programs may act on",
                only_ours_are_new("metadata.labels", "k.startsWith('app.kubernetes.io/')"),
            ),
        ],
        ..Policy::default()
    }
}

/// Kubernetes would fill a Secret of type `kubernetes.io/service-account-token` with a token of any account.
fn secrets() -> Policy {
    Policy {
        rules: vec![writes("", "v1", ["secrets"])],
        validations: vec![validation(
            format!("a Secret is of type {SECRET_TYPE}"),
            format!("has(object.type) && object.type == '{SECRET_TYPE}'"),
        )],
        ..Policy::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::syncer_objects;
    use super::*;
    use crate::api::{GlobalPullSecretSpec, Kubelet, Restart};

    /// `tests/tests/policies.rs` tests the expressions on a real API server.
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
