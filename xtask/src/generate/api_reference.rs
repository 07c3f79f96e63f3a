//! `docs/api.md`: every field of the custom resources, from the manifests.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Map, Value};

const BEFORE: &str = "# API reference

Every field of the custom resources. Generated from `manifests/` by `make generate`.

All kinds are in the group `globalps.io`, version `v1alpha1` ([what changes until v1beta1](upgrades.md#versions-of-the-api)). `spec.sources[].name` is field `name` of each element of the list `sources`.
";

/// The page. `manifests`: files with custom resource definitions.
pub(super) fn page(manifests: &[&str]) -> Result<String> {
    let mut all = Vec::new();
    for text in manifests {
        all.extend(crds(text)?);
    }
    Ok(document(&all))
}

fn document(crds: &[Value]) -> String {
    let mut text = BEFORE.to_owned();
    for crd in crds {
        let names = &crd["spec"]["names"];
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        // Writing to a string can't fail.
        let _ = write!(
            text,
            "\n## {}\n\n{}.\n",
            plain(&names["kind"]),
            described(schema).trim_end_matches('.')
        );
        for part in ["spec", "status"] {
            let mut rows = Vec::new();
            let mut rules = BTreeSet::new();
            fields(part, &schema["properties"][part], &mut rows, &mut rules);
            if rows.is_empty() {
                continue;
            }
            let _ = write!(
                text,
                "\n| field | type | default | meaning |\n|---|---|---|---|\n"
            );
            for row in rows {
                text.push_str(&row);
            }
            if !rules.is_empty() {
                let _ = write!(text, "\nThe API server also enforces:\n\n");
            }
            for rule in rules {
                let _ = writeln!(text, "- {rule}");
            }
        }
    }
    text
}

/// Adds a row for each field below, and the messages of validation rules.
fn fields(path: &str, schema: &Value, rows: &mut Vec<String>, rules: &mut BTreeSet<String>) {
    let messages = schema["x-kubernetes-validations"].as_array();
    let messages = messages.into_iter().flatten().map(|rule| &rule["message"]);
    rules.extend(messages.map(plain));
    let (below, path) = match kind(schema) {
        Kind::List => (&schema["items"], format!("{path}[]")),
        Kind::Map => (&schema["additionalProperties"], format!("{path}.*")),
        Kind::Other => (schema, path.to_owned()),
    };
    if kind(below) != Kind::Other {
        return fields(&path, below, rows, rules);
    }
    let Some(properties) = below["properties"].as_object() else {
        return;
    };
    if !std::ptr::eq(below, schema) {
        let messages = below["x-kubernetes-validations"].as_array();
        let messages = messages.into_iter().flatten().map(|rule| &rule["message"]);
        rules.extend(messages.map(plain));
    }
    for (name, field) in properties {
        let at = format!("{path}.{name}");
        rows.push(row(&at, name, field, below));
        if !is_of_kubernetes(name) {
            fields(&at, field, rows, rules);
        }
    }
}

/// Whether the fields below are explained by Kubernetes.
fn is_of_kubernetes(name: &str) -> bool {
    name == "conditions" || name.ends_with("Selector")
}

fn row(path: &str, name: &str, field: &Value, parent: &Value) -> String {
    let is_required = parent["required"]
        .as_array()
        .is_some_and(|all| all.iter().any(|it| it == name));
    let default = match &field["default"] {
        Value::Null if is_required => "required".to_owned(),
        Value::Null => String::new(),
        Value::Object(fields) if fields.is_empty() => "`{}`".to_owned(),
        // The defaults of its fields are in rows of their own.
        Value::Object(_) => String::new(),
        default => format!("`{default}`"),
    };
    format!(
        "| `{path}` | {} | {default} | {} |\n",
        type_of(name, field),
        described(field)
    )
}

#[derive(PartialEq, Eq)]
enum Kind {
    List,
    Map,
    Other,
}

fn kind(schema: &Value) -> Kind {
    match schema {
        _ if schema["items"].is_object() => Kind::List,
        _ if schema["additionalProperties"].is_object() => Kind::Map,
        _ => Kind::Other,
    }
}

fn type_of(name: &str, field: &Value) -> String {
    if name.ends_with("Selector") && field["properties"].is_object() {
        return "label selector".to_owned();
    }
    if let Some(values) = field["enum"].as_array() {
        let values = values.iter().filter(|value| !value.is_null());
        let values: Vec<String> = values.map(|value| format!("`{}`", plain(value))).collect();
        return values.join(", ");
    }
    if field["x-kubernetes-int-or-string"] == true {
        return "number or string".to_owned();
    }
    let range = |word: &str| {
        let bound = |name: &str| field[name].as_f64().map(|it| format!("{it}"));
        match (bound("minimum"), bound("maximum")) {
            (Some(low), Some(high)) => format!("{word}, {low} to {high}"),
            (Some(low), None) => format!("{word}, at least {low}"),
            (None, Some(high)) => format!("{word}, at most {high}"),
            (None, None) => word.to_owned(),
        }
    };
    match kind(field) {
        Kind::List => format!("list of {}", type_of("", &field["items"])),
        Kind::Map => format!("map of {}", type_of("", &field["additionalProperties"])),
        Kind::Other => match field["type"].as_str() {
            Some("integer") => range("integer"),
            Some("string") if field["format"] == "date-time" => "time".to_owned(),
            other => other.unwrap_or("any").to_owned(),
        },
    }
}

/// The description as a cell of a table.
fn described(schema: &Value) -> String {
    let words: Vec<&str> = schema["description"]
        .as_str()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    words.join(" ").replace('|', "\\|").replace('<', "&lt;")
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn crds(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Map<String, Value>> = serde_saphyr::from_multiple(text)?;
    let documents = documents.into_iter().map(Value::Object);
    Ok(documents
        .filter(|object| object["kind"] == "CustomResourceDefinition")
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_its_type_default_range_and_meaning() {
        let crd = serde_json::json!({"spec": {"names": {"kind": "Thing"}, "versions": [{"schema": {"openAPIV3Schema": {
            "description": "A thing",
            "properties": {"spec": {
                "required": ["names"],
                "properties": {
                    "limit": {"type": "integer", "minimum": 0.0, "maximum": 10.0, "default": 2, "description": "How\n many | few."},
                    "names": {"type": "array", "items": {"type": "object", "properties": {
                        "name": {"type": "string", "x-kubernetes-validations": [{"rule": "r", "message": "no name twice"}]},
                    }}},
                    "mode": {"enum": ["A", "B", null]},
                    "nodeSelector": {"properties": {"matchLabels": {}}},
                },
            }},
        }}}]}});
        let text = document(&[crd]);
        for expected in [
            "\n## Thing\n\nA thing.\n",
            "| `spec.limit` | integer, 0 to 10 | `2` | How many \\| few. |\n",
            "| `spec.names` | list of object | required |  |\n",
            "| `spec.names[].name` | string |  |  |\n",
            "| `spec.mode` | `A`, `B` |  |  |\n",
            "| `spec.nodeSelector` | label selector |  |  |\n",
            "- no name twice\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("matchLabels"), "{text}");
    }
}
