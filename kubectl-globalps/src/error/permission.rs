//! Parses "forbidden" errors: the missing permission and the commands that grant it. Pure.

use std::fmt;

/// A permission that the user lacks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missing<'a> {
    user: &'a str,
    verb: &'a str,
    /// With its subresource, if any: `nodepullsecrets/status`.
    resource: &'a str,
    group: &'a str,
    /// Empty: all names.
    name: &'a str,
    /// Empty: cluster scope.
    namespace: &'a str,
}

impl<'a> Missing<'a> {
    /// Parses the API server's message; `None` if the reason is not a missing permission.
    pub(crate) fn of(message: &'a str) -> Option<Self> {
        let (what, why) = message.split_once(" is forbidden: User \"")?;
        let (user, rest) = why.split_once("\" cannot ")?;
        let (verb, rest) = rest.split_once(" resource \"")?;
        let (resource, rest) = rest.split_once("\" in API group \"")?;
        let (group, place) = rest.split_once('"')?;
        let namespace = match place.split_once("in the namespace \"") {
            Some((_, namespace)) => namespace.split_once('"')?.0,
            None => "",
        };
        let name = what
            .split_once('"')
            .and_then(|(_, name)| name.strip_suffix('"'))
            .unwrap_or_default();
        Some(Self {
            user,
            verb,
            resource,
            group,
            name,
            namespace,
        })
    }

    /// Two kubectl commands that grant the permission.
    pub(crate) fn grant(&self) -> String {
        let (plain, subresource) = match self.resource.split_once('/') {
            Some((plain, sub)) => (plain, format!("/{sub}")),
            None => (self.resource, String::new()),
        };
        let group = match self.group {
            "" => String::new(),
            group => format!(".{group}"),
        };
        let (kind, place) = match self.namespace {
            "" => ("clusterrole", String::new()),
            namespace => ("role", format!(" -n {namespace}")),
        };
        // RBAC can't restrict `create` by name.
        let name = match self.name {
            "" => String::new(),
            _ if self.verb == "create" => String::new(),
            name => format!(" --resource-name={}", quoted(name)),
        };
        let subject = match self.user.strip_prefix("system:serviceaccount:") {
            Some(account) => format!("--serviceaccount={}", quoted(account)),
            None => format!("--user={}", quoted(self.user)),
        };
        let verb = self.verb;
        // A separate name for each permission avoids collisions.
        let words = [self.user, verb, plain, self.name].map(word);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let title = words.join("-");
        let title = title.trim_end_matches('-');
        format!(
            "kubectl create {kind} {title}{place} --verb={verb} --resource={plain}{group}{subresource}{name} && \
             kubectl create {kind}binding {title}{place} --{kind}={title} {subject}"
        )
    }
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            user,
            verb,
            resource,
            group,
            ..
        } = self;
        let group = match *group {
            "" => String::new(),
            group => format!(" of {group}"),
        };
        write!(f, "user `{user}` may not {verb} {resource}{group}")?;
        match self.namespace {
            "" => Ok(()),
            namespace => write!(f, " in namespace `{namespace}`"),
        }
    }
}

/// A part of an object's name.
fn word(text: &str) -> String {
    let letter = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    text.chars().map(letter).collect()
}

/// Quotes the text as one shell word.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":._@/-".contains(c);
    if text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_permission_is_named_with_the_granting_command() {
        for (message, said, grant) in [
            (
                r#"secrets "additional-pull-secret" is forbidden: User "alice" cannot get resource "secrets" in API group "" in the namespace "kube-system""#,
                "user `alice` may not get secrets in namespace `kube-system`",
                "kubectl create role alice-get-secrets-additional-pull-secret -n kube-system --verb=get --resource=secrets --resource-name=additional-pull-secret && \
                 kubectl create rolebinding alice-get-secrets-additional-pull-secret -n kube-system --role=alice-get-secrets-additional-pull-secret --user=alice",
            ),
            (
                r#"secrets "additional-pull-secret" is forbidden: User "a'b" cannot create resource "secrets" in API group "" in the namespace "n": RBAC: role.rbac.authorization.k8s.io "x" not found"#,
                "user `a'b` may not create secrets in namespace `n`",
                r"kubectl create role a-b-create-secrets-additional-pull-secret -n n --verb=create --resource=secrets && kubectl create rolebinding a-b-create-secrets-additional-pull-secret -n n --role=a-b-create-secrets-additional-pull-secret --user='a'\''b'",
            ),
            (
                r#"nodes is forbidden: User "system:serviceaccount:ci:bot" cannot list resource "nodes" in API group "" at the cluster scope"#,
                "user `system:serviceaccount:ci:bot` may not list nodes",
                "kubectl create clusterrole system-serviceaccount-ci-bot-list-nodes --verb=list --resource=nodes && \
                 kubectl create clusterrolebinding system-serviceaccount-ci-bot-list-nodes --clusterrole=system-serviceaccount-ci-bot-list-nodes --serviceaccount=ci:bot",
            ),
            (
                r#"nodepullsecrets.globalps.io "node-1" is forbidden: User "u" cannot patch resource "nodepullsecrets/status" in API group "globalps.io" in the namespace "kube-system""#,
                "user `u` may not patch nodepullsecrets/status of globalps.io in namespace `kube-system`",
                "kubectl create role u-patch-nodepullsecrets-node-1 -n kube-system --verb=patch --resource=nodepullsecrets.globalps.io/status --resource-name=node-1 && \
                 kubectl create rolebinding u-patch-nodepullsecrets-node-1 -n kube-system --role=u-patch-nodepullsecrets-node-1 --user=u",
            ),
        ] {
            let missing = Missing::of(message).expect(message);
            assert_eq!(missing.to_string(), said);
            assert_eq!(missing.grant(), grant);
        }
    }

    #[test]
    fn another_refusal_is_no_missing_permission() {
        for message in [
            "",
            r#"pods "x" is forbidden: violates PodSecurity "restricted:latest""#,
            r#"roles.rbac.authorization.k8s.io "r" is forbidden: user "u" is attempting to grant RBAC permissions not currently held"#,
        ] {
            assert_eq!(Missing::of(message), None, "{message}");
        }
    }
}
