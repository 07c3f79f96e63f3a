//! The content of a revision, and its two formats: values of a Secret, and the file that the provider reads.

use globalps_dockerconfig::DockerConfig;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::config::Delivery;
use super::scope::{Pattern, Scope};

/// Format version of the provider's file. A program reads only its own version: a newer one may add restrictions that this
/// program would ignore.
pub(super) const VERSION: u32 = 1;

/// The credentials of a revision.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// Credentials for every pod.
    pub config: DockerConfig,
    /// Credentials for some pods only. An earlier element takes precedence over later ones.
    pub scoped: Vec<ScopedConfig>,
    /// One delivery for the whole revision.
    pub delivery: Delivery,
}

impl Content {
    /// The parts with the names of their sources; empty: the part for every pod.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &DockerConfig)> {
        let scoped = self.scoped.iter();
        let scoped = scoped.map(|scoped| (scoped.source.as_str(), &scoped.config));
        [("", &self.config)].into_iter().chain(scoped)
    }

    /// Whether both have the same effect on a node.
    pub fn means_the_same(&self, other: &Self) -> bool {
        self.delivery == other.delivery
            && self.config.means_the_same(&other.config)
            && self.scoped.len() == other.scoped.len()
            && self
                .scoped
                .iter()
                .zip(&other.scoped)
                .all(|(one, other)| one.means_the_same(other))
    }
}

/// Credentials of one source, and who may use them.
#[derive(Clone, Debug)]
pub struct ScopedConfig {
    /// Name of the source's Secret.
    pub source: String,
    /// Namespaces and service accounts, by pattern.
    pub scope: Scope,
    /// Only usable entries, because content is validated before.
    pub config: DockerConfig,
}

impl ScopedConfig {
    fn means_the_same(&self, other: &Self) -> bool {
        self.source == other.source
            && self.scope == other.scope
            && self.config.means_the_same(&other.config)
    }
}

/// Why bytes can't be read as content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it in its message")]
pub enum ContentError {
    #[error("it is damaged")]
    Damaged,
    #[error("it has version {0}, but this program reads version {VERSION}")]
    Version(u32),
}

/// A [`ScopedConfig`] with unparsed credentials. An unknown field is an error, because it might restrict the scope.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawScoped<'a> {
    source: String,
    pub(super) scope: Scope,
    #[serde(borrow)]
    config: &'a RawValue,
}

impl RawScoped<'_> {
    /// The credentials whose keys are wanted.
    pub(super) fn config_with(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<DockerConfig, ContentError> {
        parse_with(self.config, is_wanted)
    }

    fn read(self) -> Result<ScopedConfig, ContentError> {
        Ok(ScopedConfig {
            config: parse(self.config)?,
            source: self.source,
            scope: self.scope,
        })
    }
}

/// The provider's file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawData<'a> {
    #[serde(rename = "version")]
    _version: u32,
    #[serde(rename = "checksum")]
    _checksum: IgnoredAny,
    revision: i64,
    #[serde(borrow)]
    config: &'a RawValue,
    #[serde(borrow)]
    pub(super) scoped: Vec<RawScoped<'a>>,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl<'a> RawData<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, ContentError> {
        if is_whole(bytes)
            && let Ok(data) = serde_json::from_slice(bytes)
        {
            return Ok(data);
        }
        // Another version may differ in everything except the version field.
        match serde_json::from_slice(bytes) {
            Ok(Versioned { version }) if version != VERSION => Err(ContentError::Version(version)),
            _ => Err(ContentError::Damaged),
        }
    }

    /// The credentials for every pod whose keys are wanted.
    pub(super) fn config_with(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<DockerConfig, ContentError> {
        parse_with(self.config, is_wanted)
    }
}

fn parse(raw: &RawValue) -> Result<DockerConfig, ContentError> {
    parse_with(raw, |_| true)
}

