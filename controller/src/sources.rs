//! From the pull secrets as they are to the one that the nodes shall have. Pure.

use globalps_core::api::{ConflictStatus, GlobalPullSecretSpec};
use globalps_core::dockerconfig::{self, DockerConfig, Finding, Precedence};
use jiff::Timestamp;

/// A pull secret as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// There is none, and none is asked for.
    Absent,
    /// One is asked for, but it can't be read: why, as a sentence.
    Unreadable(String),
    Found(Data),
}

/// The bytes under the key of a Secret; `None`: it has no such key. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Data(pub(crate) Option<Vec<u8>>);

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "Data(***)"
        } else {
            "Data(none)"
        })
    }
}

/// What became of a pull secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Absent,
    Valid,
    Unreadable(String),
    /// Every error; the last one that was valid stays in force.
    Invalid(Vec<Finding>),
    /// Only the bad entries, named here, are left out.
    Partly(Vec<Finding>),
    /// It is valid, but was taken back from the fleet: why, as a sentence.
    TakenBack(String),
}

/// What `global-pull-secret` holds now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Global {
    pub(crate) revision: i64,
    pub(crate) merged: Option<DockerConfig>,
    pub(crate) last_additional: Option<Data>,
    pub(crate) last_original: Option<Data>,
    /// The newest revision that some node has run with; 0: none, or the way back has begun.
    pub(crate) proven: i64,
    /// When every node had the revision; `None`: not yet.
    pub(crate) rolled_out: Option<Timestamp>,
    /// The additional Secret that was taken back, and why.
    pub(crate) refused: Option<Data>,
    pub(crate) refused_why: Option<String>,
}

impl Global {
    /// Whether all but the merged content is the same.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let Self {
            revision,
            merged: _,
            last_additional,
            last_original,
            proven,
            rolled_out,
            refused,
            refused_why,
        } = self;
        *revision == other.revision
            && *last_additional == other.last_additional
            && *last_original == other.last_original
            && *proven == other.proven
            && *rolled_out == other.rolled_out
            && *refused == other.refused
            && *refused_why == other.refused_why
    }
}

/// What the nodes shall have, and the two good sources that it was made of.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    pub(crate) config: DockerConfig,
    pub(crate) additional: Data,
    pub(crate) original: Option<Data>,
}

#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) additional: Verdict,
    pub(crate) original: Verdict,
    /// `None`: no additional Secret, or none that was ever valid.
    pub(crate) desired: Option<Desired>,
    pub(crate) conflicts: Vec<ConflictStatus>,
    /// The additional Secret as it is, if it is the one that was taken back.
    pub(crate) refused: Option<Data>,
}

/// A source that is not valid never changes what is in force: its last good bytes stand in for it, so that the other
/// source's changes still flow.
pub(crate) fn resolve(
    spec: &GlobalPullSecretSpec,
    additional: &Source,
    original: &Source,
    global: Option<&Global>,
) -> Resolved {
    let last_additional = global.and_then(|global| global.last_additional.as_ref());
    let last_original = global.and_then(|global| global.last_original.as_ref());
    let refused = global
        .and_then(|global| global.refused.clone())
        .filter(|refused| *additional == Source::Found(refused.clone()));
    let (mut additional, mut good_additional) = judge(additional, last_additional, false);
    if refused.is_some() {
        let why = global.and_then(|global| global.refused_why.clone());
        additional = Verdict::TakenBack(why.unwrap_or_default());
        good_additional = last_additional.and_then(read);
    }
    let (original, good_original) = judge(original, last_original, true);
    let Some((config, data)) = good_additional else {
        return Resolved {
            additional,
            original,
            desired: None,
            conflicts: Vec::new(),
            refused,
        };
    };
    let (original_config, original_data) = good_original.unzip();
    let merged = dockerconfig::merge(
        &original_config.unwrap_or_default(),
        &config,
        spec.precedence,
    );
    let conflicts = merged
        .conflicts
        .into_iter()
        .map(|conflict| ConflictStatus {
            registry: conflict.registry,
            winner: conflict.winner,
        })
        .collect();
    let desired = Desired {
        config: merged.config,
        additional: data,
        original: original_data,
    };
    Resolved {
        additional,
        original,
        desired: Some(desired),
        conflicts,
        refused,
    }
}

