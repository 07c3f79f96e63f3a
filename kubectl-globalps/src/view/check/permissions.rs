//! Which of the permissions that the plugin's commands need this user has.

use globalps_core::names;

use super::{Check, well};

const PERMISSIONS: &str = "permissions of this user";

/// Where a permission is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The namespace of the pull secrets.
    Secrets,
    /// The namespace of the controller.
    Controller,
    Cluster,
}

/// A permission that commands of the plugin need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    /// Empty: all of them.
    pub name: String,
    pub place: Place,
    /// Commands and flags that fail without it.
    pub commands: &'static [&'static str],
    /// Empty if the commands fail without it; otherwise what they don't show.
    pub otherwise: &'static str,
}

/// `history_limit`: of the `GlobalPullSecret`.
pub(crate) fn permissions_of_commands(history_limit: u32) -> Vec<Permission> {
    let needed = |verb, group, resource, name: &str, commands| Permission {
        verb,
        group,
        resource,
        name: name.to_owned(),
        place: Place::Secrets,
        commands,
        otherwise: "",
    };
    let secret = |verb, name: &str, commands| needed(verb, "", "secrets", name, commands);
    let gps = |verb, commands| {
        needed(
            verb,
            names::GROUP,
            "globalpullsecrets",
            names::GLOBAL_SECRET,
            commands,
        )
    };
    let nodes = |verb, commands| needed(verb, names::GROUP, "nodepullsecrets", "", commands);
    let optional = |permission, place, otherwise| Permission {
        place,
        otherwise,
        ..permission
    };
    let mut all = vec![
        gps(
            "get",
            &[
                "status", "diff", "history", "undo", "why", "why -A", "--wait",
            ],
        ),
        nodes("list", &["status", "diff", "retry", "why -A", "--wait"]),
        nodes("get", &["why"]),
        secret(
            "get",
            names::ADDITIONAL_SECRET,
            &["add", "diff", "remove", "remove --all", "undo"],
        ),
        // RBAC can't restrict `create` by name.
        secret("create", "", &["the first add"]),
        secret(
            "update",
            names::ADDITIONAL_SECRET,
            &["add", "remove", "undo"],
        ),
        secret("delete", names::ADDITIONAL_SECRET, &["remove --all"]),
        secret(
            "get",
            names::GLOBAL_SECRET,
            &["diff", "history", "undo", "explain", "why", "why -A"],
        ),
        gps("patch", &["pause", "resume", "add --source"]),
        nodes("patch", &["retry", "--skip-unreachable"]),
    ];
    let slots = (0..history_limit.min(names::HISTORY_SLOTS)).map(names::history_secret);
    all.extend(slots.map(|slot| secret("get", &slot, &["history", "undo"])));
    for verb in ["list", "watch"] {
        all.push(gps(verb, &["--wait"]));
        for name in [names::ADDITIONAL_SECRET, names::GLOBAL_SECRET] {
            all.push(secret(verb, name, &["--wait"]));
        }
        let node = needed(verb, "", "nodes", "", &["status", "--wait"]);
        all.push(optional(node, Place::Cluster, "unreachable nodes"));
    }
    all.push(nodes("watch", &["--wait"]));
    let controller = needed(
        "get",
        "apps",
        "deployments",
        names::CONTROLLER,
        &["add", "--wait"],
    );
    let otherwise = "the namespace that the controller watches, and whether it runs";
    all.push(optional(controller, Place::Controller, otherwise));
    all.extend(of_pods().map(|(permission, otherwise)| {
        let (verb, group, resource, commands) = permission;
        let permission = needed(verb, group, resource, "", commands);
        optional(permission, Place::Cluster, otherwise)
    }));
    all
}

type OfPods = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

/// Optional, as a user may have them in some namespaces only.
fn of_pods() -> impl Iterator<Item = (OfPods, &'static str)> {
    const OTHERS: &str = "pods of namespaces without this permission";
    [
        (("get", "", "pods", &["why"][..]), OTHERS),
        (("list", "", "pods", &["why -A", "--retry-pods"]), OTHERS),
        (("list", "", "events", &["why"]), "messages of older pulls"),
        (
            ("get", "", "serviceaccounts", &["why"]),
            "which Secrets a pod has from its service account",
        ),
        (
            ("get", "", "secrets", &["why", "why -A"]),
            "credentials of the pods' own `imagePullSecrets`",
        ),
        (("create", "", "pods/eviction", &["--retry-pods"]), OTHERS),
    ]
    .into_iter()
}

/// `allowed`: the API server's answer to each permission.
pub(crate) fn permissions(answers: &[(Permission, bool)]) -> Vec<Check> {
    answers
        .iter()
        .map(|(permission, allowed)| {
            let Permission {
                verb,
                resource,
                name,
                commands,
                otherwise,
                ..
            } = permission;
            let what = match name.as_str() {
                "" => format!("{verb} {resource}"),
                name => format!("{verb} {resource} `{name}`"),
            };
            if *allowed {
                return well(PERMISSIONS, "permissions", format!("may {what}"));
            }
            let mut message = format!("may not {what}, for `{}`", commands.join("`, `"));
            if !otherwise.is_empty() {
                message = format!("{message}: they do not show {otherwise}");
            }
            let check = well(PERMISSIONS, "permissions", message);
            let hint = "ask an administrator of the cluster; the command prints the `kubectl` commands that grant it";
            if otherwise.is_empty() {
                check.fail(hint)
            } else {
                check.warn(hint)
            }
        })
        .collect()
}
