//! What `check`, `explain` and `why` find in sample clusters, as `diagnosis.txt` has it: where they disagree, one is wrong.

use globalps_core::names;
use globalps_core::state::{restore_meant, sources_removed};
use globalps_provider::{Delivery, ProviderConfig, ScopedConfig, render_scoped};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::golden::{assert_on_record, changed, transcript};
use super::why::{owned, pod, registry};
use super::{AUTH, OTHER_AUTH, deployment, gps, in_force, node, secret};
use crate::testing::examples::sample;
use crate::testing::fake_api::{FakeApi, path};

/// Command lines on a sample cluster. `REGISTRY` is a registry that accepts one login, whose address the cluster gets.
struct Case {
    title: &'static str,
    api: fn(&str) -> FakeApi,
    lines: &'static [&'static str],
}

const LINES: &[&str] = &[
    "check",
    "explain quay.io/team/app:1",
    "explain quay.io/team/app:1 --pod a/p",
    "explain quay.io/team/app:1 --service-account a/ci",
    "why a/p --no-ask",
    "why -A --no-ask",
];
const OF_POD: &[&str] = &[
    "check",
    "explain quay.io/team/app:1 --pod a/p",
    "why a/p --no-ask",
    "why -A --no-ask",
];
const IMAGE: &str = "quay.io/team/app:1";
const POD: &str = "/api/v1/namespaces/a/pods/p";
const NAMESPACE: &str = "/api/v1/namespaces/a";
const OF_NAMESPACE: &str = "/api/v1/namespaces/a/secrets/global-pull-secret";
const POLICY: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/globalps-image-pull-secrets";
const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/globalps-system/leases/globalps-controller";
const DAEMON_SET: &str =
    "/apis/apps/v1/namespaces/kube-system/daemonsets/global-pull-secret-syncer";

