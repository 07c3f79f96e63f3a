//! Many clusters without a hub: a `ClusterResourceSet` of Cluster API writes the pull secret into other clusters, and globalps
//! delivers it to their nodes. Uses Cluster API's own manager on a management cluster, and one member with a real node.

mod common;

use std::time::{Duration, Instant};

use common::objects::{apply, get, merge_in};
use common::{base64, cluster, docker_config};
use globalps_testkit::capi::{self, Capi, MANIFEST};
use globalps_testkit::product::{ADDITIONAL, NAMESPACE, Product};
use globalps_testkit::watch::{Changes, median, seconds_between};
use globalps_testkit::{Access, Cluster, config_file, kubernetes, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(50);
/// Namespace on the management cluster of the registered member, and of the `ClusterResourceSet` with its Secret.
const FLEET: &str = "fleet";
const SOURCE: &str = "pull-secret";
const MEMBER: &str = "member";
const SET: &str = "clusterresourceset/pull-secret";
const MARKER: &str = "round.example.com";
const ROUNDS: usize = 5;
/// Cluster API reconciles a `ClusterResourceSet` at most once a second; a change that follows sooner waits.
const BETWEEN: Duration = Duration::from_secs(2);

#[test]
fn a_cluster_resource_set_brings_the_secret_to_another_cluster() {
    // Takes minutes the first time.
    kubernetes::build_capi_manager().unwrap();
    let management = cluster("clusters-management", 0);
    let member = cluster("clusters-member", 1);
    let product = Product::install(&member).unwrap();
    let capi = Capi::start(&management).unwrap();
    capi.register(&member, FLEET, MEMBER, &[]).unwrap();

    // The label selects the cluster, and the Secret is delivered.
    let registry = member.registry();
    let private = registry.address(Access::Private);
    let image = format!("{private}/team/app:1");
    apply(
        &management,
        &resource_set(&registry.docker_config().unwrap()),
    );
    label(&management, "shared");
    wait_content(&member, &registry.docker_config().unwrap());
    assert_nodes_pull(&member, &product, &image);

    // A new password, in the registry and on the management cluster.
    registry.set_password("r0tated-s3cret").unwrap();
    let begun = Instant::now();
    apply(&management, &[source(&registry.docker_config().unwrap())]);
    wait_content(&member, &registry.docker_config().unwrap());
    assert_nodes_pull(&member, &product, &image);
    println!(
        "the source, changed on the management cluster, is in effect on every node of the member after {:.1} s",
        begun.elapsed().as_secs_f32()
    );

    changes_arrive(&management, &member);
    product.wait_synced().unwrap();
    for node in member.nodes().unwrap() {
        let wanted = Some(base64(&login(ROUNDS)));
        assert_eq!(
            config_file::auth(&node, MARKER).unwrap(),
            wanted,
            "{}",
            node.name()
        );
    }

    what_the_member_changes_is_seen_at_the_next_change_only(&management, &member);
    product.wait_synced().unwrap();
    what_was_written_stays(&management, &member);
}

/// The Secret with the manifest of the member's Secret, and the `ClusterResourceSet`.
fn resource_set(config: &str) -> [Value; 2] {
    let manifest = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": ADDITIONAL, "namespace": NAMESPACE},
        "data": {".dockerconfigjson": base64(config)},
    });
    let labels = json!({"pull-secret": "shared"});
    capi::resource_set(FLEET, SOURCE, &labels, &manifest)
}

fn source(config: &str) -> Value {
    let [source, _] = resource_set(config);
    source
}

fn label(management: &Cluster, value: &str) {
    let labels = json!({"metadata": {"labels": {"pull-secret": value}}});
    let what = format!("clusters.cluster.x-k8s.io/{MEMBER}");
    merge_in(management, FLEET, &what, &labels);
}

fn login(round: usize) -> String {
    format!("robot:r0und-{round}-s3cret")
}

/// The registry's own login, and one with the number of the rotation.
fn content(member: &Cluster, round: usize) -> String {
    let registry = member.registry();
    let private = registry.address(Access::Private);
    let own = format!("{}:{}", registry.user(), registry.password().unwrap());
    docker_config(&[(&private, &own), (MARKER, &login(round))])
}

