//! Other clients that use the controller's field manager, copy its labels and annotations, and delete its records. API
//! server and controller are real.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use globalps_core::api::Attach;
use globalps_core::names::{
    ATTACHED_ANNOTATION, CONTENT_ANNOTATION, CONTROLLER_MANAGER, DATA_KEY, GLOBAL_SECRET,
    IMAGE_PULL_SECRET_LABEL, OPERATOR_SECRET_LABEL, OPERATOR_SECRETS_ANNOTATION, PROOF_KEY,
    SECRET_TYPE, STATE_SECRET,
};
use serde_json::{Value, json};

use super::stage::Stage;
use crate::olm::{catalog, install_olm, set_versions, subscription, version};
use crate::product::{CONFIG, NAMESPACE};
use crate::{DEADLINE, until};

const POLL: Duration = Duration::from_millis(50);
/// A forged Secret is replaced within this time.
const SOON: Duration = Duration::from_secs(10);
/// Time that the controller gets to act, if it does.
const WHILE: Duration = Duration::from_secs(3);
const FORGED: &str = "forged.example.com";
const COPY: &str = "globalps-olm.pull";

struct Scene {
    stage: Stage,
}

/// In namespaces.
pub fn in_namespaces() -> Result<()> {
    let stage = Stage::managed("forgers", Attach::ServiceAccounts)?;
    let scene = Scene { stage };
    scene.others()?;
    scene.stage.write_password(1)?;
    scene.stage.start_controller()?;
    scene.enable(true)?;
    scene.wait_content("a", 1)?;
    scene.wait_content("b", 1)?;
    scene.wait_failures(&["foreign"])?;
    let account = || scene.get("claims", "serviceaccount/default");
    let names = json!([{"name": "own"}, {"name": GLOBAL_SECRET}]);
    until("the account with its record", DEADLINE, POLL, || {
        let account = account()?;
        let record = &account["metadata"]["annotations"][ATTACHED_ANNOTATION];
        let is_right = account["imagePullSecrets"] == names && record == GLOBAL_SECRET;
        Ok(is_right.then_some(()))
    })?;

    // Writes other content with the controller's field manager, first with the controller's labels and annotations,
    // then without them.
    for strips in [false, true] {
        let mut forged = scene.secret("a")?;
        let metadata = forged["metadata"].as_object_mut().context("metadata")?;
        metadata.retain(|key, _| ["name", "namespace", "labels", "annotations"].contains(&&**key));
        forged["data"][DATA_KEY] = secret("a", FORGED)["data"][DATA_KEY].clone();
        if strips {
            metadata_of(&mut forged).retain(|key, _| ["name", "namespace"].contains(&&**key));
            forged["data"]
                .as_object_mut()
                .context("data")?
                .remove(PROOF_KEY);
            scene.kubectl(&["replace", "-f", "-"], &forged)?;
        } else {
            scene.forge(&forged)?;
        }
        scene.wait_content_within("a", 1, SOON)?;
    }
    scene.wait_failures(&["foreign"])?;

    // While no controller runs: one Secret is replaced by another client, also with the controller's field manager and
    // another namespace's proof, one is restored from a backup, and the content changes.
    let backup = scene.secret("a")?;
    let proof = backup["data"][PROOF_KEY].clone();
    ensure!(proof.is_string(), "a Secret without the proof");
    scene.stage.stop_controller()?;
    for namespace in ["a", "b"] {
        scene.delete(namespace, &format!("secret/{GLOBAL_SECRET}"))?;
    }
    let mut theirs = secret("b", FORGED);
    theirs["data"][PROOF_KEY] = proof;
    scene.forge(&theirs)?;
    let mut restored = backup;
    metadata_of(&mut restored).retain(|key, _| !["uid", "resourceVersion"].contains(&&**key));
    scene.kubectl(&["create", "-f", "-"], &restored)?;
    scene.stage.write_password(2)?;
    let theirs = scene.secret("b")?;
    scene.stage.start_controller()?;
    scene.wait_content("a", 2)?;
    scene.wait_failures(&["b", "foreign"])?;
    ensure!(scene.secret("b")? == theirs, "it has changed");

    // The record is lost while no controller runs. Secrets with the right content are adopted.
    scene.stage.stop_controller()?;
    let before = scene.secret("a")?["data"].clone();
    scene.delete(NAMESPACE, &format!("secret/{STATE_SECRET}"))?;
    scene.stage.start_controller()?;
    until("another proof", DEADLINE, POLL, || {
        let data = scene.secret("a")?["data"].clone();
        let is_same = data[DATA_KEY] == before[DATA_KEY];
        Ok((is_same && data[PROOF_KEY] != before[PROOF_KEY]).then_some(()))
    })?;
    scene.stage.write_password(3)?;
    scene.wait_content("a", 3)?;
    scene.wait_failures(&["b", "foreign"])?;

    // Everything is removed, except the objects of other clients.
    scene.enable(false)?;
    until("no Secret", DEADLINE, POLL, || {
        Ok(scene.secret("a")?.is_null().then_some(()))
    })?;
    ensure!(account()?["imagePullSecrets"] == json!([{"name": "own"}]));
    ensure!(scene.secret("b")? == theirs, "it has changed");
    let foreign = scene.secret("foreign")?;
    ensure!(registry(&foreign)? == FORGED, "it has changed");
    Ok(())
}

