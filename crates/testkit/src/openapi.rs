//! The fields of a kind in the API server's `OpenAPI` document, and changes of one field of an object. Pure.

use serde_json::{Map, Value, json};

/// A kind, and an object of it.
pub struct Kind<'a> {
    schemas: &'a Value,
    base: &'a Value,
}

/// A field, an item of a list or a key of a map.
#[derive(Debug)]
pub struct Field {
    /// Dots separate fields; `[]` is an item, `*` a key.
    pub path: String,
    /// The steps, each with the schema that it leads to.
    steps: Vec<(Step, Value)>,
}

/// What a step of a path leads to.
#[derive(Clone, Debug)]
enum Step {
    Field(String),
    /// An item of a list.
    Item,
    /// A key of a map.
    Key(&'static str),
}

/// Maps with names of resources as keys.
const RESOURCES: [&str; 3] = ["limits", "requests", "overhead"];

/// Strings of which the API server accepts at least one for most fields.
const TEXTS: [&str; 29] = [
    "x",
    "/x",
    "1",
    "1Gi",
    "Never",
    "Always",
    "OnDelete",
    "Exists",
    "10.0.0.1",
    "x.io/x",
    "HTTPS",
    "UDP",
    "Unconfined",
    "Local",
    "Ignore",
    "NoSchedule",
    "ScheduleAnyway",
    "metadata.name",
    "limits.cpu",
    "linux",
    "Bidirectional",
    "ReadWriteOnce",
    "cpu",
    "Default",
    "FallbackToLogsOnError",
    "Recursive",
    "Strict",
    "Restart",
    "User",
];

impl<'a> Kind<'a> {
    /// `document`: from the API server.
    pub fn new(document: &'a Value, base: &'a Value) -> Self {
        Self {
            schemas: &document["components"]["schemas"],
            base,
        }
    }

    /// Every field of the kind whose schema has this name.
    pub fn all(&self, schema: &str) -> Vec<Field> {
        let reference = json!({"$ref": format!("#/components/schemas/{schema}")});
        let mut found = Vec::new();
        self.fields(&reference, &mut Vec::new(), &mut Vec::new(), &mut found);
        found
    }

    /// The object with a change of this field, in several variants: the first valid one counts. The values along the
    /// path stay, or are replaced from some step on, because many objects allow only one of their fields.
    pub fn changed<'f>(&'f self, field: &'f Field) -> impl Iterator<Item = Value> + 'f {
        let steps = &field.steps;
        let mut at = Some(self.base);
        let exists = |(step, _): &&(Step, Value)| {
            at = at.and_then(|at| match step {
                Step::Field(name) => at.get(name),
                Step::Item => at.get(0),
                Step::Key(_) => None,
            });
            at.is_some()
        };
        let existing = steps.iter().take_while(exists).count();
        let schema = steps.last().map(|(_, schema)| self.resolved(schema).0);
        let candidates = schema.map(|schema| candidates(&schema)).unwrap_or_default();
        // A pod template is not replaced, because it would lack too much.
        let is_deep = matches!(steps.first(), Some((Step::Field(name), _)) if name == "spec");
        let least = if is_deep { 4.min(existing + 1) } else { 1 };
        let least = existing.saturating_sub(1).max(least);
        let kept = (least..=existing + 1).rev();
        let all = kept.flat_map(move |kept| {
            candidates
                .clone()
                .into_iter()
                .map(move |value| (kept, value))
        });
        all.map(|(kept, value)| self.set(Some(self.base), steps, kept, &value))
            .filter(|object| object != self.base)
    }

    /// `within`: the schemas along the path, because some contain themselves.
    fn fields(
        &self,
        schema: &Value,
        path: &mut Vec<(Step, Value)>,
        within: &mut Vec<String>,
        found: &mut Vec<Field>,
    ) {
        let (schema, name) = self.resolved(schema);
        if name.as_ref().is_some_and(|name| within.contains(name)) {
            return;
        }
        let entered = name.is_some();
        within.extend(name);
        let kind = schema["type"].as_str().unwrap_or_default();
        if let Some(fields) = schema["properties"].as_object() {
            for (field, property) in fields {
                path.push((Step::Field(field.clone()), property.clone()));
                self.fields(property, path, within, found);
                path.pop();
            }
        } else if kind == "array" {
            path.push((Step::Item, schema["items"].clone()));
            self.fields(&schema["items"], path, within, found);
            path.pop();
        } else if schema["additionalProperties"].is_object() {
            let key = match path.last() {
                Some((Step::Field(name), _)) if RESOURCES.contains(&name.as_str()) => "cpu",
                _ => "x",
            };
            path.push((Step::Key(key), schema["additionalProperties"].clone()));
            self.fields(&schema["additionalProperties"], path, within, found);
            path.pop();
        } else {
            found.push(Field::new(path));
        }
        if entered {
            within.pop();
        }
    }

