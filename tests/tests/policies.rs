//! What an attacker can't do with a controller's account: tries every abuse on a real API server, with the token of a
//! controller's pod. Each attempt is rejected with a message that names the rule. The real controller's writes succeed.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::cluster;
use common::unrun::{SYSTEM, install, names_leader, pods};
use globalps_core::api::{DeliveryType, GlobalPullSecretSpec, Kubelet, ProviderPaths, Restart};
use globalps_manifests::syncer_objects;
use globalps_testkit::account::Account;
use globalps_testkit::product::{NAMESPACE, pull_secret};
use globalps_testkit::{Cluster, until, wait};
use serde_json::{Value, json};

const SYNCER: &str = "global-pull-secret-syncer";
const RESTORER: &str = "global-pull-secret-restorer";
const IMAGE: &str = "registry.example.com/globalps-syncer:2";
const POLL: Duration = Duration::from_millis(100);
const SOON: Duration = globalps_testkit::DEADLINE;

#[test]
fn a_controller_writes_only_what_it_has_to() {
    let cluster = cluster("policies", 0);
    install(&cluster, IMAGE);
    let pods = pods(&cluster);
    let [leader, other] = &pods[..] else {
        panic!("two controllers: {pods:?}");
    };
    names_leader(&cluster, &format!("{leader}_1"));
    let controller = Account::of_pod(&cluster, "globalps-controller", SYSTEM, leader).unwrap();
    the_policies_are_well_typed(&cluster);

    // The controller's own writes, for every kind of configuration.
    for spec in specs() {
        for object in syncer_objects(NAMESPACE, IMAGE, &spec).values() {
            let title = title(&object);
            until(&format!("{title} is accepted"), SOON, POLL, || {
                // The authorizer watches Roles, and the API server watches policies, so both take effect a moment
                // later.
                Ok(controller.apply(&object, false).ok())
            })
            .unwrap_or_else(|_| panic!("{title}: {:?}", controller.apply(&object, false)));
        }
    }
    ways_out_are_refused(&controller);
    what_others_made_of_a_daemon_set_stays_writable(&cluster, &controller);
    an_upgrade_moves_the_image(&cluster, &controller);
    only_the_leader_writes(&cluster, &controller, other);
    nobody_else_is_held_up(&cluster);
}

/// The rules use no field that the objects don't have.
fn the_policies_are_well_typed(cluster: &Cluster) {
    let policies = || -> anyhow::Result<Vec<Value>> {
        let text = cluster.kubectl(&["get", "validatingadmissionpolicies", "-o", "json"])?;
        let list: Value = serde_json::from_str(&text)?;
        let mut ours = list["items"].as_array().cloned().unwrap_or_default();
        ours.retain(|policy| {
            let name = policy["metadata"]["name"].as_str().unwrap_or_default();
            name.starts_with("globalps-")
        });
        Ok(ours)
    };
    let checked = wait("the policies to be checked", POLL, || {
        let policies = policies()?;
        let is_checked = |policy: &Value| policy["status"]["observedGeneration"].is_i64();
        Ok(policies.iter().all(is_checked).then_some(policies))
    });
    assert_eq!(checked.len(), 7, "{checked:#?}");
    for policy in checked {
        let warnings = &policy["status"]["typeChecking"]["expressionWarnings"];
        assert!(
            warnings.is_null(),
            "{}: {warnings:#}",
            policy["metadata"]["name"]
        );
    }
}

fn specs() -> Vec<GlobalPullSecretSpec> {
    let kubelet = |unit: &str, config_file: &str, restart| GlobalPullSecretSpec {
        kubelet: Kubelet {
            unit: unit.to_owned(),
            config_file: config_file.to_owned(),
            restart,
            ..Kubelet::default()
        },
        ..GlobalPullSecretSpec::default()
    };
    let microk8s = "/var/snap/microk8s/common/var/lib/kubelet/config.json";
    vec![
        GlobalPullSecretSpec::default(),
        kubelet(
            "kubelet.service",
            "/var/lib/kubelet/config.json",
            Restart::Never,
        ),
        kubelet(
            "snap.microk8s.daemon-kubelite.service",
            microk8s,
            Restart::Always,
        ),
        GlobalPullSecretSpec {
            node_selector: BTreeMap::from([("pool".to_owned(), "a".to_owned())]),
            syncer: serde_json::from_value(json!({
                "hostNetwork": true, "priorityClassName": "system-cluster-critical",
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
                "resources": {"requests": {"cpu": "1m"}, "limits": {"memory": "96Mi", "ephemeral-storage": "1Mi"}},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
                ]}}},
            }))
            .unwrap(),
            ..GlobalPullSecretSpec::default()
        },
        GlobalPullSecretSpec {
            kubelet: Kubelet {
                delivery: DeliveryType::CredentialProvider,
                credential_provider: Some(ProviderPaths {
                    config_path: "/etc/eks/image-credential-provider/config.json".to_owned(),
                    bin_dir: "/etc/eks/image-credential-provider".to_owned(),
                }),
                ..Kubelet::default()
            },
            ..GlobalPullSecretSpec::default()
        },
    ]
}

