//! Whether registries accept the cluster's credentials.

use globalps_dockerconfig::{DockerConfig, Secret, parse, shown_key};
use globalps_registry::registry_name;
use globalps_registry::{CheckOutcome, RegistryError, public_images};

use super::{Check, well};
use crate::registry::{Purpose, failure_with};
use crate::secret::additional::Login;

const REGISTRIES: &str = "registries";

/// A Secret of the cluster, if it can be read.
#[derive(Debug)]
pub(crate) enum SecretSeen {
    /// This user may not read it.
    Hidden,
    Content(Secret),
}

/// Credentials to check with a registry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RegistryQuestion {
    pub login: Login,
    /// Names of the Secrets that contain them.
    pub secrets: Vec<String>,
}

/// The credentials to check, without duplicates and sorted by registry, and the findings so far.
pub(crate) fn questions(secrets: &[(String, SecretSeen)]) -> (Vec<RegistryQuestion>, Vec<Check>) {
    let mut questions: Vec<RegistryQuestion> = Vec::new();
    let mut checks = Vec::new();
    for (name, secret) in secrets {
        match content(name, secret) {
            Ok(config) => collect(&config, name, &mut questions),
            Err(check) => checks.push(*check),
        }
    }
    // A stable sort: for each registry, the credentials of the first Secret stay first.
    questions.sort_by(|a, b| a.login.registry.cmp(&b.login.registry));
    if questions.is_empty() && checks.is_empty() {
        checks.push(well(
            REGISTRIES,
            "registry",
            "no Secret has credentials, so no registry was checked",
        ));
    }
    (questions, checks)
}

fn content(name: &str, secret: &SecretSeen) -> Result<DockerConfig, Box<Check>> {
    let not_asked = |why: &str, hint: &str| {
        let message = format!("Secret `{name}` {why}, so its registries were not checked");
        Box::new(well(REGISTRIES, "registry-secret", message).warn(hint))
    };
    match secret {
        SecretSeen::Hidden => Err(not_asked(
            "can't be read by this user",
            "ask a user who may read it; the controller's findings are above",
        )),
        SecretSeen::Content(bytes) => parse(bytes.expose()).map_err(|_| {
            not_asked(
                "is not a credentials file",
                "`kubectl globalps validate` shows the errors",
            )
        }),
    }
}

/// Skips entries that a kubelet can't read, because other checks report them.
fn collect(config: &DockerConfig, name: &str, questions: &mut Vec<RegistryQuestion>) {
    for entry in config.entries() {
        let Ok(Some(credential)) = entry.credential() else {
            continue;
        };
        let login = Login {
            registry: shown_key(&registry_name(entry.key())),
            credential: credential.clone(),
        };
        match questions.iter_mut().find(|asked| asked.login == login) {
            Some(same) => same.secrets.push(name.to_owned()),
            None => questions.push(RegistryQuestion {
                login,
                secrets: vec![name.to_owned()],
            }),
        }
    }
}

