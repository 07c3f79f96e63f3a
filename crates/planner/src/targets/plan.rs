//! Compares one object with what a delivery wants of it: what is written next, or why nothing is. Pure.

use std::collections::BTreeSet;

use globalps_core::reasons::{Reason, ReasonAndMessage};
use jiff::Timestamp;

use super::STUCK_AFTER;
use super::account::AccountView;
use super::memory::Memory;
use super::summary::Summary;
use super::write::Write;

/// What the controller writes, and what it reports.
#[derive(Clone, Debug, Default)]
pub struct DeliveryPlan {
    /// In order.
    pub writes: Vec<Write>,
    /// New namespaces wait for the last content that was rolled out to all nodes.
    pub needs_stable: bool,
    /// When to plan again without an event.
    pub again_at: Option<Timestamp>,
    /// For the status and the metrics.
    pub summary: Summary,
}

/// A Secret or a service account.
#[derive(Debug, Default)]
pub(crate) struct Diff {
    /// It is as it should be.
    pub(crate) is_synced: bool,
    /// Why it is not; `None`: it just waits.
    pub(crate) failure: Option<ReasonAndMessage>,
    /// `None`: nothing is due.
    pub(crate) write: Option<Write>,
    /// Its write has failed for long enough that nothing else waits for it.
    pub(crate) is_stuck: bool,
}

impl Diff {
    pub(crate) fn synced() -> Self {
        Self {
            is_synced: true,
            ..Self::default()
        }
    }

    /// Nothing can be written.
    pub(crate) fn failed(failure: ReasonAndMessage) -> Self {
        Self {
            failure: Some(failure),
            ..Self::default()
        }
    }

    /// The write is necessary. What failed waits for its backoff, and what another client undoes again and again, for the end of
    /// the conflict.
    pub(crate) fn of(write: Write, memory: &Memory, now: Timestamp) -> Self {
        let key = write.key();
        if write.is_restore() && memory.is_contested(&key, write.what(), now) {
            return Self::failed((Reason::Conflict, write.conflict()));
        }
        let failure = memory.failure(&key);
        Self {
            is_synced: false,
            failure: failure.map(|failure| (failure.reason, failure.message.clone())),
            write: failure
                .is_none_or(|failure| failure.retry_at <= now)
                .then_some(write),
            is_stuck: failure.is_some_and(|failure| failure.lasts_for(now) >= STUCK_AFTER),
        }
    }

    /// `names`: the Secrets that the service account should refer to. `is_only_own`: no other client has Secrets with such names, so a
    /// reference without its record is the controller's as well. `stays`: whether the record of another name stays. `None`: it
    /// should have no reference, and has none.
    pub(crate) fn of_account(
        account: &AccountView,
        names: &BTreeSet<&str>,
        is_only_own: bool,
        stays: impl Fn(&str) -> bool,
        memory: &Memory,
        now: Timestamp,
    ) -> Option<Self> {
        let references = &account.references;
        let change = if is_only_own {
            references.change_of_own(names, stays)
        } else {
            references.change(names, stays)
        };
        let change = change.filter(|_| !account.is_being_deleted && !account.has_too_many);
        let Some(change) = change else {
            return (!names.is_empty()).then(|| {
                if account.has_too_many {
                    Self::failed(AccountView::too_many(&account.key()))
                } else {
                    Self::synced()
                }
            });
        };
        let key = account.key();
        let what = names.iter().copied().collect::<Vec<_>>().join(",");
        // The other client may have removed the record as well, as the Operator Lifecycle Manager does in an upgrade.
        let was_removed =
            is_only_own && !change.added.is_empty() && memory.has_written(&key, &what);
        let write = Write::Account {
            key,
            is_restore: was_removed || references.is_restore(&change),
            change,
            what,
        };
        Some(Self::of(write, memory, now))
    }
}