fn has_content(secret: &Value, config: &str) -> bool {
    secret["data"][".dockerconfigjson"] == base64(config)
}

fn member_secret(member: &Cluster) -> Value {
    get(member, NAMESPACE, &format!("secret/{ADDITIONAL}"))
}

fn wait_content(member: &Cluster, config: &str) {
    wait("the Secret to be in the member", POLL, || {
        Ok(has_content(&member_secret(member), config).then_some(()))
    });
}

/// Checks that every node of the member is `Synced`, and that a pod with a private image runs.
fn assert_nodes_pull(member: &Cluster, product: &Product<'_>, image: &str) {
    product.wait_synced().unwrap();
    for node in member.nodes().unwrap() {
        let status = product.node_status(node.name()).unwrap();
        assert_eq!(status["phase"], "Synced", "{}", node.name());
        let pod = format!("on-{}", node.name());
        product.start_pod(&pod, image, node.name()).unwrap();
        product.wait_pod(&pod, false).unwrap();
    }
}

/// Measures some changes one after the other: from the time at which a watch on the management cluster shows it until a
/// watch in the member shows it.
fn changes_arrive(management: &Cluster, member: &Cluster) {
    let there = Changes::of_secret(management, FLEET, SOURCE).unwrap();
    let here = Changes::of_secret(member, NAMESPACE, ADDITIONAL).unwrap();
    here.wait("the Secret", |_| true).unwrap();
    let seconds: Vec<f32> = (1..=ROUNDS)
        .map(|round| {
            std::thread::sleep(BETWEEN);
            let config = content(member, round);
            let source = source(&config);
            let manifest = source["stringData"][MANIFEST].as_str();
            let manifest = base64(manifest.unwrap());
            apply(management, &[source]);
            let changed = there
                .wait("the change", |secret| secret["data"][MANIFEST] == manifest)
                .unwrap();
            let arrived = here
                .wait("the change in the member", |secret| {
                    has_content(secret, &config)
                })
                .unwrap();
            seconds_between(changed, arrived)
        })
        .collect();
    println!("from a change on the management cluster to the member's Secret, s: {seconds:.3?}");
    println!("median: {:.3} s", median(seconds));
}

/// Cluster API compares its source with what it applied, not with the member: another client's change of the Secret
/// there stays until the source changes. Then it is overwritten, including other clients' keys.
fn what_the_member_changes_is_seen_at_the_next_change_only(management: &Cluster, member: &Cluster) {
    let theirs = json!({"data": {"theirs": base64("key")}});
    merge_in(member, NAMESPACE, &format!("secret/{ADDITIONAL}"), &theirs);
    apply_again(management);
    assert_eq!(member_secret(member)["data"]["theirs"], base64("key"));
    let next = content(member, ROUNDS + 1);
    apply(management, &[source(&next)]);
    wait_content(member, &next);
    assert!(member_secret(member)["data"]["theirs"].is_null());

    let delete = ["delete", "secret", ADDITIONAL, "-n", NAMESPACE];
    member.kubectl(&delete).unwrap();
    apply_again(management);
    assert!(member_secret(member).is_null());
    let next = content(member, ROUNDS + 2);
    apply(management, &[source(&next)]);
    wait_content(member, &next);
}

/// Makes the manager reconcile the cluster again, and waits several times as long as a change takes.
fn apply_again(management: &Cluster) {
    label(management, "other");
    label(management, "shared");
    std::thread::sleep(Duration::from_secs(3));
}

/// Without its label, and without the `ClusterResourceSet`, the member keeps the Secret: it must be deleted in the
/// member. The source is deleted with the `ClusterResourceSet`, which made itself its owner.
fn what_was_written_stays(management: &Cluster, member: &Cluster) {
    label(management, "other");
    let delete = ["delete", SET, "-n", FLEET, "--timeout=60s"];
    management.kubectl(&delete).unwrap();
    wait("the source to be deleted", POLL, || {
        let source = get(management, FLEET, &format!("secret/{SOURCE}"));
        Ok(source.is_null().then_some(()))
    });
    let last = content(member, ROUNDS + 2);
    assert!(has_content(&member_secret(member), &last));
}
