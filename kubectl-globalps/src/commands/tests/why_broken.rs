//! Pods that fail in every way that a kubelet reports: `why` names the image that was broken, the cause, and no command that is wrong in
//! that cluster.

use std::ffi::OsString;

use super::super::printed::programs;
use super::*;
use crate::cli::Cli;

const OWN: &str = "own.example.com:5000/team/app:1";
const INIT: &str = "init.example.com/team/app:1";
const DEBUG: &str = "debug.example.com/tools";
/// Its name begins like that of the container's own image.
const FIRST: &str = "own.example.com:5000/team/app:10";
const SECOND: &str = "second.example.com/models/app:1";
const PAUSE: &str = "pause.example.com/pause:3.10";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Own,
    Init,
    Debug,
    First,
    Second,
    Sandbox,
}

impl Place {
    const ALL: [(Self, &str); 6] = [
        (Self::Own, OWN),
        (Self::Init, INIT),
        (Self::Debug, DEBUG),
        (Self::First, FIRST),
        (Self::Second, SECOND),
        (Self::Sandbox, PAUSE),
    ];

    /// Containers that wait for it: the first volume is mounted by the init container as well.
    fn containers(self) -> &'static [&'static str] {
        match self {
            Self::Own | Self::Second => &["c"],
            Self::Init => &["i"],
            Self::Debug => &["d"],
            Self::First => &["i", "c"],
            Self::Sandbox => &[],
        }
    }

    fn is_volume(self) -> bool {
        matches!(self, Self::First | Self::Second)
    }
}

/// What went wrong, in the words of containerd and of CRI-O, `I` for the image, and the cause.
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
        "RegistryUnreachable",
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

/// As the kubelet reports it.
#[derive(Clone, Debug)]
struct Report {
    reason: String,
    message: String,
    /// Message of a `Failed` event about the image.
    event: Option<String>,
    code: &'static str,
    /// Whether it is about the image.
    names: bool,
}

/// Every report of this image.
fn reports(image: &str) -> Vec<Report> {
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

/// What is true of the cluster; each has a command that would be wrong in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cluster {
    Works,
    InAnotherNamespace,
    WithWrongCredentials,
    WithoutReplicas,
    WithoutController,
    WithoutInstallation,
    NotMerged,
    NotValid,
    Immutable,
    BeingDeleted,
    NodeLeftOut,
}

impl Cluster {
    const ALL: [Self; 11] = [
        Self::Works,
        Self::InAnotherNamespace,
        Self::WithWrongCredentials,
        Self::WithoutReplicas,
        Self::WithoutController,
        Self::WithoutInstallation,
        Self::NotMerged,
        Self::NotValid,
        Self::Immutable,
        Self::BeingDeleted,
        Self::NodeLeftOut,
    ];

