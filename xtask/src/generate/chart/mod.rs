//! `charts/`: the Helm charts, from the builders of the manifests: the custom resource definitions, and everything else. What depends
//! on values is marked in the builders' input, and becomes an expression of Helm.

mod inputs;
mod schema;
mod template;
#[cfg(test)]
mod tests;

use globalps_core::api::{Attach, SecretRef};
use globalps_core::names::{
    CONTROLLER, CONTROLLER_NAMESPACE, HUB, IMAGE_PULL_SECRETS, OBSERVER, OPENSHIFT_ORIGINAL,
    OPERATORS, RESTORER, SYNCER,
};
use globalps_manifests::Manifests;
use serde_json::{Value, json};

use inputs::{hub, install, marks, parted};
use template::{add_fields, field, raw, word, write};

const GENERATED: &str =
    "{{- /* Generated from the builders of the manifests: `make generate`. */}}\n";
/// The standard labels. Those that select pods are not here: they don't change.
const LABELS: &str = r#"{{- /* Generated: `make generate`. Labels of every object of the chart, with `commonLabels`. */}}
{{- define "globalps.labels" -}}
{{- $labels := dict -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $labels "app.kubernetes.io/name" "globalps" -}}
{{- $_ := set $labels "app.kubernetes.io/instance" .Release.Name -}}
{{- $_ := set $labels "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $labels "app.kubernetes.io/part-of" "globalps" -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .Release.Service -}}
{{- merge $labels (.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}
"#;
/// Labels of the builders that these replace.
const REPLACED: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/managed-by"];
/// The values that the templates below use.
const SPEC: &str = "($.Values.globalPullSecret)";
const ORIGINAL: &str = "(($.Values.globalPullSecret).original).secretRef";
const KUBECONFIG: &str = "(($.Values.globalPullSecret).original).hostedControlPlane";
const DELIVERY: &str = r#"((($.Values.globalPullSecret).kubelet).delivery | default "ConfigFile")"#;
const NAMESPACES: &str = r#"(include "globalps.inNamespaces" $)"#;
const BY_ADMISSION: &str = r#"(eq (include "globalps.attach" $) "Admission")"#;
/// The controller's argument that names the release.
const RELEASE: &str = r#"printf "--helm-release=%s/%s" $.Release.Namespace $.Release.Name"#;
/// Shards of the hub after the first one.
const SHARDS: &str = "untilStep 1 (int $.Values.hub.shards) 1";

/// Files below `manifests/monitoring` that the chart has too.
pub(super) const SHARED: [&str; 3] = ["alerts.yaml", "dashboard.json", "podmonitor.yaml"];

/// The generated files: path below `charts`, and content. `shared`: names and contents of [`SHARED`].
pub(super) fn files(shared: &[(&str, String)]) -> Vec<(String, String)> {
    let (crds, objects) = parted(install(Attach::Admission, false));
    let (hub_crds, hub_objects) = parted(hub(&[]));
    let mut files = vec![
        ("globalps/values.schema.json", schema::schema(&crds)),
        ("globalps/templates/_labels.tpl", LABELS.to_owned()),
        ("globalps/templates/controller.yaml", controller(objects)),
        ("globalps/templates/hub.yaml", hub_template(hub_objects)),
        ("globalps-crds/values.schema.json", schema::of_definitions()),
        ("globalps-crds/templates/_labels.tpl", LABELS.to_owned()),
        (
            "globalps-crds/templates/crds.yaml",
            GENERATED.to_owned()
                + &crds
                    .into_iter()
                    .chain(hub_crds)
                    .map(|crd| document(&kept(crd)))
                    .collect::<String>(),
        ),
    ]
    .into_iter()
    .map(|(path, text)| (path.to_owned(), text))
    .collect::<Vec<_>>();
    for (name, text) in shared {
        files.push((format!("globalps/files/{name}"), text.clone()));
    }
    files
}

/// Makes a definition stay when its chart is removed: with a definition, every object of its kind is deleted.
fn kept(mut crd: Value) -> Value {
    crd["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
    crd["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] =
        json!("Prune=false,Delete=false");
    crd
}

fn document(object: &Value) -> String {
    let mut object = object.clone();
    let labels = &mut object["metadata"]["labels"];
    if labels.is_null() {
        *labels = json!({});
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.retain(|name, _| !REPLACED.contains(&name.as_str()));
        add_fields(labels, r#"include "globalps.labels" $ | fromYaml"#);
    }
    format!("---\n{}", write(&object, &marks()))
}

/// The text between an action such as `if` and its end.
fn wrapped(action: &str, text: &str) -> String {
    format!("{{{{- {action} }}}}\n{text}{{{{- end }}}}\n")
}

fn controller(objects: Vec<Value>) -> String {
    let of = |objects: &[Value], kind: &str, name: &str| -> Value {
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        objects.iter().find(is_it).cloned().unwrap_or_default()
    };
    let on_openshift = Manifests {
        original: Some(SecretRef {
            namespace: OPENSHIFT_ORIGINAL.0.to_owned(),
            name: OPENSHIFT_ORIGINAL.1.to_owned(),
            key: String::new(),
        }),
        ..Manifests::of_images("", "")
    };
    let original = format!("{CONTROLLER}-original");
    let on_openshift = of(&on_openshift.objects(), "Role", &original);
    let attaching = of(
        &install(Attach::ServiceAccounts, true),
        "ClusterRole",
        IMAGE_PULL_SECRETS,
    );
    let mut result = String::new();
    for object in objects {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let written = document(&object);
        result += &match (kind, name) {
            // `helm install --create-namespace` has created it then.
            ("Namespace", _) => wrapped(&format!("if ne $.Release.Namespace \"{name}\""), &written),
            // The priority classes need no quota in `kube-system`, and the other namespace has its own.
            ("ResourceQuota", _) if object["metadata"]["namespace"] != CONTROLLER_NAMESPACE => {
                let others = format!(r#"list "kube-system" "{CONTROLLER_NAMESPACE}""#);
                wrapped(
                    &format!("if not (has $.Values.namespace ({others}))"),
                    &written,
                )
            }
            ("Role", name) if name == original => {
                let is_openshift = format!(
                    "if and (eq {ORIGINAL}.namespace \"{}\") (eq {ORIGINAL}.name \"{}\")",
                    OPENSHIFT_ORIGINAL.0, OPENSHIFT_ORIGINAL.1
                );
                let both = either(&is_openshift, &document(&on_openshift), &written);
                wrapped(&format!("if {ORIGINAL}"), &both)
            }
            (_, name) if name == original => wrapped(&format!("if {ORIGINAL}"), &written),
            (_, name) if name == format!("{CONTROLLER}-sources") => {
                wrapped(&format!("if {SPEC}.sources"), &written)
            }
            (_, name) if name == format!("{CONTROLLER}-kubeconfig") => {
                wrapped(&format!("if {KUBECONFIG}"), &written)
            }
            (_, name)
                if name == format!("{CONTROLLER}-pull-secret")
                    || name == format!("{CONTROLLER}-pools") =>
            {
                wrapped(&format!("if eq {DELIVERY} \"OpenShift\""), &written)
            }
            ("RoleBinding", name) if name.ends_with("-scc") => {
                wrapped(&format!("if {}", needs_constraint(name)), &written)
            }
            ("ClusterRole", IMAGE_PULL_SECRETS) => {
                let attaches = format!("if or (not {BY_ADMISSION}) $.Values.detachServiceAccounts");
                let both = either(&attaches, &document(&attaching), &written);
                wrapped(&format!("if {NAMESPACES}"), &both)
            }
            ("MutatingAdmissionPolicy" | "MutatingAdmissionPolicyBinding", _) => {
                wrapped(&format!("if and {NAMESPACES} {BY_ADMISSION}"), &written)
            }
            (_, IMAGE_PULL_SECRETS) => wrapped(&format!("if {NAMESPACES}"), &written),
            ("ClusterRole" | "ClusterRoleBinding", OPERATORS) => {
                wrapped("if $.Values.operators.secrets", &written)
            }
            (_, OPERATORS) => wrapped(
                r#"range $namespace, $names := include "globalps.catalogs" $ | fromYaml"#,
                &written,
            ),
            ("NetworkPolicy", _) => wrapped("if $.Values.networkPolicies.enabled", &written),
            ("Deployment", _) => {
                let mut deployment = with_options(object, "controller");
                let pod = &mut deployment["spec"]["template"]["spec"];
                if let Some(args) = pod["containers"][0]["args"].as_array_mut() {
                    args.push(raw(RELEASE));
                }
                document(&deployment)
            }
            _ => written,
        };
    }
    format!(
        "{GENERATED}{}",
        wrapped("if $.Values.controller.enabled", &result)
    )
}

/// Whether the pods of this account need a `SecurityContextConstraints`. Two deliveries exist only on `OpenShift`.
fn needs_constraint(binding: &str) -> String {
    let is_openshift = "$.Values.openshift.scc";
    let is_observed = format!("(has {DELIVERY} (list \"Observe\" \"OpenShift\"))");
    match binding.strip_suffix("-scc") {
        Some(OBSERVER) => is_observed,
        Some(SYNCER | RESTORER) => format!("and {is_openshift} (not {is_observed})"),
        _ => format!("or {is_openshift} {is_observed}"),
    }
}

fn either(condition: &str, then: &str, otherwise: &str) -> String {
    wrapped(condition, &format!("{then}{{{{- else }}}}\n{otherwise}"))
}

fn hub_template(objects: Vec<Value>) -> String {
    const NAMESPACE: &str = "«hub-namespace»";
    let second = format!("{HUB}-1");
    let in_namespaces = parted(hub(&[NAMESPACE])).1;
    let mut result = String::new();
    for object in objects {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        // The objects of the first shard equal those of the others.
        let is_shard = matches!(kind, "NetworkPolicy" | "Deployment");
        if is_shard && name != second {
            continue;
        }
        let twin = in_namespaces
            .iter()
            .find(|other| other["kind"] == kind && other["metadata"] == object["metadata"]);
        result += &match (kind, twin) {
            ("Namespace", _) => wrapped(
                "if and (ne $.Release.Namespace \"globalps-system\") (not $.Values.controller.enabled)",
                &document(&object),
            ),
            ("ResourceQuota", _) => {
                wrapped("if not $.Values.controller.enabled", &document(&object))
            }
            ("ClusterRole", Some(twin)) => either(
                "if $.Values.hub.namespaces",
                &document(twin),
                &document(&object),
            ),
            ("Role", _) if object["metadata"]["namespace"] == CONTROLLER_NAMESPACE => {
                document(&renamed(&object, &second, "«shard»"))
            }
            ("NetworkPolicy", _) => {
                let one = document(&renamed(&object, &second, "{{ $name }}"));
                shards(&wrapped("if $.Values.networkPolicies.enabled", &one))
            }
            ("Deployment", Some(twin)) => {
                let mut one = renamed(twin, &second, "{{ $name }}");
                let args = &mut one["spec"]["template"]["spec"]["containers"][0]["args"];
                *args = json!([
                    "run",
                    "«hub-namespaces»",
                    "«hub-trusted-namespaces»",
                    "«hub-shard»"
                ]);
                shards(&hub_args(&document(&with_options(one, "hub"))))
            }
            _ => document(&object),
        };
    }
    let by_namespace: String = in_namespaces
        .iter()
        .filter(|object| object["metadata"]["namespace"] == NAMESPACE)
        .map(|object| document(&renamed(object, NAMESPACE, "{{ $namespace }}")))
        .collect();
    result += &wrapped("range $namespace := $.Values.hub.namespaces", &by_namespace);
    format!("{GENERATED}{}", wrapped("if $.Values.hub.enabled", &result))
}

/// The arguments that a hub may have.
fn hub_args(text: &str) -> String {
    text.lines()
        .map(|line| {
            let spaces = &line[..line.len() - line.trim_start().len()];
            let optional = |condition: &str, arg: &str| {
                format!(
                    "{spaces}{{{{- if {condition} }}}}\n{spaces}- '{arg}'\n{spaces}{{{{- end }}}}\n"
                )
            };
            match line.trim() {
                "- '«hub-namespaces»'" => optional(
                    "$.Values.hub.namespaces",
                    "--namespaces={{ join \",\" $.Values.hub.namespaces }}",
                ),
                "- '«hub-trusted-namespaces»'" => optional(
                    "$.Values.hub.trustedNamespaces",
                    "--trusted-namespaces={{ join \",\" $.Values.hub.trustedNamespaces }}",
                ),
                "- '«hub-shard»'" => optional(
                    "gt (int $.Values.hub.shards) 1",
                    "--shard={{ $index }}/{{ $.Values.hub.shards }}",
                ),
                _ => format!("{line}\n"),
            }
        })
        .collect()
}

/// Once for each shard, as `$index` and `$name`.
fn shards(text: &str) -> String {
    let name = format!(
        "{{{{- $name := ternary \"{HUB}\" (printf \"{HUB}-%d\" $index) (eq $index 0) }}}}\n"
    );
    wrapped(
        "range $index := until (int $.Values.hub.shards)",
        &(name + text),
    )
}

/// Replaces a name everywhere in the object.
fn renamed(object: &Value, from: &str, to: &str) -> Value {
    match object {
        Value::String(text) => json!(text.replace(from, to)),
        Value::Array(list) => list.iter().map(|value| renamed(value, from, to)).collect(),
        Value::Object(map) => {
            let fields = map
                .iter()
                .map(|(key, value)| (key.clone(), renamed(value, from, to)));
            Value::Object(fields.collect())
        }
        _ => object.clone(),
    }
}

/// A Deployment whose pods' fields are values below this one.
fn with_options(mut object: Value, program: &str) -> Value {
    let value = |name: &str| format!("$.Values.{program}.{name}");
    object["spec"]["replicas"] = raw(&format!("int {}", value("replicas")));
    let template = &mut object["spec"]["template"];
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        let (own, common) = (value("podLabels"), "$.Values.commonLabels");
        let all = format!(r#"omit (merge (deepCopy {own}) {common}) "app.kubernetes.io/name""#);
        add_fields(labels, &all);
    }
    template["metadata"]["annotations"] = field(&value("podAnnotations"));
    let pod = &mut template["spec"];
    pod["priorityClassName"] = word(&value("priorityClassName"));
    for name in ["affinity", "nodeSelector", "tolerations"] {
        pod[name] = field(&value(name));
    }
    pod["imagePullSecrets"] = field(r#"include "globalps.pullSecrets" $ | fromYamlArray"#);
    pod["containers"][0]["resources"] = field(&value("resources"));
    object
}
