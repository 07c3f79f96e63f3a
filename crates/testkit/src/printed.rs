//! The manifests and commands printed on a page of the documentation.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::kubernetes::workspace;

/// The YAML block of `docs/PAGE` below the line `<!-- test: NAME -->`.
pub fn manifest(page: &str, name: &str) -> Result<String> {
    let found = block(&text(page)?, name, "yaml");
    found.with_context(|| format!("`{page}` has no manifest `{name}`"))
}

/// The commands in the `console` block of `docs/PAGE` below the line `<!-- test: NAME -->`.
pub fn console(page: &str, name: &str) -> Result<Vec<String>> {
    let found = block(&text(page)?, name, "console").map(|block| prompts(&block));
    found.with_context(|| format!("`{page}` has no commands `{name}`"))
}

fn text(page: &str) -> Result<String> {
    let path = workspace().join("docs").join(page);
    fs::read_to_string(&path).with_context(|| format!("`{}`", path.display()))
}

fn block(text: &str, name: &str, kind: &str) -> Option<String> {
    let (_, below) = text.split_once(&format!("<!-- test: {name} -->\n```{kind}\n"))?;
    let (block, _) = below.split_once("```\n")?;
    Some(block.to_owned())
}

/// The commands in the `console` blocks of `docs/PAGE` below the line `## HEADING`, up to the next such line.
pub fn commands(page: &str, heading: &str) -> Result<Vec<String>> {
    let text = text(page)?;
    let found = below(&text, heading).map(consoles).unwrap_or_default();
    ensure!(
        !found.is_empty(),
        "`{page}` has no commands below `{heading}`"
    );
    Ok(found)
}

fn below<'a>(text: &'a str, heading: &str) -> Option<&'a str> {
    let (_, below) = text.split_once(&format!("\n## {heading}\n"))?;
    Some(
        below
            .split_once("\n## ")
            .map_or(below, |(section, _)| section),
    )
}

fn consoles(section: &str) -> Vec<String> {
    let (mut is_console, mut found) = (false, String::new());
    for line in section.lines().map(str::trim) {
        match line.strip_prefix("```") {
            Some(kind) => is_console = kind == "console",
            None if is_console => found.extend([line, "\n"]),
            None => {}
        }
    }
    prompts(&found)
}

/// The commands after each prompt, with continuation lines.
fn prompts(block: &str) -> Vec<String> {
    let (mut continued, mut found) = (false, Vec::<String>::new());
    for line in block.lines() {
        if continued && let Some(command) = found.last_mut() {
            command.push('\n');
            command.push_str(line);
        } else if let Some(command) = line.strip_prefix("$ ") {
            found.push(command.to_owned());
        } else {
            continue;
        }
        continued = line.ends_with('\\');
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_manifest_is_the_block_below_its_name() {
        let text = "<!-- test: a -->\n```yaml\nx: 1\n```\n<!-- test: b -->\n\n```yaml\ny: 2\n```\n";
        assert_eq!(block(text, "a", "yaml").as_deref(), Some("x: 1\n"));
        let empty = "an empty line is between them";
        assert_eq!(block(text, "b", "yaml"), None, "{empty}");
        assert_eq!(block(text, "a", "console"), None);
        assert_eq!(block(text, "c", "yaml"), None);
    }

    #[test]
    fn a_command_has_the_lines_that_a_backslash_continues() {
        let text = "$ one \\\n    --two\noutput\n$ three\n";
        assert_eq!(prompts(text), ["one \\\n    --two", "three"]);
    }

    /// A test runs each block of commands, or the page says why none does.
    #[test]
    fn each_block_of_commands_is_run_or_marked() {
        let root = workspace();
        let sources: String = files(&root.join("tests/tests"), "rs").collect();
        let mut unmarked = Vec::new();
        for page in pages(&root) {
            let text = fs::read_to_string(root.join(&page)).unwrap();
            let (mut heading, mut above) = (String::new(), String::new());
            for (number, line) in text.lines().enumerate() {
                if let Some(found) = line.strip_prefix("## ") {
                    heading = found.to_owned();
                }
                if line.trim() == "```console" && !is_marked(&above, &page, &heading, &sources) {
                    unmarked.push(format!("{page}:{}", number + 1));
                }
                line.clone_into(&mut above);
            }
        }
        assert!(unmarked.is_empty(), "{unmarked:?}");
    }

    /// Whether a mark is above the block, and a test has a line that runs it.
    fn is_marked(above: &str, page: &str, heading: &str, sources: &str) -> bool {
        let called = |functions: &[&str], name: &str| {
            let name = format!("\"{name}\"");
            let has = |line: &str| functions.iter().any(|function| line.contains(function));
            sources
                .lines()
                .any(|line| line.contains(&name) && has(line))
        };
        let mark = |kind| above.trim().strip_prefix(kind)?.strip_suffix(" -->");
        if let Some(name) = mark("<!-- test: ") {
            return called(&[".runs(", "console("], name);
        }
        let reason = mark("<!-- not tested: ").unwrap_or_default();
        !reason.is_empty() || (page == "docs/tutorials.md" && called(&[".follows("], heading))
    }

    fn files(directory: &Path, ends: &str) -> impl Iterator<Item = String> {
        let listed = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let ends = ends.to_owned();
        listed
            .filter(move |path| path.extension().is_some_and(|found| *found == *ends))
            .map(|path| fs::read_to_string(path).unwrap())
    }

    /// The pages, relative to the workspace, without `cli.md`, which is generated.
    fn pages(root: &Path) -> Vec<String> {
        let docs = fs::read_dir(root.join("docs"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let docs = docs.filter_map(|name| name.to_str().map(|name| format!("docs/{name}")));
        let others = [
            "README.md",
            "charts/globalps/README.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "tests/README.md",
        ];
        let all = docs.chain(others.map(str::to_owned));
        all.filter(|page| page.ends_with(".md") && page != "docs/cli.md")
            .collect()
    }

    #[test]
    fn commands_are_those_of_the_section() {
        let text = "# P\n\n## A\n\n   ```console\n   $ one\n   output\n   ```\n\n## B\n\n```console\n$ two\n```\n";
        assert_eq!(consoles(below(text, "A").unwrap()), ["one"]);
        assert_eq!(consoles(below(text, "B").unwrap()), ["two"]);
        assert_eq!(below(text, "C"), None);
    }
}
