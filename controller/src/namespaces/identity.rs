//! Identifies the content of a Secret without reading it, by the revision that introduced each of its parts. Pure.

use globalps_core::provider::Content;

use crate::content::secret::{Global, Since};
use crate::content::since::EVERY_POD;

/// The content of the pull secrets, and the revision that introduced each part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) content: &'a Content,
    since: &'a Since,
    revision: i64,
}

impl<'a> Parts<'a> {
    /// `None`: there is no content.
    pub(crate) fn of(global: &'a Global) -> Option<Self> {
        Some(Self {
            content: global.content.as_ref()?,
            since: &global.content_since,
            revision: global.revision.number,
        })
    }

    fn since(&self, source: &str) -> i64 {
        self.since.get(source).copied().unwrap_or(self.revision)
    }

    /// Value of the annotation `globalps.io/content` of a Secret with these parts of the sources. `None`: it would be empty.
    pub(crate) fn identity(&self, parts: &[usize]) -> Option<String> {
        let has_config = !self.content.config.entries().is_empty();
        let every_pod = has_config.then(|| (EVERY_POD, self.since(EVERY_POD)));
        let scoped = parts.iter().filter_map(|at| self.content.scoped.get(*at));
        let scoped = scoped.map(|scoped| (scoped.source.as_str(), self.since(&scoped.source)));
        let words: Vec<String> = every_pod
            .into_iter()
            .chain(scoped)
            .map(|(source, since)| match source {
                EVERY_POD => since.to_string(),
                source => format!("{source}@{since}"),
            })
            .collect();
        (!words.is_empty()).then(|| words.join(","))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use globalps_core::dockerconfig::{DockerConfig, parse};
    use globalps_core::provider::{Scope, ScopedConfig};

    use super::*;

    #[test]
    fn an_identity_has_each_part_with_its_revision() {
        let config = parse(br#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#).unwrap();
        let scoped = |source: &str| ScopedConfig {
            source: source.to_owned(),
            scope: Scope::default(),
            config: config.clone(),
        };
        let mut global = Global {
            revision: crate::content::secret::revision_of_test(7),
            content: Some(Content {
                config: config.clone(),
                scoped: vec![scoped("a"), scoped("b")],
                ..Content::default()
            }),
            content_since: [(String::new(), 5), ("a".to_owned(), 6)].into(),
            ..Global::default()
        };
        let identity =
            |global: &Global, parts: &[usize]| Parts::of(global).unwrap().identity(parts);
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(identity(&global, &[]), is("5"));
        assert_eq!(identity(&global, &[0]), is("5,a@6"));
        assert_eq!(
            identity(&global, &[0, 1]),
            is("5,a@6,b@7"),
            "unknown: this revision"
        );
        global.content.as_mut().unwrap().config = DockerConfig::default();
        assert_eq!(identity(&global, &[0]), is("a@6"));
        assert_eq!(identity(&global, &[]), None);
    }
}
