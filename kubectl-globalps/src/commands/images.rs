//! `images push`: copies the images of globalps to a registry.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use globalps_dockerconfig::Credential;
use globalps_registry::{Checker, Pushed, RegistryError};
use serde::Serialize;
use tokio::time::sleep;

use crate::cli::{Credentials, Images, ImagesCommand, Push};
use crate::credentials::live_check::trust;
use crate::credentials::{logins, password};
use crate::error::{Exit, Failure, Result};
use crate::registry::archive::ImageArchive;
use crate::registry::name::registry_key;
use crate::registry::{Purpose, checker, failure, failure_with};
use crate::terminal::printer::Printer;

const CONTROLLER: &str = "globalps-controller";
const SYNCER: &str = "globalps-syncer";
const HUB: &str = "globalps-hub";
/// Pauses before further attempts.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// The timeout of an upload, as a multiple of a check's timeout.
const SLOWER: u32 = 30;

/// `images push -o json`: scripts rely on its shape.
#[derive(Debug, Serialize)]
struct PushReport {
    images: Vec<PushedImage>,
    /// The command that installs the controller and the syncer.
    install: String,
}

#[derive(Debug, Serialize)]
struct PushedImage {
    name: String,
    /// The reference with the digest.
    image: String,
    /// The reference with the tag.
    tag: String,
}

pub(super) async fn run(args: &Images, printer: &Printer) -> Result<Exit> {
    match &args.command {
        ImagesCommand::Push(args) => push(args, printer).await,
    }
}

async fn push(args: &Push, printer: &Printer) -> Result<Exit> {
    let registry = registry_key(&args.registry)?;
    let archives = archives(&args.dir)?;
    let trust = trust(&args.asking)?;
    let credential = credential(args, &registry, printer).await?;
    if args.asking.insecure && credential.is_some() {
        printer.warning("`--insecure` accepts any certificate and plain HTTP, so others on the network can read the password");
    }
    let checker = checker(trust, args.asking.check_timeout.0 * SLOWER);
    let mut images = Vec::new();
    for archive in &archives {
        let repository = format!("{registry}/{}", archive.name);
        let tag = args.tag.as_ref().unwrap_or(&archive.tag);
        let sent = push_one(&checker, archive, (&repository, tag), credential.as_ref()).await;
        let sent = sent.map_err(|error| explained(&error, &registry, credential.as_ref()))?;
        let image = format!("{repository}@{}", archive.digest);
        printer.note(format_args!(
            "{image}: {sent} of {} blobs sent",
            archive.blobs.len()
        ));
        images.push(PushedImage {
            name: archive.name.clone(),
            image,
            tag: format!("{repository}:{tag}"),
        });
    }
    if credential.is_some() {
        printer.hint("if nodes need a password for these images, install with `--pull-secret NAME`: the name of a pull secret in the namespaces `globalps-system` and `kube-system`");
    }
    let install = install(&images);
    let report = PushReport { images, install };
    let names = report.images.iter().map(|image| image.image.clone());
    printer.print(&args.output, ("the images", &report), names, || {
        printer.data(&report.install);
    })?;
    Ok(Exit::Done)
}

fn explained(error: &RegistryError, registry: &str, credential: Option<&Credential>) -> Failure {
    match (credential, error) {
        (Some(credential), _) => failure_with(error, (registry, credential), Purpose::Push),
        (None, RegistryError::Refused { .. }) => Failure::new(
            format!("`{registry}` asks for a user and a password"),
            "push with `-u USER`, or log in with `docker login` or `podman login` before",
        ),
        (None, _) => failure(error, registry, Purpose::Push),
    }
}

fn install(images: &[PushedImage]) -> String {
    let image = |name: &str| {
        let mut images = images.iter();
        let found = images.find(|image| image.name == name);
        found.map_or("", |image| &*image.image)
    };
    format!(
        "kubectl globalps install --controller-image {} --syncer-image {}",
        image(CONTROLLER),
        image(SYNCER)
    )
}

