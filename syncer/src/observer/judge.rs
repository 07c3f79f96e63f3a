//! Whether the node's file has what the Secret says: as the kubelet reads both. Pure.

use globalps_core::api::{DeliveryType, NodePullSecret, NodePullSecretStatus, Phase};
use globalps_core::reasons::Reason;
use globalps_core::rollout::Revision;
use globalps_dockerconfig::{DockerConfig, parse, shown_key};

use crate::cluster::{KnownSecret, ReadSecret};
use crate::node::file::{FileError, FileSnapshot};

/// Registries that a message names.
const NAMED: usize = 5;

/// The node's report. `secret` was read before `file`, so that what it says of the file is not older than the Secret's version.
pub(super) fn judged(
    object: &NodePullSecret,
    secret: &KnownSecret,
    file: &Result<FileSnapshot, FileError>,
) -> NodePullSecretStatus {
    let status = NodePullSecretStatus {
        observed_generation: object.metadata.generation.unwrap_or_default(),
        ..NodePullSecretStatus::default()
    };
    let file = parsed(file);
    if object.spec.restore {
        let observed = object.spec.observed.as_ref();
        let gone = observed.map_or(&[][..], |observed| &observed.gone);
        return match file.map(|file| kept(gone, &file)) {
            Ok(kept) if kept.is_empty() => NodePullSecretStatus {
                phase: Phase::Restored,
                restored: true,
                ..status
            },
            Ok(kept) => with(
                status,
                Phase::Restoring,
                Reason::FileOutdated,
                format!(
                    "the kubelet's credentials file still has credentials for {}",
                    named(&kept)
                ),
            ),
            Err(why) => with(status, Phase::Restoring, Reason::FileUnusable, why),
        };
    }
    if object.spec.revision == 0 {
        return NodePullSecretStatus {
            phase: Phase::Pending,
            restored: true,
            ..status
        };
    }
    let waits = |reason, why| with(status.clone(), Phase::Syncing, reason, why);
    let secret = match secret {
        KnownSecret::Present(secret) => secret,
        KnownSecret::Absent => {
            return waits(
                Reason::WaitingForMerge,
                "there is no Secret `global-pull-secret` yet".to_owned(),
            );
        }
        KnownSecret::Unknown(why) => return waits(Reason::SecretNotRead, why.clone()),
    };
    let content = match &secret.content {
        Ok(content) => content,
        Err(why) => return waits(Reason::SecretNotRead, why.clone()),
    };
    let file = match file {
        Ok(file) => file,
        Err(why) => return waits(Reason::FileUnusable, why),
    };
    let lacking = lacking(content, &file);
    if !has_assigned(object, secret) {
        let other = if lacking.is_empty() {
            "the file has all of it"
        } else {
            "the file lacks some of it"
        };
        return waits(
            Reason::WaitingForMerge,
            format!(
                "Secret `global-pull-secret` does not have the assigned revision yet, or has changed since; {other}"
            ),
        );
    }
    if !lacking.is_empty() {
        return waits(
            Reason::FileOutdated,
            format!(
                "the kubelet's credentials file lacks the credentials of Secret `global-pull-secret` for {}",
                named(&lacking)
            ),
        );
    }
    NodePullSecretStatus {
        phase: Phase::Synced,
        revision: object.spec.revision,
        revision_id: object.spec.revision_id,
        delivery: DeliveryType::ConfigFile.as_str().to_owned(),
        ..status
    }
}

fn with(
    status: NodePullSecretStatus,
    phase: Phase,
    reason: Reason,
    message: String,
) -> NodePullSecretStatus {
    NodePullSecretStatus {
        phase,
        reason: reason.into(),
        message,
        ..status
    }
}

/// Whether this version of the Secret is the one that has the assigned revision: where another program writes the Secret, the
/// controller names that version; where globalps does, the Secret itself names the revision.
fn has_assigned(object: &NodePullSecret, secret: &ReadSecret) -> bool {
    let assigned = object.spec.assigned();
    let named = object.spec.observed.as_ref();
    assigned != Revision::NONE
        && (secret.revision == Some(assigned)
            || named.is_some_and(|named| {
                !named.uid.is_empty()
                    && (&named.uid, &named.resource_version)
                        == (&secret.uid, &secret.resource_version)
            }))
}

