//! Computes what applying an object changes in the cluster. Pure.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::format::numbers::plain_numbers;
use crate::terminal::{line, number};

/// Fields that the API server sets.
const SET_BY_SERVER: [&str; 5] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "uid",
];
/// Maximum number of changed fields that are shown per object.
const MOST_FIELDS: usize = 12;
/// Maximum number of characters that are shown of a value.
const LONGEST: usize = 80;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ObjectChange {
    Created,
    /// The object before and after.
    Changed(Value, Value),
    Unchanged,
    Deleted,
    /// The change can't be determined, and why.
    Unknown(String),
}

impl ObjectChange {
    /// `after`: the object after the apply.
    pub(crate) fn between(live: Value, after: Value) -> Self {
        let [live, after] = [live, after].map(|object| plain_numbers(without_server(object)));
        if live == after {
            Self::Unchanged
        } else {
            Self::Changed(live, after)
        }
    }

    /// Whether the change affects an existing object, or may do so.
    pub(crate) fn affects_existing(&self) -> bool {
        !matches!(self, Self::Created | Self::Unchanged)
    }
}

fn without_server(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !SET_BY_SERVER.contains(&field.as_str()));
    }
    object
}

/// The live object, overlaid with the fields of the manifest. A list of another length replaces the live one.
pub(crate) fn overlay(live: &Value, manifest: &Value) -> Value {
    match (live, manifest) {
        (Value::Object(live), Value::Object(manifest)) => {
            let mut merged = live.clone();
            // The API server drops empty fields.
            let is_kept =
                |(name, value): &(&String, &Value)| live.contains_key(*name) || !is_empty(value);
            for (name, value) in manifest.iter().filter(is_kept) {
                let below = live
                    .get(name)
                    .map_or_else(|| value.clone(), |live| overlay(live, value));
                merged.insert(name.clone(), below);
            }
            merged.into()
        }
        (Value::Array(live), Value::Array(manifest)) if live.len() == manifest.len() => {
            let pairs = live.iter().zip(manifest);
            pairs
                .map(|(live, manifest)| overlay(live, manifest))
                .collect()
        }
        _ => manifest.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// A line per changed object with its fields, and the number of unchanged objects. `how`: the words before and after
/// the verb in each line.
pub(crate) fn text(changes: &[(String, ObjectChange)], how: (&str, &str)) -> String {
    let (would, suffix) = how;
    let mut text = String::new();
    let mut unchanged = 0;
    for (title, change) in changes {
        // Writing to a string can't fail.
        let _ = match change {
            ObjectChange::Created => writeln!(text, "{title} {would}created{suffix}"),
            ObjectChange::Deleted => writeln!(text, "{title} {would}deleted{suffix}"),
            ObjectChange::Unknown(reason) => writeln!(text, "{title} unknown: {reason}"),
            ObjectChange::Changed(before, after) => {
                let mut fields = Vec::new();
                differences("", before, after, &mut fields);
                let rest = fields.len().saturating_sub(MOST_FIELDS);
                let _ = writeln!(text, "{title} {would}changed{suffix}");
                for field in fields.iter().take(MOST_FIELDS) {
                    let _ = writeln!(text, "    {field}");
                }
                if rest > 0 {
                    let _ = writeln!(text, "    and {rest} more fields");
                }
                Ok(())
            }
            ObjectChange::Unchanged => {
                unchanged += 1;
                Ok(())
            }
        };
    }
    if unchanged > 0 {
        let _ = writeln!(text, "{} unchanged", number(unchanged, "object"));
    }
    text
}

/// Adds a line for each field that differs: `spec.replicas: 1 -> 2`. List elements are identified by their name or,
/// without one, by their index.
fn differences(path: &str, before: &Value, after: &Value, lines: &mut Vec<String>) {
    if before == after {
        return;
    }
    let (before_fields, after_fields) = (fields(before), fields(after));
    let (Some(old), Some(new)) = (before_fields, after_fields) else {
        lines.push(format!("{path}: {} -> {}", shown(before), shown(after)));
        return;
    };
    let names = old
        .keys()
        .chain(new.keys().filter(|name| !old.contains_key(*name)));
    for name in names {
        let below = match (path, before.is_array()) {
            (path, true) => format!("{path}[{name}]"),
            ("", false) => name.clone(),
            (path, false) => format!("{path}.{name}"),
        };
        let none = Value::Null;
        let (old, new) = (
            old.get(name).unwrap_or(&none),
            new.get(name).unwrap_or(&none),
        );
        differences(&below, old, new, lines);
    }
}

/// The fields of an object, or the elements of a list by name; `None` for a scalar.
fn fields(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields.clone()),
        Value::Array(items) => {
            let named = items.iter().enumerate().map(|(at, item)| {
                let name = item.get("name").and_then(Value::as_str);
                (
                    name.map_or_else(|| at.to_string(), str::to_owned),
                    item.clone(),
                )
            });
            Some(named.collect())
        }
        _ => None,
    }
}

