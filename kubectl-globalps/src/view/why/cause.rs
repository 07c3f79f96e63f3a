//! The likely cause, and the command that fixes it. Pure.

use globalps_core::api::{GlobalPullSecret, Phase};
use globalps_registry::{Pull, RegistryError};
use serde::Serialize;

use super::commands::{Login, add, go_back, widen};
use super::facts::{Lag, PodSeen};
use super::failing::{Failing, Said};
use crate::registry::{Purpose, failure, missing_flag};
use crate::secret::tried::{Origin, Tried};

/// Scripts rely on these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Code {
    NoCredentials,
    CredentialsRefused,
    ImageNotFound,
    RegistryUnreachable,
    NodeNotSynced,
    OutsideScope,
    RateLimited,
    InvalidImageName,
    ImageNeverPulled,
    /// The cause is gone; the kubelet tries again later.
    WaitsForRetry,
    NotAnImage,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cause {
    pub code: Code,
    /// Empty: none.
    pub registry: String,
    /// One sentence in lower case, without a full stop.
    pub message: String,
    /// The one command to run; empty: no command of the cluster fixes it.
    pub command: String,
    /// What else to know, or to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

/// A credential, and what the registry answers to it; `None`: it was not asked.
pub(crate) struct Tested<'a> {
    pub tried: &'a Tried,
    pub answer: Option<Result<Pull, RegistryError>>,
}

impl Tested<'_> {
    fn is(&self, pull: Pull) -> bool {
        matches!(&self.answer, Some(Ok(found)) if *found == pull)
    }

    fn is_refused(&self) -> bool {
        matches!(&self.answer, Some(Err(error)) if error.is_refusal())
    }
}

/// Everything that the cause is judged by.
pub(crate) struct Evidence<'a> {
    pub pod: &'a PodSeen,
    pub failing: &'a Failing,
    pub registry: &'a str,
    pub repository: &'a str,
    /// In the kubelet's order.
    pub tries: &'a [Tested<'a>],
    /// What the registry answers without credentials, where there are none.
    pub anonymous: Option<&'a Result<Pull, RegistryError>>,
    /// A source that has a credential for other pods only, and who it is for.
    pub excluding: Option<(&'a str, &'a str)>,
    pub lag: Option<&'a Lag>,
    pub gps: Option<&'a GlobalPullSecret>,
    /// Namespace of the pull secrets.
    pub secrets: &'a str,
    /// The newest revision whose additional pull secret has another credential for the image.
    pub earlier: Option<i64>,
    /// The flag that the registries were asked with, `--insecure` or `--ca-file FILE`; may be empty.
    pub asked_with: &'a str,
}

