//! Types of flag values.

use std::str::FromStr;
use std::time::Duration;

use globalps_core::api::ProviderPaths;
use globalps_core::{api, labels, names};
use globalps_provider::{Pattern, PatternError};

/// A duration in kubectl's syntax: `90s`, `5m`, `1h30m`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub Duration);

impl Span {
    /// Adding it to the current time can't overflow.
    const MAX: Duration = Duration::from_hours(24 * 365 * 30);
}

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Limit(span) = text.parse()?;
        span.ok_or("must be more than 0")
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs();
        match (seconds / 60, seconds % 60) {
            (0, _) => write!(f, "{seconds} s"),
            (minutes, 0) => write!(f, "{minutes} min"),
            (minutes, seconds) => write!(f, "{minutes} min {seconds} s"),
        }
    }
}

/// A [`Span`], or no limit: 0, like in kubectl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub Option<Span>);

impl FromStr for Limit {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "must be a duration such as `90s`, `5m` or `1h30m`";
        let duration = if let Ok(seconds) = text.parse() {
            Duration::from_secs(seconds)
        } else {
            let duration: jiff::SignedDuration = text.parse().map_err(|_| FORM)?;
            duration.try_into().map_err(|_| FORM)?
        };
        Ok(Self(
            (!duration.is_zero()).then(|| Span(duration.min(Span::MAX))),
        ))
    }
}

/// `NAMESPACE/NAME` of a Secret.
#[derive(Clone, Debug)]
pub(crate) struct Original(pub api::SecretRef);

impl FromStr for Original {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = namespaced(text)
            .ok_or("must be NAMESPACE/NAME, for example `openshift-config/pull-secret`")?;
        Ok(Self(api::SecretRef {
            namespace,
            name,
            key: names::DATA_KEY.to_owned(),
        }))
    }
}

/// Name of a Secret for `spec.sources`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceName(pub String);

impl FromStr for SourceName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        /// The name is part of a key of the Secret.
        const MAX: usize = 236;
        if text == names::ADDITIONAL_SECRET || names::is_own_secret(text) {
            Err("can't be `additional-pull-secret`, or a Secret that globalps writes")
        } else if is_object_name(text, MAX) {
            Ok(Self(text.to_owned()))
        } else {
            Err("must be the name of a Secret, at most 236 characters")
        }
    }
}

/// Whether the text is a valid object name of at most this length.
fn is_object_name(text: &str, max: usize) -> bool {
    let bytes = text.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_of_a_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    bytes.len() <= max
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().copied().all(is_of_a_name)
}

/// Name of the Secret in each namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretName(pub String);

impl FromStr for SecretName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const MAX: usize = 253;
        if text == names::ADDITIONAL_SECRET {
            Err("can't be `additional-pull-secret`")
        } else if is_object_name(text, MAX) {
            Ok(Self(text.to_owned()))
        } else {
            Err("must be the name of a Secret, for example `global-pull-secret`")
        }
    }
}

/// A name, or a pattern of names.
pub(super) fn pattern(text: &str) -> Result<Pattern, PatternError> {
    Pattern::try_from(text.to_owned())
}

/// Number of a revision.
pub(super) fn revision(text: &str) -> Result<i64, &'static str> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or("must be the number of a revision, for example `3`")
}

/// `KEY=VALUE` of a label.
pub(super) fn label(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if labels::is_key(key) && labels::is_value(value) => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err("must be KEY=VALUE, for example `team=a`"),
    }
}

/// `NAMESPACE/NAME` of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub namespace: String,
    pub name: String,
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Namespace and name of a `HostedControlPlane`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlPlane(pub String, pub String);

impl FromStr for ControlPlane {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) =
            namespaced(text).ok_or("must be NAMESPACE/NAME, for example `clusters-prod/prod`")?;
        Ok(Self(namespace, name))
    }
}

/// Namespace and name of a pull secret that a `CatalogSource` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogSecret(pub (String, String));

impl CatalogSecret {
    /// Parses the name of a copy; `None` if it is not one.
    pub(crate) fn of_copy(copy: &str) -> Option<Self> {
        // A namespace contains no dot, so the first dot ends it.
        let id = copy.strip_prefix("globalps-")?.replacen('.', "/", 1);
        id.parse().ok()
    }
}

impl FromStr for CatalogSecret {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const MAX: usize = 253;
        let id = namespaced(text).ok_or("must be NAMESPACE/SECRET, for example `olm/pull`")?;
        let (namespace, name) = &id;
        if !is_object_name(namespace, 63) || namespace.contains('.') {
            return Err(
                "the namespace can contain only lower-case letters, digits and `-`, at most 63 characters",
            );
        }
        if !name.split('.').all(|part| is_object_name(part, MAX)) {
            return Err(
                "the name of the Secret can contain only lower-case letters, digits, `-` and `.`",
            );
        }
        if names::operator_secret(namespace, name).len() > MAX {
            return Err("is too long: namespace and name can have at most 243 characters together");
        }
        Ok(Self(id))
    }
}

/// Name of a systemd service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KubeletUnit(pub String);

impl FromStr for KubeletUnit {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || ":_.@-".contains(c);
        match text.strip_suffix(".service") {
            Some(name) if !name.is_empty() && name.chars().all(is_of_a_name) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err("must be the name of a systemd service, for example `my-kubelet.service`"),
        }
    }
}

/// Absolute path of a file that is not in the root directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KubeletFile(pub String);

impl FromStr for KubeletFile {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('/');
        let is_absolute = parts.next() == Some("");
        let parts: Vec<&str> = parts.collect();
        let is_plain = parts.iter().all(|part| !matches!(*part, "" | "." | ".."));
        if is_absolute && is_plain && parts.len() >= 2 {
            Ok(Self(text.to_owned()))
        } else {
            Err("must be an absolute path without `..`, for example `/data/kubelet/config.json`")
        }
    }
}

