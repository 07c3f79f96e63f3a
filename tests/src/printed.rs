//! The manifests of a page of the documentation, as they are printed there.

use std::fs;

use anyhow::{Context, Result};

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
}