/// One line for each response. Only rejected credentials are a failure, because nodes may reach a registry that this
/// machine can't.
pub(crate) fn answered(
    question: &RegistryQuestion,
    answer: &Result<CheckOutcome, RegistryError>,
) -> Check {
    let registry = &question.login.registry;
    let from = question.secrets.join("`, `");
    let line = |message: &str| well(REGISTRIES, "registry", format!("{message} (`{from}`)"));
    match answer {
        Ok(verdict) => {
            let line = line(&verdict.sentence(registry));
            match verdict {
                CheckOutcome::Accepted => line,
                CheckOutcome::AcceptedInside => line.warn("nodes with containerd send them"),
                CheckOutcome::Open => line.warn("public images need no credentials; for others, `kubectl globalps why POD` asks for the image"),
                CheckOutcome::Pattern => line.warn("`kubectl globalps why --image IMAGE` shows whether it matches an image"),
                CheckOutcome::MayNotPull(_) => line.warn(format!(
                    "if it is one, let the account pull from it, or `kubectl globalps add --registry {registry} -u USER` with another one"
                )),
            }
        }
        Err(error) => {
            let of_login = (registry.as_str(), &question.login.credential);
            let failure = failure_with(error, of_login, Purpose::Look);
            let line = line(&failure.message);
            match public_images(registry).filter(|_| error.is_refusal()) {
                Some(also) => line.fail(format!("{}; until then, {also}", failure.hint)),
                None if error.is_refusal() => line.fail(failure.hint),
                None => line.warn(failure.hint),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::CheckResult;
    use super::*;

    fn content_of(entries: &str) -> SecretSeen {
        SecretSeen::Content(Secret::new(format!(r#"{{"auths":{{{entries}}}}}"#)))
    }

    fn secrets(list: Vec<(&str, SecretSeen)>) -> Vec<(String, SecretSeen)> {
        list.into_iter()
            .map(|(name, seen)| (name.to_owned(), seen))
            .collect()
    }

    #[test]
    fn the_same_credentials_are_asked_about_once() {
        let (questions, checks) = questions(&secrets(vec![
            (
                "additional",
                content_of(
                    r#""b":{"auth":"dTpw"},"https://a/v1/":{"username":"u","password":"new"},"none":{}"#,
                ),
            ),
            (
                "global",
                content_of(
                    r#""a":{"auth":"dTpvbGQ="},"b":{"username":"u","password":"p"},"bad":{"auth":"?"}"#,
                ),
            ),
        ]));
        let asked: Vec<(&str, &[u8], String)> = questions
            .iter()
            .map(|question| {
                (
                    question.login.registry.as_str(),
                    question.login.credential.password.expose(),
                    question.secrets.join(" "),
                )
            })
            .collect();
        assert_eq!(
            asked,
            [
                ("a", &b"new"[..], "additional".to_owned()),
                ("a", b"old", "global".to_owned()),
                ("b", b"p", "additional global".to_owned()),
            ]
        );
        assert_eq!(checks, []);
    }

    #[test]
    fn secrets_that_cannot_be_checked_are_reported() {
        let (questions_, checks) = questions(&secrets(vec![
            ("hidden", SecretSeen::Hidden),
            ("broken", SecretSeen::Content(Secret::new("{"))),
        ]));
        assert_eq!(questions_, []);
        let messages: Vec<&str> = checks.iter().map(|check| check.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "Secret `hidden` can't be read by this user, so its registries were not checked",
                "Secret `broken` is not a credentials file, so its registries were not checked",
            ]
        );
        let (_, checks) = questions(&[]);
        assert_eq!(checks[0].result, CheckResult::Ok, "{checks:?}");
    }

    #[test]
    fn only_rejected_credentials_fail() {
        let (mut asked, _) = questions(&secrets(vec![("s", content_of(r#""r":{"auth":"dTpw"}"#))]));
        let question = asked.remove(0);
        let refused = RegistryError::Refused {
            url: "https://r/v2/".to_owned(),
            status: 401,
        };
        let late = RegistryError::Late {
            time: Duration::from_secs(2),
        };
        for (answer, result, message) in [
            (
                Ok(CheckOutcome::Accepted),
                CheckResult::Ok,
                "`r` accepts the credentials (`s`)",
            ),
            (
                Ok(CheckOutcome::Open),
                CheckResult::Warning,
                "`r` asks for no login at `/v2/`, so the credentials could not be checked (`s`)",
            ),
            (
                Err(refused),
                CheckResult::Failure,
                "`r` rejects the user or password: `https://r/v2/` responds with 401 (`s`)",
            ),
            (
                Err(late),
                CheckResult::Warning,
                "`r` could not be checked: the time limit for all checks was reached: 2 s (`s`)",
            ),
        ] {
            let check = answered(&question, &answer);
            assert_eq!((check.result, check.message.as_str()), (result, message));
            assert_eq!(
                check.hint.is_empty(),
                result == CheckResult::Ok,
                "{check:?}"
            );
            let names_path = check.hint.contains("`r/ORG`");
            assert_eq!(names_path, result == CheckResult::Failure, "{check:?}");
        }
    }
}
