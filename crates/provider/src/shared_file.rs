//! Adds managed entries to a provider configuration that has foreign entries. It edits text, so every foreign byte stays, and
//! finds managed entries again by name. Pure.

use serde_json::Value;

use super::config::{PROVIDERS, TOKEN_ATTRIBUTES};

/// The version of the configuration that has [`TOKEN_ATTRIBUTES`].
const TOKENS_SINCE: &str = "kubelet.config.k8s.io/v1";

/// Why the file is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it in its message")]
pub enum SharedFileError {
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("it can't be parsed: {0}")]
    Unparsable(String),
    #[error("line {line}: {what}")]
    Form { line: usize, what: &'static str },
}

/// The style of the `providers` list.
enum List {
    /// An entry has one or more lines: offset of the next entry, and its indentation.
    Block { end: usize, indent: usize },
    /// A list in brackets: offset of the closing bracket, and whether another entry needs a comma before it.
    Flow { end: usize, comma: bool },
}

/// The file with these entries after the foreign ones. Earlier managed entries are replaced.
pub fn add_entries(file: &[u8], entries: &[Value]) -> Result<Vec<u8>, SharedFileError> {
    let without = remove_entries(file)?;
    let text = str::from_utf8(&without).map_err(|_| SharedFileError::NotText)?;
    let entries_as_json: Vec<String> = entries.iter().map(Value::to_string).collect();
    let with = match list(text)? {
        List::Block { end, indent } => {
            let eol = if text.contains("\r\n") { "\r\n" } else { "\n" };
            let indent = " ".repeat(indent);
            let lines = entries_as_json
                .iter()
                .map(|json| format!("{indent}- {json}"));
            let lines: Vec<String> = lines.collect();
            let lines = lines.join(eol);
            let (before, after) = text.split_at(end);
            if before.ends_with('\n') {
                [before, &lines, eol, after].concat()
            } else {
                [before, eol, &lines, after].concat()
            }
        }
        List::Flow { end, comma } => {
            let comma = if comma { "," } else { "" };
            [
                &text[..end],
                comma,
                &entries_as_json.join(","),
                &text[end..],
            ]
            .concat()
        }
    };
    let mut expected = parsed(text)?;
    let version = expected["apiVersion"].as_str();
    let has_tokens = |entry: &Value| entry.get(TOKEN_ATTRIBUTES).is_some();
    if version.is_some_and(|version| version != TOKENS_SINCE) && entries.iter().any(has_tokens) {
        // No kubelet starts with a field that is unknown in this version.
        let at = text.find("apiVersion").unwrap_or(0);
        let what = "scopes need `apiVersion: kubelet.config.k8s.io/v1`, which kubelets read since Kubernetes 1.26";
        return Err(form(text, at, what));
    }
    if let Some(list) = expected["providers"].as_array_mut() {
        list.extend(entries.iter().cloned());
    }
    if parsed(&with)? != expected || remove_entries(with.as_bytes())? != without {
        return Err(form(
            text,
            0,
            "its format doesn't allow adding another provider",
        ));
    }
    Ok(with.into_bytes())
}

/// The file without what [`add_entries`] added; unchanged if it contains none of it.
pub fn remove_entries(file: &[u8]) -> Result<Vec<u8>, SharedFileError> {
    let text = str::from_utf8(file).map_err(|_| SharedFileError::NotText)?;
    let mut expected = parsed(text)?;
    let mut without = text.to_owned();
    while let Some((start, end)) = entry(&without).or_else(|| rewritten_entry(&without)) {
        without.replace_range(start..end, "");
    }
    if let Some(list) = expected["providers"].as_array_mut() {
        list.retain(|entry| !is_managed(entry));
    }
    // A block list without entries is null.
    let is_same = |found: &Value| {
        let is_empty = expected["providers"].as_array().is_some_and(Vec::is_empty);
        *found == expected || is_empty && found["providers"].is_null()
    };
    if !is_same(&parsed(&without)?) {
        let line = text.find(PROVIDERS[1]).unwrap_or(0);
        return Err(form(
            text,
            line,
            "another process changed the form of an entry of globalps",
        ));
    }
    Ok(without.into_bytes())
}