const CASES: [Case; 21] = [
    Case {
        title: "the pod runs",
        api: |_| installed(&json!({}), &[(POD, running())]),
        lines: LINES,
    },
    Case {
        title: "no credential for the registry",
        api: |_| installed(&json!({}), &[(POD, waiting("ghcr.io/team/app:1", DENIED))]),
        lines: &[
            "check",
            "explain ghcr.io/team/app:1",
            "explain ghcr.io/team/app:1 --pod a/p",
            "explain ghcr.io/team/app:1 --service-account a/ci",
            "why a/p --no-ask",
            "why -A --no-ask",
        ],
    },
    Case {
        title: "the registry rejects the password",
        api: |registry| {
            let image = format!("{registry}/team/app:1");
            let pod = waiting(&image, DENIED);
            cluster(&[(registry, OTHER_AUTH)], &json!({}), &[(POD, pod)])
        },
        lines: &[
            "check --registries --insecure",
            "explain REGISTRY/team/app:1",
            "explain REGISTRY/team/app:1 --pod a/p",
            "why a/p --insecure",
            "why a/p --insecure -o json",
            "why -A --insecure",
        ],
    },
    Case {
        title: "the node is not synced yet",
        api: |_| {
            let status = json!({"status": {"revision": 2, "phase": "Syncing"}});
            let node = path("nodepullsecrets", "node-1");
            installed(
                &json!({}),
                &[(&node, status), (POD, waiting(IMAGE, DENIED))],
            )
        },
        lines: LINES,
    },
    Case {
        title: "the node failed",
        api: |_| {
            let status =
                json!({"status": {"revision": 2, "phase": "Failed", "reason": "KubeletDown"}});
            let node = path("nodepullsecrets", "node-1");
            installed(
                &json!({}),
                &[(&node, status), (POD, waiting(IMAGE, DENIED))],
            )
        },
        lines: LINES,
    },
    Case {
        title: "the pod has no reference to the Secret of its namespace",
        api: |_| delivered(&[(POD, waiting(IMAGE, DENIED))]),
        lines: &[
            "check",
            "explain quay.io/team/app:1",
            "explain quay.io/team/app:1 --pod a/p",
            "explain quay.io/team/app:1 --pod a/p -o json",
            "explain quay.io/team/app:1 --service-account a/ci",
            "why a/p --no-ask",
            "why a/p --no-ask -o json",
            "why -A --no-ask",
            "why -A --no-ask -o json",
        ],
    },
    Case {
        title: "the pod has no reference, and no controller recreates it",
        api: |_| {
            let pod = pod(IMAGE, &json!({"spec": {"imagePullSecrets": null}}));
            delivered(&[(POD, pod)])
        },
        lines: OF_POD,
    },
    Case {
        title: "the service account has no reference",
        api: |_| {
            let by_accounts = json!({
                "spec": {"imagePullSecrets": {"attach": "ServiceAccounts"}},
                "status": {"imagePullSecrets": {"attach": "ServiceAccounts"}},
            });
            delivered(&[
                (&configuration(), by_accounts),
                (POD, waiting(IMAGE, DENIED)),
            ])
        },
        lines: LINES,
    },
    Case {
        title: "the password in the Secret of the namespace is wrong",
        api: |_| {
            let reference = json!({"spec": {"imagePullSecrets": [{"name": names::GLOBAL_SECRET}]}});
            let mut pod = waiting(IMAGE, DENIED);
            json_patch::merge(&mut pod, &reference);
            delivered(&[(POD, pod)])
        },
        lines: OF_POD,
    },
    Case {
        title: "pods without a reference wait for an image that does not exist",
        api: |_| {
            let image = "quay.io/team/gone:1";
            delivered(&[
                (POD, waiting(IMAGE, DENIED)),
                (
                    "/api/v1/namespaces/a/pods/missing",
                    waiting(image, "quay.io/team/gone:1: not found"),
                ),
            ])
        },
        lines: &[
            "check",
            "explain quay.io/team/gone:1 --pod a/missing",
            "why a/missing --no-ask",
            "why -A --no-ask",
        ],
    },
    Case {
        title: "a kubelet can't read the pod's own Secret",
        api: |_| {
            let own = json!({
                "metadata": {}, "type": names::SECRET_TYPE,
                "data": {names::DATA_KEY: ByteString(b"{\"auths\":[]}".to_vec())},
            });
            let reference = json!({"spec": {"imagePullSecrets": [{"name": "own"}]}});
            let mut pod = waiting(IMAGE, DENIED);
            json_patch::merge(&mut pod, &reference);
            let own = ("/api/v1/namespaces/a/secrets/own", own);
            installed(&json!({}), &[own, (POD, pod)])
        },
        lines: LINES,
    },
    Case {
        title: "the scope of the source does not cover the namespace",
        api: |_| scoped(&[(POD, waiting(IMAGE, DENIED))]),
        lines: LINES,
    },
    Case {
        title: "the namespace is terminating",
        api: |_| {
            let ends = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
            delivered(&[(NAMESPACE, ends), (POD, waiting(IMAGE, DENIED))])
        },
        lines: LINES,
    },
    Case {
        title: "the namespace is terminating, and nodes get the credentials",
        api: |_| {
            let ends = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
            let pod = waiting("ghcr.io/team/app:1", DENIED);
            installed(&json!({}), &[(NAMESPACE, ends), (POD, pod)])
        },
        lines: OF_POD,
    },
    Case {
        title: "no controller leads",
        api: |_| {
            let released = json!({"spec": {"holderIdentity": ""}});
            installed(
                &json!({}),
                &[
                    (LEASE, released),
                    (POD, waiting("ghcr.io/team/app:1", DENIED)),
                ],
            )
        },
        lines: STATUS_TOO,
    },
    Case {
        title: "the Lease ended 30 s ago",
        api: |_| renewed_before(45),
        lines: STATUS_TOO,
    },
    Case {
        title: "the Lease ended 5 min ago",
        api: |_| renewed_before(315),
        lines: STATUS_TOO,
    },
    Case {
        title: "the admission policy is missing",
        api: |_| delivered(&[(POD, waiting(IMAGE, DENIED))]).without(POLICY),
        lines: LINES,
    },
    Case {
        title: "the controller holds the removal of the last source",
        api: |_| held(&[]),
        lines: OF_POD,
    },
    Case {
        title: "`remove --all` says that the removal is meant",
        api: |_| {
            let meant = json!({names::RESTORE_ANNOTATION: restore_meant("gps-1", 2)});
            held(&[(
                &configuration(),
                json!({"metadata": {"annotations": meant}}),
            )])
        },
        lines: OF_POD,
    },
    Case {
        title: "another spelling of the image",
        api: |_| {
            let auths = [("https://index.docker.io/v1/", AUTH)];
            cluster(&auths, &json!({}), &[(POD, waiting("nginx:1", DENIED))])
        },
        lines: &[
            "explain nginx:1 --pod a/p",
            "explain library/nginx:1 --pod a/p",
            "explain docker.io/library/nginx:1 --pod a/p",
            "explain index.docker.io/library/nginx:1 --pod a/p",
            "explain docker.io/library/nginx:2 --pod a/p",
            "why a/p --no-ask",
        ],
    },
];