/// Directories of a kubelet's credential providers, as `CONFIG:BIN_DIR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provider(pub ProviderPaths);

impl FromStr for Provider {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (config_path, bin_dir) = text.split_once(':').unwrap_or_default();
        if [config_path, bin_dir].map(|path| path.parse::<KubeletFile>().is_err()) != [false; 2] {
            return Err("must be two absolute paths without `..`, for example \
                 `/etc/kubernetes/providers.yaml:/opt/providers`");
        }
        Ok(Self(ProviderPaths {
            config_path: config_path.to_owned(),
            bin_dir: bin_dir.to_owned(),
        }))
    }
}

fn namespaced(text: &str) -> Option<(String, String)> {
    let (namespace, name) = text.split_once('/')?;
    let is_one = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
    is_one.then(|| (namespace.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_two_absolute_paths() {
        for (text, is_provider) in [
            ("/etc/k/p.yaml:/opt/bin", true),
            ("/etc/k/p.yaml", false),
            ("/etc/k/p.yaml:", false),
            ("/etc/../p.yaml:/opt/bin", false),
            ("p.yaml:bin", false),
        ] {
            assert_eq!(text.parse::<Provider>().is_ok(), is_provider, "{text}");
        }
    }

    #[test]
    fn a_catalogs_secret_has_namespace_and_name_as_its_copy() {
        for (text, is_secret) in [
            ("olm/pull", true),
            ("olm/pull.v2", true),
            ("pull", false),
            ("olm/", false),
            ("olm/a/b", false),
            ("o.lm/pull", false),
            ("Olm/pull", false),
            ("olm/Pull", false),
            ("olm/pull..v2", false),
            ("olm/it's", false),
        ] {
            let secret = text.parse::<CatalogSecret>();
            assert_eq!(secret.is_ok(), is_secret, "{text:?}");
            let copy = secret.map(|CatalogSecret((namespace, name))| {
                CatalogSecret::of_copy(&names::operator_secret(&namespace, &name))
            });
            assert_eq!(copy, text.parse().map(Some), "{text:?}");
        }
        for (namespace, name, is_secret) in [(63, 180, true), (63, 181, false), (64, 1, false)] {
            let text = format!("{}/{}", "n".repeat(namespace), "s".repeat(name));
            assert_eq!(text.parse::<CatalogSecret>().is_ok(), is_secret, "{text}");
        }
        for other in ["global-pull-secret", "globalps-olm", "globalps-.pull"] {
            assert_eq!(CatalogSecret::of_copy(other), None);
        }
    }

    #[test]
    fn no_limit_is_zero_and_a_wait_has_one() {
        for (text, limit, span) in [
            ("0", Some(None), false),
            ("0s", Some(None), false),
            ("0h0m", Some(None), false),
            ("10", Some(Some(10)), true),
            ("1m30s", Some(Some(90)), true),
            ("-1s", None, false),
            ("s", None, false),
            ("", None, false),
        ] {
            let found = text.parse::<Limit>().ok();
            let seconds = found.map(|limit| limit.0.map(|span| span.0.as_secs()));
            assert_eq!(seconds, limit, "{text:?}");
            assert_eq!(text.parse::<Span>().is_ok(), span, "{text:?}");
        }
    }

    #[test]
    fn a_unit_is_a_service_and_a_file_an_absolute_path() {
        for (text, is_unit) in [
            ("my-kubelet.service", true),
            ("kubelet@1.service", true),
            (".service", false),
            ("kubelet", false),
            ("kubelet.socket", false),
            ("a b.service", false),
            ("a/b.service", false),
        ] {
            assert_eq!(text.parse::<KubeletUnit>().is_ok(), is_unit, "{text:?}");
        }
        for (text, is_file) in [
            ("/data/kubelet/config.json", true),
            ("/etc/config.json", true),
            ("/config.json", false),
            ("data/config.json", false),
            ("/data/../etc/config.json", false),
            ("/data//config.json", false),
            ("/data/kubelet/", false),
            ("", false),
        ] {
            assert_eq!(text.parse::<KubeletFile>().is_ok(), is_file, "{text:?}");
        }
    }

    #[test]
    fn a_source_is_another_secret_and_a_label_has_a_value() {
        for (text, is_name) in [
            ("team-a-pull-secret", true),
            ("team.a", true),
            ("additional-pull-secret", false),
            ("global-pull-secret", false),
            ("global-pull-secret-rolled-out", false),
            ("global-pull-secret-state", false),
            ("additional-pull-secret-history-0", false),
            ("global-pull-secret-team", true),
            ("", false),
            ("Team", false),
            ("team-", false),
            ("a/b", false),
        ] {
            assert_eq!(text.parse::<SourceName>().is_ok(), is_name, "{text:?}");
        }
        assert!("a".repeat(237).parse::<SourceName>().is_err());
        for (text, is_label) in [
            ("team=a", true),
            ("example.com/team=", true),
            ("team", false),
            ("=a", false),
            ("team==a", false),
            ("a b=a", false),
            ("team=a!", false),
        ] {
            assert_eq!(label(text).is_ok(), is_label, "{text:?}");
        }
    }

    #[test]
    fn times_are_written_as_kubectl_takes_them() {
        for (text, seconds) in [
            ("30", Some(30)),
            ("90s", Some(90)),
            ("5m", Some(300)),
            ("1h30m", Some(5400)),
            ("", None),
            ("-5s", None),
            ("0s", None),
            ("soon", None),
        ] {
            let found = text.parse::<Span>().ok().map(|span| span.0.as_secs());
            assert_eq!(found, seconds, "{text:?}");
        }
    }
}
