//! Validates the pull secrets and merges them into the one for the nodes. Pure.

use std::collections::BTreeMap;

use globalps_core::api::{ConflictStatus, GlobalPullSecretSpec};
use globalps_core::checksum::CHECKSUM_SIZE;
use globalps_core::names::{ADDITIONAL_SECRET, SECRET_LIMIT};
use globalps_dockerconfig::{Code, DockerConfig, Finding, Severity, shown_key};
use globalps_provider::{Content, Scope, ScopedConfig};

use super::combine::combine;
use super::delivered::delivered;
use super::scope::{Namespaces, only_gains, resolve_scope};
use super::secret::{Global, content_data, scopes_value};
use super::source::{Data, Source, Verdict};

/// The content for the nodes, and the valid sources that it consists of.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    pub(crate) content: Content,
    pub(crate) additional: Option<Data>,
    pub(crate) original: Option<Data>,
    /// By source name.
    pub(crate) sources: BTreeMap<String, Data>,
    /// By source name; sources without a scope are for every pod.
    pub(crate) scopes: BTreeMap<String, Scope>,
}

/// The result for one of `spec.sources`.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedSource {
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    /// Registries whose effective credentials come from this source.
    pub(crate) registries: Vec<String>,
    /// Who may use them; `None`: every pod.
    pub(crate) scope: Option<Scope>,
}

#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) additional: Verdict,
    pub(crate) original: Verdict,
    /// In their order.
    pub(crate) sources: Vec<ResolvedSource>,
    /// `None`: no additional Secret and no source exists, or none was ever valid.
    pub(crate) desired: Option<Desired>,
    pub(crate) conflicts: Vec<ConflictStatus>,
    /// The additional Secret, if it is the one that was rolled back.
    pub(crate) rejected: Option<Data>,
    /// Size of `global-pull-secret` in bytes, if it exceeds the limit even without new content.
    pub(crate) too_large: Option<usize>,
}

/// A pull secret with its verdict, its effective content, and its last valid bytes.
struct Judged {
    verdict: Verdict,
    good: Option<(DockerConfig, Data)>,
    last: Option<Data>,
    /// Who may use it; `None`: every pod.
    scope: Option<Scope>,
    /// The scope of its last valid bytes.
    last_scope: Option<Scope>,
}

impl Judged {
    /// It has content or a scope that is not in `global-pull-secret` yet.
    fn is_new(&self) -> bool {
        let good = self.good.as_ref();
        good.is_some_and(|(_, data)| {
            self.last.as_ref() != Some(data) || self.scope != self.last_scope
        })
    }

    /// Size in bytes of the content that is kept.
    fn kept(&self) -> usize {
        self.good.as_ref().map_or(0, |(_, data)| data.len())
    }

    /// Rejects its `own` bytes because they don't fit; its last valid content and scope stay effective.
    fn reject(&mut self, own: usize, size: usize) {
        let hint = if self.scope.is_some() {
            "remove registries that no pod needs, or select fewer namespaces"
        } else {
            "remove registries that no node needs"
        };
        self.verdict = Verdict::Invalid(vec![Finding {
            severity: Severity::Error,
            code: Code::TooLarge,
            registry: String::new(),
            message: format!(
                "it has {own} bytes; `global-pull-secret` would have {size} bytes with it, more than a \
                 Secret's limit of {SECRET_LIMIT}: {hint}"
            )
            .into(),
            hint,
        }]);
        self.good = self.last.as_ref().and_then(read);
        self.scope.clone_from(&self.last_scope);
    }
}

/// The input for resolving scopes.
pub(crate) struct Scopes<'a> {
    pub(crate) spec: &'a GlobalPullSecretSpec,
    /// `None`: unknown.
    pub(crate) namespaces: Option<&'a Namespaces>,
    /// A source whose selector only selects more namespaces keeps its last scope.
    pub(crate) waits_with_namespaces: bool,
}

impl Scopes<'_> {
    /// `Ok(None)`: the source is for every pod. `last`: the scope of its last valid content.
    fn of(&self, source: &str, last: Option<&Scope>) -> Result<Option<Scope>, String> {
        let mut sources = self.spec.sources.iter();
        let scope = sources
            .find(|known| known.name == source)
            .and_then(|known| known.scope.as_ref());
        let Some(scope) = scope else {
            return Ok(None);
        };
        let resolved = resolve_scope(scope, self.namespaces)?;
        let namespaces = self.namespaces.filter(|_| self.waits_with_namespaces);
        let kept = last
            .zip(namespaces)
            .filter(|(last, namespaces)| only_gains(scope, namespaces, (last, &resolved)))
            .map(|(last, _)| last.clone());
        Ok(Some(kept.unwrap_or(resolved)))
    }
}

