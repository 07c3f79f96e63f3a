//! The text of `openshift-config/pull-secret`, and what other programs make of it. Pure, and shares no code with globalps.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// The members of `auths` in order, with the text around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Document {
    head: String,
    members: Vec<Member>,
    tail: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    /// The text between it and the one before.
    separator: String,
    /// With the colon.
    name: String,
    key: String,
    value: String,
}

/// What another program does with the text.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    /// In its place, or after the last one.
    Put {
        key: &'static str,
        value: String,
        separator: &'static str,
    },
    Remove(&'static str),
    /// As programs write it that read it into a map.
    Render {
        is_pretty: bool,
    },
    /// It has no `auths` any more. The API server would refuse what is no JSON.
    Break,
}

impl Edit {
    pub(super) fn apply(&self, text: &str) -> String {
        let Some(mut document) = Document::parse(text) else {
            return text.to_owned();
        };
        let members = &mut document.members;
        match self {
            Self::Break => return text.replacen("\"auths\"", "\"auth\"", 1),
            Self::Put {
                key,
                value,
                separator,
            } => match members.iter_mut().find(|member| member.key == *key) {
                Some(member) => member.value.clone_from(value),
                None => members.push(Member {
                    separator: (*separator).to_owned(),
                    name: format!("\"{key}\" : "),
                    key: (*key).to_owned(),
                    value: value.clone(),
                }),
            },
            Self::Remove(key) => members.retain(|member| member.key != *key),
            Self::Render { is_pretty } => document.normalise(*is_pretty),
        }
        document.text()
    }
}

impl Document {
    /// `None`: it is no JSON, or has no `auths`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str::<Value>(text).ok()?;
        let auths = text.find("\"auths\"")?;
        let mut at = auths + text[auths..].find('{')? + 1;
        let mut head = text[..at].to_owned();
        let mut members: Vec<Member> = Vec::new();
        loop {
            let name = at + blank(&text[at..], ",");
            if text[name..].starts_with('}') {
                let tail = text[at..].to_owned();
                return Some(Self {
                    head,
                    members,
                    tail,
                });
            }
            let mut separator = text[at..name].to_owned();
            if members.is_empty() {
                head.push_str(&separator);
                separator.clear();
            }
            let colon = name + value_len(&text[name..]);
            let value = colon + blank(&text[colon..], ":");
            at = value + value_len(&text[value..]);
            members.push(Member {
                separator,
                name: text[name..value].to_owned(),
                key: serde_json::from_str(&text[name..colon]).ok()?,
                value: text[value..at].to_owned(),
            });
        }
    }

    pub(super) fn value(&self, key: &str) -> Option<&str> {
        let member = self.members.iter().find(|member| member.key == key)?;
        Some(&member.value)
    }

    /// Keys with the text of their values, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        let members = self.members.iter();
        members.map(|member| (&*member.key, &*member.value))
    }

    fn normalise(&mut self, is_pretty: bool) {
        let (line, space) = if is_pretty { ("\n    ", " ") } else { ("", "") };
        self.members.sort_by(|a, b| a.key.cmp(&b.key));
        for (at, member) in self.members.iter_mut().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let first = if at == 0 { "" } else { line };
            member.separator = format!("{comma}{first}");
            member.name = format!("\"{}\":{space}", member.key);
            let value = serde_json::from_str::<Value>(&member.value);
            member.value = value.map_or_else(|_| member.value.clone(), |value| value.to_string());
        }
        self.head = format!("{{\"auths\":{space}{{{line}");
        self.tail = if is_pretty { "\n}}\n" } else { "}}" }.to_owned();
    }

    fn text(&self) -> String {
        let mut text = self.head.clone();
        for (at, member) in self.members.iter().enumerate() {
            text.push_str(if at == 0 { "" } else { &member.separator });
            text.push_str(&member.name);
            text.push_str(&member.value);
        }
        text + &self.tail
    }
}

/// Length of the space at the beginning, with this punctuation.
fn blank(text: &str, punctuation: &str) -> usize {
    let is_blank = |one: char| one.is_ascii_whitespace() || punctuation.contains(one);
    text.find(|one| !is_blank(one)).unwrap_or(text.len())
}

/// Length of the value at the beginning of a text that is JSON.
fn value_len(text: &str) -> usize {
    let (mut depth, mut is_string, mut is_escaped) = (0, false, false);
    for (at, one) in text.bytes().enumerate() {
        match one {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_string = !is_string,
            _ if is_string => continue,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => continue,
        }
        if depth == 0 && !is_string && !is_escaped {
            return at + 1;
        }
    }
    text.len()
}

