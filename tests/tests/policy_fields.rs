//! For every field that the API server knows of the kinds that the controller may write: with the token of a
//! controller's pod, a change of the field is refused, unless the list below contains it.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use common::cluster;
use common::unrun::{SYSTEM, install, names_leader, pods};
use globalps_core::api::{GlobalPullSecretSpec, Kubelet, ProviderPaths};
use globalps_manifests::syncer_objects;
use globalps_testkit::account::Account;
use globalps_testkit::openapi::{Kind, removals};
use globalps_testkit::product::NAMESPACE;
use globalps_testkit::{Cluster, DEADLINE, until};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde_json::{Value, json};

const IMAGE: &str = "registry.example.com/globalps-syncer:2";
const AGENT: &str = "global-pull-secret-syncer";

/// Fields that no client may set, or not on an existing object: the API server refuses every value before it evaluates policies.
const KUBERNETES_REFUSES: [&str; 15] = [
    "apiVersion",
    "kind",
    "metadata.deletionGracePeriodSeconds",
    "metadata.deletionTimestamp",
    "metadata.name",
    "metadata.namespace",
    "metadata.resourceVersion",
    "metadata.uid",
    "roleRef",
    "spec.selector",
    "spec.template.spec.activeDeadlineSeconds",
    "spec.template.spec.ephemeralContainers",
    "spec.template.spec.resources.claims",
    "spec.template.spec.restartPolicy",
    "type",
];

/// Fields that require another value with them, which is refused: a claim or a volume of the pod, another kind of subject.
const OF_REFUSED: [&str; 4] = [
    "subjects[].apiGroup",
    "].resources",
    "].volumeDevices[]",
    "initContainers[].volumeMounts[]",
];

/// A policy of globalps refuses the request, or RBAC does because the controller lacks the permission.
const REFUSALS: [&str; 2] = [
    "ValidatingAdmissionPolicy 'globalps-",
    "is attempting to grant RBAC permissions not currently held",
];

/// Kind, its schema, and the fields that may change.
#[rustfmt::skip]
const KINDS: [(&str, &str, &[&str]); 5] = [
    (
        "DaemonSet",
        "io.k8s.api.apps.v1.DaemonSet",
        &[
            "metadata.labels.app.kubernetes.io",
            "spec.template.metadata.creationTimestamp",
            "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            "spec.template.spec.containers[].imagePullPolicy",
            "spec.template.spec.containers[].resources.limits",
            "spec.template.spec.containers[].resources.requests",
            // Of the observer. Another agent would only fail.
            "spec.template.spec.containers[].volumeMounts[].readOnly",
            "spec.template.spec.hostNetwork",
            "spec.template.spec.imagePullSecrets",
            "spec.template.spec.priorityClassName",
            "spec.template.spec.tolerations",
        ],
    ),
    ("Role", "io.k8s.api.rbac.v1.Role", &["metadata.labels", "rules"]),
    ("RoleBinding", "io.k8s.api.rbac.v1.RoleBinding", &["metadata.labels", "subjects"]),
    ("ServiceAccount", "io.k8s.api.core.v1.ServiceAccount", &["metadata.labels"]),
    ("Secret", "io.k8s.api.core.v1.Secret", &["data", "stringData"]),
];

#[test]
fn no_other_field_may_change() {
    let cluster = cluster("policy-fields", 0);
    install(&cluster, IMAGE);
    let pods = pods(&cluster);
    let leader = format!("{}_1", pods[0]);
    names_leader(&cluster, &leader);
    let controller = Account::of_pod(&cluster, "globalps-controller", SYSTEM, &pods[0]).unwrap();
    for object in objects(&leader) {
        until("the object", DEADLINE, Duration::from_millis(100), || {
            Ok(controller.apply(&object, false).ok())
        })
        .unwrap_or_else(|_| panic!("{object}: {:?}", controller.apply(&object, false)));
    }
    let mut failures = String::new();
    for (kind, schema, allowed) in KINDS {
        let base = stored(&cluster, kind);
        let document = cluster.types(&format!("get --raw {}", document_path(&base)));
        let document: Value = serde_json::from_str(&document).unwrap();
        let tried = Tried::of(&controller, &document, schema, &base, allowed);
        println!("{kind}: {}", tried.summary());
        for passed in &tried.passed {
            writeln!(failures, "{kind}: {passed}").unwrap();
        }
        for (part, why) in tried.unproven() {
            writeln!(failures, "{kind}: no value of {part} is valid: {why}").unwrap();
        }
    }
    assert!(
        failures.is_empty(),
        "not refused, and not on a list:\n{failures}"
    );
}

