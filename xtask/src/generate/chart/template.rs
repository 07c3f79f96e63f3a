//! Turns an object with marked strings into a Helm template. A mark such as `«namespace»` stands for an expression of Helm.

use serde_json::{Map, Value, json};

/// The expression that replaces a mark.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    /// One expression, such as `{{ $.Values.namespace }}`.
    Text(String),
    /// A list element: left out if it is not the first of its list and the condition is false.
    Unless { condition: String, text: String },
    /// A list element that stands for many: one for each element of the list, which is `.` in the text.
    Each { list: String, text: String },
}

/// Marks with what they stand for; the first that occurs in a string decides how it is written, and all `Each` of one string
/// have the same list.
pub(super) type Marks = Vec<(String, Mark)>;

/// A value that is an expression as a whole; see [`fragment`].
enum Fragment {
    /// A string with expressions.
    Scalar(String),
    /// A list element, between these two lines.
    Item { before: String, text: String },
    /// A number or another value that is not a string.
    Raw(String),
    /// A field that is left out if the expression is empty: a map or a list.
    Field(String),
    /// A field that is left out if the expression is empty: a word.
    Word(String),
    /// The fields of this map, in place of the marked field.
    Fields(String),
}

/// Value of a field that is a number.
pub(super) fn raw(expression: &str) -> Value {
    json!(format!("«raw {expression}»"))
}

/// Value of a field that is left out if the expression is empty, and otherwise has its value: a map or a list.
pub(super) fn field(expression: &str) -> Value {
    json!(format!("«field {expression}»"))
}

/// Like [`field`], for a word.
pub(super) fn word(expression: &str) -> Value {
    json!(format!("«word {expression}»"))
}

/// Adds the fields of a map to this one.
pub(super) fn add_fields(map: &mut Map<String, Value>, expression: &str) {
    map.insert(format!("«fields {expression}»"), Value::Null);
}

