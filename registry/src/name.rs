//! The names of registries in credentials files. Pure.

use globalps_core::dockerconfig::canonical_key;

use crate::endpoint::HUB;

/// Docker Hub, as docker writes it.
const HUB_KEY: &str = "index.docker.io";

/// The one name of a registry, whatever spelling a file has for it: the form that [`crate::Checker::check`] takes.
pub fn registry_name(key: &str) -> String {
    let name = canonical_key(key);
    let name = name.trim_end_matches('/');
    match name.strip_prefix(HUB_KEY) {
        Some(path) if path.is_empty() || path.starts_with('/') => format!("{HUB}{path}"),
        _ => name.to_owned(),
    }
}