/// Whether there is any provider: no kubelet starts without one.
pub fn has_providers(file: &[u8]) -> bool {
    let text = str::from_utf8(file).unwrap_or_default();
    let list = parsed(text).map(|mut config| config["providers"].take());
    list.is_ok_and(|list| list.as_array().is_some_and(|list| !list.is_empty()))
}

fn is_managed(entry: &Value) -> bool {
    entry["name"]
        .as_str()
        .is_some_and(|name| PROVIDERS.contains(&name))
}

fn parsed(text: &str) -> Result<Value, SharedFileError> {
    let error = |error: String| {
        // The first line has the position; later lines would quote the file.
        let first = error.lines().next().unwrap_or_default().to_owned();
        SharedFileError::Unparsable(first)
    };
    // The kubelet also accepts JSON, which is YAML.
    let value: Value =
        serde_saphyr::from_str(text).map_err(|problem| error(problem.to_string()))?;
    match value["providers"] {
        Value::Array(_) | Value::Null if value.is_object() => Ok(value),
        _ => Err(form(text, 0, "it has no `providers` list")),
    }
}

fn form(text: &str, at: usize, what: &'static str) -> SharedFileError {
    let line = 1 + text[..at].matches('\n').count();
    SharedFileError::Form { line, what }
}

/// The first managed entry, including the separator that was added with it.
fn entry(text: &str) -> Option<(usize, usize)> {
    text.match_indices('{').find_map(|(start, _)| {
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        values.next()?.ok().filter(is_managed)?;
        let end = start + values.byte_offset();
        Some(separated(text, start, end))
    })
}

/// The first managed entry of a block list that another program has formatted, such as Ansible.
fn rewritten_entry(text: &str) -> Option<(usize, usize)> {
    let Ok(List::Block { end, indent }) = list(text) else {
        return None;
    };
    let dash = " ".repeat(indent) + "-";
    let mut begins = Vec::new();
    let mut at = 0;
    for line in text[..end].split_inclusive('\n') {
        let rest = line.strip_prefix(&dash);
        if rest.is_some_and(|rest| rest.starts_with(char::is_whitespace)) {
            begins.push(at);
        }
        at += line.len();
    }
    let ends = begins.iter().skip(1).copied().chain([end]);
    let mut items = begins.iter().copied().zip(ends);
    items.find_map(|(begin, end)| {
        let item: Value = serde_saphyr::from_str(&text[begin..end]).ok()?;
        // Comments and blank lines at the end belong to what follows.
        let lines = text[begin..end].split_inclusive('\n');
        let lines = lines.scan(begin, |at, line| {
            *at += line.len();
            Some((line.trim(), *at))
        });
        let is_content = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let last = lines.filter(|(line, _)| is_content(line)).last()?;
        is_managed(&item[0]).then_some((begin, last.1))
    })
}

fn separated(text: &str, start: usize, end: usize) -> (usize, usize) {
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let is_item = text[line_start..start].trim_start() == "- ";
    let rest = &text[end..];
    if is_item {
        let eol = ["\r\n", "\n"].into_iter().find(|eol| rest.starts_with(eol));
        return match eol {
            Some(eol) => (line_start, end + eol.len()),
            None => (text[..line_start].trim_end_matches(['\r', '\n']).len(), end),
        };
    }
    if text[..start].ends_with(',') {
        (start - 1, end)
    } else if rest.starts_with(',') {
        (start, end + 1)
    } else {
        (start, end)
    }
}

