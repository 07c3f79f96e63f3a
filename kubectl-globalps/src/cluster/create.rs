//! Creates an object that has only a spec.

use crate::cluster::{Cluster, params};
use crate::error::Result;
use kube::Resource;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use serde_json::{Value, json};

/// Creates an object that has only this spec: the rest has its defaults. `title`: the name in an error.
pub(crate) async fn create<K: Resource<DynamicType = ()>>(
    cluster: &Cluster<'_>,
    (title, name): (&str, &str),
    spec: Value,
    dry_run: bool,
) -> Result<()> {
    let mut object = DynamicObject::new(name, &ApiResource::erase::<K>(&()));
    object.data = json!({"spec": spec});
    let (api, params) = (cluster.untyped::<K>(), params::post(dry_run));
    let doing = format!("create {} `{title}`", K::kind(&()));
    let created = cluster.call(&doing, api.create(&params, &object)).await;
    created.map(drop)
}
