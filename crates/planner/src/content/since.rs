//! Tracks which revision introduced each part of the content. Pure.

use globalps_core::rollout::Revision;
use globalps_dockerconfig::DockerConfig;
use globalps_provider::Content;

use super::secret::{Global, Since};

/// Stands for the part for every pod in place of a source name, like in [`Content::parts`].
pub const EVERY_POD: &str = "";

/// `revision`: of this content. A part with the same bytes as in `before` keeps its revision, if that identifies it.
pub fn since(before: Option<&Global>, content: &Content, revision: Revision) -> Since {
    let known = |source: &str, config: &DockerConfig| {
        let global = before?;
        let before = global.content.as_ref()?;
        let was = match source {
            EVERY_POD => Some(&before.config),
            source => {
                let mut scoped = before.scoped.iter();
                scoped.find(|s| s.source == source).map(|s| &s.config)
            }
        };
        // The controller compares what namespaces have byte by byte.
        was.filter(|was| was.render() == config.render())?;
        let since = global.content_since.get(source).copied();
        since.filter(|since| since.is_identified())
    };
    content
        .parts()
        .map(|(source, config)| {
            let since = known(source, config).unwrap_or(revision);
            (source.to_owned(), since)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use globalps_dockerconfig::parse;
    use globalps_provider::{Scope, ScopedConfig};

    use super::*;
    use crate::content::secret::revision_of_test;

    #[test]
    fn only_changed_parts_get_the_new_revision() {
        let config = |auth: &str| {
            parse(format!(r#"{{"auths":{{"quay.io":{{"auth":"{auth}"}}}}}}"#).as_bytes()).unwrap()
        };
        let content = |every_pod: &str, scoped: &[(&str, &str)]| Content {
            config: config(every_pod),
            scoped: scoped
                .iter()
                .map(|(source, auth)| ScopedConfig {
                    source: (*source).to_owned(),
                    scope: Scope::default(),
                    config: config(auth),
                })
                .collect(),
            ..Content::default()
        };
        let counted = |since: &Since| -> Vec<i64> { since.values().map(|r| r.number).collect() };
        let since = |before: Option<&Global>, content: &Content, revision| {
            since(before, content, revision_of_test(revision))
        };
        let first = content("MTpw", &[("a", "MTpw")]);
        let mut global = Global {
            revision: revision_of_test(3),
            content: Some(first.clone()),
            ..Global::default()
        };
        assert_eq!(counted(&since(None, &first, 1)), [1, 1]);
        assert_eq!(
            counted(&since(Some(&global), &first, 3)),
            [3, 3],
            "an upgrade"
        );
        let known = |revision: fn(i64) -> Revision| {
            [
                (EVERY_POD.to_owned(), revision(2)),
                ("a".to_owned(), revision(1)),
            ]
            .into()
        };
        global.content_since = known(|number| revision_of_test(number).unidentified());
        assert_eq!(
            counted(&since(Some(&global), &first, 3)),
            [3, 3],
            "a number identifies nothing"
        );
        global.content_since = known(revision_of_test);
        for (next, expected) in [
            (content("MTpw", &[("a", "MTpw")]), vec![2, 1]),
            (content("Mjpw", &[("a", "MTpw")]), vec![4, 1]),
            (
                content("MTpw", &[("a", "Mjpw"), ("b", "MTpw")]),
                vec![2, 4, 4],
            ),
            (content("MTpw", &[]), vec![2]),
            // The same user and password, encoded differently.
            (
                content("MTpw", &[("a", "MTpw\",\"username\":\"x")]),
                vec![2, 4],
            ),
        ] {
            assert_eq!(counted(&since(Some(&global), &next, 4)), expected);
        }
    }
}
