//! Parameters of writes. All of them use the plugin's field manager.

use globalps_core::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};

/// `dry_run`: the API server validates the request and stores nothing.
pub(crate) fn post(dry_run: bool) -> PostParams {
    PostParams {
        dry_run,
        field_manager: Some(names::PLUGIN_MANAGER.to_owned()),
    }
}

pub(crate) fn patch(dry_run: bool) -> PatchParams {
    PatchParams {
        dry_run,
        field_manager: Some(names::PLUGIN_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Deletes the object only if its version is the one that was read; otherwise the API server answers 409.
pub(crate) fn delete(dry_run: bool, read: &ObjectMeta) -> DeleteParams {
    DeleteParams {
        dry_run,
        preconditions: Some(Preconditions {
            resource_version: read.resource_version.clone(),
            uid: read.uid.clone(),
        }),
        ..DeleteParams::default()
    }
}
