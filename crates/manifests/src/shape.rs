//! What an account may write of an object, as CEL expressions that name everything else.
//!
//! The keys of each listed object are iterated over, so that a field that nobody thought of is refused: on the list is what
//! globalps sets and what the API server adds to that. Whatever an object had before may stay.

use k8s_openapi::api::admissionregistration::v1::Validation;
use serde_json::Value;

use super::policy::validation;

/// The fields of an object, or of an object in it.
#[derive(Clone, Default)]
pub(super) struct Shape {
    fields: Vec<(String, Values)>,
    /// Keys that begin so are fields with any text.
    prefix: Option<&'static str>,
}

/// The values that a field may have. Every expression is CEL.
#[derive(Clone)]
pub(super) enum Values {
    /// Anything or nothing: it has no effect, or only the API server sets it.
    Any,
    /// A list of values.
    OneOf(String),
    /// This value, or no such field.
    AbsentOr(String),
    Fields(Shape),
    /// A list of items `i` for which this is true, and of those that it had before.
    Items(String),
    /// The item of this name has these fields.
    Item(&'static str, Shape),
}

/// Fields of metadata that the API server sets, or that RBAC and the rules of a policy restrict.
const METADATA: [&str; 7] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
];

impl Shape {
    /// Exactly this object.
    pub(super) fn of(object: &Value) -> Self {
        let fields = object.as_object().into_iter().flatten();
        let fields = fields.map(|(name, value)| {
            let values = match value {
                Value::Object(map) if !map.is_empty() => Values::Fields(Self::of(value)),
                _ => Values::OneOf(format!("[{}]", cel(value))),
            };
            (name.clone(), values)
        });
        Self {
            fields: fields.collect(),
            prefix: None,
        }
    }

    /// The metadata of an object with these labels, each of them absent or as listed, and annotations.
    pub(super) fn metadata(labels: &[(&str, &[&str])], annotations: Self) -> Self {
        let labels = labels
            .iter()
            .fold(Self::default(), |shape, (name, values)| {
                let values: Vec<Value> = values.iter().map(|&value| value.into()).collect();
                shape.with(name, Values::AbsentOr(cel(&values.into())))
            });
        METADATA
            .into_iter()
            .fold(Self::default(), |shape, name| shape.with(name, Values::Any))
            .with("labels", Values::Fields(labels))
            .with("annotations", Values::Fields(annotations))
    }

    /// Keys with this prefix, and any text.
    pub(super) fn keys(prefix: &'static str) -> Self {
        Self {
            prefix: Some(prefix),
            ..Self::default()
        }
    }

    /// With this field in place of an earlier one of the same name.
    pub(super) fn with(mut self, name: &str, values: Values) -> Self {
        self.fields.retain(|(known, _)| known != name);
        self.fields.push((name.to_owned(), values));
        self
    }

    /// With other values at this path. Every object along the path has a shape.
    pub(super) fn at(mut self, path: &[&str], values: Values) -> Self {
        let [name, rest @ ..] = path else {
            return self;
        };
        if rest.is_empty() {
            return self.with(name, values);
        }
        for (known, field) in &mut self.fields {
            if let (true, Values::Fields(inner)) = (known == name, field) {
                *inner = std::mem::take(inner).at(rest, values);
                break;
            }
        }
        self
    }

    /// The variables that the validation needs, and the validation.
    pub(super) fn rules(&self) -> (Vec<(String, String)>, Validation) {
        let mut rules = Rules::default();
        let before = "oldObject == null ? dyn({}) : dyn(oldObject)";
        rules.object(
            "",
            "whole",
            self,
            ["dyn(object)".to_owned(), before.to_owned()],
        );
        let Rules {
            mut variables,
            refused,
        } = rules;
        variables.push(("refused".to_owned(), refused.join(" + ")));
        let sentence = "only what `kubectl globalps install` allows may be written, and these fields are not, or have other values";
        let validation = Validation {
            message_expression: Some(format!("'{sentence}: ' + variables.refused.join(', ')")),
            ..validation(sentence, "variables.refused.size() == 0")
        };
        (variables, validation)
    }
}

/// Expressions so far.
#[derive(Default)]
struct Rules {
    variables: Vec<(String, String)>,
    /// Each a list of the paths that are refused.
    refused: Vec<String>,
}

