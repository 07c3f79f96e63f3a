//! Files that users name, or standard input.

use std::io::Read as _;
use std::path::Path;

use crate::error::{Failure, Result};

/// Reads a file, or stdin if the path is `-`.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    bytes.map_err(|error| {
        Failure::new(
            format!("`{}` could not be read: {error}", path.display()),
            "name a Secret manifest or a config.json, or `-` for stdin",
        )
    })
}