/// `lenient`: entries that are bad are left out instead of refusing all of it.
fn judge(
    source: &Source,
    last: Option<&Data>,
    lenient: bool,
) -> (Verdict, Option<(DockerConfig, Data)>) {
    let stand_in = || last.and_then(read);
    let data = match source {
        Source::Absent => return (Verdict::Absent, None),
        Source::Unreadable(why) => return (Verdict::Unreadable(why.clone()), stand_in()),
        Source::Found(data) => data,
    };
    let (config, findings) = dockerconfig::validate_data(data.0.as_deref());
    if let Some(config) = config {
        return (Verdict::Valid, Some((config, data.clone())));
    }
    let errors: Vec<Finding> = findings.into_iter().filter(Finding::is_error).collect();
    if lenient && let Some(Ok(config)) = data.0.as_deref().map(dockerconfig::parse) {
        let readable = config
            .entries()
            .iter()
            .filter(|entry| entry.credential().is_ok());
        let good: Vec<_> = readable.cloned().collect();
        if !good.is_empty() {
            let kept = DockerConfig::new(good);
            let bytes = Data(Some(kept.render()));
            return (Verdict::Partly(errors), Some((kept, bytes)));
        }
    }
    (Verdict::Invalid(errors), stand_in())
}

fn read(data: &Data) -> Option<(DockerConfig, Data)> {
    let (config, _) = dockerconfig::validate_data(data.0.as_deref());
    Some((config?, data.clone()))
}

/// The one who lost where `winner` won.
pub(crate) fn loser(winner: Precedence) -> &'static str {
    match winner {
        Precedence::Additional => "original",
        Precedence::Original => "additional",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const A: &str = r#"{"auths":{"a":{"auth":"dTpw"}}}"#;
    const B: &str = r#"{"auths":{"b":{"auth":"dTpw"}}}"#;
    const BAD: &str = r#"{"auths":{"c":{"auth":"cGFudHM="}}}"#;
    const HALF: &str = r#"{"auths":{"b":{"auth":"dTpw"},"c":{"auth":"cGFudHM="}}}"#;

    fn data(text: &str) -> Data {
        Data(Some(text.as_bytes().to_vec()))
    }

    fn found(text: &str) -> Source {
        Source::Found(data(text))
    }

    fn keys(resolved: &Resolved) -> String {
        let desired = resolved.desired.as_ref();
        desired.map_or("nothing".to_owned(), |desired| {
            desired
                .config
                .entries()
                .iter()
                .map(globalps_core::dockerconfig::Entry::key)
                .collect::<Vec<_>>()
                .join(" ")
        })
    }

    #[test]
    fn a_bad_source_never_holds_up_the_other_and_changes_nothing_itself() {
        let before = Global {
            last_additional: Some(data(A)),
            last_original: Some(data(B)),
            ..Global::default()
        };
        let unreadable = Source::Unreadable("forbidden".to_owned());
        for (sentence, additional, original, global, expected) in [
            ("additional alone", found(A), Source::Absent, None, "a"),
            ("both", found(A), found(B), None, "a b"),
            (
                "an additional that is invalid at first gives nothing",
                found(BAD),
                found(B),
                None,
                "nothing",
            ),
            (
                "an invalid additional leaves the last good one",
                found(BAD),
                found(B),
                Some(&before),
                "a b",
            ),
            (
                "a new original flows meanwhile",
                found("{}"),
                found(A),
                Some(&before),
                "a",
            ),
            (
                "no additional gives nothing",
                Source::Absent,
                found(B),
                Some(&before),
                "nothing",
            ),
            (
                "an invalid original leaves the last good one",
                found(A),
                found("x"),
                Some(&before),
                "a b",
            ),
            (
                "an unreadable original as well",
                found(A),
                unreadable,
                Some(&before),
                "a b",
            ),
            (
                "an original with a bad entry gives its good ones",
                found(A),
                found(HALF),
                None,
                "a b",
            ),
            (
                "an additional with a bad entry gives none",
                found(HALF),
                Source::Absent,
                None,
                "nothing",
            ),
            (
                "no such key is invalid",
                Source::Found(Data(None)),
                Source::Absent,
                Some(&before),
                "a",
            ),
            (
                "an original that is gone is gone",
                found(A),
                Source::Absent,
                Some(&before),
                "a",
            ),
        ] {
            let resolved = resolve(
                &GlobalPullSecretSpec::default(),
                &additional,
                &original,
                global,
            );
            assert_eq!(keys(&resolved), expected, "{sentence}");
        }
    }

    #[test]
    fn every_bad_entry_is_in_the_verdict() {
        let spec = GlobalPullSecretSpec::default();
        let resolved = resolve(&spec, &found(BAD), &found(HALF), None);
        let Verdict::Invalid(additional) = resolved.additional else {
            panic!("{:?}", resolved.additional)
        };
        let Verdict::Partly(original) = resolved.original else {
            panic!("{:?}", resolved.original)
        };
        assert_eq!(additional[0].registry, "c");
        assert_eq!(original[0].registry, "c");
    }

    #[test]
    fn data_is_not_shown_in_debug() {
        assert!(!format!("{:?}", found(A)).contains("dTpw"));
    }
}
