//! Evaluates a template for a value.

use std::cmp::Ordering;

use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value};

use super::path::{JsonPath, Operator, Path, Segment, TemplateAction};

impl JsonPath {
    /// Like `-o jsonpath=`: separates the values of one pair of braces by spaces.
    pub(crate) fn text(&self, value: &Value) -> Result<String, String> {
        let texts = self.results(value)?.into_iter().map(|values| {
            let texts: Vec<String> = values.into_iter().map(shown).collect();
            texts.join(" ")
        });
        Ok(texts.collect())
    }

    /// Like `-o jsonpath-as-json=`: prints a list for each pair of braces.
    pub(crate) fn lists(&self, value: &Value) -> Result<String, String> {
        let mut text = Vec::new();
        for values in self.results(value)? {
            let format = PrettyFormatter::with_indent(b"    ");
            let mut serializer = Serializer::with_formatter(&mut text, format);
            values
                .serialize(&mut serializer)
                .map_err(|error| error.to_string())?;
            text.push(b'\n');
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn results<'a>(&'a self, value: &'a Value) -> Result<Vec<Vec<&'a Value>>, String> {
        let mut found = Vec::new();
        run(&self.0, value, &mut found)?;
        Ok(found)
    }
}

/// Runs the actions up to the end of the range that contains them.
fn run<'a>(
    actions: &'a [TemplateAction],
    value: &'a Value,
    found: &mut Vec<Vec<&'a Value>>,
) -> Result<(), String> {
    let mut at = 0;
    while let Some(action) = actions.get(at) {
        at += 1;
        match action {
            TemplateAction::End => break,
            TemplateAction::Print(path) => found.push(walk(vec![value], path)?),
            TemplateAction::Range(path) => {
                let body = &actions[at..];
                for item in walk(vec![value], path)? {
                    run(body, item, found)?;
                }
                // Like kubectl: without an `end`, the actions after the range run for each item, and then once for the
                // whole value.
                at += end(body).map_or(0, |end| end + 1);
            }
        }
    }
    Ok(())
}

/// Index of the `End` of the range that contains these actions.
fn end(actions: &[TemplateAction]) -> Option<usize> {
    let mut depth = 0;
    actions.iter().position(|action| {
        match action {
            TemplateAction::Range(_) => depth += 1,
            TemplateAction::End if depth == 0 => return true,
            TemplateAction::End => depth -= 1,
            TemplateAction::Print(_) => {}
        }
        false
    })
}

fn walk<'a>(from: Vec<&'a Value>, path: &'a Path) -> Result<Vec<&'a Value>, String> {
    path.iter().try_fold(from, one)
}

fn one<'a>(from: Vec<&'a Value>, step: &'a Segment) -> Result<Vec<&'a Value>, String> {
    let mut to = Vec::new();
    match step {
        Segment::Text(text) => to.push(text),
        Segment::Constant(value) => to.extend(from.iter().map(|_| value)),
        Segment::Field(name) => to.extend(from.iter().filter_map(|value| value.get(name))),
        Segment::Children => to.extend(from.into_iter().flat_map(children)),
        Segment::Descend => from.into_iter().for_each(|value| descend(value, &mut to)),
        Segment::Index(index) => {
            for list in lists(from)? {
                to.push(&list[at(*index, list.len())?]);
            }
        }
        Segment::Slice { start, end, step } => {
            for list in lists(from)? {
                to.extend(slice(list, *start, *end)?.iter().step_by(*step));
            }
        }
        Segment::Union(paths) => {
            for path in paths {
                to.extend(walk(from.clone(), path)?);
            }
        }
        Segment::Filter(left, test) => {
            for item in lists(from)?.into_iter().flatten() {
                if passes(item, left, test.as_ref())? {
                    to.push(item);
                }
            }
        }
    }
    Ok(to)
}

/// The values as lists; skips `null`.
fn lists(from: Vec<&Value>) -> Result<Vec<&Vec<Value>>, String> {
    let there = from.into_iter().filter(|value| !value.is_null());
    there
        .map(|value| value.as_array().ok_or_else(|| not_a_list(value)))
        .collect()
}

fn not_a_list(value: &Value) -> String {
    format!("{} is not a list", kind(value))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Resolves an index, which counts from the end if negative.
fn at(index: i64, length: usize) -> Result<usize, String> {
    let found = from_the_end(index, length).filter(|at| *at < length);
    found.ok_or_else(|| out_of_bounds(index, length))
}

fn from_the_end(index: i64, length: usize) -> Option<usize> {
    let from_the_start = usize::try_from(index.unsigned_abs()).ok()?;
    if index < 0 {
        length.checked_sub(from_the_start)
    } else {
        Some(from_the_start)
    }
}

fn out_of_bounds(index: i64, length: usize) -> String {
    format!("index {index} is out of bounds of a list of {length}")
}

fn slice(list: &[Value], start: Option<i64>, end: Option<i64>) -> Result<&[Value], String> {
    let length = list.len();
    let bound = |index: Option<i64>, open: usize| match index {
        Some(index) => from_the_end(index, length).ok_or_else(|| out_of_bounds(index, length)),
        None => Ok(open),
    };
    let (from, to) = (bound(start, 0)?, bound(end, length)?);
    if from == to {
        return Ok(&[]);
    }
    list.get(from..to)
        .ok_or_else(|| format!("no slice of a list of {length} is from {from} to {to}"))
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => Map::values(fields).collect(),
        _ => Vec::new(),
    }
}

/// Skips empty values, numbers and booleans.
fn descend<'a>(value: &'a Value, to: &mut Vec<&'a Value>) {
    let children = children(value);
    if !children.is_empty() || value.as_str().is_some_and(|text| !text.is_empty()) {
        to.push(value);
    }
    for child in children {
        descend(child, to);
    }
}

fn passes(item: &Value, left: &Path, test: Option<&(Operator, Path)>) -> Result<bool, String> {
    let found = walk(vec![item], left);
    let Some((operator, right)) = test else {
        return Ok(found.is_ok_and(|found| !found.is_empty()));
    };
    match (single(&found?)?, single(&walk(vec![item], right)?)?) {
        (Some(left), Some(right)) => holds(*operator, left, right),
        _ => Ok(false),
    }
}

fn single<'a>(values: &[&'a Value]) -> Result<Option<&'a Value>, String> {
    match values {
        [] => Ok(None),
        [one] => Ok(Some(one).filter(|value| !value.is_null()).copied()),
        more => Err(format!(
            "a filter compares one value with another, not {}",
            more.len()
        )),
    }
}

fn holds(operator: Operator, left: &Value, right: &Value) -> Result<bool, String> {
    let is_equality = matches!(operator, Operator::Equal | Operator::NotEqual);
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) if is_equality => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            (None, None) => left.as_f64().partial_cmp(&right.as_f64()),
            _ => None,
        },
        _ => None,
    };
    let order = order.ok_or_else(|| {
        let (left, right) = (kind(left), kind(right));
        format!("a filter can't compare {left} with {right} in this way")
    })?;
    Ok(match operator {
        Operator::Equal => order == Ordering::Equal,
        Operator::NotEqual => order != Ordering::Equal,
        Operator::Less => order == Ordering::Less,
        Operator::LessOrEqual => order != Ordering::Greater,
        Operator::Greater => order == Ordering::Greater,
        Operator::GreaterOrEqual => order != Ordering::Less,
    })
}

/// Prints objects and lists as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
