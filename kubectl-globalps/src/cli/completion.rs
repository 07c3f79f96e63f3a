//! Completes a command line from its definition. Pure.

use clap::{Arg, ArgAction, Command, ValueHint};

/// A completion and its description.
pub(crate) type Suggestion = (String, String);

/// The completions of the last word.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WordCompletions {
    pub choices: Vec<Suggestion>,
    /// Completions to read from the cluster or the kubeconfig.
    pub live: Option<Live>,
    /// Whether the shell completes file names.
    pub files: bool,
    /// The typed part of the word; completions begin with it.
    pub prefix: String,
    /// Positional arguments before the word.
    pub given: Vec<String>,
    /// Flags before the word that select the cluster.
    pub connection: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    Registries,
    Sources,
    Nodes,
    FailedNodes,
    Revisions,
    Contexts,
    Clusters,
    Users,
    Fleets,
    /// Clusters of the `FleetPullSecret` that precedes on the command line.
    MemberClusters,
    FailedMemberClusters,
    FleetRevisions,
}

impl Live {
    pub(crate) fn is_of_fleet(self) -> bool {
        matches!(
            self,
            Self::Fleets | Self::MemberClusters | Self::FailedMemberClusters | Self::FleetRevisions
        )
    }
}

/// `words`: the arguments; the last one may be incomplete.
pub(crate) fn wanted(mut root: Command, words: &[String]) -> WordCompletions {
    root.build();
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", [].as_slice()),
    };
    let mut found = WordCompletions::default();
    let mut command = &root;
    let mut pending: Option<&Arg> = None;
    let mut seen = Vec::new();
    for word in before {
        if let Some(arg) = pending.take() {
            found.keep(arg, word);
        } else if let Some((arg, value)) = flag(command, word) {
            seen.push(arg.get_id().clone());
            match value {
                Some(value) => found.keep(arg, value),
                None if takes_next(arg) => pending = Some(arg),
                None if arg.is_global_set() => found.connection.push(word.clone()),
                None => {}
            }
        } else if let Some(sub) = command.find_subcommand(word) {
            command = sub;
        } else {
            found.given.push(word.clone());
        }
    }
    if let Some(arg) = pending {
        found.values(command, arg, last);
    } else if let Some((arg, Some(value))) = flag(command, last) {
        found.values(command, arg, value);
    } else if last.starts_with('-') {
        last.clone_into(&mut found.prefix);
        found.choices = flags(command, &seen);
    } else if command.has_subcommands() {
        last.clone_into(&mut found.prefix);
        found.choices = command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
            .map(|sub| {
                let about = sub.get_about().map(ToString::to_string);
                (sub.get_name().to_owned(), about.unwrap_or_default())
            })
            .collect();
    } else if let Some(arg) = positional(command, found.given.len()) {
        found.values(command, arg, last);
    }
    let prefix = found.prefix.clone();
    found.choices.retain(|(word, _)| word.starts_with(&prefix));
    found
}

impl WordCompletions {
    fn values(&mut self, command: &Command, arg: &Arg, prefix: &str) {
        prefix.clone_into(&mut self.prefix);
        self.choices = arg
            .get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| {
                let help = value.get_help().map(ToString::to_string);
                // A value that takes a template is completed up to the template.
                let name = value.get_name().trim_end_matches("...");
                (name.to_owned(), help.unwrap_or_default())
            })
            .collect();
        // A flag without a value has possible values too, which can't be typed.
        if !arg.get_action().takes_values() {
            self.choices.clear();
        }
        self.live = live(command, arg);
        self.files = matches!(
            arg.get_value_hint(),
            ValueHint::AnyPath | ValueHint::FilePath
        );
    }

    fn keep(&mut self, arg: &Arg, value: &str) {
        if let Some(long) = arg.get_long().filter(|_| arg.is_global_set()) {
            self.connection.push(format!("--{long}={value}"));
        }
    }
}

/// The positional argument at this index; the last one may be repeated.
fn positional(command: &Command, before: usize) -> Option<&Arg> {
    let all: Vec<&Arg> = command.get_positionals().collect();
    all.get(before).or(all.last()).copied()
}

fn live(command: &Command, arg: &Arg) -> Option<Live> {
    let is_fleet = command.get_positionals().any(|it| it.get_id() == "fleet");
    match (command.get_name(), arg.get_id().as_str()) {
        (_, "fleet") => Some(Live::Fleets),
        ("retry" | "accept", "clusters") => Some(Live::FailedMemberClusters),
        (_, "clusters") => Some(Live::MemberClusters),
        (_, "to_revision") if is_fleet => Some(Live::FleetRevisions),
        (_, "registry") => Some(Live::Registries),
        ("add" | "remove", "source") => Some(Live::Sources),
        ("retry", "nodes") => Some(Live::FailedNodes),
        (_, "node") => Some(Live::Nodes),
        (_, "to_revision") => Some(Live::Revisions),
        (_, "context") => Some(Live::Contexts),
        (_, "cluster") => Some(Live::Clusters),
        (_, "user") => Some(Live::Users),
        _ => None,
    }
}

