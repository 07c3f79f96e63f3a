//! Determines which namespaces get new content first. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::input::{Delivery, NamespacesInput, Wanted};

/// The progress of new content. A part has passed once some namespace has had it for `minReadySeconds`.
pub(super) struct CanaryProgress<'a> {
    /// Parts of identities.
    passed: BTreeSet<&'a str>,
    /// They get parts that have not passed, before other namespaces do.
    canaries: BTreeSet<&'a str>,
    pub(super) canary_error: Option<String>,
    pub(super) again_at: Option<Timestamp>,
}

impl<'a> CanaryProgress<'a> {
    pub(super) fn of(
        input: &NamespacesInput<'a>,
        delivery: &Delivery<'a>,
        wanted: &'a BTreeMap<&'a str, Wanted>,
    ) -> Self {
        let mut progress = Self {
            passed: BTreeSet::new(),
            canaries: BTreeSet::new(),
            canary_error: None,
            again_at: None,
        };
        // Parts that a canary has or gets now.
        let mut under_way = BTreeSet::new();
        // The same of namespaces where another client has changed them since.
        let mut disturbed = BTreeMap::new();
        let restores = |wanted: &Wanted| input.memory.restores_of(&wanted.key, &wanted.identity);
        for (namespace, wanted) in wanted {
            let secret = input.secrets.get(*namespace);
            let Some(secret) = secret.filter(|secret| input.is_as(secret, wanted)) else {
                continue;
            };
            let left = delivery.min_ready - input.clock.unchanged_for(secret);
            if left <= SignedDuration::ZERO {
                progress.passed.extend(wanted.parts());
            } else {
                match restores(wanted) {
                    0 => under_way.extend(wanted.parts()),
                    times => disturbed.extend(wanted.parts().map(|p| (p, (*namespace, times)))),
                }
                let passes_at = input.now + left;
                progress.again_at = progress.again_at.into_iter().chain([passes_at]).min();
            }
        }
        let is_new =
            |progress: &Self, wanted: &Wanted| !wanted.parts().all(|p| progress.passed.contains(p));
        if let Some(canary) = delivery.canary {
            let Some((canary, own)) = wanted.get_key_value(canary) else {
                if wanted.values().any(|wanted| is_new(&progress, wanted)) {
                    progress.canary_error = Some(format!(
                        "`spec.imagePullSecrets.canaryNamespace` is `{canary}`, which is not among the namespaces that get the Secret"
                    ));
                }
                return progress;
            };
            if is_new(&progress, own) {
                progress.canaries.insert(canary);
                let times = restores(own);
                progress.canary_error = is_kept_busy(times).then(|| kept_busy(canary));
                return progress;
            }
        }
        // A namespace whose last write failed, or that another client changes, is a canary only if there is no other: each change
        // starts the time again.
        for goes_last in [false, true] {
            if goes_last {
                for (part, (namespace, times)) in &disturbed {
                    let is_awaited = !progress.passed.contains(part) && under_way.insert(part);
                    if is_awaited && is_kept_busy(*times) {
                        progress.canary_error = Some(kept_busy(namespace));
                    }
                }
            }
            for (namespace, wanted) in wanted {
                let secret = input.secrets.get(*namespace);
                let failure = input.memory.failure(&wanted.key);
                let is_blocked = failure.is_some_and(|failure| failure.retry_at > input.now)
                    || input
                        .memory
                        .is_contested(&wanted.key, &wanted.identity, input.now)
                    || secret.is_some_and(|secret| {
                        secret.is_being_deleted || input.is_foreign(secret, wanted)
                    });
                let mut parts = wanted.parts();
                let has_news =
                    parts.any(|p| !progress.passed.contains(p) && !under_way.contains(p));
                let is_last = failure.is_some() || restores(wanted) > 0;
                if has_news && !is_blocked && is_last == goes_last {
                    progress.canaries.insert(namespace);
                    under_way.extend(wanted.parts());
                }
            }
        }
        let is_stuck = |wanted: &Wanted| {
            let mut parts = wanted.parts();
            parts.any(|p| !progress.passed.contains(p) && !under_way.contains(p))
        };
        if wanted.values().any(is_stuck) {
            progress.canary_error =
                Some("no namespace can be the canary for the new content".to_owned());
        }
        progress
    }

    pub(super) fn may_have(&self, namespace: &str, wanted: &Wanted) -> bool {
        self.canaries.contains(namespace) || wanted.parts().all(|p| self.passed.contains(p))
    }
}

/// Whether another client has undone the new content so often that its canary may never pass.
fn is_kept_busy(restores: u32) -> bool {
    restores > 1
}

fn kept_busy(namespace: &str) -> String {
    format!(
        "namespace `{namespace}` is the canary for the new content, and another client changes the Secret there again and again"
    )
}
