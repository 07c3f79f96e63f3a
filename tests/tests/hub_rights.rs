//! The hub's permissions and requests match exactly, on the management cluster and in a member, and its identity in a
//! member gives access to nothing else. Uses the hub's process with its service account's token, a management cluster
//! and a member, both without nodes.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use ::base64::Engine as _;
use common::objects::{apply, get, merge_in};
use common::{base64, cluster, docker_config};
use globalps_core::api::GlobalPullSecret;
use globalps_manifests::HubInstall;
use globalps_testkit::capi::CLUSTERS as CAPI_VERSION;
use globalps_testkit::fleet::hub_stage::{CLUSTERS, HubStage};
use globalps_testkit::hub::{Hub, fleet, member_secret, source};
use globalps_testkit::product::{ADDITIONAL, NAMESPACE, configuration};
use globalps_testkit::rights::{Calls, Exceptions, assert_same, rights_of};
use globalps_testkit::{Cluster, kubernetes, secrecy, wait};
use hyper::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, CustomResourceExt as _};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(20);
const NAME: &str = "shared";
const MEMBER: &str = "edge";
const HUB_USER: &str = "system:serviceaccount:globalps-system:globalps-hub";
const MEMBER_USER: &str = "system:serviceaccount:kube-system:globalps-hub";

/// Permissions on the management cluster that no request needs, and why they exist.
const UNUSED: &[(&str, &str)] = &[(
    "update globalps.io/fleetpullsecrets/finalizers",
    "needed with the admission plugin OwnerReferencesPermissionEnforcement, which is off here",
)];

const SOMETIMES: &[(&str, &str)] = &[(
    "get coordination.k8s.io/leases",
    "when a renewal gets a conflict or no response",
)];

#[test]
fn the_hub_and_its_member_identity_have_only_needed_rights() {
    let stage = HubStage::up("hub-rights").unwrap();
    let management = stage.cluster();
    let member = cluster("hub-rights-member", 0);
    let crds = kubernetes::capi_crds().unwrap();
    let clusters = crds.join("cluster.x-k8s.io_clusters.yaml");
    let clusters = clusters.to_string_lossy();
    let create = ["apply", "--server-side", "-f", &clusters];
    management.kubectl(&create).unwrap();
    apply(
        &member,
        &[serde_json::to_value(GlobalPullSecret::crd()).unwrap()],
    );

    everything_that_a_hub_does(&stage, &member);
    let none = Exceptions {
        unused: &[],
        sometimes: &[],
        refused: &[],
    };
    let exceptions = Exceptions {
        unused: UNUSED,
        sometimes: SOMETIMES,
        ..none
    };
    let install = HubInstall {
        image: "none".to_owned(),
        namespaces: vec![CLUSTERS.to_owned()],
        trusted_namespaces: Vec::new(),
        shards: 1,
    };
    let calls = |cluster: &Cluster, user| Calls::read(&cluster.audit_log(), &[user], |_| true);
    let asked = calls(management, HUB_USER).unwrap();
    assert_same(&rights_of(&install.objects()), &asked, &exceptions);
    let asked = calls(&member, MEMBER_USER).unwrap();
    assert_same(&rights_of(&roles(&member)), &asked, &none);

    a_stolen_identity_is_good_for_nothing_else(management, &member);
}

fn content(round: u32) -> String {
    docker_config(&[("fleet.example.com", &format!("robot:r1ghts-{round}-s3cret"))])
}

