//! The revisions that are kept: of the additional pull secret, and of the source Secret of a hub.

use crate::cluster::Cluster;
use crate::cluster::facts::was_additional_rolled_out;
use crate::error::Result;
use crate::secret::changes::InForce;
use crate::secret::history::{StoredRevision, sorted};
use crate::target::pull_secret;
use crate::view::history::Progress;
use futures::future::try_join_all;
use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;

pub(crate) const HINT: &str = "see `kubectl globalps history`; `spec.historyLimit` of GlobalPullSecret `global-pull-secret` sets how many are kept";

/// The hint for a revision that is not kept; `None`: no revision that differs is kept. `forgotten`: content up to this
/// revision was forgotten on request.
pub(crate) fn hint(number: Option<i64>, forgotten: i64) -> String {
    if forgotten > 0 && number.is_none_or(|number| number <= forgotten) {
        return format!(
            "content up to revision {forgotten} was forgotten on request, because a password in it leaked; `kubectl globalps add` writes new credentials"
        );
    }
    HINT.to_owned()
}

pub(crate) struct Observed {
    /// Newest first.
    pub revisions: Vec<StoredRevision>,
    pub in_force: InForce,
    /// See [`was_additional_rolled_out`].
    pub was_additional_rolled_out: bool,
    /// Progress of the newest revision while not every node has it.
    pub progress: Option<Progress>,
    /// Content up to this revision was forgotten on request; 0 if none was.
    pub forgotten: i64,
}

pub(crate) async fn observe(cluster: &Cluster<'_>) -> Result<Observed> {
    let gps = pull_secret::configuration(cluster).await?;
    let spec = gps.as_ref().map(|gps| gps.spec.clone()).unwrap_or_default();
    let (slots, global) = tokio::try_join!(
        slots(cluster, spec.history_limit),
        pull_secret::in_force(cluster),
    )?;
    Ok(Observed {
        revisions: sorted(slots, global.as_ref()),
        in_force: InForce::of(global.as_ref(), Some(&spec), names::ADDITIONAL_SECRET),
        was_additional_rolled_out: global
            .as_ref()
            .is_some_and(|global| was_additional_rolled_out(&global.metadata)),
        progress: Progress::of(global.as_ref(), gps.as_ref()),
        forgotten: gps
            .and_then(|gps| gps.status)
            .map_or(0, |status| status.forgotten_revision),
    })
}

/// The Secrets of the history.
pub(crate) async fn slots(cluster: &Cluster<'_>, limit: u32) -> Result<Vec<Secret>> {
    let names = (0..limit.min(names::HISTORY_SLOTS)).map(names::history_secret);
    let found =
        try_join_all(names.map(async |name| pull_secret::get(cluster, &name).await)).await?;
    Ok(found.into_iter().flatten().collect())
}
