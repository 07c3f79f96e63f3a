//! Permissions in the manifests and requests match exactly, and a syncer's token is valid only for its own node.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::objects::{account, apply, namespace, registries_of, wait_references};
use common::{cluster, docker_config, write};
use globalps_core::api::{Attach, GlobalPullSecretSpec, NodePullSecret, SecretRef};
use globalps_core::names::RESTRICTED_EXCLUDE_LABEL;
use globalps_manifests::{Manifests, NamespaceAccess, OperatorAccess, syncer_objects};
use globalps_testkit::broken_kubelet::{break_kubelet, mend_kubelet};
use globalps_testkit::olm::{catalog, delete, install_olm, set_versions, subscription, version};
use globalps_testkit::product::{NAMESPACE, Product, pull_secret, reconfigure, run};
use globalps_testkit::rights::{Calls, Exceptions, Right, assert_same, rights_of};
use globalps_testkit::{Cluster, Node, wait};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
/// The authorizer learns about a RoleBinding through a watch.
const KNOWN_AFTER: SignedDuration = SignedDuration::from_secs(1);
const SYSTEM: &str = "globalps-system";
const SYNCER: &str = "global-pull-secret-syncer";
const CONTROLLER_USER: &str = "system:serviceaccount:globalps-system:globalps-controller";
const SYNCER_USER: &str = "system:serviceaccount:kube-system:global-pull-secret-syncer";
const RESTORER: &str = "global-pull-secret-restorer";
const RESTORER_USER: &str = "system:serviceaccount:kube-system:global-pull-secret-restorer";
const ORIGINAL: (&str, &str) = ("default", "original-pull-secret");
/// Name of the pull secret in namespaces.
const DELIVERED: &str = "delivered";
/// Namespace and name of a catalog's pull secret.
const CATALOG: (&str, &str) = ("olm", "pull");
const COPY: &str = "globalps-olm.pull";

/// Permissions that no request needs: part of the permission as printed, and why it exists.
#[rustfmt::skip]
const UNUSED: &[(&str, &str)] = &[
    ("`global-pull-secret-record`", "only with `delivery: Observe`, as in `observe.rs`"),
    ("`global-pull-secret-applied`", "only with `delivery: OpenShift`, as in `standalone_openshift.rs`"),
    ("globalps-observer", "only with `delivery: Observe`, as in `observe.rs`"),
    ("`global-pull-secret-applied`", "only with `delivery: OpenShift`, as in `standalone_openshift.rs`"),
    ("globalps-controller: patch globalps.io/nodepullsecrets/status", "a client that creates a Role must have its rights"),
    ("globalps-controller: get /secrets `global-pull-secret", "a client that creates a Role must have its rights"),
    ("secrets `additional-pull-secret-history-", "the used part of the history depends on `historyLimit`"),
];

/// Permissions that are only needed sometimes, and when.
#[rustfmt::skip]
const SOMETIMES: &[(&str, &str)] = &[
    ("globalps-controller: get coordination.k8s.io/leases", "when a renewal gets a conflict or no response"),
    ("globalps-controller: list /namespaces", "when a source selects namespaces by their labels"),
    ("globalps-controller: watch /namespaces", "when a source selects namespaces by their labels"),
    ("get admissionregistration.k8s.io/mutatingadmissionpolicybindings", "when the admission policy is installed"),
    (
        "globalps-controller: get /secrets `global-pull-secret-rolled-out`",
        "when a namespace is created while a newer revision waits for its canary",
    ),
    ("globalps-controller: list events.k8s.io/events", "when pods of a DaemonSet are missing"),
    (
        "global-pull-secret-syncer: get /secrets `global-pull-secret-rolled-out`",
        "when a node is added while a newer revision is rolled out",
    ),
];

/// Forbidden requests, and why they are sent.
const REFUSED: &[(&str, &str)] = &[(
    "globalps-controller: get /secrets `pull-secret` in `openshift-config`",
    "allowed with `--original`, which the first installation does not use",
)];

#[test]
fn rules_equal_calls_and_a_token_is_for_its_own_node() {
    let cluster = cluster("permissions", 2);
    let product = install(&cluster);
    let nodes = cluster.nodes().unwrap();

    product.apply(&content(1)).unwrap();
    product.wait_synced().unwrap();
    product.apply(&content(2)).unwrap();
    product.wait_synced().unwrap();
    a_token_is_good_for_its_own_node(&cluster, &nodes);
    an_excluded_node_is_restored_and_can_t_read_the_content(&cluster, &product, &nodes[1]);
    a_fleet_goes_back(&cluster, &product, &nodes);
    another_one_leads(&cluster);
    namespaces_and_operators_get_theirs(&cluster);
    product.delete().unwrap();
    product.wait_clean().unwrap();
    product.apply(&content(3)).unwrap();
    product.wait_synced().unwrap();
    product.ends("uninstall --yes", 0);

    the_rules_and_the_calls_are_the_same(&cluster);
}