/// The file as a kubelet has it, or why it has nothing, as a clause.
fn parsed(file: &Result<FileSnapshot, FileError>) -> Result<DockerConfig, String> {
    let bytes = match file {
        Ok(FileSnapshot::File { bytes, .. }) => bytes,
        Ok(FileSnapshot::Absent) => return Ok(DockerConfig::default()),
        Err(error) => {
            return Err(format!(
                "the kubelet's credentials file can't be read: {error}"
            ));
        }
    };
    let config = parse(bytes)
        .map_err(|error| format!("the kubelet can't read its credentials file: {error}"))?;
    if config.is_kubelet_readable() {
        Ok(config)
    } else {
        Err("the kubelet can't read its credentials file: one of its entries is invalid".to_owned())
    }
}

/// Registries of the Secret for which the file has no or other credentials.
fn lacking(content: &DockerConfig, file: &DockerConfig) -> Vec<String> {
    let there = file.by_canonical_key();
    let wanted = content.by_canonical_key().into_iter();
    let lacking = wanted.filter(|(key, entry)| {
        there
            .get(key)
            .is_none_or(|found| !found.means_the_same(entry))
    });
    lacking.map(|(key, _)| key.into_owned()).collect()
}

/// Those of the registries that the file has.
fn kept(gone: &[String], file: &DockerConfig) -> Vec<String> {
    let there = file.by_canonical_key();
    let kept = gone.iter().filter(|key| there.contains_key(key.as_str()));
    kept.cloned().collect()
}

