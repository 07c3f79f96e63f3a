//! The additional pull secrets that were rolled out. Pure.

use globalps_core::names;
use globalps_dockerconfig::{DockerConfig, validate_bytes};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use crate::secret::additional::data_of;
use crate::secret::changes::InForce;

/// A Secret of the history.
#[derive(Debug)]
pub(crate) struct StoredRevision {
    pub number: i64,
    pub rolled_out: Option<Timestamp>,
    pub bytes: Vec<u8>,
    pub config: DockerConfig,
    /// Name of the Secret with this revision.
    pub secret: String,
}

impl StoredRevision {
    /// `None` if the Secret is not part of the history.
    pub(crate) fn of(secret: &Secret) -> Option<Self> {
        Self::at(secret, names::DATA_KEY)
    }

    /// The revision in force, from the merged Secret; `None` if there is none.
    pub(crate) fn in_force(global: &Secret) -> Option<Self> {
        Self::at(global, names::LAST_ADDITIONAL_KEY)
    }

    fn at(secret: &Secret, key: &str) -> Option<Self> {
        let annotations = secret.metadata.annotations.as_ref()?;
        let number = annotations.get(names::REVISION_ANNOTATION)?.parse().ok()?;
        let rolled_out = annotations.get(names::ROLLED_OUT_ANNOTATION);
        let bytes = data_of(secret, key)?;
        Some(Self {
            number,
            rolled_out: rolled_out.and_then(|time| time.parse().ok()),
            bytes: bytes.to_vec(),
            config: validate_bytes(bytes).0.unwrap_or_default(),
            secret: secret.metadata.name.clone().unwrap_or_default(),
        })
    }
}

/// The revision in a Secret's annotation; 0 if there is none.
pub(crate) fn revision_of(secret: &Secret) -> i64 {
    let annotations = secret.metadata.annotations.as_ref();
    let number = annotations.and_then(|all| all.get(names::REVISION_ANNOTATION));
    number
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// Newest first, including the revision in force; each revision once.
pub(crate) fn sorted(
    slots: impl IntoIterator<Item = Secret>,
    global: Option<&Secret>,
) -> Vec<StoredRevision> {
    let kept = slots
        .into_iter()
        .filter_map(|secret| StoredRevision::of(&secret));
    let mut revisions: Vec<StoredRevision> = global
        .and_then(StoredRevision::in_force)
        .into_iter()
        .chain(kept)
        .collect();
    revisions.sort_by_key(|revision| std::cmp::Reverse(revision.number));
    revisions.dedup_by_key(|revision| revision.number);
    revisions
}

/// The revision that `undo` goes back to by default: the newest whose merged credentials differ from those with the
/// Secret's present content. `now`: that content; `None` if there is no Secret or it can't be parsed.
pub(crate) fn last_other<'a>(
    revisions: &'a [StoredRevision],
    now: Option<&DockerConfig>,
    in_force: &InForce,
) -> Option<&'a StoredRevision> {
    let now = now.map(|now| in_force.effective(now));
    let differs = |revision: &&StoredRevision| {
        let then = in_force.effective(&revision.config);
        now.as_ref().is_none_or(|now| !now.means_the_same(&then))
    };
    revisions.iter().find(differs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn slot(number: &str, content: &str) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.annotations = Some(
            [
                (names::REVISION_ANNOTATION, number),
                (names::ROLLED_OUT_ANNOTATION, "2026-01-01T00:00:00Z"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        );
        secret.data = Some(
            [(
                names::DATA_KEY.to_owned(),
                ByteString(content.as_bytes().to_vec()),
            )]
            .into(),
        );
        secret
    }

    /// In the order of their slots, which is arbitrary.
    fn revisions() -> Vec<StoredRevision> {
        let mut foreign = slot("1", "{}");
        foreign.metadata.annotations = None;
        let slots = [
            slot(
                "9",
                r#"{"auths":{"a":{"auth":"dTpw"},"b":{"auth":"dTpw"}}}"#,
            ),
            foreign,
            slot(
                "10",
                r#"{"auths":{"a":{"auth":"dTpx"},"c":{"auth":"dTpw"}}}"#,
            ),
            slot(
                "8",
                r#"{"auths":{"c":{"auth":"dTpw"},"https://a/":{"auth":"dTpx"}}}"#,
            ),
        ];
        sorted(slots, None)
    }

    #[test]
    fn the_one_in_force_is_among_them_once() {
        let mut global = slot("10", r#"{"auths":{"merged":{"auth":"dTpw"}}}"#);
        let content = ByteString(br#"{"auths":{"a":{"auth":"dTpw"}}}"#.to_vec());
        global
            .data
            .get_or_insert_default()
            .insert(names::LAST_ADDITIONAL_KEY.to_owned(), content);
        let slots = || ["9", "10"].map(|number| slot(number, r#"{"auths":{"b":{"auth":"dTpw"}}}"#));
        let numbers = |revisions: Vec<StoredRevision>| -> Vec<i64> {
            revisions.iter().map(|revision| revision.number).collect()
        };
        let found = sorted(slots(), Some(&global));
        assert_eq!(found[0].config.entries()[0].key(), "a");
        assert_eq!(numbers(found), [10, 9]);
        global.data = None;
        assert_eq!(numbers(sorted(slots(), Some(&global))), [10, 9]);
    }

    #[test]
    fn going_back_leads_to_the_newest_that_means_something_else() {
        let revisions = revisions();
        let to = |content: Option<&str>| {
            let now = content.and_then(|text| validate_bytes(text.as_bytes()).0);
            last_other(&revisions, now.as_ref(), &InForce::default())
                .map(|revision| revision.number)
        };
        for (sentence, now, expected) in [
            (
                "the newest is what is there now, in other words",
                Some(
                    r#"{"auths":{"https://c":{"auth":"dTpw"},"a":{"username":"u","password":"q"}}}"#,
                ),
                Some(9),
            ),
            (
                "what is there now was never rolled out",
                Some(r#"{"auths":{"d":{"auth":"dTpw"}}}"#),
                Some(10),
            ),
            ("nothing there that could be read", None, Some(10)),
        ] {
            assert_eq!(to(now), expected, "{sentence}");
        }
        assert!(last_other(&[], None, &InForce::default()).is_none());
        // The original pull secret has a credential of its own for the only registry that differs.
        let original = InForce {
            original: validate_bytes(br#"{"auths":{"a":{"auth":"dTpy"},"b":{"auth":"dTpy"}}}"#)
                .0
                .expect("valid"),
            precedence: globalps_dockerconfig::Precedence::Original,
            ..InForce::default()
        };
        let now = revisions[0].config.clone();
        assert_eq!(
            last_other(&revisions, Some(&now), &original).map(|it| it.number),
            Some(9)
        );
        let now = validate_bytes(br#"{"auths":{"a":{"auth":"dTpw"},"c":{"auth":"dTpw"}}}"#).0;
        assert_eq!(
            last_other(&revisions, now.as_ref(), &original).map(|it| it.number),
            Some(9)
        );
    }
}
