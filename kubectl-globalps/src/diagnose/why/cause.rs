//! The likely cause, and the command that fixes it. Pure.

use globalps_registry::{Pull, RegistryError, public_images, registry_name};
use serde::Serialize;

use super::adding::Adding;
use super::commands::{CommandTarget, go_back, widen};
use super::facts::{Lag, PodSeen};
use super::failing::{Failing, Said, Use};
use crate::diagnose::tried::{NoReference, Origin, Tried};
use crate::registry::{Purpose, failure, missing_flag, suspicion};
use crate::view::commands::{Login, add};

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
    /// A kubelet can't read one of the pod's pull secrets.
    SecretUnreadable,
    OutsideScope,
    /// The pod doesn't refer to the Secret of its namespace, which has a credential.
    NoReference,
    RateLimited,
    InvalidImageName,
    ImageNeverPulled,
    /// The image is on the node, pulled with credentials that the pod does not have.
    ImageNotAllowed,
    SignatureRejected,
    /// The container runtime pulls the image with its own credentials.
    SandboxImage,
    /// A pull secret has a credential that the controller has not merged.
    NotMerged,
    /// The cause is gone, and the kubelet retries later.
    WaitsForRetry,
    NotAnImage,
    NamespaceTerminating,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cause {
    pub code: Code,
    /// Empty if there is none.
    pub registry: String,
    /// One sentence in lower case, without a full stop.
    pub message: String,
    /// The one command to run; empty if no command for the cluster fixes the cause.
    pub command: String,
    /// Further information, or the next step.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

/// A credential and the registry's answer to it; `None`: the registry was not contacted.
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

/// The facts from which the cause is derived.
pub(crate) struct Evidence<'a> {
    pub pod: &'a PodSeen,
    pub failing: &'a Failing,
    pub registry: &'a str,
    pub repository: &'a str,
    /// Credentials in the kubelet's order.
    pub tries: &'a [Tested<'a>],
    /// The registry's answer without credentials, if there are no credentials.
    pub anonymous: Option<&'a Result<Pull, RegistryError>>,
    /// There are credentials, but the image can be pulled without any.
    pub is_public: bool,
    /// A source with a credential for other pods only, and its scope.
    pub excluding: Option<(&'a str, &'a str)>,
    /// A Secret of the pod that a kubelet can't read, and who has to change it.
    pub unreadable: Option<(&'a str, &'a Origin)>,
    pub no_reference: Option<&'a NoReference>,
    pub lag: Option<&'a Lag>,
    /// The node has the image, according to its status.
    pub is_present: bool,
    pub adding: &'a Adding,
    /// Namespace of the pull secrets.
    pub secrets: &'a str,
    /// The newest revision whose additional pull secret has another credential for the image.
    pub earlier: Option<i64>,
    /// The flag used to contact the registries, `--insecure` or `--ca-file FILE`; may be empty.
    pub asked_with: &'a str,
}

impl Cause {
    /// Completes the commands for this cluster.
    pub(crate) fn at(self, place: &CommandTarget<'_>) -> Self {
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
            return match self.no_reference {
                Some(missing) if lag.is_left_out() => self.without_reference(missing),
                _ => self.not_synced(lag),
            };
        }
        if has(Pull::Available) {
            return self.waits();
        }
        let is_denied = self.failing.said() == Said::Denied
            || self.anonymous.is_some_and(is_refusal)
            || self.tries.iter().any(Tested::is_refused);
        if let ([], true, Some(missing)) = (self.tries, is_denied, self.no_reference) {
            return self.without_reference(missing);
        }
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

    /// The command and the hint; if the command would not help, no command and the reason.
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
        let message = format!("`{registry}` limits the rate of pulls (429)");
        if let (Some(missing), []) = (self.no_reference, self.tries) {
            let cause = self.without_reference(missing);
            return Cause {
                code: Code::RateLimited,
                message: format!("{message}, and {}", cause.message),
                ..cause
            };
        }
        let (command, hint) = if self.tries.is_empty() {
            let hint =
                "a user with a login has a higher limit; the kubelet also tries again by itself";
            self.add(&Login::new(registry), hint)
        } else {
            let hint = "wait: the kubelet tries again by itself; use an account with a higher limit, or a mirror";
            (String::new(), hint.to_owned())
        };
        self.of(Code::RateLimited, message, command, &hint)
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
mod tests;
