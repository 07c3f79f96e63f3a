//! Writes the assignments of a plan.

use globalps_core::api::{ClusterPullSecretSpec, FleetPullSecret};
use globalps_planner::clusters::input::{ClusterKey, object_title, title};

use super::Hub;
use super::writes::object_name;

type AssignedSpec = (ClusterKey, ClusterPullSecretSpec);

impl Hub {
    /// Writes the revocations first: other assignments take their slots. A hub that is killed in between, or whose write fails,
    /// must not leave both in flight. An object that is revoked already frees no slot. Returns whether any assignment was written.
    pub(super) async fn assign(
        &mut self,
        fleet: &FleetPullSecret,
        assignments: &[AssignedSpec],
    ) -> bool {
        let (objects, changes): (Vec<_>, Vec<_>) = assignments
            .iter()
            .partition(|(_, spec)| !spec.has_assignment());
        let (revocations, others): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|(key, spec)| {
                spec.revoked
                    && !self
                        .cache
                        .object(key, fleet)
                        .is_some_and(|it| it.spec.revoked)
            });
        let (created, _) = self.write_assignments(fleet, objects).await;
        let (revoked, is_complete) = self.write_assignments(fleet, revocations).await;
        if !is_complete {
            return created || revoked;
        }
        let (assigned, _) = self.write_assignments(fleet, others).await;
        created || revoked || assigned
    }

    /// Returns whether any was written, and whether all were.
    async fn write_assignments(
        &mut self,
        fleet: &FleetPullSecret,
        assignments: Vec<&AssignedSpec>,
    ) -> (bool, bool) {
        let writer = &self.writer;
        let cache = &self.cache;
        let calls = assignments.iter().filter_map(|(key, spec)| {
            let owner = cache.owner(key)?;
            let call = async move {
                if spec.revision > 0 {
                    tracing::info!(
                        cluster = title(key),
                        revision = spec.revision,
                        remove = spec.remove,
                        revoked = spec.revoked,
                        "assigning"
                    );
                }
                writer.object(key, fleet, owner, spec).await
            };
            Some((object_title(key, fleet), call))
        });
        let written = self.refusals.all(calls).await;
        let is_any = !written.done.is_empty();
        for object in written.done {
            self.cache.put_object(object);
        }
        for (key, spec) in assignments {
            if self.refusals.has(&object_title(key, fleet)) {
                let name = object_name(&key.1, fleet);
                self.cache
                    .wrote_without_response(&key.0, &name, spec.clone());
            }
        }
        (is_any, written.is_complete)
    }
}
