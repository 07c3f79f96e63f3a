//! The way from imagepullsecret-patcher to globalps: what it left, what is in force instead, and what can go. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::Attach;
use globalps_dockerconfig::{DockerConfig, shown_key};
use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, RemoveOperation, TestOperation};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use crate::error::Failure;
use crate::terminal::columns::columns;

/// Part of the image's name by which its Deployment is found, and value of the annotation of its Secrets.
pub(crate) const PATCHER: &str = "imagepullsecret-patcher";
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Name of its Secrets, unless its Deployment or the user says otherwise.
pub(crate) const SECRET_NAME: &str = "image-pull-secret";
/// Names in a sentence.
const MOST: usize = 5;

/// A Secret of the patcher, as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Old {
    /// Version and uid only: annotations can have credentials.
    pub metadata: ObjectMeta,
    /// Its registries that globalps does not deliver to the namespace.
    pub missing: Vec<String>,
    /// Those for which globalps has other credentials.
    pub different: Vec<String>,
}

/// A service account that refers to the patcher's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub name: String,
    /// It refers to globalps' Secret, too.
    pub has_ours: bool,
}

/// What is known of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Place {
    /// `None`: there is none any more, only references to it.
    pub old: Option<Old>,
    pub accounts: Vec<Account>,
    /// globalps keeps a Secret here.
    pub is_selected: bool,
    /// Its Secret is here, with the present content.
    pub is_synced: bool,
    /// Running pods that refer to the patcher's Secret, and not to globalps'.
    pub pods: Vec<String>,
}

/// What happens in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Service accounts that lose the reference.
    pub accounts: Vec<String>,
    pub deletes: bool,
    /// Why something stays; empty: nothing does.
    pub stays: String,
}

/// `attach`: how pods refer to globalps' Secret; with `Admission`, the policy is in force. `ignore_pods`: Secrets go even
/// where running pods need them.
pub(crate) fn step(place: &Place, attach: Attach, ignore_pods: bool) -> Step {
    if !place.is_selected {
        return Step {
            stays: "globalps does not select the namespace".to_owned(),
            ..Step::default()
        };
    }
    let is_in_force = |account: &&Account| attach == Attach::Admission || account.has_ours;
    let accounts: Vec<String> = place
        .accounts
        .iter()
        .filter(is_in_force)
        .map(|account| account.name.clone())
        .collect();
    let kept: Vec<&str> = place
        .accounts
        .iter()
        .filter(|account| !is_in_force(account))
        .map(|account| account.name.as_str())
        .collect();
    let mut stays = Vec::new();
    if !kept.is_empty() {
        stays.push(format!(
            "service accounts without the reference of globalps: {}",
            list(&kept)
        ));
    }
    if !place.pods.is_empty() && !ignore_pods && place.old.is_some() {
        let pods: Vec<&str> = place.pods.iter().map(String::as_str).collect();
        stays.push(format!(
            "running pods refer to the Secret only: {}",
            list(&pods)
        ));
    }
    Step {
        deletes: place.old.is_some() && stays.is_empty(),
        accounts,
        stays: stays.join("; "),
    }
}

/// Why nothing may be changed yet; `None`: everything is in force. `secret_name`: of the patcher's Secrets.
pub(crate) fn refusal(places: &BTreeMap<String, Place>, secret_name: &str) -> Option<Failure> {
    let selected = || places.iter().filter(|(_, place)| place.is_selected);
    let unsynced: Vec<&str> = selected()
        .filter(|(_, place)| !place.is_synced)
        .map(|(name, _)| name.as_str())
        .collect();
    if !unsynced.is_empty() {
        return Some(Failure::no(
            format!(
                "globalps' pull secret is not in force in {} yet: {}",
                number(unsynced.len(), "namespace"),
                list(&unsynced)
            ),
            "`kubectl globalps status --namespaces` shows the reasons; then migrate again",
        ));
    }
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, place) in selected() {
        for registry in place.old.iter().flat_map(|old| &old.missing) {
            missing.entry(registry).or_default().push(name);
        }
    }
    let (_, namespaces) = missing.first_key_value()?;
    let first = namespaces.first().copied().unwrap_or_default();
    let sentences: Vec<String> = missing
        .iter()
        .map(|(registry, namespaces)| format!("`{registry}` in {}", list(namespaces)))
        .collect();
    Some(Failure::no(
        format!(
            "globalps does not deliver every registry of the Secrets `{secret_name}`: {}",
            sentences.join("; ")
        ),
        format!(
            "add them with `kubectl globalps add --from-secret {first}/{secret_name} --all`, or from a file with `kubectl globalps add --from-file FILE --all`; with `--source NAME --only-namespaces NAMESPACE` for some namespaces only"
        ),
    ))
}

