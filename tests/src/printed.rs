//! The manifests and commands of a page of the documentation, as they are printed there.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::kubernetes::workspace;

/// The YAML block of `docs/PAGE` below the line `<!-- test: NAME -->`.
pub fn manifest(page: &str, name: &str) -> Result<String> {
    let path = workspace().join("docs").join(page);
    let text = fs::read_to_string(&path)?;
    let found = block(&text, name);
    found.with_context(|| format!("`{}` has no manifest `{name}`", path.display()))
}

fn block(text: &str, name: &str) -> Option<String> {
    let (_, below) = text.split_once(&format!("<!-- test: {name} -->\n```yaml\n"))?;
    let (block, _) = below.split_once("```\n")?;
    Some(block.to_owned())
}

/// The commands in the `console` blocks of `docs/PAGE` below the line `## HEADING`, up to the next such line.
pub fn commands(page: &str, heading: &str) -> Result<Vec<String>> {
    let path = workspace().join("docs").join(page);
    let text = fs::read_to_string(&path)?;
    let found = below(&text, heading).map(consoles).unwrap_or_default();
    ensure!(
        !found.is_empty(),
        "`{}` has no commands below `{heading}`",
        path.display()
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
    let (mut is_console, mut found) = (false, Vec::new());
    for line in section.lines().map(str::trim) {
        match line.strip_prefix("```") {
            Some(kind) => is_console = kind == "console",
            None if is_console => found.extend(line.strip_prefix("$ ").map(str::to_owned)),
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_the_block_below_its_name() {
        let text = "<!-- test: a -->\n```yaml\nx: 1\n```\n<!-- test: b -->\n\n```yaml\ny: 2\n```\n";
        assert_eq!(block(text, "a").as_deref(), Some("x: 1\n"));
        assert_eq!(block(text, "b"), None, "an empty line is between them");
        assert_eq!(block(text, "c"), None);
    }
    #[test]
    fn commands_are_those_of_the_section() {
        let text = "# P\n\n## A\n\n   ```console\n   $ one\n   output\n   ```\n\n## B\n\n```console\n$ two\n```\n";
        assert_eq!(consoles(below(text, "A").unwrap()), ["one"]);
        assert_eq!(consoles(below(text, "B").unwrap()), ["two"]);
        assert_eq!(below(text, "C"), None);
    }
}
