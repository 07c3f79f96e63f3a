//! A pull secret as found, and its verdict.

use globalps_dockerconfig::Finding;
use k8s_openapi::api::core::v1::Secret;

/// A pull secret as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The Secret does not exist, or none is configured.
    Absent,
    /// The controller may not read it.
    Forbidden,
    /// The Secret can't be read, for this reason.
    Unreadable(String),
    /// The Secret exists; its content may be invalid.
    Found(Data),
}

/// The bytes under the key of a Secret; `None`: it has no such key. `Debug` hides them.
#[derive(Clone, PartialEq, Eq)]
pub struct Data(pub Option<Vec<u8>>);

impl Data {
    /// Absent if the Secret has no such key.
    pub fn of(secret: &Secret, key: &str) -> Self {
        let value = secret.data.as_ref().and_then(|data| data.get(key));
        Self(value.map(|bytes| bytes.0.clone()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Vec::len)
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "Data(***)"
        } else {
            "Data(none)"
        })
    }
}

/// The result of validating a pull secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The Secret does not exist, or none is configured.
    Absent,
    /// The content is valid, with findings about skipped or shadowed entries.
    Valid(Vec<Finding>),
    /// The controller may not read it.
    Forbidden,
    /// The Secret can't be read, for this reason.
    Unreadable(String),
    /// Every error; the last valid content stays effective.
    Invalid(Vec<Finding>),
    /// Only these invalid entries are omitted.
    Partly(Vec<Finding>),
    /// The content is valid, but its rollout was rolled back for this reason.
    RolledBack(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_data() {
        let found = Source::Found(Data(Some(b"dTpw".to_vec())));
        assert!(!format!("{found:?}").contains("dTpw"));
    }
}