fn parse_with(
    raw: &RawValue,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<DockerConfig, ContentError> {
    globalps_dockerconfig::parse_with(raw.get().as_bytes(), is_wanted)
        .map_err(|_| ContentError::Damaged)
}

/// The content of a provider's file.
#[derive(Clone, Debug)]
pub struct Data {
    /// Number of the revision, at least 1.
    pub revision: i64,
    /// `delivery` is not in the file and has its default value.
    pub content: Content,
}

/// Reads [`render_data`].
pub fn parse_data(bytes: &[u8]) -> Result<Data, ContentError> {
    let raw = RawData::read(bytes)?;
    let scoped: Result<_, _> = raw.scoped.into_iter().map(RawScoped::read).collect();
    Ok(Data {
        revision: raw.revision,
        content: Content {
            config: parse(raw.config)?,
            scoped: scoped?,
            delivery: Delivery::default(),
        },
    })
}

/// Parses [`render_scoped`]. An error in one entry fails everything, because a guess could give credentials to the wrong pods.
pub fn parse_scoped(bytes: &[u8]) -> Result<Vec<ScopedConfig>, ContentError> {
    let list: Vec<RawScoped> = serde_json::from_slice(bytes).map_err(|_| ContentError::Damaged)?;
    list.into_iter().map(RawScoped::read).collect()
}

/// The format in a Secret's value, a JSON list.
pub fn render_scoped(scoped: &[ScopedConfig]) -> Vec<u8> {
    let mut list = b"[".to_vec();
    for (
        at,
        ScopedConfig {
            source,
            scope,
            config,
        },
    ) in scoped.iter().enumerate()
    {
        let names = |patterns: &[Pattern]| -> Vec<String> {
            patterns.iter().map(ToString::to_string).collect()
        };
        let mut fields = json!({"namespaces": names(&scope.namespaces)});
        if !scope.service_accounts.is_empty() {
            fields["serviceAccounts"] = json!(names(&scope.service_accounts));
        }
        let comma = if at > 0 { "," } else { "" };
        let source = json!(source);
        let head = format!(r#"{comma}{{"source":{source},"scope":{fields},"config":"#);
        list.extend(head.into_bytes());
        list.extend(&*Zeroizing::new(config.render()));
        list.push(b'}');
    }
    list.push(b']');
    list
}

/// The provider's file with a revision's content, assembled from JSON text so that serialization can't fail.
pub fn render_data(revision: i64, content: &Content) -> Vec<u8> {
    let revision = format!(r#"","revision":{revision},"config":"#);
    let config = Zeroizing::new(content.config.render());
    let scoped = Zeroizing::new(render_scoped(&content.scoped));
    let rest = [
        revision.as_bytes(),
        &config,
        br#","scoped":"#,
        &scoped,
        b"}",
    ]
    .concat();
    let rest = Zeroizing::new(rest);
    let sum = format!("{:016x}", checksum(CHECKSUM_START, &rest));
    [HEAD.as_bytes(), sum.as_bytes(), &rest].concat()
}

/// Start of the file. The checksum of the rest follows.
const HEAD: &str = r#"{"version":1,"checksum":""#;

/// Whether the file is intact: a changed byte might give a credential to other pods.
fn is_whole(bytes: &[u8]) -> bool {
    let after = bytes.strip_prefix(HEAD.as_bytes());
    let parts = after.and_then(|after| after.split_at_checked(16));
    parts.is_some_and(|(sum, rest)| {
        sum == format!("{:016x}", checksum(CHECKSUM_START, rest)).as_bytes()
    })
}

/// The checksum of nothing.
pub const CHECKSUM_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Like FNV-1a, but by words. Every step is a bijection, so a single changed byte is always detected. It protects against
/// accidents only: only root can write the file. `start`: the checksum of what is before.
pub fn checksum(start: u64, bytes: &[u8]) -> u64 {
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0100_0000_01b3);
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let rest = rest.iter().map(|byte| u64::from(*byte));
    words.chain(rest).fold(start, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> DockerConfig {
        globalps_dockerconfig::parse(text.as_bytes()).unwrap()
    }

    fn scoped(namespace: &str, text: &str) -> ScopedConfig {
        let pattern = namespace.to_owned().try_into().unwrap();
        ScopedConfig {
            source: format!("{namespace}-pull-secret"),
            scope: Scope {
                namespaces: vec![pattern],
                service_accounts: Vec::new(),
            },
            config: config(text),
        }
    }

    const A: &str = r#"{"auths":{"a":{"auth":"dTpw"}}}"#;
    const B: &str = r#"{"auths":{"b":{"auth":"dTpw"}}}"#;

    #[test]
    fn scoped_credentials_round_trip() {
        let list = [scoped("a", A), scoped("b", B)];
        let read = parse_scoped(&render_scoped(&list)).unwrap();
        assert_eq!(read.len(), 2);
        assert!(
            read.iter()
                .zip(&list)
                .all(|(one, two)| one.means_the_same(two))
        );
    }

    #[test]
    fn an_unknown_field_is_rejected() {
        let good = r#"[{"source":"s","scope":{"namespaces":["a"]},"config":{"auths":{}}}]"#;
        assert!(parse_scoped(good.as_bytes()).is_ok());
        for bad in [
            "",
            "{}",
            r#"[{"source":"s","scope":{"namespaces":["a"],"pods":["p"]},"config":{"auths":{}}}]"#,
            r#"[{"source":"s","scope":{"namespaces":["a"]},"until":1,"config":{"auths":{}}}]"#,
            r#"[{"source":"s","scope":{"namespaces":["team-["]},"config":{"auths":{}}}]"#,
            r#"[{"source":"s","scope":{},"config":{"auths":{}}}]"#,
            r#"[{"source":"s","scope":{"namespaces":["a"]},"config":[]}]"#,
        ] {
            assert!(parse_scoped(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn another_version_and_damage_are_different_errors() {
        let with_sum = |rest: &str| {
            let rest = format!(r#"","revision":2,{rest}}}"#);
            format!(
                "{HEAD}{:016x}{rest}",
                checksum(CHECKSUM_START, rest.as_bytes())
            )
        };
        let good = with_sum(r#""config":{},"scoped":[]"#);
        assert_eq!(parse_data(good.as_bytes()).unwrap().revision, 2);
        let without_sum = r#"{"version":1,"revision":2,"config":{},"scoped":[]}"#;
        for (data, expected) in [
            (without_sum.to_owned(), ContentError::Damaged),
            (format!("{good} "), ContentError::Damaged),
            (with_sum(r#""config":{}"#), ContentError::Damaged),
            (
                with_sum(r#""config":{},"scoped":[],"until":1"#),
                ContentError::Damaged,
            ),
            (
                good.replace("\"version\":1", "\"version\":2"),
                ContentError::Version(2),
            ),
            (
                r#"{"secrets":[],"version":3}"#.to_owned(),
                ContentError::Version(3),
            ),
        ] {
            assert_eq!(parse_data(data.as_bytes()).unwrap_err(), expected, "{data}");
        }
    }

    #[test]
    fn the_file_begins_with_its_version() {
        assert!(HEAD.starts_with(&format!(r#"{{"version":{VERSION},"#)));
    }

    #[test]
    fn content_differs_by_credentials_scopes_and_delivery() {
        let content = Content {
            config: config(A),
            scoped: vec![scoped("a", A)],
            delivery: Delivery::ConfigFile,
        };
        assert!(content.means_the_same(&content.clone()));
        let others = [
            Content {
                config: config(B),
                ..content.clone()
            },
            Content {
                scoped: Vec::new(),
                ..content.clone()
            },
            Content {
                scoped: vec![scoped("b", A)],
                ..content.clone()
            },
            Content {
                scoped: vec![scoped("a", B)],
                ..content.clone()
            },
            Content {
                delivery: Delivery::CredentialProvider(super::super::ProviderConfig::default()),
                ..content.clone()
            },
        ];
        for other in others {
            assert!(!content.means_the_same(&other), "{other:?}");
        }
    }
}
