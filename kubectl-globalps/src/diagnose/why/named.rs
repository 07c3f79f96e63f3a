//! Finds the image that a message of the kubelet or runtime names. Pure.

use globalps_dockerconfig::{DockerConfig, explain};
use globalps_registry::ImageName;

/// The text before the sandbox image in each runtime's message, and the character that ends the image.
const BEFORE: [(&str, char); 5] = [
    ("sandbox image \"", '"'),
    ("pause image \"", '"'),
    ("pull image \"", '"'),
    ("pulling image \"", '"'),
    ("docker://", ' '),
];

/// `None` if the text is not an image name.
fn canonical(image: &str) -> Option<ImageName> {
    let found = explain(&DockerConfig::default(), image).ok()?;
    Some(ImageName::of(image, &found.repository))
}

/// The spellings that kubelets and runtimes use for the image.
fn spellings(image: &str) -> Vec<String> {
    let mut all = vec![image.to_owned()];
    if let Some(name) = canonical(image) {
        let sign = if name.reference.contains(':') {
            '@'
        } else {
            ':'
        };
        all.push(format!("{}{sign}{}", name.repository, name.reference));
        if sign == ':' && !image.ends_with(&format!(":{}", name.reference)) {
            all.push(format!("{image}:{}", name.reference));
        }
    }
    all
}

/// Whether both are names of one image: `nginx` and `docker.io/library/nginx:latest`.
pub(crate) fn is_same_image(one: &str, other: &str) -> bool {
    one == other || canonical(one).is_some_and(|one| canonical(other) == Some(one))
}

/// Whether the message names this image, and not one with a longer name.
pub(super) fn names(message: &str, image: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    let is_named = |spelling: &str| {
        let mut found = message.match_indices(spelling);
        found.any(|(at, _)| {
            let (before, after) = (&message[..at], &message[at + spelling.len()..]);
            // A colon in a sentence is followed by a space.
            let after = after.strip_prefix(':').map_or(after, |rest| {
                if rest.is_empty() || rest.starts_with(' ') {
                    ""
                } else {
                    after
                }
            });
            (before.ends_with("://") || !before.ends_with(is_part)) && !after.starts_with(is_part)
        })
    };
    spellings(image).iter().any(|it| is_named(it))
}

/// The sandbox image that a runtime could not pull; `None` if the sandbox failed for another reason.
pub(super) fn sandbox_image(message: &str) -> Option<&str> {
    BEFORE.iter().find_map(|(before, end)| {
        let (_, rest) = message.split_once(before)?;
        let image = rest.split(*end).next()?.trim_end_matches(':');
        (!image.is_empty()).then_some(image)
    })
}

/// The runtime that produced a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    Containerd,
    Crio,
    Unknown,
}

impl Runtime {
    pub(super) fn of(message: &str) -> Self {
        let has = |text| message.contains(text);
        if has("failed to get sandbox image") || has("failed to pull and unpack image") {
            Self::Containerd
        } else if has("creating pod sandbox with name") || has("docker://") {
            Self::Crio
        } else {
            Self::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_by_its_whole_name_in_any_spelling() {
        for (message, image, expected) in [
            ("Back-off pulling image \"r:5000/a:1\"", "r:5000/a:1", true),
            (
                "Back-off pulling image \"r:5000/a:10\"",
                "r:5000/a:1",
                false,
            ),
            ("Back-off pulling image \"r:5000/a:1\"", "r:5000/a", false),
            ("Back-off pulling image \"r:5000/a\"", "r:5000/a", true),
            ("pull image \"r:5000/a:latest\": x", "r:5000/a", true),
            ("image \"localhost:5000/r/a:1\"", "r/a:1", false),
            ("image \"docker.io/library/b:latest\"", "b", true),
            ("image \"docker.io/library/b:2\"", "b:2", true),
            (
                "initializing source docker://r.io/a:1: reading",
                "r.io/a:1",
                true,
            ),
            ("image pull failed for r.io/a:1 because", "r.io/a:1", true),
            ("image \"r.io/a@sha256:0a\"", "r.io/a:1@sha256:0a", false),
            ("", "r.io/a:1", false),
        ] {
            assert_eq!(names(message, image), expected, "{message} {image}");
        }
        let digest = format!("r.io/a@sha256:{}", "0".repeat(64));
        let both = digest.replace('@', ":1@");
        assert!(names(&format!("pull image \"{digest}\""), &both));
    }

    #[test]
    fn an_image_is_the_same_in_any_spelling() {
        let digest = format!("@sha256:{}", "0".repeat(64));
        let (tagged, plain) = (format!("r.io/a:1{digest}"), format!("r.io/a{digest}"));
        for (one, other, expected) in [
            ("nginx:1", "docker.io/library/nginx:1", true),
            ("nginx", "index.docker.io/library/nginx:latest", true),
            ("org/app:1", "docker.io/org/app:1", true),
            ("nginx:1", "docker.io/library/nginx:2", false),
            ("nginx:1", "quay.io/library/nginx:1", false),
            (&tagged, &plain, true),
            ("A b", "A b", true),
            ("A b", "nginx", false),
        ] {
            assert_eq!(is_same_image(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn a_sandbox_image_is_found_in_the_words_of_each_runtime() {
        const START: &str = "Failed to create pod sandbox: rpc error: code = Unknown desc = ";
        for (message, expected) in [
            (
                "failed to get sandbox image \"r.io/pause:3.10\": failed to pull image \"r.io/pause:3.10\": 401 Unauthorized",
                Some(("r.io/pause:3.10", Runtime::Containerd)),
            ),
            (
                "failed to start sandbox \"0a\": failed to get sandbox image \"r.io/pause:3.10\": x",
                Some(("r.io/pause:3.10", Runtime::Containerd)),
            ),
            (
                "error creating pod sandbox with name \"k8s_p_0\": initializing source docker://r.io/pause:3.9: reading manifest 3.9 in r.io/pause: unauthorized",
                Some(("r.io/pause:3.9", Runtime::Crio)),
            ),
            (
                "unable to pull sandbox image \"r.io/pause:3.9\": Error response from daemon",
                Some(("r.io/pause:3.9", Runtime::Unknown)),
            ),
            (
                "failed to setup network for sandbox \"0a\": plugin type=\"calico\" failed (add): unauthorized",
                None,
            ),
        ] {
            let message = format!("{START}{message}");
            let found = sandbox_image(&message).map(|image| (image, Runtime::of(&message)));
            assert_eq!(found, expected, "{message}");
        }
    }
}
