//! The names of registries in credentials files. Pure.

use globalps_dockerconfig::canonical_key;

/// What else fails while an entry for a whole registry is rejected, and the way out. `None`: the entry is for a path.
pub fn public_images(registry: &str) -> Option<String> {
    let is_whole = !registry.contains('/');
    is_whole.then(|| {
        format!(
            "public images of `{registry}` fail too, since nodes with an entry for an image don't pull it without credentials; if only some images need a login, use an entry for their path instead: `{registry}/ORG`"
        )
    })
}

/// The one name of a registry, whatever spelling a file has for it: the form that [`crate::Checker::check`] takes.
pub fn registry_name(key: &str) -> String {
    canonical_key(key).trim_end_matches('/').to_owned()
}