/// With the judgement of `status`, which is about the same Lease.
const STATUS_TOO: &[&str] = &["check", "status", "why a/p --no-ask", "why -A --no-ask"];

const DENIED: &str = "401 Unauthorized";

fn configuration() -> String {
    path("globalpullsecrets", names::GLOBAL_SECRET)
}

/// A pod of a Deployment that waits for its image.
fn waiting(image: &str, message: &str) -> Value {
    let mut pod = pod(image, &owned());
    let patch = json!({"spec": {"imagePullSecrets": null}});
    json_patch::merge(&mut pod, &patch);
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"] = json!(message);
    pod
}

fn running() -> Value {
    let mut pod = waiting(IMAGE, "");
    let patch = json!({"status": {"phase": "Running", "containerStatuses": null}});
    json_patch::merge(&mut pod, &patch);
    pod
}

/// An installation with credentials for `quay.io` on one node. `spec`: of the `GlobalPullSecret`.
fn installed(spec: &Value, changes: &[(&str, Value)]) -> FakeApi {
    cluster(&[("quay.io", AUTH)], spec, changes)
}

fn cluster(auths: &[(&str, &str)], spec: &Value, changes: &[(&str, Value)]) -> FakeApi {
    let sample = sample();
    let of_sample = |path: &str| sample.object(path).expect("an object of the sample");
    let api = FakeApi::new(&[
        (&path("secrets", names::ADDITIONAL_SECRET), secret(auths)),
        (&path("secrets", names::GLOBAL_SECRET), in_force(auths, &[])),
        (
            &configuration(),
            gps("101", spec, &[("Ready", "True", "Synced")]),
        ),
        (&path("nodepullsecrets", "node-1"), node("Synced")),
        (&path("nodes", "node-1"), json!({"metadata": {}})),
        (
            &path("deployments", names::CONTROLLER),
            deployment(names::NAMESPACE, 1, 1),
        ),
        (LEASE, of_sample(LEASE)),
        (DAEMON_SET, of_sample(DAEMON_SET)),
        (NAMESPACE, json!({"metadata": {}})),
        (
            "/api/v1/namespaces/a/serviceaccounts/ci",
            json!({"metadata": {}}),
        ),
    ]);
    changed(api, changes.iter().cloned())
}

