//! Which of the permissions that the plugin's commands need are granted to this user.

use std::collections::BTreeSet;

use globalps_core::names;

use super::{Check, CheckResult, well};

const PERMISSIONS: &str = "permissions of this user";

/// The scope of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermissionScope {
    /// The namespace of the pull secrets.
    Secrets,
    /// The namespace of the controller.
    Controller,
    Cluster,
}

/// Commands and flags, and what they omit.
type Shorter = &'static [(&'static [&'static str], &'static str)];

/// A permission that commands of the plugin need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    /// Empty: all names.
    pub name: String,
    pub place: PermissionScope,
    /// Commands and flags that fail without the permission. `bundle` never fails: its manifest lists what it could not read.
    pub commands: &'static [&'static str],
    /// Commands and flags that work without the permission, and what they then omit.
    pub shorter: Shorter,
}

impl Permission {
    /// Whether this command fails, or shows less, without the permission.
    #[cfg(test)]
    pub(crate) fn is_for(&self, command: &str) -> bool {
        let mut shorter = self.shorter.iter();
        self.commands.contains(&command) || shorter.any(|(of, _)| of.contains(&command))
    }
}

/// `history_limit`: of the `GlobalPullSecret`.
pub(crate) fn permissions_of_commands(history_limit: u32) -> Vec<Permission> {
    let needed = |verb, group, resource, name: &str, commands| Permission {
        verb,
        group,
        resource,
        name: name.to_owned(),
        place: PermissionScope::Secrets,
        commands,
        shorter: &[],
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
    let without = |permission, shorter| Permission {
        shorter,
        ..permission
    };
    let mut all = vec![
        gps(
            "get",
            &[
                "status", "list", "diff", "history", "undo", "why", "why -A", "--wait",
            ],
        ),
        without(
            nodes(
                "list",
                &["status", "diff", "retry", "bundle", "why -A", "--wait"],
            ),
            &[(&["list"], "the number of nodes")],
        ),
        nodes("get", &["why"]),
        without(
            secret(
                "get",
                names::ADDITIONAL_SECRET,
                &["add", "diff", "remove", "remove --all", "undo", "bundle"],
            ),
            &[(&["why", "why -A"], "credentials that are not merged")],
        ),
        // RBAC can't restrict `create` by name.
        secret("create", "", &["the first add"]),
        secret(
            "update",
            names::ADDITIONAL_SECRET,
            &["add", "remove", "undo"],
        ),
        secret("delete", names::ADDITIONAL_SECRET, &["remove --all"]),
        without(
            secret(
                "get",
                names::GLOBAL_SECRET,
                &[
                    "diff", "history", "undo", "explain", "why", "why -A", "bundle",
                ],
            ),
            &[(&["list"], "most registries, users and revisions")],
        ),
        gps("patch", &["pause", "resume", "add --source"]),
        nodes("patch", &["retry", "--skip-unreachable"]),
    ];
    let slots = (0..history_limit.min(names::HISTORY_SLOTS)).map(names::history_secret);
    all.extend(slots.map(|slot| {
        without(
            secret("get", &slot, &["history", "undo", "bundle"]),
            &[
                (&["list"], "ages"),
                (&["why", "why -A"], "revisions to go back to"),
            ],
        )
    }));
    for verb in ["list", "watch"] {
        let (of_gps, of_nodes): (&[_], Shorter) = match verb {
            "list" => (
                &["bundle", "--wait"],
                &[(&["status", "bundle", "--wait"], "unreachable nodes")],
            ),
            _ => (&["--wait"], &[(&["status", "--wait"], "unreachable nodes")]),
        };
        all.push(gps(verb, of_gps));
        for name in [names::ADDITIONAL_SECRET, names::GLOBAL_SECRET] {
            all.push(secret(verb, name, &["--wait"]));
        }
        all.push(Permission {
            place: PermissionScope::Cluster,
            ..without(needed(verb, "", "nodes", "", &[]), of_nodes)
        });
    }
    all.push(nodes("watch", &["--wait"]));
    all.extend(permissions_to_see_what_runs());
    all.extend(permissions_of_bundle());
    all.extend(permissions_of_pods());
    all
}

fn permissions_to_see_what_runs() -> [Permission; 3] {
    let get = |group, resource, name: &str, place, shorter| Permission {
        verb: "get",
        group,
        resource,
        name: name.to_owned(),
        place,
        commands: &[],
        shorter,
    };
    [
        get(
            "apps",
            "deployments",
            names::CONTROLLER,
            PermissionScope::Controller,
            &[
                (
                    &["add", "--wait"],
                    "the namespace that the controller watches, and whether it runs",
                ),
                (&["status"], "whether the controller runs"),
            ],
        ),
        get(
            "coordination.k8s.io",
            "leases",
            names::LEASE,
            PermissionScope::Controller,
            &[(&["status"], "which controller leads")],
        ),
        get(
            "apps",
            "daemonsets",
            names::SYNCER,
            PermissionScope::Secrets,
            &[(&["status"], "whether the syncers run")],
        ),
    ]
}

/// Permissions that only `bundle` needs.
fn permissions_of_bundle() -> impl Iterator<Item = Permission> {
    use PermissionScope::{Cluster, Controller, Secrets};
    [
        ("get", "", "secrets", names::ROLLED_OUT_SECRET, Secrets),
        ("list", "apps", "deployments", "", Controller),
        ("list", "apps", "daemonsets", "", Secrets),
        ("list", "", "pods", "", Controller),
        ("list", "", "pods", "", Secrets),
        ("get", "", "pods/log", "", Controller),
        ("get", "", "pods/log", "", Secrets),
        ("list", "", "events", "", Controller),
        ("list", "", "events", "", Secrets),
        ("list", names::GROUP, "fleetpullsecrets", "", Cluster),
        ("list", names::GROUP, "clusterpullsecrets", "", Cluster),
    ]
    .into_iter()
    .map(|(verb, group, resource, name, place)| Permission {
        verb,
        group,
        resource,
        name: name.to_owned(),
        place,
        commands: &[],
        shorter: &[(&["bundle"], "these objects")],
    })
}

/// Permissions for pods that wait for an image. A user may have them in some namespaces only.
fn permissions_of_pods() -> impl Iterator<Item = Permission> {
    const OTHERS: &str = "pods of namespaces without this permission";
    let all: [(_, _, Shorter); 7] = [
        ("get", "pods", &[(&["why"], OTHERS)]),
        ("list", "pods", &[(&["why -A", "--retry-pods"], OTHERS)]),
        (
            "list",
            "events",
            &[(
                &["why", "why -A"],
                "messages of older pulls, and of sandbox images",
            )],
        ),
        (
            "get",
            "nodes",
            &[(&["why", "why -A"], "whether a node has an image")],
        ),
        (
            "get",
            "serviceaccounts",
            &[(&["why"], "which Secrets a pod has from its service account")],
        ),
        (
            "get",
            "secrets",
            &[(
                &["why", "why -A"],
                "credentials of the pods' own `imagePullSecrets`",
            )],
        ),
        ("create", "pods/eviction", &[(&["--retry-pods"], OTHERS)]),
    ];
    all.into_iter().map(|(verb, resource, shorter)| Permission {
        verb,
        group: "",
        resource,
        name: String::new(),
        place: PermissionScope::Cluster,
        commands: &[],
        shorter,
    })
}

/// If more permissions are missing, one line reports them all.
const MOST_LINES: usize = 3;

pub(super) fn is_granted(check: &Check) -> bool {
    check.group == PERMISSIONS && check.result == CheckResult::Ok
}

pub(super) fn is_missing(check: &Check) -> bool {
    check.group == PERMISSIONS && check.result != CheckResult::Ok
}

/// One line for all missing permissions, if there are many. The shipped role grants them all.
pub(super) fn missing(checks: &[Check]) -> Option<Check> {
    let all = checks.iter().filter(|check| check.group == PERMISSIONS);
    let missing: Vec<&Check> = all.clone().filter(|check| is_missing(check)).collect();
    if missing.len() <= MOST_LINES {
        return None;
    }
    let commands = |result: CheckResult| {
        let of_result = missing.iter().filter(|check| check.result == result);
        let found: BTreeSet<&str> = of_result.flat_map(|it| it.commands.clone()).collect();
        let found: Vec<&str> = found.into_iter().collect();
        found.join("`, `")
    };
    let mut parts = Vec::new();
    for (result, what) in [
        (CheckResult::Failure, "fail"),
        (CheckResult::Warning, "show less"),
    ] {
        let found = commands(result);
        if !found.is_empty() {
            parts.push(format!("`{found}` {what}"));
        }
    }
    let message = format!(
        "{} of {} permissions are missing, so {}",
        missing.len(),
        all.count(),
        parts.join("; ")
    );
    let role = globalps_manifests::OPERATOR;
    let hint = format!(
        "an administrator grants them with `kubectl create clusterrolebinding {role}-USER --clusterrole {role} --user USER`, or with `{}` what only reads and no Secret; `-o json` lists them",
        globalps_manifests::VIEWER
    );
    let check = well(PERMISSIONS, "permissions", message);
    Some(if commands(CheckResult::Failure).is_empty() {
        check.warn(hint)
    } else {
        check.fail(hint)
    })
}

/// One line for all permissions that are granted.
pub(super) fn granted(checks: &[Check]) -> String {
    let all = checks.iter().filter(|check| check.group == PERMISSIONS);
    let granted = all.clone().filter(|check| is_granted(check)).count();
    let number = match all.count() {
        all if all == granted => format!("all {all}"),
        all => format!("{granted} of {all}"),
    };
    format!("{number} permissions are granted (`-o json` lists them)")
}

impl PermissionScope {
    /// ` in namespace ...`, or empty for a cluster-scoped object.
    fn text(self, resource: &str, secrets: &str) -> String {
        match self {
            Self::Secrets => format!(" in namespace `{secrets}`"),
            Self::Controller => format!(" in namespace `{}`", names::CONTROLLER_NAMESPACE),
            Self::Cluster if resource == "nodes" => String::new(),
            Self::Cluster => " in every namespace".to_owned(),
        }
    }
}

/// `answers`: whether each permission is granted. `secrets`: namespace of the pull secrets.
pub(crate) fn permissions(answers: &[(Permission, bool)], secrets: &str) -> Vec<Check> {
    answers
        .iter()
        .map(|(permission, allowed)| {
            let Permission {
                verb,
                resource,
                name,
                commands,
                shorter,
                place,
                ..
            } = permission;
            let place = place.text(resource, secrets);
            let what = match name.as_str() {
                "" => format!("{verb} {resource}{place}"),
                name => format!("{verb} {resource} `{name}`{place}"),
            };
            if *allowed {
                return well(PERMISSIONS, "permissions", format!("may {what}"));
            }
            let quoted = |commands: &[&str]| format!("`{}`", commands.join("`, `"));
            let mut parts = vec![format!("may not {what}")];
            if !commands.is_empty() {
                parts.push(format!("for {}", quoted(commands)));
            }
            parts.extend(shorter.iter().map(|(commands, missing)| {
                let verb = if commands.len() == 1 { "does" } else { "do" };
                format!("{} {verb} not show {missing}", quoted(commands))
            }));
            let between = if commands.is_empty() { ": " } else { ", " };
            let message = parts.join("; ").replacen("; ", between, 1);
            let shown_less = shorter.iter().flat_map(|(commands, _)| commands.iter());
            let check = Check {
                commands: if commands.is_empty() {
                    shown_less.copied().collect()
                } else {
                    commands.to_vec()
                },
                ..well(PERMISSIONS, "permissions", message)
            };
            let hint = "ask an administrator of the cluster; the command prints the `kubectl` commands that grant it";
            if commands.is_empty() {
                check.warn(hint)
            } else {
                check.fail(hint)
            }
        })
        .collect()
}
