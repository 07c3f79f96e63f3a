//! Whether the pull secrets are absent. Only that restores nodes: Secrets that are deleted, or that the configuration no longer
//! names and whose removal is meant. Pure.

use crate::content::source::Source;

/// Whether nodes restore their own files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// A Secret that the configuration names exists, or may exist.
    No,
    /// The configuration names no Secret that exists, but these gave the content in force, or the last one named them, and they
    /// exist or may exist. An additional Secret that has given nothing yet does not replace them.
    OnlyUnnamed(Vec<String>),
    /// No Secret exists, or it is meant.
    Yes,
}

/// `named`: the sources in the configuration. `unnamed`: sources in force, or of the last configuration, that it doesn't name.
/// `is_of_sources`: these gave all of the content in force. `is_meant`: it restores on purpose.
pub fn absence(
    additional: &Source,
    is_of_sources: bool,
    named: &[(String, Source)],
    unnamed: &[(String, Source)],
    is_meant: bool,
) -> Absence {
    let is_absent = |(_, source): &&(String, Source)| *source == Source::Absent;
    let has_additional = *additional != Source::Absent;
    if has_additional && !is_of_sources || !named.iter().all(|source| is_absent(&source)) {
        return Absence::No;
    }
    let left = unnamed.iter().filter(|source| !is_absent(source));
    let left: Vec<String> = left.map(|(name, _)| name.clone()).collect();
    if !left.is_empty() && !is_meant {
        Absence::OnlyUnnamed(left)
    } else if has_additional {
        Absence::No
    } else {
        Absence::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::source::Data;

    #[test]
    fn only_what_is_known_to_be_deleted_is_absent() {
        let found = || Source::Found(Data(None));
        let away = || Source::Unreadable("away".to_owned());
        let only = |name: &str| Absence::OnlyUnnamed(vec![name.to_owned()]);
        let one = |source: Source| vec![("a".to_owned(), source)];
        for (case, additional, named, unnamed, is_meant, expected) in [
            (
                "nothing",
                Source::Absent,
                vec![],
                vec![],
                false,
                Absence::Yes,
            ),
            (
                "the additional one",
                found(),
                vec![],
                vec![],
                true,
                Absence::No,
            ),
            (
                "a forbidden one",
                Source::Forbidden,
                vec![],
                vec![],
                true,
                Absence::No,
            ),
            (
                "a source",
                Source::Absent,
                one(away()),
                vec![],
                true,
                Absence::No,
            ),
            (
                "a deleted source",
                Source::Absent,
                one(Source::Absent),
                vec![],
                false,
                Absence::Yes,
            ),
            (
                "no longer named",
                Source::Absent,
                vec![],
                one(found()),
                false,
                only("a"),
            ),
            (
                "no longer named, and forbidden",
                Source::Absent,
                vec![],
                one(Source::Forbidden),
                false,
                only("a"),
            ),
            (
                "no longer named, and unreadable",
                Source::Absent,
                vec![],
                one(away()),
                false,
                only("a"),
            ),
            (
                "no longer named, and deleted",
                Source::Absent,
                vec![],
                one(Source::Absent),
                false,
                Absence::Yes,
            ),
            (
                "removed on purpose",
                Source::Absent,
                vec![],
                one(found()),
                true,
                Absence::Yes,
            ),
            (
                "another one is named instead, which does not exist",
                Source::Absent,
                vec![("b".to_owned(), Source::Absent)],
                one(found()),
                false,
                only("a"),
            ),
        ] {
            let found = absence(&additional, false, &named, &unnamed, is_meant);
            assert_eq!(found, expected, "{case}");
        }
        for (case, named, unnamed, is_meant, expected) in [
            ("it is held", vec![], one(found()), false, only("a")),
            ("it is meant", vec![], one(found()), true, Absence::No),
            (
                "it is deleted",
                vec![],
                one(Source::Absent),
                false,
                Absence::No,
            ),
            (
                "another one is named instead",
                vec![("b".to_owned(), found())],
                one(found()),
                false,
                Absence::No,
            ),
        ] {
            let found = absence(&found(), true, &named, &unnamed, is_meant);
            assert_eq!(found, expected, "an additional one appears: {case}");
        }
    }
}
