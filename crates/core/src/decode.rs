//! Decodes objects that other programs write, each on its own: one that can't be decoded is [`Unreadable`], and the others of its
//! list or watch are not affected. Times and numbers that are not plausible count as absent. Pure.

// Times and numbers of other programs must not overflow.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// Seconds of the first and last plausible time, the years 1970 to 2199: a node without a battery starts at the first one. The
/// difference of two such times never overflows.
const PLAUSIBLE: (i64, i64) = (0, 7_258_118_399);
/// The largest integer that every JSON reader represents exactly.
const MAX_NUMBER: i64 = (1 << 53) - 1;
/// Maximum length of the path of a field, in characters.
const FIELD_LIMIT: usize = 200;
/// Maximum size of an object's labels as JSON. Kubernetes has no limit, and a reader may keep them all.
const LABELS_LIMIT: usize = 64 << 10;
const LABELS: &str = "metadata.labels";
/// Annotations of other programs, and longer ones, are not kept of an object that can't be decoded.
const OWN_ANNOTATION: &str = "globalps.io/";
const ANNOTATION_LIMIT: usize = 1024;

/// An object that exists but can't be decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// Only name, namespace, uid, annotations of globalps, generation, `resourceVersion` and the time of the deletion.
    pub metadata: ObjectMeta,
    /// Path of the field that can't be decoded or is too large, such as `spec.rollout.maxUnavailable`. Never its value, which may
    /// be a credential. Empty: the object itself.
    pub field: String,
}

impl Unreadable {
    /// Empty if even that is unreadable.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Empty if the object has none, or if even that is unreadable.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Kind, namespace and name of the object, and why it is unreadable.
    pub fn titled(&self, kind: &str) -> String {
        match self.namespace() {
            "" => format!("{kind} `{}`: {self}", self.name()),
            namespace => format!("{kind} `{namespace}/{}`: {self}", self.name()),
        }
    }
}

/// Why it is unreadable, as a clause.
impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str("it can't be decoded"),
            LABELS => write!(f, "its labels are larger than {} KiB", LABELS_LIMIT >> 10),
            field => write!(f, "its field `{field}` can't be decoded"),
        }
    }
}

/// An object of a list or watch. `OWNERS`: it keeps its managed fields. Otherwise they are dropped before they are decoded.
#[derive(Clone, Debug)]
pub enum Item<K, const OWNERS: bool = false> {
    /// Decoded.
    Readable(K),
    /// Named, with the field that can't be decoded.
    Unreadable(Box<Unreadable>),
}

/// An object with its managed fields.
pub type Owned<K> = Item<K, true>;

impl<K, const OWNERS: bool> Item<K, OWNERS> {
    /// Fails for an unreadable object, with its name and field.
    pub fn into_result(self) -> Result<K, Box<Unreadable>> {
        match self {
            Self::Readable(object) => Ok(object),
            Self::Unreadable(unreadable) => Err(unreadable),
        }
    }
}

impl<'de, K: DeserializeOwned, const OWNERS: bool> Deserialize<'de> for Item<K, OWNERS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        decode(&text).map_err(D::Error::custom)
    }
}

/// A JSON value as text. A [`RawValue`] can only be read from JSON itself; the object of a watch event that begins with the
/// object is read from memory.
struct Text(Box<RawValue>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // With another name, serde_json would serialize the value to text again, which takes longer.
        deserializer.deserialize_newtype_struct("$serde_json::private::RawValue", TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
        Box::<RawValue>::deserialize(MapAccessDeserializer::new(map)).map(Text)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text, D::Error> {
        let value = Value::deserialize(deserializer)?;
        to_raw_value(&value).map(Text).map_err(D::Error::custom)
    }
}

impl<K: Resource, const OWNERS: bool> Resource for Item<K, OWNERS> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn api_version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::api_version(dynamic)
    }

    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Readable(object) => object.meta(),
            Self::Unreadable(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Readable(object) => object.meta_mut(),
            Self::Unreadable(unreadable) => &mut unreadable.metadata,
        }
    }
}

/// Makes a type with a field `metadata` a resource that is read like another one, of which it has some fields:
/// `view!(NodeFields: Node)`.
#[macro_export]
macro_rules! view {
    ($($view:ty: $whole:ty),*) => {$(
        impl ::kube::Resource for $view {
            type DynamicType = ();
            type Scope = <$whole as ::kube::Resource>::Scope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::kind(&())
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::group(&())
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::version(&())
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::plural(&())
            }

            fn meta(&self) -> &::kube::core::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::kube::core::ObjectMeta {
                &mut self.metadata
            }
        }
    )*};
}

