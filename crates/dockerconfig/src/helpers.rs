//! Programs that keep the passwords instead of the file: `credHelpers` and `credsStore`. Kubelets know neither.

use std::collections::BTreeMap;

use super::entry::folds_to;
use super::json::{Json, Kind};

/// The programs that a file names, as Go reads them: member names match regardless of case, and null counts as missing.
#[derive(Clone, Default)]
pub struct Helpers {
    /// The helpers by registry, as written. For docker and containers/image, an empty name means that the registry has
    /// no helper, even if `credsStore` names one.
    of_registries: BTreeMap<String, String>,
    /// The helper of all other registries; empty if there is none.
    store: String,
    /// `credHelpers` is not an object of strings, so docker and containers/image reject the file.
    has_bad_registries: bool,
    /// `credsStore` is not a string, so docker rejects the file.
    has_bad_store: bool,
}

/// Shows the registries only: a name may hold anything.
impl std::fmt::Debug for Helpers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.of_registries.keys()).finish()
    }
}

impl Helpers {
    /// Takes over a top-level member of the file.
    pub(super) fn read(&mut self, name: &str, value: Json) {
        if folds_to(name, "credhelpers") {
            self.has_bad_registries |= !is_object_of_strings(value);
            if value.kind() == Kind::Null {
                self.of_registries.clear();
            }
            let helpers = value.members();
            let helpers = helpers.map(|(key, helper)| (key, helper.text().unwrap_or_default()));
            self.of_registries.extend(helpers);
        } else if folds_to(name, "credsstore") {
            self.has_bad_store |= !matches!(value.kind(), Kind::String | Kind::Null);
            self.store = value.text().unwrap_or(std::mem::take(&mut self.store));
        }
    }

    /// `credHelpers`: the suffix of a program's name by registry.
    pub fn of_registries(&self) -> &BTreeMap<String, String> {
        &self.of_registries
    }

    /// `credsStore`: the suffix of a program's name for all registries; empty: none.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Whether docker can read both.
    pub fn is_readable(&self) -> bool {
        !self.has_bad_registries && !self.has_bad_store
    }

    /// Whether containers/image can read the file, in spite of them.
    pub(super) fn is_crio_readable(&self) -> bool {
        !self.has_bad_registries
    }

    /// Why CRI-O can't pull from a registry that has a helper, even an empty one.
    pub(super) fn crio_error(&self, registry: &str) -> Option<&'static str> {
        let helper = self.of_registries.get(registry)?;
        Some(if helper.is_empty() {
            "`credHelpers` has the registry without a program, so pulls fail with CRI-O"
        } else {
            "a credential helper is configured for it, and nodes have none"
        })
    }
}

/// An object whose members are strings or null, or null itself.
pub(super) fn is_object_of_strings(value: Json) -> bool {
    let string = |value: Json| matches!(value.kind(), Kind::String | Kind::Null);
    matches!(value.kind(), Kind::Object | Kind::Null)
        && value.members().all(|(_, value)| string(value))
}
