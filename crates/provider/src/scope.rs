//! Scopes: who may pull with the credentials of a source.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Maximum length of an object's name, in bytes.
const MAX_NAME: usize = 253;

/// A pattern for names of namespaces or service accounts; each `*` matches any number of characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

/// Why a pattern is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it in its message")]
pub enum PatternError {
    #[error("it is empty")]
    Empty,
    #[error("it is longer than {MAX_NAME} characters")]
    TooLong,
    #[error("allowed are lower-case letters, digits, `-`, `.`, and `*` for any characters")]
    Character,
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'*');
        if text.is_empty() {
            Err(PatternError::Empty)
        } else if text.len() > MAX_NAME {
            Err(PatternError::TooLong)
        } else if !text.bytes().all(allowed) {
            Err(PatternError::Character)
        } else {
            Ok(Self(text))
        }
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Pattern {
    /// Whether the pattern matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else {
            return self.0 == name;
        };
        let Some(mut left) = name.strip_prefix(first) else {
            return false;
        };
        let mut parts: Vec<&str> = rest.split('*').collect();
        let last = parts.pop().unwrap_or_default();
        // Greedy leftmost matching leaves the most text for later parts.
        for part in parts {
            let Some(at) = left.find(part) else {
                return false;
            };
            left = &left[at + part.len()..];
        }
        left.ends_with(last)
    }
}

/// The pods that may use some credentials: those in one of the namespaces and with one of the service accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scope {
    /// Empty: no pod.
    pub namespaces: Vec<Pattern>,
    /// Empty: every service account of the namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub service_accounts: Vec<Pattern>,
}

impl Scope {
    /// Whether the pod may use the credentials. No, if its namespace or service account is unknown.
    pub fn covers(&self, pod: &PodIdentity) -> bool {
        let has = |patterns: &[Pattern], name: &str| {
            !name.is_empty() && patterns.iter().any(|pattern| pattern.matches(name))
        };
        has(&self.namespaces, &pod.namespace)
            && (self.service_accounts.is_empty()
                || has(&self.service_accounts, &pod.service_account))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |patterns: &[Pattern]| {
            let names: Vec<String> = patterns.iter().map(ToString::to_string).collect();
            names.join(", ")
        };
        match self.namespaces.len() {
            0 => f.write_str("no namespace")?,
            _ => f.write_str(&list(&self.namespaces))?,
        }
        if !self.service_accounts.is_empty() {
            write!(f, " (service accounts {})", list(&self.service_accounts))?;
        }
        Ok(())
    }
}

/// The pod that pulls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodIdentity {
    /// From the claims of the token that the kubelet passes, which are not verified.
    pub namespace: String,
    /// From the same claims; empty if unknown.
    pub service_account: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_pattern_covers_whole_names_only() {
        for (text, name, expected) in [
            ("team-a", "team-a", true),
            ("team-a", "team-a-b", false),
            ("team-a", "my-team-a", false),
            ("team-a-*", "team-a", false),
            ("team-a-*", "team-a-b", true),
            ("team-*", "team-a-b", true),
            ("*", "anything", true),
            ("*-ci", "team-a-ci", true),
            ("*-ci", "team-a-cix", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c-c", true),
            ("a*b*c", "a-c-b", false),
            ("a**c", "ac", true),
            ("a*b*b", "ab", false),
            // Prefix and suffix must not overlap.
            ("ab*ba", "aba", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(pattern(text).matches(name), expected, "{text} {name}");
        }
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for text in ["", "team-[", "Team", "team a", "team?", "t/eam", "é"] {
            assert!(Pattern::try_from(text.to_owned()).is_err(), "{text}");
        }
        assert!(Pattern::try_from("a".repeat(254)).is_err());
        let longest = "a".repeat(253);
        assert_eq!(String::from(pattern(&longest)), longest);
    }

    #[test]
    fn a_scope_needs_both_namespace_and_service_account() {
        let pod = |namespace: &str, account: &str| PodIdentity {
            namespace: namespace.to_owned(),
            service_account: account.to_owned(),
        };
        let all = |texts: &[&str]| texts.iter().map(|text| pattern(text)).collect();
        let scope = |namespaces: &[&str], accounts: &[&str]| Scope {
            namespaces: all(namespaces),
            service_accounts: all(accounts),
        };
        for (scope, pod, expected) in [
            (scope(&["a"], &[]), pod("a", "default"), true),
            (scope(&["a"], &[]), pod("b", "default"), false),
            (scope(&["a", "b-*"], &["ci"]), pod("b-1", "ci"), true),
            (scope(&["a", "b-*"], &["ci"]), pod("b-1", "default"), false),
            (scope(&["a"], &["*"]), pod("a", ""), false),
            (scope(&["*"], &[]), pod("", "default"), false),
            (scope(&[], &[]), pod("a", "default"), false),
        ] {
            assert_eq!(scope.covers(&pod), expected, "{scope} {pod:?}");
        }
    }
}