fn content(revision: u32) -> String {
    docker_config(&[("permissions.example.com", &format!("u:{revision}"))])
}

fn original() -> SecretRef {
    SecretRef {
        namespace: ORIGINAL.0.to_owned(),
        name: ORIGINAL.1.to_owned(),
        key: ".dockerconfigjson".to_owned(),
    }
}

fn install(cluster: &Cluster) -> Product<'_> {
    let original = docker_config(&[("original.example.com", "u:o")]);
    let original = pull_secret(ORIGINAL.0, ORIGINAL.1, &original);
    cluster.apply(original).unwrap();
    apply(cluster, &[namespace(CATALOG.0)]);
    // First without the original: the controller then creates the configuration by itself, and checks whether the
    // cluster has an original.
    let product = Product::install(cluster).unwrap();
    product.apply(&content(0)).unwrap();
    product.wait_synced().unwrap();
    product.delete().unwrap();
    product.wait_clean().unwrap();
    let name = format!("{}/{}", ORIGINAL.0, ORIGINAL.1);
    let flags = [
        "--original",
        &name,
        "--deliver-to-namespaces=delivered",
        "--attach",
        "service-accounts",
        "--operators",
        "olm/pull",
    ];
    product.install_again(&flags).unwrap();
    product
}

/// The second node does not start with the content.
fn a_fleet_goes_back(cluster: &Cluster, product: &Product, nodes: &[Node]) {
    reconfigure(cluster, &json!({"rollout": {"onFailure": "Rollback"}})).unwrap();
    // A rollout completes without a node that is NotReady, and a complete rollout is not rolled back.
    wait("a Ready node", POLL, || {
        Ok(nodes[1].is_ready()?.then_some(()))
    });
    break_kubelet(&nodes[1], "worse.example.com").unwrap();
    write(product, &[("worse.example.com", "u:w")]);
    wait("the rollback", POLL, || {
        Ok((product.condition("Ready")?.1 == "RolledBack").then_some(()))
    });
    mend_kubelet(&nodes[1]).unwrap();
    product.apply(&content(4)).unwrap();
    product.wait_synced().unwrap();
}

/// A namespace with pods, and one with an operator, which is deleted again.
fn namespaces_and_operators_get_theirs(cluster: &Cluster) {
    install_olm(cluster);
    let (catalogs, secret) = CATALOG;
    apply(cluster, &[namespace("ops")]);
    apply(
        cluster,
        &[
            pull_secret(
                catalogs,
                secret,
                &docker_config(&[("olm.example.com", "u:o")]),
            ),
            catalog(catalogs, "one", &[secret]),
            subscription("ops", "app", (catalogs, "one")),
            account("ops", "op", &[]),
            version("ops", "app.v1", "op", "olm.example.com/app:1", None),
        ],
    );
    set_versions(cluster, "ops", "app", "app.v1", "app.v1");
    wait_references(cluster, "ops", "op", &[COPY]);
    wait_references(cluster, "ops", "default", &[DELIVERED]);
    wait("the copy", POLL, || {
        Ok((registries_of(cluster, "ops", COPY) == ["olm.example.com"]).then_some(()))
    });
    delete(cluster, "ops", "subscription/app");
    wait_references(cluster, "ops", "op", &[]);
}

fn another_one_leads(cluster: &Cluster) {
    let holder = || {
        let jsonpath = "-o=jsonpath={.spec.holderIdentity}";
        cluster.kubectl(&["get", "lease/globalps-controller", "-n", SYSTEM, jsonpath])
    };
    let before = wait("a leader", POLL, || {
        Ok(Some(holder()?).filter(|holder| holder.contains('_')))
    });
    let pod = before.split_once('_').unwrap().0;
    cluster.types(&format!("delete pod {pod} -n {SYSTEM} --wait=false"));
    wait("another leader", POLL, || {
        let now = holder()?;
        Ok((!now.is_empty() && now != before).then_some(()))
    });
}