    fn secrets(self) -> &'static str {
        match self {
            Self::InAnotherNamespace => "team",
            _ => names::NAMESPACE,
        }
    }

    /// Whether `add` writes something that comes into force on the pod's node.
    fn adds(self) -> bool {
        use Cluster::{InAnotherNamespace, WithWrongCredentials, Works};
        matches!(self, Works | InAnotherNamespace | WithWrongCredentials)
    }

    fn code(self, code: &'static str) -> &'static str {
        match (self, code) {
            (Self::WithWrongCredentials, "NoCredentials") => "CredentialsRefused",
            (Self::NotMerged, "NoCredentials") => "NotMerged",
            (_, code) => code,
        }
    }

    fn api(self, objects: &[(String, Value)]) -> FakeApi {
        let registries = Place::ALL.map(|(_, image)| registry_of(image));
        let all: Vec<(&str, &str)> = registries.iter().map(|it| (it.as_str(), AUTH)).collect();
        let content = match self {
            Self::WithWrongCredentials => &all[..],
            _ => &[("other.example.com", AUTH)],
        };
        let additional = match self {
            Self::NotMerged => &all[..],
            Self::NotValid => &[("other.example.com", "x")],
            _ => content,
        };
        let mut additional = secret(additional);
        match self {
            Self::Immutable => additional["immutable"] = json!(true),
            Self::BeingDeleted => {
                additional["metadata"]["finalizers"] = json!(["x/y"]);
                additional["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            _ => {}
        }
        let at = |kind, name: &str| path(kind, name).replace(names::NAMESPACE, self.secrets());
        let mut all = vec![(
            "/api/v1/namespaces/a/secrets/own".to_owned(),
            secret(&[("elsewhere.example.com", AUTH)]),
        )];
        if self != Self::WithoutInstallation {
            all.push((at("secrets", names::GLOBAL_SECRET), in_force(content, &[])));
            all.push((at("secrets", names::ADDITIONAL_SECRET), additional));
            let gps = gps("101", &json!({}), &[("Ready", "True", "Synced")]);
            all.push((at("globalpullsecrets", names::GLOBAL_SECRET), gps));
            if self != Self::WithoutController {
                let replicas = i32::from(self != Self::WithoutReplicas);
                let controller = deployment(self.secrets(), replicas, replicas);
                all.push((path("deployments", names::CONTROLLER), controller));
            }
            if self != Self::NodeLeftOut {
                all.push((at("nodepullsecrets", "node-1"), node("Synced")));
            }
        }
        all.extend_from_slice(objects);
        let all: Vec<(&str, Value)> = all
            .iter()
            .map(|(at, it)| (at.as_str(), it.clone()))
            .collect();
        FakeApi::new(&all)
    }
}

/// Who created the pod, and what `kubectl` may change: a Deployment, nobody, a file of the node.
const OWNERS: [&str; 3] = ["deployment/web", "", "static"];

fn registry_of(image: &str) -> String {
    image.split('/').next().unwrap_or_default().to_owned()
}

/// The pod with this image broken, and its events.
#[expect(clippy::too_many_lines, reason = "one pod")]
fn broken(place: Place, owner: &str, image: &str, report: &Report) -> Vec<(String, Value)> {
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
        // An init container that waits keeps the others from starting.
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
    // An earlier pod of this name had other problems, of which nothing is true any more.
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
        // The sandbox was there in the end.
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

/// What is wrong with a command that is printed.
fn wrong(
    command: &str,
    place: Place,
    image: &str,
    owner: &str,
    cluster: Cluster,
) -> Option<String> {
    let all = programs(command);
    let words: Vec<&str> = all.first()?.iter().map(String::as_str).collect();
    let is_right = match words[..] {
        ["kubectl", "globalps", ref args @ ..] => {
            let args = ["kubectl-globalps"].iter().chain(args).map(OsString::from);
            let cli = match Cli::of(args) {
                Ok(cli) => cli,
                Err(error) => return Some(error.to_string()),
            };
            let is_add = words.contains(&"add");
            let names = words.contains(&registry_of(image).as_str());
            cli.connection.namespace == cluster.secrets()
                && (!is_add || names && cluster.adds() && place != Place::Sandbox)
        }
        ["kubectl", "-n", "a", "set", "image", what, set] => {
            let (container, new) = set.split_once('=').unwrap_or_default();
            let named = if owner.is_empty() { "pod/p" } else { owner };
            matches!(place, Place::Own | Place::Init)
                && what == named
                && place.containers() == [container]
                && (new == "IMAGE" || registry_of(new) == registry_of(image))
        }
        // Nothing else of a pod can change.
        ["kubectl", "-n", "a", "edit", what] => what == owner && place != Place::Debug,
        [] | ["kubectl", "-n", "a", "describe" | "delete", "pod", "p"] => true,
        ["kubectl", "-n", "a", "logs", "p", "-c", of, "--previous"] => {
            place.containers().contains(&of)
        }
        _ => false,
    };
    (!is_right).then(|| format!("the command is wrong: {command}"))
}

#[test]
fn why_names_what_was_broken_and_no_command_that_is_wrong_there() {
    let found: Vec<(usize, Vec<String>)> = std::thread::scope(|scope| {
        let threads = Place::ALL.map(|(place, usual)| scope.spawn(move || judge_all(place, usual)));
        threads
            .map(|thread| thread.join().expect("no panic"))
            .into()
    });
    let all: usize = found.iter().map(|(all, _)| all).sum();
    let failures: Vec<String> = found
        .into_iter()
        .flat_map(|(_, failures)| failures)
        .collect();
    assert!(all > 900, "{all}");
    let shown: Vec<&str> = failures.iter().take(12).map(String::as_str).collect();
    assert!(
        failures.is_empty(),
        "{} of {all}:\n{}",
        failures.len(),
        shown.join("\n")
    );
}

/// How many pods there were, and what `why` says of them that is wrong.
fn judge_all(place: Place, usual: &str) -> (usize, Vec<String>) {
    let mut reports: Vec<(String, Report)> = match place {
        Place::Sandbox => of_sandbox(usual),
        _ => reports(usual)
            .into_iter()
            .map(|it| (usual.to_owned(), it))
            .collect(),
    };
    // A spelling that no kubelet takes.
    for (image, report) in &mut reports {
        if report.reason == "InvalidImageName" {
            let upper = |text: &str| {
                text.replace("/team", "/Team")
                    .replace("/models", "/Models")
                    .replace("/tools", "/Tools")
            };
            (*image, report.message) = (upper(image), upper(&report.message));
        }
    }
    let (mut all, mut failures) = (0, Vec::new());
    for (at, (image, report)) in reports.iter().enumerate() {
        // Each report in two clusters; what a missing credential advises in all of them.
        let is_plain = report.code == "NoCredentials" && report.reason == "ErrImagePull";
        let turns = if is_plain && report.event.is_some() {
            Cluster::ALL.len()
        } else {
            2
        };
        for turn in 0..turns {
            let cluster = Cluster::ALL[(at + turn * 4) % Cluster::ALL.len()];
            let owner = OWNERS[(at + turn) % OWNERS.len()];
            let api = cluster.api(&broken(place, owner, image, report));
            all += 1;
            let mut found = judge(&api, place, image, report, owner, cluster);
            if turn == 0 {
                found.extend(judge_list(&api, place, image, report, cluster));
            }
            if !found.is_empty() {
                let found = found.join("\n  ");
                failures.push(format!(
                    "{place:?} {owner} {cluster:?} {report:?}\n  {found}"
                ));
            }
        }
    }
    (all, failures)
}

fn of_sandbox(image: &str) -> Vec<(String, Report)> {
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

fn judge(
    api: &FakeApi,
    place: Place,
    image: &str,
    report: &Report,
    owner: &str,
    cluster: Cluster,
) -> Vec<String> {
    let mut found = Vec::new();
    let code = expected_code(place, report, cluster);
    let expected = if report.names || code == "NotAnImage" {
        Exit::No
    } else {
        Exit::Done
    };
    let (ran, [out, err]) = api.printed("why a/p --no-ask -o json");
    if ran != Ok(expected) {
        return vec![format!("{ran:?} {err}")];
    }
    let answer: Value = serde_json::from_str(&out).unwrap_or_default();
    if answer["cause"]["code"] != code {
        found.push(format!("the cause is {}, not {code}", answer["cause"]));
    }
    let containers = answer["containers"].as_array().cloned().unwrap_or_default();
    let number = if report.names {
        place.containers().len().max(1)
    } else {
        0
    };
    if containers.len() != number {
        found.push(format!(
            "{} containers instead of {number}",
            containers.len()
        ));
    }
    for container in &containers {
        if container["image"] != image {
            found.push(format!("it names {}", container["image"]));
        }
        let registry = container["cause"]["registry"].as_str().unwrap_or_default();
        if registry != registry_of(image) && code != "InvalidImageName" {
            found.push(format!("it names the registry `{registry}`"));
        }
        let command = container["cause"]["command"].as_str().unwrap_or_default();
        found.extend(wrong(command, place, image, owner, cluster));
        let is_needed = ["NoCredentials", "CredentialsRefused"].contains(&code) && cluster.adds();
        if is_needed && !command.contains(" add ") {
            found.push(format!("no command: {container}"));
        }
    }
    found.extend(wrong(
        answer["cause"]["command"].as_str().unwrap_or_default(),
        place,
        image,
        owner,
        cluster,
    ));
    found
}

fn expected_code(place: Place, report: &Report, cluster: Cluster) -> &'static str {
    match place {
        Place::Sandbox => report.code,
        _ => cluster.code(report.code),
    }
}

fn judge_list(
    api: &FakeApi,
    place: Place,
    image: &str,
    report: &Report,
    cluster: Cluster,
) -> Option<String> {
    let code = expected_code(place, report, cluster);
    let (ran, [out, err]) = api.printed("why -A --no-ask -o json");
    let groups: Value = serde_json::from_str(&out).unwrap_or_default();
    let of_all = &groups["groups"][0];
    // The list reads no events of pulls: the message of an old kubelet has no cause.
    let is_lost = report.message == format!("Back-off pulling image \"{image}\"");
    let is_wrong = ran.is_err() || report.names && !is_lost && of_all["code"] != code;
    is_wrong.then(|| format!("-A: {ran:?} {of_all} {err}"))
}
