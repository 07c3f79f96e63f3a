//! Whether the node's file has what the Secret says: as the kubelet reads both. Pure.

use std::time::Duration;

use globalps_core::api::{
    DeliveryType, MachineConfigState, NodePullSecret, NodePullSecretStatus, Phase,
};
use globalps_core::reasons::Reason;
use globalps_core::rollout::Revision;
use globalps_dockerconfig::{DockerConfig, parse, shown_key};

use crate::cluster::{KnownSecret, ReadSecret};
use crate::node::file::{FileError, FileSnapshot};

/// A kubelet that is not restarted reads the file again after this time.
const CACHED: Duration = Duration::from_mins(5);
/// Registries that a message names.
const NAMED: usize = 5;

/// The node's report. `age`: of the file; `None`: unknown. `secret` was read before `file`, so that what it says of the file is not older than the Secret's version.
pub(super) fn judged(
    object: &NodePullSecret,
    secret: &KnownSecret,
    file: &Result<FileSnapshot, FileError>,
    age: Option<Duration>,
) -> NodePullSecretStatus {
    let machine_config = object.spec.observed.as_ref();
    let machine_config = machine_config.and_then(|observed| observed.machine_config);
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
                outdated(machine_config).0,
                format!(
                    "the kubelet's credentials file still has credentials for {}{}",
                    named(&kept),
                    outdated(machine_config).1
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
        let (reason, why) = outdated(machine_config);
        return waits(
            reason,
            format!(
                "the kubelet's credentials file lacks the credentials of Secret `global-pull-secret` for {}{why}",
                named(&lacking)
            ),
        );
    }
    let is_new = machine_config.is_some() && age.is_some_and(|age| age < CACHED);
    let reason = is_new.then_some(Reason::InForceWithinFiveMinutes);
    NodePullSecretStatus {
        reason: reason.map(Into::into).unwrap_or_default(),
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

/// Why the file lacks something: the reason, and a clause.
fn outdated(machine_config: Option<MachineConfigState>) -> (Reason, &'static str) {
    match machine_config {
        None => (Reason::FileOutdated, ""),
        Some(MachineConfigState::Applies) => (
            Reason::WaitingForMachineConfig,
            "; the Machine Config Operator has not written it yet",
        ),
        Some(MachineConfigState::Paused) => (
            Reason::PoolPaused,
            "; the node's MachineConfigPool is paused",
        ),
        Some(MachineConfigState::Degraded) => (
            Reason::NodeDegraded,
            "; the Machine Config Operator can't bring the node to its configuration",
        ),
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

    fn named_version(version: &str) -> Observed {
        Observed {
            uid: "u".to_owned(),
            resource_version: version.to_owned(),
            ..Observed::default()
        }
    }

    fn auths(entries: &[(&str, &str)]) -> String {
        let entries: Vec<String> = entries
            .iter()
            .map(|(key, auth)| format!(r#""{key}":{{"auth":"{auth}"}}"#))
            .collect();
        format!(r#"{{"auths":{{{}}}}}"#, entries.join(","))
    }

    fn file(text: &str) -> FileSnapshot {
        FileSnapshot::File {
            bytes: text.as_bytes().to_vec(),
            mode: 0o600,
            uid: 0,
            gid: 0,
        }
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
            ("the file has it", Some(named_version("5")), &v5, Ok(file(&all)), "Synced", ""),
            ("in another spelling, and more", Some(named_version("5")), &v5, Ok(file(&spelled)), "Synced", ""),
            ("an old password", Some(named_version("5")), &v5, Ok(file(&old)), "Syncing", "FileOutdated"),
            ("a registry is missing", Some(named_version("5")), &v5, Ok(file(&less)), "Syncing", "FileOutdated"),
            ("no file", Some(named_version("5")), &v5, Ok(FileSnapshot::Absent), "Syncing", "FileOutdated"),
            ("no JSON", Some(named_version("5")), &v5, Ok(file("x")), "Syncing", "FileUnusable"),
            ("one bad entry", Some(named_version("5")), &v5, Ok(file(r#"{"auths":{"a":{"auth":"*"}}}"#)), "Syncing", "FileUnusable"),
            ("another version", Some(named_version("5")), &other, Ok(file(&all)), "Syncing", "WaitingForMerge"),
            ("no version is named", None, &v5, Ok(file(&all)), "Syncing", "WaitingForMerge"),
            ("nor in an empty name", Some(Observed::default()), &v5, Ok(file(&all)), "Syncing", "WaitingForMerge"),
            ("globalps' own Secret", None, &secret("7", Some(own)), Ok(file(&all)), "Synced", ""),
            ("of another revision", None, &secret("7", Some(earlier)), Ok(file(&all)), "Syncing", "WaitingForMerge"),
            ("no Secret", Some(named_version("5")), &KnownSecret::Absent, Ok(file(&all)), "Syncing", "WaitingForMerge"),
            ("it is not known", Some(named_version("5")), &unknown, Ok(file(&all)), "Syncing", "SecretNotRead"),
            ("it is damaged", Some(named_version("5")), &damaged, Ok(file(&all)), "Syncing", "SecretNotRead"),
        ];
        for (case, observed, secret, file, phase, reason) in cases {
            let status = judged(&assigned(observed), secret, &file, None);
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
    fn what_keeps_the_machine_config_operator_is_named() {
        use MachineConfigState::{Applies, Degraded, Paused};
        let all = auths(&[("quay.io", "dTpw"), ("r:5000", "dTpx")]);
        let old = auths(&[("quay.io", "dTpz"), ("r:5000", "dTpx")]);
        let (new, aged) = (Some(Duration::from_secs(299)), Some(CACHED));
        #[rustfmt::skip]
        let cases = [
            ("it comes", Some(Applies), &old, new, "Syncing WaitingForMachineConfig"),
            ("its pool is paused", Some(Paused), &old, aged, "Syncing PoolPaused"),
            ("it can't", Some(Degraded), &old, aged, "Syncing NodeDegraded"),
            ("a kubelet may still have the old one", Some(Applies), &all, new, "Synced InForceWithinFiveMinutes"),
            ("also in a pool that is paused since", Some(Paused), &all, new, "Synced InForceWithinFiveMinutes"),
            ("now it has read it", Some(Applies), &all, aged, "Synced "),
            ("nobody knows", Some(Applies), &all, None, "Synced "),
            ("HyperShift restarts the kubelet", None, &all, new, "Synced "),
        ];
        for (case, machine_config, text, age, expected) in cases {
            let observed = Observed {
                machine_config,
                ..named_version("5")
            };
            let of = assigned(Some(observed));
            let status = judged(&of, &secret("5", None), &Ok(file(text)), age);
            let found = format!("{} {}", status.phase, status.reason);
            assert_eq!(found, expected, "{case}");
        }
        let observed = Observed {
            gone: vec!["quay.io".to_owned()],
            machine_config: Some(Paused),
            ..Observed::default()
        };
        let restored = object(NodePullSecretSpec {
            revision: 2,
            restore: true,
            observed: Some(observed),
            ..NodePullSecretSpec::default()
        });
        let status = judged(&restored, &KnownSecret::Absent, &Ok(file(&all)), None);
        assert_eq!(
            (status.phase.as_str(), &*status.reason),
            ("Restoring", "PoolPaused")
        );
        assert_eq!(
            status.message,
            "the kubelet's credentials file still has credentials for `quay.io`; the node's MachineConfigPool is paused"
        );
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
                Ok(file(&text)),
                "Restoring",
            ),
            ("it is gone", &["r:5000"], Ok(file(&text)), "Restored"),
            ("nothing is to go", &[], Ok(file(&text)), "Restored"),
            (
                "the file too",
                &["quay.io"],
                Ok(FileSnapshot::Absent),
                "Restored",
            ),
            ("nobody knows", &["quay.io"], Ok(file("x")), "Restoring"),
        ] {
            let status = judged(&restore(gone), &KnownSecret::Absent, &found, None);
            assert_eq!(status.phase.as_str(), phase, "{case}");
            assert_eq!(status.restored, phase == "Restored", "{case}");
        }
        let none = judged(
            &object(NodePullSecretSpec::default()),
            &KnownSecret::Absent,
            &Ok(file(&text)),
            None,
        );
        assert_eq!((none.phase, none.restored), (Phase::Pending, true));
    }
}