/// Two terms of leadership, a rollout that only waits for the Secret and some that wait for nodes, more revisions than
/// the history keeps, and a removal.
fn everything_that_a_hub_does(stage: &HubStage, member: &Cluster) {
    let management = stage.cluster();
    let hub = Hub::attach(management);
    // One leads, the other stands by.
    stage.start().unwrap();
    stage.start().unwrap();
    let file = member.kubeconfig();
    let file = file.to_str().unwrap();
    hub.fleet_command(&["join", MEMBER, "-n", CLUSTERS, "--member-kubeconfig", file])
        .unwrap();
    let spec = json!({
        "clusterSelector": {}, "registered": {}, "requireNodes": false, "historyLimit": 0,
    });
    hub.apply(&[
        source(CLUSTERS, NAME, &content(1)),
        fleet(CLUSTERS, NAME, &spec),
    ])
    .unwrap();
    hub.wait_phase((CLUSTERS, NAME, MEMBER), ("Synced", ""))
        .unwrap();
    a_kubeconfig_that_leads_elsewhere_is_not_used(&hub);
    // A cluster of Cluster API, deleted later, with its ClusterPullSecret.
    apply(management, &[cluster_object("passing")]);
    hub.wait_phase((CLUSTERS, NAME, "passing"), ("Unreachable", "NoKubeconfig"))
        .unwrap();
    a_secret_named_like_a_cluster_is_unused_until_named(&hub);
    management.types(&format!(
        "delete clusters.cluster.x-k8s.io/passing -n {CLUSTERS}"
    ));
    wait("its object to be deleted", POLL, || {
        let object = hub.cluster(CLUSTERS, NAME, "passing")?;
        Ok(object.is_null().then_some(()))
    });
    // Another process leads, alone.
    stage.stop().unwrap();
    stage.start().unwrap();
    apply(member, &[configuration(&json!({}))]);
    let nodes = json!({"spec": {"requireNodes": true}});
    merge_in(
        management,
        CLUSTERS,
        &format!("fleetpullsecret/{NAME}"),
        &nodes,
    );
    for round in 2..=4 {
        hub.apply(&[source(CLUSTERS, NAME, &content(round))])
            .unwrap();
        every_node_has(member, round);
        hub.wait_ready(CLUSTERS, NAME, ("True", "Synced")).unwrap();
    }
    management.types(&format!(
        "delete fleetpullsecret {NAME} -n {CLUSTERS} --timeout=60s"
    ));
    assert!(member_secret(member).unwrap().is_null());
    stage.stop().unwrap();
}

/// The hub writes an event.
fn a_kubeconfig_that_leads_elsewhere_is_not_used(hub: &Hub) {
    let secret = get(hub.management(), CLUSTERS, &format!("secret/{MEMBER}"));
    let own = secret["data"]["value"].clone();
    let kubeconfig = std::fs::read_to_string(hub.management().kubeconfig()).unwrap();
    let what = format!("secret/{MEMBER}");
    let redirect = |value: Value| {
        let data = json!({"data": {"value": value}});
        merge_in(hub.management(), CLUSTERS, &what, &data);
    };
    redirect(json!(base64(&kubeconfig)));
    let place = (CLUSTERS, NAME, MEMBER);
    hub.wait_phase(place, ("Blocked", "IdentityChanged"))
        .unwrap();
    assert!(member_secret(hub.management()).unwrap().is_null());
    redirect(own);
    hub.wait_phase(place, ("Synced", "")).unwrap();
}

/// The kubeconfig leads to the cluster that is registered under another name.
fn a_secret_named_like_a_cluster_is_unused_until_named(hub: &Hub) {
    let secret = get(hub.management(), CLUSTERS, &format!("secret/{MEMBER}"));
    let labels = json!({"globalps.io/cluster": "true"});
    let mut other = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "passing", "namespace": CLUSTERS, "labels": labels},
    });
    other["data"] = secret["data"].clone();
    hub.apply(&[other]).unwrap();
    let place = (CLUSTERS, NAME, "passing");
    wait("the status to name the Secret", POLL, || {
        let status = hub.wait_phase(place, ("Unreachable", "NoKubeconfig"))?;
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        Ok(message
            .contains("globalps.io/kubeconfig=passing")
            .then_some(()))
    });
    let annotate = |annotation: &str| {
        let cluster = "clusters.cluster.x-k8s.io/passing";
        let annotate = ["annotate", cluster, "-n", CLUSTERS, annotation];
        hub.management().kubectl(&annotate).unwrap();
    };
    annotate("globalps.io/kubeconfig=passing");
    hub.wait_phase(place, ("Blocked", "DuplicateCluster"))
        .unwrap();
    annotate("globalps.io/kubeconfig-");
    let delete = ["delete", "secret", "passing", "-n", CLUSTERS];
    hub.management().kubectl(&delete).unwrap();
    hub.wait_phase(place, ("Unreachable", "NoKubeconfig"))
        .unwrap();
}

fn cluster_object(name: &str) -> Value {
    json!({
        "apiVersion": CAPI_VERSION, "kind": "Cluster",
        "metadata": {"name": name, "namespace": CLUSTERS},
        "spec": {"controlPlaneEndpoint": {"host": "192.0.2.1", "port": 6443}},
    })
}

