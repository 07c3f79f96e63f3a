//! Requests in the audit log of an API server.

use std::time::SystemTime;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

use crate::Cluster;

/// A request; a watch has two, one for each stage.
pub struct Request {
    pub event: Value,
    /// When the API server received it.
    pub received: SystemTime,
    /// When it responded.
    pub answered: SystemTime,
}

impl Request {
    fn new(event: Value) -> Result<Self> {
        let time = |field: &str| -> Result<SystemTime> {
            let time = event[field].as_str().unwrap_or_default();
            Ok(time.parse::<Timestamp>()?.into())
        };
        Ok(Self {
            received: time("requestReceivedTimestamp")?,
            answered: time("stageTimestamp")?,
            event,
        })
    }

    /// The requests for this resource so far, in the order of the log.
    pub fn all(cluster: &Cluster, resource: &str) -> Result<Vec<Self>> {
        Self::with(cluster, "resource", resource)
    }

    /// The same for everything in this namespace.
    pub fn in_namespace(cluster: &Cluster, namespace: &str) -> Result<Vec<Self>> {
        Self::with(cluster, "namespace", namespace)
    }

    /// Those whose target has this value in this field.
    fn with(cluster: &Cluster, field: &str, value: &str) -> Result<Vec<Self>> {
        let log = std::fs::read_to_string(cluster.audit_log())?;
        let lines = log.lines().filter(|line| line.contains(value));
        // The last line may be incomplete.
        let events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let events = events.filter(|event| event["objectRef"][field] == value);
        events.map(Self::new).collect()
    }
}

/// Whether the event is a write with one of these verbs that the API server accepted.
pub fn is_write(event: &Value, verbs: &[&str]) -> bool {
    let code = event["responseStatus"]["code"].as_u64();
    verbs.iter().any(|verb| event["verb"] == *verb) && code.is_some_and(|code| code < 300)
}