/// An invalid source never changes the effective content: its last valid bytes are used instead, so that changes of the other
/// sources still apply.
pub(crate) fn resolve(
    scopes: &Scopes,
    additional: &Source,
    original: &Source,
    sources: &[(String, Source)],
    global: Option<&Global>,
) -> Resolved {
    let last_additional = global.and_then(|global| global.last_additional.as_ref());
    let last_original = global.and_then(|global| global.last_original.as_ref());
    let spec = scopes.spec;
    let last_source = |name| global.and_then(|global| global.last_sources.get(name));
    let last_scope = |name| global.and_then(|global| global.last_scopes.get(name));
    let rejected = global
        .and_then(|global| global.rejected.clone())
        .filter(|rejected| *additional == Source::Found(rejected.clone()));
    let mut first = judge(additional, last_additional, false);
    if rejected.is_some() {
        let reason = global.and_then(|global| global.rejected_reason.clone());
        first.verdict = Verdict::RolledBack(reason.unwrap_or_default());
        first.good = last_additional.and_then(read);
    }
    let mut original = judge(original, last_original, true);
    let mut kept = first.kept() + original.kept();
    let mut all = vec![(ADDITIONAL_SECRET, first)];
    for (name, source) in sources {
        let last = last_source(name);
        let scope = scopes.of(name, last_scope(name));
        let mut judged = match source {
            // The loop below would reject it, but parsing takes many times its size: for 32 of them, almost a GiB.
            Source::Found(data) if last != Some(data) && kept + data.len() > SECRET_LIMIT => {
                let mut judged = judge(&Source::Absent, last, false);
                judged.reject(data.len(), kept + data.len());
                judged
            }
            _ => judge(source, last, false),
        };
        judged.last_scope = last_scope(name).cloned();
        match scope {
            Ok(scope) => judged.scope = scope,
            Err(_) if *source == Source::Absent => {}
            // Valid content and scope belong together: one without the other would be for other pods.
            Err(reason) => {
                judged.scope.clone_from(&judged.last_scope);
                judged.good = last.and_then(read);
                judged.verdict = Verdict::Invalid(vec![bad_scope(reason)]);
            }
        }
        kept += judged.kept();
        all.push((name, judged));
    }
    let (merged, too_large) = loop {
        let merged = merge(spec, &all, &original, global);
        let size = merged
            .as_ref()
            .and_then(|merged| too_large(&merged.desired, rejected.as_ref()));
        let Some(size) = size else {
            break (merged, None);
        };
        // Rejects the new source with the lowest precedence.
        let judged = all.iter_mut().rev().map(|(_, judged)| judged);
        match judged.chain([&mut original]).find(|judged| judged.is_new()) {
            Some(judged) => judged.reject(judged.kept(), size),
            None => break (merged, Some(size)),
        }
    };
    let mut verdicts = all
        .into_iter()
        .map(|(_, judged)| (judged.verdict, judged.scope));
    let additional = verdicts
        .next()
        .map_or(Verdict::Absent, |(verdict, _)| verdict);
    let (desired, conflicts, mut registries) = match merged {
        Some(merged) => (Some(merged.desired), merged.conflicts, merged.registries),
        None => (None, Vec::new(), BTreeMap::new()),
    };
    let sources = sources.iter().zip(verdicts);
    let sources = sources.map(|((name, _), (verdict, scope))| ResolvedSource {
        name: name.clone(),
        verdict,
        scope,
        registries: registries.remove(name).unwrap_or_default(),
    });
    Resolved {
        additional,
        original: original.verdict,
        sources: sources.collect(),
        desired,
        conflicts,
        rejected,
        too_large,
    }
}

struct Merged {
    desired: Desired,
    conflicts: Vec<ConflictStatus>,
    /// By source name.
    registries: BTreeMap<String, Vec<String>>,
}

