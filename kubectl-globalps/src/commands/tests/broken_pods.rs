//! Pods with broken images, in every way that a kubelet reports.

use serde_json::{Value, json};

const OWN: &str = "own.example.com:5000/team/app:1";
const INIT: &str = "init.example.com/team/app:1";
const DEBUG: &str = "debug.example.com/tools";
/// The name has the container's own image as a prefix.
const FIRST: &str = "own.example.com:5000/team/app:10";
const SECOND: &str = "second.example.com/models/app:1";
const PAUSE: &str = "pause.example.com/pause:3.10";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Own,
    Init,
    Debug,
    First,
    Second,
    Sandbox,
}

impl Place {
    pub(super) const ALL: [(Self, &str); 6] = [
        (Self::Own, OWN),
        (Self::Init, INIT),
        (Self::Debug, DEBUG),
        (Self::First, FIRST),
        (Self::Second, SECOND),
        (Self::Sandbox, PAUSE),
    ];

    /// Containers that wait for the image. The init container mounts the first volume as well.
    pub(super) fn containers(self) -> &'static [&'static str] {
        match self {
            Self::Own | Self::Second => &["c"],
            Self::Init => &["i"],
            Self::Debug => &["d"],
            Self::First => &["i", "c"],
            Self::Sandbox => &[],
        }
    }

    pub(super) fn is_volume(self) -> bool {
        matches!(self, Self::First | Self::Second)
    }
}

/// The error in the words of containerd and of CRI-O, with `I` for the image, and the cause.
const PULLS: [(&str, &str, &str); 9] = [
    (
        "failed to pull and unpack image \"I\": failed to resolve reference \"I\": unexpected status from HEAD request to https://x/v2/y/manifests/1: 401 Unauthorized",
        "initializing source docker://I: reading manifest 1 in y: unauthorized: authentication required",
        "NoCredentials",
    ),
    (
        "failed to pull and unpack image \"I\": failed to resolve reference \"I\": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed",
        "initializing source docker://I: Requesting bearer token: invalid status code from registry 403 (Forbidden): access denied",
        "NoCredentials",
    ),
    (
        "failed to pull and unpack image \"I\": failed to resolve reference \"I\": I: not found",
        "initializing source docker://I: reading manifest 1 in y: manifest unknown",
        "ImageNotFound",
    ),
    (
        "failed to pull and unpack image \"I\": failed to copy: httpReadSeeker: failed open: unexpected status code https://x/v2/y: 429 Too Many Requests",
        "initializing source docker://I: reading manifest 1 in y: toomanyrequests: You have reached your pull rate limit",
        "RateLimited",
    ),
    (
        "failed to pull and unpack image \"I\": failed to resolve reference \"I\": failed to do request: Head \"https://x/v2/y/manifests/1\": dial tcp: lookup x: no such host",
        "initializing source docker://I: pinging container registry x: Get \"https://x/v2/\": dial tcp 10.0.0.1:443: connect: connection refused",
        "RegistryUnreachable",
    ),
    (
        "failed to pull and unpack image \"I\": failed to resolve reference \"I\": failed to do request: Head \"https://x/v2/y/manifests/1\": tls: failed to verify certificate: x509: certificate signed by unknown authority",
        "initializing source docker://I: pinging container registry x: Get \"https://x/v2/\": tls: failed to verify certificate: x509: certificate has expired",
        "CertificateUntrusted",
    ),
    (
        "failed to pull and unpack image \"I\": failed to extract layer sha256:0a: write /x: no space left on device",
        "copying image: writing blob I: storing blob to file: write /x: no space left on device",
        "Unknown",
    ),
    (
        "failed to pull and unpack image \"I\": no match for platform in manifest: not found",
        "choosing image instance: no image found in image index for architecture \"s390x\" of I",
        "Unknown",
    ),
    (
        "something new happened to I",
        "something new happened to I",
        "Unknown",
    ),
];

/// The kubelet's report.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) reason: String,
    pub(super) message: String,
    /// Message of a `Failed` event about the image.
    pub(super) event: Option<String>,
    pub(super) code: &'static str,
    /// Whether the event is about the image.
    pub(super) names: bool,
}