fn a_token_is_good_for_its_own_node(cluster: &Cluster, nodes: &[Node]) {
    let bound = |node: &Node| token(cluster, SYNCER, &pod_of(cluster, SYNCER, node));
    let own = patch_status(cluster, &bound(&nodes[1]), nodes[1].name());
    own.expect("a syncer can report its own node");
    for (sentence, token) in [
        ("another node's token", bound(&nodes[0])),
        ("a token of no pod", token(cluster, SYNCER, "")),
    ] {
        let refused = patch_status(cluster, &token, nodes[1].name());
        let Err(kube::Error::Api(status)) = refused else {
            panic!("{sentence} is not rejected: {refused:?}");
        };
        assert_eq!(status.code, 403, "{sentence}: {status:?}");
        assert!(
            status
                .message
                .contains("a syncer may only write the status of its own node"),
            "{sentence}: {status:?}"
        );
        println!("{sentence}: {}", status.message);
    }
}

/// The restorer's pod runs under its own account, and may not read the Secret.
fn an_excluded_node_is_restored_and_can_t_read_the_content(
    cluster: &Cluster,
    product: &Product,
    node: &Node,
) {
    let name = node.name();
    let label = |label: &str| cluster.kubectl(&["label", "node", name, label]).unwrap();
    label(&format!("{RESTRICTED_EXCLUDE_LABEL}=true"));
    wait("the excluded node to be restored", POLL, || {
        Ok((product.node_status(name)?["phase"] == "Restored").then_some(()))
    });
    wait("no syncer on the excluded node", POLL, || {
        Ok(pod_of(cluster, SYNCER, node).is_empty().then_some(()))
    });
    let token = token(cluster, RESTORER, &pod_of(cluster, RESTORER, node));
    patch_status(cluster, &token, name).expect("a restorer reports its own node");
    let asks = |args: &[&str]| {
        let mut kubectl = cluster.kubectl_command();
        run(kubectl.args(args).args(["-n", NAMESPACE]), "").unwrap()
    };
    let secret = "secret/global-pull-secret";
    for (user, may) in [(SYNCER_USER, true), (RESTORER_USER, false)] {
        let asked = asks(&["get", secret, "--as", user, "-o", "name"]);
        assert_eq!(asked.code == Some(0), may, "{user}: {asked:?}");
    }
    // The kubelet can request tokens only for accounts of its own pods.
    let kubelet = format!("system:node:{name}");
    let pod = pod_of(cluster, RESTORER, node);
    let uid = product.get(&format!("pod/{pod}")).unwrap()["metadata"]["uid"].clone();
    let uid = format!("--bound-object-uid={}", uid.as_str().unwrap());
    let pod = format!("--bound-object-name={pod}");
    for (account, may) in [(RESTORER, true), (SYNCER, false)] {
        let bound = ["--bound-object-kind=Pod", &pod, &uid];
        let who = ["--as", &kubelet, "--as-group=system:nodes"];
        let asked = asks(&[&["create", "token", account], &bound[..], &who].concat());
        assert_eq!(asked.code == Some(0), may, "{account}: {}", asked.stderr);
    }
    // Its restorer responds to an object without an assignment, like that of a node that was never selected.
    let object = format!("nodepullsecret/{name}");
    let deleted = cluster.kubectl(&["delete", &object, "-n", NAMESPACE]);
    deleted.unwrap();
    wait("the restorer's answer", POLL, || {
        let status = product.node_status(name)?;
        let has_answered = status["phase"] == "Pending" && status["restored"] == true;
        Ok(has_answered.then_some(()))
    });
    let include = format!("{RESTRICTED_EXCLUDE_LABEL}-");
    let by_itself = [
        "label",
        "node",
        name,
        &include,
        "--as",
        &kubelet,
        "--as-group=system:nodes",
    ];
    let asked = asks(&by_itself);
    assert!(asked.stderr.contains("forbidden"), "{asked:?}");
    label(&include);
    product.wait_synced().unwrap();
    wait("the node to be synced again", POLL, || {
        Ok((product.node_status(name)?["phase"] == "Synced").then_some(()))
    });
}

/// The agent's pod on the node that is not terminating; empty if there is none.
fn pod_of(cluster: &Cluster, agent: &str, node: &Node) -> String {
    let pods = cluster.get(NAMESPACE, "pods").unwrap();
    let mut pods = pods["items"].as_array().into_iter().flatten();
    let found = pods.find(|pod| {
        pod["metadata"]["labels"]["name"] == agent
            && pod["metadata"]["deletionTimestamp"].is_null()
            && pod["spec"]["nodeName"] == node.name()
    });
    let name = found.and_then(|pod| pod["metadata"]["name"].as_str());
    name.unwrap_or_default().to_owned()
}