/// Parses a flag, and its value if that is in the same word.
fn flag<'a, 'w>(command: &'a Command, word: &'w str) -> Option<(&'a Arg, Option<&'w str>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let is_it = |arg: &&Arg| {
            arg.get_long() == Some(name)
                || arg
                    .get_all_aliases()
                    .is_some_and(|aliases| aliases.contains(&name))
        };
        return Some((command.get_arguments().find(is_it)?, value));
    }
    let mut letters = word.strip_prefix('-')?.chars();
    let letter = letters.next()?;
    let arg = command
        .get_arguments()
        .find(|arg| arg.get_short() == Some(letter))?;
    let rest = letters.as_str();
    let value = rest.strip_prefix('=').unwrap_or(rest);
    Some((arg, (!rest.is_empty()).then_some(value)))
}

/// Whether the next word is this flag's value.
fn takes_next(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

fn flags(command: &Command, seen: &[clap::Id]) -> Vec<Suggestion> {
    command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set())
        .filter(|arg| matches!(arg.get_action(), ArgAction::Append) || !seen.contains(arg.get_id()))
        .filter_map(|arg| {
            let help = arg.get_help().map(ToString::to_string);
            Some((format!("--{}", arg.get_long()?), help.unwrap_or_default()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    fn complete(line: &str) -> WordCompletions {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        wanted(Cli::command(), &words)
    }

    #[test]
    fn words_that_may_come_next_are_those_of_the_command_line() {
        for (line, expected) in [
            ("re", vec!["remove", "retry", "resume"]),
            ("--context c und", vec!["undo"]),
            ("status --wa", vec!["--wait", "--watch"]),
            ("status --watch --wa", vec!["--wait"]),
            (
                "status -w -o ",
                vec![
                    "table",
                    "wide",
                    "json",
                    "yaml",
                    "kyaml",
                    "name",
                    "jsonpath=",
                    "go-template=",
                ],
            ),
            ("status -o=j", vec!["json", "jsonpath="]),
            ("status -o jsonp", vec!["jsonpath="]),
            ("status --output=y", vec!["yaml"]),
            ("--color a", vec!["auto", "always"]),
            ("undo --dry-run=s", vec!["server"]),
            // The value of this flag can't be a separate word.
            ("undo --dry-run --y", vec!["--yes"]),
            ("remove --registry a --regi", vec!["--registry"]),
            ("fleet re", vec!["resume", "retry", "remove"]),
            ("fleet status --wa", vec!["--wait", "--watch"]),
            ("nothing-like-it --wa", vec![]),
        ] {
            let found = complete(line);
            let words: Vec<&str> = found
                .choices
                .iter()
                .map(|(word, _)| word.as_str())
                .collect();
            assert_eq!(words, expected, "{line}");
            assert!(found.choices.iter().all(|(_, about)| !about.contains('\n')));
        }
    }

    #[test]
    fn names_of_the_cluster_are_asked_of_it() {
        for (line, live, prefix) in [
            ("remove --registry qu", Some(Live::Registries), "qu"),
            ("remove --docker-server=qu", Some(Live::Registries), "qu"),
            ("add --registry ", Some(Live::Registries), ""),
            ("remove --source te", Some(Live::Sources), "te"),
            ("retry node-1 no", Some(Live::FailedNodes), "no"),
            ("undo --to-revision ", Some(Live::Revisions), ""),
            ("--context ", Some(Live::Contexts), ""),
            ("history --user a", Some(Live::Users), "a"),
            ("history ", None, ""),
            ("fleet status te", Some(Live::Fleets), "te"),
            ("fleet status team-a m", Some(Live::MemberClusters), "m"),
            (
                "fleet retry team-a m1 ",
                Some(Live::FailedMemberClusters),
                "",
            ),
            (
                "fleet undo team-a --to-revision ",
                Some(Live::FleetRevisions),
                "",
            ),
            ("fleet pause ", Some(Live::Fleets), ""),
        ] {
            let found = complete(line);
            assert_eq!(
                (found.live, found.prefix.as_str()),
                (live, prefix),
                "{line}"
            );
        }
        assert_eq!(complete("retry node-1 no").given, ["node-1"]);
        assert!(complete("diff -f ").files);
        assert!(complete("validate ").files);
    }

    #[test]
    fn the_cluster_is_the_one_that_was_named_before() {
        let found =
            complete("-n ns --context=c remove --insecure-skip-tls-verify --yes --registry ");
        assert_eq!(
            found.connection,
            [
                "--namespace=ns",
                "--context=c",
                "--insecure-skip-tls-verify"
            ]
        );
    }
}