/// In the namespaces of operators.
pub fn for_operators() -> Result<()> {
    let stage = Stage::for_operators("operator-forgers", &[("olm", "pull")])?;
    install_olm(&stage.cluster);
    let scene = Scene { stage };
    let space = "ops";
    let pull = |registry: &str| {
        let mut secret = secret("olm", registry);
        secret["metadata"] = json!({"name": "pull", "namespace": "olm"});
        secret
    };
    let account = |record: &str, names: Value| {
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": names,
            "metadata": {"name": "op", "namespace": space, "annotations": {OPERATOR_SECRETS_ANNOTATION: record}}})
    };
    let mut forged = secret(space, FORGED);
    forged["metadata"]["name"] = json!(COPY);
    forged["metadata"]["labels"] = json!({OPERATOR_SECRET_LABEL: "true"});
    let mut own = forged.clone();
    own["metadata"]["name"] = json!("own");
    scene.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}))?;
    for object in [
        account("own", json!([{"name": "own"}])),
        version(space, "a.v1", "op", "quay.io/a:1", None),
        catalog("olm", "one", &["pull"]),
        subscription(space, "a", ("olm", "one")),
        pull("one.example.com"),
    ] {
        scene.apply(&object)?;
    }
    scene.forge(&forged)?;
    scene.forge(&own)?;
    set_versions(&scene.stage.cluster, space, "a", "a.v1", "a.v1");
    let copy = || scene.get(space, &format!("secret/{COPY}"));
    let of_others = (copy()?, scene.get(space, "secret/own")?);
    scene.stage.start_controller()?;
    scene.configure(&json!({"operators": {"enabled": true}}))?;
    scene.wait_failures_of("operators", &["a"])?;
    std::thread::sleep(WHILE);
    ensure!((copy()?, scene.get(space, "secret/own")?) == of_others);
    let found = scene.get(space, "serviceaccount/op")?;
    ensure!(found["imagePullSecrets"] == json!([{"name": "own"}, {"name": COPY}]));
    let record = &found["metadata"]["annotations"][OPERATOR_SECRETS_ANNOTATION];
    ensure!(record == COPY, "the record is {record}");

    scene.delete(space, &format!("secret/{COPY}"))?;
    let wait = |registry: &str| {
        until(&format!("{registry} in the copy"), DEADLINE, POLL, || {
            Ok((self::registry(&copy()?).ok().as_deref() == Some(registry)).then_some(()))
        })
    };
    wait("one.example.com")?;
    scene.wait_failures_of("operators", &[])?;
    // The record is lost, and the copy has the right content.
    scene.stage.stop_controller()?;
    let proof = || anyhow::Ok(copy()?["data"][PROOF_KEY].clone());
    let before = proof()?;
    scene.delete(NAMESPACE, &format!("secret/{STATE_SECRET}"))?;
    scene.stage.start_controller()?;
    until("another proof", DEADLINE, POLL, || {
        Ok((proof()? != before).then_some(()))
    })?;
    scene.apply(&pull("two.example.com"))?;
    wait("two.example.com")?;
    // If another client has created an object in place of a copy, it stays.
    scene.stage.stop_controller()?;
    scene.delete(space, &format!("secret/{COPY}"))?;
    scene.forge(&forged)?;
    let of_others = (copy()?, scene.get(space, "secret/own")?);
    scene.configure(&json!({"operators": {"enabled": false}}))?;
    scene.stage.start_controller()?;
    until("no record", DEADLINE, POLL, || {
        let account = scene.get(space, "serviceaccount/op")?;
        let record = &account["metadata"]["annotations"][OPERATOR_SECRETS_ANNOTATION];
        let is_over = account["imagePullSecrets"] == json!([{"name": "own"}]) && record.is_null();
        Ok(is_over.then_some(()))
    })?;
    ensure!((copy()?, scene.get(space, "secret/own")?) == of_others);
    Ok(())
}

/// With everything that a client can copy from the controller's Secrets.
fn secret(namespace: &str, registry: &str) -> Value {
    use base64::Engine as _;
    let config = json!({"auths": {registry: {"auth": "dTpw"}}}).to_string();
    let config = base64::prelude::BASE64_STANDARD.encode(config);
    json!({"apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE, "data": {DATA_KEY: config},
        "metadata": {"name": GLOBAL_SECRET, "namespace": namespace,
            "labels": {IMAGE_PULL_SECRET_LABEL: "true", "app.kubernetes.io/managed-by": "globalps-controller"},
            "annotations": {CONTENT_ANNOTATION: "1-0000000000000001"}}})
}

