//! References of service accounts to pull secrets. An annotation records which of them globalps added, and only those are removed
//! again: no other name in it is believed. Pure.

use std::collections::BTreeSet;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation};
use kube::ResourceExt;
use serde_json::{Value, json};

/// Maximum number of names that a record can have: who may write a service account may record anything.
pub const RECORDED: usize = 64;
/// Maximum length of the name of an object in Kubernetes.
const NAME_LIMIT: usize = 253;

/// The pull secrets of a service account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Names in its `imagePullSecrets`, in order.
    pub names: Box<[Box<str>]>,
    /// The first names in the annotation, in order; the next change of the record removes what follows them. A reference that another
    /// client removed is still recorded.
    pub recorded: Box<[Box<str>]>,
    has_annotations: bool,
    /// `metadata.resourceVersion`.
    pub version: Box<str>,
}

/// The difference to the desired references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// References to add and to record.
    pub added: Vec<String>,
    /// References to remove, with their record.
    pub removed: Vec<String>,
}

impl References {
    /// `names`: in its `imagePullSecrets`. `annotation`: the key of the record, a comma-separated list of names.
    pub fn of<'a>(
        account: &impl ResourceExt,
        names: impl Iterator<Item = &'a str>,
        annotation: &str,
    ) -> Self {
        let record = account.annotations().get(annotation);
        let record = record.into_iter().flat_map(|names| names.split(','));
        Self {
            names: names.map(Into::into).collect(),
            recorded: record
                .filter(|name| (1..=NAME_LIMIT).contains(&name.len()))
                .take(RECORDED)
                .map(Into::into)
                .collect(),
            has_annotations: !account.annotations().is_empty(),
            version: account.resource_version().unwrap_or_default().into(),
        }
    }

    /// Forgets all but these names of the record; the next change of the record removes them. Programs that copy service accounts
    /// record what globalps never added.
    pub fn believe(&mut self, is_own: impl Fn(&str) -> bool) {
        if !self.recorded.iter().all(|name| is_own(name)) {
            let mut recorded = std::mem::take(&mut self.recorded).into_vec();
            recorded.retain(|name| is_own(name));
            self.recorded = recorded.into();
        }
    }

    /// `None`: it has all wanted references, and no others of globalps but those that stay. References without a record belong to
    /// others and stay.
    pub fn change(&self, wanted: &BTreeSet<&str>, stays: impl Fn(&str) -> bool) -> Option<Change> {
        self.change_if(|name| !has(&self.names, name), wanted, stays)
    }

    /// Like [`Self::change`], for names that only globalps uses: a reference that only lacks its record is recorded again.
    pub fn change_of_own(
        &self,
        wanted: &BTreeSet<&str>,
        stays: impl Fn(&str) -> bool,
    ) -> Option<Change> {
        let is_missing = |name: &str| !has(&self.names, name) || !has(&self.recorded, name);
        self.change_if(is_missing, wanted, stays)
    }

    fn change_if(
        &self,
        is_missing: impl Fn(&str) -> bool,
        wanted: &BTreeSet<&str>,
        stays: impl Fn(&str) -> bool,
    ) -> Option<Change> {
        let missing = wanted.iter().filter(|name| is_missing(name));
        let left_over = self.recorded.iter();
        let left_over = left_over.filter(|name| !wanted.contains(&***name) && !stays(name));
        let change = Change {
            added: missing.map(|name| (*name).to_owned()).collect(),
            removed: left_over.map(|name| String::from(&**name)).collect(),
        };
        let is_none = change.added.is_empty() && change.removed.is_empty();
        (!is_none).then_some(change)
    }

    /// Another client has removed a recorded reference.
    pub fn is_restore(&self, change: &Change) -> bool {
        change.added.iter().any(|name| has(&self.recorded, name))
    }

    /// A JSON patch (RFC 6902) that fails if the service account was written in the meantime.
    pub fn patch(&self, change: &Change, annotation: &str) -> Patch {
        let removed: BTreeSet<&str> = change.removed.iter().map(String::as_str).collect();
        let is_removed = |name: &str| removed.contains(name);
        let is_own = |name: &str| is_removed(name) && has(&self.recorded, name);
        let added = || change.added.iter().map(String::as_str);
        let kept = self.names.iter().map(|name| &**name);
        let kept = kept.filter(|name| !is_own(name));
        let new = || added().filter(|name| !has(&self.names, name));
        let names: Vec<Value> = kept
            .chain(new())
            .map(|name| json!({"name": name}))
            .collect();
        let recorded = self.recorded.iter().map(|name| &**name);
        let mut record: Vec<&str> = recorded.filter(|name| !is_removed(name)).collect();
        record.extend(added().filter(|name| !has(&self.recorded, name)));
        let mut operations = vec![PatchOperation::Test(TestOperation {
            path: PointerBuf::from_tokens(["metadata", "resourceVersion"]),
            value: json!(self.version),
        })];
        let list = PointerBuf::from_tokens(["imagePullSecrets"]);
        if names.len() != self.names.len() || new().next().is_some() {
            operations.push(if names.is_empty() {
                PatchOperation::Remove(RemoveOperation { path: list })
            } else {
                let value = Value::Array(names);
                PatchOperation::Add(AddOperation { path: list, value })
            });
        }
        let annotations = ["metadata", "annotations"];
        let own = PointerBuf::from_tokens([annotations[0], annotations[1], annotation]);
        operations.push(if record.is_empty() {
            PatchOperation::Remove(RemoveOperation { path: own })
        } else if self.has_annotations {
            let value = json!(record.join(","));
            PatchOperation::Add(AddOperation { path: own, value })
        } else {
            let value = json!({annotation: record.join(",")});
            let path = PointerBuf::from_tokens(annotations);
            PatchOperation::Add(AddOperation { path, value })
        });
        Patch(operations)
    }
}

