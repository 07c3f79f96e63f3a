//! Registries are asked whether they take credentials, before a cluster has them.

use futures::{StreamExt as _, stream};
use globalps_core::dockerconfig::shown_key;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::additional::Login;
use crate::cli::LiveCheck;
use crate::error::Failure;
use crate::printer::Printer;
use crate::registry::{Checker, Trust, Verdict};

/// So many registries are asked at once.
const AT_ONCE: usize = 8;

/// Whose certificates the live check believes.
pub(super) fn trust(flags: &LiveCheck) -> Result<Trust, Failure> {
    if flags.insecure {
        return Ok(Trust::Anybody);
    }
    let Some(path) = &flags.ca_file else {
        return Ok(Trust::Authorities(Vec::new()));
    };
    let unusable = |why: String| {
        Failure::new(
            format!(
                "`{}` is no file of certificate authorities: {why}",
                path.display()
            ),
            "name a PEM file, which begins with `-----BEGIN CERTIFICATE-----`",
        )
    };
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(error.to_string()))?;
    if certificates.is_empty() {
        return Err(unusable("there is no certificate in it".to_owned()));
    }
    Ok(Trust::Authorities(certificates))
}

/// Asks every registry; one that does not take its credentials is an error, and then nothing is changed.
pub(super) async fn live_check(
    logins: &[Login],
    trust: Trust,
    flags: &LiveCheck,
    printer: &Printer,
) -> Result<(), Failure> {
    if flags.insecure {
        printer.warning("`--insecure`: no certificate is checked and plain HTTP is taken, so whoever is on the way to the registry can read the password");
    }
    let checker = Checker::new(trust, flags.check_timeout.0);
    let verdicts = stream::iter(logins).map(|login| {
        let registry = shown_key(&login.registry);
        let checker = &checker;
        async move {
            let verdict = checker.check(&registry, &login.credential).await;
            (registry, verdict)
        }
    });
    let verdicts: Vec<_> = verdicts.buffered(AT_ONCE).collect().await;
    let mut failures = Vec::new();
    for (registry, verdict) in verdicts {
        match verdict {
            Ok(Verdict::Accepted) => {
                printer.note(format_args!("`{registry}` accepts the credentials"));
            }
            Ok(verdict) => printer.warning(doubt(&registry, &verdict)),
            Err(failure) => failures.push(failure),
        }
    }
    let words: Vec<&str> = failures
        .iter()
        .map(|failure| failure.message.as_str())
        .collect();
    match failures.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(words.join("; "), first.hint.clone())),
    }
}

fn doubt(registry: &str, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Accepted => String::new(),
        Verdict::Open => {
            format!("`{registry}` lets everybody in, so its credentials could not be checked")
        }
        Verdict::Pattern => {
            format!(
                "`{registry}` stands for many registries, so its credentials could not be checked"
            )
        }
        Verdict::MayNotPull(repository) => format!(
            "`{registry}` accepts the credentials, but they may not pull `{repository}`, if that is a repository"
        ),
    }
}
