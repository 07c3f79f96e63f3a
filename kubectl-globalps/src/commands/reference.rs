//! `docs/cli.md` and the man pages, from the definition of the command line.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory as _};

use super::examples;
use crate::cli::Cli;

fn command_line() -> Command {
    let mut command = Cli::command();
    command.build();
    command
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn markdown() -> String {
    let command = command_line();
    let mut text = String::from(
        "# kubectl globalps\n\n\
         Made by `make docs` from the program's own definition of its command line; a test holds it to that. \
         What `kubectl globalps COMMAND --help` says, on one page. \
         Scripts can rely on the JSON: fields are added, never renamed. The examples are what the program prints for a sample cluster, \
         with the list of `check` shortened.\n\n",
    );
    for sub in command.get_subcommands() {
        let name = sub.get_name();
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "- [`{name}`](#{name}): {}", cell(&about));
    }
    let after = command.get_after_help().map(ToString::to_string);
    let _ = writeln!(text, "\n{}.\n", after.unwrap_or_default());
    for sub in command.get_subcommands() {
        text.push_str(&section(sub, sub.get_name(), "##"));
        for own in own_subcommands(sub) {
            let name = format!("{} {}", sub.get_name(), own.get_name());
            text.push_str(&section(own, &name, "###"));
        }
    }
    text.push_str("## Flags of every command\n\n");
    text.push_str(&table(
        command.get_arguments().filter(|arg| arg.is_global_set()),
    ));
    text
}

/// Those of a group of commands.
fn own_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
}

/// `name`: all of its words. `level`: of the heading.
fn section(command: &Command, name: &str, level: &str) -> String {
    let about = command
        .get_long_about()
        .or(command.get_about())
        .map(ToString::to_string)
        .unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let mut text = format!("{level} {name}\n\n{about}\n\n```\n{usage}\n```\n\n");
    if let Some(examples) = command.get_before_help() {
        let examples = examples.to_string();
        let lines = examples.lines().skip(1);
        let lines: Vec<&str> = lines
            .map(|line| line.strip_prefix("  ").unwrap_or(line))
            .collect();
        let _ = writeln!(text, "```sh\n{}\n```\n", lines.join("\n"));
    }
    let own = command
        .get_arguments()
        .filter(|arg| !arg.is_global_set() && arg.get_id() != "help");
    text.push_str(&table(own));
    let mut has_own = false;
    for sub in own_subcommands(command) {
        let (title, anchor) = (
            sub.get_name(),
            format!("{name}-{}", sub.get_name()).replace(' ', "-"),
        );
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "- [`{title}`](#{anchor}): {}", cell(&about));
        has_own = true;
    }
    if has_own {
        text.push('\n');
    }
    if let Some(after) = command.get_after_help() {
        let _ = writeln!(text, "{after}.\n");
    }
    for (line, json) in examples::of(name) {
        let _ = writeln!(text, "`kubectl globalps {line}`:\n\n```json\n{json}\n```\n");
    }
    text
}

fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let rows: Vec<String> = args
        .filter(|arg| !arg.is_hide_set())
        .map(|arg| format!("| {} | {} |\n", flag(arg), meaning(arg)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("| flag | meaning |\n|---|---|\n{}\n", rows.concat())
}

fn flag(arg: &Arg) -> String {
    let value = || {
        let names = arg.get_value_names().unwrap_or_default();
        names.join(" ")
    };
    let mut names = Vec::new();
    if let Some(short) = arg.get_short() {
        names.push(format!("`-{short}`"));
    }
    let takes_value = arg.get_action().takes_values();
    let Some(long) = arg.get_long() else {
        return format!("`{}`", value());
    };
    let aliases = arg.get_visible_aliases().unwrap_or_default();
    for long in std::iter::once(long).chain(aliases) {
        let between = if arg.is_require_equals_set() {
            "="
        } else {
            " "
        };
        names.push(if takes_value {
            format!("`--{long}{between}{}`", value())
        } else {
            format!("`--{long}`")
        });
    }
    names.join(", ")
}

fn meaning(arg: &Arg) -> String {
    let mut text = cell(&arg.get_help().map(ToString::to_string).unwrap_or_default());
    if !arg.get_action().takes_values() {
        return text;
    }
    let mut add = |more: String| {
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&more);
    };
    let values = arg.get_possible_values();
    if !values.is_empty() {
        let names: Vec<String> = values
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        add(names.join(", "));
    }
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    if !defaults.is_empty() {
        add(format!("default {}", defaults.join(", ")));
    }
    text
}

/// As one cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

#[test]
fn the_reference_is_that_of_the_command_line() {
    let path = docs().join("cli.md");
    let text = markdown().trim_end().to_owned() + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).expect("docs/ is writable");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "docs/cli.md is not what the command line says: run `make docs`"
    );
}

/// One for the program and one per command; `MAN_DIR` names the directory that they are written to.
#[test]
fn every_command_has_a_man_page() {
    let root = Cli::command()
        .name("kubectl-globalps")
        .bin_name("kubectl-globalps");
    let directory = std::env::var_os("MAN_DIR").map(PathBuf::from);
    let mut pages = vec![("kubectl-globalps".to_owned(), root.clone())];
    for sub in root.get_subcommands() {
        let title = format!("kubectl-globalps-{}", sub.get_name());
        pages.push((title.clone(), sub.clone().display_name(title.clone())));
        for own in own_subcommands(sub) {
            let title = format!("{title}-{}", own.get_name());
            pages.push((title.clone(), own.clone().display_name(title)));
        }
    }
    for (title, command) in pages {
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut page)
            .expect("a page");
        let text = String::from_utf8_lossy(&page);
        assert!(text.contains(".SH SYNOPSIS"), "{title}: {text}");
        if let Some(directory) = &directory {
            std::fs::create_dir_all(directory).expect("a directory");
            std::fs::write(directory.join(format!("{title}.1")), &page).expect("a file");
        }
    }
}
