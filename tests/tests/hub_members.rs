//! The hub with clusters in unusual states: unreachable, managed by another hub, registered twice, the hub's own
//! cluster.

mod common;

use std::fs;
use std::time::Duration;

use common::objects::{apply, denying, merge_in};
use common::{base64, cluster, docker_config};
use globalps_testkit::hub::{Hub, SYSTEM, fleet, member_has, member_secret, source};
use globalps_testkit::product::{ADDITIONAL, DEADLINE, NAMESPACE};
use globalps_testkit::{Cluster, until, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(50);
const FLEET: &str = "clusters";
const NAME: &str = "shared";
const OTHERS_KEY: &str = "of-others";

#[test]
fn a_cluster_in_trouble_is_named_and_holds_up_no_other() {
    let management = cluster("hub-bad-management", 1);
    let one = cluster("hub-bad-one", 0);
    let two = cluster("hub-bad-two", 0);
    let hub = Hub::install(&management, &[FLEET]).unwrap();
    hub.apply(&[
        source(FLEET, NAME, &content(1)),
        fleet(
            FLEET,
            NAME,
            &json!({"requireNodes": false, "registered": {}}),
        ),
    ])
    .unwrap();
    join(&hub, "one", &one);
    hub.wait_phase((FLEET, NAME, "one"), ("Synced", ""))
        .unwrap();
    assert!(has(&one, 1));

    a_secret_of_somebody_else_stays(&hub, &two);
    each_bad_kubeconfig_has_its_reason(&hub, &two);
    two_names_of_one_cluster_and_the_hub_itself_are_refused(&hub, &one, &two);
    a_kubeconfig_of_another_cluster_is_used_once_it_is_accepted(&hub, &one, &two);
    of_two_fleets_the_older_one_writes(&hub);
    a_cluster_that_is_away_is_passed_over_and_caught_up(&hub, &one, &two);
    another_hub_goes_on(&hub, &[&one, &two]);
    what_somebody_changes_comes_back_and_keys_of_others_stay(&hub, &one);
    who_is_not_selected_any_more_has_nothing_left(&hub, &one, &two);
}

fn content(round: u32) -> String {
    docker_config(&[("fleet.example.com", &format!("robot:r0und-{round}-s3cret"))])
}

fn has(member: &Cluster, round: u32) -> bool {
    member_has(member, &content(round)).unwrap()
}

fn wait_has(member: &Cluster, round: u32) {
    wait(&format!("round {round} is there"), POLL, || {
        Ok(has(member, round).then_some(()))
    });
}

fn kubeconfig(member: &Cluster) -> Value {
    let text = fs::read_to_string(member.kubeconfig()).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// Gives the hub an identity that can access one Secret in the member.
fn join(hub: &Hub, name: &str, member: &Cluster) {
    let file = member.kubeconfig();
    let file = file.to_str().unwrap();
    hub.fleet_command(&["join", name, "-n", FLEET, "--member-kubeconfig", file])
        .unwrap();
}

fn registered(name: &str, kubeconfig: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": FLEET, "labels": {"globalps.io/cluster": "true"}},
        "stringData": {"value": kubeconfig.to_string()},
    })
}

fn rotate(hub: &Hub, round: u32) {
    hub.apply(&[source(FLEET, NAME, &content(round))]).unwrap();
}

/// A user's Secret with the target's name.
fn foreign() -> Value {
    let mut secret = source(
        NAMESPACE,
        ADDITIONAL,
        &docker_config(&[("x.example.com", "o:p3rson")]),
    );
    secret["data"] = json!({".dockerconfigjson": base64(secret["stringData"][".dockerconfigjson"].as_str().unwrap())});
    secret.as_object_mut().unwrap().remove("stringData");
    secret
}

