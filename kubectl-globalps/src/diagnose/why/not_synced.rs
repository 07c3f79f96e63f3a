//! Nodes that lack credentials of globalps. Pure.

use globalps_core::api::Phase;

use super::cause::{Cause, Code, Evidence};
use super::facts::Lag;
use crate::error::quoted;

impl Evidence<'_> {
    /// Why the node gets no credentials of globalps and the pod no Secret with them; `None` if one of them does.
    pub(super) fn unreached(&self) -> Option<String> {
        let gps = self.adding.gps.as_ref()?;
        self.lag.filter(|lag| lag.is_left_out())?;
        let node = &self.pod.node;
        (!gps.spec.image_pull_secrets.enabled).then(|| {
            format!(
                "`{node}` gets nothing of globalps: `kubectl globalps status -o wide` shows why"
            )
        })
    }

    pub(super) fn not_synced(&self, lag: &Lag) -> Cause {
        let node = &self.pod.node;
        let (command, hint) = match (self.adding.without_effect(), &lag.phase) {
            (Some(why), _) => (String::new(), why),
            (None, Phase::SteppedAside) => (
                format!("kubectl globalps status --node {} --watch", quoted(node)),
                "a Machine Config Daemon updates the node, which gets its credentials again afterwards".to_owned(),
            ),
            (None, _) if lag.is_left_out() => (
                "kubectl globalps status -o wide".to_owned(),
                "it shows why the node gets nothing: excluded, not selected, unsupported, or its file is another program's".to_owned(),
            ),
            (None, Phase::Failed | Phase::RolledBack) => (
                format!("kubectl globalps retry {} --wait", quoted(node)),
                "`kubectl globalps status` has the reason: fix it first".to_owned(),
            ),
            _ if lag.is_paused => ("kubectl globalps resume --wait".to_owned(), String::new()),
            _ => (
                format!("kubectl globalps status --node {} --wait", quoted(node)),
                "the rollout reaches it; `kubectl globalps check` shows what is in its way"
                    .to_owned(),
            ),
        };
        let message = format!(
            "node `{node}` is {} with revision {} of {}",
            lag.phase, lag.revision, lag.wanted
        );
        self.of(Code::NodeNotSynced, message, command, &hint)
    }
}
