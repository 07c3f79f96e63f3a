//! A service account of the cluster, and the requests that it makes with its token.

use anyhow::Result;
use json_patch::Patch as JsonPatch;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::config::AuthInfo;
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::Cluster;

/// An account with a token.
pub struct Account {
    /// Name of the pod that the token is bound to; empty if there is none.
    pub pod: String,
    client: Client,
    runtime: Runtime,
}

impl Account {
    pub fn of_pod(cluster: &Cluster, account: &str, namespace: &str, pod: &str) -> Result<Self> {
        let name = format!("--bound-object-name={pod}");
        let args = [account, "-n", namespace, "--bound-object-kind=Pod", &name];
        Ok(Self {
            pod: pod.to_owned(),
            ..Self::of_token(cluster, &args)?
        })
    }

    /// `args`: of `kubectl create token`.
    pub fn of_token(cluster: &Cluster, args: &[&str]) -> Result<Self> {
        let token = cluster.kubectl(&[&["create", "token"], args].concat())?;
        let mut config = Config::new(cluster.api_url().parse()?);
        // The API server's identity is irrelevant here.
        config.accept_invalid_certs = true;
        config.auth_info = AuthInfo {
            token: Some(token.trim().to_owned().into()),
            ..AuthInfo::default()
        };
        let runtime = Runtime::new()?;
        let client = runtime.block_on(async { Client::try_from(config) })?;
        Ok(Self {
            pod: String::new(),
            client,
            runtime,
        })
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let gvk = GroupVersionKind::gvk(group, version, &text(&object["kind"]));
        let resource = ApiResource::from_gvk(&gvk);
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Applies an object with the controller's field manager.
    pub fn apply(&self, object: &Value, dry_run: bool) -> Result<(), String> {
        let mut params = PatchParams::apply("globalps-controller").force();
        params.dry_run = dry_run;
        let name = name(object);
        let api = self.api(object);
        let patch = Patch::Apply(object);
        let applied = self.runtime.block_on(api.patch(name, &params, &patch));
        applied.map(drop).map_err(|error| error.to_string())
    }

    /// Sends a patch as a dry run. An error of the API server contains its code and message.
    pub fn try_patch(
        &self,
        object: &Value,
        patch: JsonPatch,
    ) -> Result<DynamicObject, (u16, String)> {
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let patch: Patch<()> = Patch::Json(patch);
        let call = self.api(object);
        let patched = self
            .runtime
            .block_on(call.patch(name(object), &params, &patch));
        patched.map_err(|error| match error {
            kube::Error::Api(status) => (status.code, status.message),
            other => (0, other.to_string()),
        })
    }

    pub fn delete(&self, object: &Value, dry_run: bool) -> Result<(), String> {
        let params = DeleteParams {
            dry_run,
            ..DeleteParams::background()
        };
        let name = name(object);
        let api = self.api(object);
        let deleted = self.runtime.block_on(api.delete(name, &params));
        deleted.map(drop).map_err(|error| error.to_string())
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