fn a_secret_of_somebody_else_stays(hub: &Hub, two: &Cluster) {
    apply(two, &[foreign()]);
    hub.apply(&[registered("two", &kubeconfig(two))]).unwrap();
    let status = hub
        .wait_phase((FLEET, NAME, "two"), ("Blocked", "Conflict"))
        .unwrap();
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("kubectl"), "it names who: {message}");
    let message = hub
        .wait_ready(FLEET, NAME, ("False", "ClustersBlocked"))
        .unwrap();
    assert!(message.starts_with(&format!("`{FLEET}/two`")), "{message}");
    assert_eq!(member_secret(two).unwrap()["data"], foreign()["data"]);
    two.types(&format!("delete secret {ADDITIONAL} -n {NAMESPACE}"));
    hub.wait_phase((FLEET, NAME, "two"), ("Synced", ""))
        .unwrap();
    assert!(has(two, 1));
}

fn each_bad_kubeconfig_has_its_reason(hub: &Hub, two: &Cluster) {
    let good = kubeconfig(two);
    let with = |user: Option<Value>, cluster: Option<(&str, Value)>| {
        let mut bad = good.clone();
        if let Some(user) = user {
            bad["users"][0]["user"] = user;
        }
        if let Some((key, value)) = cluster {
            bad["clusters"][0]["cluster"][key] = value;
        }
        bad
    };
    let port = "https://127.0.0.1:1";
    for (reason, bad) in [
        ("KubeconfigInvalid", with(Some(json!({"exec": {"command": "aws", "apiVersion": "client.authentication.k8s.io/v1"}})), None)),
        ("KubeconfigInvalid", with(Some(json!({"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"})), None)),
        ("Unauthorized", with(Some(json!({"token": "unkn0wn"})), None)),
        ("UnknownAuthority", with(None, Some(("certificate-authority-data", kubeconfig(hub.management())["clusters"][0]["cluster"]["certificate-authority-data"].clone())))),
        ("ConnectionRefused", with(None, Some(("server", json!(port))))),
    ] {
        hub.apply(&[registered("two", &bad)]).unwrap();
        let status = hub.wait_phase((FLEET, NAME, "two"), ("Unreachable", reason));
        let status = status.unwrap_or_else(|error| panic!("{reason}: {error:#}"));
        assert_eq!(status["revision"], 1, "the status keeps the revision of the member");
    }
    hub.apply(&[registered("two", &good)]).unwrap();
    hub.wait_phase((FLEET, NAME, "two"), ("Synced", ""))
        .unwrap();
}

