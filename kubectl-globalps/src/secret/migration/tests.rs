use super::*;
use globalps_dockerconfig::parse;
use serde_json::json;

fn account_of(name: &str, has_ours: bool) -> Account {
    Account {
        name: name.to_owned(),
        has_ours,
    }
}

fn place() -> NamespaceFacts {
    NamespaceFacts {
        old: Some(Old::default()),
        accounts: vec![account_of("default", false)],
        is_selected: true,
        is_synced: true,
        pods: Vec::new(),
    }
}

#[test]
fn one_reference_leaves_the_service_account_as_it_was_read() {
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
fn a_reference_goes_once_replaced_and_a_secret_once_unneeded() {
    use Attach::{Admission, ServiceAccounts};
    let with_ours = || NamespaceFacts {
        accounts: vec![account_of("default", true), account_of("builder", false)],
        ..place()
    };
    let with_pods = || NamespaceFacts {
        pods: vec!["web-1".to_owned()],
        ..place()
    };
    #[rustfmt::skip]
    let cases = [
        ("by the policy", place(), Admission, false, &["default"][..], true, ""),
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
        ("pods are ignored", with_pods(), Admission, true, &["default"], true, ""),
        (
            "not selected",
            NamespaceFacts {
                is_selected: false,
                ..place()
            },
            Admission,
            false,
            &[],
            false,
            "globalps does not select the namespace",
        ),
        ("a reference to nothing", NamespaceFacts { old: None, ..with_pods() }, Admission, false, &["default"], false, ""),
    ];
    for (case, place, attach, ignore, accounts, deletes, stays) in cases {
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
fn nothing_begins_before_globalps_delivers_everything() {
    let missing = |registry: &str| NamespaceFacts {
        old: Some(Old {
            missing: vec![registry.to_owned()],
            ..Old::default()
        }),
        ..place()
    };
    let unsynced = || NamespaceFacts {
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
            vec![NamespaceFacts {
                is_selected: false,
                ..missing("quay.io")
            }],
            None,
        ),
    ] {
        let places = places.into_iter().enumerate();
        let places: BTreeMap<String, NamespaceFacts> = places
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
fn registries_compare_by_the_nodes_name_and_show_no_credential() {
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
fn the_patcher_is_found_by_its_image_and_names_its_secrets() {
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