fn objects(leader: &str) -> Vec<Value> {
    let spec = GlobalPullSecretSpec {
        kubelet: Kubelet {
            credential_provider: Some(ProviderPaths {
                config_path: "/etc/eks/image-credential-provider/config.json".to_owned(),
                bin_dir: "/etc/eks/image-credential-provider".to_owned(),
            }),
            ..Kubelet::default()
        },
        ..GlobalPullSecretSpec::default()
    };
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {
            "name": "global-pull-secret", "namespace": NAMESPACE,
            "annotations": {"globalps.io/leader": leader},
        },
        "stringData": {".dockerconfigjson": "{\"auths\": {}}"},
    });
    let mut objects = syncer_objects(NAMESPACE, IMAGE, &spec).values();
    objects.push(secret);
    objects
}

fn stored(cluster: &Cluster, kind: &str) -> Value {
    let name = match kind {
        "Secret" => "global-pull-secret",
        _ => AGENT,
    };
    cluster.get(NAMESPACE, &format!("{kind}/{name}")).unwrap()
}

fn document_path(object: &Value) -> String {
    match object["apiVersion"].as_str().unwrap() {
        "v1" => "/openapi/v3/api/v1".to_owned(),
        group => format!("/openapi/v3/apis/{group}"),
    }
}

/// The results of the changes.
#[derive(Default)]
struct Tried {
    refused: usize,
    removals: usize,
    without_effect: usize,
    allowed: usize,
    /// Fields without a valid value, by the part of the object, and the API server's message about the first.
    invalid: BTreeMap<String, Vec<String>>,
    /// Parts for which another change is valid.
    valid: BTreeSet<String>,
    passed: Vec<String>,
}

fn is_refused_by_kubernetes(path: &str) -> bool {
    KUBERNETES_REFUSES
        .iter()
        .any(|field| path.starts_with(field))
}

/// The part of an object that a policy distinguishes. Deeper levels are compared as a whole.
fn part(path: &str) -> String {
    let below = path.strip_prefix("spec.template.spec.");
    let of = |path: &str| path.split('.').take(2).collect::<Vec<_>>().join(".");
    below.map_or_else(
        || of(path),
        |below| format!("spec.template.spec.{}", of(below)),
    )
}

enum Outcome {
    Refused,
    WithoutEffect,
    Accepted,
    Invalid(String),
}

impl Tried {
    fn of(
        account: &Account,
        document: &Value,
        schema: &str,
        base: &Value,
        allowed: &[&str],
    ) -> Self {
        let mut tried = Self::default();
        let kind = Kind::new(document, base);
        for field in kind.all(schema) {
            // A few values are enough to show that it still refuses all.
            let most = if is_refused_by_kubernetes(&field.path) {
                3
            } else {
                usize::MAX
            };
            let objects = kind.changed(&field).take(most);
            let mut outcomes = objects.map(|object| attempt(account, base, &object));
            let mut outcome = outcomes.next().expect("a change of the field");
            // If no value is valid, the API server's message about the first one is the most informative.
            if let Outcome::Invalid(_) = outcome
                && let Some(valid) =
                    outcomes.find(|outcome| !matches!(outcome, Outcome::Invalid(_)))
            {
                outcome = valid;
            }
            tried.count(&field.path, outcome, allowed);
        }
        for (path, object) in removals(base) {
            match attempt(account, base, &object) {
                Outcome::Refused => tried.removals += 1,
                // An allowed field may be absent, and so may its parents.
                Outcome::Accepted if allowed.iter().any(|it| it.starts_with(&path)) => {
                    tried.allowed += 1
                }
                Outcome::Accepted => tried.count(&path, Outcome::Accepted, allowed),
                Outcome::WithoutEffect | Outcome::Invalid(_) => {}
            }
        }
        tried
    }

