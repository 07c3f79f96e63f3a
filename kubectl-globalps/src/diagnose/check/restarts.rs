//! Finds credentials that change so often that delivery by the credentials file restarts kubelets all the time.

use globalps_core::api::{DeliveryType, GlobalPullSecret, Restart};
use globalps_dockerconfig::{Credential, DockerConfig, Lifetime, expiry, lifetime, shown_key};
use jiff::{SignedDuration, Timestamp};

use super::{Check, well};
use crate::secret::history::StoredRevision;

/// The period in which changes are counted, and the maximum lifetime of a credential that counts as renewed by a program.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Nobody makes this many changes in a day by hand.
const OFTEN: usize = 3;

/// Whether a change of credentials restarts kubelets.
pub(crate) fn restarts_kubelets(gps: &GlobalPullSecret) -> bool {
    let kubelet = &gps.spec.kubelet;
    kubelet.delivery == DeliveryType::ConfigFile && kubelet.restart == Restart::Always
}

/// `in_force`: the content on the nodes. `revisions`: the additional pull secrets in the history.
pub(crate) fn restarts_often(
    in_force: &DockerConfig,
    revisions: &[StoredRevision],
    now: Timestamp,
) -> Option<Check> {
    let short = in_force.entries().iter().find_map(|entry| {
        let credential = entry.credential().ok()??;
        let hours = hours(entry.key(), credential)?;
        Some((shown_key(entry.key()), hours))
    });
    let times = revisions.iter().filter_map(|it| it.rolled_out);
    let changes = times.filter(|time| now.duration_since(*time) < DAY).count();
    let message = match short {
        Some((registry, 1)) => format!(
            "the password for `{registry}` lasts an hour, and each new one restarts every kubelet"
        ),
        Some((registry, hours)) => format!(
            "the password for `{registry}` lasts {hours} hours, and each new one restarts every kubelet"
        ),
        None if changes >= OFTEN => format!(
            "the additional pull secret changed {changes} times or more in 24 hours, and each change restarted every kubelet"
        ),
        None => return None,
    };
    Some(well("delivery", "restarts-often", message).warn(
        "the credential provider needs no restart: `kubectl globalps install --delivery CredentialProvider`",
    ))
}

/// Lifetime of the credential, if it is a day or less. `Until` alone is not enough, because the token may be old.
fn hours(registry: &str, credential: &Credential) -> Option<i64> {
    if let Some(expiry) = expiry(registry, credential) {
        let lasts = expiry.at.duration_since(expiry.issued?);
        return (lasts <= DAY).then(|| lasts.as_hours().max(1));
    }
    match lifetime(registry, credential)? {
        Lifetime::Hours(hours) => Some(i64::from(hours)),
        Lifetime::Until(_) | Lifetime::Job => None,
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
    use globalps_dockerconfig::parse;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn config(registry: &str, login: &str) -> DockerConfig {
        let auth = BASE64_STANDARD.encode(login);
        let text = format!(r#"{{"auths":{{"{registry}":{{"auth":"{auth}"}}}}}}"#);
        parse(text.as_bytes()).expect("a config")
    }

    fn token(issued: Option<i64>, expires: i64) -> String {
        let issued = issued.map_or_else(String::new, |at| format!(r#""iat":{at},"#));
        let claims = BASE64_URL_SAFE_NO_PAD.encode(format!(r#"{{{issued}"exp":{expires}}}"#));
        format!("u:e30.{claims}.c2ln")
    }

    fn message(config: &DockerConfig, hours_ago: &[i64]) -> String {
        let revisions: Vec<StoredRevision> = hours_ago
            .iter()
            .map(|hours| StoredRevision {
                number: 1,
                rolled_out: Some(at(NOW - hours * 3600)),
                bytes: Vec::new(),
                config: DockerConfig::default(),
                secret: String::new(),
            })
            .collect();
        restarts_often(config, &revisions, at(NOW)).map_or_else(String::new, |it| it.message)
    }

    #[test]
    fn a_password_of_hours_is_named_with_its_registry() {
        const ECR: &str = "1.dkr.ecr.eu-central-1.amazonaws.com";
        const HOUR: i64 = 3600;
        for (registry, login, expected) in [
            (ECR, "AWS:p", "lasts 12 hours"),
            (
                "europe-docker.pkg.dev",
                "oauth2accesstoken:p",
                "lasts an hour",
            ),
            (
                "a.azurecr.io",
                "00000000-0000-0000-0000-000000000000:p",
                "lasts 3 hours",
            ),
            ("r", &token(Some(NOW), NOW + 6 * HOUR), "lasts 6 hours"),
            ("r", &token(Some(NOW), NOW + 600), "lasts an hour"),
            ("r", &token(Some(NOW), NOW + 25 * HOUR), ""),
            ("r", &token(None, NOW + HOUR), ""),
            ("quay.io", "robot:p", ""),
        ] {
            let message = message(&config(registry, login), &[]);
            assert_eq!(message.is_empty(), expected.is_empty(), "{message}");
            assert!(message.contains(expected), "{message}");
            assert!(message.is_empty() || message.contains(&format!("`{registry}`")));
        }
    }

    #[test]
    fn three_changes_in_a_day_are_often() {
        let config = config("quay.io", "robot:p");
        assert_eq!(message(&config, &[0, 1, 30]), "");
        assert!(message(&config, &[0, 1, 23]).contains("changed 3 times or more"));
    }

    #[test]
    fn only_a_credentials_file_with_a_restart_is_meant() {
        for (delivery, restart, expected) in [
            (DeliveryType::ConfigFile, Restart::Always, true),
            (DeliveryType::ConfigFile, Restart::Never, false),
            (DeliveryType::CredentialProvider, Restart::Always, false),
            (DeliveryType::None, Restart::Always, false),
        ] {
            let mut gps =
                GlobalPullSecret::new("g", globalps_core::api::GlobalPullSecretSpec::default());
            gps.spec.kubelet.delivery = delivery;
            gps.spec.kubelet.restart = restart;
            assert_eq!(
                restarts_kubelets(&gps),
                expected,
                "{delivery:?} {restart:?}"
            );
        }
    }
}