fn failures(hub: &Hub, name: &str) -> Vec<(String, String)> {
    let status = hub.fleet(FLEET, name).unwrap()["status"].clone();
    let failures = status["failures"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut failures: Vec<_> = failures
        .iter()
        .map(|it| (text(&it["cluster"]), text(&it["reason"])))
        .collect();
    failures.sort();
    failures
}

fn wait_failures(hub: &Hub, name: &str, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(cluster, reason)| (format!("{FLEET}/{cluster}"), (*reason).to_owned()))
        .collect();
    let mut last = Vec::new();
    until("these failures", DEADLINE, POLL, || {
        last = failures(hub, name);
        Ok((last == expected).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {last:?}, not {expected:?}"));
}

fn two_names_of_one_cluster_and_the_hub_itself_are_refused(
    hub: &Hub,
    one: &Cluster,
    two: &Cluster,
) {
    let hub_itself = kubeconfig(hub.management());
    hub.apply(&[
        registered("twin", &kubeconfig(one)),
        registered("self", &hub_itself),
    ])
    .unwrap();
    let expected = [("self", "IsHub"), ("twin", "DuplicateCluster")];
    wait_failures(hub, NAME, &expected);
    rotate(hub, 2);
    wait_has(two, 2);
    // Under the name that had the content before.
    wait_has(one, 2);
    hub.wait_ready(FLEET, NAME, ("False", "ClustersBlocked"))
        .unwrap();
    assert_eq!(written_for(one), format!("{FLEET}/one"));
    assert!(member_secret(hub.management()).unwrap().is_null());
    for name in ["twin", "self"] {
        hub.management()
            .kubectl(&["delete", "secret", name, "-n", FLEET])
            .unwrap();
    }
    wait_has(one, 2);
    hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
}

/// The cluster that the Secret in the member names.
fn written_for(member: &Cluster) -> String {
    let secret = member_secret(member).unwrap();
    let name = &secret["metadata"]["annotations"]["globalps.io/cluster"];
    name.as_str().unwrap_or_default().to_owned()
}

fn a_kubeconfig_of_another_cluster_is_used_once_it_is_accepted(
    hub: &Hub,
    one: &Cluster,
    two: &Cluster,
) {
    let changed = ("Blocked", "IdentityChanged");
    let accept = ["accept", NAME, "two", "-n", FLEET];
    let before = hub.cluster(FLEET, NAME, "two").unwrap()["status"]["identity"].clone();
    hub.apply(&[registered("two", &kubeconfig(one))]).unwrap();
    let status = hub.wait_phase((FLEET, NAME, "two"), changed).unwrap();
    assert_eq!(status["identity"], before, "{status:#}");
    let of_one = hub.cluster(FLEET, NAME, "one").unwrap()["status"]["identity"].clone();
    assert_eq!(status["foundIdentity"], of_one, "{status:#}");
    let message = status["message"].as_str().unwrap();
    let command = format!("kubectl globalps fleet accept {NAME} {FLEET}/two -n {FLEET}");
    assert!(message.contains(&command), "{message}");
    let reasons = [
        "get",
        "events",
        "-n",
        FLEET,
        "-o",
        "jsonpath={.items[*].reason}",
    ];
    wait("the event", POLL, || {
        let events = hub.management().kubectl(&reasons)?;
        Ok(events.contains("IdentityChanged").then_some(()))
    });
    hub.fleet_command(&accept).unwrap();
    let duplicate = ("Blocked", "DuplicateCluster");
    hub.wait_phase((FLEET, NAME, "two"), duplicate).unwrap();
    assert_eq!(written_for(one), format!("{FLEET}/one"));
    // The accepted cluster counts again.
    hub.apply(&[registered("two", &kubeconfig(two))]).unwrap();
    hub.wait_phase((FLEET, NAME, "two"), changed).unwrap();
    hub.fleet_command(&accept).unwrap();
    hub.wait_phase((FLEET, NAME, "two"), ("Synced", ""))
        .unwrap();
    hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
    assert!(has(one, 2) && has(two, 2));
}

fn of_two_fleets_the_older_one_writes(hub: &Hub) {
    // A rejected write for one cluster must not block the clusters after it.
    hub.apply(&refusal()).unwrap();
    wait("the webhook to be effective", POLL, || {
        let refused = hub.apply(&[source(FLEET, "refused-revision-9", &content(9))]);
        Ok(refused.is_err().then_some(()))
    });
    let nobody = json!({"registered": {"selector": {"matchLabels": {"nobody": "has"}}}});
    hub.apply(&[
        source(FLEET, "refused", &content(9)),
        fleet(FLEET, "refused", &nobody),
    ])
    .unwrap();
    // Creation times have a resolution of one second.
    std::thread::sleep(Duration::from_secs(2));
    hub.apply(&[
        source(FLEET, "late", &content(99)),
        fleet(
            FLEET,
            "late",
            &json!({"requireNodes": false, "registered": {}}),
        ),
    ])
    .unwrap();
    wait_failures(
        hub,
        "late",
        &[("one", "TargetTaken"), ("two", "TargetTaken")],
    );
    hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
    let failed = ("False", "ReconcileFailed");
    let message = hub.wait_ready(FLEET, "refused", failed).unwrap();
    assert!(message.contains("refused-revision-1"), "{message}");
    let status = hub.fleet(FLEET, "refused").unwrap()["status"].clone();
    assert_eq!(status["revision"], 0, "it does not exist: {status}");
    hub.management().types(&format!(
        "delete fleetpullsecret late refused -n {FLEET} --timeout=60s"
    ));
}

/// A policy that forbids a Secret with this name.
fn refusal() -> [Value; 2] {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE", "UPDATE"]});
    let expression = "!request.name.startsWith('refused-revision-')";
    denying(
        "no-revisions",
        &json!({"resourceRules": [rule]}),
        &json!({"expression": expression}),
    )
}

fn a_cluster_that_is_away_is_passed_over_and_caught_up(hub: &Hub, one: &Cluster, two: &Cluster) {
    one.signal("kube-apiserver", "STOP").unwrap();
    rotate(hub, 3);
    wait_has(two, 3);
    let message = hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
    assert!(
        message.contains("in 1 of 2 clusters") && message.contains("/one"),
        "{message}"
    );
    one.signal("kube-apiserver", "CONT").unwrap();
    wait_has(one, 3);
    hub.wait_phase((FLEET, NAME, "one"), ("Synced", ""))
        .unwrap();
    hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
}

fn another_hub_goes_on(hub: &Hub, members: &[&Cluster]) {
    let lease = [
        "get",
        "lease",
        "globalps-hub",
        "-n",
        SYSTEM,
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ];
    let leader = hub.management().kubectl(&lease).unwrap();
    let (pod, _) = leader.rsplit_once('_').unwrap();
    hub.management().types(&format!(
        "delete pod {pod} -n {SYSTEM} --force --grace-period=0"
    ));
    rotate(hub, 4);
    wait("another hub to lead", POLL, || {
        let holder = hub.management().kubectl(&lease)?;
        Ok((!holder.is_empty() && holder != leader).then_some(()))
    });
    for member in members {
        wait_has(member, 4);
    }
    hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
}

fn what_somebody_changes_comes_back_and_keys_of_others_stay(hub: &Hub, one: &Cluster) {
    one.types(&format!("delete secret {ADDITIONAL} -n {NAMESPACE}"));
    wait_has(one, 4);
    let key = json!({"data": {OTHERS_KEY: base64("x")}});
    merge_in(one, NAMESPACE, &format!("secret/{ADDITIONAL}"), &key);
    // The fields now belong to another field manager.
    let secret = ["secret", ADDITIONAL, "-n", NAMESPACE, "--overwrite"];
    let label = "app.kubernetes.io/managed-by=x";
    one.kubectl(&[&["label"], &secret[..], &[label]].concat())
        .unwrap();
    let revision = "globalps.io/revision=1";
    one.kubectl(&[&["annotate"], &secret[..], &[revision]].concat())
        .unwrap();
    hub.wait_phase((FLEET, NAME, "one"), ("Synced", ""))
        .unwrap();
    rotate(hub, 5);
    wait_has(one, 5);
    let secret = member_secret(one).unwrap();
    assert_eq!(
        secret["data"][OTHERS_KEY],
        base64("x"),
        "{:#}",
        secret["metadata"]
    );
}

fn who_is_not_selected_any_more_has_nothing_left(hub: &Hub, one: &Cluster, two: &Cluster) {
    let none = json!({"spec": {"registered": {"selector": {"matchLabels": {"nobody": "has"}}}}});
    merge_in(
        hub.management(),
        FLEET,
        &format!("fleetpullsecret/{NAME}"),
        &none,
    );
    wait("the Secret to be removed from `two`", POLL, || {
        Ok(member_secret(two).unwrap().is_null().then_some(()))
    });
    // A Secret of this type must contain the hub's key, and it has a key of another client.
    hub.wait_phase((FLEET, NAME, "one"), ("Blocked", "KeysOfOthers"))
        .unwrap();
    assert!(has(one, 5));
    one.types(&format!("delete secret {ADDITIONAL} -n {NAMESPACE}"));
    let left = ["get", "clusterpullsecrets", "-A", "-o", "name"];
    wait("all objects to be deleted", POLL, || {
        Ok(hub.management().kubectl(&left)?.is_empty().then_some(()))
    });
}