/// `None`: none of them is valid.
fn merge(
    spec: &GlobalPullSecretSpec,
    all: &[(&str, Judged)],
    original: &Judged,
    before: Option<&Global>,
) -> Option<Merged> {
    let good = all
        .iter()
        .filter_map(|(name, judged)| Some((*name, &judged.good.as_ref()?.0, &judged.scope)));
    let (scoped, for_every_pod): (Vec<_>, Vec<_>) = good.partition(|(_, _, scope)| scope.is_some());
    if scoped.is_empty() && for_every_pod.is_empty() {
        return None;
    }
    let for_every_pod: Vec<(&str, &DockerConfig)> = for_every_pod
        .into_iter()
        .map(|(name, config, _)| (name, config))
        .collect();
    let combined = combine(&for_every_pod);
    let (original_config, original) = original.good.clone().unzip();
    let original_config = original_config.unwrap_or_default();
    let merged =
        globalps_dockerconfig::merge(&original_config, &combined.config(), spec.precedence);
    let with_original = merged.conflicts.into_iter().map(|conflict| ConflictStatus {
        registry: conflict.registry,
        effective: conflict.effective,
        source: String::new(),
        shadowed: String::new(),
    });
    let conflicts = with_original.chain(combined.conflicts.iter().cloned());
    let mut data: BTreeMap<String, Data> = all
        .iter()
        .filter_map(|(name, judged)| Some(((*name).to_owned(), judged.good.as_ref()?.1.clone())))
        .collect();
    let mut registries: BTreeMap<String, Vec<String>> = for_every_pod
        .iter()
        .enumerate()
        .filter(|(_, (name, _))| *name != ADDITIONAL_SECRET)
        .map(|(at, (name, _))| ((*name).to_owned(), combined.registries(at, &merged.config)))
        .collect();
    registries.extend(scoped.iter().map(|(name, config, _)| {
        let keys = config.by_canonical_key().into_keys();
        (
            (*name).to_owned(),
            keys.map(|key| shown_key(&key)).collect(),
        )
    }));
    let by_source = scoped
        .iter()
        .filter_map(|(name, _, scope)| Some(((*name).to_owned(), (*scope).clone()?)));
    let scoped = scoped.iter().filter_map(|(name, config, scope)| {
        Some(ScopedConfig {
            source: (*name).to_owned(),
            scope: (*scope).clone()?,
            config: globalps_dockerconfig::combine(&[config]).config(),
        })
    });
    Some(Merged {
        registries,
        conflicts: conflicts.collect(),
        desired: Desired {
            scopes: by_source.collect(),
            content: delivered(spec, merged.config, scoped.collect(), before),
            additional: data.remove(ADDITIONAL_SECRET),
            original,
            sources: data,
        },
    })
}

fn bad_scope(reason: String) -> Finding {
    Finding {
        severity: Severity::Error,
        code: Code::BadScope,
        registry: String::new(),
        message: reason.into(),
        hint: "see `kubectl explain globalpullsecret.spec.sources.scope`",
    }
}

/// Size of `global-pull-secret` in bytes with everything in it, if it exceeds the limit.
fn too_large(desired: &Desired, rejected: Option<&Data>) -> Option<usize> {
    let kept = [&desired.additional, &desired.original];
    let kept = kept.into_iter().flatten().chain(rejected);
    let kept: usize = kept.chain(desired.sources.values()).map(Data::len).sum();
    let kept = kept + scopes_value(&desired.scopes).map_or(0, |scopes| scopes.0.len());
    // Rendering adds at most an `auth` to each entry and repeats each scope, so skip it far below the limit.
    if kept * 4 <= SECRET_LIMIT {
        return None;
    }
    let values = content_data(&desired.content);
    let content: usize = values.iter().map(|(_, value)| value.0.len()).sum();
    let size = kept + content + CHECKSUM_SIZE;
    (size > SECRET_LIMIT).then_some(size)
}

/// `lenient`: drops invalid entries instead of rejecting the whole content.
fn judge(source: &Source, last: Option<&Data>, lenient: bool) -> Judged {
    let judged = |verdict, good| Judged {
        verdict,
        good,
        last: last.cloned(),
        scope: None,
        last_scope: None,
    };
    let stand_in = || last.and_then(read);
    let data = match source {
        Source::Absent => return judged(Verdict::Absent, None),
        Source::Forbidden => return judged(Verdict::Forbidden, stand_in()),
        Source::Unreadable(reason) => {
            return judged(Verdict::Unreadable(reason.clone()), stand_in());
        }
        Source::Found(data) => data,
    };
    let before = last.and_then(|last| last.0.as_deref());
    let (config, findings) = globalps_dockerconfig::validate_replacement(data.0.as_deref(), before);
    if let Some(config) = config {
        let findings = findings.into_iter().filter(Finding::limits_use);
        let verdict = Verdict::Valid(findings.collect());
        return judged(verdict, Some((config, data.clone())));
    }
    let errors: Vec<Finding> = findings.into_iter().filter(Finding::is_error).collect();
    if lenient && let Some(Ok(config)) = data.0.as_deref().map(globalps_dockerconfig::parse) {
        let readable = config
            .entries()
            .iter()
            .filter(|entry| entry.credential().is_ok());
        let kept = DockerConfig::new(readable.cloned().collect());
        if !kept.is_without_credentials() {
            let bytes = Data(Some(kept.render()));
            return judged(Verdict::Partly(errors), Some((kept, bytes)));
        }
    }
    judged(Verdict::Invalid(errors), stand_in())
}

