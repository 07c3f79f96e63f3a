//! The hub installs globalps in a cluster that has none of its objects, not even credentials for globalps' own images.

mod common;

use std::time::Instant;

use common::objects::{get, merge_in};
use common::{cluster, docker_config};
use globalps_testkit::capi::Capi;
use globalps_testkit::hub::{Hub, fleet, source};
use globalps_testkit::product::Product;
use globalps_testkit::{Access, Cluster, config_file, kubernetes, wait};
use serde_json::json;

const FLEET: &str = "clusters";
const NAME: &str = "shared";
const MEMBER: &str = "member";
const IMAGES: &str = "images";
const SYSTEM: &str = "globalps-system";
const REGISTRY: &str = "fleet.example.com";

#[test]
fn a_new_cluster_gets_globalps_and_credentials_by_itself() {
    let management = cluster("hub-install-management", 1);
    let hub = Hub::install(&management, &[FLEET]).unwrap();
    let capi = Capi::start(&management).unwrap();
    let member = cluster("hub-install-member", 1);
    let registry = member.registry();
    let push = |component: &str, tag: &str| {
        let archive = kubernetes::target_dir().join(format!("images/{component}.tar"));
        let name = format!("team/{component}:{tag}");
        registry.push(&archive, Access::Private, &name).unwrap()
    };
    let images = |tag| {
        json!({
            "enabled": true,
            "controllerImage": push("globalps-controller", tag),
            "syncerImage": push("globalps-syncer", tag),
            "imagePullSecret": {"name": IMAGES},
        })
    };
    let spec = json!({"clusterSelector": {}, "install": images("1")});
    hub.apply(&[
        source(FLEET, NAME, &docker_config(&[(REGISTRY, "u:s3cret-1")])),
        fleet(FLEET, NAME, &spec),
    ])
    .unwrap();
    // A user who may create a FleetPullSecret there may not choose images for every node.
    let message = hub
        .wait_ready(FLEET, NAME, ("False", "NamespaceNotTrusted"))
        .unwrap();
    let trusted = format!("--trusted-namespaces {FLEET},{SYSTEM}");
    assert!(message.contains(&trusted), "{message}");
    let trusted = format!("--trusted-namespaces={FLEET},{SYSTEM}");
    hub.fleet_command(&["install", "--apply", &trusted])
        .unwrap();
    // The installation does not begin without credentials for the images.
    let message = hub
        .wait_ready(FLEET, NAME, ("False", "NoImagePullSecret"))
        .unwrap();
    assert!(message.contains(IMAGES), "{message}");
    let config = registry.docker_config().unwrap();
    hub.apply(&[source(FLEET, IMAGES, &config)]).unwrap();

    let begun = Instant::now();
    capi.register(&member, FLEET, MEMBER, &[]).unwrap();
    hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
    println!(
        "from a new Cluster to credentials in effect on its node, including the installation of globalps: {:.1} s",
        begun.elapsed().as_secs_f32()
    );
    assert_on_the_node(&member);

    // Changing the images creates the next revision.
    let before = controller_image(&member);
    let other = json!({"spec": {"install": images("2")}});
    let what = format!("fleetpullsecret/{NAME}");
    merge_in(&management, FLEET, &what, &other);
    wait("revision 2", POLL, || {
        let status = hub.fleet(FLEET, NAME)?;
        Ok((status["status"]["revision"] == 2).then_some(()))
    });
    hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
    assert_ne!(controller_image(&member), before);
    wait("the syncer's image", POLL, || {
        let syncer = get(
            &member,
            "kube-system",
            "daemonset/global-pull-secret-syncer",
        );
        let image = &syncer["spec"]["template"]["spec"]["containers"][0]["image"];
        Ok((*image == other["spec"]["install"]["syncerImage"]).then_some(()))
    });

    // After its removal from the spec, globalps stays installed, and the credentials are removed.
    management.types(&format!(
        "delete fleetpullsecret {NAME} -n {FLEET} --timeout=120s"
    ));
    Product::attach(&member).wait_clean().unwrap();
    assert_ne!(controller_image(&member), "");
}

const POLL: std::time::Duration = std::time::Duration::from_millis(50);

fn controller_image(member: &Cluster) -> String {
    let deployment = get(member, SYSTEM, "deployment/globalps-controller");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(
        pod["imagePullSecrets"],
        json!([{"name": "globalps-images"}])
    );
    pod["containers"][0]["image"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn assert_on_the_node(member: &Cluster) {
    for node in member.nodes().unwrap() {
        let auth = config_file::auth(&node, REGISTRY).unwrap();
        assert!(auth.is_some(), "{}", node.name());
    }
}