/// Reports that every node has the content, like the member's globalps.
fn every_node_has(member: &Cluster, round: u32) {
    let secret = wait("the Secret to be in the member", POLL, || {
        let secret = member_secret(member)?;
        let has = secret["data"][".dockerconfigjson"] == base64(&content(round));
        Ok(has.then_some(secret))
    });
    let config = get(member, NAMESPACE, "globalpullsecret/global-pull-secret");
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Synced", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({"status": {
        "observedGeneration": config["metadata"]["generation"],
        "observedAdditional": secret["metadata"]["resourceVersion"],
        "conditions": [ready],
    }});
    let config = "globalpullsecret/global-pull-secret";
    member.patch_status(NAMESPACE, config, &status).unwrap();
}

/// Roles and their bindings in the member that `fleet join` created.
fn roles(member: &Cluster) -> Vec<Value> {
    let made = "app.kubernetes.io/managed-by=globalps";
    let kinds = "roles,rolebindings,clusterroles,clusterrolebindings";
    let all = ["get", kinds, "-A", "-l", made, "-o", "json"];
    let list: Value = serde_json::from_str(&member.kubectl(&all).unwrap()).unwrap();
    let roles = list["items"].as_array().unwrap().clone();
    assert_eq!(roles.len(), 4);
    roles
}

/// The kubeconfig that `fleet join` wrote into the hub's Secret.
fn stolen(management: &Cluster) -> Value {
    let secret = get(management, CLUSTERS, &format!("secret/{MEMBER}"));
    let data = secret["data"]["value"].as_str().unwrap();
    let bytes = ::base64::prelude::BASE64_STANDARD.decode(data).unwrap();
    let kubeconfig: Value = serde_json::from_slice(&bytes).unwrap();
    let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
    secrecy::remember(token);
    kubeconfig
}

/// A request: method, path and body. A patch with an `apiVersion` is a server-side apply.
type Ask = (Method, String, Value);

fn a_stolen_identity_is_good_for_nothing_else(management: &Cluster, member: &Cluster) {
    apply(member, &[source("default", ADDITIONAL, &content(9))]);
    let kubeconfig = stolen(management);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let read: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(read, &options).await;
        let client = Client::try_from(config.unwrap()).unwrap();
        for (sentence, ask) in own() {
            let code = ask_for(&client, ask).await;
            assert!((200..300).contains(&code), "{sentence}: {code}");
        }
        let before = secrets(member);
        let others = of_others();
        println!("{} requests with the stolen identity", others.len());
        for (sentence, ask) in others {
            let code = ask_for(&client, ask).await;
            assert_eq!(code, 403, "{sentence}");
        }
        assert_eq!(secrets(member), before);
        for (namespace, expected) in [
            (NAMESPACE, &[CONFIGS, ITS_NAMESPACE, ITS_SECRET][..]),
            ("default", &[ITS_NAMESPACE]),
        ] {
            let found = rules(&client, namespace).await;
            let expected = expected.iter().map(|it| (*it).to_owned());
            assert_eq!(found, expected.collect(), "in {namespace}");
        }
    });
}

const ITS_SECRET: &str = "/secrets additional-pull-secret: create,delete,get,list,patch,watch";
const CONFIGS: &str = "globalps.io/globalpullsecrets global-pull-secret: list,watch";
const ITS_NAMESPACE: &str = "/namespaces kube-system: get";

/// Sends the request and returns the status code.
async fn ask_for(client: &Client, (method, path, body): Ask) -> u16 {
    let content_type = match (&method, body.get("apiVersion")) {
        (&Method::PATCH, Some(_)) => "application/apply-patch+yaml",
        (&Method::PATCH, None) => "application/merge-patch+json",
        _ => "application/json",
    };
    let bytes = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let mut request = Request::builder().method(method).uri(&path);
    if let Some(user) = body["impersonate"].as_str() {
        request = request.header("Impersonate-User", user);
    }
    let request = request.header("Content-Type", content_type).body(bytes);
    match client.request_text(request.unwrap()).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{path}: {error}"),
    }
}

fn secrets_of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets")
}

/// The hub's Secret, or another one.
fn secret(name: &str, type_: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": type_,
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "default"}},
        "data": {".dockerconfigjson": base64(&content(8))},
    })
}

