//! The controller's additional permissions for delivery to operators.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::names::{OPERATORS, operator_secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::rbac::{cluster_role, cluster_role_binding, role, role_binding, rule, service_account};
use super::value;

/// API group of the Operator Lifecycle Manager.
const OLM: &str = "operators.coreos.com";

/// The catalogs' pull secrets that the controller may read and copy: namespace and name. Not empty: an empty list of names would
/// mean every Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorAccess {
    /// Each as namespace and name.
    pub secrets: BTreeSet<(String, String)>,
}

impl OperatorAccess {
    /// Names of the copies.
    pub(super) fn copies(&self) -> impl Iterator<Item = String> {
        let secrets = self.secrets.iter();
        secrets.map(|(namespace, name)| operator_secret(namespace, name))
    }

    /// `account`: the controller's, as name and namespace.
    pub(super) fn objects(&self, account: (&str, &str)) -> Vec<Value> {
        let by_name = |names: Vec<String>, verbs| PolicyRule {
            resource_names: Some(names),
            ..rule("", ["secrets"], [], verbs)
        };
        let mut objects = vec![
            value(cluster_role(
                OPERATORS,
                vec![
                    rule(
                        OLM,
                        ["subscriptions", "catalogsources", "clusterserviceversions"],
                        [],
                        ["list", "watch"],
                    ),
                    rule("", ["serviceaccounts"], [], ["list", "watch", "patch"]),
                    // Write only, never read.
                    by_name(self.copies().collect(), ["create", "patch", "delete"]),
                ],
            )),
            value(cluster_role_binding(OPERATORS, service_account(account))),
        ];
        let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (namespace, name) in &self.secrets {
            names.entry(namespace).or_default().push(name.clone());
        }
        for (namespace, names) in names {
            let rules = vec![PolicyRule {
                resource_names: Some(names),
                ..rule("", ["secrets"], [], ["list", "watch"])
            }];
            objects.push(value(role(OPERATORS, namespace, rules)));
            objects.push(value(role_binding(OPERATORS, namespace, account)));
        }
        objects
    }
}
