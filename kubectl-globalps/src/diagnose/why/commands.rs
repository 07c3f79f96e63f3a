//! Commands that fix a cause, quoted for a shell. Pure.

use globalps_core::api::GlobalPullSecret;
use globalps_core::names;
use globalps_provider::Pattern;
use serde_json::{Value, json};

use super::facts::PodSeen;
use crate::error::quoted;

/// The cluster that the commands apply to.
#[derive(Clone, Copy)]
pub(crate) struct CommandTarget<'a> {
    /// The context that the user named.
    pub context: Option<&'a str>,
    /// Namespace of the pull secrets.
    pub secrets: &'a str,
}

impl CommandTarget<'_> {
    /// The text; its commands get the flags that they need.
    pub(crate) fn text(&self, text: &str) -> String {
        let context = self.context.map(quoted);
        let context = context.map_or(String::new(), |name| format!("--context {name} "));
        let namespace = match self.secrets {
            names::NAMESPACE => String::new(),
            other => format!("--pull-secret-namespace {} ", quoted(other)),
        };
        let plugin = format!("kubectl globalps {context}{namespace}");
        let flags = |part: &str| match part.strip_prefix("globalps ") {
            Some(rest) => format!("{plugin}{rest}"),
            None => format!("kubectl {context}{part}"),
        };
        let mut parts = text.split("kubectl ");
        let first = parts.next().unwrap_or_default().to_owned();
        std::iter::once(first).chain(parts.map(flags)).collect()
    }
}

/// The command that returns to an earlier revision, as part of a hint.
pub(super) fn go_back(revision: i64) -> String {
    format!(
        "or go back to revision {revision}, which had another credential: `kubectl globalps undo --to-revision {revision} --wait --retry-pods`"
    )
}

/// The command that extends the scope of the source to the pod. `secrets`: namespace of the pull secrets.
pub(super) fn widen(
    gps: &GlobalPullSecret,
    source: &str,
    pod: &PodSeen,
    secrets: &str,
) -> Option<String> {
    let sources = &gps.spec.sources;
    let at = sources.iter().position(|it| it.name == source)?;
    let scope = sources.get(at)?.scope.as_ref()?;
    let matches = |patterns: &[String], name: &str| {
        let mut patterns = patterns.iter().cloned();
        patterns.any(|text| Pattern::try_from(text).is_ok_and(|it| it.matches(name)))
    };
    let add = |field: &str, all: &[String], name: &str| {
        let base = format!("/spec/sources/{at}/scope/{field}");
        if all.is_empty() {
            json!({"op": "add", "path": base, "value": [name]})
        } else {
            json!({"op": "add", "path": format!("{base}/-"), "value": name})
        }
    };
    // The patch fails if the list has changed meanwhile.
    let name = format!("/spec/sources/{at}/name");
    let mut patch = vec![json!({"op": "test", "path": name, "value": source})];
    let PodSeen {
        namespace,
        service_account,
        ..
    } = pod;
    let accounts = &scope.service_accounts;
    let has_account = accounts.is_empty() || matches(accounts, service_account);
    if !has_account {
        patch.push(add("serviceAccounts", accounts, service_account));
    }
    let is_named = matches(&scope.namespaces, namespace);
    // If only the service account is missing, the selector may match the namespace already.
    if !is_named && (has_account || scope.namespace_selector.is_none()) {
        patch.push(add("namespaces", &scope.namespaces, namespace));
    }
    let patch = Value::from(patch).to_string();
    Some(format!(
        "kubectl -n {secrets} patch globalpullsecret {} --type=json -p {}",
        names::GLOBAL_SECRET,
        quoted(&patch)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_for_the_cluster_that_was_asked() {
        let text = "kubectl -n a edit secret x, or `kubectl globalps add r`";
        for (context, secrets, expected) in [
            (None, names::NAMESPACE, text),
            (
                None,
                "team",
                "kubectl -n a edit secret x, or `kubectl globalps --pull-secret-namespace team add r`",
            ),
            (
                Some("my prod"),
                "team",
                "kubectl --context 'my prod' -n a edit secret x, or `kubectl globalps --context 'my prod' --pull-secret-namespace team add r`",
            ),
        ] {
            assert_eq!(CommandTarget { context, secrets }.text(text), expected);
        }
    }
}
