//! References of service accounts to the Secret of their namespace: JSON patches that fail where another client has written the
//! service account since. Pure.

use globalps_core::names::ATTACHED_ANNOTATION;
use serde_json::{Value, json};

use super::views::AccountView;

/// What is missing or left over at a service account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Add the reference, and record it.
    Attach,
    /// Remove the reference that is recorded.
    Detach,
}

/// `None`: nothing is to be done. A reference that is there without the record is somebody else's, and stays.
pub(crate) fn change(account: &AccountView, wanted: Option<&str>) -> Option<Change> {
    let recorded = account.attached.as_deref();
    match wanted {
        _ if account.is_being_deleted => None,
        // One Secret after the other.
        _ if recorded.is_some() && recorded != wanted => Some(Change::Detach),
        Some(_) if account.wanted_at.is_none() => Some(Change::Attach),
        _ => None,
    }
}

/// Operations of an RFC 6902 patch.
pub(crate) fn patch(account: &AccountView, change: Change, secret_name: &str) -> Value {
    let pointer = ATTACHED_ANNOTATION.replace('/', "~1");
    let mut operations = vec![json!({
        "op": "test", "path": "/metadata/resourceVersion", "value": &*account.resource_version,
    })];
    match change {
        Change::Attach => {
            let reference = json!({"name": secret_name});
            operations.push(if account.has_references {
                json!({"op": "add", "path": "/imagePullSecrets/-", "value": reference})
            } else {
                json!({"op": "add", "path": "/imagePullSecrets", "value": [reference]})
            });
            operations.push(if account.has_annotations {
                let path = format!("/metadata/annotations/{pointer}");
                json!({"op": "add", "path": path, "value": secret_name})
            } else {
                let annotations = json!({ATTACHED_ANNOTATION: secret_name});
                json!({"op": "add", "path": "/metadata/annotations", "value": annotations})
            });
        }
        Change::Detach => {
            if let (Some(at), Some(name)) = (account.attached_at, &account.attached) {
                let path = format!("/imagePullSecrets/{at}");
                operations.push(json!({"op": "test", "path": path, "value": {"name": &**name}}));
                operations.push(json!({"op": "remove", "path": path}));
            }
            let path = format!("/metadata/annotations/{pointer}");
            operations.push(json!({"op": "remove", "path": path}));
        }
    }
    Value::Array(operations)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceAccount;

    use super::*;

    fn account(references: &[&str], attached: Option<&str>) -> ServiceAccount {
        let references: Vec<Value> = references
            .iter()
            .map(|name| json!({"name": name}))
            .collect();
        let mut account =
            json!({"metadata": {"name": "default", "namespace": "a", "resourceVersion": "7"}});
        if !references.is_empty() {
            account["imagePullSecrets"] = json!(references);
        }
        if let Some(name) = attached {
            account["metadata"]["annotations"] = json!({ATTACHED_ANNOTATION: name});
        }
        serde_json::from_value(account).unwrap()
    }

    #[test]
    fn what_is_recorded_is_taken_out_and_nothing_else() {
        for (references, attached, wanted, expected) in [
            (&[][..], None, Some("s"), Some(Change::Attach)),
            (&["own"], None, Some("s"), Some(Change::Attach)),
            // Somebody else's reference.
            (&["s"], None, Some("s"), None),
            (&["s"], None, None, None),
            (&["own", "s"], Some("s"), Some("s"), None),
            (&["own", "s"], Some("s"), None, Some(Change::Detach)),
            // Somebody removed it.
            (&["own"], Some("s"), Some("s"), Some(Change::Attach)),
            (&["own"], Some("s"), None, Some(Change::Detach)),
            (&["old"], Some("old"), Some("s"), Some(Change::Detach)),
        ] {
            let view = AccountView::new(&account(references, attached), "s");
            assert_eq!(
                change(&view, wanted),
                expected,
                "{references:?} {attached:?} {wanted:?}"
            );
        }
    }

    #[test]
    fn a_patch_names_what_it_expects() {
        let of = |references: &[&str], attached, change| {
            let view = AccountView::new(&account(references, attached), "s");
            let patch = patch(&view, change, "s");
            let operations = patch.as_array().unwrap().clone();
            let words = operations.iter().map(|one| {
                let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
                format!("{} {}", text("op"), text("path"))
            });
            words.skip(1).collect::<Vec<_>>().join(", ")
        };
        let annotation = "/metadata/annotations/globalps.io~1attached";
        assert_eq!(
            of(&[], None, Change::Attach),
            "add /imagePullSecrets, add /metadata/annotations"
        );
        assert_eq!(
            of(&["own"], Some("s"), Change::Attach),
            format!("add /imagePullSecrets/-, add {annotation}")
        );
        assert_eq!(
            of(&["own", "s"], Some("s"), Change::Detach),
            format!("test /imagePullSecrets/1, remove /imagePullSecrets/1, remove {annotation}")
        );
        assert_eq!(
            of(&["own"], Some("s"), Change::Detach),
            format!("remove {annotation}")
        );
    }
}