fn shown(value: &Value) -> String {
    if value.is_null() {
        return "(none)".to_owned();
    }
    let text = value.to_string();
    let mut short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    line(&short).into_owned()
}

/// Both sides for an external diff program: name, before, after.
pub(crate) fn files(changes: &[(String, ObjectChange)]) -> Vec<(String, String, String)> {
    let yaml = |value: &Value| serde_saphyr::to_string(value).unwrap_or_default();
    let sides = |change: &ObjectChange| match change {
        ObjectChange::Changed(before, after) => Some((yaml(before), yaml(after))),
        _ => None,
    };
    let files = changes.iter().filter_map(|(title, change)| {
        let (before, after) = sides(change)?;
        let name = title.replace('/', ".").replace(" (namespace ", ".");
        Some((name.trim_end_matches(')').to_owned(), before, after))
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_is_shown_by_its_fields() {
        let live = json!({
            "metadata": {"name": "d", "resourceVersion": "1", "generation": 1, "managedFields": []},
            "spec": {"replicas": 1, "old": true, "containers": [{"name": "c", "image": "r/c:1", "args": ["a"]}]},
            "status": {"replicas": 1},
        });
        let after = json!({
            "metadata": {"name": "d", "resourceVersion": "2", "generation": 2},
            "spec": {"replicas": 2, "containers": [{"name": "c", "image": "r/c:2", "args": ["a", "b"]}]},
        });
        let other_spec = ObjectChange::between(live.clone(), after);
        assert!(other_spec.affects_existing());
        let mut other = live.clone();
        other["status"]["replicas"] = json!(2);
        other["metadata"]["resourceVersion"] = json!("3");
        let other_status = ObjectChange::between(live, other);
        assert_eq!(other_status, ObjectChange::Unchanged);
        let changes = [
            ("deployment.apps/d (namespace n)".to_owned(), other_spec),
            ("role/r".to_owned(), ObjectChange::Created),
            ("role/s".to_owned(), other_status),
            ("role/t".to_owned(), ObjectChange::Unknown("no".to_owned())),
        ];
        let expected = "\
deployment.apps/d (namespace n) changed
    spec.containers[c].args[1]: (none) -> \"b\"
    spec.containers[c].image: \"r/c:1\" -> \"r/c:2\"
    spec.old: true -> (none)
    spec.replicas: 1 -> 2
role/r created
role/t unknown: no
1 object unchanged
";
        assert_eq!(text(&changes, ("", "")), expected);
        let asked = text(&changes, ("would be ", ""));
        assert!(asked.contains("role/r would be created\n"), "{asked}");
        let dry_run = text(&changes, ("", " (dry run)"));
        assert!(
            dry_run.contains("d (namespace n) changed (dry run)\n"),
            "{dry_run}"
        );
        assert!(dry_run.contains("role/r created (dry run)\n"), "{dry_run}");
        let files = files(&changes);
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].0, "deployment.apps.d.n");
        assert!(files[0].1.contains("r/c:1") && files[0].2.contains("r/c:2"));
    }

    #[test]
    fn a_number_is_the_same_however_it_is_written() {
        let live = json!({"a": 10, "b": [0, 1], "c": 1.5, "d": 9_007_199_254_740_991_i64});
        let after = json!({"a": 10.0, "b": [0.0, 1.0], "c": 1.5, "d": 9_007_199_254_740_991.0});
        assert_eq!(
            ObjectChange::between(live.clone(), after),
            ObjectChange::Unchanged
        );
        let other = ObjectChange::between(live, json!({"a": 11.0, "b": [0, 1], "c": 1.5}));
        let text = text(&[("x/y".to_owned(), other)], ("", ""));
        assert!(text.contains("    a: 10 -> 11\n"), "{text}");
    }

    #[test]
    fn long_changes_are_cut() {
        let object = |number: i32| {
            let fields = (0..20).map(|at| (format!("f{at:02}"), json!(number)));
            Value::Object(fields.collect())
        };
        let changes = [(
            "a/b".to_owned(),
            ObjectChange::between(object(1), object(2)),
        )];
        let text = text(&changes, ("", ""));
        assert!(
            text.ends_with("    f11: 1 -> 2\n    and 8 more fields\n"),
            "{text}"
        );
        assert!(shown(&json!("x".repeat(200))).len() < 100);
    }

    #[test]
    fn without_the_server_only_named_fields_count() {
        let live = json!({"spec": {"a": 1, "default": true, "list": [{"b": 1, "default": true}]}});
        let same = json!({"spec": {"a": 1, "list": [{"b": 1, "none": null}], "empty": {}}});
        assert_eq!(overlay(&live, &same), live);
        let other = json!({"spec": {"a": 2, "list": [{"b": 1}, {"b": 2}]}});
        let expected = json!({"spec": {"a": 2, "default": true, "list": [{"b": 1}, {"b": 2}]}});
        assert_eq!(overlay(&live, &other), expected);
    }
}
