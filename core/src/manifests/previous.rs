//! A policy for a downgrade: the previous release's leader policy has the Lease as its parameter. The API server stops its watch of
//! such a kind with the last policy that uses it, and never starts it again. This policy keeps the watch, and matches nothing.

use serde_json::Value;

use super::policy::{Policy, binding, only_named, param, validation, writes};
use super::value;
use crate::names::{GROUP, LEASE, VERSION};

const NAME: &str = "globalps-previous-leader";

pub(super) fn objects() -> [Value; 2] {
    let policy = Policy {
        params: Some(("coordination.k8s.io/v1", "Lease")),
        rules: vec![only_named(
            writes(GROUP, VERSION, ["nodepullsecrets"]),
            &[NAME],
        )],
        validations: vec![validation("unused", "true")],
        ..Policy::default()
    };
    [
        value(policy.build(NAME)),
        value(binding(NAME, Some(param(LEASE)))),
    ]
}
