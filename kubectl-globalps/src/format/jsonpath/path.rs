//! What a template consists of.

use serde_json::Value;

/// A template that was understood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath(pub(super) Vec<Action>);

/// Plain text, or what is in one pair of braces.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Print(Path),
    /// What follows, as far as its end, is repeated for each value.
    Range(Path),
    End,
}

/// Each step begins with the values to which the one before led.
pub(super) type Path = Vec<Step>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// One text in place of all values.
    Text(Value),
    /// A number or a boolean in place of each value.
    Constant(Value),
    Field(String),
    /// All fields of an object, or items of a list.
    Children,
    /// The value and everything in it.
    Descend,
    /// From the end if negative.
    Index(i64),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: usize,
    },
    Union(Vec<Path>),
    /// The items of a list for which the path leads to something, or the comparison holds.
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
