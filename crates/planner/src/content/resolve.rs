//! Validates the pull secrets and merges them into the one for the nodes. Pure.

use std::collections::BTreeMap;

use globalps_core::api::{ConflictStatus, DeliveryType, GlobalPullSecretSpec};
use globalps_core::checksum::CHECKSUM_SIZE;
use globalps_core::names::{ADDITIONAL_SECRET, SECRET_LIMIT};
use globalps_dockerconfig::{Code, DockerConfig, Finding, Severity, by_exact_name, shown_key};
use globalps_provider::{Content, Scope, ScopedConfig};

use super::combine::combine;
use super::delivered::delivered;
use super::scope::{Namespaces, only_gains, resolve_scope};
use super::secret::{Global, content_data, scopes_value};
use super::source::{Data, Source, Verdict};

/// The content for the nodes, and the valid sources that it consists of.
#[derive(Clone, Debug)]
pub struct DesiredContent {
    /// Merged and validated.
    pub content: Content,
    /// The last valid one; `None`: there is none.
    pub additional: Option<Data>,
    /// The last valid one; `None`: there is none.
    pub original: Option<Data>,
    /// By source name.
    pub sources: BTreeMap<String, Data>,
    /// By source name; sources without a scope are for every pod.
    pub scopes: BTreeMap<String, Scope>,
}

/// The result for one of `spec.sources`.
#[derive(Clone, Debug)]
pub struct ResolvedSource {
    /// Name of the source's Secret.
    pub name: String,
    /// Of its current content.
    pub verdict: Verdict,
    /// Registries whose effective credentials come from this source.
    pub registries: Vec<String>,
    /// The pods that may use them; `None`: every pod.
    pub scope: Option<Scope>,
}

/// The result of merging the pull secrets.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Of its current content.
    pub additional: Verdict,
    /// Of its current content.
    pub original: Verdict,
    /// In their order.
    pub sources: Vec<ResolvedSource>,
    /// `None`: no additional Secret and no source exists, or none was ever valid.
    pub desired: Option<DesiredContent>,
    /// Registries with different credentials in several pull secrets.
    pub conflicts: Vec<ConflictStatus>,
    /// The additional Secret, if it is the one that was rolled back.
    pub rejected: Option<Data>,
    /// Size of `global-pull-secret` in bytes, if it exceeds the limit even without new content.
    pub too_large: Option<usize>,
}

/// A pull secret with its verdict, its effective content, and its last valid bytes.
struct JudgedSecret {
    verdict: Verdict,
    good: Option<(DockerConfig, Data)>,
    last: Option<Data>,
    /// The pods that may use it; `None`: every pod.
    scope: Option<Scope>,
    /// The scope of its last valid bytes.
    last_scope: Option<Scope>,
}

impl JudgedSecret {
    /// Whether the source has content or a scope that is not in `global-pull-secret` yet.
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

    /// Its last valid content stays effective.
    fn refuse(&mut self, finding: Finding) {
        self.verdict = Verdict::Invalid(vec![finding]);
        self.good = self.last.as_ref().and_then(read);
    }

    /// Rejects its `own` bytes because they don't fit; its last valid content and scope stay effective.
    fn reject(&mut self, own: usize, size: usize) {
        let hint = if self.scope.is_some() {
            "remove registries that no pod needs, or select fewer namespaces"
        } else {
            "remove registries that no node needs"
        };
        self.refuse(Finding {
            severity: Severity::Error,
            code: Code::TooLarge,
            registry: String::new(),
            message: format!(
                "it has {own} bytes; `global-pull-secret` would have {size} bytes with it, more than a \
                 Secret's limit of {SECRET_LIMIT}: {hint}"
            )
            .into(),
            hint,
        });
        self.scope.clone_from(&self.last_scope);
    }
}

/// The input for resolving scopes.
pub struct Scopes<'a> {
    /// The spec, whose sources have the scopes.
    pub spec: &'a GlobalPullSecretSpec,
    /// `None`: unknown.
    pub namespaces: Option<&'a Namespaces>,
    /// A source whose selector only selects more namespaces keeps its last scope.
    pub waits_with_namespaces: bool,
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
pub fn resolve(
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
    if spec.kubelet.delivery == DeliveryType::Observe
        && let (Verdict::Valid(_), Source::Found(data)) = (&first.verdict, additional)
        && let Some(finding) = data.0.as_deref().and_then(by_exact_name)
    {
        first.refuse(finding);
    }
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
    desired: DesiredContent,
    conflicts: Vec<ConflictStatus>,
    /// By source name.
    registries: BTreeMap<String, Vec<String>>,
}

/// `None`: none of them is valid.
fn merge(
    spec: &GlobalPullSecretSpec,
    all: &[(&str, JudgedSecret)],
    original: &JudgedSecret,
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
        desired: DesiredContent {
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
fn too_large(desired: &DesiredContent, rejected: Option<&Data>) -> Option<usize> {
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
fn judge(source: &Source, last: Option<&Data>, lenient: bool) -> JudgedSecret {
    let judged = |verdict, good| JudgedSecret {
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
mod tests;
