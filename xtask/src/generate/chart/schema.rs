//! `values.schema.json`: what Helm accepts as values. The configuration has the schema of its custom resource.

use serde_json::{Map, Value, json};

const NAME: &str = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$";
const LABEL: &str = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$";
/// A registry, with its port, and a path. A tag would be written behind the one of the chart.
const REPOSITORY: &str =
    "^(([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*)?$";
/// A registry with an optional port and an optional path, to which image names are appended.
const REGISTRY: &str = "^([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*)?$";

/// Schema of the chart of the definitions: its own values, and any others, so that both charts accept the same file.
pub(super) fn of_definitions() -> String {
    let all = properties();
    text(&json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart globalps-crds",
        "type": "object",
        "properties": {"allow": all["allow"], "commonLabels": all["commonLabels"]},
    }))
}

fn text(schema: &Value) -> String {
    serde_json::to_string_pretty(schema).expect("JSON") + "\n"
}

pub(super) fn schema(crds: &[Value]) -> String {
    let configuration = crds
        .iter()
        .find(|crd| crd["spec"]["names"]["kind"] == "GlobalPullSecret")
        .map(|crd| &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
    let mut properties = properties();
    properties["globalPullSecret"] = removable(plain(configuration.unwrap_or(&Value::Null)));
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart globalps",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    text(&schema)
}

fn properties() -> Value {
    let flag = || json!({"type": "boolean"});
    let map = || json!({"type": "object"});
    let strings = || json!({"type": "object", "additionalProperties": {"type": "string"}});
    let list = |item: Value| json!({"type": "array", "items": item});
    let object = |properties: Value| json!({"type": "object", "additionalProperties": false, "properties": properties});
    let required = |names: &[&str], properties: Value| {
        let mut schema = object(properties);
        schema["required"] = json!(names);
        schema
    };
    let name = || json!({"type": "string", "pattern": NAME, "maxLength": 253});
    let namespace = || json!({"type": "string", "pattern": LABEL, "maxLength": 63});
    let path = |ends: &str| json!({"type": "string", "pattern": format!("^(/[A-Za-z0-9._-]+)+{ends}$"), "maxLength": 253});
    let image = || {
        object(json!({
            "repository": {"type": "string", "pattern": REPOSITORY, "maxLength": 253},
            "tag": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{0,128}$"},
            "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        }))
    };
    let program = |more: Value| {
        let mut properties = json!({
            "enabled": flag(),
            "replicas": {"type": "integer", "minimum": 1, "maximum": 5},
            "resources": map(), "tolerations": list(map()), "affinity": map(), "nodeSelector": strings(),
            "priorityClassName": {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"},
            "podLabels": strings(), "podAnnotations": strings(),
            "podDisruptionBudget": object(json!({
                "enabled": flag(), "maxUnavailable": {"type": "integer", "minimum": 1, "maximum": 5},
            })),
        });
        if let (Some(all), Value::Object(more)) = (properties.as_object_mut(), more) {
            all.extend(more);
        }
        object(properties)
    };
    let monitor = || object(json!({"enabled": flag(), "labels": strings()}));
    json!({
        "global": map(),
        "namespace": namespace(),
        "commonLabels": strings(),
        "images": object(json!({
            "registry": {"type": "string", "pattern": REGISTRY, "maxLength": 253},
            "controller": image(), "syncer": image(), "hub": image(),
            "pullSecret": {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"},
        })),
        "controller": program(json!({})),
        "hub": program(json!({
            "namespaces": list(namespace()),
            "trustedNamespaces": list(namespace()),
            "shards": {"type": "integer", "minimum": 1, "maximum": globalps_core::names::MAX_SHARDS},
        })),
        "operators": object(json!({
            "secrets": list(required(&["namespace", "name"], json!({"namespace": namespace(), "name": name()}))),
        })),
        "detachServiceAccounts": flag(),
        "openshift": object(json!({"scc": flag()})),
        "allow": object(json!({
            "units": list(json!({"type": "string", "pattern": "^[A-Za-z0-9@_.-]+\\.service$"})),
            "configFiles": list(path("")),
            "providers": list(required(&["configPath", "binDir"], json!({
                "configPath": path("\\.(yaml|yml|json)"), "binDir": path(""),
            }))),
        })),
        "registryAuthorities": {"type": "string"},
        "networkPolicies": object(json!({"enabled": flag()})),
        "monitoring": object(json!({"podMonitor": monitor(), "serviceMonitor": monitor(), "rules": monitor(), "dashboard": monitor()})),
    })
}

/// Accepts `null` for each part of the configuration that is an object: this is how `--set` removes what an earlier release set.
fn removable(mut configuration: Value) -> Value {
    let parts = configuration["properties"].as_object_mut();
    for part in parts.into_iter().flat_map(Map::values_mut) {
        if part["type"] == "object" {
            part["type"] = json!(["object", "null"]);
        }
    }
    configuration
}

/// The pattern of the rule for a field that is a number or a percentage. The rule's minimum, 1, is that of the number.
fn percentage(schema: &Map<String, Value>) -> Option<&str> {
    let rules = schema.get("x-kubernetes-validations")?.as_array()?;
    let texts = rules.iter().filter_map(|rule| rule["rule"].as_str());
    texts
        .filter_map(|rule| rule.strip_prefix("type(self) == int ? self >= 1 : self.matches('"))
        .find_map(|rest| rest.strip_suffix("')"))
}

/// The schema of a custom resource as JSON schema: without the extensions of Kubernetes, and strict.
fn plain(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let is_int_or_string = map.contains_key("x-kubernetes-int-or-string");
            let mut result: Map<String, Value> = map
                .iter()
                // Fields of these names would have an object here.
                .filter(|(key, value)| {
                    let is_extension =
                        ["nullable", "format"].contains(&key.as_str()) && !value.is_object();
                    !key.starts_with("x-kubernetes-") && !is_extension
                })
                .map(|(key, value)| (key.clone(), plain(value)))
                .collect();
            if is_int_or_string {
                result.insert("type".to_owned(), json!(["integer", "string"]));
            }
            if let Some(pattern) = percentage(map) {
                result.insert("minimum".to_owned(), json!(1));
                result.insert("pattern".to_owned(), json!(pattern));
            }
            let is_object = map.get("type").is_some_and(|kind| kind == "object");
            if is_object && map.get("properties").is_some_and(Value::is_object) {
                result.insert("additionalProperties".to_owned(), json!(false));
            }
            Value::Object(result)
        }
        Value::Array(list) => list.iter().map(plain).collect(),
        _ => schema.clone(),
    }
}
