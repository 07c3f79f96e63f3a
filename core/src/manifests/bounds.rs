//! Limits of the controller's account. RBAC lets it write a `DaemonSet` in `kube-system`, which means any image, any
//! `ServiceAccount` and any directory of every node. These policies restrict it to the objects that it needs to write.
//!
//! They also bind the agents' accounts, because the controller writes their Roles. The controller has no right on the policies.

use k8s_openapi::api::admissionregistration::v1::Validation;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use super::allowed::{Allowed, cel_list};
use super::daemon_set::{DBUS_DIR, allowed_args, allowed_environment, directory, ready_command};
use super::policy::{Policy, binding, only_named, validation, writes};
use super::syncer::rules;
use super::{Agent, value};
use crate::names::{CONTROLLER, CONTROLLER_NAMESPACE, SECRET_TYPE};

const RBAC: &str = "rbac.authorization.k8s.io";

/// `namespace`: the agents' namespace, `image`: their image. `delivered`: names of the Secrets in other namespaces.
pub(super) fn objects(
    namespace: &str,
    image: &str,
    allowed: &Allowed,
    delivered: &[String],
) -> Vec<Value> {
    let mut accounts = vec![(CONTROLLER, CONTROLLER_NAMESPACE.to_owned())];
    accounts.extend(Agent::ALL.map(|agent| (agent.name(), namespace.to_owned())));
    let policies = [
        (
            "globalps-daemonsets",
            daemon_sets(namespace, image, allowed),
        ),
        ("globalps-roles", roles()),
        ("globalps-rolebindings", role_bindings(namespace)),
        ("globalps-serviceaccounts", service_accounts(delivered)),
        ("globalps-secrets", secrets()),
    ];
    let mut objects = Vec::new();
    for (name, policy) in policies {
        let policy = Policy {
            accounts: accounts.clone(),
            ..policy
        };
        objects.push(value(policy.build(name)));
        objects.push(value(binding(name, None)));
    }
    objects
}