impl Rules {
    /// `path`: location of the object, for readers. `name`: of its variable. `now` and `before`: the object and its
    /// previous state; empty if there is none.
    fn object(&mut self, path: &str, name: &str, shape: &Shape, [now, before]: [String; 2]) {
        let (is, was) = (
            format!("variables.{name}"),
            format!("variables.{name}_before"),
        );
        self.variables.push((name.to_owned(), now));
        self.variables.push((format!("{name}_before"), before));
        let names: Vec<Value> = shape
            .fields
            .iter()
            .map(|(name, _)| name.as_str().into())
            .collect();
        let prefix = shape
            .prefix
            .map(|prefix| format!(" || k.startsWith('{prefix}')"));
        let is_known = format!(
            "(k in {}{})",
            cel(&names.into()),
            prefix.unwrap_or_default()
        );
        let paths = format!("map(k, '{}' + k)", within(path, ""));
        self.refused.push(format!(
            "{is}.filter(k, !{is_known} && {is}[?k] != {was}[?k]).{paths}"
        ));
        if is_kept(path) {
            self.refused.push(format!(
                "{was}.filter(k, !{is_known} && !(k in {is})).{paths}"
            ));
        }
        for (field, values) in &shape.fields {
            self.field(&within(path, field), name, field, values);
        }
    }

    /// `object`: variable of the object that has the field.
    fn field(&mut self, path: &str, object: &str, name: &str, values: &Values) {
        let (is, was) = (
            format!("variables.{object}"),
            format!("variables.{object}_before"),
        );
        let (is, was) = (is.as_str(), was.as_str());
        let items = |object: &str| format!("dyn({object}[?'{name}'].orValue([]))");
        match values {
            Values::Any => {}
            Values::OneOf(list) | Values::AbsentOr(list) => {
                // Values that other clients set there may not be removed.
                let absent = match values {
                    Values::AbsentOr(_) => {
                        format!("!('{name}' in {was}) || {was}['{name}'] in {list}")
                    }
                    _ => "false".to_owned(),
                };
                self.refused.push(format!(
                    "((oldObject != null && {is}[?'{name}'] == {was}[?'{name}']) || \
                     ('{name}' in {is} ? {is}['{name}'] in {list} : {absent}) ? [] : ['{path}'])"
                ));
            }
            Values::Fields(shape) => {
                let of = |object: &str| format!("{object}[?'{name}'].orValue({{}})");
                self.object(path, &self.variable(object, name), shape, [of(is), of(was)]);
            }
            Values::Items(allowed) => {
                let named = format!(
                    "map(i, '{path}' + (type(i) == map && 'name' in i ? '[' + i.name + ']' : ''))"
                );
                let (is, was) = (items(is), items(was));
                self.refused.push(format!(
                    "{is}.filter(i, !(i in {was}) && !({allowed})).{named}"
                ));
                if is_kept(path) {
                    self.refused.push(format!(
                        "{was}.filter(i, !(i in {is}) && !({allowed})).{named}"
                    ));
                }
            }
            Values::Item(item, shape) => {
                let ours = format!("i.name == '{item}'");
                self.field(path, object, name, &Values::Items(ours.clone()));
                let of =
                    |object: &str| format!("{}.filter(i, {ours})[?0].orValue({{}})", items(object));
                let path = format!("{path}[{item}]");
                self.object(
                    &path,
                    &self.variable(object, item),
                    shape,
                    [of(is), of(was)],
                );
            }
        }
    }

    /// A name for the object in this field: the field's own, if it is free.
    fn variable(&self, object: &str, field: &str) -> String {
        if self.variables.iter().any(|(name, _)| name == field) {
            format!("{object}_{field}")
        } else {
            field.to_owned()
        }
    }
}

/// Whether what others set there must stay. The account may delete a whole `DaemonSet`, whose spec an earlier release may have written,
/// and it takes rights back that another client added.
fn is_kept(path: &str) -> bool {
    let free = ["spec", "rules", "subjects"];
    !free.iter().any(|part| path.starts_with(part))
}

/// The path of a field.
fn within(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

/// A JSON value as a CEL expression. The elements of a CEL list or map have one type, so those of an object are dynamic.
pub(super) fn cel(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Array(items) => format!("[{}]", joined(items.iter().map(cel).collect())),
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| {
                format!("{}: dyn({})", Value::from(name.as_str()), cel(value))
            });
            format!("{{{}}}", joined(fields.collect()))
        }
        // CEL's literals are a superset of JSON's.
        scalar => scalar.to_string(),
    }
}
