//! Explains on a node which entries match an image, and for which pods: keys and names, never credentials.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use globalps_dockerconfig::{DockerConfig, attempts, shown_key};
use globalps_provider::{
    Data, MOST_LABELS, PodIdentity, ProviderError, is_asked, offers, parse_data,
};

use crate::data::{self, DataError};
use crate::failure::AnswerError;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// `None`: the file next to this program's directory.
    pub(crate) data: Option<PathBuf>,
    pub(crate) image: String,
    /// The pod that pulls the image; `None`: any pod.
    pub(crate) pod: Option<PodIdentity>,
}

/// The answer as text, and whether there is a credential.
pub(crate) fn explain(question: &Question) -> Result<(String, bool), AnswerError> {
    let path = match &question.data {
        Some(path) => path.clone(),
        None => installed_data().map_err(DataError::Io)?,
    };
    let bytes = data::read(&path)?;
    let data = parse_data(&bytes).map_err(ProviderError::Data)?;
    let lines = match &question.pod {
        _ if !is_asked(&question.image).map_err(ProviderError::Image)? => Lines {
            found: Vec::new(),
            withheld: vec![format!(
                "the kubelet does not run the provider for hosts with more than {MOST_LABELS} labels"
            )],
        },
        Some(pod) => of_pod(&data, &question.image, pod)?,
        None => of_all(&data, &question.image)?,
    };
    let mut text = format!("revision {} in `{}`\n", data.revision, path.display());
    for line in &lines.found {
        let _ = writeln!(text, "{line}");
    }
    if lines.found.is_empty() {
        text.push_str("no entry matches this image");
        text.push_str(if question.pod.is_some() {
            " for this pod\n"
        } else {
            "\n"
        });
    }
    for line in &lines.withheld {
        let _ = writeln!(text, "{line}");
    }
    Ok((text, !lines.found.is_empty()))
}

/// The path at which the syncer keeps the data for its installed program: `.globalps/bin/PROGRAM` and `.globalps/FILE`.
fn installed_data() -> io::Result<PathBuf> {
    let mut path = std::env::current_exe()?;
    path.pop();
    path.set_file_name(globalps_provider::DATA_FILE);
    Ok(path)
}

struct Lines {
    found: Vec<String>,
    /// Entries that match the image but are not returned.
    withheld: Vec<String>,
}

/// The credentials that the kubelet tries, in order.
fn of_pod(data: &Data, image: &str, pod: &PodIdentity) -> Result<Lines, ProviderError> {
    let offers = offers(&data.content, image, Some(pod))?;
    let found = offers.into_iter().map(|offer| {
        let key = shown_key(&offer.attempt.key);
        match offer.source {
            Some(source) => format!("{key}: for this pod, from source `{source}`"),
            None => format!("{key}: for every pod"),
        }
    });
    let mut withheld = unsendable(&data.content.config, image)?;
    for scoped in &data.content.scoped {
        if scoped.scope.covers(pod) {
            withheld.extend(unsendable(&scoped.config, image)?);
        } else {
            withheld.extend(keys(&scoped.config, image)?.into_iter().map(|key| {
                let (scope, source) = (&scoped.scope, &scoped.source);
                format!("{key}: not for this pod; only for pods of {scope}, from source `{source}`")
            }));
        }
    }
    Ok(Lines {
        found: found.collect(),
        withheld,
    })
}

fn of_all(data: &Data, image: &str) -> Result<Lines, ProviderError> {
    let mut withheld = unsendable(&data.content.config, image)?;
    let mut found = Vec::new();
    for scoped in &data.content.scoped {
        found.extend(keys(&scoped.config, image)?.into_iter().map(|key| {
            let (scope, source) = (&scoped.scope, &scoped.source);
            format!("{key}: for pods of {scope}, from source `{source}`")
        }));
        withheld.extend(unsendable(&scoped.config, image)?);
    }
    let all = keys(&data.content.config, image)?.into_iter();
    found.extend(all.map(|key| format!("{key}: for every pod")));
    Ok(Lines { found, withheld })
}