/// Requests of the leader's account, and the rule that rejects each.
fn ways_out_are_refused(controller: &Account) {
    let objects = syncer_objects(NAMESPACE, IMAGE, &GlobalPullSecretSpec::default()).values();
    let whole = |kind: &str, name: &str| {
        let found = objects
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.cloned().unwrap()
    };
    let pod = "/spec/template/spec";
    let container = "/spec/template/spec/containers/0";
    let at = |path: &str, value: Value| (path.to_owned(), value);
    let of_pod = |field: &str, value: Value| at(&format!("{pod}/{field}"), value);
    let of_container = |field: &str, value: Value| at(&format!("{container}/{field}"), value);
    let arg = |number: usize, text: &str| of_container(&format!("args/{number}"), json!(text));
    let args = "containers[syncer].args";
    #[rustfmt::skip]
    let cases = [
        ("another image", of_container("image", json!("evil/image:1")), "the image must be the one"),
        (
            "another account",
            of_pod(
                "serviceAccountName",
                json!("clusterrole-aggregation-controller"),
            ),
            "spec.template.spec.serviceAccountName",
        ),
        ("the other agent's account", of_pod("serviceAccountName", json!(RESTORER)), "spec.template.spec.serviceAccountName"),
        (
            "an init container",
            of_pod("initContainers", json!([{"name": "i", "image": IMAGE}])),
            "spec.template.spec.initContainers",
        ),
        (
            "a second container",
            of_pod(
                "containers/-",
                json!({"name": "j", "image": IMAGE, "args": ["run"]}),
            ),
            "spec.template.spec.containers[j]",
        ),
        ("a command", of_container("command", json!(["/bin/sh"])), "spec.template.spec.containers[syncer].command"),
        ("another subcommand", arg(0, "ready"), args),
        ("a unit that is not a kubelet", arg(3, "--unit=systemd-poweroff.service"), args),
        ("a file outside the directory", arg(2, "--config-file=/host/kubelet/../../etc/passwd"), args),
        ("another namespace's content", arg(1, "--namespace=default"), args),
        (
            "a lifecycle hook",
            of_container(
                "lifecycle",
                json!({"postStart": {"exec": {"command": ["/globalps-syncer"]}}}),
            ),
            "spec.template.spec.containers[syncer].lifecycle",
        ),
        (
            "a liveness probe",
            of_container(
                "livenessProbe",
                json!({"exec": {"command": ["/globalps-syncer"]}}),
            ),
            "spec.template.spec.containers[syncer].livenessProbe",
        ),
        (
            "a startup probe",
            of_container(
                "startupProbe",
                json!({"httpGet": {"host": "10.0.0.1", "port": 80}}),
            ),
            "spec.template.spec.containers[syncer].startupProbe",
        ),
        (
            "another readiness probe",
            of_container(
                "readinessProbe/exec/command",
                json!(["/globalps-syncer", "run", "--unit=systemd-poweroff.service"]),
            ),
            "spec.template.spec.containers[syncer].readinessProbe.exec.command",
        ),
        (
            "a program directory that no kubelet uses",
            of_container(
                "env/-",
                json!({"name": "HOST_PROVIDER_BIN_DIR", "value": "/usr/bin"}),
            ),
            "spec.template.spec.containers[syncer].env[HOST_PROVIDER_BIN_DIR]",
        ),
        (
            "environment of a Secret",
            of_container("envFrom", json!([{"secretRef": {"name": "any"}}])),
            "spec.template.spec.containers[syncer].envFrom",
        ),
        (
            "a variable of a Secret",
            of_container(
                "env/-",
                json!({"name": "S", "valueFrom": {"secretKeyRef": {"name": "any", "key": "k"}}}),
            ),
            "spec.template.spec.containers[syncer].env[S]",
        ),
        (
            "privileged",
            of_container("securityContext", json!({"privileged": true})),
            "spec.template.spec.containers[syncer].securityContext.privileged",
        ),
        (
            "a capability",
            of_container("securityContext/capabilities/add", json!(["SYS_ADMIN"])),
            "spec.template.spec.containers[syncer].securityContext.capabilities.add",
        ),
        ("the node's processes", of_pod("hostPID", json!(true)), "spec.template.spec.hostPID"),
        ("the node's IPC", of_pod("hostIPC", json!(true)), "spec.template.spec.hostIPC"),
        ("the whole disk", of_pod("volumes/0/hostPath/path", json!("/")), "spec.template.spec.volumes[kubelet]"),
        (
            "a directory next to the kubelet's",
            of_pod("volumes/0/hostPath/path", json!("/var/lib/kubelet/../..")),
            "must not contain '..'",
        ),
        (
            "the container runtime's socket",
            of_pod(
                "volumes/-",
                json!({"name": "c", "hostPath": {"path": "/run/containerd"}}),
            ),
            "spec.template.spec.volumes[c]",
        ),
        (
            "a file of another pod in place of the program",
            of_container(
                "volumeMounts/-",
                json!({"name": "kubelet", "mountPath": "/globalps-syncer", "subPath": "pods/1/volumes/x"}),
            ),
            "spec.template.spec.containers[syncer].volumeMounts[kubelet]",
        ),
        (
            "a Secret's volume",
            of_pod(
                "volumes/-",
                json!({"name": "s", "secret": {"secretName": "any"}}),
            ),
            "spec.template.spec.volumes[s]",
        ),
        (
            "another audience's token",
            of_pod(
                "volumes/-",
                json!({"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}),
            ),
            "spec.template.spec.volumes[t]",
        ),
        (
            "a label that a webhook acts on",
            at(
                "/spec/template/metadata/labels/azure.workload.identity~1use",
                json!("true"),
            ),
            "spec.template.metadata.labels.azure.workload.identity/use",
        ),
        (
            "an annotation that a webhook acts on",
            at(
                "/spec/template/metadata/annotations",
                json!({"vault.hashicorp.com/agent-inject": "true"}),
            ),
            "spec.template.metadata.annotations.vault.hashicorp.com/agent-inject",
        ),
    ];
    for (sentence, (path, value), rule) in cases {
        let mut object = whole("DaemonSet", SYNCER);
        set(&mut object, &path, value);
        refused(sentence, rule, controller.apply(&object, true));
    }

    let role = |name: &str, rules: Value| {
        let mut role = whole("Role", name);
        role["rules"] = rules;
        role
    };
    let secrets = |names: Value, verbs: Value| json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": verbs}]);
    let bound = |field: &str, value: Value| {
        let mut binding = whole("RoleBinding", SYNCER);
        set(&mut binding, field, value);
        binding
    };
    let mut account = whole("ServiceAccount", SYNCER);
    account["metadata"]["annotations"] =
        json!({"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/admin"});
    let mut labelled = whole("ServiceAccount", SYNCER);
    labelled["metadata"]["labels"] = json!({"azure.workload.identity/use": "true"});
    let mut pulls = whole("ServiceAccount", SYNCER);
    pulls["imagePullSecrets"] = json!([{"name": "any"}]);
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "global-pull-secret", "namespace": NAMESPACE, "annotations": {
            "kubernetes.io/service-account.name": "clusterrole-aggregation-controller",
            // Otherwise the rule about the leader would also reject it, and the message could name either rule.
            "globalps.io/leader": format!("{}_1", controller.pod),
        }},
    });
    let write_sets = json!([{"apiGroups": ["apps"], "resources": ["daemonsets"], "resourceNames": [SYNCER], "verbs": ["patch"]}]);
    let role_rule = "other values: rules";
    #[rustfmt::skip]
    let rows = [
        ("the right to write the DaemonSet, for its nodes", role(SYNCER, write_sets), role_rule),
        ("the right to write the content", role(SYNCER, secrets(json!(["global-pull-secret"]), json!(["patch"]))), role_rule),
        (
            "the right to read the user's Secret",
            role(
                SYNCER,
                secrets(json!(["additional-pull-secret"]), json!(["list"])),
            ),
            role_rule,
        ),
        (
            "the content, for nodes that are not selected",
            role(
                RESTORER,
                secrets(json!(["global-pull-secret"]), json!(["get"])),
            ),
            role_rule,
        ),
        // RBAC itself: no account can grant rights that it does not have.
        (
            "every Secret",
            role(
                SYNCER,
                json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]),
            ),
            "attempting to grant RBAC permissions not currently held",
        ),
        (
            "every account",
            bound(
                "/subjects",
                json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:serviceaccounts"}]),
            ),
            "other values: subjects",
        ),
        ("the other agent's account", bound("/subjects/0/name", json!(RESTORER)), "other values: subjects"),
        ("an account of another namespace", bound("/subjects/0/namespace", json!("default")), "other values: subjects"),
        ("a cloud identity", account, "metadata.annotations.eks.amazonaws.com/role-arn"),
        ("another cloud's identity", labelled, "metadata.labels.azure.workload.identity/use"),
        ("a Secret of the account", pulls, "imagePullSecrets[any]"),
        ("a token of any account", token, "other values: metadata.annotations.kubernetes.io/service-account.name, type"),
    ];
    for (sentence, object, rule) in rows {
        refused(sentence, rule, controller.apply(&object, true));
    }

    // Rejected by RBAC alone.
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "globalps-daemonsets"}, "spec": {"failurePolicy": "Ignore"},
    });
    let mut elsewhere = whole("DaemonSet", SYNCER);
    elsewhere["metadata"]["namespace"] = json!("default");
    let mut another = whole("DaemonSet", SYNCER);
    another["metadata"]["name"] = json!("kube-proxy");
    for (sentence, object) in [
        ("the policy", policy),
        ("a DaemonSet elsewhere", elsewhere),
        ("another DaemonSet", another),
    ] {
        refused(
            sentence,
            "cannot patch resource",
            controller.apply(&object, true),
        );
    }
}

