//! A real second provider: ECR's own keeps working on a node configured like a node of EKS, before, during and after
//! delivery with globalps' provider. Only the ECR API that returns the password is simulated.

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{base64, cluster};
use globalps_testkit::product::{CONFIG, DEADLINE, NAMESPACE, Product, merge, reconfigure};
use globalps_testkit::web::Server;
use globalps_testkit::{Access, Cluster, Node, kubernetes, wait};
use serde_json::json;

const POLL: Duration = Duration::from_millis(100);
const ECR: &str = "123456789012.dkr.ecr.eu-central-1.amazonaws.com";
const BIN_DIR: &str = "/etc/eks/image-credential-provider";
const CONFIG_PATH: &str = "/etc/eks/image-credential-provider/config.json";

/// Returns the password of the cluster's private registry in ECR's format.
fn ecr_api(cluster: &Cluster) -> Server {
    let registry = cluster.registry();
    let address: SocketAddr = registry.address(Access::Open).parse().unwrap();
    Server::web_on(address.ip(), None, move |request| {
        let target = request.headers().get("X-Amz-Target");
        let target = target.map(|target| target.as_bytes());
        if target != Some(b"AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken") {
            return (400, Vec::new(), String::new());
        }
        let login = format!("{}:{}", registry.user(), registry.password().unwrap());
        // The kubelet may cache the password for half of this time; after that, each pull requests it again.
        let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(1);
        let body = json!({"authorizationData": [{
            "authorizationToken": base64(&login), "expiresAt": soon.as_secs(),
            "proxyEndpoint": format!("https://{ECR}"),
        }]});
        let headers = vec![("Content-Type", "application/x-amz-json-1.1".to_owned())];
        (200, headers, body.to_string())
    })
    .unwrap()
}

fn of_node(node: &Node, path: &str) -> PathBuf {
    node.root().join(path.trim_start_matches('/'))
}

/// Installs ECR's provider with its configuration and the kubelet's flags; images of ECR are those of the private
/// registry.
fn set_up(cluster: &Cluster, node: &Node, api: &Server) {
    let bin_dir = of_node(node, BIN_DIR);
    fs::create_dir_all(&bin_dir).unwrap();
    let program = kubernetes::build_ecr_provider().unwrap();
    fs::copy(program, bin_dir.join("ecr-credential-provider")).unwrap();
    let env = [
        ("AWS_ENDPOINT_URL", format!("http://{}", api.address())),
        ("AWS_ACCESS_KEY_ID", "of-a-test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "of-a-test-too".to_owned()),
    ];
    let env: Vec<_> = env
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "ecr-credential-provider", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "matchImages": ["*.dkr.ecr.*.amazonaws.com", "*.dkr.ecr.*.amazonaws.com.cn"],
            "defaultCacheDuration": "0s", "env": env,
        }],
    });
    let pretty = serde_json::to_string_pretty(&config).unwrap();
    fs::write(of_node(node, CONFIG_PATH), pretty).unwrap();
    let certs = of_node(node, &format!("/etc/containerd/certs.d/{ECR}"));
    fs::create_dir_all(&certs).unwrap();
    let url = format!("http://{}", cluster.registry().address(Access::Private));
    fs::write(
        certs.join("hosts.toml"),
        format!("server = \"{url}\"\n[host.\"{url}\"]\n"),
    )
    .unwrap();
    let flags = format!(
        "KUBELET_KUBEADM_ARGS=\"--node-ip={} --image-credential-provider-config={CONFIG_PATH} \
         --image-credential-provider-bin-dir={BIN_DIR}\"\n",
        node.ip()
    );
    fs::write(node.kubelet_dir().join("kubeadm-flags.env"), flags).unwrap();
    node.exec(&["systemctl", "restart", "kubelet.service"])
        .unwrap()
        .ok()
        .unwrap();
    node.wait_ready(DEADLINE).unwrap();
}

/// Configures the provider and its paths in one write.
fn by_provider(cluster: &Cluster) {
    reconfigure(
        cluster,
        &json!({"kubelet": {
            "delivery": "CredentialProvider",
            "credentialProvider": {"configPath": CONFIG_PATH, "binDir": BIN_DIR},
        }}),
    )
    .unwrap();
}

