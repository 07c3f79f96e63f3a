//! All pods that can't pull, grouped by registry, cause and suggestion. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::answer::{labelled, lines_of};
use super::cause::{Cause, Code};

/// Maximum number of pods that a group lists.
const NAMED: usize = 5;

#[derive(Debug, Serialize)]
pub(crate) struct Group {
    #[serde(flatten)]
    cause: Cause,
    pub pods: usize,
    /// `NAMESPACE/NAME` of some of the pods.
    names: Vec<String>,
}

/// `why -A -o json`. Scripts rely on these fields.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Groups {
    /// Pods that can't pull.
    pub pods: usize,
    /// Largest first.
    pub groups: Vec<Group>,
}

impl Groups {
    /// `found`: each cause with its pods.
    pub(crate) fn of(found: impl IntoIterator<Item = (Cause, Vec<String>)>) -> Self {
        let mut groups: BTreeMap<(String, Code, String), Group> = BTreeMap::new();
        let mut pods = 0;
        for (cause, mut names) in found {
            pods += names.len();
            // Facts that differ between pods, such as the node or the Deployment, don't form groups.
            let apart = match cause.code {
                Code::NoReference => cause.command.clone() + &cause.hint,
                Code::CredentialsRefused | Code::OutsideScope | Code::RateLimited => {
                    cause.command.clone()
                }
                Code::ImageNotFound | Code::InvalidImageName | Code::NamespaceTerminating => {
                    cause.message.clone()
                }
                _ => String::new(),
            };
            let key = (cause.registry.clone(), cause.code, apart);
            let group = groups.entry(key).or_insert_with(|| Group {
                cause,
                pods: 0,
                names: Vec::new(),
            });
            group.pods += names.len();
            let room = NAMED.saturating_sub(group.names.len());
            names.truncate(room);
            group.names.append(&mut names);
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.pods));
        Self { pods, groups }
    }

    /// `width`: of the terminal, if there is one.
    pub(crate) fn text(&self, width: Option<usize>) -> String {
        let mut parts = Vec::new();
        for group in &self.groups {
            let more = match group.pods - group.names.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let mut lines = vec![
                format!("registry:   {}", group.cause.registry),
                format!(
                    "pods:       {}: {}{more}",
                    group.pods,
                    group.names.join(", ")
                ),
            ];
            lines.extend(lines_of(&group.cause));
            parts.push(labelled(&lines, width));
        }
        parts.join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_with_one_cause_are_one_group_with_a_few_names() {
        let cause = |code, message: &str| Cause {
            code,
            registry: "quay.io".to_owned(),
            message: message.to_owned(),
            command: "do".to_owned(),
            hint: String::new(),
        };
        let names = |from: usize, to: usize| (from..to).map(|at| format!("a/p{at}")).collect();
        let groups = Groups::of([
            (cause(Code::ImageNotFound, "no `a`"), vec!["b/q".to_owned()]),
            (cause(Code::NoCredentials, "none"), names(0, 3)),
            (cause(Code::ImageNotFound, "no `b`"), vec!["b/r".to_owned()]),
            (cause(Code::NoCredentials, "none"), names(3, 9)),
        ]);
        assert_eq!(groups.pods, 11);
        let counts: Vec<usize> = groups.groups.iter().map(|group| group.pods).collect();
        assert_eq!(counts, [9, 1, 1]);
        assert!(
            groups.text(None).starts_with(
                "registry:   quay.io\npods:       9: a/p0, a/p1, a/p2, a/p3, a/p4 and 4 more\ncause:      none\nto fix it:  do\n"
            ),
            "{}",
            groups.text(None)
        );
    }
}
