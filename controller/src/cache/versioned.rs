//! Names and versions of the objects in a store.

use globalps_core::api::{GlobalPullSecret, NodePullSecret};
use globalps_planner::targets::version;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use crate::objects::managed::LiveObject;
use crate::objects::pods::PodView;

/// Name and `resourceVersion` of an object in a [`Store`](super::store::Store). Resource versions of one resource only increase.
pub(crate) trait Versioned {
    fn key(&self) -> String;
    fn version(&self) -> u64;

    /// The key of an object with this namespace and name.
    fn key_of(_namespace: &str, name: &str) -> String {
        name.to_owned()
    }

    /// Whether the two are equal in everything that the plan depends on.
    fn means_the_same(&self, _other: &Self) -> bool {
        false
    }

    /// Keeps once what is equal in the object before it by name: a store has thousands.
    fn share(&mut self, _before: &Self) {}
}

/// Boxed objects, because a map reserves space for several values.
impl<T: Versioned> Versioned for Box<T> {
    fn key(&self) -> String {
        T::key(self)
    }

    fn version(&self) -> u64 {
        T::version(self)
    }

    fn key_of(namespace: &str, name: &str) -> String {
        T::key_of(namespace, name)
    }

    fn means_the_same(&self, other: &Self) -> bool {
        T::means_the_same(self, other)
    }

    fn share(&mut self, before: &Self) {
        T::share(self, before);
    }
}

macro_rules! versioned {
    ($($object:ty),*) => {$(
        impl Versioned for $object {
            fn key(&self) -> String {
                self.name_any()
            }

            fn version(&self) -> u64 {
                version(self)
            }
        }
    )*};
}

versioned!(Secret, GlobalPullSecret, NodePullSecret);

impl Versioned for LiveObject {
    /// Each of these watches has one object.
    fn key(&self) -> String {
        String::new()
    }

    fn key_of(_namespace: &str, _name: &str) -> String {
        String::new()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn means_the_same(&self, other: &Self) -> bool {
        (&self.fingerprint, self.template, self.is_being_deleted)
            == (&other.fingerprint, other.template, other.is_being_deleted)
    }
}

impl Versioned for PodView {
    fn key(&self) -> String {
        self.name.to_string()
    }

    fn version(&self) -> u64 {
        self.version
    }

    /// A pod has a status of its own for much that nothing depends on.
    fn means_the_same(&self, other: &Self) -> bool {
        (&self.node, self.template, &self.runs) == (&other.node, other.template, &other.runs)
    }
}