const DOCKER: &str = "kubernetes.io/dockerconfigjson";
const TOKEN: &str = "kubernetes.io/service-account-token";
const APPLY: &str = "?fieldManager=thief&force=true";

/// Requests for which the identity exists. The last one deletes the Secret.
fn own() -> Vec<(&'static str, Ask)> {
    let secrets = secrets_of(NAMESPACE);
    let one = format!("{secrets}/{ADDITIONAL}");
    let named = format!("{secrets}?fieldSelector=metadata.name%3D{ADDITIONAL}");
    let configs = format!("/apis/globalps.io/v1alpha1/namespaces/{NAMESPACE}/globalpullsecrets");
    let configs = format!("{configs}?fieldSelector=metadata.name%3Dglobal-pull-secret");
    let watch = "&watch=true&timeoutSeconds=1";
    let get = |path: String| (Method::GET, path, Value::Null);
    let apply = (
        Method::PATCH,
        format!("{one}{APPLY}"),
        secret(ADDITIONAL, DOCKER),
    );
    vec![
        ("create the Secret", apply.clone()),
        ("apply it again", apply),
        ("read it", get(one.clone())),
        ("list it", get(named.clone())),
        ("watch it", get(format!("{named}{watch}"))),
        ("list the GlobalPullSecret", get(configs.clone())),
        (
            "watch the GlobalPullSecret",
            get(format!("{configs}{watch}")),
        ),
        (
            "read the UID of the cluster",
            get("/api/v1/namespaces/kube-system".to_owned()),
        ),
        ("delete the Secret", (Method::DELETE, one, Value::Null)),
    ]
}

