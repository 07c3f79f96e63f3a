//! What `OpenShift`'s own pull secret gets of a content, with the delivery `OpenShift`. Pure.

use globalps_core::reasons::Reason;
use globalps_dockerconfig::{Applied, DockerConfig, Fate, SharedMerge, canonical_key, shown_key};
use globalps_planner::openshift::turns::Turns;
use globalps_planner::openshift::{is_platform, merge};
use jiff::Timestamp;
use serde::Serialize;

/// `diff -o json` contains this with the delivery `OpenShift`: scripts rely on its shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IntoOpenShift {
    /// Registries whose entries are written, and removed.
    pub written: Vec<String>,
    pub removed: Vec<String>,
    pub not_written: Vec<NotWritten>,
    /// Why it is not known in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NotWritten {
    pub registry: String,
    /// `PlatformKey` or `AnotherWriter`.
    pub reason: &'static str,
}

/// What of `OpenShift`'s pull secret this user may see.
pub(crate) enum Seen<'a> {
    Document(&'a [u8]),
    /// It is not there, or may not be read.
    Nothing(String),
}

impl IntoOpenShift {
    /// `content`: what nodes should have. `applied`: what globalps wrote. `overrides`: `spec.kubelet.overrideRegistries`.
    pub(crate) fn of(
        seen: Seen,
        content: &DockerConfig,
        applied: &Applied,
        overrides: &[String],
    ) -> Self {
        let document = match seen {
            Seen::Nothing(why) => return Self::unseen(content, overrides, why),
            Seen::Document(document) => document,
        };
        // What is undone again and again is the controller's to say.
        let (turns, now) = (Turns::default(), Timestamp::UNIX_EPOCH);
        match merge(document, content, applied, overrides, &turns, now) {
            Ok(merge) => Self::seen(&merge),
            Err(error) => {
                let why = format!("`openshift-config/pull-secret` is not edited: {error}");
                Self::unseen(content, overrides, why)
            }
        }
    }

    fn seen(merge: &SharedMerge) -> Self {
        let keys = |is_written: bool| {
            let edits = merge.edits.iter();
            let some = edits.filter(|(_, edit)| edit.is_some() == is_written);
            some.map(|(key, _)| shown_key(key)).collect()
        };
        let fates = merge.fates.iter();
        Self {
            written: keys(true),
            removed: keys(false),
            not_written: fates
                .filter_map(|(registry, fate)| NotWritten::of(registry, *fate))
                .collect(),
            unknown: None,
        }
    }

    /// The platform's registries are known all the same.
    fn unseen(content: &DockerConfig, overrides: &[String], why: String) -> Self {
        let registries = content.by_canonical_key();
        let of_platform = registries.keys();
        Self {
            not_written: of_platform
                .filter_map(|key| NotWritten::of_platform(key, overrides))
                .collect(),
            unknown: Some(why),
            ..Self::default()
        }
    }

    /// Only of these registries.
    pub(crate) fn only(mut self, registries: &[String]) -> Self {
        self.not_written
            .retain(|it| registries.contains(&it.registry));
        self
    }

    /// What does not come into force, one sentence each.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let not_written = self.not_written.iter().map(NotWritten::sentence);
        let unknown = self.unknown.clone();
        not_written.chain(unknown).collect()
    }
}

impl NotWritten {
    /// Whatever the cluster's pull secret has. `key`: as users write registries.
    pub(crate) fn of_platform(key: &str, overrides: &[String]) -> Option<Self> {
        let registry = canonical_key(key);
        let is_free = overrides.iter().any(|free| canonical_key(free) == registry);
        let is_needed = is_platform(&registry) && !is_free;
        is_needed.then(|| Self::of(&shown_key(&registry), Fate::Platform))?
    }

