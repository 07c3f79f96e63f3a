//! The pods of the syncers and restorers. What Kubernetes takes as it is stays JSON: its own types, with everything that a pod can
//! have, would be a part of each program.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Syncer {
    /// Run the syncer in the node's network namespace, for clusters whose pod network itself needs the credentials.
    #[serde(default)]
    pub host_network: bool,
    /// Name of the pull secret for the syncer's own image, in this namespace. You create it; globalps doesn't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub image_pull_secret: Option<String>,
    /// Taints that the pods tolerate. Absent: every taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "tolerations")]
    pub tolerations: Option<Vec<Value>>,
    /// Requests and limits of the container. Absent: 5m of CPU and 16Mi of memory, and at most 64Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "resources")]
    pub resources: Option<Value>,
    /// Nodes that may run the pods. On other nodes nothing changes and nothing is restored: to exclude a node and to restore it, use
    /// `nodeSelector` or its label. Preferences and other pods have no effect on the pods of a `DaemonSet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "affinity")]
    pub affinity: Option<Value>,
    /// Priority class of the pods. Absent: `system-node-critical`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    )]
    pub priority_class_name: Option<String>,
}

/// Where the terms are in `affinity`, and in a pod's affinity.
pub const NODE_TERMS: &str =
    "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// Maximum length of a label's key, with its prefix, and of a field's name.
const KEY_LENGTH: u32 = 317;
const VALUE_LENGTH: u32 = 63;

fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 32, "x-kubernetes-list-type": "atomic",
        "items": {"type": "object", "properties": {
            "key": {"type": "string", "maxLength": KEY_LENGTH, "description": "Key of the taint. Empty: any key."},
            "operator": {
                "type": "string", "enum": ["Equal", "Exists", "Lt", "Gt"],
                "description": "How `value` is compared. `Exists`: it is not.",
            },
            "value": {"type": "string", "maxLength": VALUE_LENGTH, "description": "Value of the taint."},
            "effect": {
                "type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                "description": "Effect of the taint. Empty: any effect.",
            },
            "tolerationSeconds": {
                "type": "integer", "format": "int64",
                "description": "How long a `NoExecute` taint is tolerated. Absent: forever.",
            },
        }},
    })
}

fn resources(_: &mut SchemaGenerator) -> Schema {
    let amounts = |description: &str| {
        let amount = |of: &str| {
            json!({
                "x-kubernetes-int-or-string": true, "maxLength": 32, "description": of,
                "pattern": r"^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$",
            })
        };
        json!({"type": "object", "description": description, "properties": {
            "cpu": amount("CPU, such as `10m`."),
            "memory": amount("Memory, such as `32Mi`."),
            "ephemeral-storage": amount("Storage of the container, such as `10Mi`."),
        }})
    };
    json_schema!({"type": "object", "properties": {
        "requests": amounts("What a node must have."),
        "limits": amounts("What the container may use."),
    }})
}

fn affinity(_: &mut SchemaGenerator) -> Schema {
    let requirements = |description: &str| {
        json!({"type": "array", "maxItems": 16, "description": description, "items": {
            "type": "object", "required": ["key", "operator"], "properties": {
                "key": {"type": "string", "minLength": 1, "maxLength": KEY_LENGTH, "description": "The label or field."},
                "operator": {
                    "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
                    "description": "How it is compared with `values`.",
                },
                "values": {
                    "type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 253},
                    "description": "The values.",
                },
            },
        }})
    };
    let terms = json!({
        "type": "array", "minItems": 1, "maxItems": 8,
        "description": "A node must match one of them.",
        "items": {"type": "object", "minProperties": 1, "properties": {
            "matchExpressions": requirements("Labels; a node must match all of them."),
            "matchFields": requirements("Fields, such as `metadata.name`; a node must match all of them."),
        }},
    });
    let required = json!({
        "type": "object", "required": ["nodeSelectorTerms"], "properties": {"nodeSelectorTerms": terms},
        "description": "What a node must have.",
    });
    json_schema!({"type": "object", "properties": {"nodeAffinity": {
        "type": "object", "description": "By labels and fields of the node.",
        "properties": {"requiredDuringSchedulingIgnoredDuringExecution": required},
    }}})
}
