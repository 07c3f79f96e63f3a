//! The controller's own state as the API server has it.

use globalps_core::api::GlobalPullSecretSpec;
use globalps_core::names::STATE_SECRET;
use globalps_core::state::State;
use globalps_runtime::list_watch::Update;
use k8s_openapi::api::core::v1::Secret;

use super::store::Store;

#[derive(Default)]
pub(super) struct KnownState {
    pub(super) secret: Store<Secret>,
    /// The last readable one: a Secret that another client deletes or damages is written again.
    pub(super) last: State,
    /// The configuration in force, while a change of it is held.
    pub(super) kept: Option<GlobalPullSecretSpec>,
}

impl KnownState {
    pub(super) fn handle(&mut self, update: Update<Secret>) -> bool {
        let changed = self.secret.handle(update);
        self.read();
        changed
    }

    pub(super) fn put(&mut self, secret: Secret) {
        self.secret.put(secret);
        self.read();
    }

    /// `None` if the Secret does not exist, or is damaged.
    pub(super) fn stored(&self) -> Option<State> {
        self.secret.get(STATE_SECRET).and_then(State::of)
    }

    fn read(&mut self) {
        if let Some(state) = self.stored() {
            self.last = state;
        }
    }
}