impl Evidence<'_> {
    pub(crate) fn cause(&self) -> Cause {
        let answers = self.tries.iter().filter_map(|tried| tried.answer.as_ref());
        let mut answers = answers.chain(self.anonymous);
        let is_limited = |answer: &Result<Pull, RegistryError>| {
            matches!(answer, Err(RegistryError::Answer { status: 429, .. }))
        };
        let has = |pull| {
            let is = |answer: &&Result<Pull, RegistryError>| matches!(answer, Ok(found) if *found == pull);
            self.tries.iter().any(|tried| tried.is(pull)) || self.anonymous.as_ref().is_some_and(is)
        };
        match self.failing.said() {
            Said::InvalidName => return self.invalid_name(),
            Said::NeverPulled => return self.never_pulled(),
            Said::RateLimited => return self.rate_limited(),
            Said::Unreachable => return self.unreachable(&self.failing.message),
            _ if answers.any(is_limited) => return self.rate_limited(),
            Said::Missing if !has(Pull::Available) => return self.not_found(),
            _ if has(Pull::Missing) && !has(Pull::Available) => return self.not_found(),
            _ => {}
        }
        let has_own = self.tries.iter().any(|it| it.tried.origin.is_delivered());
        if let (Some(lag), true) = (self.lag, has_own)
            && !self.tries.iter().all(Tested::is_refused)
        {
            return self.not_synced(lag);
        }
        if has(Pull::Available) {
            return self.waits();
        }
        match (self.tries, self.excluding) {
            ([], Some((source, who))) => return self.outside_scope(source, who),
            ([], None) if self.failing.said() == Said::Denied => return self.no_credentials(),
            ([], None) if self.anonymous.is_some_and(is_refusal) => return self.no_credentials(),
            (tries, _) => {
                let refused = tries.iter().find(|tried| tried.is_refused());
                let said = self.failing.said() == Said::Denied;
                if let Some(refused) = refused.or(tries.first().filter(|_| said)) {
                    return self.refused(refused);
                }
            }
        }
        let errors = self.tries.iter().filter_map(|tried| tried.answer.as_ref());
        match errors
            .chain(self.anonymous)
            .find_map(|it| it.as_ref().err())
        {
            Some(error) => {
                let failure = failure(error, self.registry, Purpose::Look);
                let cause = self.unreachable(&failure.message);
                if missing_flag(error).is_some() {
                    Cause {
                        hint: failure.hint,
                        ..cause
                    }
                } else {
                    cause
                }
            }
            None => self.unknown(),
        }
    }

    fn of(&self, code: Code, message: String, command: String, hint: &str) -> Cause {
        Cause {
            code,
            registry: self.registry.to_owned(),
            message,
            command,
            hint: hint.to_owned(),
        }
    }

    fn add(&self, login: &Login<'_>) -> String {
        let answers = self.tries.iter().filter_map(|tried| tried.answer.as_ref());
        let mut errors = answers
            .chain(self.anonymous)
            .filter_map(|it| it.as_ref().err());
        let flag = errors.find_map(missing_flag);
        add(login, flag.unwrap_or(self.asked_with))
    }

    fn no_credentials(&self) -> Cause {
        let registry = self.registry;
        self.of(
            Code::NoCredentials,
            format!("the node has no credentials for `{registry}`, which needs a login"),
            self.add(&Login::new(registry)),
            "it asks for the password; every pod of the cluster can then pull with it. For some namespaces only: `--source` and `--only-namespaces`",
        )
    }

    fn refused(&self, tested: &Tested<'_>) -> Cause {
        let Tried {
            key,
            username,
            source,
            origin,
            ..
        } = tested.tried;
        let from = if source.is_empty() {
            "the node"
        } else {
            source
        };
        let message = match &tested.answer {
            Some(Err(RegistryError::Refused { status, .. })) => format!(
                "`{}` rejects user `{username}` of entry `{key}` in {from} ({status})",
                self.registry
            ),
            _ => format!(
                "`{}` rejects the node's credentials: user `{username}`, from {from}",
                self.registry
            ),
        };
        let login = Login {
            user: username,
            ..Login::new(key)
        };
        let (command, hint) = match origin {
            Origin::Globalps => {
                let hint = "it asks for the password and checks it first";
                let hint = match self.earlier {
                    Some(revision) => format!("{hint}; {}", go_back(revision)),
                    None => hint.to_owned(),
                };
                let command = self.add(&login);
                return self.of(Code::CredentialsRefused, message, command, &hint);
            }
            Origin::Scoped(source) => (
                self.add(&Login { source, ..login }),
                "it asks for the password and checks it first; the scope stays",
            ),
            Origin::Catalog(namespace, name) => (
                format!("kubectl -n {namespace} edit secret {name}"),
                "the pod's Secret is a copy that globalps keeps: put the new credentials into `.dockerconfigjson` of the catalog's pull secret, and globalps copies them",
            ),
            Origin::Pod => {
                let name = source.strip_prefix("Secret ").unwrap_or(source);
                let name = name.split([',', ' ']).next().unwrap_or(name);
                let (namespace, name) = name.split_once('/').unwrap_or((&self.pod.namespace, name));
                (
                    format!("kubectl -n {namespace} edit secret {name}"),
                    "the Secret belongs to the namespace; put the new credentials into `.dockerconfigjson`",
                )
            }
        };
        self.of(Code::CredentialsRefused, message, command, hint)
    }

    fn not_found(&self) -> Cause {
        let PodSeen {
            namespace,
            workload,
            ..
        } = self.pod;
        let Failing {
            container, image, ..
        } = self.failing;
        self.of(
            Code::ImageNotFound,
            format!("`{}` has no image `{image}` (404)", self.registry),
            format!("kubectl -n {namespace} set image {workload} {container}={}:TAG", self.repository),
            "push the image, or name an existing one. Some registries also answer 404 to users who may not see the repository",
        )
    }

    fn unreachable(&self, why: &str) -> Cause {
        let node = match self.pod.node.as_str() {
            "" => "the node".to_owned(),
            node => format!("`{node}`"),
        };
        self.of(
            Code::RegistryUnreachable,
            format!("`{}` can't be reached, or its certificate is not trusted: {why}", self.registry),
            String::new(),
            &format!("credentials don't fix it: check DNS, firewall, proxy and certificate authorities of {node} for `{}`", self.registry),
        )
    }

    fn rate_limited(&self) -> Cause {
        let registry = self.registry;
        let (command, hint) = if self.tries.is_empty() {
            (
                self.add(&Login::new(registry)),
                "a user with a login has a higher limit; the kubelet also tries again by itself",
            )
        } else {
            (
                String::new(),
                "wait: the kubelet tries again by itself; use an account with a higher limit, or a mirror",
            )
        };
        let message = format!("`{registry}` limits the rate of pulls (429)");
        self.of(Code::RateLimited, message, command, hint)
    }

    fn invalid_name(&self) -> Cause {
        let PodSeen {
            namespace,
            workload,
            ..
        } = self.pod;
        let Failing {
            container, image, ..
        } = self.failing;
        self.of(
            Code::InvalidImageName,
            format!("`{image}` is not an image name"),
            format!("kubectl -n {namespace} set image {workload} {container}=IMAGE"),
            "",
        )
    }

    fn never_pulled(&self) -> Cause {
        let image = &self.failing.image;
        self.of(
            Code::ImageNeverPulled,
            format!("`imagePullPolicy` is `Never`, and the node does not have `{image}`"),
            format!(
                "kubectl -n {} edit {}",
                self.pod.namespace, self.pod.workload
            ),
            "set `imagePullPolicy: IfNotPresent`",
        )
    }

    fn not_synced(&self, lag: &Lag) -> Cause {
        let node = &self.pod.node;
        let (command, hint) = match lag.phase {
            Phase::Failed | Phase::RolledBack => (
                format!("kubectl globalps retry {node} --wait"),
                "`kubectl globalps status` has the reason: fix it first",
            ),
            _ if lag.is_paused => ("kubectl globalps resume --wait".to_owned(), ""),
            _ => (
                format!("kubectl globalps status --node {node} --wait"),
                "the rollout reaches it; `kubectl globalps check` shows what is in its way",
            ),
        };
        let message = format!(
            "node `{node}` is {} with revision {} of {}",
            lag.phase, lag.revision, lag.wanted
        );
        self.of(Code::NodeNotSynced, message, command, hint)
    }

    fn outside_scope(&self, source: &str, who: &str) -> Cause {
        let PodSeen {
            namespace,
            service_account,
            ..
        } = self.pod;
        let message = format!(
            "source `{source}` has a credential for `{}`, but only for {who}, not for service account `{service_account}` of `{namespace}`",
            self.registry
        );
        let command = self
            .gps
            .and_then(|gps| widen(gps, source, self.pod, self.secrets));
        let command = command.unwrap_or_default();
        let hint = "adds the pod to the scope, if it may use these credentials";
        self.of(Code::OutsideScope, message, command, hint)
    }

    fn waits(&self) -> Cause {
        let PodSeen {
            namespace, name, ..
        } = self.pod;
        self.of(
            Code::WaitsForRetry,
            format!("`{}` gives out the image by now, asked from this machine", self.registry),
            format!("kubectl -n {namespace} delete pod {name}"),
            "only if a controller recreates it; the kubelet also tries again by itself, after 5 min at the latest. If it keeps failing, the node has other credentials or another way to the registry",
        )
    }

    fn unknown(&self) -> Cause {
        let PodSeen {
            namespace, name, ..
        } = self.pod;
        self.of(
            Code::Unknown,
            format!(
                "the kubelet says {}: {}",
                self.failing.reason, self.failing.message
            ),
            format!("kubectl -n {namespace} describe pod {name}"),
            "the message is not one that globalps knows",
        )
    }
}

