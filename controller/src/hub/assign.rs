//! Writes the assignments of a plan.

use futures::{StreamExt as _, stream};
use globalps_core::api::{ClusterPullSecretSpec, FleetPullSecret};

use super::{CONCURRENT, Hub};
use crate::clusters::input::{ClusterKey, title};
use crate::objects::apply::ApplyError;

type Assignment = (ClusterKey, ClusterPullSecretSpec);

impl Hub {
    /// Writes the revocations first: other assignments take their slots. A hub that is killed in between, or whose write fails,
    /// must not leave both in flight. Returns how many assignments were written.
    pub(super) async fn assign(
        &mut self,
        fleet: &FleetPullSecret,
        assignments: &[Assignment],
    ) -> Result<usize, ApplyError> {
        let (revocations, others): (Vec<_>, Vec<_>) =
            assignments.iter().partition(|(_, spec)| spec.revoked);
        let revoked = self.assign_concurrently(fleet, revocations).await?;
        Ok(revoked + self.assign_concurrently(fleet, others).await?)
    }

    async fn assign_concurrently(
        &mut self,
        fleet: &FleetPullSecret,
        assignments: Vec<&Assignment>,
    ) -> Result<usize, ApplyError> {
        let writes: Vec<_> = assignments
            .into_iter()
            .filter_map(|(key, spec)| Some((key, spec, self.cache.owner(key)?)))
            .collect();
        let hub = &self.writer;
        let mut written = stream::iter(writes)
            .map(|(key, spec, owner)| async move {
                if spec.revision > 0 {
                    tracing::info!(
                        cluster = title(key),
                        revision = spec.revision,
                        remove = spec.remove,
                        revoked = spec.revoked,
                        "assigning"
                    );
                }
                hub.object(key, fleet, owner, spec).await
            })
            .buffer_unordered(CONCURRENT);
        let mut objects = Vec::new();
        let mut failed = None;
        while let Some(done) = written.next().await {
            match done {
                Ok(object) => objects.push(object),
                Err(error) => failed = Some(error),
            }
        }
        drop(written);
        let assigned = objects.len();
        for object in objects {
            self.cache.put_object(object);
        }
        failed.map_or(Ok(assigned), Err)
    }
}