    /// The schema that a reference refers to, and its name.
    fn resolved(&self, schema: &Value) -> (Value, Option<String>) {
        let one = schema["allOf"][0]["$ref"].as_str();
        match schema["$ref"].as_str().or(one) {
            Some(reference) => {
                let name = reference.rsplit('/').next().unwrap_or_default();
                (self.schemas[name].clone(), Some(name.to_owned()))
            }
            None => (schema.clone(), None),
        }
    }

    /// `kept`: number of objects and lists along the path that are kept if they exist.
    fn set(&self, at: Option<&Value>, path: &[(Step, Value)], kept: usize, value: &Value) -> Value {
        let Some(((step, schema), rest)) = path.split_first() else {
            return value.clone();
        };
        let kept_after = kept.saturating_sub(1);
        let at = at.filter(|_| kept > 0);
        let inner = |at: Option<&Value>| {
            let fresh = at.is_none() || kept_after == 0;
            let mut inner = self.set(at, rest, kept_after, value);
            if fresh && !rest.is_empty() {
                self.complete(&mut inner, schema);
            }
            inner
        };
        match step {
            Step::Field(name) => {
                let mut object = at.cloned().unwrap_or_else(|| json!({}));
                object[name.as_str()] = inner(at.and_then(|at| at.get(name)));
                object
            }
            Step::Key(key) => {
                let mut object = at.cloned().unwrap_or_else(|| json!({}));
                object[*key] = inner(None);
                object
            }
            Step::Item => {
                let mut items = at.and_then(Value::as_array).cloned().unwrap_or_default();
                match items.first().cloned().filter(|_| kept_after > 0) {
                    Some(first) => items[0] = inner(Some(&first)),
                    None => items.push(inner(None)),
                }
                Value::Array(items)
            }
        }
    }

    /// Adds the fields that an object of this schema must have.
    fn complete(&self, object: &mut Value, schema: &Value) {
        let (schema, name) = self.resolved(schema);
        let Some(object) = object.as_object_mut() else {
            return;
        };
        let name = name.as_deref().unwrap_or_default().rsplit('.').next();
        let (alternatives, fields) = unwritten(name.unwrap_or_default());
        if !alternatives.iter().any(|name| object.contains_key(*name)) {
            for (name, value) in fields.as_object().into_iter().flatten() {
                object.entry(name).or_insert_with(|| value.clone());
            }
        }
        let required = schema["required"].as_array().into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if !object.contains_key(name) {
                object.insert(
                    name.to_owned(),
                    self.required(name, &schema["properties"][name]),
                );
            }
        }
    }

    fn required(&self, name: &str, schema: &Value) -> Value {
        let text = match name {
            "mountPath" | "devicePath" | "path" => "/x",
            "operator" => "Exists",
            "topologyKey" => "x.io/x",
            "whenUnsatisfiable" => "DoNotSchedule",
            "fieldPath" => "metadata.name",
            "resource" => "limits.cpu",
            "type" => "RuntimeDefault",
            _ => "x",
        };
        let (schema, _) = self.resolved(schema);
        match schema["type"].as_str() {
            Some("object") => {
                let mut object = Value::Object(Map::new());
                self.complete(&mut object, &schema);
                object
            }
            Some("array") => json!([self.required("", &schema["items"])]),
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(true),
            _ if name == "port" => json!(1),
            _ => json!(text),
        }
    }
}

impl Field {
    fn new(steps: &[(Step, Value)]) -> Self {
        let names = steps.iter().map(|(step, _)| match step {
            Step::Field(name) => format!(".{name}"),
            Step::Item => "[]".to_owned(),
            Step::Key(_) => ".*".to_owned(),
        });
        let path: String = names.collect();
        Self {
            path: path.trim_start_matches('.').to_owned(),
            steps: steps.to_vec(),
        }
    }
}

/// The object without one of its fields, for each field outside lists: path and object.
pub fn removals(base: &Value) -> Vec<(String, Value)> {
    let mut removals = Vec::new();
    without(base, base, &mut Vec::new(), &mut removals);
    removals
}

fn without(base: &Value, at: &Value, path: &mut Vec<String>, found: &mut Vec<(String, Value)>) {
    for (name, value) in at.as_object().into_iter().flatten() {
        let mut object = base.clone();
        let parents = path.iter();
        let parent = parents.fold(&mut object, |at, name| &mut at[name.as_str()]);
        parent.as_object_mut().map(|fields| fields.remove(name));
        path.push(name.clone());
        found.push((path.join("."), object));
        without(base, value, path, found);
        path.pop();
    }
}