/// All reports about this image.
pub(super) fn reports(image: &str) -> Vec<Report> {
    let mut all = Vec::new();
    let mut report = |reason: &str, message: String, event, code| {
        all.push(Report {
            reason: reason.to_owned(),
            message,
            event,
            code,
            names: code != "NotAnImage",
        });
    };
    for (containerd, crio, code) in PULLS {
        for text in [containerd, crio] {
            let text = text.replace('I', image);
            let back_off = format!("Back-off pulling image \"{image}\"");
            let event = Some(format!("Failed to pull image \"{image}\": {text}"));
            report("ErrImagePull", text.clone(), event.clone(), code);
            report("ErrImagePull", format!("[{text}, {text}]"), None, code);
            let with_error = format!("{back_off}: ErrImagePull: {text}");
            report("ImagePullBackOff", with_error, event.clone(), code);
            // Before Kubernetes 1.32.
            report("ImagePullBackOff", back_off, event, code);
        }
    }
    for (reason, because, code) in [
        (
            "RegistryUnavailable",
            "the registry is unavailable: pinging x",
            "RegistryUnreachable",
        ),
        (
            "SignatureValidationFailed",
            "the signature validation failed: Source image rejected",
            "SignatureRejected",
        ),
    ] {
        let text = format!("image pull failed for {image} because {because}");
        report(reason, text.clone(), None, code);
        let back_off = format!("Back-off pulling image \"{image}\": {reason}: {text}");
        report("ImagePullBackOff", back_off, None, code);
    }
    let never = format!("Container image \"{image}\" is not present with pull policy of Never");
    report("ErrImageNeverPull", never, None, "ImageNeverPulled");
    let invalid = format!(
        "Failed to apply default image tag \"{image}\": couldn't parse image name \"{image}\": invalid reference format"
    );
    report("InvalidImageName", invalid, None, "InvalidImageName");
    let inspect = "Failed to inspect image \"\": rpc error: code = Unavailable";
    report("ImageInspectError", inspect.to_owned(), None, "NotAnImage");
    for reason in [
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
        "PostStartHookError",
    ] {
        report(
            reason,
            format!("401 Unauthorized: {image}"),
            None,
            "NotAnImage",
        );
    }
    all
}

/// The pod's creator, or what `kubectl` can change: a Deployment, nothing, a file on the node.
pub(super) const OWNERS: [&str; 3] = ["deployment/web", "", "static"];

pub(super) fn registry_of(image: &str) -> String {
    image.split('/').next().unwrap_or_default().to_owned()
}