fn is_refusal(answer: &Result<Pull, RegistryError>) -> bool {
    matches!(answer, Err(error) if error.is_refusal())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::pull::{Answer, Asked, Keyring};
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

    /// Of the pod, or of the nodes' file.
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
            "metadata": {"namespace": "a", "name": "p"},
            "spec": {"containers": [], "nodeName": "node-1", "serviceAccountName": "ci"},
        });
        PodSeen::of(&serde_json::from_value(pod).expect("a pod"))
    }

    fn failing(message: &str) -> Failing {
        Failing {
            container: "c".to_owned(),
            image: "quay.io/org/app:1".to_owned(),
            reason: "ErrImagePull".to_owned(),
            message: message.to_owned(),
        }
    }

    const ADD: &str = "kubectl globalps add quay.io -u USER --wait --retry-pods";
    /// For the user whose credentials are rejected.
    const AGAIN: &str = "kubectl globalps add quay.io -u u --wait --retry-pods";

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table of cases")]
    fn each_cause_has_the_one_command_that_fixes_it() {
        let denied = "401 Unauthorized";
        let own = "kubectl -n a edit secret own";
        let set = "kubectl -n a set image pod/p c=quay.io/org/app:TAG";
        // Message, credential (none, of the pod, of the nodes), the registry's answer, and whether the node lags.
        for (message, credential, found, lags, code, command) in [
            (denied, None, None, false, Code::NoCredentials, ADD),
            (
                denied,
                None,
                Some(refused()),
                false,
                Code::NoCredentials,
                ADD,
            ),
            ("?", None, Some(refused()), false, Code::NoCredentials, ADD),
            (
                denied,
                Some(false),
                None,
                false,
                Code::CredentialsRefused,
                AGAIN,
            ),
            (
                denied,
                Some(false),
                Some(refused()),
                false,
                Code::CredentialsRefused,
                AGAIN,
            ),
            (
                denied,
                Some(false),
                Some(refused()),
                true,
                Code::CredentialsRefused,
                AGAIN,
            ),
            (
                denied,
                Some(true),
                Some(refused()),
                false,
                Code::CredentialsRefused,
                own,
            ),
            (
                "manifest unknown",
                Some(false),
                None,
                false,
                Code::ImageNotFound,
                set,
            ),
            (
                denied,
                Some(false),
                Some(Ok(Pull::Missing)),
                false,
                Code::ImageNotFound,
                set,
            ),
            (
                denied,
                Some(false),
                Some(Ok(Pull::Available)),
                true,
                Code::NodeNotSynced,
                "kubectl globalps retry node-1 --wait",
            ),
            (
                denied,
                Some(false),
                Some(Ok(Pull::Available)),
                false,
                Code::WaitsForRetry,
                "kubectl -n a delete pod p",
            ),
            (
                "x509: unknown authority",
                Some(false),
                Some(Ok(Pull::Available)),
                false,
                Code::RegistryUnreachable,
                "",
            ),
            (
                "429 Too Many Requests",
                None,
                None,
                false,
                Code::RateLimited,
                ADD,
            ),
            (
                "?",
                Some(false),
                Some(limited()),
                false,
                Code::RateLimited,
                "",
            ),
            (
                "?",
                None,
                None,
                false,
                Code::Unknown,
                "kubectl -n a describe pod p",
            ),
        ] {
            let (pod, failing) = (seen(), failing(message));
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
            });
            let evidence = Evidence {
                pod: &pod,
                failing: &failing,
                registry: "quay.io",
                repository: "quay.io/org/app",
                tries: &tries,
                anonymous: found.as_ref().filter(|_| tries.is_empty()),
                excluding: None,
                lag: lag.as_ref(),
                gps: None,
                secrets: "kube-system",
                earlier: None,
                asked_with: "",
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
            let evidence = Evidence {
                pod: &pod,
                failing: &failing,
                registry: "quay.io",
                repository: "quay.io/org/app",
                tries: &[],
                anonymous: None,
                excluding: Some(("team", "pods of b")),
                lag: None,
                gps: Some(&gps),
                secrets: "kube-system",
                earlier: None,
                asked_with: "",
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
            let evidence = Evidence {
                pod: &seen(),
                failing: &failing("401 Unauthorized"),
                registry: "quay.io",
                repository: "quay.io/org/app",
                tries: &tested,
                anonymous: None,
                excluding: None,
                lag: None,
                gps: None,
                secrets: "kube-system",
                earlier: None,
                asked_with: "",
            };
            assert_eq!(evidence.cause().command, expected);
        }
    }

    #[test]
    fn the_command_checks_the_registry_as_it_can_be_checked_from_here() {
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
            let evidence = Evidence {
                pod: &seen(),
                failing: &failing("401 Unauthorized"),
                registry: "quay.io",
                repository: "quay.io/org/app",
                tries: &[],
                anonymous: Some(&found),
                excluding: None,
                lag: None,
                gps: None,
                secrets: "kube-system",
                earlier: None,
                asked_with,
            };
            assert_eq!(
                evidence.cause().command,
                format!("kubectl globalps add quay.io -u USER{flag} --wait --retry-pods")
            );
        }
    }
}
