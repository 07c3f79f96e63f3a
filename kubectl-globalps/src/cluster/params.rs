//! Parameters of writes. The field manager is the plugin's in all of them.

use globalps_core::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};

/// `dry_run`: the API server checks the request and stores nothing.
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

/// Deletes the object only in the version that was read; the API server answers 409 for any other.
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