/// A token of the agent's account, bound to this pod; empty: unbound.
fn token(cluster: &Cluster, account: &str, pod: &str) -> String {
    let name = format!("--bound-object-name={pod}");
    let mut args = vec!["create", "token", account, "-n", NAMESPACE];
    if !pod.is_empty() {
        args.extend(["--bound-object-kind=Pod", &name]);
    }
    cluster.kubectl(&args).unwrap().trim().to_owned()
}

/// A patch of a node's status that changes nothing, with this token.
fn patch_status(cluster: &Cluster, token: &str, node: &str) -> kube::Result<NodePullSecret> {
    let mut config = Config::new(cluster.api_url().parse().unwrap());
    // The API server's identity is irrelevant here.
    config.accept_invalid_certs = true;
    config.auth_info = AuthInfo {
        token: Some(token.to_owned().into()),
        ..AuthInfo::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let api: Api<NodePullSecret> =
            Api::namespaced(Client::try_from(config).unwrap(), NAMESPACE);
        let patch = Patch::Merge(json!({"status": {}}));
        api.patch_status(node, &PatchParams::default(), &patch)
            .await
    })
}

fn the_rules_and_the_calls_are_the_same(cluster: &Cluster) {
    let users = [CONTROLLER_USER, SYNCER_USER, RESTORER_USER];
    // Accounts whose permissions were deleted with everything else, until the permissions exist again and the
    // authorizer knows them.
    let mut away: BTreeMap<&str, Option<Timestamp>> = BTreeMap::new();
    let mut granted = None;
    // The first of the two tests of a token sends a syncer's request, too.
    let calls = Calls::read(&cluster.audit_log(), &users, |event| {
        rights_come_and_go(event, &mut away);
        let target = &event["objectRef"];
        let [kind, name] = ["resource", "name"].map(|it| target[it].as_str().unwrap_or_default());
        if kind.ends_with("rolebindings")
            && name.starts_with("globalps")
            && event["verb"] == "patch"
        {
            granted = Some(time(event));
        }
        // The controller may use a new permission before the authorizer knows it.
        let is_new = granted.is_some_and(|at| time(event) <= at + KNOWN_AFTER);
        if is_new && event["responseStatus"]["code"] == 403 {
            return false;
        }
        let user = event["user"]["username"].as_str().unwrap_or_default();
        away.get(user)
            .is_none_or(|back| back.is_some_and(|back| time(event) > back + KNOWN_AFTER))
    });
    let exceptions = Exceptions {
        unused: UNUSED,
        sometimes: SOMETIMES,
        refused: REFUSED,
    };
    assert_same(&rights(), &calls.unwrap(), &exceptions);
}

fn time(event: &Value) -> Timestamp {
    let time = event["stageTimestamp"].as_str().unwrap();
    time.parse().unwrap()
}

fn rights_come_and_go(event: &Value, away: &mut BTreeMap<&str, Option<Timestamp>>) {
    let target = &event["objectRef"];
    let is_rbac = target["resource"] == "roles" || target["resource"] == "rolebindings";
    let user = match target["name"].as_str() {
        Some(SYNCER) => SYNCER_USER,
        Some(RESTORER) => RESTORER_USER,
        Some("globalps-controller") => CONTROLLER_USER,
        _ => return,
    };
    let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
    if is_rbac && event["verb"] == "delete" && code < 300 {
        away.insert(user, None);
    } else if target["resource"] == "rolebindings" && event["verb"] == "patch" && code < 300 {
        // Created last.
        if let Some(back) = away.get_mut(user) {
            back.get_or_insert(time(event));
        }
    }
}

/// All permissions in the manifests.
fn rights() -> BTreeSet<Right> {
    let install = Manifests {
        original: Some(original()),
        image_pull_secrets: Some(NamespaceAccess {
            secret_name: DELIVERED.to_owned(),
            attach: Attach::ServiceAccounts,
            detaches: false,
        }),
        operators: Some(OperatorAccess {
            secrets: [(CATALOG.0.to_owned(), CATALOG.1.to_owned())].into(),
        }),
        ..Manifests::of_images("c", "s")
    };
    let syncer = syncer_objects(NAMESPACE, "s", &GlobalPullSecretSpec::default());
    let objects = [install.objects(), syncer.values()].concat();
    rights_of(&objects)
}
