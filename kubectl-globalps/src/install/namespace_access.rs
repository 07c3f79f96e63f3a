//! What `install` grants for delivery to namespaces: the name of the Secret, and how pods refer to it.

use globalps_core::api::{Attach, GlobalPullSecret, ImagePullSecrets};
use globalps_manifests::NamespaceAccess;

use crate::cli::{Install, SecretName};
use crate::cluster::client::Cluster;
use crate::cluster::served::serves;
use crate::error::{Failure, Result};

const POLICIES: &str = "admissionregistration.k8s.io/v1";

/// From the flags alone, without a cluster.
pub(crate) fn printed(args: &Install) -> Option<NamespaceAccess> {
    let SecretName(name) = args.deliver_to_namespaces.as_ref()?;
    Some(NamespaceAccess {
        secret_name: name.clone(),
        attach: args.attach.map_or(Attach::Admission, Into::into),
        detaches: false,
    })
}

/// The values of the flags.
pub(crate) fn asked(args: &Install) -> (Option<&str>, Option<Attach>) {
    let name = args.deliver_to_namespaces.as_ref();
    (
        name.map(|name| name.0.as_str()),
        args.attach.map(Into::into),
    )
}

/// Combines the requested values with the configured ones, which fill in what the flags omit. `None`: namespaces get nothing.
pub(crate) async fn chosen(
    (name, attach): (Option<&str>, Option<Attach>),
    config: Option<&GlobalPullSecret>,
    cluster: &Cluster<'_>,
) -> Result<Option<NamespaceAccess>> {
    let live = config.map(|config| &config.spec.image_pull_secrets);
    let live = live.filter(|live| live.enabled);
    if name.is_none() && live.is_none() {
        return Ok(None);
    }
    let is_served = serves(cluster, POLICIES, "mutatingadmissionpolicies").await?;
    let (access, note) = choose(name, attach, live, is_served)?;
    if let Some(note) = note {
        cluster.printer().note(note);
    }
    let status = config.and_then(|config| config.status.as_ref());
    let status = status.and_then(|status| status.image_pull_secrets.as_ref());
    let attached = status.map_or(0, |status| status.service_accounts);
    Ok(access.map(|access| {
        let detaches = access.attach == Attach::Admission && attached > 0;
        if detaches {
            cluster.printer().note(format!(
                "{attached} service accounts refer to the Secret until the controller has changed them: its right to do so stays \
                 until `install` runs again"
            ));
        }
        NamespaceAccess { detaches, ..access }
    }))
}

type ChoiceAndNote = (Option<NamespaceAccess>, Option<&'static str>);

/// `name` and `attach`: from the flags. `live`: the configuration, if enabled. Also returns a note for the user.
fn choose(
    name: Option<&str>,
    attach: Option<Attach>,
    live: Option<&ImagePullSecrets>,
    is_served: bool,
) -> Result<ChoiceAndNote> {
    let known = live.map(|live| live.secret_name.as_str());
    let Some(secret_name) = name.or(known) else {
        return Ok((None, None));
    };
    if let Some(known) = known.filter(|known| *known != secret_name) {
        return Err(Failure::new(
            format!(
                "namespaces have the Secret `{known}`, and its name can't change while they do"
            ),
            "set `spec.imagePullSecrets.enabled: false`, wait until `kubectl globalps status` shows no namespaces, and install again",
        ));
    }
    let wanted = attach.or(live.and_then(|live| live.attach));
    if wanted == Some(Attach::Admission) && !is_served {
        return Err(Failure::new(
            "`attach: Admission` needs MutatingAdmissionPolicy v1, and the API server does not serve it",
            "`--deliver-to-namespaces --attach service-accounts` goes without",
        ));
    }
    let note = (wanted.is_none() && !is_served).then_some(
        "the API server does not serve MutatingAdmissionPolicy v1, so the controller adds the Secret to service accounts \
         (`attach: ServiceAccounts`); pods of other service accounts don't get it: see `spec.imagePullSecrets.serviceAccounts`",
    );
    let by_default = if is_served {
        Attach::Admission
    } else {
        Attach::ServiceAccounts
    };
    let access = NamespaceAccess {
        secret_name: secret_name.to_owned(),
        attach: wanted.unwrap_or(by_default),
        detaches: false,
    };
    Ok((Some(access), note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_precede_the_configuration_and_that_the_default() {
        use Attach::{Admission, ServiceAccounts};
        let settings = |attach| ImagePullSecrets {
            enabled: true,
            secret_name: "s".to_owned(),
            attach,
            ..ImagePullSecrets::default()
        };
        let none = None::<Option<Attach>>;
        #[rustfmt::skip]
        let cases = [
            (None, None, none, true, Ok(None)),
            (Some("a"), None, none, true, Ok(Some(("a", Admission, false)))),
            (Some("a"), None, none, false, Ok(Some(("a", ServiceAccounts, true)))),
            (Some("a"), Some(ServiceAccounts), none, true, Ok(Some(("a", ServiceAccounts, false)))),
            (Some("a"), Some(Admission), none, false, Err("MutatingAdmissionPolicy")),
            (None, None, Some(None), true, Ok(Some(("s", Admission, false)))),
            (None, None, Some(Some(ServiceAccounts)), true, Ok(Some(("s", ServiceAccounts, false)))),
            (Some("s"), None, Some(Some(ServiceAccounts)), true, Ok(Some(("s", ServiceAccounts, false)))),
            (Some("s"), Some(Admission), Some(Some(ServiceAccounts)), true, Ok(Some(("s", Admission, false)))),
            (Some("other"), None, Some(None), true, Err("Secret `s`")),
        ];
        for (name, attach, live, is_served, expected) in cases {
            let case = format!("{name:?} {attach:?} {live:?} {is_served}");
            let live = live.map(settings);
            let chosen = choose(name, attach, live.as_ref(), is_served);
            let found = chosen.map(|(access, note)| {
                access.map(|access| (access.secret_name, access.attach, note.is_some()))
            });
            match expected {
                Ok(expected) => {
                    let expected = expected.map(|(name, by, said)| (name.to_owned(), by, said));
                    assert_eq!(found, Ok(expected), "{case}");
                }
                Err(expected) => {
                    let failure = found.expect_err(&case);
                    assert!(failure.message.contains(expected), "{case}: {failure:?}");
                }
            }
        }
    }
}