/// The fields of an object or of its metadata, not decoded yet.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// Decodes one object. An error means that the data is not an object at all.
pub fn decode<K: DeserializeOwned, const OWNERS: bool>(
    text: &RawValue,
) -> serde_json::Result<Item<K, OWNERS>> {
    let mut object: Fields = serde_json::from_str(text.get())?;
    let mut metadata: Fields = match object.get("metadata") {
        Some(metadata) => serde_json::from_str(metadata.get()).unwrap_or_default(),
        None => Fields::new(),
    };
    let owners = metadata.remove("managedFields").filter(|_| OWNERS);
    let owners = owners.and_then(with_plausible_times);
    if let Some(owners) = &owners {
        metadata.insert("managedFields".to_owned(), owners);
    }
    metadata.retain(|key, value| key != "creationTimestamp" || is_plausible(value));
    // Only the presence of a time matters, not its value.
    let deleted = to_raw_value(&Timestamp::UNIX_EPOCH)?;
    if let Some(time) = metadata.get_mut("deletionTimestamp")
        && time.get() != "null"
        && !is_plausible(time)
    {
        *time = &deleted;
    }
    let labels = metadata.get("labels");
    if labels.is_some_and(|labels| labels.get().len() > LABELS_LIMIT) {
        return Ok(Item::Unreadable(Box::new(Unreadable {
            metadata: identity(&metadata),
            field: LABELS.to_owned(),
        })));
    }
    let head = to_raw_value(&metadata)?;
    object.insert("metadata".to_owned(), &head);
    let text = serde_json::to_string(&object)?;
    Ok(match serde_json::from_str(&text) {
        Ok(object) => Item::Readable(object),
        Err(error) => Item::Unreadable(Box::new(Unreadable {
            metadata: identity(&metadata),
            field: field_at(&text, error.line(), error.column()),
        })),
    })
}

fn identity(metadata: &Fields) -> ObjectMeta {
    fn get<T: DeserializeOwned>(metadata: &Fields, key: &str) -> Option<T> {
        serde_json::from_str(metadata.get(key)?.get()).ok()
    }
    let mut annotations: Option<BTreeMap<String, String>> = get(metadata, "annotations");
    if let Some(annotations) = &mut annotations {
        annotations.retain(|key, value| {
            key.starts_with(OWN_ANNOTATION) && value.len() <= ANNOTATION_LIMIT
        });
    }
    ObjectMeta {
        name: get(metadata, "name"),
        namespace: get(metadata, "namespace"),
        uid: get(metadata, "uid"),
        annotations,
        generation: get(metadata, "generation"),
        resource_version: get(metadata, "resourceVersion"),
        deletion_timestamp: get(metadata, "deletionTimestamp"),
        ..ObjectMeta::default()
    }
}

/// The managed fields, each entry without its time if that is not plausible.
fn with_plausible_times(owners: &RawValue) -> Option<Box<RawValue>> {
    let mut entries: Vec<Fields> = serde_json::from_str(owners.get()).ok()?;
    for entry in &mut entries {
        entry.retain(|key, value| key != "time" || is_plausible(value));
    }
    to_raw_value(&entries).ok()
}

fn is_plausible(time: &RawValue) -> bool {
    let time: Option<Value> = serde_json::from_str(time.get()).ok();
    time.is_some_and(|time| plausible_time(&time).is_some())
}

fn plausible_time(value: &Value) -> Option<Timestamp> {
    let time: Timestamp = value.as_str()?.parse().ok()?;
    let (first, last) = PLAUSIBLE;
    (first..=last).contains(&time.as_second()).then_some(time)
}

/// A time that another program wrote; `None` unless it is plausible.
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(plausible_time(&value).map(Time))
}

/// A number that another program wrote; 0 unless it is a whole number from 0 to 2^53 - 1.
pub fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let number = value.as_i64().unwrap_or_default();
    Ok(if (0..=MAX_NUMBER).contains(&number) {
        number
    } else {
        0
    })
}

/// One level of the parser's path.
enum PathStep {
    Key(String),
    Index(usize),
}

