//! A revision: a number for people, and a random id for programs.
//!
//! Numbers repeat: after a removal they start at 1 again, a restored etcd or a deleted Secret gives a number to other content,
//! and a cloned machine reports those of another node. Two revisions are the same only if number and id are.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Random, and drawn once for each revision. `UNKNOWN` identifies no content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RevisionId(u64);

impl RevisionId {
    /// Of no revision, or of one that an older release wrote.
    pub const UNKNOWN: Self = Self(0);
    const DIGITS: usize = 16;

    /// From a random number.
    pub const fn from_random(bits: u64) -> Self {
        Self(bits)
    }
}

/// 16 hexadecimal digits; empty: unknown.
impl fmt::Display for RevisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UNKNOWN => Ok(()),
            Self(bits) => write!(f, "{bits:016x}"),
        }
    }
}

/// Never an error: text that isn't an id is unknown.
impl From<&str> for RevisionId {
    fn from(text: &str) -> Self {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_id = text.len() == Self::DIGITS && text.bytes().all(is_digit);
        let bits = is_id.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        Self(bits.unwrap_or_default())
    }
}

impl Serialize for RevisionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RevisionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<Cow<str>>::deserialize(deserializer)?;
        Ok(text.map_or(Self::UNKNOWN, |text| Self::from(&*text)))
    }
}

impl JsonSchema for RevisionId {
    fn schema_name() -> Cow<'static, str> {
        "RevisionId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 16, "pattern": "^([0-9a-f]{16})?$"})
    }
}

/// Number and id. The default is [`Revision::NONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision {
    /// From 1 on; 0: none.
    pub number: i64,
    /// [`RevisionId::UNKNOWN`] if only the number is known.
    pub id: RevisionId,
}

impl Revision {
    /// Before the first revision.
    pub const NONE: Self = Self::new(0, RevisionId::UNKNOWN);

    /// The two must come from the same object.
    pub const fn new(number: i64, id: RevisionId) -> Self {
        Self { number, id }
    }

    /// It says which content it is.
    pub fn is_identified(self) -> bool {
        self.number > 0 && self.id != RevisionId::UNKNOWN
    }

    /// `5-0123456789abcdef`, or `5` if the id is unknown. There is no `Display`: messages for people have the number only.
    pub fn text(self) -> String {
        match self.id {
            RevisionId::UNKNOWN => self.number.to_string(),
            id => format!("{}-{id}", self.number),
        }
    }

    /// The same number, which identifies no content any more.
    #[must_use]
    pub fn unidentified(self) -> Self {
        Self::new(self.number, RevisionId::UNKNOWN)
    }
}

/// Never an error: text that isn't a revision is none.
impl From<&str> for Revision {
    fn from(text: &str) -> Self {
        let (number, id) = text.split_once('-').unwrap_or((text, ""));
        let number = number.parse().ok().filter(|number| *number > 0);
        number.map_or(Self::NONE, |number| Self::new(number, id.into()))
    }
}

/// As [`Revision::text`].
impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

/// A bare number has no id.
impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form<'a> {
            Number(i64),
            Text(Cow<'a, str>),
        }
        Ok(match Form::deserialize(deserializer)? {
            Form::Number(number) => Self::new(number.max(0), RevisionId::UNKNOWN),
            Form::Text(text) => Self::from(&*text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_make_a_revision_and_odd_text_makes_none() {
        let id = RevisionId::from_random(0xab);
        for (text, expected) in [
            ("\"5-00000000000000ab\"", Revision::new(5, id)),
            ("5", Revision::new(5, RevisionId::UNKNOWN)),
            ("\"5\"", Revision::new(5, RevisionId::UNKNOWN)),
            ("\"5-\"", Revision::new(5, RevisionId::UNKNOWN)),
            (
                "\"5-00000000000000AB\"",
                Revision::new(5, RevisionId::UNKNOWN),
            ),
            (
                "\"5-+0000000000000ab\"",
                Revision::new(5, RevisionId::UNKNOWN),
            ),
            ("\"5-ab\"", Revision::new(5, RevisionId::UNKNOWN)),
            ("\"-5-00000000000000ab\"", Revision::default()),
            (
                "\"99999999999999999999-00000000000000ab\"",
                Revision::default(),
            ),
            ("\"0-00000000000000ab\"", Revision::default()),
            ("-5", Revision::default()),
            ("\"\"", Revision::default()),
        ] {
            let found: Revision = serde_json::from_str(text).expect("readable");
            assert_eq!(found, expected, "{text}");
            assert_eq!(found.is_identified(), expected.id == id, "{text}");
        }
        assert!(!Revision::new(0, id).is_identified());
        let one = Revision::new(5, id);
        assert_eq!(serde_json::json!(one), "5-00000000000000ab");
        assert_eq!(serde_json::json!(one.unidentified()), "5");
        assert_ne!(one, one.unidentified());
        assert_ne!(one, Revision::new(5, RevisionId::from_random(0xac)));
    }

    #[test]
    fn an_id_has_sixteen_digits_or_is_unknown() {
        for (text, expected) in [
            ("\"00000000000000ab\"", 0xab),
            ("\"x\"", 0),
            ("\"\"", 0),
            ("null", 0),
        ] {
            let found: RevisionId = serde_json::from_str(text).expect("readable");
            assert_eq!(found, RevisionId::from_random(expected), "{text}");
        }
        assert_eq!(serde_json::json!(RevisionId::UNKNOWN), "");
    }
}
