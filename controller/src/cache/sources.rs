//! The pull secrets that users write: the additional one, the original, and the sources.

use globalps_planner::content::source::Source;
use globalps_runtime::object_watch::ObjectState;
use k8s_openapi::api::core::v1::Secret;
use tokio::time::Instant;

use super::debounce::Debounced;
use super::event::OriginalRef;

#[derive(Default)]
pub(super) struct Sources {
    pub(super) additional: Debounced<Secret>,
    /// Why its newest version can't be decoded.
    pub(super) additional_unreadable: Option<String>,
    /// The watched original, and its content; `None`: not listed yet.
    pub(super) original_ref: Option<OriginalRef>,
    pub(super) original: Option<Source>,
    /// The content of each of the configuration's sources in order, then of sources in force that it no longer names.
    pub(super) named: Vec<(String, Debounced<Source>)>,
}

impl Sources {
    /// Whether it may change the plan.
    pub(super) fn handle_additional(&mut self, state: ObjectState<Secret>, now: Instant) -> bool {
        let unreadable = match state {
            ObjectState::Unknown(_) => return false,
            ObjectState::Forbidden | ObjectState::Stale => {
                self.additional.is_known = false;
                return false;
            }
            ObjectState::Unreadable(reason) => {
                self.additional.is_known = true;
                Some(reason)
            }
            ObjectState::Present(secret) => {
                self.additional.found(secret);
                None
            }
            ObjectState::Absent => {
                self.additional.absent(now);
                None
            }
        };
        // An absence may be the last missing list.
        let is_news = unreadable.is_none() || unreadable != self.additional_unreadable;
        self.additional_unreadable = unreadable;
        is_news
    }

    pub(super) fn handle_original(&mut self, source: Source) -> bool {
        let changed = self.original.as_ref() != Some(&source);
        self.original = Some(source);
        changed
    }

    pub(super) fn handle_named(&mut self, name: &str, source: Source, now: Instant) -> bool {
        let Some((_, known)) = self.named.iter_mut().find(|(known, _)| known == name) else {
            return false;
        };
        if source == Source::Absent {
            known.absent(now);
            return true;
        }
        let changed = known.get() != Some(&source);
        known.found(source);
        changed
    }

    pub(super) fn settles_at(&self) -> Option<Instant> {
        let named = self.named.iter().map(|(_, source)| source.settles_at());
        named.chain([self.additional.settles_at()]).flatten().min()
    }

    pub(super) fn settle(&mut self, now: Instant) -> bool {
        let mut settled = self.additional.settle(now);
        for (_, source) in &mut self.named {
            settled |= source.settle(now);
        }
        settled
    }

    pub(super) fn are_synced(&self) -> bool {
        self.additional.is_known
            && (self.original_ref.is_none() || self.original.is_some())
            && self.named.iter().all(|(_, source)| source.is_known)
    }

    /// Whether a deleted Secret may still return.
    pub(super) fn are_pending(&self) -> bool {
        let mut named = self.named.iter();
        self.additional.is_pending_without_value()
            || named.any(|(_, source)| source.is_pending_without_value())
    }

    pub(super) fn set_original(&mut self, original: Option<OriginalRef>) {
        if original != self.original_ref {
            self.original = None;
            self.original_ref = original;
        }
    }

    /// Keeps the content of those that stay.
    pub(super) fn set_named(&mut self, names: &[String]) {
        let mut known = std::mem::take(&mut self.named);
        let mut known = |name: &String| {
            let known = known.iter_mut().find(|(known, _)| known == name);
            known
                .map(|(_, source)| std::mem::take(source))
                .unwrap_or_default()
        };
        self.named = names.iter().map(|n| (n.clone(), known(n))).collect();
    }
}