/// The object as YAML with expressions of Helm.
pub(super) fn write(object: &Value, marks: &Marks) -> String {
    let mut fragments = Vec::new();
    let object = take(object, marks, 0, &mut fragments);
    let yaml = globalps_manifests::to_yaml(&[object]);
    let mut text = String::new();
    for line in yaml.lines().skip(1) {
        match placeholder(line) {
            Some((before, number)) => text.push_str(&put(before, &fragments[number])),
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Replaces each marked value by a placeholder without characters that YAML quotes or folds at.
fn take(value: &Value, marks: &Marks, index: usize, found: &mut Vec<Fragment>) -> Value {
    match value {
        Value::String(text) => match fragment(text, marks, index) {
            Some(fragment) => json!(keep(fragment, found)),
            None => value.clone(),
        },
        Value::Array(list) => list
            .iter()
            .enumerate()
            // `index + 1`: 0 means that the value is not in a list.
            .map(|(index, value)| take(value, marks, index + 1, found))
            .collect(),
        Value::Object(map) => {
            let fields = map.iter().map(|(key, value)| {
                let marked = key
                    .strip_prefix("«fields ")
                    .and_then(|key| key.strip_suffix('»'));
                match marked {
                    Some(expression) => (
                        keep(Fragment::Fields(expression.to_owned()), found),
                        Value::Null,
                    ),
                    None => (key.clone(), take(value, marks, 0, found)),
                }
            });
            Value::Object(fields.collect())
        }
        _ => value.clone(),
    }
}

fn keep(fragment: Fragment, found: &mut Vec<Fragment>) -> String {
    found.push(fragment);
    format!("PLACEHOLDER{}END", found.len() - 1)
}

/// The part of a line before its placeholder, and the placeholder's number.
fn placeholder(line: &str) -> Option<(&str, usize)> {
    let (before, rest) = line.split_once("PLACEHOLDER")?;
    let (number, _) = rest.split_once("END")?;
    Some((before, number.parse().ok()?))
}

fn put(before: &str, fragment: &Fragment) -> String {
    let indent = before.len() - before.trim_start().len();
    let spaces = " ".repeat(indent);
    match fragment {
        Fragment::Scalar(text) => format!("{before}{}", quoted(text)),
        Fragment::Raw(expression) => format!("{before}{{{{ {expression} }}}}"),
        Fragment::Item { before: open, text } => {
            format!(
                "{spaces}{{{{- {open} }}}}\n{before}{}\n{spaces}{{{{- end }}}}",
                quoted(text)
            )
        }
        Fragment::Field(expression) => {
            let deeper = indent + 2;
            format!(
                "{spaces}{{{{- with {expression} }}}}\n{}\n{spaces}  {{{{- toYaml . | nindent {deeper} }}}}\n{spaces}{{{{- end }}}}",
                before.trim_end()
            )
        }
        Fragment::Word(expression) => {
            format!(
                "{spaces}{{{{- with {expression} }}}}\n{before}{{{{ . }}}}\n{spaces}{{{{- end }}}}"
            )
        }
        Fragment::Fields(expression) => format!(
            "{spaces}{{{{- with {expression} }}}}\n{spaces}{{{{- toYaml . | nindent {indent} }}}}\n{spaces}{{{{- end }}}}"
        ),
    }
}

/// The only style of YAML on one line in which a string is escaped so little that expressions stay as they are. Neither they nor
/// what they give contain a single quote.
fn quoted(text: &str) -> String {
    let (mut result, mut rest) = (String::from("'"), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let (expression, after) = after.split_once("}}").expect("an expression ends");
        result += &before.replace('\'', "''");
        result += &format!("{{{{{expression}}}}}");
        rest = after;
    }
    result + &rest.replace('\'', "''") + "'"
}

/// How a string with marks is written; `None` if it has none. `index`: its number in its list, from 1.
fn fragment(text: &str, marks: &Marks, index: usize) -> Option<Fragment> {
    let whole = text
        .strip_prefix('«')
        .and_then(|text| text.strip_suffix('»'));
    if let Some((kind, expression)) = whole.and_then(|whole| whole.split_once(' ')) {
        let expression = expression.to_owned();
        return match kind {
            "raw" => Some(Fragment::Raw(expression)),
            "field" => Some(Fragment::Field(expression)),
            "word" => Some(Fragment::Word(expression)),
            _ => None,
        };
    }
    if !text.contains('«') {
        return None;
    }
    if text.contains('"') || index == 0 {
        return Some(Fragment::Scalar(inline(text, marks)));
    }
    let before = match first(text, marks) {
        Some(Mark::Each { list, .. }) => Some(format!("range {list}")),
        Some(Mark::Unless { condition, .. }) if index > 1 => Some(format!("if {condition}")),
        _ => None,
    };
    let text = replaced(text, marks);
    Some(match before {
        Some(before) => Fragment::Item { before, text },
        None => Fragment::Scalar(text),
    })
}

/// Replaces the marks of an expression of the admission policies, or of a text. Elements of its lists are in double quotes, and
/// words of an enumeration follow a comma and a space.
fn inline(text: &str, marks: &Marks) -> String {
    let (mut result, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('«') {
        let start = rest[..at]
            .rfind(['"', ' ', '[', '\''])
            .map_or(0, |quote| quote + 1);
        let is_element = rest[..start].ends_with(['"']);
        let ends: &[char] = if is_element {
            &['"']
        } else {
            &[',', ';', ' ', '\'', '"', ']']
        };
        let end = at + rest[at..].find(ends).unwrap_or(rest.len() - at);
        let (open, close) = match is_element {
            true => (start - 1, end + 1),
            false => (start, end),
        };
        let (before, element) = (&rest[..open], &rest[open..close]);
        let separator = [",", ", "]
            .into_iter()
            .find(|comma| before.ends_with(comma));
        let condition = match first(element, marks) {
            Some(Mark::Each { list, .. }) => Some(format!("range {list}")),
            Some(Mark::Unless { condition, .. }) => Some(format!("if {condition}")),
            _ => None,
        };
        let element = replaced(element, marks);
        match (separator, condition) {
            (Some(separator), Some(condition)) => {
                let before = &before[..before.len() - separator.len()];
                result +=
                    &format!("{before}{{{{ {condition} }}}}{separator}{element}{{{{ end }}}}");
            }
            _ => result += &format!("{before}{element}"),
        }
        rest = &rest[close..];
    }
    result + rest
}

/// The mark that decides.
fn first<'a>(text: &str, marks: &'a Marks) -> Option<&'a Mark> {
    let found = marks.iter().find(|(name, _)| text.contains(name.as_str()));
    found.map(|(_, mark)| mark)
}

fn replaced(text: &str, marks: &Marks) -> String {
    marks.iter().fold(text.to_owned(), |text, (name, mark)| {
        let (Mark::Text(with) | Mark::Unless { text: with, .. } | Mark::Each { text: with, .. }) =
            mark;
        text.replace(name, with)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> Marks {
        let mark = |name: &str, mark| (name.to_owned(), mark);
        vec![
            mark("«ns»", Mark::Text("{{ $.ns }}".to_owned())),
            mark(
                "«x»",
                Mark::Each {
                    list: "$.all".to_owned(),
                    text: "{{ . }}".to_owned(),
                },
            ),
            mark(
                "«secret»",
                Mark::Unless {
                    condition: "$.other".to_owned(),
                    text: "{{ $.name }}".to_owned(),
                },
            ),
        ]
    }

    #[test]
    fn each_kind_of_mark_is_written() {
        let mut labels = Map::new();
        labels.insert("a".to_owned(), json!("b"));
        add_fields(&mut labels, "$.labels");
        let object = json!({
            "args": ["run", "--ns=«ns»", "«x».service"],
            "cel": r#"a == 'b' && x in ["run","--ns=«ns»","--unit=«x»"] && y in ["«secret»"] && z in ["a","«secret»"]"#,
            "labels": labels,
            "message": "one of a, b, «x»; see",
            "names": ["«secret»", "«secret»"],
            "replicas": raw("int $.replicas"),
            "priority": word("$.priority"),
            "resources": field("$.resources"),
        });
        let expected = r#"args:
- run
- '--ns={{ $.ns }}'
{{- range $.all }}
- '{{ . }}.service'
{{- end }}
cel: 'a == ''b'' && x in ["run","--ns={{ $.ns }}"{{ range $.all }},"--unit={{ . }}"{{ end }}] && y in ["{{ $.name }}"] && z in ["a"{{ if $.other }},"{{ $.name }}"{{ end }}]'
labels:
  {{- with $.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  a: b
message: 'one of a, b{{ range $.all }}, {{ . }}{{ end }}; see'
names:
- '{{ $.name }}'
{{- if $.other }}
- '{{ $.name }}'
{{- end }}
{{- with $.priority }}
priority: {{ . }}
{{- end }}
replicas: {{ int $.replicas }}
{{- with $.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
"#;
        assert_eq!(write(&object, &marks()), expected);
    }
}