fn metadata_of(object: &mut Value) -> &mut serde_json::Map<String, Value> {
    object["metadata"].as_object_mut().expect("metadata")
}

fn config(secret: &Value) -> Result<Value> {
    use base64::Engine as _;
    let data = secret["data"][DATA_KEY].as_str().context("no content")?;
    let data = base64::prelude::BASE64_STANDARD.decode(data)?;
    Ok(serde_json::from_slice(&data)?)
}

fn registry(secret: &Value) -> Result<String> {
    let config = config(secret)?;
    let auths = config["auths"].as_object().context("no entries")?;
    auths.keys().next().cloned().context("no entry")
}

impl Scene {
    /// Objects of other clients.
    fn others(&self) -> Result<()> {
        for name in ["a", "b", "claims", "foreign"] {
            let metadata = json!({"name": name});
            self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))?;
        }
        self.forge(&secret("foreign", FORGED))?;
        self.stage.wait_default_accounts(&["claims"])?;
        self.apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": [{"name": "own"}],
            "metadata": {"name": "default", "namespace": "claims",
                "annotations": {ATTACHED_ANNOTATION: "own"}},
        }))
    }

    fn configure(&self, spec: &Value) -> Result<()> {
        let patch = json!({"spec": spec});
        self.stage.cluster.patch(NAMESPACE, CONFIG, &patch)
    }

    fn enable(&self, is_enabled: bool) -> Result<()> {
        let settings = json!({"enabled": is_enabled, "excludedNamespaces": ["kube-*", "globalps-system", "default"]});
        self.configure(&json!({"imagePullSecrets": settings}))
    }

    fn apply(&self, object: &Value) -> Result<()> {
        self.stage.cluster.apply(object)
    }

    /// Applies an object with the controller's field manager.
    fn forge(&self, object: &Value) -> Result<()> {
        let manager = format!("--field-manager={CONTROLLER_MANAGER}");
        let args = [
            "apply",
            "--server-side",
            "--force-conflicts",
            &manager,
            "-f",
            "-",
        ];
        self.kubectl(&args, object)
    }

    fn kubectl(&self, args: &[&str], object: &Value) -> Result<()> {
        self.stage.cluster.kubectl_with(args, object).map(drop)
    }

    fn delete(&self, namespace: &str, what: &str) -> Result<()> {
        let args = ["delete", what, "-n", namespace];
        self.stage.cluster.kubectl(&args).map(drop)
    }

    fn get(&self, namespace: &str, what: &str) -> Result<Value> {
        self.stage.cluster.get(namespace, what)
    }

    fn secret(&self, namespace: &str) -> Result<Value> {
        self.get(namespace, &format!("secret/{GLOBAL_SECRET}"))
    }

    fn wait_content(&self, namespace: &str, password: u32) -> Result<()> {
        self.wait_content_within(namespace, password, DEADLINE)
    }

    fn wait_content_within(&self, namespace: &str, password: u32, time: Duration) -> Result<()> {
        let wanted = password.to_string();
        let what = format!("password {password} in namespace {namespace}");
        let found = || anyhow::Ok(config(&self.secret(namespace)?).unwrap_or_default());
        until(&what, time, POLL, || {
            let entry = &found()?["auths"]["r.example.com"];
            Ok((entry["password"] == *wanted).then_some(()))
        })
        .with_context(|| format!("{:?}, {:?}", found(), self.status()))
    }

    fn status(&self) -> Result<Value> {
        let config = self.get(NAMESPACE, CONFIG)?;
        Ok(config["status"].clone())
    }

    /// Waits until the status names exactly these namespaces, each because of a foreign Secret.
    fn wait_failures(&self, namespaces: &[&str]) -> Result<()> {
        self.wait_failures_of("imagePullSecrets", namespaces)
    }

    /// `names`: of namespaces or Subscriptions.
    fn wait_failures_of(&self, delivery: &str, names: &[&str]) -> Result<()> {
        let of = || anyhow::Ok(self.status()?[delivery].clone());
        let wait = until(&format!("failures of {names:?}"), DEADLINE, POLL, || {
            let status = of()?;
            let failures = status["failures"].as_array().cloned().unwrap_or_default();
            let key = if delivery == "operators" {
                "name"
            } else {
                "namespace"
            };
            let is_foreign = |one: &Value| one["reason"] == "ForeignSecret";
            let found: Vec<&str> = failures.iter().filter_map(|it| it[key].as_str()).collect();
            let total = status["total"].as_u64().unwrap_or_default();
            let synced = status["synced"].as_u64().unwrap_or_default();
            let is_counted = total > 0 && total == synced + u64::try_from(names.len())?;
            let is_right = found == names && failures.iter().all(is_foreign) && is_counted;
            Ok(is_right.then_some(()))
        });
        wait.with_context(|| format!("{:?}", of()))
    }
}