fn read(data: &Data) -> Option<(DockerConfig, Data)> {
    let (config, _) = globalps_dockerconfig::validate_data(data.0.as_deref());
    Some((config?, data.clone()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::content::secret::{GlobalWrite, encode};

    /// Without namespaces.
    fn resolve(
        spec: &GlobalPullSecretSpec,
        additional: &Source,
        original: &Source,
        sources: &[(String, Source)],
        global: Option<&Global>,
    ) -> Resolved {
        let scopes = Scopes {
            spec,
            namespaces: None,
            waits_with_namespaces: false,
        };
        super::resolve(&scopes, additional, original, sources, global)
    }

    const A: &str = r#"{"auths":{"a":{"auth":"dTpw"}}}"#;
    const B: &str = r#"{"auths":{"b":{"auth":"dTpw"}}}"#;
    const C: &str = r#"{"auths":{"c":{"auth":"dTpw"}}}"#;
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
                .content
                .config
                .entries()
                .iter()
                .map(globalps_dockerconfig::Entry::key)
                .collect::<Vec<_>>()
                .join(" ")
        })
    }

    #[test]
    fn entries_that_are_not_used_are_named_and_replace_none() {
        let original = r#"{"auths":{"quay.io":{"auth":"dTpw"},"docker.io":{"auth":"dTpw"}}}"#;
        let additional =
            r#"{"auths":{"quay.io":{},"https://index.docker.io/v1/":{"auth":"dTpx"}}}"#;
        let spec = serde_json::from_value(serde_json::json!({"sources": [
            {"name": "one"}, {"name": "two", "scope": {"namespaces": ["a"]}},
        ]}));
        let spec: GlobalPullSecretSpec = spec.unwrap();
        let one = r#"{"auths":{"registry-1.docker.io":{"auth":"dTpy"}}}"#;
        let sources = [("one", one), ("two", additional)];
        let sources = sources.map(|(name, text)| (name.to_owned(), found(text)));
        let resolved = resolve(&spec, &found(additional), &found(original), &sources, None);
        assert_eq!(keys(&resolved), "docker.io registry-1.docker.io quay.io");
        let conflicts = resolved.conflicts.iter().map(ConflictStatus::sides);
        let sides = |effective: &str, shadowed: &str| (effective.to_owned(), shadowed.to_owned());
        assert_eq!(
            conflicts.collect::<Vec<_>>(),
            [
                sides("the additional pull secret", "the original"),
                sides("`additional-pull-secret`", "`one`"),
            ]
        );
        for verdict in [&resolved.additional, &resolved.sources[1].verdict] {
            let Verdict::Valid(named) = verdict else {
                panic!("{verdict:?}");
            };
            assert_eq!(named.len(), 1);
            assert_eq!(named[0].registry, "quay.io");
        }
        assert_eq!(resolved.sources[1].registries, ["docker.io"]);
    }

    #[test]
    fn an_invalid_source_neither_blocks_the_other_nor_changes_content() {
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
                "an initially invalid additional Secret adds nothing",
                found(BAD),
                found(B),
                None,
                "nothing",
            ),
            (
                "an invalid additional Secret keeps the last valid one",
                found(BAD),
                found(B),
                Some(&before),
                "a b",
            ),
            (
                "so do entries that can't authenticate",
                found(r#"{"auths":{"a":{},"b":{"auth":""}}}"#),
                Source::Absent,
                Some(&before),
                "a",
            ),
            (
                "and those of an original",
                found(A),
                found(r#"{"auths":{"b":{}}}"#),
                Some(&before),
                "a b",
            ),
            (
                "a new original still applies",
                found("{}"),
                found(A),
                Some(&before),
                "a",
            ),
            (
                "without an additional Secret there is no content",
                Source::Absent,
                found(B),
                Some(&before),
                "nothing",
            ),
            (
                "an invalid original keeps the last valid one",
                found(A),
                found("x"),
                Some(&before),
                "a b",
            ),
            (
                "so does an unreadable original",
                found(A),
                unreadable,
                Some(&before),
                "a b",
            ),
            (
                "an original with a bad entry contributes its good ones",
                found(A),
                found(HALF),
                None,
                "a b",
            ),
            (
                "an additional Secret with a bad entry contributes none",
                found(HALF),
                Source::Absent,
                None,
                "nothing",
            ),
            (
                "a missing key is invalid",
                Source::Found(Data(None)),
                Source::Absent,
                Some(&before),
                "a",
            ),
            (
                "a deleted original is removed",
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
                &[],
                global,
            );
            assert_eq!(keys(&resolved), expected, "{sentence}");
        }
    }

    /// `additional one two`, each a file, `-`: absent, `403`: forbidden; with the state in force before.
    fn with_sources(texts: [&str; 3], before: Option<&Global>) -> Resolved {
        let source = |text: &str| match text {
            "-" => Source::Absent,
            "403" => Source::Forbidden,
            text => found(text),
        };
        let [additional, one, two] = texts.map(source);
        let sources = [("one".to_owned(), one), ("two".to_owned(), two)];
        let spec = GlobalPullSecretSpec::default();
        resolve(&spec, &additional, &Source::Absent, &sources, before)
    }

    #[test]
    fn an_invalid_source_does_not_block_others() {
        let before = Global {
            last_additional: Some(data(A)),
            last_sources: BTreeMap::from([("one".to_owned(), data(B))]),
            ..Global::default()
        };
        for (sentence, texts, before, expected, verdicts) in [
            (
                "each contributes its own",
                [A, B, C],
                None,
                "a b c",
                "Valid Valid",
            ),
            (
                "a source alone is enough",
                ["-", B, "-"],
                None,
                "b",
                "Valid Absent",
            ),
            (
                "an invalid one contributes nothing",
                [A, BAD, C],
                None,
                "a c",
                "Invalid Valid",
            ),
            (
                "or its last valid content",
                [A, BAD, C],
                Some(&before),
                "a b c",
                "Invalid Valid",
            ),
            (
                "so does a forbidden one",
                [A, "403", C],
                Some(&before),
                "a b c",
                "Forbidden Valid",
            ),
            (
                "a deleted one is removed",
                [A, "-", C],
                Some(&before),
                "a c",
                "Absent Valid",
            ),
            (
                "an invalid additional Secret does not block sources",
                [BAD, B, C],
                None,
                "b c",
                "Valid Valid",
            ),
            (
                "all of them are absent",
                ["-", "-", "-"],
                Some(&before),
                "nothing",
                "Absent Absent",
            ),
            (
                "none was ever valid",
                ["-", BAD, "403"],
                None,
                "nothing",
                "Invalid Forbidden",
            ),
        ] {
            let resolved = with_sources(texts, before);
            assert_eq!(keys(&resolved), expected, "{sentence}");
            let found: Vec<String> = resolved
                .sources
                .iter()
                .map(|source| format!("{:?}", source.verdict))
                .map(|text| text.split('(').next().unwrap().to_owned())
                .collect();
            assert_eq!(found.join(" "), verdicts, "{sentence}");
        }
    }

    #[test]
    fn a_source_has_the_registries_that_are_effective_from_it() {
        let both = r#"{"auths":{"a":{"auth":"dTpx"},"b":{"auth":"dTpw"}}}"#;
        let sources = with_sources([A, both, C], None).sources;
        let registries = sources.iter().map(|source| source.registries.join(" "));
        assert_eq!(registries.collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn an_additional_secret_that_was_rolled_back_stays_out_until_it_changes() {
        let before = Global {
            last_additional: Some(data(A)),
            rejected: Some(data(C)),
            rejected_reason: Some("two nodes failed".to_owned()),
            ..Global::default()
        };
        let rolled_back = Verdict::RolledBack("two nodes failed".to_owned());
        for (additional, expected, verdict) in [
            (found(C), "a", rolled_back),
            (found(B), "b", Verdict::Valid(Vec::new())),
            (Source::Forbidden, "a", Verdict::Forbidden),
            (Source::Absent, "nothing", Verdict::Absent),
        ] {
            let spec = GlobalPullSecretSpec::default();
            let resolved = resolve(&spec, &additional, &Source::Absent, &[], Some(&before));
            assert_eq!(keys(&resolved), expected);
            assert_eq!(resolved.rejected.is_some(), additional == found(C));
            assert_eq!(resolved.additional, verdict);
        }
    }

    #[test]
    fn content_that_does_not_fit_is_rejected_and_the_previous_stays() {
        let large = |name: &str, bytes: usize| {
            format!(
                r#"{{"auths":{{"{name}":{{"auth":"dTpw","x":"{}"}}}}}}"#,
                "x".repeat(bytes)
            )
        };
        let (half, most) = (large("h", 500_000), large("m", 1_000_000));
        let before = Global {
            last_additional: Some(data(A)),
            last_sources: BTreeMap::from([("one".to_owned(), data(&half))]),
            ..Global::default()
        };
        for (sentence, texts, before, expected, who) in [
            ("half of it fits, twice", [&*half, "-", "-"], None, "h", ""),
            (
                "nearly all of it does not",
                [&*most, "-", "-"],
                None,
                "nothing",
                "additional",
            ),
            (
                "a source is rejected before the additional one",
                [&*half, B, &*half],
                None,
                "b h",
                "two",
            ),
            (
                "new content is rejected before content in force",
                [&*half, &*half, "-"],
                Some(&before),
                "a h",
                "additional",
            ),
        ] {
            let resolved = with_sources(texts, before);
            assert_eq!(keys(&resolved), expected, "{sentence}");
            let verdicts = resolved
                .sources
                .iter()
                .map(|s| (s.name.as_str(), &s.verdict));
            let mut rejected = [("additional", &resolved.additional)]
                .into_iter()
                .chain(verdicts)
                .filter_map(|(name, verdict)| match verdict {
                    Verdict::Invalid(findings) => Some((name, findings[0].to_string())),
                    _ => None,
                });
            let found = rejected.next();
            assert_eq!(
                found.as_ref().map_or("", |(name, _)| *name),
                who,
                "{sentence}"
            );
            assert!(found.is_none_or(|(_, text)| text.contains("limit of 1048576")));
            assert_eq!(rejected.next(), None, "{sentence}");
        }
    }

    /// Size of all values of `global-pull-secret` in bytes, which the API server limits.
    fn written(resolved: &Resolved) -> usize {
        let desired = resolved.desired.clone().unwrap();
        let secret = encode(&GlobalWrite {
            content: desired.content,
            global: Global {
                last_additional: desired.additional,
                last_original: desired.original,
                last_sources: desired.sources,
                last_scopes: desired.scopes,
                rejected: resolved.rejected.clone(),
                ..Global::default()
            },
        });
        secret
            .data
            .unwrap()
            .values()
            .map(|value| value.0.len())
            .sum()
    }

    /// Message of the only source, if it exceeds the remaining space.
    fn refusal(resolved: &Resolved) -> Option<String> {
        match &resolved.sources[0].verdict {
            Verdict::Valid(_) => None,
            Verdict::Invalid(findings) if findings[0].code == Code::TooLarge => {
                Some(findings[0].to_string())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_source_may_fill_the_secret_to_its_last_byte() {
        // 2 bytes per padding character and 1 per space: only the copy of the source has them.
        let one = |padding: usize, spaces: usize| {
            let (padding, spaces) = ("x".repeat(padding), " ".repeat(spaces));
            format!(r#"{{"auths":{{"one":{{"auth":"dTpw","x":"{padding}"}}}}}}{spaces}"#)
        };
        let rejected = Global {
            last_additional: Some(data(A)),
            rejected: Some(data(C)),
            ..Global::default()
        };
        let many: Vec<String> = (0..1_000).map(|n| format!("namespace-{n}")).collect();
        let most: Vec<String> = (0..20_000).map(|n| format!("namespace-{n}")).collect();
        let scope = |namespaces: &[String]| serde_json::json!({"namespaces": namespaces});
        let nobody = serde_json::Value::Null;
        for (sentence, additional, original, scope, before) in [
            (
                "alone",
                Source::Absent,
                Source::Absent,
                nobody.clone(),
                None,
            ),
            ("with others", found(A), found(HALF), nobody.clone(), None),
            (
                "with a rejected one",
                found(C),
                found(B),
                nobody,
                Some(&rejected),
            ),
            ("for some", found(A), found(B), scope(&many[..1]), None),
            ("for many", found(A), found(B), scope(&many), None),
            ("for most", found(A), Source::Absent, scope(&most), None),
        ] {
            let spec = serde_json::from_value(serde_json::json!({
                "kubelet": {"delivery": "CredentialProvider"},
                "sources": [{"name": "one", "scope": scope}],
            }))
            .unwrap();
            let with = |text: &str, before: Option<&Global>| {
                let sources = [("one".to_owned(), found(text))];
                resolve(&spec, &additional, &original, &sources, before)
            };
            let room = SECRET_LIMIT - written(&with(&one(0, 0), before));
            let fits = with(&one(room / 2, room % 2), before);
            assert_eq!(refusal(&fits), None, "{sentence}");
            assert_eq!(written(&fits), SECRET_LIMIT, "{sentence}");
            let text = one(room / 2, room % 2 + 1);
            let exceeds = with(&text, before);
            let refusal = refusal(&exceeds).expect(sentence);
            let expected = format!(
                "has {} bytes; `global-pull-secret` would have {} bytes ",
                text.len(),
                SECRET_LIMIT + 1
            );
            assert!(refusal.contains(&expected), "{sentence}: {refusal}");
            assert_eq!(exceeds.too_large, None, "{sentence}");
            let desired = fits.desired.unwrap();
            let in_force = Global {
                last_additional: desired.additional,
                last_original: desired.original,
                last_scopes: desired.scopes,
                last_sources: BTreeMap::from([("one".to_owned(), data(&text))]),
                ..before.cloned().unwrap_or_default()
            };
            let nothing_new = with(&text, Some(&in_force));
            assert_eq!(nothing_new.too_large, Some(SECRET_LIMIT + 1), "{sentence}");
        }
    }

    /// The author of one Secret can't take memory or space from the others.
    #[test]
    fn a_source_that_can_t_fit_is_rejected_unparsed_without_harm_to_others() {
        let of_size = |name: &str, bytes: usize| {
            let auths: Vec<String> = (0..=bytes / 40)
                .map(|number| format!(r#""{name}.example.com/{number:08}":{{"auth":"dTpw"}}"#))
                .collect();
            found(&format!(r#"{{"auths":{{{}}}}}"#, auths.join(",")))
        };
        let sources = [
            ("a", 0),
            ("b", 2 * SECRET_LIMIT),
            ("c", 0),
            ("d", SECRET_LIMIT),
        ]
        .map(|(name, bytes)| (name.to_owned(), of_size(name, bytes)));
        let spec = GlobalPullSecretSpec::default();
        let resolved = resolve(&spec, &of_size("own", 0), &Source::Absent, &sources, None);
        let verdicts = resolved.sources.iter().map(|source| match &source.verdict {
            Verdict::Valid(_) => "valid",
            Verdict::Invalid(findings) if findings[0].code == Code::TooLarge => "too large",
            other => panic!("{}: {other:?}", source.name),
        });
        let expected = ["valid", "too large", "valid", "too large"];
        assert_eq!(verdicts.collect::<Vec<_>>(), expected);
    }

    /// Creating namespaces that a selector selects can't block a rollout.
    #[test]
    fn a_scope_that_grows_beyond_the_limit_is_not_changed() {
        let spec = |namespaces: &[String]| {
            serde_json::json!({"kubelet": {"delivery": "CredentialProvider"}, "sources": [
                {"name": "one"}, {"name": "two", "scope": {"namespaces": namespaces}}]})
        };
        let few = spec(&["team-a".to_owned()]);
        let (_, resolved) = scoped(&few, B, C, None);
        let desired = resolved.desired.unwrap();
        let before = Global {
            last_additional: desired.additional,
            last_sources: desired.sources,
            last_scopes: desired.scopes,
            content: Some(desired.content),
            ..Global::default()
        };
        let most: Vec<String> = (0..40_000).map(|n| format!("namespace-{n}")).collect();
        let (text, resolved) = scoped(&spec(&most), A, C, Some(&before));
        assert_eq!(text, "a; two for team-a: c", "the others change");
        assert_eq!(resolved.sources[0].verdict, Verdict::Valid(Vec::new()));
        let verdict = &resolved.sources[1].verdict;
        assert!(
            matches!(verdict, Verdict::Invalid(findings) if findings[0].code == Code::TooLarge),
            "{verdict:?}"
        );
        assert_eq!(resolved.too_large, None);
        assert!(written(&resolved) < SECRET_LIMIT);
    }

    #[test]
    fn a_source_is_parsed_only_if_it_fits() {
        let before = Global {
            last_sources: BTreeMap::from([
                ("one".to_owned(), data(C)),
                ("two".to_owned(), data(B)),
            ]),
            ..Global::default()
        };
        for (additional, original, one, before, kept) in [
            (Source::Absent, Source::Absent, Source::Absent, None, 0),
            (
                found(A),
                found(B),
                found(C),
                None,
                A.len() + B.len() + C.len(),
            ),
            (found(A), Source::Absent, found(BAD), None, A.len()),
            (
                found(A),
                Source::Absent,
                found(BAD),
                Some(&before),
                A.len() + C.len(),
            ),
            (
                Source::Absent,
                found(B),
                Source::Absent,
                Some(&before),
                B.len(),
            ),
        ] {
            let own = SECRET_LIMIT - kept;
            let verdict = |bytes: usize| {
                let two = found(&"x".repeat(bytes));
                let sources = [("one".to_owned(), one.clone()), ("two".to_owned(), two)];
                let spec = GlobalPullSecretSpec::default();
                let resolved = resolve(&spec, &additional, &original, &sources, before);
                match &resolved.sources[1].verdict {
                    Verdict::Invalid(findings) => findings[0].to_string(),
                    other => panic!("{other:?}"),
                }
            };
            let read = verdict(own);
            assert!(read.contains("JSON"), "{kept}: {read}");
            let unread = verdict(own + 1);
            let expected = format!(
                "has {} bytes; `global-pull-secret` would have {} bytes ",
                own + 1,
                SECRET_LIMIT + 1
            );
            assert!(unread.contains(&expected), "{kept}: {unread}");
        }
    }

    #[test]
    fn every_bad_entry_is_in_the_verdict() {
        let spec = GlobalPullSecretSpec::default();
        let resolved = resolve(&spec, &found(BAD), &found(HALF), &[], None);
        let Verdict::Invalid(additional) = resolved.additional else {
            panic!("{:?}", resolved.additional)
        };
        let Verdict::Partly(original) = resolved.original else {
            panic!("{:?}", resolved.original)
        };
        assert_eq!(additional[0].registry, "c");
        assert_eq!(original[0].registry, "c");
    }

    /// Sources of this spec with these contents: the unscoped keys, then each scoped source.
    fn scoped(
        spec: &serde_json::Value,
        one: &str,
        two: &str,
        before: Option<&Global>,
    ) -> (String, Resolved) {
        let spec = serde_json::from_value(spec.clone()).unwrap();
        let sources = [
            ("one".to_owned(), found(one)),
            ("two".to_owned(), found(two)),
        ];
        let resolved = resolve(&spec, &found(A), &Source::Absent, &sources, before);
        let mut text = keys(&resolved);
        for scoped in &resolved.desired.as_ref().unwrap().content.scoped {
            let keys: Vec<&str> = scoped
                .config
                .entries()
                .iter()
                .map(globalps_dockerconfig::Entry::key)
                .collect();
            let line = format!(
                "; {} for {}: {}",
                scoped.source,
                scoped.scope,
                keys.join(" ")
            );
            text.push_str(&line);
        }
        (text, resolved)
    }

    #[test]
    fn a_source_with_a_scope_is_for_its_pods_only() {
        let spec = |delivery: &str, one: &str, two: &str| {
            serde_json::json!({"kubelet": {"delivery": delivery}, "sources": [
                {"name": "one", "scope": {"namespaces": [one]}}, {"name": "two", "scope": {"namespaces": [two]}}]})
        };
        let provider = |one, two| spec("CredentialProvider", one, two);
        let (text, resolved) = scoped(&provider("team-a", "team-b-*"), B, B, None);
        assert_eq!(
            text, "a; one for team-a: b; two for team-b-*: b",
            "one registry, two teams"
        );
        assert!(resolved.conflicts.is_empty());
        assert_eq!(resolved.sources[1].registries, ["b"]);
        let desired = resolved.desired.unwrap();
        let before = Global {
            last_additional: desired.additional,
            last_sources: desired.sources,
            last_scopes: desired.scopes,
            content: Some(desired.content),
            ..Global::default()
        };
        let (text, resolved) = scoped(&provider("team-[", "team-c"), C, C, Some(&before));
        assert_eq!(
            text, "a; one for team-a: b; two for team-c: c",
            "with an invalid scope the last content stays with its scope"
        );
        assert!(matches!(resolved.sources[0].verdict, Verdict::Invalid(_)));
        assert_eq!(resolved.sources[1].verdict, Verdict::Valid(Vec::new()));
        let (text, _) = scoped(&provider("team-b", "team-c"), BAD, C, Some(&before));
        assert_eq!(
            text, "a; one for team-b: b; two for team-c: c",
            "a narrower scope applies immediately, even with invalid content"
        );
        let (text, _) = scoped(&provider("team-[", "x"), B, B, None);
        assert_eq!(
            text, "a; two for x: b",
            "content that was never valid is not delivered"
        );
        let spec_of_bad = serde_json::from_value(provider("team-[", "x")).unwrap();
        let gone = ["one", "two"].map(|name| (name.to_owned(), Source::Absent));
        let resolved = resolve(
            &spec_of_bad,
            &found(A),
            &Source::Absent,
            &gone,
            Some(&before),
        );
        assert_eq!(resolved.sources[0].verdict, Verdict::Absent);
        assert!(
            resolved.desired.unwrap().content.scoped.is_empty(),
            "a deleted source is removed, whatever its scope"
        );
        let (text, resolved) = scoped(&spec("ConfigFile", "team-a", "x"), B, B, Some(&before));
        assert_eq!(text, "a", "every pod can use a node's file");
        let scopes = resolved.desired.unwrap().scopes;
        assert_eq!(scopes["one"].to_string(), "team-a", "and the scope is kept");
    }
}