/// Reads the archives of the controller and the syncer, and of the hub if present.
fn archives(directory: &std::path::Path) -> Result<Vec<ImageArchive>> {
    let mut archives = Vec::new();
    for name in [CONTROLLER, SYNCER, HUB] {
        let path = directory.join(format!("{name}.tar"));
        if name == HUB && !path.exists() {
            continue;
        }
        let archive = ImageArchive::read(&path)?;
        if archive.name != name {
            return Err(Failure::new(
                format!("`{}` has the image `{}`", path.display(), archive.name),
                format!("it must have the image `{name}`"),
            ));
        }
        archives.push(archive);
    }
    Ok(archives)
}

/// Returns the number of blobs sent. Retries after a temporary error; blobs that arrived are not sent again.
async fn push_one(
    checker: &Checker,
    archive: &ImageArchive,
    to: (&str, &str),
    credential: Option<&Credential>,
) -> Result<usize, RegistryError> {
    let mut sent = 0;
    let mut pauses = PAUSES.into_iter();
    loop {
        let error = match push_once(checker, archive, to, credential, &mut sent).await {
            Ok(()) => return Ok(sent),
            Err(error) => error,
        };
        match pauses.next().filter(|_| error.may_pass()) {
            Some(pause) => sleep(pause).await,
            None => return Err(error),
        }
    }
}

async fn push_once(
    checker: &Checker,
    archive: &ImageArchive,
    (repository, tag): (&str, &str),
    credential: Option<&Credential>,
    sent: &mut usize,
) -> Result<(), RegistryError> {
    let mut repository = checker.repository(repository, credential).await?;
    for (digest, content) in &archive.blobs {
        let pushed = repository.push_blob(digest, content).await?;
        *sent += usize::from(pushed == Pushed::Sent);
    }
    // The tag comes last, so that it never refers to an incomplete image.
    let by_digest = archive.manifests.iter().map(|it| (it, it.digest.as_str()));
    let by_tag = archive.manifests.last().map(|it| (it, tag));
    for (manifest, reference) in by_digest.chain(by_tag) {
        let content = &manifest.content;
        repository
            .push_manifest(reference, &manifest.media_type, content)
            .await?;
    }
    Ok(())
}

/// `None` if the user named no credentials, and no file has any.
async fn credential(args: &Push, registry: &str, printer: &Printer) -> Result<Option<Credential>> {
    if args.username.is_some() {
        let from = Credentials {
            username: args.username.clone(),
            password_stdin: args.password_stdin,
            ..Credentials::default()
        };
        return password::credential(&from, printer).map(Some);
    }
    let Some(file) = args.authfile.clone().or_else(auth_file) else {
        return Ok(None);
    };
    let file = logins::auth_files(&[file])?.remove(0);
    // Like container tools, prefers the entry for the longest path.
    let mut name = registry;
    loop {
        if let Some(credential) = logins::look_up(&file, name).await? {
            return Ok(Some(credential));
        }
        match name.rsplit_once('/') {
            Some((shorter, _)) => name = shorter,
            None => return Ok(None),
        }
    }
}

fn auth_file() -> Option<PathBuf> {
    let variable = env::var_os(logins::AUTH_FILE).filter(|path| !path.is_empty());
    if let Some(path) = variable {
        return Some(path.into());
    }
    let directory = env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let directory = directory.or_else(|| Some(env::home_dir()?.join(".docker")))?;
    Some(directory.join("config.json")).filter(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use globalps_dockerconfig::Secret;

    use super::*;

    /// `add` would put the push credentials on every node.
    #[test]
    fn a_refused_push_advises_another_push() {
        let refused = RegistryError::Refused {
            url: "https://r/v2/".to_owned(),
            status: 401,
        };
        let credential = Credential {
            username: Secret::new("u"),
            password: Secret::new("p"),
        };
        for (credential, message, hint) in [
            (
                None,
                "asks for a user and a password",
                "push with `-u USER`",
            ),
            (
                Some(&credential),
                "rejects the user or password",
                "podman login r",
            ),
        ] {
            let found = explained(&refused, "r", credential);
            assert!(found.message.contains(message), "{found:?}");
            assert!(found.hint.contains(hint), "{found:?}");
            assert!(!found.hint.contains("globalps add"), "{found:?}");
        }
    }
}
