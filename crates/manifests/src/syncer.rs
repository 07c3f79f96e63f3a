//! What the controller creates while there is content to sync or to restore: an agent on every Linux node. On selected nodes it
//! is the syncer. On the others it is the restorer, the same program under an account that can't read the content. Where another
//! program writes the nodes' files, it is the observer everywhere.

use globalps_core::api::GlobalPullSecretSpec;
use globalps_core::names::{GLOBAL_SECRET, GROUP, ROLLED_OUT_SECRET};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};
use serde_json::Value;

use super::agent::Agent;
use super::daemon_set::daemon_set;
use super::rbac::{role, role_binding, rule};
use super::{named, value};

/// Everything that the controller creates for nodes besides Secrets. The code that applies it destructures it without `..`, so
/// the compiler reports a forgotten object.
#[derive(Clone, Debug)]
pub struct SyncerObjects {
    /// Objects of [`Agent::Syncer`].
    pub syncer: AgentObjects,
    /// Objects of [`Agent::Restorer`].
    pub restorer: AgentObjects,
    /// Objects of [`Agent::Observer`].
    pub observer: AgentObjects,
}

/// The objects of one agent; all have the same name.
#[derive(Clone, Debug)]
pub struct AgentObjects {
    /// The pods have a token of this account.
    pub service_account: ServiceAccount,
    /// Rights in the namespace of globalps; what concerns one node only, policies limit.
    pub role: Role,
    /// Binds `role` to `service_account`.
    pub role_binding: RoleBinding,
    /// As JSON, with the placement of the configuration.
    pub daemon_set: Value,
}

impl SyncerObjects {
    /// As JSON, each with kind and version, in an order in which they can be applied.
    pub fn values(self) -> Vec<Value> {
        let Self {
            syncer,
            restorer,
            observer,
        } = self;
        [syncer.values(), restorer.values(), observer.values()].concat()
    }
}

impl AgentObjects {
    fn values(self) -> Vec<Value> {
        let Self {
            service_account,
            role,
            role_binding,
            daemon_set,
        } = self;
        vec![
            value(service_account),
            value(role),
            value(role_binding),
            daemon_set,
        ]
    }
}

/// The agents' objects. `namespace`: that of globalps. `image`: of the syncer, with tag or digest.
pub fn syncer_objects(namespace: &str, image: &str, spec: &GlobalPullSecretSpec) -> SyncerObjects {
    let objects = |agent: Agent| AgentObjects {
        service_account: named(agent.name(), namespace),
        role: role(agent.name(), namespace, rules(agent)),
        role_binding: role_binding(agent.name(), namespace, (agent.name(), namespace)),
        daemon_set: daemon_set(agent, namespace, image, spec),
    };
    SyncerObjects {
        syncer: objects(Agent::Syncer),
        restorer: objects(Agent::Restorer),
        observer: objects(Agent::Observer),
    }
}

/// The permissions of the agent.
pub(super) fn rules(agent: Agent) -> Vec<PolicyRule> {
    let content = rule("", ["secrets"], [GLOBAL_SECRET, ROLLED_OUT_SECRET], ["get"]);
    let bookkeeping = [
        rule(GROUP, ["nodepullsecrets"], [], ["list", "watch"]),
        rule(GROUP, ["nodepullsecrets/status"], [], ["patch"]),
    ];
    match agent {
        Agent::Syncer => [vec![content], bookkeeping.into()].concat(),
        Agent::Restorer => bookkeeping.into(),
        // A watch of one Secret needs `list` with its name too.
        Agent::Observer => {
            let content = rule("", ["secrets"], [GLOBAL_SECRET], ["list", "watch"]);
            [vec![content], bookkeeping.into()].concat()
        }
    }
}
