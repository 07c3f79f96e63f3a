//! The watch of `OpenShift`'s own pull secret.

use globalps_runtime::object_watch::ObjectState;
use k8s_openapi::api::core::v1::Secret;

/// As the watch has it; `None`: it is not watched, or not listed yet.
#[derive(Default)]
pub(super) struct ClusterSecret {
    pub(super) is_watched: bool,
    pub(super) state: Option<ObjectState<Secret>>,
}

impl ClusterSecret {
    /// Whether it may change the plan. An outage of the API server changes nothing.
    pub(super) fn handle(&mut self, state: ObjectState<Secret>) -> bool {
        let is_outage = matches!(state, ObjectState::Unknown(_) | ObjectState::Stale);
        if !self.is_watched || is_outage && self.state.is_some() {
            return false;
        }
        let is_news = self.state.as_ref() != Some(&state);
        self.state = Some(state);
        is_news
    }

    pub(super) fn set_watched(&mut self, is_watched: bool) {
        if is_watched != self.is_watched {
            *self = Self {
                is_watched,
                state: None,
            };
        }
    }
}
