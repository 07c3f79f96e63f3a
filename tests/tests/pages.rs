//! Runs the commands of the README and of the pages in `docs/` as printed, on real clusters. The tests `tutorials`,
//! `chart` and `external_secrets` run those of the tutorials, the chart and the companions.

mod common;

use std::fs;
use std::time::Duration;

use common::admin::{Admin, login};
use common::cluster;
use common::objects::{get, merge_in, namespace};
use globalps_testkit::printed::console;
use globalps_testkit::product::{CONFIG, NAMESPACE, Product, pull_secret};
use globalps_testkit::{Access, Cluster, config_file, kubernetes, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
const CLUSTERS: &str = "clusters";

/// Pushes an image into the registry without a password. Returns its reference.
fn pushed(cluster: &Cluster, program: &str) -> String {
    let archive = kubernetes::target_dir().join(format!("images/{program}.tar"));
    let name = format!("{program}:pages");
    cluster
        .registry()
        .push(&archive, Access::Open, &name)
        .unwrap()
}

/// An admin with values for the examples on the pages.
fn admin_of(cluster: &Cluster) -> Admin {
    let mut admin = Admin::new(cluster);
    let registry = cluster.registry().address(Access::Tls);
    admin.names = vec![
        (
            "REGISTRY/globalps-controller:TAG",
            pushed(cluster, "globalps-controller"),
        ),
        (
            "REGISTRY/globalps-syncer:TAG",
            pushed(cluster, "globalps-syncer"),
        ),
        ("quay.io", registry.clone()),
        ("10.200.0.1:5052", registry),
        ("-u robot", format!("-u {}", cluster.registry().user())),
        ("target/cluster/pki/ca.crt", "ca.crt".to_owned()),
        ("target/cluster/registry/password", "password".to_owned()),
        ("< token", "< password".to_owned()),
    ];
    admin
}

fn apply(cluster: &Cluster, object: &Value) {
    let admin = Admin::new(cluster);
    admin.write("object.json", &object.to_string());
    admin.types("kubectl apply -f object.json");
}

#[test]
fn the_commands_of_the_pages_do_what_they_say() {
    let cluster = cluster("pages", 1);
    let product = Product::attach(&cluster);
    let node = cluster.nodes().unwrap().remove(0);
    let registry = cluster.registry().address(Access::Tls);
    let admin = admin_of(&cluster);
    let in_force = || config_file::auth(&node, &registry).unwrap().is_some();

    admin.runs("../README.md", "install");
    product.wait_synced().unwrap();
    assert!(in_force());
    admin.runs("test-cluster.md", "registry");
    admin.runs("test-cluster.md", "verify");
    let verified = || product.get(CONFIG).unwrap()["spec"]["verify"]["interval"].clone();
    assert_eq!(verified(), "1m");
    // Just after its restart, a kubelet doesn't know its pods, and can't send their logs.
    let logs = [
        "logs",
        "-n",
        "globalps-system",
        "-l",
        "app.kubernetes.io/name=globalps-controller",
    ];
    let served = || Ok(cluster.kubectl(&logs).ok());
    wait("the kubelet serves logs", POLL, served);
    admin.runs("troubleshooting.md", "first-look");

    cluster.types(&format!(
        "delete globalpullsecret {CONFIG_NAME} -n {NAMESPACE}"
    ));
    admin.runs("troubleshooting.md", "restore-configuration");
    product.wait_synced().unwrap();
    assert_eq!(verified(), "1m", "as it was");
    assert!(in_force());

    admin.runs("upgrades.md", "settings");
    let saved = fs::read_to_string(admin.path("settings.yaml")).unwrap();
    assert!(saved.contains("kind: GlobalPullSecret"), "{saved}");
    admin.runs("upgrades.md", "upgrade");
    let binding = "validatingadmissionpolicybinding/globalps-daemonsets";
    assert!(!product.get(binding).unwrap().is_null());
    product.wait_synced().unwrap();

    admin.runs("distributions.md", "allow");
    let policies = cluster.types("get validatingadmissionpolicies -o json");
    assert!(policies.contains("my-kubelet.service"));
    assert!(policies.contains("/data/kubelet/config.json"));

    the_user_guide(&cluster, &product, &admin);
}

const CONFIG_NAME: &str = "global-pull-secret";

fn the_user_guide(cluster: &Cluster, product: &Product, admin: &Admin) {
    let page = "user-guide.md";
    let authorities = ["delete", "configmap", "globalps-registry-authorities"];
    let authorities = [&authorities[..], &["-n", "globalps-system"]].concat();
    cluster.kubectl(&authorities).unwrap();
    admin.runs(page, "authorities");

    let provider = json!({"spec": {"kubelet": {"delivery": "CredentialProvider"}}});
    merge_in(cluster, NAMESPACE, CONFIG, &provider);
    product.wait_synced().unwrap();
    admin.runs(page, "scoped");
    product.wait_synced().unwrap();
    let sources = || product.get(CONFIG).unwrap()["spec"]["sources"].clone();
    let scopes = json!(["team-a", "team-a-*"]);
    assert_eq!(sources()[0]["scope"]["namespaces"], scopes);
    admin.runs(page, "sources");
    assert_eq!(sources().as_array().map(Vec::len), Some(1));

    apply(cluster, &namespace("olm"));
    apply(cluster, &pull_secret("olm", "pull", &login(cluster)));
    admin.runs(page, "operators");
    assert_eq!(
        product.get(CONFIG).unwrap()["spec"]["operators"]["enabled"],
        true
    );

    admin.runs(page, "namespaces");
    wait("the pull secret in `default`", POLL, || {
        let get = ["get", "secret", CONFIG_NAME, "-n", "default"];
        Ok(cluster.kubectl(&get).ok())
    });
    wait("the node to be restored", POLL, || {
        let left = cluster.kubectl(&["get", "nodepullsecrets,daemonsets", "-n", NAMESPACE])?;
        Ok(left.is_empty().then_some(()))
    });
}

#[test]
fn the_commands_for_many_clusters_do_what_they_say() {
    let page = "many-clusters.md";
    let management = cluster("pages-management", 1);
    let member = cluster("pages-member", 1);
    Product::install(&member).unwrap();
    let mut admin = Admin::new(&management);
    admin.names = vec![
        (
            "REGISTRY/globalps-hub:TAG",
            pushed(&management, "globalps-hub"),
        ),
        ("shared m1", "shared edge-1".to_owned()),
        ("m1.kubeconfig", "edge-1.kubeconfig".to_owned()),
    ];
    let kubeconfig = fs::read_to_string(member.kubeconfig()).unwrap();
    admin.write("edge-1.kubeconfig", &kubeconfig);
    admin.runs(page, "install-hub");
    admin.runs(page, "join");
    let config = login(&member);
    for object in [
        globalps_testkit::hub::source(CLUSTERS, "shared", &config),
        globalps_testkit::hub::fleet(CLUSTERS, "shared", &json!({"registered": {}})),
    ] {
        apply(&management, &object);
    }
    let [watch]: [String; 1] = console(page, "watch").unwrap().try_into().unwrap();
    let mut terminal = admin.starts(&watch);
    terminal
        .wait_for("1/1 cluster synced", Duration::from_mins(2))
        .unwrap();
    terminal.press("\u{3}").unwrap();
    let (code, shown) = terminal.end(Duration::from_secs(10)).unwrap();
    // The signal ends the shell, or the plugin's exit code does.
    assert!(matches!(code, None | Some(130)), "{code:?}: {shown}");
    let registry = member.registry().address(Access::Tls);
    let node = &member.nodes().unwrap()[0];
    assert!(config_file::auth(node, &registry).unwrap().is_some());
    admin.runs(page, "nodes");
    // The cluster already has the pinned identity.
    admin.runs(page, "accept");
    let status = get(&management, CLUSTERS, "fleetpullsecret/shared");
    assert_eq!(status["status"]["revision"], 1);
}
