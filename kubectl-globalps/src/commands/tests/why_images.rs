//! `why`: images that are not a container's own, and messages of the kubelet before a pull.

use super::why::{pod, registry, with_pods};
use super::*;

fn answer(api: &FakeApi, flags: &str) -> (Value, String) {
    let (ran, [out, err]) = api.printed(&format!("why a/p {flags} -o json"));
    assert_eq!(ran, Ok(Exit::No), "{err}");
    let (_, [text, _]) = api.printed(&format!("why a/p {flags}"));
    (serde_json::from_str(&out).expect("JSON"), text)
}

fn event(reason: &str, message: &str) -> Value {
    json!({
        "metadata": {}, "type": "Warning", "reason": reason, "message": message,
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"kind": "Pod", "namespace": "a", "name": "p"},
    })
}

const EVENT: &str = "/api/v1/namespaces/a/events/e";

fn waiting(reason: &str, message: &str) -> Value {
    json!({"status": {"containerStatuses": [{
        "name": "c", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": message}},
    }]}})
}

#[test]
fn the_image_of_a_volume_is_named_and_not_the_containers() {
    let (own, volume) = (registry(), registry());
    let reference = format!("{volume}/team/app:1");
    let mut more = waiting(
        "ErrImagePull",
        &format!("failed to pull and unpack image \"{reference}\": 401 Unauthorized"),
    );
    more["spec"] = json!({
        "containers": [{
            "name": "c", "image": format!("{own}/team/app:1"),
            "volumeMounts": [{"name": "model", "mountPath": "/model"}],
        }],
        "volumes": [{"name": "model", "image": {"reference": reference}}],
    });
    let api = with_pods(&[], &[("p", pod("x", &more))]);
    let (found, text) = answer(&api, "--insecure");
    assert_eq!(found["containers"][0]["volume"], "model");
    assert_eq!(found["cause"]["registry"], json!(volume));
    let add = format!("kubectl globalps add {volume} -u USER --insecure --wait --retry-pods");
    assert_eq!(found["cause"]["command"], json!(add));
    let line = format!("container:  c, image `{reference}` of volume `model`\n");
    assert!(text.contains(&line), "{text}");
    assert!(!text.contains(&own), "{text}");
}

#[test]
fn a_sandbox_image_is_named_and_whose_configuration_pulls_it() {
    let image = format!("{}/pause:3.10", registry());
    let message = format!(
        "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox image \"{image}\": failed to pull image \"{image}\": 401 Unauthorized"
    );
    let mut more = waiting("ContainerCreating", "");
    more["status"]["containerStatuses"][0]["state"]["waiting"]["message"] = Value::Null;
    let mut api = with_pods(&[], &[("p", pod("quay.io/team/app:1", &more))])
        .with_object(EVENT, event("FailedCreatePodSandBox", &message));
    let (found, text) = answer(&api, "--insecure");
    assert_eq!(found["cause"]["code"], "SandboxImage", "{text}");
    assert_eq!(found["cause"]["command"], "", "{text}");
    assert!(
        text.contains(&format!("sandbox:    image `{image}`\n")),
        "{text}"
    );
    assert!(
        text.contains("request without credentials: rejected (401)"),
        "{text}"
    );
    assert!(text.contains("containerd reads"), "{text}");
    assert!(
        !text.contains("CRI-O") && !text.contains("quay.io"),
        "{text}"
    );
    let (ran, [out, _]) = api.printed("why -A --no-ask");
    assert_eq!(ran, Ok(Exit::No));
    assert!(out.contains(&image), "{out}");
    // Another problem of the sandbox is not about an image.
    let network =
        "Failed to create pod sandbox: plugin type=\"calico\" failed (add): 401 Unauthorized";
    api = api.with_object(EVENT, event("FailedCreatePodSandBox", network));
    let (found, _) = answer(&api, "--no-ask");
    assert_eq!(found["cause"]["code"], "NotAnImage");
    assert_eq!(api.run("why -A --no-ask"), Ok(Exit::Done));
}

#[test]
fn an_image_that_the_node_has_may_be_for_other_pods_only() {
    let message = "Container image \"quay.io/team/app:1\" is not present with pull policy of Never";
    let pod = || pod("quay.io/team/app:1", &waiting("ErrImageNeverPull", message));
    let node = |name: &str| json!({"metadata": {}, "status": {"images": [{"names": [name]}]}});
    for (name, expected) in [
        ("quay.io/team/app:1", "ImageNotAllowed"),
        ("quay.io/team/app:10", "ImageNeverPulled"),
    ] {
        let api = with_pods(&[], &[("p", pod())]).with_object("/api/v1/nodes/node-1", node(name));
        let (found, text) = answer(&api, "--no-ask");
        assert_eq!(found["cause"]["code"], expected, "{text}");
        // `imagePullPolicy` of a pod is immutable.
        assert_eq!(found["cause"]["command"], "", "{text}");
        assert!(text.contains("IfNotPresent"), "{text}");
    }
}

#[test]
fn a_kubelet_that_cant_read_a_secret_gives_only_the_error() {
    let error = "illegal base64 data at input byte 0";
    let pod = pod("quay.io/team/app:1", &waiting(error, error));
    let mut own = secret(&[("quay.io", "x")]);
    let reference = json!([{
        "apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "name": "own", "uid": "u", "controller": true,
    }]);
    for (is_immutable, owners, command, hint) in [
        (false, json!([]), "kubectl -n a edit secret own", ""),
        (true, json!([]), "", "is immutable"),
        (
            false,
            reference,
            "",
            "belongs to `ExternalSecret/own`, which would undo the change: change it there",
        ),
    ] {
        own["immutable"] = json!(is_immutable);
        own["metadata"]["ownerReferences"] = owners;
        let api = with_pods(&[], &[("p", pod.clone())])
            .with_object("/api/v1/namespaces/a/secrets/own", own.clone());
        let (found, text) = answer(&api, "--no-ask");
        assert_eq!(found["cause"]["code"], "SecretUnreadable", "{text}");
        assert_eq!(found["cause"]["command"], command, "{text}");
        assert!(text.contains(hint), "{text}");
    }
}

#[test]
fn a_command_is_for_the_context_that_was_named() {
    let api = with_pods(&[], &[("p", pod("quay.io/team/app:1", &json!({})))]);
    let config = std::env::temp_dir().join(format!("why-{}", std::process::id()));
    let server = api.address();
    let text = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(&config, text.to_string()).expect("a file");
    let printer = crate::terminal::printer::Printer::capturing();
    let line = format!(
        "kubectl-globalps why a/p --no-ask --context prod --kubeconfig {}",
        config.display()
    );
    let cli = crate::cli::Cli::of(line.split(' ').map(std::ffi::OsString::from)).expect("flags");
    let ran = crate::commands::run(&cli, &printer);
    std::fs::remove_file(&config).expect("a file");
    let [out, err] = printer.captured();
    assert_eq!(ran, Ok(Exit::No), "{err}");
    assert!(
        out.contains("kubectl globalps --context prod add quay.io"),
        "{out}"
    );
}
