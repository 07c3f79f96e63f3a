//! Answers syncers that are about to replace a file of another program on a node which a daemon may update in place.

use std::sync::Arc;

use globalps_planner::nodes::plan::Plan;
use globalps_planner::refused::title;

use super::Controller;
use crate::objects::apply::Notes;

impl Controller {
    /// Reads each Node after the report of its syncer, and answers if no update of it has begun. Otherwise the watch tells of the
    /// update soon. Returns whether nothing is left to answer.
    pub(super) async fn confirm(&mut self, plan: &Plan) -> bool {
        let applier = Arc::clone(&self.applier);
        let cache = &self.cache;
        let calls = plan.confirmations.iter().filter_map(|confirmation| {
            let node = &confirmation.node;
            let uid = cache.node_uid(node)?.to_owned();
            let object = cache.node_pull_secrets.get(node);
            let notes = Notes {
                ends_abandonment: false,
                forgets: plan.forget.of_node(object.map(AsRef::as_ref)),
                may_replace: Some(confirmation.found_file.clone()),
            };
            let applier = Arc::clone(&applier);
            let call = async move {
                if !applier.is_file_free(node, &uid).await? {
                    return Ok(None);
                }
                let written = applier.assign(node, &uid, &confirmation.spec, notes).await;
                written.map(Some)
            };
            Some((title("NodePullSecret", node), call))
        });
        let written = self.refusals.all(calls).await;
        for object in written.done.into_iter().flatten() {
            self.cache.put_node_pull_secret(object);
        }
        written.is_complete
    }
}