    fn count(&mut self, path: &str, outcome: Outcome, allowed: &[&str]) {
        if let Outcome::Invalid(why) = outcome {
            self.invalid.entry(part(path)).or_default().push(why);
            return;
        }
        self.valid.insert(part(path));
        match outcome {
            Outcome::Refused => self.refused += 1,
            Outcome::Accepted if !allowed.iter().any(|allowed| path.starts_with(allowed)) => {
                self.passed.push(path.to_owned());
            }
            Outcome::Accepted => self.allowed += 1,
            Outcome::WithoutEffect | Outcome::Invalid(_) => self.without_effect += 1,
        }
    }

    /// Parts for which no change is valid, and why, except those that Kubernetes itself refuses.
    fn unproven(&self) -> impl Iterator<Item = (&String, &String)> {
        let unproven = self.invalid.iter().filter(|(part, _)| {
            let of_refused = OF_REFUSED.iter().any(|end| part.ends_with(end));
            !is_refused_by_kubernetes(part) && !of_refused && !self.valid.contains(*part)
        });
        unproven.filter_map(|(part, reasons)| Some((part, reasons.first()?)))
    }

    fn summary(&self) -> String {
        let Self {
            refused,
            removals,
            without_effect,
            allowed,
            invalid,
            passed,
            ..
        } = self;
        let invalid: usize = invalid.values().map(Vec::len).sum();
        let fields = refused + without_effect + allowed + invalid + passed.len();
        format!(
            "{fields} fields: {refused} refused, {allowed} allowed, {without_effect} without effect, {invalid} that Kubernetes \
             itself refuses or that are within refused ones; {removals} removals refused"
        )
    }
}

/// Replaces the differing fields at the top level of the object or its metadata.
fn attempt(account: &Account, base: &Value, object: &Value) -> Outcome {
    let mut operations = differences(base, object, &[]);
    operations.extend(differences(
        &base["metadata"],
        &object["metadata"],
        &["metadata"],
    ));
    match account.try_patch(base, Patch(operations)) {
        Ok(patched) => {
            let patched = serde_json::to_value(patched).unwrap();
            match comparable(&patched) == comparable(base) {
                true => Outcome::WithoutEffect,
                false => Outcome::Accepted,
            }
        }
        Err((403, message)) if REFUSALS.iter().any(|it| message.contains(it)) => Outcome::Refused,
        Err((code, message)) => Outcome::Invalid(format!("{code} {message}")),
    }
}

fn differences(base: &Value, object: &Value, at: &[&str]) -> Vec<PatchOperation> {
    let empty = serde_json::Map::new();
    let [base, object] = [base, object].map(|value| value.as_object().unwrap_or(&empty));
    let names = base
        .keys()
        .chain(object.keys().filter(|name| !base.contains_key(*name)));
    let changed =
        names.filter(|name| base.get(*name) != object.get(*name) && name.as_str() != "metadata");
    changed
        .map(|name| {
            let path = PointerBuf::from_tokens(at.iter().copied().chain([name.as_str()]));
            match object.get(name) {
                Some(value) => PatchOperation::Add(AddOperation {
                    path,
                    value: value.clone(),
                }),
                None => PatchOperation::Remove(RemoveOperation { path }),
            }
        })
        .collect()
}

/// Without the fields that the API server itself changes with each write.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    for (parent, field) in [
        ("/metadata", "managedFields"),
        ("/metadata", "resourceVersion"),
        ("/metadata", "generation"),
        ("", "status"),
    ] {
        let fields = object.pointer_mut(parent).and_then(Value::as_object_mut);
        fields.and_then(|fields| fields.remove(field));
    }
    if let Some(annotations) = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove("deprecated.daemonset.template.generation");
    }
    object
}
