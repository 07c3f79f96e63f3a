//! Writes the assignments of the nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use globalps_core::api::NodePullSecretSpec;
use globalps_planner::nodes::forget::Forget;
use globalps_planner::nodes::plan::Plan;
use globalps_planner::refused::title;

use super::Controller;
use crate::objects::apply::Notes;

type Assignment = (String, NodePullSecretSpec);

impl Controller {
    /// Writes the assignments, revocations first. Returns whether all of them were written.
    pub(super) async fn assign(&mut self, plan: &Plan) -> bool {
        let abandoned = &plan.no_longer_abandoned;
        let stored = self.cache.global_revision();
        let unstored = plan.global.as_ref().map(|write| write.global.revision);
        let unstored = unstored.filter(|revision| Some(*revision) != stored);
        let has_content = |spec: &NodePullSecretSpec| {
            spec.restore || spec.revoked || Some(spec.assigned()) != unstored
        };
        let creates = |(node, spec): &Assignment| {
            spec.revision == 0 && self.cache.node_pull_secrets.get(node).is_none()
        };
        let (objects, changes): (Vec<_>, Vec<_>) =
            plan.assignments.iter().partition(|it| creates(it));
        let (revocations, others): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|(node, spec)| {
                let object = self.cache.node_pull_secrets.get(node);
                spec.revoked && !object.is_some_and(|object| object.spec.revoked)
            });
        let asked = (abandoned, plan.forget);
        let is_created = self.write_assignments(objects, asked).await;
        // Others take the slots that revocations free. An object that is revoked already frees none.
        if !self.write_assignments(revocations, asked).await {
            return false;
        }
        let all = others.len();
        let others: Vec<_> = others
            .into_iter()
            .filter(|(_, spec)| has_content(spec))
            .collect();
        let is_all = others.len() == all;
        self.write_assignments(others, asked).await && is_created && is_all
    }

    async fn write_assignments(
        &mut self,
        assignments: Vec<&Assignment>,
        // The nodes whose permission of a cleanup that is over ends, and what nodes forget.
        (abandoned, forget): (&BTreeSet<String>, Forget),
    ) -> bool {
        let applier = Arc::clone(&self.applier);
        let nodes = &self.cache;
        // One after the other: a call takes some kilobytes, and there may be thousands.
        let calls = assignments.iter().filter_map(|(node, spec)| {
            let uid = nodes.node_uid(node)?.to_owned();
            let applier = Arc::clone(&applier);
            let object = nodes.node_pull_secrets.get(node);
            let annotations = Notes {
                ends_abandonment: abandoned.contains(node),
                forgets: forget.of_node(object.map(AsRef::as_ref)),
                may_replace: None,
            };
            let call = async move {
                if spec.revision > 0 {
                    tracing::info!(
                        node,
                        revision = spec.revision,
                        restore = spec.restore,
                        "assigning"
                    );
                }
                applier.assign(node, &uid, spec, annotations).await
            };
            Some((title("NodePullSecret", node), call))
        });
        let written = self.refusals.all(calls).await;
        self.wrote |= !written.done.is_empty();
        for object in written.done {
            self.cache.put_node_pull_secret(object);
        }
        for (node, spec) in assignments {
            if self.refusals.has(&title("NodePullSecret", node)) {
                self.cache.wrote_without_response(node, spec.clone());
            }
        }
        written.is_complete
    }
}