/// Requests that must be forbidden.
fn of_others() -> Vec<(String, Ask)> {
    let core = "/api/v1";
    let system = format!("{core}/namespaces/{NAMESPACE}");
    let secrets = secrets_of(NAMESPACE);
    let one = format!("{secrets}/{ADDITIONAL}");
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = format!("{rbac}/namespaces/{NAMESPACE}/roles/globalps-hub");
    let admission =
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/globalps-hub-member";
    let globalps = format!("/apis/globalps.io/v1alpha1/namespaces/{NAMESPACE}");
    let mut asks: Vec<Ask> = [
        // Other Secrets, by every way to read them.
        secrets.clone(),
        format!("{core}/secrets"),
        format!("{core}/secrets?fieldSelector=metadata.name%3D{ADDITIONAL}"),
        format!("{secrets}?watch=true&timeoutSeconds=1"),
        format!("{secrets}?fieldSelector=metadata.name!%3D{ADDITIONAL}"),
        format!("{secrets}?fieldSelector=metadata.name%3Dglobalps-hub-token"),
        format!("{secrets}?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dglobalps"),
        format!("{secrets}/globalps-hub-token"),
        format!("{secrets}/global-pull-secret"),
        format!("{}/{ADDITIONAL}", secrets_of("default")),
        // Other resources.
        format!("{core}/nodes"),
        format!("{core}/namespaces"),
        format!("{core}/namespaces/default"),
        format!("{core}/namespaces?fieldSelector=metadata.name%3Dkube-system"),
        format!("{core}/pods"),
        format!("{system}/pods"),
        format!("{system}/configmaps"),
        format!("{system}/configmaps/extension-apiserver-authentication"),
        format!("{system}/serviceaccounts"),
        format!("{system}/events"),
        format!("{core}/nodes/node-1/proxy/pods"),
        "/apis/coordination.k8s.io/v1/leases".to_owned(),
        format!("{globalps}/globalpullsecrets"),
        format!("{globalps}/globalpullsecrets/global-pull-secret"),
        format!("{rbac}/clusterroles"),
        role.clone(),
        admission.to_owned(),
        "/metrics".to_owned(),
        "/logs".to_owned(),
        "/debug/pprof".to_owned(),
    ]
    .map(|path| (Method::GET, path, Value::Null))
    .into();
    let bind = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "thief"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "globalps-hub", "namespace": NAMESPACE}],
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief"},
        "spec": {"containers": [{"name": "c", "image": "c"}]},
    });
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []},
    });
    let more = json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]});
    let none = || Value::Null;
    let post = |path: &str, body: Value| (Method::POST, path.to_owned(), body);
    let patch = |path: &str, body: Value| (Method::PATCH, path.to_owned(), body);
    let applied = |path: &str| format!("{path}{APPLY}");
    asks.extend([
        // The Secret with the type of a service account token, which the hub could then read. The policy of `fleet
        // join` rejects it.
        patch(&applied(&one), secret(ADDITIONAL, TOKEN)),
        patch(&applied(&one), secret(ADDITIONAL, "Opaque")),
        // RBAC rules for names don't match a request without a name in its path.
        post(&secrets, secret(ADDITIONAL, DOCKER)),
        post(&secrets, secret("thief", TOKEN)),
        patch(
            &applied(&format!("{secrets}/thief")),
            secret("thief", DOCKER),
        ),
        patch(
            &applied(&format!("{}/{ADDITIONAL}", secrets_of("default"))),
            secret(ADDITIONAL, DOCKER),
        ),
        patch(
            &format!("{secrets}/globalps-hub-token"),
            json!({"data": {"x": "eA=="}}),
        ),
        (Method::PUT, one.clone(), secret(ADDITIONAL, DOCKER)),
        (Method::DELETE, secrets.clone(), none()),
        (
            Method::DELETE,
            format!("{secrets}?fieldSelector=metadata.name%3D{ADDITIONAL}"),
            none(),
        ),
        (
            Method::DELETE,
            format!("{secrets}/globalps-hub-token"),
            none(),
        ),
        // Additional rights.
        post(&format!("{rbac}/clusterrolebindings"), bind),
        patch(&role, more.clone()),
        patch(&format!("{rbac}/clusterroles/globalps-hub-member"), more),
        (Method::DELETE, admission.to_owned(), none()),
        post(
            &format!("{system}/serviceaccounts/default/token"),
            request.clone(),
        ),
        post(
            &format!("{system}/serviceaccounts/globalps-hub/token"),
            request,
        ),
        (Method::GET, one, json!({"impersonate": "kubernetes-admin"})),
        // The objects of the cluster's globalps.
        patch(
            &format!("{globalps}/globalpullsecrets/global-pull-secret"),
            json!({"spec": {}}),
        ),
        patch(
            &format!("{globalps}/globalpullsecrets/global-pull-secret/status"),
            json!({"status": {}}),
        ),
        (
            Method::DELETE,
            format!("{globalps}/globalpullsecrets/global-pull-secret"),
            none(),
        ),
        patch(
            &format!("{core}/namespaces/kube-system"),
            json!({"metadata": {"labels": {"x": "y"}}}),
        ),
        post(&format!("{system}/pods"), pod),
    ]);
    let sentence = |ask: &Ask| format!("{} {} {}", ask.0, ask.1, ask.2);
    asks.into_iter().map(|ask| (sentence(&ask), ask)).collect()
}

/// Every Secret of the member, with its resourceVersion.
fn secrets(member: &Cluster) -> String {
    let what = "-o=jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
    member.kubectl(&["get", "secrets", "-A", what]).unwrap()
}

/// The API server's rules for the identity, one per line, except those for requests about itself.
async fn rules(client: &Client, namespace: &str) -> BTreeSet<String> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let request = Request::post(path).header("Content-Type", "application/json");
    let request = request.body(review.to_string().into_bytes()).unwrap();
    let review: Value = client.request(request).await.unwrap();
    let words = |rule: &Value, field: &str| {
        let words = rule[field].as_array().into_iter().flatten();
        let mut words: Vec<&str> = words.filter_map(Value::as_str).collect();
        words.sort_unstable();
        words.join(",")
    };
    let rules = review["status"]["resourceRules"].as_array().unwrap().iter();
    let rules = rules.filter(|rule| {
        let group = words(rule, "apiGroups");
        group != "authorization.k8s.io" && group != "authentication.k8s.io"
    });
    let line = |rule: &Value| {
        let resource = [words(rule, "apiGroups"), words(rule, "resources")].join("/");
        format!(
            "{resource} {}: {}",
            words(rule, "resourceNames"),
            words(rule, "verbs")
        )
    };
    let lines = rules.map(line);
    // Since Kubernetes 1.37, every account may read them.
    lines
        .filter(|line| line != "certificates.k8s.io/clustertrustbundles : get,list,watch")
        .collect()
}