/// Registries of the patcher's Secret that globalps' one does not have, and those with other credentials; no credentials.
pub(crate) fn compare(old: &DockerConfig, ours: &DockerConfig) -> (Vec<String>, Vec<String>) {
    let ours = ours.by_canonical_key();
    let (mut missing, mut different) = (BTreeSet::new(), BTreeSet::new());
    for (key, entry) in old.by_canonical_key() {
        match ours.get(&key) {
            None => missing.insert(shown_key(&key)),
            Some(found) if !found.means_the_same(entry) => different.insert(shown_key(&key)),
            Some(_) => false,
        };
    }
    (
        missing.into_iter().collect(),
        different.into_iter().collect(),
    )
}

/// Whether the Deployment runs the patcher.
pub(crate) fn is_patcher(deployment: &Deployment) -> bool {
    containers(deployment).any(|container| {
        let image = container.image.as_deref();
        image.is_some_and(|image| image.contains(PATCHER))
    })
}

/// The name of its Secrets, where the Deployment says it.
pub(crate) fn named_by(deployment: &Deployment) -> Option<String> {
    let of_env = containers(deployment)
        .flat_map(|container| container.env.iter().flatten())
        .find(|variable| variable.name == "CONFIG_SECRETNAME")
        .and_then(|variable| variable.value.clone());
    let args = containers(deployment).flat_map(|container| container.args.iter().flatten());
    let of_args = args
        .filter_map(|arg| arg.trim_start_matches('-').strip_prefix("secretname="))
        .map(str::to_owned)
        .next();
    of_args.or(of_env)
}

fn containers(
    deployment: &Deployment,
) -> impl Iterator<Item = &k8s_openapi::api::core::v1::Container> {
    let spec = deployment.spec.as_ref();
    let pod = spec.and_then(|spec| spec.template.spec.as_ref());
    pod.into_iter().flat_map(|pod| &pod.containers)
}

/// The service account, where it refers to the patcher's Secret.
pub(crate) fn account(account: &ServiceAccount, old: &str, ours: &str) -> Option<Account> {
    let has = |name: &str| {
        let mut references = account.image_pull_secrets.iter().flatten();
        references.any(|reference| reference.name == name)
    };
    has(old).then(|| Account {
        name: account.name_any(),
        has_ours: has(ours),
    })
}

/// Removes the first reference to this Secret, if nobody has written the service account since: no record says whose it is.
pub(crate) fn without_reference(account: &ServiceAccount, name: &str) -> Patch {
    let mut operations = vec![PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(["metadata", "resourceVersion"]),
        value: account.resource_version().into(),
    })];
    let mut references = account.image_pull_secrets.iter().flatten();
    if let Some(at) = references.position(|reference| reference.name == name) {
        let path = PointerBuf::from_tokens(["imagePullSecrets", &at.to_string()]);
        operations.push(PatchOperation::Remove(RemoveOperation { path }));
    }
    Patch(operations)
}

/// A line for each namespace.
pub(crate) fn table(
    places: &BTreeMap<String, Place>,
    steps: &BTreeMap<String, Step>,
    secret_name: &str,
) -> String {
    const HEADER: [&str; 5] = [
        "NAMESPACE",
        "GLOBALPS",
        "SECRET",
        "SERVICE ACCOUNTS",
        "STAYS",
    ];
    let row = |(name, place): (&String, &Place)| {
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
        vec![name.clone(), ours.to_owned(), secret, accounts, step.stays]
    };
    let rows: Vec<Vec<String>> = places.iter().map(row).collect();
    columns(&HEADER, &rows, None, |_, _| None)
}

