//! Bodies of responses.

use serde_json::{Value, json};

use crate::request::Right;

/// Status code and body of a response.
pub type Answer = (u16, Value);

/// A failure as an API server reports it.
pub fn failure(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    (code, status)
}

pub(crate) fn success(code: u16) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    (code, status)
}

pub(crate) fn conflict() -> Answer {
    failure(409, "Conflict", "the object has been modified")
}

pub(crate) fn not_found(path: &str) -> Answer {
    failure(404, "NotFound", &format!("{path} not found"))
}

pub(crate) fn forbidden(right: &Right) -> Answer {
    let Right {
        verb,
        resource,
        namespace,
        name,
    } = right;
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let place = match namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let message = format!(
        "{resource} \"{name}\" is forbidden: User \"u\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}"
    );
    failure(403, "Forbidden", &message)
}

/// `has_columns`: whether it is the first event of a watch, or a list.
pub(crate) fn table(nodes: &[&Value], has_columns: bool) -> Value {
    let row = |node: &&Value| {
        let conditions = node["status"]["conditions"].as_array();
        let ready = conditions.is_none_or(|all| all.iter().all(|it| it["status"] == "True"));
        let status = if ready { "Ready" } else { "NotReady" };
        json!({"cells": [node["metadata"]["name"], status], "object": {"metadata": node["metadata"]}})
    };
    let columns = ["Name", "Status"].map(|name| json!({"name": name}));
    let columns = has_columns.then_some(columns);
    let rows: Vec<Value> = nodes.iter().map(row).collect();
    json!({"kind": "Table", "columnDefinitions": columns, "rows": rows})
}

pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "34", "gitVersion": "v1.34.0", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
}
