//! The help: commands in groups, examples as typed, and the common flags on a page of their own.

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::Cli;

/// The groups of commands, everyday ones first.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Credentials",
        &["add", "status", "list", "remove", "diff", "validate"],
    ),
    ("Rollout", &["undo", "history", "pause", "resume", "retry"]),
    ("Troubleshooting", &["why", "check", "bundle"]),
    (
        "Setup",
        &[
            "install",
            "images",
            "uninstall",
            "migrate",
            "version",
            "completion",
            "options",
        ],
    ),
    ("Many clusters", &["fleet"]),
];

const OPTIONS: &str =
    "`kubectl globalps options` lists the flags of every command, such as --context.";

/// `-h` and `--help` print the same text.
fn help_flag() -> Arg {
    Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::HelpShort)
        .help_heading(None::<&str>)
        .help("Print this help")
}

/// The command line with the help that users read.
pub(super) fn command() -> Command {
    let mut root = Cli::command().disable_help_subcommand(false);
    let globals: Vec<clap::Id> = root
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .map(|arg| arg.get_id().clone())
        .collect();
    let commands = groups(&root);
    for id in globals {
        root = root.mut_arg(id, |arg| arg.hide(true));
    }
    with_help(root, Some(commands))
}

/// `commands`: the list of subcommands.
fn with_help(command: Command, commands: Option<String>) -> Command {
    let text = |found: Option<&StyledStr>| found.map(ToString::to_string);
    let about = text(command.get_long_about().or(command.get_about()));
    let examples = text(command.get_before_help());
    let exit = text(command.get_after_help());
    let has_commands = command.has_subcommands();
    let commands = commands.or_else(|| has_commands.then(|| listed(&command)));
    let mut template = "{about-with-newline}\n".to_owned();
    for part in [
        examples,
        Some("{usage-heading} {usage}".to_owned()),
        commands,
    ] {
        // Not wrapped, because a wrapped command can't be copied.
        template.extend(part.map(|part| format!("{part}\n\n")));
    }
    template.push_str(if has_commands {
        "Options:\n{options}\n\n"
    } else {
        "{all-args}\n\n"
    });
    template.extend(exit.map(|exit| format!("{exit}\n")));
    template.push_str(OPTIONS);
    let command = command
        .about(about.unwrap_or_default())
        .help_template(template)
        .disable_help_flag(true)
        .arg(help_flag())
        .mut_args(|arg| match arg.get_long_help().map(ToString::to_string) {
            Some(long) => arg.help(long),
            None => arg,
        });
    command.mut_subcommands(|sub| with_help(sub, None))
}

fn groups(root: &Command) -> String {
    let width = 12;
    let groups = GROUPS.iter().map(|(title, names)| {
        let lines = names.iter().filter_map(|name| {
            let about = root.find_subcommand(name)?.get_about()?;
            Some(format!("  {name:width$}{about}\n"))
        });
        format!("{title}:\n{}", lines.collect::<String>())
    });
    groups.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

fn listed(command: &Command) -> String {
    let width = 12;
    let lines = command.get_subcommands().map(|sub| {
        let about = sub.get_about().map(ToString::to_string);
        format!("  {:width$}{}", sub.get_name(), about.unwrap_or_default())
    });
    let lines: Vec<String> = lines.collect();
    format!("Commands:\n{}", lines.join("\n"))
}

/// The flags that every command takes.
pub(crate) fn options() -> String {
    let all = Cli::command();
    let globals = all.get_arguments().filter(|arg| arg.is_global_set());
    let mut command = Command::new("options")
        .disable_help_flag(true)
        .help_template("The flags of every command:\n\n{options}");
    for arg in globals {
        command = command.arg(arg.clone().hide_short_help(false));
    }
    command.render_help().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help at 80 columns equals `help/COMMAND.txt`; `UPDATE_DOCS` writes the files.
    #[test]
    fn the_help_of_every_command_is_the_one_on_record() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/help");
        let mut pages = Vec::new();
        collect(command().term_width(80), "kubectl-globalps", &mut pages);
        pages.push(("options".to_owned(), options()));
        let mut stale = Vec::new();
        for (name, text) in &pages {
            let path = directory.join(format!("{name}.txt"));
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::create_dir_all(&directory).expect("a directory");
                std::fs::write(&path, text).expect("a file");
            }
            if std::fs::read_to_string(&path).unwrap_or_default() != *text {
                stale.push(name.clone());
            }
        }
        assert!(stale.is_empty(), "run `make generate`: {stale:?}");
    }

    fn collect(mut command: Command, name: &str, pages: &mut Vec<(String, String)>) {
        command.build();
        let subs: Vec<Command> = command.get_subcommands().cloned().collect();
        pages.push((name.to_owned(), command.render_help().to_string()));
        for sub in subs.into_iter().filter(|sub| sub.get_name() != "help") {
            let title = format!("{name}-{}", sub.get_name());
            collect(sub.term_width(80), &title, pages);
        }
    }

    #[test]
    fn only_examples_are_wider_than_80_columns() {
        let mut pages = Vec::new();
        collect(command().term_width(80), "kubectl-globalps", &mut pages);
        for (name, text) in pages {
            let lines = text.lines().skip_while(|line| *line != "Examples:");
            let mut lines = lines.skip_while(|line| !line.starts_with("Usage:"));
            let is_wide = |line: &&str| line.chars().count() > 80 && !line.starts_with("Usage:");
            let wide = lines.find(is_wide);
            assert_eq!(wide, None, "{name}");
        }
    }

    #[test]
    fn every_command_is_in_one_group() {
        let all = Cli::command();
        let mut names: Vec<&str> = all
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
            .map(Command::get_name)
            .collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        names.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(names, grouped);
    }

    #[test]
    fn examples_are_never_wrapped() {
        for sub in command().get_subcommands() {
            let examples = Cli::command();
            let examples = examples.find_subcommand(sub.get_name());
            let Some(examples) = examples.and_then(Command::get_before_help) else {
                continue;
            };
            let mut narrow = sub.clone().term_width(60);
            let help = narrow.render_help().to_string();
            assert!(help.contains(&examples.to_string()), "{help}");
        }
    }
}
