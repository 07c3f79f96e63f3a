//! The parsed form of a template.

use serde_json::Value;

/// A template that was understood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath(pub(super) Vec<TemplateAction>);

/// Plain text, or the content of one pair of braces.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TemplateAction {
    Print(Path),
    /// The actions up to the matching `End` run for each value.
    Range(Path),
    End,
}

/// Each step takes the values that the previous step produced.
pub(super) type Path = Vec<Segment>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Segment {
    /// Replaces all values by one string.
    Text(Value),
    /// Replaces each value by a number or boolean.
    Constant(Value),
    Field(String),
    /// All fields of an object, or all items of a list.
    Children,
    /// The value and all its descendants.
    Descend,
    /// Counts from the end if negative.
    Index(i64),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: usize,
    },
    Union(Vec<Path>),
    /// The items of a list for which the path finds a value or the comparison holds.
    Filter(Path, Option<(Operator, Path)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}