/// Fields that validation requires although the schema does not: one of the former, or all of the latter.
fn unwritten(schema: &str) -> (&'static [&'static str], Value) {
    match schema {
        "Container" | "EphemeralContainer" => (
            &[],
            json!({"image": "x", "name": "x", "restartPolicy": "Always"}),
        ),
        "Probe" => (
            &["exec", "grpc", "httpGet", "tcpSocket"],
            json!({"exec": {"command": ["x"]}}),
        ),
        "EnvFromSource" => (
            &["configMapRef", "secretRef"],
            json!({"secretRef": {"name": "x"}}),
        ),
        "ConfigMapEnvSource"
        | "SecretEnvSource"
        | "ConfigMapKeySelector"
        | "SecretKeySelector"
        | "ConfigMapVolumeSource"
        | "ConfigMapProjection"
        | "SecretProjection" => (&[], json!({"name": "x"})),
        "SecretVolumeSource" => (&[], json!({"secretName": "x"})),
        "LabelSelectorRequirement" => (&[], json!({"operator": "In", "values": ["x"]})),
        "NodeSelectorRequirement" => (&[], json!({"operator": "In", "values": ["x"]})),
        "PodAffinityTerm" => (&[], json!({"labelSelector": {"matchLabels": {"x": "x"}}})),
        "TopologySpreadConstraint" => (
            &[],
            json!({"labelSelector": {"matchLabels": {"x": "x"}}, "maxSkew": 1}),
        ),
        "ServicePort" | "ContainerPort" => (&[], json!({"containerPort": 1})),
        "HTTPGetAction" | "TCPSocketAction" => (&[], json!({"port": 1})),
        "DownwardAPIVolumeFile" => (
            &["fieldRef", "resourceFieldRef"],
            json!({"fieldRef": {"fieldPath": "metadata.name"}}),
        ),
        "PodResourceClaim" => (
            &["resourceClaimName", "resourceClaimTemplateName"],
            json!({"resourceClaimName": "x"}),
        ),
        "OwnerReference" => (
            &[],
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}),
        ),
        "HostAlias" => (&[], json!({"ip": "10.0.0.1"})),
        "Toleration" => (&[], json!({"key": "x", "effect": "NoExecute"})),
        "ContainerRestartRule" => (
            &[],
            json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}),
        ),
        "ContainerResizePolicy" => (
            &[],
            json!({"resourceName": "cpu", "restartPolicy": "NotRequired"}),
        ),
        "AzureDiskVolumeSource" => (
            &[],
            json!({"diskName": "x", "diskURI": "https://x", "kind": "Dedicated"}),
        ),
        "ISCSIVolumeSource" => (
            &[],
            json!({"targetPortal": "10.0.0.1:1", "iqn": "iqn.2026-01.io.x:x", "lun": 1}),
        ),
        "QuobyteVolumeSource" => (&[], json!({"registry": "x:1", "volume": "x"})),
        "PersistentVolumeClaimSpec" => (
            &[],
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
        ),
        _ => (&[], json!({})),
    }
}

fn candidates(schema: &Value) -> Vec<Value> {
    match schema["type"].as_str() {
        Some("boolean") => vec![json!(true), json!(false)],
        Some("integer" | "number") => [1, 0, 7, 1000].map(|number| json!(number)).into(),
        Some("string") if schema["format"] == "date-time" => vec![json!("2026-01-01T00:00:00Z")],
        Some("string") if schema["format"] == "byte" => vec![json!("eA==")],
        Some("string") => TEXTS.map(|text| json!(text)).into(),
        Some("object") => vec![json!({}), json!({"x": "x"})],
        _ => vec![json!(1), json!("1Gi"), json!("x"), json!({"f:x": {}})],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_changed_in_a_whole_object() {
        let document = json!({"components": {"schemas": {
            "a": {"properties": {
                "on": {"type": "boolean"},
                "list": {"type": "array", "items": {"allOf": [{"$ref": "#/b"}]}},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            }},
            "b": {"required": ["name"], "properties": {
                "name": {"type": "string"}, "in": {"$ref": "#/a"}, "port": {"type": "integer"},
            }},
        }}});
        let base = json!({"on": true, "list": [{"name": "y"}]});
        let kind = Kind::new(&document, &base);
        let fields = kind.all("a");
        let paths: Vec<&str> = fields.iter().map(|field| field.path.as_str()).collect();
        assert_eq!(paths, ["list[].name", "list[].port", "map.*", "on"]);
        let changed = |path: &str| {
            let field = fields.iter().find(|field| field.path == path);
            kind.changed(field.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(
            changed("on")[0],
            json!({"on": false, "list": [{"name": "y"}]})
        );
        let ports = changed("list[].port");
        for list in [
            json!([{"name": "y", "port": 1}]),
            json!([{"name": "y"}, {"name": "x", "port": 1}]),
            json!([{"name": "x", "port": 1}]),
        ] {
            assert!(
                ports.contains(&json!({"on": true, "list": list})),
                "{ports:?}"
            );
        }
        let keys = changed("map.*");
        assert!(
            keys.contains(&json!({"on": true, "list": [{"name": "y"}], "map": {"x": 1}})),
            "{keys:?}"
        );
        let removed = removals(&base);
        assert_eq!(removed[0], ("list".to_owned(), json!({"on": true})));
    }
}
