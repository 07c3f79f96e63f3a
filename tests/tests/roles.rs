//! What users with the roles `globalps-viewer` and `globalps-operator` can and can't do with the plugin.

mod common;

use std::time::Duration;

use common::{cluster, roll_out};
use globalps_testkit::product::{ADDITIONAL, NAMESPACE, Product, Ran};
use globalps_testkit::{Cluster, wait};

const POLL: Duration = Duration::from_millis(100);
const VIEWER: &str = "vera";
/// Has Kubernetes' own role `view`.
const READER: &str = "rita";
const OPERATOR: &str = "otto";
const REGISTRY: &str = "roles.example.com";

#[test]
fn viewers_read_no_secrets_and_operators_work_day_by_day() {
    let cluster = cluster("roles", 1);
    let product = Product::install(&cluster).unwrap();
    for (user, role) in [
        (VIEWER, "globalps-viewer"),
        (READER, "view"),
        (OPERATOR, "globalps-operator"),
    ] {
        let (role, name) = (format!("--clusterrole={role}"), format!("--user={user}"));
        let bind = ["create", "clusterrolebinding", user, &role, &name];
        cluster.kubectl(&bind).unwrap();
    }
    // An admin adds the first registry, because RBAC can't restrict a creation by name.
    let ran = add(&product, OPERATOR, REGISTRY);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("create"), "{ran:?}");
    for number in [1, 2] {
        let pair = format!("robot:roles-password-{number}");
        roll_out(&product, &[(REGISTRY, &pair)]);
    }

    for user in [VIEWER, READER] {
        wait("the role to be in force", POLL, || {
            Ok(may(&cluster, user, "list", "nodepullsecrets.globalps.io").then_some(()))
        });
        for command in ["status", "list"] {
            let ran = by(&product, user, &[command]);
            assert_eq!(ran.code, Some(0), "{user}: {command}: {ran:?}");
            assert!(!ran.stdout.contains("roles-password"), "{ran:?}");
        }
        let ran = by(&product, user, &["history"]);
        assert_ne!(ran.code, Some(0), "{ran:?}");
        for (verb, what) in [
            ("get", "secrets"),
            ("get", &format!("secrets/{ADDITIONAL}")),
            ("patch", "globalpullsecrets.globalps.io"),
            ("patch", "nodepullsecrets.globalps.io"),
        ] {
            assert!(!may(&cluster, user, verb, what), "{user}: {verb} {what}");
        }
    }

    let node = cluster.nodes().unwrap()[0].name().to_owned();
    works(&product, &["status"]);
    works(&product, &["list"]);
    works(&product, &["history"]);
    works(&product, &["diff"]);
    works(&product, &["explain", &format!("{REGISTRY}/app")]);
    works(&product, &["why", "-A"]);
    works(&product, &["pause"]);
    works(&product, &["resume"]);
    works(&product, &["retry", &node]);
    let ran = add(&product, OPERATOR, "second.example.com");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    product.wait_synced().unwrap();
    works(&product, &["undo", "--yes", "--wait"]);
    let ran = add(&product, OPERATOR, "third.example.com");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    works(
        &product,
        &["remove", "third.example.com", "--yes", "--wait"],
    );
    works(&product, &["remove", "--all", "--yes", "--wait"]);
    product.wait_clean().unwrap();
    for (verb, what) in [
        ("create", "secrets"),
        ("get", "secrets"),
        ("list", "secrets"),
        ("patch", "secrets/global-pull-secret"),
        ("patch", "daemonsets.apps"),
        ("patch", "deployments.apps"),
        ("create", "pods"),
        ("delete", "globalpullsecrets.globalps.io"),
    ] {
        assert!(!may(&cluster, OPERATOR, verb, what), "{verb} {what}");
    }
}

fn by(product: &Product, user: &str, args: &[&str]) -> Ran {
    product
        .plugin(&[args, &["--as", user]].concat(), "")
        .unwrap()
}

fn works(product: &Product, args: &[&str]) {
    let ran = by(product, OPERATOR, args);
    assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
}

fn add(product: &Product, user: &str, registry: &str) -> Ran {
    let args = [
        "add",
        "--skip-check",
        registry,
        "-u",
        "robot",
        "--password-stdin",
        "--as",
        user,
    ];
    product.plugin(&args, "roles-password-3").unwrap()
}

fn may(cluster: &Cluster, user: &str, verb: &str, what: &str) -> bool {
    let ask = ["auth", "can-i", verb, what, "-n", NAMESPACE, "--as", user];
    cluster
        .kubectl(&ask)
        .is_ok_and(|answer| answer.trim() == "yes")
}
