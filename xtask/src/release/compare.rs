//! Whether two directories have the same files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::sign::names;

/// A line for each file that is in one directory only or differs, with the first differing byte.
pub fn differences(one: &Path, other: &Path) -> Result<Vec<String>> {
    let (first, second) = (names(one)?, names(other)?);
    let all: BTreeSet<&String> = first.iter().chain(&second).collect();
    let mut lines = Vec::new();
    for name in all {
        if !first.contains(name) || !second.contains(name) {
            lines.push(format!("{name}: is in one directory only"));
            continue;
        }
        let (one, other) = (fs::read(one.join(name))?, fs::read(other.join(name))?);
        if let Some(at) = difference(&one, &other) {
            lines.push(format!(
                "{name}: differs from byte {at} ({} and {} bytes)",
                one.len(),
                other.len()
            ));
        }
    }
    Ok(lines)
}

fn difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let common = one.iter().zip(other).position(|(a, b)| a != b);
    common.or_else(|| (one.len() != other.len()).then(|| one.len().min(other.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_and_a_changed_byte_are_differences() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (one.path(), other.path());
        for directory in [one, other] {
            fs::write(directory.join("same"), "x").unwrap();
        }
        assert_eq!(differences(one, other).unwrap(), Vec::<String>::new());
        fs::write(one.join("changed"), "abc").unwrap();
        fs::write(other.join("changed"), "abd").unwrap();
        fs::write(one.join("longer"), "abc").unwrap();
        fs::write(other.join("longer"), "ab").unwrap();
        fs::write(other.join("new"), "").unwrap();
        assert_eq!(
            differences(one, other).unwrap(),
            [
                "changed: differs from byte 2 (3 and 3 bytes)",
                "longer: differs from byte 2 (3 and 2 bytes)",
                "new: is in one directory only",
            ]
        );
    }
}