impl DeliveryPlan {
    /// Counts a namespace or an operator that should have all of this.
    pub(crate) fn count<'a>(
        &mut self,
        namespace: &str,
        name: &str,
        diffs: impl IntoIterator<Item = &'a Diff>,
    ) {
        let mut is_synced = true;
        let mut failure = None;
        for diff in diffs {
            is_synced &= diff.is_synced;
            failure = failure.or(diff.failure.as_ref());
        }
        self.summary.total += 1;
        match failure {
            Some(failure) => self.summary.fail(namespace, name, failure),
            None if is_synced => self.summary.synced += 1,
            None => self.summary.waiting += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use globalps_core::references::Change;
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::super::write::{NamespaceContent, SecretContent};
    use super::*;

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1)
    }

    fn account(names: &[&str], recorded: &[&str]) -> AccountView {
        let names: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let record = json!({"record": recorded.join(",")});
        let account = json!({
            "metadata": {"name": "default", "namespace": "a", "annotations": record},
            "imagePullSecrets": names,
        });
        AccountView::new(&serde_json::from_value(account).unwrap(), "record")
    }

    /// Another client has undone the same write.
    fn secret() -> Write {
        Write::Secret {
            id: ("a".to_owned(), "s".to_owned()),
            content: SecretContent::Namespace(NamespaceContent {
                parts: Vec::new(),
                identity: "5".to_owned(),
                is_stable: false,
                version: None,
            }),
            is_restore: true,
        }
    }

    /// Of a Secret `5`.
    fn reference() -> Write {
        Write::Account {
            key: "a/default".to_owned(),
            change: Change::default(),
            what: "5".to_owned(),
            is_restore: true,
        }
    }

    #[test]
    fn a_failed_write_is_retried_and_delays_others_for_a_while_only() {
        let delete = Write::Delete {
            id: ("a".to_owned(), "s".to_owned()),
            version: None,
        };
        let none = Memory::default();
        for write in [secret(), reference(), delete] {
            let diff = Diff::of(write.clone(), &none, now());
            assert!(diff.write.is_some() && diff.failure.is_none() && !diff.is_stuck);
            for (seconds, is_due, is_stuck) in [
                (0, false, false),
                (1, true, false),
                (29, true, false),
                (30, true, true),
            ] {
                let mut memory = Memory::default();
                let then = now() - SignedDuration::from_secs(seconds);
                let because = (Reason::Rejected, "no".to_owned());
                memory.failed(&write.key(), because.0, because.1.clone(), then, 1.0);
                let diff = Diff::of(write.clone(), &memory, now());
                let found = (diff.write.is_some(), diff.is_stuck);
                assert_eq!(found, (is_due, is_stuck), "{write:?} {seconds}");
                assert_eq!(diff.failure, Some(because));
            }
        }
    }

    #[test]
    fn the_sixth_restore_of_the_same_is_a_conflict() {
        for write in [secret(), reference()] {
            for (written, times, is_conflict) in [("5", 4, false), ("5", 5, true), ("4", 5, false)]
            {
                let mut memory = Memory::default();
                memory.wrote(&write.key(), written);
                for _ in 0..times {
                    memory.restored(&write.key(), now());
                }
                let diff = Diff::of(write.clone(), &memory, now());
                let reason = diff.failure.map(|(reason, _)| reason);
                let expected = is_conflict.then_some(Reason::Conflict);
                assert_eq!(reason, expected, "{write:?} {written} {times}");
                assert_eq!(diff.write.is_none(), is_conflict);
            }
        }
    }

    #[test]
    fn a_removed_reference_is_restored_also_without_record_if_only_globalps_has_the_name() {
        for (case, has, recorded, wanted, is_only_own, expected) in [
            ("the first", &[][..], &[][..], &["s"][..], false, "+s"),
            ("removed", &[], &["s"], &["s"], false, "+s again"),
            ("removed with its record", &[], &[], &["t"], false, "+t"),
            ("the same", &[], &[], &["t"], true, "+t again"),
            ("another client's", &["s"], &[], &["s"], false, "synced"),
            ("without its record", &["s"], &[], &["s"], true, "+s"),
            ("no longer wanted", &["s"], &["s"], &[], true, "-s"),
            ("its Secret is there", &["k"], &["k"], &[], true, "nothing"),
            ("another client's", &["s"], &[], &[], true, "nothing"),
        ] {
            let account = account(has, recorded);
            let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
            let stays = |name: &str| name == "k";
            let mut memory = Memory::default();
            memory.wrote("a/default", "t");
            let of = |account: &AccountView| {
                Diff::of_account(account, &wanted, is_only_own, stays, &memory, now())
            };
            let found = match of(&account) {
                None => "nothing".to_owned(),
                Some(diff) if diff.is_synced => "synced".to_owned(),
                Some(diff) => match diff.write {
                    Some(Write::Account {
                        change, is_restore, ..
                    }) => {
                        let again = if is_restore { " again" } else { "" };
                        let added = change.added.iter().map(|name| format!("+{name}{again}"));
                        let removed = change.removed.iter().map(|name| format!("-{name}"));
                        added.chain(removed).collect()
                    }
                    other => format!("{other:?}"),
                },
            };
            assert_eq!(found, expected, "{case}");
            let being_deleted = AccountView {
                is_being_deleted: true,
                ..account.clone()
            };
            assert!(
                of(&being_deleted).is_none_or(|diff| diff.is_synced),
                "{case}"
            );
            let too_many = AccountView {
                has_too_many: true,
                ..account
            };
            let failure = of(&too_many).and_then(|diff| diff.failure);
            let expected = (!wanted.is_empty()).then_some(Reason::TooManyReferences);
            assert_eq!(failure.map(|(reason, _)| reason), expected, "{case}");
        }
    }
}