fn named(registries: &[String]) -> String {
    let shown = registries.iter().take(NAMED);
    let shown: Vec<String> = shown.map(|key| format!("`{}`", shown_key(key))).collect();
    match registries.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use globalps_core::api::{NodePullSecretSpec, Observed};
    use globalps_core::rollout::RevisionId;

    use super::*;

    fn object(spec: NodePullSecretSpec) -> NodePullSecret {
        let mut object = NodePullSecret::new("n", spec);
        object.metadata.generation = Some(3);
        object
    }

    fn assigned(observed: Option<Observed>) -> NodePullSecret {
        object(NodePullSecretSpec {
            revision: 2,
            revision_id: RevisionId::from_random(2),
            observed,
            ..NodePullSecretSpec::default()
        })
    }

    fn named_version(version: &str) -> Option<Observed> {
        Some(Observed {
            uid: "u".to_owned(),
            resource_version: version.to_owned(),
            gone: Vec::new(),
        })
    }

    fn auths(entries: &[(&str, &str)]) -> String {
        let entries: Vec<String> = entries
            .iter()
            .map(|(key, auth)| format!(r#""{key}":{{"auth":"{auth}"}}"#))
            .collect();
        format!(r#"{{"auths":{{{}}}}}"#, entries.join(","))
    }

    fn file(text: &str) -> Result<FileSnapshot, FileError> {
        Ok(FileSnapshot::File {
            bytes: text.as_bytes().to_vec(),
            mode: 0o600,
            uid: 0,
            gid: 0,
        })
    }

    fn secret(version: &str, revision: Option<Revision>) -> KnownSecret {
        let text = auths(&[("quay.io", "dTpw"), ("r:5000", "dTpx")]);
        KnownSecret::Present(Box::new(ReadSecret {
            uid: "u".to_owned(),
            resource_version: version.to_owned(),
            revision,
            content: Ok(parse(text.as_bytes()).unwrap()),
        }))
    }

    #[test]
    fn synced_is_only_what_the_file_has_of_the_named_version() {
        let all = auths(&[("quay.io", "dTpw"), ("r:5000", "dTpx")]);
        let spelled = auths(&[
            ("https://quay.io/v1/", "dTpw"),
            ("r:5000", "dTpx"),
            ("o", "dTpy"),
        ]);
        let old = auths(&[("quay.io", "dTpz"), ("r:5000", "dTpx")]);
        let less = auths(&[("quay.io", "dTpw")]);
        let (v5, other) = (secret("5", None), secret("6", None));
        let own = Revision::new(2, RevisionId::from_random(2));
        let earlier = Revision::new(2, RevisionId::from_random(1));
        let unknown = KnownSecret::Unknown("why".to_owned());
        let damaged = KnownSecret::Present(Box::new(ReadSecret {
            content: Err("why".to_owned()),
            uid: "u".to_owned(),
            resource_version: "5".to_owned(),
            revision: None,
        }));
        #[rustfmt::skip]
        let cases = [
            ("the file has it", named_version("5"), &v5, file(&all), "Synced", ""),
            ("in another spelling, and more", named_version("5"), &v5, file(&spelled), "Synced", ""),
            ("an old password", named_version("5"), &v5, file(&old), "Syncing", "FileOutdated"),
            ("a registry is missing", named_version("5"), &v5, file(&less), "Syncing", "FileOutdated"),
            ("no file", named_version("5"), &v5, Ok(FileSnapshot::Absent), "Syncing", "FileOutdated"),
            ("no JSON", named_version("5"), &v5, file("x"), "Syncing", "FileUnusable"),
            ("one bad entry", named_version("5"), &v5, file(r#"{"auths":{"a":{"auth":"*"}}}"#), "Syncing", "FileUnusable"),
            ("another version", named_version("5"), &other, file(&all), "Syncing", "WaitingForMerge"),
            ("no version is named", None, &v5, file(&all), "Syncing", "WaitingForMerge"),
            ("nor in an empty name", Some(Observed::default()), &v5, file(&all), "Syncing", "WaitingForMerge"),
            ("globalps' own Secret", None, &secret("7", Some(own)), file(&all), "Synced", ""),
            ("of another revision", None, &secret("7", Some(earlier)), file(&all), "Syncing", "WaitingForMerge"),
            ("no Secret", named_version("5"), &KnownSecret::Absent, file(&all), "Syncing", "WaitingForMerge"),
            ("it is not known", named_version("5"), &unknown, file(&all), "Syncing", "SecretNotRead"),
            ("it is damaged", named_version("5"), &damaged, file(&all), "Syncing", "SecretNotRead"),
        ];
        for (case, observed, secret, file, phase, reason) in cases {
            let status = judged(&assigned(observed), secret, &file);
            assert_eq!(
                (status.phase.as_str(), &*status.reason),
                (phase, reason),
                "{case}"
            );
            assert_eq!(
                status.revision,
                if phase == "Synced" { 2 } else { 0 },
                "{case}"
            );
            assert_eq!(status.observed_generation, 3, "{case}");
            assert!(
                !status.message.contains("dTp"),
                "{case}: {}",
                status.message
            );
        }
    }

    #[test]
    fn a_node_is_restored_once_nothing_of_it_is_in_the_file() {
        let restore = |gone: &[&str]| {
            object(NodePullSecretSpec {
                revision: 2,
                restore: true,
                observed: Some(Observed {
                    gone: gone.iter().map(|key| (*key).to_owned()).collect(),
                    ..Observed::default()
                }),
                ..NodePullSecretSpec::default()
            })
        };
        let text = auths(&[("quay.io", "dTpw")]);
        for (case, gone, found, phase) in [
            (
                "it is still there",
                &["quay.io"][..],
                file(&text),
                "Restoring",
            ),
            ("it is gone", &["r:5000"], file(&text), "Restored"),
            ("nothing is to go", &[], file(&text), "Restored"),
            (
                "the file too",
                &["quay.io"],
                Ok(FileSnapshot::Absent),
                "Restored",
            ),
            ("nobody knows", &["quay.io"], file("x"), "Restoring"),
        ] {
            let status = judged(&restore(gone), &KnownSecret::Absent, &found);
            assert_eq!(status.phase.as_str(), phase, "{case}");
            assert_eq!(status.restored, phase == "Restored", "{case}");
        }
        let none = judged(
            &object(NodePullSecretSpec::default()),
            &KnownSecret::Absent,
            &file(&text),
        );
        assert_eq!((none.phase, none.restored), (Phase::Pending, true));
    }
}
