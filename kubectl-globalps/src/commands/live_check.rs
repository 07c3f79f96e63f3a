//! Registries are asked whether they take credentials, before a cluster has them.

use futures::{StreamExt as _, stream};
use globalps_core::dockerconfig::shown_key;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::additional::Login;
use crate::cli::Asking;
use crate::error::Failure;
use crate::printer::Printer;
use crate::registry::{Checker, Purpose, Trouble, Trust, Verdict};

/// So many registries are asked at once.
const AT_ONCE: usize = 8;

/// Whose certificates the live check believes.
pub(super) fn trust(flags: &Asking) -> Result<Trust, Failure> {
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

/// Every registry as it is shown, and its answer, in the order of the logins. All of them together take twelve times as
/// long as one question may.
pub(super) async fn ask(
    logins: &[Login],
    trust: Trust,
    flags: &Asking,
    printer: &Printer,
) -> Vec<(String, Result<Verdict, Trouble>)> {
    if flags.insecure {
        printer.warning("`--insecure`: no certificate is checked and plain HTTP is taken, so whoever is on the way to the registry can read the password");
    }
    let time = flags.check_timeout.0 * 12;
    let end = Instant::now() + time;
    let checker = Checker::new(trust, flags.check_timeout.0);
    let answers = stream::iter(logins).map(|login| {
        let registry = shown_key(&login.registry);
        let checker = &checker;
        async move {
            let answer = timeout_at(end, checker.check(&registry, &login.credential)).await;
            let answer = answer.unwrap_or(Err(Trouble::Late { time }));
            (registry, answer)
        }
    });
    answers.buffered(AT_ONCE).collect().await
}

/// Asks every registry; one that does not take its credentials is an error, and then nothing is changed.
pub(super) async fn live_check(
    logins: &[Login],
    trust: Trust,
    flags: &Asking,
    printer: &Printer,
) -> Result<(), Failure> {
    let answers = ask(logins, trust, flags, printer).await;
    let mut failures = Vec::new();
    for (registry, answer) in answers {
        match answer {
            Ok(Verdict::Accepted) => {
                printer.note(format_args!("`{registry}` accepts the credentials"));
            }
            Ok(verdict) => printer.warning(verdict.sentence(&registry)),
            Err(trouble) => failures.push(trouble.failure(&registry, Purpose::Add)),
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