fn wait_delivered(product: &Product, node: &Node, delivery: &str) {
    let nodes = std::slice::from_ref(node);
    product.wait_delivered(nodes, delivery).unwrap();
}

#[test]
fn the_provider_of_ecr_goes_on_before_beside_and_after_ours() {
    let cluster = cluster("ecr", 1);
    let node = &cluster.nodes().unwrap()[0];
    let api = ecr_api(&cluster);
    set_up(&cluster, node, &api);
    let product = Product::install(&cluster).unwrap();
    let registry = cluster.registry();
    let ecr_image = format!("{ECR}/team/app:1");
    let our_image = format!("{}/team/app:1", registry.address(Access::Private));
    let files = || {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        let mut programs: Vec<_> = fs::read_dir(of_node(node, BIN_DIR))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        programs.sort();
        (
            read(of_node(node, CONFIG_PATH)),
            read(node.kubelet_dir().join("kubeadm-flags.env")),
            programs,
        )
    };
    let pulls_from_ecr = |when: &str| {
        let asked = api.asked().len();
        let pod = format!("ecr-{when}");
        product.start_pod(&pod, &ecr_image, node.name()).unwrap();
        product.wait_pod(&pod, false).unwrap();
        assert!(
            api.asked().len() > asked,
            "{when}: ECR's provider was asked"
        );
    };
    let before = files();

    pulls_from_ecr("before");
    product.start_pod("ours", &our_image, node.name()).unwrap();
    product.wait_pod("ours", true).unwrap();
    let starts = product.kubelet_starts(node).unwrap();
    product.apply(&registry.docker_config().unwrap()).unwrap();
    product.wait_synced().unwrap();
    pulls_from_ecr("file");

    by_provider(&cluster);
    wait_delivered(&product, node, "CredentialProvider");
    let beside = files();
    assert_ne!(
        beside.0, before.0,
        "the configuration has globalps' provider too"
    );
    assert_eq!(beside.1, before.1, "the flags are those of EKS");
    assert!(beside.2.contains(&"ecr-credential-provider".to_owned()));
    pulls_from_ecr("beside");
    product.start_pod("ours", &our_image, node.name()).unwrap();
    product.wait_pod("ours", false).unwrap();
    registry.set_password("rotated-beside-ecr").unwrap();
    product.apply(&registry.docker_config().unwrap()).unwrap();
    product.wait_synced().unwrap();
    product.start_pod("ours", &our_image, node.name()).unwrap();
    product.wait_pod("ours", false).unwrap();
    pulls_from_ecr("rotated");
    assert_eq!(
        product.kubelet_starts(node).unwrap() - starts,
        2,
        "the file, and the switch to the provider"
    );

    // The spec no longer names the provider's paths. The provider is still removed, and only then does the syncer lose
    // access to the directories.
    let patch =
        json!({"spec": {"kubelet": {"delivery": "ConfigFile", "credentialProvider": null}}});
    merge(&cluster, CONFIG, &patch).unwrap();
    wait_delivered(&product, node, "ConfigFile");
    assert_eq!(
        files(),
        before,
        "both files byte for byte, and no program of globalps"
    );
    assert_eq!(
        product.kubelet_starts(node).unwrap() - starts,
        3,
        "the switch back"
    );
    wait("the syncer to run without these directories", POLL, || {
        let volumes = "jsonpath={.spec.template.spec.volumes[*].hostPath.path}";
        let volumes = cluster.kubectl_line(&format!(
            "get daemonset global-pull-secret-syncer -n {NAMESPACE} -o {volumes}"
        ))?;
        Ok((!volumes.contains("/etc/eks")).then_some(()))
    });
    pulls_from_ecr("after");

    // Enabled again, then a manual restore.
    by_provider(&cluster);
    wait_delivered(&product, node, "CredentialProvider");
    product.delete().unwrap();
    product.wait_clean().unwrap();
    assert_eq!(files(), before);
    pulls_from_ecr("restored");
}
