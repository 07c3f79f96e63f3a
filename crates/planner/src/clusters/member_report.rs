//! What a member cluster's own globalps reports. Pure.

use globalps_core::api::{
    Counts, GlobalPullSecret, GlobalPullSecretStatus, MESSAGE_LIMIT, condition,
};

use super::target::VERSION_LIMIT;
use super::text::{REASON_LIMIT, sanitized};

/// What the cluster's own globalps reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum MemberReport {
    /// Not known yet.
    #[default]
    Unknown,
    /// It is not installed.
    NoGlobalps,
    /// It is installed, but there is no `GlobalPullSecret`.
    NoConfig,
    /// Its `GlobalPullSecret` can't be decoded: why, as a clause.
    Unreadable(String),
    /// Its status is missing or outdated.
    NoStatus,
    /// A status of the current generation.
    Status(Box<MemberStatus>),
}

/// The relevant part of a `GlobalPullSecret`'s status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberStatus {
    /// `resourceVersion` of the additional Secret that it refers to.
    additional_version: String,
    pub(super) is_ready: bool,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) counts: Counts,
}

impl MemberStatus {
    /// `None`: its status is outdated.
    pub fn of(object: &GlobalPullSecret) -> Option<Self> {
        let generation = object.metadata.generation.unwrap_or_default();
        let status: &GlobalPullSecretStatus = object.status.as_ref()?;
        if status.observed_generation != generation {
            return None;
        }
        let mut conditions = status.conditions.iter();
        let ready = conditions.find(|it| it.type_ == condition::READY)?;
        Some(Self {
            additional_version: sanitized(&status.observed_additional, VERSION_LIMIT),
            is_ready: ready.status == "True",
            reason: sanitized(&ready.reason, REASON_LIMIT),
            message: sanitized(&ready.message, MESSAGE_LIMIT),
            counts: storable(status.counts),
        })
    }
}

/// A member can report any number, but the CRD accepts only signed 32-bit numbers.
fn storable(counts: Counts) -> Counts {
    let most = |count: u32| count.min(i32::MAX.unsigned_abs());
    Counts {
        total: most(counts.total),
        synced: most(counts.synced),
        progressing: most(counts.progressing),
        failed: most(counts.failed),
        unreachable: most(counts.unreachable),
        unsupported: most(counts.unsupported),
    }
}

impl MemberStatus {
    /// Whether it refers to this `resourceVersion` of the target.
    pub fn refers_to(&self, version: &str) -> bool {
        self.additional_version == version
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_of_a_member_are_limited_to_what_the_status_accepts() {
        let counts: Counts = serde_json::from_value(json!({
            "total": u32::MAX, "synced": 3, "progressing": u32::MAX, "failed": u32::MAX, "unreachable": u32::MAX,
            "unsupported": u32::MAX,
        }))
        .unwrap();
        let most = i32::MAX;
        let expected = json!({
            "total": most, "synced": 3, "progressing": most, "failed": most, "unreachable": most,
            "unsupported": most,
        });
        assert_eq!(serde_json::to_value(storable(counts)).unwrap(), expected);
    }
}
