//! The names of registries in credentials files. Pure.

use globalps_dockerconfig::canonical_key;

/// What else fails while a registry rejects an entry for the whole registry, and how to avoid it. `None` if the entry
/// is for a path.
pub fn public_images(registry: &str) -> Option<String> {
    let is_whole = !registry.contains('/');
    is_whole.then(|| {
        format!(
            "public images of `{registry}` fail too, since nodes with an entry for an image don't pull it without credentials; if only some images need a login, use an entry for their path instead: `{registry}/ORG`"
        )
    })
}

/// The canonical name of a registry for any spelling in a file: the form that [`crate::Checker::check`] takes.
pub fn registry_name(key: &str) -> String {
    canonical_key(key).trim_end_matches('/').to_owned()
}
