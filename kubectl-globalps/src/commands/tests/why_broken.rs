//! Pods that fail in every way that a kubelet reports: `why` names the broken image, the cause, and no command that is
//! wrong in that cluster.

use std::ffi::OsString;

use super::broken_pods::{OWNERS, Place, Report, broken, of_sandbox, registry_of, reports};
use super::*;
use crate::cli::Cli;
use crate::testing::fake_api::Fault;
use crate::testing::printed::programs;

/// A state of the cluster in which some command would be wrong.
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

    /// Whether `add` comes into force on the pod's node.
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
        let api = FakeApi::new(&all);
        if self != Self::WithoutInstallation {
            return api;
        }
        // Its kinds don't exist.
        let requests = ["get /apis/globalps.io", "list /apis/globalps.io"];
        let all = requests.into_iter();
        all.fold(api, |api, request| {
            api.with_fault(request, Fault::Code(404), usize::MAX)
        })
    }
}

/// What is wrong with a printed command.
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
            cli.connection.pull_secret_namespace == cluster.secrets()
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
        // Nothing else of a pod is mutable.
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

/// The number of pods, and what `why` gets wrong about them.
fn judge_all(place: Place, usual: &str) -> (usize, Vec<String>) {
    let mut reports: Vec<(String, Report)> = match place {
        Place::Sandbox => of_sandbox(usual),
        _ => reports(usual)
            .into_iter()
            .map(|it| (usual.to_owned(), it))
            .collect(),
    };
    // A spelling that no kubelet accepts.
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
        // Each report is tried in two clusters, the advice for a missing credential in all of them.
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
    // The list reads no events of pulls, so an old kubelet's message has no cause.
    let is_lost = report.message == format!("Back-off pulling image \"{image}\"");
    let is_wrong = ran.is_err() || report.names && !is_lost && of_all["code"] != code;
    is_wrong.then(|| format!("-A: {ran:?} {of_all} {err}"))
}
