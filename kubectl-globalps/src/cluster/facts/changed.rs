//! The last change of a Secret's credentials. Pure.

use jiff::Timestamp;
use kube::api::ObjectMeta;

/// The field manager that changed the credentials last, and the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Name of the field manager.
    pub by: String,
    pub at: Timestamp,
}

impl Changed {
    /// `None` if `managedFields` has no entry for the data.
    pub(super) fn of(metadata: &ObjectMeta) -> Option<Self> {
        let entries = metadata.managed_fields.iter().flatten();
        let of_data = entries.filter(|entry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|fields| fields.0.get("f:data").is_some())
        });
        let all = of_data.filter_map(|entry| {
            Some(Self {
                by: entry.manager.clone()?,
                at: entry.time.as_ref()?.0,
            })
        });
        all.max_by_key(|changed| changed.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_manager_of_the_data_changed_it() {
        let entry = |manager: &str, time: &str, fields: &str| {
            json!({
                "manager": manager, "operation": "Update", "time": time,
                "fieldsType": "FieldsV1", "fieldsV1": {fields: {}},
            })
        };
        let metadata = json!({"managedFields": [
            entry("a", "2026-01-01T00:00:00Z", "f:data"),
            entry("b", "2026-01-02T00:00:00Z", "f:data"),
            entry("c", "2026-01-03T00:00:00Z", "f:metadata"),
        ]});
        let metadata = serde_json::from_value(metadata).expect("metadata");
        assert_eq!(
            Changed::of(&metadata).map(|found| found.by),
            Some("b".to_owned())
        );
        assert_eq!(Changed::of(&ObjectMeta::default()), None);
    }
}
