//! The pools of `OpenShift`'s Machine Config Operator. Without the right to read them, none counts as paused.

use futures::StreamExt as _;
use futures::stream::BoxStream;
use globalps_core::decode::Item;
use globalps_core::names::MACHINE_CONFIG_GROUP;
use globalps_planner::targets::version;
use globalps_runtime::list_watch::{Update, list_watch};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};

use super::versioned::Versioned;

const PAGE: u32 = 50;

/// A `MachineConfigPool`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolView {
    name: String,
    version: u64,
    /// The operator changes none of its nodes.
    pub(crate) is_paused: bool,
}

impl Versioned for PoolView {
    fn key(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> u64 {
        self.version
    }

    /// The operator counts its nodes in it.
    fn means_the_same(&self, other: &Self) -> bool {
        self.is_paused == other.is_paused
    }
}

pub(super) fn pool_events(client: &Client) -> BoxStream<'static, Update<PoolView>> {
    let kind = GroupVersionKind::gvk(MACHINE_CONFIG_GROUP, "v1", "MachineConfigPool");
    let resource = ApiResource::from_gvk_with_plural(&kind, "machineconfigpools");
    let pools: Api<Item<DynamicObject>> = Api::all_with(client.clone(), &resource);
    let params = ListParams::default().limit(PAGE);
    list_watch(pools, params, "machine config pools")
        .map(|update| update.map(|pool| pool_view(&pool)))
        .boxed()
}

fn pool_view(pool: &DynamicObject) -> PoolView {
    PoolView {
        name: pool.name_any(),
        version: version(pool),
        is_paused: pool.data["spec"]["paused"] == true,
    }
}

#[cfg(test)]
pub(super) fn of_test(name: &str, is_paused: bool) -> PoolView {
    let pool = serde_json::json!({
        "apiVersion": format!("{MACHINE_CONFIG_GROUP}/v1"), "kind": "MachineConfigPool",
        "metadata": {"name": name, "resourceVersion": "1"}, "spec": {"paused": is_paused},
    });
    pool_view(&serde_json::from_value(pool).expect("a pool"))
}
