//! The Secret with the revision in force, and whose it is: where `HyperShift`'s own controller delivers, `global-pull-secret` is its.

use globalps_core::api::DeliveryType;
use globalps_core::names::{DATA_KEY, RECORD_SECRET};
use globalps_planner::nodes::input::Merged;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use super::Cache;
use super::own_secret::OwnSecret;
use crate::objects::managed::LiveObject;

impl Cache {
    /// How nodes get content, as the configuration in force says.
    pub(crate) fn delivery(&self) -> DeliveryType {
        self.spec()
            .map(|spec| spec.kubelet.delivery)
            .unwrap_or_default()
    }

    pub(super) fn global(&self) -> &OwnSecret {
        if self.has_record() {
            &self.record
        } else {
            &self.global
        }
    }

    pub(super) fn global_mut(&mut self) -> &mut OwnSecret {
        if self.has_record() {
            &mut self.record
        } else {
            &mut self.global
        }
    }

    pub(super) fn has_record(&self) -> bool {
        self.delivery().record_secret() == RECORD_SECRET
    }

    /// What another program makes of the pull secrets.
    pub(super) fn merged(&self) -> Option<Merged> {
        let secret = self.global.stored().filter(|_| self.has_record())?;
        Some(merged(secret))
    }

    /// Why the delivery of the newest configuration is not in force, as a clause.
    pub(crate) fn refused_delivery(&self) -> Option<&'static str> {
        let wanted = self.config()?.spec.kubelet.delivery;
        let last = self.state().configuration.as_ref();
        let last = last.map_or(wanted, |last| last.spec.kubelet.delivery);
        if last != wanted && (last.is_observed() || wanted.is_observed()) {
            Some(
                "its `spec.kubelet.delivery` can't change to or from `Observe` or `OpenShift` while a pull secret is in force: restore the nodes first, with `kubectl globalps remove --all --wait`",
            )
        } else if wanted != DeliveryType::Observe && self.is_hypershifts() {
            Some(
                "HyperShift's own controller writes DaemonSet `global-pull-secret-syncer` and Secret `global-pull-secret` here, so its `spec.kubelet.delivery` must be `Observe`",
            )
        } else {
            None
        }
    }

    fn is_hypershifts(&self) -> bool {
        let mut live = self
            .managed
            .iter()
            .flat_map(|(_, store)| store.live.values());
        live.any(|object: &LiveObject| object.is_hypershifts)
    }
}

fn merged(secret: &Secret) -> Merged {
    let data = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
    Merged {
        uid: secret.uid().unwrap_or_default(),
        resource_version: secret.resource_version().unwrap_or_default(),
        content: data.and_then(|bytes| globalps_dockerconfig::parse(&bytes.0).ok()),
    }
}
