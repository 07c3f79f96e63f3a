//! Checks credentials with the registries before a command writes them to a cluster.

use futures::{StreamExt as _, stream};
use globalps_dockerconfig::shown_key;
use globalps_registry::{CheckOutcome, Checker, RegistryError};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::cli::Asking;
use crate::error::{Failure, Result};
use crate::registry::{Purpose, Trust, checker, failure_with};
use crate::secret::additional::Login;
use crate::terminal::printer::Printer;

/// Number of concurrent checks.
const AT_ONCE: usize = 8;

/// The certificate authorities that the check trusts.
pub(crate) fn trust(flags: &Asking) -> Result<Trust> {
    if flags.insecure {
        return Ok(Trust::Anybody);
    }
    let Some(path) = &flags.ca_file else {
        return Ok(Trust::Authorities(Vec::new()));
    };
    let unusable = |why: String| {
        Failure::new(
            format!(
                "`{}` is not a file with certificate authorities: {why}",
                path.display()
            ),
            "pass a PEM file; it begins with `-----BEGIN CERTIFICATE-----`",
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

/// The result for each registry, in the order of the logins. All checks together may take twelve times the timeout of one.
pub(crate) async fn ask(
    logins: &[Login],
    trust: Trust,
    flags: &Asking,
    printer: &Printer,
) -> Vec<(String, Result<CheckOutcome, RegistryError>)> {
    let check = async |checker: &Checker, login: &Login| {
        let registry = shown_key(&login.registry);
        checker.check(&registry, &login.credential).await
    };
    let answers = ask_each(logins, trust, flags, printer, check).await;
    let registries = logins.iter().map(|login| shown_key(&login.registry));
    registries.zip(answers).collect()
}

/// The answer to each question, in order, with the same overall limit.
pub(crate) async fn ask_each<Q, T>(
    questions: &[Q],
    trust: Trust,
    flags: &Asking,
    printer: &Printer,
    question: impl AsyncFn(&Checker, &Q) -> Result<T, RegistryError>,
) -> Vec<Result<T, RegistryError>> {
    if flags.insecure {
        printer.warning("`--insecure` accepts any certificate and plain HTTP, so others on the network can read the password");
    }
    let time = flags.check_timeout.0 * 12;
    let end = Instant::now() + time;
    let checker = checker(trust, flags.check_timeout.0);
    let (checker, ask) = (&checker, &question);
    let answers = stream::iter(questions).map(|question| async move {
        let answer = timeout_at(end, ask(checker, question)).await;
        answer.unwrap_or(Err(RegistryError::Late { time }))
    });
    answers.buffered(AT_ONCE).collect().await
}

/// Checks every registry. Fails before any change if a registry rejects its credentials.
pub(crate) async fn live_check(
    logins: &[Login],
    trust: Trust,
    flags: &Asking,
    printer: &Printer,
) -> Result<()> {
    let answers = ask(logins, trust, flags, printer).await;
    let mut failures = Vec::new();
    for (login, (registry, answer)) in logins.iter().zip(answers) {
        match answer {
            Ok(CheckOutcome::Accepted) => {
                printer.note(format_args!("`{registry}` accepts the credentials"));
            }
            Ok(verdict) => printer.warning(verdict.sentence(&registry)),
            Err(error) => {
                let of_login = (registry.as_str(), &login.credential);
                failures.push(failure_with(&error, of_login, Purpose::Add));
            }
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