    fn of(registry: &str, fate: Fate) -> Option<Self> {
        let reason = match fate {
            Fate::Platform => Reason::PlatformKey,
            Fate::Theirs => Reason::AnotherWriter,
            Fate::InForce | Fate::Written | Fate::Waits => return None,
        };
        Some(Self {
            registry: registry.to_owned(),
            reason: reason.as_str(),
        })
    }

    pub(crate) fn sentence(&self) -> String {
        let Self { registry, reason } = self;
        let why = if *reason == Reason::PlatformKey.as_str() {
            "OpenShift needs its own entry for it; use a key with a path, such as `quay.io/ORGANIZATION`"
        } else {
            "another program has its own entry for it in `openshift-config/pull-secret`"
        };
        format!("`{registry}` is not delivered ({reason}): {why}")
    }
}

#[cfg(test)]
mod tests {
    use globalps_dockerconfig::parse;

    use super::*;

    const DOCUMENT: &[u8] =
        br#"{"auths":{"quay.io":{"auth":"cDpw"},"theirs.io":{"auth":"dDp0"},"old.io":{"auth":"dTpw"}}}"#;

    fn config(registries: &[&str]) -> DockerConfig {
        let entries = registries
            .iter()
            .map(|it| format!(r#""{it}":{{"auth":"dTpw"}}"#));
        let entries = entries.collect::<Vec<_>>().join(",");
        parse(format!(r#"{{"auths":{{{entries}}}}}"#).as_bytes()).expect("credentials")
    }

    fn short(found: &IntoOpenShift) -> String {
        let not_written = found.not_written.iter();
        let not_written = not_written.map(|it| format!("!{} {}", it.registry, it.reason));
        let written = found.written.iter().map(|it| format!("+{it}"));
        let removed = found.removed.iter().map(|it| format!("-{it}"));
        let unknown = found.unknown.iter().map(|_| "?".to_owned());
        let all = written.chain(removed).chain(not_written).chain(unknown);
        all.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_registry_is_written_or_has_a_reason() {
        let applied = Applied {
            versions: vec![config(&["old.io"])],
            ..Applied::default()
        };
        let all = ["quay.io", "quay.io/org", "theirs.io", "r.io"];
        let hidden = || Seen::Nothing("hidden".to_owned());
        for (seen, content, overrides, expected) in [
            (
                Seen::Document(DOCUMENT),
                &all[..],
                &[][..],
                "+quay.io/org +r.io -old.io !quay.io PlatformKey !theirs.io AnotherWriter",
            ),
            (
                Seen::Document(DOCUMENT),
                &all[..],
                &["quay.io", "https://theirs.io/v1/"],
                "+quay.io +quay.io/org +r.io +theirs.io -old.io",
            ),
            (Seen::Document(DOCUMENT), &["old.io"], &[], ""),
            (Seen::Document(DOCUMENT), &[], &[], "-old.io"),
            (Seen::Document(b"{}"), &["r.io"], &[], "?"),
            (hidden(), &all[..], &[], "!quay.io PlatformKey ?"),
            (hidden(), &all[..], &["quay.io"], "?"),
        ] {
            let overrides: Vec<String> = overrides.iter().map(|&it| it.to_owned()).collect();
            let found = IntoOpenShift::of(seen, &config(content), &applied, &overrides);
            assert_eq!(short(&found), expected, "{content:?} {overrides:?}");
        }
    }

    #[test]
    fn each_registry_that_is_not_delivered_has_a_sentence() {
        let seen = Seen::Document(DOCUMENT);
        let content = config(&["quay.io", "theirs.io"]);
        let found = IntoOpenShift::of(seen, &content, &Applied::default(), &[]);
        let sentences = found.sentences();
        assert_eq!(sentences.len(), 2, "{sentences:?}");
        assert!(sentences[0].starts_with("`quay.io` is not delivered (PlatformKey)"));
        assert!(sentences[1].starts_with("`theirs.io` is not delivered (AnotherWriter)"));
        let found = found.only(&["theirs.io".to_owned()]);
        assert_eq!(found.sentences(), sentences[1..]);
    }
}