/// Keys whose credentials the provider can return for the image.
fn keys(config: &DockerConfig, image: &str) -> Result<Vec<String>, ProviderError> {
    let tries = attempts(&[config], image)?.into_iter();
    let text = tries.filter(|(_, attempt)| attempt.credential.as_text().is_some());
    Ok(text.map(|(_, attempt)| shown_key(&attempt.key)).collect())
}

/// Why the provider can't return the others.
fn unsendable(config: &DockerConfig, image: &str) -> Result<Vec<String>, ProviderError> {
    let tries = attempts(&[config], image)?.into_iter();
    let other = tries.filter(|(_, attempt)| attempt.credential.as_text().is_none());
    let line = |key: &str| {
        format!(
            "{}: left out, because user or password is not UTF-8",
            shown_key(key)
        )
    };
    Ok(other.map(|(_, attempt)| line(&attempt.key)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_dockerconfig::parse;
    use globalps_provider::{Content, Scope, ScopedConfig, render_data};

    fn asked(image: &str, namespace: Option<&str>) -> (String, bool) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let content = Content {
            config: parse(br#"{"auths":{"robot:hunter2@quay.io":{"auth":"dTpodW50ZXIy"},"quay.io/raw":{"auth":"dTr//w=="}}}"#)
                .unwrap(),
            scoped: vec![ScopedConfig {
                source: "team-a-pull-secret".to_owned(),
                scope: Scope {
                    namespaces: vec!["team-a".to_owned().try_into().unwrap()],
                    service_accounts: Vec::new(),
                },
                config: parse(br#"{"auths":{"quay.io/org":{"auth":"dTpodW50ZXIy"}}}"#).unwrap(),
            }],
            ..Content::default()
        };
        std::fs::write(&file, render_data(7, &content)).unwrap();
        let question = Question {
            data: Some(file.path().to_owned()),
            image: image.to_owned(),
            pod: namespace.map(|namespace| PodIdentity {
                namespace: namespace.to_owned(),
                service_account: "default".to_owned(),
            }),
        };
        let (text, is_served) = explain(&question).unwrap();
        assert!(
            !text.contains("hunter2") && !text.contains("dTpodW"),
            "{text}"
        );
        let (first, rest) = text.split_once('\n').unwrap();
        assert!(first.starts_with("revision 7 in `/"), "{first}");
        (rest.to_owned(), is_served)
    }

    #[test]
    fn explain_lists_the_entries_of_an_image_and_their_pods() {
        let every = "***@quay.io: for every pod\n";
        for (image, namespace, expected, is_served) in [
            (
                "quay.io/org/app:1",
                None,
                format!(
                    "quay.io/org: for pods of team-a, from source `team-a-pull-secret`\n{every}"
                ),
                true,
            ),
            (
                "quay.io/org/app:1",
                Some("team-a"),
                format!("quay.io/org: for this pod, from source `team-a-pull-secret`\n{every}"),
                true,
            ),
            (
                "quay.io/org/app:1",
                Some("team-b"),
                format!(
                    "{every}quay.io/org: not for this pod; only for pods of team-a, from source `team-a-pull-secret`\n"
                ),
                true,
            ),
            (
                "quay.io/raw/app",
                None,
                format!("{every}quay.io/raw: left out, because user or password is not UTF-8\n"),
                true,
            ),
            (
                "a.b.c.d.e.f.g.h.quay.io/org",
                None,
                "no entry matches this image\nthe kubelet does not run the provider for hosts with more than 8 labels\n".to_owned(),
                false,
            ),
            (
                "nginx",
                None,
                "no entry matches this image\n".to_owned(),
                false,
            ),
            (
                "nginx",
                Some("a"),
                "no entry matches this image for this pod\n".to_owned(),
                false,
            ),
        ] {
            assert_eq!(asked(image, namespace), (expected, is_served), "{image}");
        }
    }
}