/// An admin may add a sidecar to the DaemonSet. The controller can still write the DaemonSet, as long as it does not
/// change the sidecar.
fn what_others_made_of_a_daemon_set_stays_writable(cluster: &Cluster, controller: &Account) {
    let sidecar = json!([{"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "theirs", "image": "theirs:1"}}]);
    let args = [
        "patch",
        "daemonset",
        SYNCER,
        "-n",
        NAMESPACE,
        "--type=json",
        "-p",
    ];
    cluster
        .kubectl(&[&args[..], &[&sidecar.to_string()]].concat())
        .unwrap();
    let spec = specs().pop().unwrap();
    let set = syncer_objects(NAMESPACE, IMAGE, &spec).syncer.daemon_set;
    let set = serde_json::to_value(set).unwrap();
    controller
        .apply(&typed(&set, "apps/v1", "DaemonSet"), false)
        .unwrap();
    let back = json!([{"op": "remove", "path": "/spec/template/spec/containers/1"}]);
    cluster
        .kubectl(&[&args[..], &[&back.to_string()]].concat())
        .unwrap();
}

/// The old controller's writes have no effect until it is replaced, for upgrades and downgrades.
fn an_upgrade_moves_the_image(cluster: &Cluster, controller: &Account) {
    let spec = specs().pop().unwrap();
    let set = |image: &str| {
        let set = syncer_objects(NAMESPACE, image, &spec).syncer.daemon_set;
        typed(&serde_json::to_value(set).unwrap(), "apps/v1", "DaemonSet")
    };
    let next = "registry.example.com/globalps-syncer:3";
    refused(
        "the next image, too early",
        "the image must be the one",
        controller.apply(&set(next), true),
    );
    install(cluster, next);
    wait("the next image", POLL, || {
        Ok(controller.apply(&set(next), true).ok())
    });
    // The old controller can write the new image, and can't restore the old one.
    controller.apply(&set(IMAGE), true).unwrap();
    controller.apply(&set(next), false).unwrap();
    refused(
        "the old image",
        "the image must be the one",
        controller.apply(&set(IMAGE), true),
    );
    install(cluster, IMAGE);
    wait("the old image again", POLL, || {
        Ok(controller.apply(&set(IMAGE), false).ok())
    });
}

/// Includes writes that can't name their writer: deletions, and objects without globalps' annotation.
fn only_the_leader_writes(cluster: &Cluster, leader: &Account, other: &str) {
    let other = Account::of_pod(cluster, "globalps-controller", SYSTEM, other).unwrap();
    let no_pod = Account::of_token(cluster, &["globalps-controller", "-n", SYSTEM]).unwrap();
    let mine = format!("{}_1", leader.pod);
    let annotated = |leader: &str, object: Value| {
        let mut object = object;
        object["metadata"]["annotations"] = json!({"globalps.io/leader": leader});
        object
    };
    let secret = |name: &str| pull_secret(NAMESPACE, name, "{\"auths\": {}}");
    let node = json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret",
        "metadata": {"name": "node-1", "namespace": NAMESPACE}, "spec": {},
    });
    let mut objects = vec![
        annotated(&mine, node),
        annotated(&mine, secret("global-pull-secret")),
        annotated(&mine, secret("global-pull-secret-rolled-out")),
        annotated(&mine, secret("global-pull-secret-state")),
        secret("additional-pull-secret-history-0"),
    ];
    objects.extend(syncer_objects(NAMESPACE, IMAGE, &GlobalPullSecretSpec::default()).values());
    for object in &objects {
        let title = title(object);
        leader
            .apply(object, false)
            .unwrap_or_else(|error| panic!("{title}: {error}"));
        let names_leader = object["metadata"]["annotations"].is_object();
        for account in [&other, &no_pod] {
            if !names_leader {
                refused(
                    &title,
                    "another controller leads",
                    account.apply(object, true),
                );
            }
            refused(
                &title,
                "another controller leads",
                account.delete(object, true),
            );
        }
        if names_leader {
            let stale = annotated("globalps-controller-of-yesterday_0", object.clone());
            refused(
                &title,
                "another controller leads",
                leader.apply(&stale, true),
            );
        }
    }
    names_leader(cluster, "");
    wait("the API server to know that nobody leads", POLL, || {
        Ok(leader.delete(&objects[0], true).err().map(drop))
    });
    for object in &objects {
        refused(
            "no controller leads",
            "another controller leads",
            leader.delete(object, true),
        );
    }
    names_leader(cluster, &mine);
    for object in &objects {
        let title = title(object);
        wait(&title, POLL, || Ok(leader.delete(object, false).ok()));
    }
}

/// Without the objects that the policies read: they were deleted, or no controller has led yet.
fn nobody_else_is_held_up(cluster: &Cluster) {
    let namespaced = |kind: &str, api_version: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}});
    let mut daemon_set = namespaced("DaemonSet", "apps/v1", "any");
    daemon_set["spec"] = json!({
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "registry.example.com/any:1"}]},
        },
    });
    let mut binding = namespaced("RoleBinding", "rbac.authorization.k8s.io/v1", "any");
    binding["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "any"});
    let mut of_others = vec![
        namespaced("ServiceAccount", "v1", "any"),
        namespaced("Role", "rbac.authorization.k8s.io/v1", "any"),
        binding,
        daemon_set,
    ];
    let ours = syncer_objects(NAMESPACE, IMAGE, &GlobalPullSecretSpec::default()).values();
    of_others.extend(ours);
    cluster.types(&format!(
        "delete -n {SYSTEM} serviceaccount/globalps-leader"
    ));
    // The API server learns about the deletion of policies through a watch.
    std::thread::sleep(Duration::from_secs(2));
    for object in of_others {
        let _title = title(&object);
        for verb in ["create", "delete"] {
            cluster.kubectl_with(&[verb, "-f", "-"], &object).unwrap();
        }
    }
}

fn typed(object: &Value, api_version: &str, kind: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object
}

fn title(object: &Value) -> String {
    format!("{} {}", object["kind"], object["metadata"]["name"])
}

/// Sets a value like a JSON patch at `path`: replaces an existing value; `-` appends.
fn set(object: &mut Value, path: &str, value: Value) {
    let (parent, name) = path.rsplit_once('/').unwrap();
    let name = name.replace("~1", "/");
    match object.pointer_mut(parent).unwrap() {
        Value::Array(items) if name == "-" => items.push(value),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        Value::Object(fields) => {
            fields.insert(name, value);
        }
        other => panic!("{path}: {other}"),
    }
}

fn refused(sentence: &str, rule: &str, result: Result<(), String>) {
    let message = result
        .err()
        .unwrap_or_else(|| panic!("{sentence}: it is not rejected"));
    assert!(message.contains(rule), "{sentence}: {message}");
}
