//! Identifies the content of a Secret without reading it, by the revision that introduced each of its parts. Pure.

use globalps_core::namespaces::part_of_annotation;
use globalps_core::rollout::Revision;
use globalps_provider::Content;

use crate::content::secret::{Global, Since};
use crate::content::since::EVERY_POD;

/// The content of the pull secrets, and the revision that introduced each part.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Validated and merged.
    pub content: &'a Content,
    since: &'a Since,
    revision: Revision,
}

impl<'a> Parts<'a> {
    /// `None`: there is no content.
    pub fn of(global: &'a Global) -> Option<Self> {
        Some(Self {
            content: global.content.as_ref()?,
            since: &global.content_since,
            revision: global.revision,
        })
    }

    fn since(&self, source: &str) -> Revision {
        let since = self.since.get(source).copied();
        let since = since.filter(|since| since.is_identified());
        since.unwrap_or(self.revision)
    }

    /// Value of the annotation `globalps.io/content` of a Secret with these parts of the sources. `None`: it would be empty.
    pub fn identity(&self, parts: &[usize]) -> Option<String> {
        let has_config = !self.content.config.entries().is_empty();
        let every_pod = has_config.then(|| (EVERY_POD, self.since(EVERY_POD)));
        let scoped = parts.iter().filter_map(|at| self.content.scoped.get(*at));
        let scoped = scoped.map(|scoped| (scoped.source.as_str(), self.since(&scoped.source)));
        let words: Vec<String> = every_pod
            .into_iter()
            .chain(scoped)
            .map(|(source, since)| part_of_annotation(source, since))
            .collect();
        (!words.is_empty()).then(|| words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use globalps_core::rollout::RevisionId;
    use globalps_dockerconfig::{DockerConfig, parse};
    use globalps_provider::{Scope, ScopedConfig};

    use super::*;

    #[test]
    fn an_identity_has_each_part_with_its_revision() {
        let config = parse(br#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#).unwrap();
        let scoped = |source: &str| ScopedConfig {
            source: source.to_owned(),
            scope: Scope::default(),
            config: config.clone(),
        };
        let revision = |number| Revision::new(number, RevisionId::from_random(0xab));
        let mut global = Global {
            revision: revision(7),
            content: Some(Content {
                config: config.clone(),
                scoped: vec![scoped("a"), scoped("b")],
                ..Content::default()
            }),
            content_since: [(String::new(), revision(5)), ("a".to_owned(), revision(6))].into(),
            ..Global::default()
        };
        let identity =
            |global: &Global, parts: &[usize]| Parts::of(global).unwrap().identity(parts);
        let is = |text: &str| Some(text.replace('#', "-00000000000000ab"));
        assert_eq!(identity(&global, &[]), is("5#"));
        assert_eq!(identity(&global, &[0]), is("5#,a@6#"));
        assert_eq!(
            identity(&global, &[0, 1]),
            is("5#,a@6#,b@7#"),
            "unknown: this revision"
        );
        let without_ids = global
            .content_since
            .values()
            .map(|since| since.unidentified());
        let without_ids = global.content_since.keys().cloned().zip(without_ids);
        let without_ids = Global {
            content_since: without_ids.collect(),
            ..global.clone()
        };
        assert_eq!(
            identity(&without_ids, &[0]),
            is("7#,a@7#"),
            "a number identifies nothing"
        );
        global.content.as_mut().unwrap().config = DockerConfig::default();
        assert_eq!(identity(&global, &[0]), is("a@6#"));
        assert_eq!(identity(&global, &[]), None);
    }
}
