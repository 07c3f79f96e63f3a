//! A Secret that only this program writes. What another client makes of it is not believed: the last own version stays in force until
//! it is written again.

use globalps_core::checksum::has_checksum;
use globalps_runtime::list_watch::Update;
use k8s_openapi::api::core::v1::Secret;

use super::out_of_band::OutOfBandChange;
use super::store::Store;

/// A Secret of the controller, which is the only object of its watch.
#[derive(Default)]
pub(super) struct OwnSecret {
    pub(super) store: Store<Secret>,
    /// Another client deleted or changed it.
    pub(super) is_lost: bool,
    /// Then the last own version; `None`: this leader has never seen one.
    kept: Option<Secret>,
}

impl OwnSecret {
    /// Whether the update may change the plan, and what another client did.
    pub(super) fn handle(
        &mut self,
        name: &str,
        update: Update<Secret>,
    ) -> (bool, Option<OutOfBandChange>) {
        let was_lost = self.is_lost;
        let own = self.own().cloned();
        let changed = self.store.handle(update);
        self.observe(own);
        let change = (self.is_lost && !was_lost).then(|| OutOfBandChange {
            kind: "Secret",
            name: name.to_owned(),
            is_deleted: self.stored().is_none(),
        });
        (changed, change)
    }

    /// This program wrote it.
    pub(super) fn put(&mut self, secret: Secret) {
        let own = self.own().cloned();
        self.store.put(secret);
        self.observe(own);
    }

    /// This program deleted it.
    pub(super) fn forget(&mut self) {
        self.store.forget_all();
        self.observe(None);
    }

    /// The last own version. If there is none, what the API server has, from which little is read.
    pub(super) fn get(&self) -> Option<&Secret> {
        self.own().or(self.stored())
    }

    /// `own`: the last own version before the store changed.
    fn observe(&mut self, own: Option<Secret>) {
        self.is_lost = match self.stored() {
            Some(secret) => !has_checksum(secret, &[]),
            None => own.is_some(),
        };
        self.kept = own.filter(|_| self.is_lost);
    }

    fn own(&self) -> Option<&Secret> {
        let stored = self.stored().filter(|_| !self.is_lost);
        stored.or(self.kept.as_ref())
    }

    /// As the API server has it, also if another client wrote it.
    pub(super) fn stored(&self) -> Option<&Secret> {
        self.store.live.values().next()
    }
}
