//! The dependencies of a release: names, versions, checksums and licences.

use std::collections::BTreeMap;

use serde_json::Value;

/// Name and version of a crate.
pub type Crate = (String, String);

/// SHA-256 in hex of every crate in a `Cargo.lock`; crates of this workspace have none.
pub fn checksums(lock: &str) -> BTreeMap<Crate, String> {
    let field = |block: &str, name: &str| {
        let start = format!("{name} = \"");
        let line = block.lines().find_map(|line| line.strip_prefix(&start));
        Some(line?.trim_end_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]").skip(1);
    blocks
        .filter_map(|block| {
            let key = (field(block, "name")?, field(block, "version")?);
            Some((key, field(block, "checksum")?))
        })
        .collect()
}

/// Licence of every crate in the output of `cargo metadata`, as an SPDX expression.
pub fn licences(metadata: &Value) -> BTreeMap<Crate, String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter_map(|package| {
            let text = |name: &str| package[name].as_str().map(str::to_owned);
            // The slash is Cargo's old notation.
            let licence = text("license")?.replace('/', " OR ").replace("  ", " ");
            Some(((text("name")?, text("version")?), licence))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(name: &str, version: &str) -> Crate {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn a_lock_file_has_the_checksum_of_every_foreign_crate() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry\"\nchecksum = \"00ff\"\n\
                    dependencies = [\n \"own\",\n]\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let expected = [(key("a", "1.0.0"), "00ff".to_owned())].into();
        assert_eq!(checksums(lock), expected);
    }

    #[test]
    fn a_licence_is_an_spdx_expression() {
        let metadata = json!({"packages": [
            {"name": "a", "version": "1.0.0", "license": "MIT/Apache-2.0"},
            {"name": "b", "version": "1.0.0", "license": "MIT OR Apache-2.0"},
            {"name": "c", "version": "1.0.0", "license": null},
        ]});
        let found = licences(&metadata);
        assert_eq!(found[&key("a", "1.0.0")], "MIT OR Apache-2.0");
        assert_eq!(found[&key("b", "1.0.0")], "MIT OR Apache-2.0");
        assert!(!found.contains_key(&key("c", "1.0.0")));
    }
}