/// The first names, and how many more there are.
pub(crate) fn list(names: &[&str]) -> String {
    let shown = names
        .iter()
        .take(MOST)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `1 namespace`, `2 namespaces`.
pub(crate) fn number(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_dockerconfig::parse;
    use serde_json::json;

    fn account_of(name: &str, has_ours: bool) -> Account {
        Account {
            name: name.to_owned(),
            has_ours,
        }
    }

    fn place() -> Place {
        Place {
            old: Some(Old::default()),
            accounts: vec![account_of("default", false)],
            is_selected: true,
            is_synced: true,
            pods: Vec::new(),
        }
    }

    #[test]
    fn one_reference_is_removed_from_the_service_account_as_it_was_read() {
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        for (references, expected) in [
            (
                json!([{"name": "x"}, {"name": "old"}, {"name": "old"}]),
                json!([test, {"op": "remove", "path": "/imagePullSecrets/1"}]),
            ),
            (json!([{"name": "x"}]), json!([test])),
        ] {
            let account = json!({"metadata": {"name": "default", "resourceVersion": "7"},
                "imagePullSecrets": references});
            let account: ServiceAccount = serde_json::from_value(account).expect("an account");
            assert_eq!(json!(without_reference(&account, "old")), expected);
        }
    }

    #[test]
    fn a_reference_goes_only_where_globalps_has_one_in_force_and_a_secret_only_where_nobody_needs_it()
     {
        use Attach::{Admission, ServiceAccounts};
        let with_ours = || Place {
            accounts: vec![account_of("default", true), account_of("builder", false)],
            ..place()
        };
        let with_pods = || Place {
            pods: vec!["web-1".to_owned()],
            ..place()
        };
        for (case, place, attach, ignore, accounts, deletes, stays) in [
            (
                "by the policy",
                place(),
                Admission,
                false,
                &["default"][..],
                true,
                "",
            ),
            (
                "without our reference",
                place(),
                ServiceAccounts,
                false,
                &[],
                false,
                "service accounts without the reference of globalps: default",
            ),
            (
                "with a managed one",
                with_ours(),
                ServiceAccounts,
                false,
                &["default"],
                false,
                "service accounts without the reference of globalps: builder",
            ),
            (
                "pods need it",
                with_pods(),
                Admission,
                false,
                &["default"],
                false,
                "running pods refer to the Secret only: web-1",
            ),
            (
                "pods are ignored",
                with_pods(),
                Admission,
                true,
                &["default"],
                true,
                "",
            ),
            (
                "not selected",
                Place {
                    is_selected: false,
                    ..place()
                },
                Admission,
                false,
                &[],
                false,
                "globalps does not select the namespace",
            ),
            (
                "a reference to nothing",
                Place {
                    old: None,
                    ..with_pods()
                },
                Admission,
                false,
                &["default"],
                false,
                "",
            ),
        ] {
            let found = step(&place, attach, ignore);
            assert_eq!(found.accounts, accounts, "{case}");
            assert_eq!(
                (found.deletes, found.stays.as_str()),
                (deletes, stays),
                "{case}"
            );
        }
    }

    #[test]
    fn nothing_begins_before_globalps_delivers_everything_everywhere() {
        let missing = |registry: &str| Place {
            old: Some(Old {
                missing: vec![registry.to_owned()],
                ..Old::default()
            }),
            ..place()
        };
        let unsynced = || Place {
            is_synced: false,
            ..place()
        };
        for (places, expected) in [
            (vec![place()], None),
            (
                vec![place(), unsynced()],
                Some("not in force in 1 namespace yet: n1"),
            ),
            (
                (0..7).map(|_| unsynced()).collect(),
                Some("in 7 namespaces yet: n0, n1, n2, n3, n4 and 2 more"),
            ),
            (
                vec![missing("quay.io"), missing("quay.io"), missing("ghcr.io")],
                Some("`ghcr.io` in n2; `quay.io` in n0, n1"),
            ),
            (
                vec![Place {
                    is_selected: false,
                    ..missing("quay.io")
                }],
                None,
            ),
        ] {
            let places = places.into_iter().enumerate();
            let places: BTreeMap<String, Place> = places
                .map(|(at, place)| (format!("n{at}"), place))
                .collect();
            let found = refusal(&places, "image-pull-secret");
            assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
            if let (Some(found), Some(expected)) = (found, expected) {
                assert!(found.message.contains(expected), "{}", found.message);
            }
        }
    }

    #[test]
    fn registries_are_compared_by_the_name_that_nodes_use_and_credentials_are_never_shown() {
        let config = |text: &str| parse(text.as_bytes()).expect("credentials");
        let old = config(
            r#"{"auths":{"https://quay.io/v1/":{"auth":"dTpw"},"ghcr.io":{"auth":"dTpw"},"r.example":{"auth":"dTpw"}}}"#,
        );
        let ours = config(r#"{"auths":{"quay.io":{"auth":"dTpw"},"ghcr.io":{"auth":"djpw"}}}"#);
        let (missing, different) = compare(&old, &ours);
        assert_eq!(missing, ["r.example"]);
        assert_eq!(different, ["ghcr.io"]);
    }

    #[test]
    fn the_patcher_is_found_by_its_image_and_says_how_its_secrets_are_named() {
        let deployment = |container: serde_json::Value| -> Deployment {
            let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {},
                "template": {"spec": {"containers": [container]}}}});
            serde_json::from_value(deployment).expect("a Deployment")
        };
        let image = "quay.io/titansoft/imagepullsecret-patcher:v0.14";
        for (container, is_found, name) in [
            (json!({"name": "c", "image": image}), true, None),
            (
                json!({"name": "c", "image": image, "env": [{"name": "CONFIG_SECRETNAME", "value": "own"}]}),
                true,
                Some("own"),
            ),
            (
                json!({"name": "c", "image": image, "args": ["-secretname=own"]}),
                true,
                Some("own"),
            ),
            (json!({"name": "c", "image": "nginx"}), false, None),
        ] {
            let found = deployment(container);
            assert_eq!(is_patcher(&found), is_found);
            assert_eq!(named_by(&found).as_deref(), name);
        }
    }

    #[test]
    fn the_plan_has_a_line_for_each_namespace() {
        let places: BTreeMap<String, Place> = [
            ("a".to_owned(), place()),
            (
                "kube-system".to_owned(),
                Place {
                    is_selected: false,
                    is_synced: false,
                    ..place()
                },
            ),
        ]
        .into();
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