fn has(names: &[Box<str>], name: &str) -> bool {
    names.iter().any(|known| **known == *name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceAccount;

    use super::*;

    const KEY: &str = "globalps.io/attached";

    fn account(names: &[&str], record: Option<&str>) -> Value {
        let names: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let mut account =
            json!({"metadata": {"name": "default", "namespace": "a", "resourceVersion": "7"}});
        if !names.is_empty() {
            account["imagePullSecrets"] = json!(names);
        }
        if let Some(record) = record {
            account["metadata"]["annotations"] = json!({KEY: record});
        }
        account
    }

    fn references(account: &Value) -> References {
        let account: ServiceAccount = serde_json::from_value(account.clone()).unwrap();
        let names = account.image_pull_secrets.iter().flatten();
        References::of(&account, names.map(|it| it.name.as_str()), KEY)
    }

    #[test]
    fn only_recorded_references_are_removed() {
        // Names and record before, wanted names, names and record after; `None`: no change.
        #[rustfmt::skip]
        let cases = [
            (&[][..], None, &["s"][..], Some((&["s"][..], Some("s")))),
            (&["own"], None, &["s"], Some((&["own", "s"], Some("s")))),
            // A reference of another client.
            (&["s"], None, &["s"], None),
            (&["s"], None, &[], None),
            (&["own", "s"], Some("s"), &["s"], None),
            (&["own", "s"], Some("s"), &[], Some((&["own"], None))),
            (&["s"], Some("s"), &[], Some((&[], None))),
            // Another client removed it.
            (&["own"], Some("s"), &["s"], Some((&["own", "s"], Some("s")))),
            (&["own"], Some("s"), &[], Some((&["own"], None))),
            (&["old", "x"], Some("old"), &["s"], Some((&["x", "s"], Some("s")))),
            (&["b", "a", "x"], Some("b,a"), &["a", "c"], Some((&["a", "x", "c"], Some("a,c")))),
            // Duplicates.
            (&["a", "a"], Some("a"), &[], Some((&[], None))),
            (&["a"], Some("a,b"), &["a"], Some((&["a"], Some("a")))),
        ];
        for (names, record, wanted, expected) in cases {
            let before = account(names, record);
            let found = references(&before);
            let change = found.change(&wanted.iter().copied().collect(), |_| false);
            let after = change.as_ref().map(|change| {
                let mut after = before.clone();
                json_patch::patch(&mut after, &found.patch(change, KEY)).unwrap();
                let after = references(&after);
                let text = |names: &[Box<str>]| -> Vec<String> {
                    names.iter().map(ToString::to_string).collect()
                };
                (text(&after.names), text(&after.recorded).join(","))
            });
            let expected = expected.map(|(names, record)| {
                let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
                (names, record.unwrap_or_default().to_owned())
            });
            let case = format!("{names:?} {record:?} {wanted:?}");
            assert_eq!(after, expected, "{case}");
            let is_restore = change.is_some_and(|change| found.is_restore(&change));
            let was_removed = record == Some("s") && !names.contains(&"s") && wanted == ["s"];
            assert_eq!(is_restore, was_removed, "{case}");
        }
    }

    #[test]
    fn an_own_name_without_its_record_gets_the_record_alone() {
        let account = account(&["x", "s"], None);
        let references = references(&account);
        let wanted = BTreeSet::from(["s"]);
        assert_eq!(references.change(&wanted, |_| false), None);
        let change = references.change_of_own(&wanted, |_| false).unwrap();
        let patch = json!(references.patch(&change, KEY));
        let paths = patch.as_array().unwrap().iter();
        let paths: Vec<_> = paths.map(|it| it["path"].as_str().unwrap()).collect();
        assert_eq!(
            paths,
            ["/metadata/resourceVersion", "/metadata/annotations"]
        );
        let recorded = self::account(&["x", "s"], Some("s"));
        let recorded = self::references(&recorded);
        assert_eq!(recorded.change_of_own(&wanted, |_| false), None);
    }

    #[test]
    fn a_record_that_is_too_long_is_replaced_at_once() {
        let names = (0..40_000).map(|number| format!("x{number}"));
        let long = "x".repeat(200_000);
        let record = ["s".to_owned(), long].into_iter().chain(names);
        let record = record.collect::<Vec<_>>().join(",");
        for (wanted, expected) in [(&["s"][..], "s"), (&[], ""), (&["t"], "t")] {
            let mut object = account(&["own", "s", "x1", "x39999"], Some(&record));
            let found = references(&object);
            let wanted = wanted.iter().copied().collect();
            let change = found.change(&wanted, |_| false).unwrap();
            assert!(change.removed.len() <= RECORDED, "{change:?}");
            json_patch::patch(&mut object, &found.patch(&change, KEY)).unwrap();
            let after = references(&object);
            assert_eq!(after.recorded.join(","), expected);
            assert_eq!(after.change(&wanted, |_| false), None, "once");
            let names = after.names.iter().map(|name| &**name);
            let others: Vec<&str> = names.filter(|name| !wanted.contains(name)).collect();
            assert_eq!(others, ["own", "x39999"], "it is not known to be recorded");
        }
    }

    #[test]
    fn a_record_of_other_names_is_ignored_and_goes_with_a_change() {
        for (names, record, wanted, expected) in [
            // A program copied the record to an account with the reference of another client, or added to it.
            (&["own"][..], "own", &[][..], None),
            (
                &["own"],
                "own",
                &["s"],
                Some((&["own", "s"][..], Some("s"))),
            ),
            (&["own", "s"], "own,s", &["s"], None),
            (&["own", "s"], "own,s", &[], Some((&["own"], None))),
        ] {
            let mut object = account(names, Some(record));
            let mut found = references(&object);
            found.believe(|name| name == "s");
            let change = found.change(&wanted.iter().copied().collect(), |_| false);
            let after = change.map(|change| {
                json_patch::patch(&mut object, &found.patch(&change, KEY)).unwrap();
                object
            });
            let expected = expected.map(|(names, record)| account(names, record));
            let annotations = |object: &Value| object["metadata"]["annotations"][KEY].clone();
            let case = format!("{names:?} {record} {wanted:?}");
            assert_eq!(
                after.as_ref().map(annotations),
                expected.as_ref().map(annotations),
                "{case}"
            );
            let secrets = |object: &Value| object["imagePullSecrets"].clone();
            assert_eq!(
                after.as_ref().map(secrets),
                expected.as_ref().map(secrets),
                "{case}"
            );
        }
    }

    #[test]
    fn a_stale_patch_is_rejected() {
        let before = account(&["own"], None);
        let found = references(&before);
        let change = found.change(&["s"].into(), |_| false);
        let patch = found.patch(&change.unwrap(), KEY);
        let mut after = before;
        after["metadata"]["resourceVersion"] = json!("8");
        assert!(json_patch::patch(&mut after, &patch).is_err());
    }
}