/// The pod with this image broken, and its events.
#[expect(clippy::too_many_lines, reason = "one pod")]
pub(super) fn broken(
    place: Place,
    owner: &str,
    image: &str,
    report: &Report,
) -> Vec<(String, Value)> {
    let image_of = |of: Place, usual: &str| {
        if of == place {
            image.to_owned()
        } else {
            usual.to_owned()
        }
    };
    let mut metadata = json!({"namespace": "a", "uid": "u1"});
    match owner {
        "" => {}
        "static" => metadata["annotations"] = json!({"kubernetes.io/config.mirror": "hash"}),
        _ => {
            metadata["labels"] = json!({"pod-template-hash": "7d4f"});
            metadata["ownerReferences"] = json!([{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4f", "uid": "u", "controller": true,
            }]);
        }
    }
    let account = if owner == "static" { "" } else { "ci" };
    let state = |name: &str, usual: &str| {
        let waits = place.containers().contains(&name);
        // A waiting init container keeps the others from starting.
        let (reason, message) = if waits {
            (report.reason.as_str(), json!(report.message))
        } else {
            (usual, Value::Null)
        };
        json!([{
            "name": name, "image": "docker.io/library/spelled:otherwise", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": message}},
        }])
    };
    let is_sandbox = place == Place::Sandbox;
    let pod = json!({
        "metadata": metadata,
        "spec": {
            "nodeName": "node-1", "serviceAccountName": account, "imagePullSecrets": [{"name": "own"}],
            "initContainers": [{"name": "i", "image": image_of(Place::Init, INIT), "volumeMounts": [{"name": "first", "mountPath": "/1"}]}],
            "containers": [{"name": "c", "image": image_of(Place::Own, OWN), "volumeMounts": [
                {"name": "data", "mountPath": "/0"}, {"name": "second", "mountPath": "/2"}, {"name": "first", "mountPath": "/1"},
            ]}],
            "ephemeralContainers": [{"name": "d", "image": image_of(Place::Debug, DEBUG)}],
            "volumes": [
                {"name": "data", "emptyDir": {}},
                {"name": "first", "image": {"reference": image_of(Place::First, FIRST)}},
                {"name": "second", "image": {"reference": image_of(Place::Second, SECOND)}},
            ],
        },
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodReadyToStartContainers", "status": if is_sandbox { "False" } else { "True" }}],
            "initContainerStatuses": state("i", "PodInitializing"),
            "containerStatuses": state("c", "PodInitializing"),
            "ephemeralContainerStatuses": if is_sandbox { json!([]) } else { state("d", "ContainerCreating") },
        },
    });
    let mut objects = vec![("/api/v1/namespaces/a/pods/p".to_owned(), pod)];
    let mut event = |uid: &str,
                     reason: &str,
                     path: Option<String>,
                     message: &str,
                     minute: usize| {
        let at = format!("/api/v1/namespaces/a/events/e{}", objects.len());
        let event = json!({
            "metadata": {}, "type": "Warning", "reason": reason, "message": message,
            "lastTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
            "involvedObject": {"kind": "Pod", "namespace": "a", "name": "p", "uid": uid, "fieldPath": path},
        });
        objects.push((at, event));
    };
    let uid = if owner == "static" { "hash" } else { "u1" };
    // An earlier pod of this name had problems that no longer apply.
    let old = "Failed to pull image \"own.example.com:5000/team/app:1\": x509: old";
    event(
        "u0",
        "Failed",
        Some("spec.containers{c}".to_owned()),
        old,
        59,
    );
    event(
        "u0",
        "FailedCreatePodSandBox",
        None,
        "failed to get sandbox image \"old.example.com/pause:1\": 401",
        59,
    );
    if is_sandbox {
        event(uid, "FailedCreatePodSandBox", None, &report.message, 2);
    } else {
        let path = |name: &&str| format!("spec.containers{{{name}}}");
        let path = place
            .containers()
            .first()
            .filter(|_| !place.is_volume())
            .map(path);
        if let Some(message) = &report.event {
            event(uid, "Failed", path, message, 3);
        }
        // In the end the sandbox was created.
        event(
            uid,
            "FailedCreatePodSandBox",
            None,
            "failed to get sandbox image \"x.example.com/pause:1\": 401",
            1,
        );
    }
    objects
}

pub(super) fn of_sandbox(image: &str) -> Vec<(String, Report)> {
    const START: &str = "Failed to create pod sandbox: rpc error: code = Unknown desc = ";
    let mut all = Vec::new();
    let mut report = |message: String, code| {
        let reason = "FailedCreatePodSandBox".to_owned();
        let (event, names) = (None, code != "NotAnImage");
        all.push((
            image.to_owned(),
            Report {
                reason,
                message: format!("{START}{message}"),
                event,
                code,
                names,
            },
        ));
    };
    for (containerd, crio, _) in &PULLS[..7] {
        let containerd = containerd.replace('I', image);
        let pull = format!(
            "failed to get sandbox image \"{image}\": failed to pull image \"{image}\": {containerd}"
        );
        report(
            format!("failed to start sandbox \"0a\": {pull}"),
            "SandboxImage",
        );
        report(pull, "SandboxImage");
        if crio.contains("docker://") {
            let crio = crio.replace('I', image);
            report(
                format!("error creating pod sandbox with name \"k8s_p_a_0\": {crio}"),
                "SandboxImage",
            );
        }
    }
    report("plugin type=\"calico\" failed (add): error getting ClusterInformation: connection is unauthorized: 401".to_owned(), "NotAnImage");
    all
}
