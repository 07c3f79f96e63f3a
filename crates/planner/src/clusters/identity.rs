//! Which cluster a kubeconfig leads to. Its identity is pinned at first contact, as a host key is, and changes only if an admin accepts
//! another one. Pure.

use globalps_core::api::ClusterPullSecretStatus;
use globalps_core::reasons::{Reason, ReasonAndMessage};

use super::input::{ClusterKey, title};

/// What a session must find. An identity is the uid of the cluster's namespace `kube-system`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pin {
    /// `None`: the hub has never reached the cluster. Empty: the hub can't read it.
    pub identity: Option<String>,
    /// The one that an admin accepts instead.
    pub accepted: Option<String>,
}

impl Pin {
    /// Whether `found` is the cluster, or becomes it: at first contact, or because it is accepted. `found`: `None`: not known yet,
    /// empty: the kubeconfig does not allow to read it.
    pub fn allows(&self, found: Option<&str>) -> bool {
        let Some(found) = found else { return true };
        match self.identity.as_deref() {
            None | Some("") => true,
            Some(known) => {
                known == found || !found.is_empty() && self.accepted.as_deref() == Some(found)
            }
        }
    }

    /// Sets the fields of the status that say which cluster it is.
    pub fn report(&self, found: Option<&str>, status: &mut ClusterPullSecretStatus) {
        let found = found.map(str::to_owned);
        if self.allows(found.as_deref()) {
            status.identity = found.or_else(|| self.identity.clone());
        } else {
            status.identity.clone_from(&self.identity);
            status.found_identity = found.filter(|it| !it.is_empty());
        }
    }

    /// Why nothing is written, and how an admin accepts what was found. `fleet`: `NAMESPACE/NAME`.
    pub fn refusal(&self, found: &str, fleet: &str, cluster: &ClusterKey) -> ReasonAndMessage {
        let known = self.identity.as_deref().unwrap_or_default();
        let message = if found.is_empty() {
            format!(
                "its kubeconfig does not allow to read the namespace `kube-system`, whose uid was `{known}`: the hub can't tell whether it leads to the same cluster as before, and writes nothing until it may `get` this namespace, as after `kubectl globalps fleet join`"
            )
        } else {
            let (namespace, name) = fleet.split_once('/').unwrap_or(("", fleet));
            format!(
                "its kubeconfig leads to another cluster than before: the namespace `kube-system` has the uid `{found}`, not `{known}`. The hub writes nothing there until `kubectl globalps fleet accept {name} {} -n {namespace}`",
                title(cluster)
            )
        };
        (Reason::IdentityChanged, message)
    }
}

/// Why the hub writes nothing into its own cluster.
pub fn is_hub() -> ReasonAndMessage {
    let message = "its kubeconfig leads to the management cluster itself";
    (Reason::IsHub, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_accepted_identity_replaces_the_pinned_one() {
        for (pinned, accepted, found, is_allowed, identity, other) in [
            (None, None, None, true, None, None),
            (None, None, Some("1"), true, Some("1"), None),
            (None, None, Some(""), true, Some(""), None),
            (Some(""), None, Some("1"), true, Some("1"), None),
            (Some("1"), None, None, true, Some("1"), None),
            (Some("1"), None, Some("1"), true, Some("1"), None),
            (Some("1"), None, Some("2"), false, Some("1"), Some("2")),
            (Some("1"), Some("2"), Some("2"), true, Some("2"), None),
            (Some("1"), Some("2"), Some("1"), true, Some("1"), None),
            (Some("1"), Some("2"), Some("3"), false, Some("1"), Some("3")),
            (Some("1"), Some("2"), None, true, Some("1"), None),
            // Nothing can be accepted that the hub can't read.
            (Some("1"), None, Some(""), false, Some("1"), None),
            (Some("1"), Some(""), Some(""), false, Some("1"), None),
        ] {
            let case = format!("{pinned:?}, {accepted:?}: {found:?}");
            let pin = Pin {
                identity: pinned.map(str::to_owned),
                accepted: accepted.map(str::to_owned),
            };
            assert_eq!(pin.allows(found), is_allowed, "{case}");
            let mut status = ClusterPullSecretStatus::default();
            pin.report(found, &mut status);
            assert_eq!(status.identity.as_deref(), identity, "{case}");
            assert_eq!(status.found_identity.as_deref(), other, "{case}");
        }
    }

    #[test]
    fn the_message_has_the_command_that_accepts_the_identity() {
        let pin = Pin {
            identity: Some("1".to_owned()),
            accepted: None,
        };
        let cluster = ("edge".to_owned(), "m".to_owned());
        let (_, message) = pin.refusal("2", "clusters/shared", &cluster);
        let command = "kubectl globalps fleet accept shared edge/m -n clusters";
        assert!(message.contains(command), "{message}");
        assert!(message.contains("`2`, not `1`"), "{message}");
        let (_, message) = pin.refusal("", "clusters/shared", &cluster);
        assert!(!message.contains("fleet accept"), "{message}");
    }
}
