//! The plan of a migration as a table. Pure.

use std::collections::BTreeMap;

use crate::secret::migration::{MigrationStep, NamespaceFacts};
use crate::terminal::{Layout, uncolored};

/// A line for each namespace.
pub(crate) fn table(
    places: &BTreeMap<String, NamespaceFacts>,
    steps: &BTreeMap<String, MigrationStep>,
    secret_name: &str,
) -> String {
    let row = |(name, place): (&String, &NamespaceFacts)| {
        let step = steps.get(name).cloned().unwrap_or_default();
        let ours = match (place.is_selected, place.is_synced) {
            (false, _) => "not selected",
            (true, true) => "in force",
            (true, false) => "not in force",
        };
        let secret = match (&place.old, step.deletes) {
            (None, _) => "none".to_owned(),
            (Some(_), true) => format!("delete {secret_name}"),
            (Some(_), false) => format!("keep {secret_name}"),
        };
        let accounts = match step.accounts.as_slice() {
            [] => "none".to_owned(),
            accounts => format!("detach {}", accounts.join(", ")),
        };
        [name.clone(), ours.to_owned(), secret, accounts, step.stays]
    };
    let header = [
        "NAMESPACE",
        "GLOBALPS",
        "SECRET",
        "SERVICE ACCOUNTS",
        "STAYS",
    ];
    uncolored(header, places.iter().map(row), Layout::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::migration::{Account, Old, SECRET_NAME, step};
    use globalps_core::api::Attach;

    #[test]
    fn the_plan_has_a_line_for_each_namespace() {
        let place = |is_selected| NamespaceFacts {
            old: Some(Old::default()),
            accounts: vec![Account {
                name: "default".to_owned(),
                has_ours: false,
            }],
            is_selected,
            is_synced: is_selected,
            pods: Vec::new(),
        };
        let places = [("a", place(true)), ("kube-system", place(false))];
        let places = BTreeMap::from(places.map(|(name, place)| (name.to_owned(), place)));
        let steps = places
            .iter()
            .map(|(name, place)| (name.clone(), step(place, Attach::Admission, false)));
        assert_eq!(
            table(&places, &steps.collect(), SECRET_NAME),
            "\
NAMESPACE     GLOBALPS       SECRET                     SERVICE ACCOUNTS   STAYS
a             in force       delete image-pull-secret   detach default
kube-system   not selected   keep image-pull-secret     none               globalps does not select the namespace"
        );
    }
}
