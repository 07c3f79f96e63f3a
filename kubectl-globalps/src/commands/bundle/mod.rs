//! `bundle`: an archive for support, without credentials.

mod allowed;
mod collect;
mod contents;
mod logs;
mod search;
mod secrets;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tempfile::NamedTempFile;

use self::contents::Contents;
use self::search::KnownCredentials;
use crate::cli::{Bundle, Connection, Span};
use crate::cluster::{Cluster, must_watch_if_known};
use crate::error::{Exit, Failure, Result};
use crate::terminal::printer::Printer;

/// Time limit of all requests together: the logs of 50 pods from slow nodes take a minute.
const LIMIT: Span = Span(Duration::from_mins(5));
const EXTENSION: &str = ".tar.gz";

pub(super) async fn run(args: &Bundle, flags: &Connection, printer: &Printer) -> Result<Exit> {
    run_within(args, flags, printer, LIMIT).await
}

/// Whatever does not arrive within `limit` is listed as missing.
pub(super) async fn run_within(
    args: &Bundle,
    flags: &Connection,
    printer: &Printer,
    limit: Span,
) -> Result<Exit> {
    let now = Timestamp::now();
    let root = format!("globalps-bundle-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let file = args.file.clone();
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{root}{EXTENSION}")));
    if !args.force && file.symlink_metadata().is_ok() {
        return Err(exists(&file));
    }
    let cluster = Cluster::connect(flags, printer)?.within(limit);
    // A cluster that does not respond has nothing to collect.
    let call = cluster.client.apiserver_version();
    let version = cluster.call("ask the API server", call).await?;
    must_watch_if_known(&cluster).await?;
    let mut contents = Contents::default();
    let mut known = KnownCredentials::default();
    collect::all(&cluster, &version, &mut contents, &mut known).await;
    let search = known.search()?;
    let omitted = contents.omit(&search);
    let archive = contents.pack(&root, &cluster.namespace, now, &search)?;
    write(&file, &archive, args.force)?;
    for missing in contents.shown() {
        printer.note(format_args!(
            "missing: {}: {}",
            missing.what, missing.reason
        ));
    }
    printer.note(format_args!(
        "{} files; `manifest.json` lists them, and what is missing",
        contents.len() + 1
    ));
    printer.data(&file.display().to_string());
    if omitted.is_empty() {
        return Ok(Exit::Done);
    }
    printer.warning(format_args!(
        "omitted because they contain a credential of a Secret: {}",
        omitted.join(", ")
    ));
    printer.hint("read them in the cluster, and change that credential if others may read them; if a program of globalps wrote it, report this as a vulnerability. A password that is an ordinary word, such as `secret`, is found wherever the word is");
    Ok(Exit::No)
}

fn exists(file: &Path) -> Failure {
    Failure::new(
        format!("`{}` exists already", file.display()),
        "name another file with `--file`, or overwrite it with `--force`",
    )
}

/// Writes the whole file or nothing; only the owner can read it.
fn write(file: &Path, archive: &[u8], force: bool) -> Result<()> {
    let failed = |error: &std::io::Error| {
        Failure::new(
            format!("`{}` could not be written: {error}", file.display()),
            "name a file in a directory that you may write to with `--file`",
        )
    };
    let directory = file.parent().filter(|path| !path.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    // An error of the temporary file would show that file's name.
    directory.metadata().map_err(|error| failed(&error))?;
    // A temporary file has mode 0600.
    let made = NamedTempFile::new_in(directory);
    let mut made = made.map_err(|error| failed(&error.kind().into()))?;
    let written = made
        .write_all(archive)
        .and_then(|()| made.as_file().sync_all());
    written.map_err(|error| failed(&error))?;
    let kept = if force {
        made.persist(file)
    } else {
        made.persist_noclobber(file)
    };
    match kept {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(exists(file)),
        Err(error) => Err(failed(&error.error)),
    }
}