/// Path of the field that ends at this position of a JSON document.
fn field_at(text: &str, line: usize, column: usize) -> String {
    let lines = text.split_inclusive('\n').take(line.saturating_sub(1));
    let begin: usize = lines.map(str::len).sum();
    let end = begin.saturating_add(column).min(text.len());
    let mut path = Vec::new();
    let mut string: Option<Vec<u8>> = None;
    let mut last = Vec::new();
    let mut is_escaped = false;
    for byte in text.bytes().take(end) {
        if let Some(content) = &mut string {
            if byte == b'"' && !is_escaped {
                last = string.take().unwrap_or_default();
            } else {
                content.push(byte);
            }
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        match byte {
            b'"' => {
                string = Some(Vec::new());
                is_escaped = false;
            }
            b'{' => path.push(PathStep::Key(String::new())),
            b'[' => path.push(PathStep::Index(0)),
            b'}' | b']' => drop(path.pop()),
            b':' => {
                if let Some(PathStep::Key(key)) = path.last_mut() {
                    *key = String::from_utf8_lossy(&last).into_owned();
                }
            }
            b',' => {
                if let Some(PathStep::Index(index)) = path.last_mut() {
                    *index = index.saturating_add(1);
                }
            }
            _ => {}
        }
    }
    let mut field = String::new();
    for step in path {
        match step {
            PathStep::Index(index) => {
                field.push('[');
                field.push_str(&index.to_string());
                field.push(']');
            }
            PathStep::Key(key) => {
                if !field.is_empty() {
                    field.push('.');
                }
                field.push_str(&key);
            }
        }
    }
    let printable = field.chars().filter(|char| !char.is_control());
    printable.take(FIELD_LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use kube::ResourceExt as _;
    use kube::core::{ObjectList, PartialObjectMeta, WatchEvent};
    use serde_json::json;

    use super::*;
    use crate::api::{FleetPullSecret, GlobalPullSecret, NodePullSecret};

    fn read<K: DeserializeOwned>(object: &Value) -> Result<K, Box<Unreadable>> {
        let item: Item<K> = serde_json::from_str(&object.to_string()).unwrap();
        item.into_result()
    }

    #[test]
    fn an_unreadable_object_is_named_with_its_field_not_its_value() {
        let object = |part: Value| {
            let mut object = json!({
                "apiVersion": "v1", "kind": "K",
                "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"},
                "spec": {},
            });
            object
                .as_object_mut()
                .unwrap()
                .extend(part.as_object().unwrap().clone());
            object
        };
        for (part, field) in [
            (
                json!({"spec": {"rollout": {"maxUnavailable": 3_000_000_000_u32, "paused": true}}}),
                "spec.rollout.maxUnavailable",
            ),
            (json!({"spec": {"rollout": "fast"}}), "spec.rollout"),
            (
                json!({"spec": {"rollout": {"paused": "pass\"word"}}}),
                "spec.rollout.paused",
            ),
            (
                json!({"spec": {"sources": [{"name": "a"}, {"name": 3}]}}),
                "spec.sources[1].name",
            ),
            (
                json!({"spec": {"sources": [{"name": "a"}, {}]}}),
                "spec.sources[1]",
            ),
            (
                json!({"spec": {"nodeSelector": {"a\"b": 1}}}),
                "spec.nodeSelector.a\\\"b",
            ),
            (json!({"spec": 3}), "spec"),
        ] {
            let unreadable = read::<GlobalPullSecret>(&object(part.clone())).unwrap_err();
            assert_eq!(unreadable.field, field, "{part}");
            assert_eq!((unreadable.name(), unreadable.namespace()), ("a", "n"));
            assert_eq!(unreadable.metadata.resource_version.as_deref(), Some("7"));
            assert!(!unreadable.to_string().contains("password"), "{unreadable}");
        }
        let whole = read::<FleetPullSecret>(&json!({"metadata": {"name": "a"}})).unwrap_err();
        assert_eq!(whole.to_string(), "it can't be decoded");
    }

    #[test]
    fn what_is_kept_of_an_object_has_a_limit() {
        let object = |labels: usize| {
            let labels: BTreeMap<_, _> = (0..labels).map(|at| (format!("k{at:06}"), "")).collect();
            json!({"metadata": {"name": "a", "labels": labels, "annotations": {
                "x.io/y": "z".repeat(250_000), "globalps.io/long": "z".repeat(2000), "globalps.io/retry": "1",
            }}})
        };
        assert!(read::<PartialObjectMeta<Secret>>(&object(5000)).is_ok());
        let unreadable = read::<PartialObjectMeta<Secret>>(&object(6000)).unwrap_err();
        let expected = "ServiceAccount `a`: its labels are larger than 64 KiB";
        assert_eq!(unreadable.titled("ServiceAccount"), expected);
        let kept = unreadable.metadata.annotations.unwrap();
        assert!(kept.keys().eq(["globalps.io/retry"]), "{:?}", kept.keys());
    }

    #[test]
    fn one_unreadable_object_harms_neither_its_list_nor_its_watch() {
        let object = |name: &str, revision: Value| json!({"metadata": {"name": name, "resourceVersion": "7"}, "spec": {"revision": revision, "restore": false}});
        let items = [
            object("a", json!(1)),
            object("b", json!([])),
            object("c", json!(3)),
        ];
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items});
        let list: ObjectList<Item<NodePullSecret>> =
            serde_json::from_str(&list.to_string()).unwrap();
        let found = list
            .items
            .iter()
            .map(|item| (item.name_any(), matches!(item, Item::Readable(_))));
        let expected = [("a", true), ("b", false), ("c", true)];
        assert!(found.eq(expected.map(|(name, is)| (name.to_owned(), is))));
        for item in items {
            for event in [
                format!(r#"{{"type":"MODIFIED","object":{item}}}"#),
                format!(r#"{{"object":{item},"type":"MODIFIED"}}"#),
            ] {
                let event: WatchEvent<Item<NodePullSecret>> = serde_json::from_str(&event).unwrap();
                let version = match &event {
                    WatchEvent::Modified(item) => item.resource_version(),
                    _ => None,
                };
                assert_eq!(version.as_deref(), Some("7"), "{event:?}");
            }
        }
    }

    #[test]
    fn implausible_times_of_metadata_harm_nothing() {
        let object = |time: Value| {
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
                "name": "a", "creationTimestamp": time, "deletionTimestamp": time,
                "managedFields": [{"manager": "m", "operation": "Apply", "time": time, "fieldsV1": {"f:data": {}}}],
            }})
        };
        for (time, is_plausible) in [
            (json!("2026-01-01T00:00:00Z"), true),
            (json!("9999-12-31T00:00:00Z"), false),
            (json!("9999-12-31T23:59:60-23:59"), false),
            (json!("0000-01-01T00:00:00Z"), false),
            (json!("1969-12-31T23:59:59Z"), false),
            (json!("2200-01-01T00:00:00Z"), false),
            (json!("soon"), false),
            (json!(17), false),
        ] {
            let secret = read::<Secret>(&object(time.clone())).unwrap();
            assert_eq!(secret.metadata.managed_fields, None);
            assert_eq!(
                secret.metadata.creation_timestamp.is_some(),
                is_plausible,
                "{time}"
            );
            assert!(secret.metadata.deletion_timestamp.is_some(), "{time}");
            let text = object(time.clone()).to_string();
            let owned: Owned<PartialObjectMeta<Secret>> = serde_json::from_str(&text).unwrap();
            let owned = owned.into_result().unwrap();
            let entry = &owned.managed_fields()[0];
            assert_eq!(entry.manager.as_deref(), Some("m"));
            assert!(entry.fields_v1.is_some());
            assert_eq!(entry.time.is_some(), is_plausible, "{time}");
        }
    }

    #[test]
    fn implausible_times_and_numbers_of_a_status_are_absent() {
        let object = |time: Value, number: Value| {
            json!({"metadata": {"name": "a"}, "spec": {}, "status": {
                "phase": "Synced", "lastTransitionTime": time, "kubeletRestartedAt": time,
                "revision": number, "observedGeneration": number, "restarts": number,
                "drifts": number,
            }})
        };
        for (time, number, expected) in [
            (json!("2026-01-01T00:00:00Z"), json!(3), Some(3)),
            (json!("9999-12-31T00:00:00Z"), json!(-1), None),
            (json!("-009999-01-02T01:59:59Z"), json!(u64::MAX), None),
            (json!(""), json!(1e300), None),
            (json!(null), json!(null), None),
            (json!({"a": []}), json!("3"), None),
            (json!(9), json!(i64::MAX), None),
        ] {
            let object: NodePullSecret = read(&object(time, number)).unwrap();
            let status = object.status.unwrap();
            assert_eq!(status.last_transition_time.is_some(), expected.is_some());
            assert_eq!(status.kubelet_restarted_at.is_some(), expected.is_some());
            let number = expected.unwrap_or_default();
            assert_eq!(
                (status.revision, status.observed_generation),
                (number, number)
            );
            assert_eq!((status.restarts, status.drifts), (number, number));
        }
    }
}
