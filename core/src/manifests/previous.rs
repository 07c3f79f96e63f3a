//! Policies for a downgrade: the previous release's policies have the Lease and the Deployment as their parameters. The API server
//! stops its watch of such a kind with the last policy that uses it, and never starts it again. These policies keep the watches,
//! and match nothing.

use serde_json::Value;

use super::policy::{Policy, binding, only_named, param, validation, writes};
use super::value;
use crate::names::{CONTROLLER, GROUP, LEASE, VERSION};

pub(super) fn objects() -> impl Iterator<Item = Value> {
    let policies = [
        (
            "globalps-previous-leader",
            ("coordination.k8s.io/v1", "Lease"),
            LEASE,
        ),
        (
            "globalps-previous-daemonsets",
            ("apps/v1", "Deployment"),
            CONTROLLER,
        ),
    ];
    policies.into_iter().flat_map(|(name, kind, parameter)| {
        let policy = Policy {
            params: Some(kind),
            rules: vec![only_named(
                writes(GROUP, VERSION, ["nodepullsecrets"]),
                &[name],
            )],
            validations: vec![validation("unused", "true")],
            ..Policy::default()
        };
        [
            value(policy.build(name)),
            value(binding(name, Some(param(parameter)))),
        ]
    })
}