/// Which keys globalps may write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    /// Only globalps writes these.
    pub(super) ours: &'static [&'static str],
    /// Others have an entry here that globalps may replace.
    pub(super) overridden: &'static str,
}

/// What is wrong with the text, compared to what others alone would have made of it.
pub(super) fn problem(found: &str, without_us: &str, keys: Keys) -> Option<String> {
    let (found, without_us) = match (Document::parse(found), Document::parse(without_us)) {
        (Some(found), Some(without_us)) => (found, without_us),
        (None, None) => return None,
        (None, Some(_)) => return Some("it has no `auths`".to_owned()),
        (Some(_), None) => return Some("what had no `auths` was edited".to_owned()),
    };
    let (own, mut others): (Vec<_>, Vec<_>) = found
        .entries()
        .partition(|(key, _)| keys.ours.contains(key));
    if let Some((key, _)) = own.iter().find(|(_, value)| !is_login(value)) {
        return Some(format!("`{key}` has no password that was ever written"));
    }
    let names: Vec<_> = own.iter().map(|(key, _)| key).collect();
    if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        return Some(format!("`{}` is there twice", names[at]));
    }
    let replaced = others
        .iter_mut()
        .find(|(key, value)| *key == keys.overridden && is_login(value));
    if let Some((key, value)) = replaced {
        *value = without_us.value(key).unwrap_or_default();
    }
    let wanted: Vec<_> = without_us.entries().collect();
    if others == wanted {
        return None;
    }
    Some(format!("others have {others:?} instead of {wanted:?}"))
}

/// The value is one that the scene gave to globalps.
fn is_login(value: &str) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(value) else {
        return false;
    };
    let text = |name: &str| value[name].as_str().unwrap_or_default();
    let decoded = BASE64_STANDARD.decode(text("auth")).unwrap_or_default();
    decoded.starts_with(b"u:password-")
        || text("username") == "u" && text("password").starts_with("password-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{ \"auths\": {\n \"a\" : {\"auth\":\"}\\\"\"} ,\t\"b\":{\"c\":[{}]}\n} }\n";

    fn put(key: &'static str) -> Edit {
        Edit::Put {
            key,
            value: "{\"auth\":\"dTpwYXNzd29yZC0x\"}".to_owned(),
            separator: " , ",
        }
    }

    #[test]
    fn a_text_is_taken_apart_and_put_together() {
        let document = Document::parse(TEXT).unwrap();
        assert_eq!(document.text(), TEXT);
        let entries: Vec<_> = document.entries().collect();
        assert_eq!(
            entries,
            [("a", "{\"auth\":\"}\\\"\"}"), ("b", "{\"c\":[{}]}")]
        );
        let more = put("c").apply(TEXT);
        assert_ne!(more, TEXT);
        assert_eq!(Edit::Remove("c").apply(&more), TEXT);
        for is_pretty in [false, true] {
            let text = Edit::Render { is_pretty }.apply(&more);
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value, serde_json::from_str::<Value>(&more).unwrap());
            assert_eq!(Document::parse(&text).unwrap().text(), text);
        }
        assert_eq!(Document::parse(&Edit::Break.apply(TEXT)), None);
    }

    #[test]
    fn each_change_of_others_is_a_problem() {
        let broken = Edit::Break.apply(TEXT);
        let ours = put("c").apply(TEXT);
        let theirs = put("d").apply(TEXT);
        let spaced = TEXT.replace("[{}]", "[{ }]");
        let gone = Edit::Remove("a").apply(&ours);
        let other = ours.replace("dTpwYXNzd29yZC0x", "dTpw");
        let replaced = TEXT.replace("{\"c\":[{}]}", "{\"auth\":\"dTpwYXNzd29yZC0x\"}");
        let wrong = TEXT.replace("{\"c\":[{}]}", "{\"auth\":\"dTpw\"}");
        for (case, found, without_us, is_problem) in [
            ("a permitted override", &*replaced, TEXT, false),
            ("by somebody else", &wrong, TEXT, true),
            ("the same", TEXT, TEXT, false),
            ("with ours", &ours, TEXT, false),
            ("both are broken", &broken, &broken, false),
            ("it was broken", &broken, TEXT, true),
            ("it was repaired", TEXT, &broken, true),
            ("an entry of nobody", &theirs, TEXT, true),
            ("another value", &ours, &spaced, true),
            ("one is gone", &gone, TEXT, true),
            ("one is back", TEXT, &gone, true),
            ("not what we wrote", &other, TEXT, true),
        ] {
            let keys = Keys {
                ours: &["c"],
                overridden: "b",
            };
            let found = problem(found, without_us, keys);
            assert_eq!(found.is_some(), is_problem, "{case}: {found:?}");
        }
    }
}