fn list(text: &str) -> Result<List, SharedFileError> {
    let missing = || form(text, 0, "it has no `providers` list at the top level");
    let trimmed = text.trim_start_matches('\u{feff}').trim_start();
    if trimmed.starts_with('{') {
        let open = key_in_object(text).ok_or_else(missing)?;
        return flow(text, open);
    }
    let mut at = 0;
    let mut lines = text.split_inclusive('\n');
    for line in lines.by_ref() {
        let rest = ["providers:", "\"providers\":", "'providers':"].into_iter();
        let mut rest = rest.filter_map(|key| line.strip_prefix(key));
        if let Some(rest) = rest.next() {
            let value = rest.trim_start();
            if value.starts_with('[') {
                return flow(text, at + line.len() - value.len());
            }
            if value.is_empty() || value.starts_with('#') {
                return block(at + line.len(), lines).ok_or_else(missing);
            }
            return Err(form(
                text,
                at,
                "the `providers` list is neither a block list nor in brackets",
            ));
        }
        at += line.len();
    }
    Err(missing())
}

/// The end of the last line of a list, and its indentation; `None` if it has no entries.
fn block<'a>(begin: usize, lines: impl Iterator<Item = &'a str>) -> Option<List> {
    let mut found = None;
    let mut at = begin;
    for line in lines {
        let content = line.trim();
        if !content.is_empty() && !content.starts_with('#') {
            let depth = line.len() - line.trim_start_matches(' ').len();
            let is_item = content == "-" || content.starts_with("- ");
            let (_, indent) = found.unwrap_or((at, depth));
            if depth < indent || depth == indent && !is_item {
                break;
            }
            found = Some((at + line.len(), indent));
        }
        at += line.len();
    }
    let (end, indent) = found?;
    Some(List::Block { end, indent })
}

/// Offset of the bracket of `"providers": [` in the outermost object.
fn key_in_object(text: &str) -> Option<usize> {
    let mut depth = 0;
    let tokens = Tokens { text, at: 0 };
    for (at, token) in tokens {
        match token {
            "{" | "[" => depth += 1,
            "}" | "]" => depth -= 1,
            "\"providers\"" | "'providers'" | "providers" if depth == 1 => {
                let rest = text[at + token.len()..].trim_start();
                if let Some(value) = rest.strip_prefix(':') {
                    let value = value.trim_start();
                    return value.starts_with('[').then(|| text.len() - value.len());
                }
            }
            _ => {}
        }
    }
    None
}

/// The list whose opening bracket is at this offset.
fn flow(text: &str, open: usize) -> Result<List, SharedFileError> {
    let mut depth = 0;
    let mut last = "[";
    let tokens = Tokens { text, at: open };
    for (at, token) in tokens {
        match token {
            "{" | "[" => depth += 1,
            "}" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let comma = !matches!(last, "[" | ",") || at == open;
            return Ok(List::Flow { end: at, comma });
        }
        last = token;
    }
    Err(form(text, open, "the bracket is not closed"))
}

/// Brackets, commas, quoted strings and the words between them; skips comments.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = &self.text[self.at..];
            let first = rest.chars().next()?;
            let length = match first {
                quote @ ('"' | '\'') => quoted(rest, quote)?,
                '#' => {
                    self.at += rest.find('\n').unwrap_or(rest.len());
                    continue;
                }
                first if first.is_whitespace() => {
                    self.at += first.len_utf8();
                    continue;
                }
                // A bracket or a comma, or a word.
                _ => rest
                    .find(|c: char| "{}[],: \t\r\n".contains(c))
                    .unwrap_or(rest.len())
                    .max(first.len_utf8()),
            };
            let at = self.at;
            self.at += length;
            return Some((at, &rest[..length]));
        }
    }
}

/// Length of the quoted string at the start of `rest`.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    let mut chars = rest.char_indices().skip(1);
    chars.find_map(|(at, c)| {
        if is_escaped {
            is_escaped = false;
        } else if c == '\\' && quote == '"' {
            is_escaped = true;
        } else if c == quote {
            return Some(at + 1);
        }
        None
    })
}

#[cfg(test)]
#[path = "shared_file_tests.rs"]
mod tests;
