//! A `GlobalPullSecret` that can't be decoded: `install` still applies the policy that rejects such objects, and leaves
//! the object unchanged.

use globalps_core::api::GlobalPullSecret;
use globalps_core::decode::Item;
use globalps_core::names;
use kube::Api;
use serde_json::{Value, json};

use crate::cluster::client::{Cluster, unreadable};
use crate::error::{Result, or_absent};

/// The fields that the permissions and policies of `install` depend on.
const GRANTED: [&str; 9] = [
    "/spec/imagePullSecrets/enabled",
    "/spec/imagePullSecrets/secretName",
    "/spec/imagePullSecrets/attach",
    "/spec/operators/enabled",
    "/spec/kubelet/delivery",
    "/spec/kubelet/unit",
    "/spec/kubelet/configFile",
    "/spec/kubelet/credentialProvider",
    "/status/imagePullSecrets/serviceAccounts",
];
const DOING: &str = "get the GlobalPullSecret";

/// The installed configuration, and whether it can be decoded. If not, returns only the fields that permissions depend
/// on, and warns. `is_changed`: the command changes the configuration, so one that can't be decoded is an error.
pub(crate) async fn installed(
    cluster: &Cluster<'_>,
    is_changed: bool,
) -> Result<(Option<GlobalPullSecret>, bool)> {
    let api: Api<Item<GlobalPullSecret>> = cluster.api();
    let item = or_absent(cluster.call(DOING, api.get_opt(names::GLOBAL_SECRET)).await)?;
    let why = match item.map(Item::into_result).transpose() {
        Ok(config) => return Ok((config, true)),
        Err(why) => unreadable(DOING, &why),
    };
    if is_changed {
        return Err(why);
    }
    let api = cluster.untyped::<GlobalPullSecret>();
    let object = cluster.call(DOING, api.get(names::GLOBAL_SECRET)).await?;
    let config = legible(&json!(object)).ok_or_else(|| why.clone())?;
    let printer = cluster.printer();
    printer.warning(format_args!("{}; it stays as it is", why.message));
    printer.hint(why.hint);
    Ok((Some(config), false))
}

/// `None` if one of these fields can't be decoded.
fn legible(object: &Value) -> Option<GlobalPullSecret> {
    let mut picked = json!({"metadata": {"name": names::GLOBAL_SECRET}, "spec": {}});
    for path in GRANTED {
        if let Some(value) = object.pointer(path) {
            let mut place = &mut picked;
            for field in path.split('/').skip(1) {
                place = &mut place[field];
            }
            *place = value.clone();
        }
    }
    serde_json::from_value(picked).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undecodable_field_does_not_hide_what_permissions_need() {
        let object = json!({
            "spec": {
                "rollout": {"maxUnavailable": 3_000_000_000_u32},
                "imagePullSecrets": {"enabled": true, "secretName": "own", "canaryNamespace": 1},
                "kubelet": {"unit": "k3s.service", "verifyTimeoutSeconds": "x"},
            },
            "status": {"imagePullSecrets": {"serviceAccounts": 4, "total": "x"}},
        });
        let config = legible(&object).expect("a configuration");
        assert!(config.spec.image_pull_secrets.enabled);
        assert_eq!(config.spec.image_pull_secrets.secret_name, "own");
        assert_eq!(config.spec.kubelet.unit, "k3s.service");
        let status = config.status.and_then(|status| status.image_pull_secrets);
        assert_eq!(status.map(|status| status.service_accounts), Some(4));
        let unknown = json!({"spec": {"imagePullSecrets": {"enabled": "x"}}});
        assert_eq!(legible(&unknown), None);
    }
}
