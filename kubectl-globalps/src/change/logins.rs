//! The credentials that a command adds, checked with their registries.

use crate::cli::{Connection, Credentials, LiveCheck};
use crate::cluster::Cluster;
use crate::credentials::auth_file::AuthFile;
use crate::credentials::file::read;
use crate::credentials::live_check::{live_check, trust};
use crate::credentials::logins::{self, Source};
use crate::credentials::manifest::content;
use crate::credentials::password;
use crate::error::Result;
use crate::secret::additional::Login;
use crate::target::pull_secret;
use crate::terminal::printer::Printer;
use jiff::Timestamp;

/// The checked credentials, and the cluster if they come from it. Otherwise the caller connects later, so that a wrong
/// password is also reported without a cluster.
pub(crate) async fn checked<'a>(
    from: &Credentials,
    check: &LiveCheck,
    flags: &Connection,
    printer: &'a Printer,
) -> Result<(Vec<Login>, Option<Cluster<'a>>)> {
    let trust = trust(&check.asking)?;
    let (logins, cluster) = logins(from, flags, printer).await?;
    let now = cluster.as_ref().map_or_else(Timestamp::now, Cluster::now);
    for sentence in logins::short_lived(&logins, now).values() {
        printer.warning(format_args!(
            "{sentence}; use a robot account of the registry, or let a generator of External Secrets renew the Secret"
        ));
    }
    if !check.skip_check {
        live_check(&logins, trust, &check.asking, printer).await?;
    }
    Ok((logins, cluster))
}

/// The credentials to add, and the cluster if they come from it.
pub(crate) async fn logins<'a>(
    from: &Credentials,
    flags: &Connection,
    printer: &'a Printer,
) -> Result<(Vec<Login>, Option<Cluster<'a>>)> {
    let (source, registries) = logins::understand(from)?;
    let mut cluster = None;
    let files = match source {
        Source::User => {
            let credential = password::credential(from, printer)?;
            return Ok((logins::same_for_all(&registries, &credential), None));
        }
        Source::AuthFiles(paths) => logins::auth_files(paths)?,
        Source::Variable(path) => {
            let (shown, name) = (path.display(), logins::AUTH_FILE);
            printer.note(format_args!("credentials of `{shown}` (`${name}`)"));
            logins::auth_files(&[path])?
        }
        Source::File(path) => vec![AuthFile::of_others(
            format!("`{}`", path.display()),
            &content(&read(path)?)?,
        )?],
        Source::Secret(name) => {
            let connected = Cluster::connect(flags, printer)?;
            let file = pull_secret::auth_file(&connected, &name.namespace, &name.name).await?;
            cluster = Some(connected);
            vec![file]
        }
    };
    let logins = logins::of_files(&files, &registries, from.all).await?;
    Ok((logins, cluster))
}
