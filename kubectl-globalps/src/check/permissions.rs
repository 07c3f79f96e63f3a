//! What this user may do, of all that commands of the plugin ask for.

use globalps_core::names;

use super::{Check, well};

const PERMISSIONS: &str = "permissions of this user";

/// Something that a command of the plugin asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    /// Empty: all of them.
    pub name: &'static str,
    /// Not of a namespace.
    pub cluster_wide: bool,
    /// What can't be done without it.
    pub for_what: &'static str,
    /// The plugin does most of its work without it.
    pub optional: bool,
}

const fn needed(
    verb: &'static str,
    resource: &'static str,
    name: &'static str,
    for_what: &'static str,
) -> Permission {
    Permission {
        verb,
        group: "",
        resource,
        name,
        cluster_wide: false,
        for_what,
        optional: false,
    }
}

pub(crate) const PERMISSIONS_OF_COMMANDS: [Permission; 9] = [
    Permission {
        group: names::GROUP,
        ..needed("get", "globalpullsecrets", names::GLOBAL_SECRET, "`status`")
    },
    Permission {
        group: names::GROUP,
        ..needed("list", "nodepullsecrets", "", "`status`")
    },
    Permission {
        cluster_wide: true,
        optional: true,
        ..needed(
            "list",
            "nodes",
            "",
            "nodes that can't be reached, in `status`",
        )
    },
    needed(
        "get",
        "secrets",
        names::ADDITIONAL_SECRET,
        "`add`, `diff` and `remove`",
    ),
    needed(
        "create",
        "secrets",
        names::ADDITIONAL_SECRET,
        "the first `add`",
    ),
    needed(
        "update",
        "secrets",
        names::ADDITIONAL_SECRET,
        "`add`, `remove` and `undo`",
    ),
    needed(
        "get",
        "secrets",
        names::GLOBAL_SECRET,
        "`diff` and `history`",
    ),
    Permission {
        group: names::GROUP,
        ..needed(
            "patch",
            "globalpullsecrets",
            names::GLOBAL_SECRET,
            "`pause`, `resume` and `add --source`",
        )
    },
    Permission {
        group: names::GROUP,
        ..needed(
            "patch",
            "nodepullsecrets",
            "",
            "`retry` and `--skip-unreachable`",
        )
    },
];

/// `allowed`: the API server's answer to each permission.
pub(crate) fn permissions(answers: &[(Permission, bool)]) -> Vec<Check> {
    answers
        .iter()
        .map(|(permission, allowed)| {
            let Permission {
                verb,
                resource,
                name,
                for_what,
                ..
            } = permission;
            let what = match *name {
                "" => format!("{verb} {resource}"),
                name => format!("{verb} {resource} `{name}`"),
            };
            if *allowed {
                return well(PERMISSIONS, "permissions", format!("may {what}"));
            }
            let check = well(
                PERMISSIONS,
                "permissions",
                format!("may not {what}, for {for_what}"),
            );
            let hint = "ask an administrator of the cluster; the command itself names what to run";
            if permission.optional {
                check.warn(hint)
            } else {
                check.fail(hint)
            }
        })
        .collect()
}
