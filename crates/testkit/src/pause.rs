//! A minimal image with one static program that waits. Pods need it as their sandbox, and tests use it as a private
//! application.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::image::{Image, write};
use crate::layout::Layout;
use crate::process::run;

/// Builds the image's archive in the cluster's directory.
pub(crate) fn archive(layout: &Layout) -> Result<PathBuf> {
    let dir = layout.path("images");
    fs::create_dir_all(&dir)?;
    let source = dir.join("pause.c");
    let binary = dir.join("pause");
    fs::write(&source, include_str!("pause.c"))?;
    run(Command::new("musl-gcc")
        .args(["-static", "-Os", "-s", "-o"])
        .arg(&binary)
        .arg(&source))?;
    let output = dir.join("pause.tar");
    let image = Image {
        binary: &binary,
        name: "pause",
        beside: &[],
        user: "65532:65532",
        reference: "pause:1",
    };
    write(&image, &output)?;
    Ok(output)
}