/// The controller may keep an unchanged pod template that someone else wrote, such as the previous release's while its nodes are
/// restored.
fn daemon_sets(namespace: &str, image: &str, allowed: &Allowed) -> Policy {
    let args = cel_list(&allowed_args(namespace, allowed));
    let environment = cel_list(&allowed_environment(allowed));
    let directories = cel_list(&directories(allowed));
    let ready = cel_list(&ready_command());
    let rules = [
        (
            "the pods must run as the ServiceAccount named like the DaemonSet",
            "has(variables.pod.serviceAccountName) && variables.pod.serviceAccountName == object.metadata.name"
                .to_owned(),
        ),
        (
            "the pods must have exactly one container",
            "variables.pod.containers.size() == 1 && \
             (!has(variables.pod.initContainers) || variables.pod.initContainers.size() == 0) && \
             (!has(variables.pod.ephemeralContainers) || variables.pod.ephemeralContainers.size() == 0)"
                .to_owned(),
        ),
        (
            "the image must be the one that globalps was installed with; another one needs `kubectl globalps install`",
            "variables.pod.containers.all(c, has(c.image) && c.image == variables.image)".to_owned(),
        ),
        (
            "the container must run the image's own program, `run`, with arguments that `kubectl globalps install` allows",
            format!(
                "variables.pod.containers.all(c, !has(c.command) && has(c.args) && c.args.size() > 0 && \
                 c.args[0] == 'run' && c.args.all(a, a in {args}))"
            ),
        ),
        (
            "lifecycle hooks and probes other than globalps' readiness probe are not allowed",
            format!(
                "variables.pod.containers.all(c, {} && (!has(c.readinessProbe) || \
                 (has(c.readinessProbe.exec) && c.readinessProbe.exec.command == {ready})))",
                absent("c", &["lifecycle", "livenessProbe", "startupProbe"]),
            ),
        ),
        (
            "the environment must be what `kubectl globalps install` allows, without values from Secrets or ConfigMaps",
            format!(
                "variables.pod.containers.all(c, !has(c.envFrom) && (!has(c.env) || c.env.all(e, has(e.valueFrom) ? \
                 has(e.valueFrom.fieldRef) : (e.name + '=' + (has(e.value) ? e.value : '')) in {environment})))"
            ),
        ),
        (
            "privileged containers, added capabilities, an unmasked /proc and devices are not allowed",
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
            "the pods must not share the node's PID or IPC namespace",
            "(!has(variables.pod.hostPID) || !variables.pod.hostPID) && \
             (!has(variables.pod.hostIPC) || !variables.pod.hostIPC)"
                .to_owned(),
        ),
        (
            "the only allowed volumes are the kubelet's directory, its credential providers' directories, /run/dbus and emptyDir",
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
            format!("{field} of the pods other than globalps' own are not allowed, since other programs may act on them"),
            only_managed_keys_change(&format!("spec.template.metadata.{field}"), "k == 'name'"),
        ));
    }
    Policy {
        rules: vec![only_named(
            writes("apps", "v1", ["daemonsets"]),
            &Agent::ALL.map(Agent::name),
        )],
        variables: vec![
            ("pod", "object.spec.template.spec".to_owned()),
            ("image", json!(image).to_string()),
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

/// The object has none of these fields.
fn absent(object: &str, fields: &[&str]) -> String {
    let absent = fields.iter().map(|field| format!("!has({object}.{field})"));
    absent.collect::<Vec<_>>().join(" && ")
}

/// Every node directory that an agent may mount.
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

/// For a map of strings: each key is managed by globalps, or existed before with the same value. `also`: another kind of managed
/// key.
fn only_managed_keys_change(path: &str, also: &str) -> String {
    format!(
        "!has(object.{path}) || object.{path}.all(k, k.startsWith('globalps.io/') || {also} || \
         (oldObject != null && has(oldObject.{path}) && k in oldObject.{path} && \
         oldObject.{path}[k] == object.{path}[k]))"
    )
}

/// RBAC itself prevents granting permissions that one doesn't hold. The controller holds more than an agent needs, though, and an
/// agent's token is available to its node.
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
            "a Role must not allow more than its syncer needs",
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
                "a RoleBinding must refer to the Role of the same name",
                "object.roleRef.kind == 'Role' && object.roleRef.name == object.metadata.name",
            ),
            validation(
                "a RoleBinding must bind the syncer's ServiceAccount of the same name",
                format!(
                    "!has(object.subjects) || object.subjects.all(s, s.kind == 'ServiceAccount' && \
                     s.name == object.metadata.name && has(s.namespace) && s.namespace == '{namespace}')"
                ),
            ),
        ],
        ..Policy::default()
    }
}

/// Whether rule `r` allows no more than this one.
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
        // A rule without names covers all objects.
        parts.push("has(r.resourceNames) && r.resourceNames.size() > 0".to_owned());
        parts.push(within("resourceNames", &rule.resource_names));
    }
    format!("({})", parts.join(" && "))
}

/// Clouds map a service account to a cloud identity by its annotations and labels.
fn service_accounts(delivered: &[String]) -> Policy {
    let names = cel_list(delivered);
    let list =
        |object: &str| format!("(has({object}.imagePullSecrets) ? {object}.imagePullSecrets : [])");
    // Whether `one` has only references of `other`, apart from the controller's own.
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
                "a ServiceAccount must not list Secrets",
                "!has(object.secrets) || (oldObject != null && has(oldObject.secrets) && \
                 object.secrets == oldObject.secrets)",
            ),
            validation(
                format!(
                    "only globalps' own imagePullSecrets may be added to or removed from a ServiceAccount: {names}"
                ),
                format!(
                    "oldObject == null ? !has(object.imagePullSecrets) : ({} && {})",
                    within("object", "oldObject"),
                    within("oldObject", "object")
                ),
            ),
            validation(
                "annotations of a ServiceAccount other than globalps' own are not allowed, since other programs may act on them",
                only_managed_keys_change("metadata.annotations", "false"),
            ),
            validation(
                "labels of a ServiceAccount other than globalps' own are not allowed, since other programs may act on them",
                only_managed_keys_change("metadata.labels", "k.startsWith('app.kubernetes.io/')"),
            ),
        ],
        ..Policy::default()
    }
}

/// Kubernetes fills a Secret of type `kubernetes.io/service-account-token` with the token of any account it names.
fn secrets() -> Policy {
    Policy {
        rules: vec![writes("", "v1", ["secrets"])],
        validations: vec![validation(
            format!("a Secret must be of type {SECRET_TYPE}"),
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