/// Namespaces get the credentials, and nodes none.
fn delivered(changes: &[(&str, Value)]) -> FakeApi {
    let spec = json!({
        "kubelet": {"delivery": "None"},
        "imagePullSecrets": {"enabled": true, "attach": "Admission"},
    });
    let status = json!({"status": {"imagePullSecrets": {
        "secretName": names::GLOBAL_SECRET, "attach": "Admission", "total": 1, "synced": 1,
    }}});
    let of_sample = sample().object("/api/v1/namespaces/team-a/secrets/global-pull-secret");
    let rules = json!({"metadata": {}, "rules": [
        {"verbs": ["patch"], "resources": ["secrets"], "resourceNames": [names::GLOBAL_SECRET]},
        {"verbs": ["patch"], "resources": ["serviceaccounts"]},
    ]});
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let name = names::IMAGE_PULL_SECRETS;
    let there = || json!({"metadata": {}});
    let api = installed(&spec, &[])
        .without(&path("nodepullsecrets", "node-1"))
        .with_object(POLICY, there())
        .with_object(
            &format!("{policies}/mutatingadmissionpolicybindings/{name}"),
            there(),
        )
        .with_object(&format!("{rbac}/clusterroles/{name}"), rules)
        .with_object(&format!("{rbac}/clusterrolebindings/{name}"), there())
        .with_object(OF_NAMESPACE, of_sample.expect("a Secret of the sample"));
    let changes = changes.iter().cloned();
    changed(
        api,
        std::iter::once((&*configuration(), status)).chain(changes),
    )
}

/// A source for other namespaces has the credential.
fn scoped(changes: &[(&str, Value)]) -> FakeApi {
    let scope = json!({"namespaces": ["team-*"]});
    let spec = json!({
        "kubelet": {"delivery": "CredentialProvider"}, "sources": [{"name": "team", "scope": scope}],
    });
    let content = secret(&[("quay.io", AUTH)]);
    let bytes: ByteString =
        serde_json::from_value(content["data"][names::DATA_KEY].clone()).expect("bytes");
    let of_source = [ScopedConfig {
        source: "team".to_owned(),
        scope: serde_json::from_value(scope).expect("a scope"),
        config: globalps_dockerconfig::parse(&bytes.0).expect("credentials"),
    }];
    let provider = Delivery::CredentialProvider(ProviderConfig::default());
    let mut global = in_force(&[("ghcr.io", AUTH)], &[]);
    global["data"][names::SCOPED_KEY] = json!(ByteString(render_scoped(&of_source)));
    global["metadata"]["annotations"][names::DELIVERY_ANNOTATION] =
        json!(json!(provider).to_string());
    let api = cluster(&[("ghcr.io", AUTH)], &spec, &[])
        .with_object(&path("secrets", names::GLOBAL_SECRET), global)
        .with_object(&path("secrets", "team"), content);
    changed(api, changes.iter().cloned())
}

fn renewed_before(seconds: i64) -> FakeApi {
    let at = Timestamp::now() - SignedDuration::from_secs(seconds);
    let at = at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let pod = waiting("ghcr.io/team/app:1", DENIED);
    let lease = json!({"spec": {"renewTime": at}});
    installed(&json!({}), &[(LEASE, lease), (POD, pod)])
}

/// The source that is in force is no longer in the spec.
fn held(changes: &[(&str, Value)]) -> FakeApi {
    let message = sources_removed("`team`");
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "False", "reason": "Held", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let status = json!({"metadata": {"generation": 2}, "status": {
        "observedGeneration": 2, "observedAdditional": "",
        "conditions": [condition("Ready"), condition("Progressing")],
    }});
    let api = installed(&json!({}), &[(&configuration(), status)])
        .without(&path("secrets", names::ADDITIONAL_SECRET))
        .with_object(&path("secrets", "team"), secret(&[("quay.io", AUTH)]))
        .with_object(POD, waiting("ghcr.io/team/app:1", DENIED));
    changed(api, changes.iter().cloned())
}

/// `UPDATE_DIAGNOSIS` writes the file.
#[test]
fn check_explain_and_why_find_what_is_on_record() {
    let registry = registry();
    let of_case = |case: &Case| {
        let lines = case.lines.iter();
        let of_line = |line: &&str| {
            let line = line.replace("REGISTRY", &registry);
            let text = transcript(&(case.api)(&registry), &line, String::new);
            text.replace(&registry, "REGISTRY")
        };
        (case.title, lines.map(of_line).collect())
    };
    assert_on_record("diagnosis", CASES.iter().map(of_case));
}
