//! The names of registries in credentials files. Pure.

use globalps_core::dockerconfig::canonical_key;

/// The one name of a registry, whatever spelling a file has for it: the form that [`crate::Checker::check`] takes.
pub fn registry_name(key: &str) -> String {
    canonical_key(key).trim_end_matches('/').to_owned()
}
