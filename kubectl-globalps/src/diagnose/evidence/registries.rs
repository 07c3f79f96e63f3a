//! `check --registries`: whether registries accept the credentials in the cluster.

use futures::future::try_join_all;
use globalps_core::api::GlobalPullSecret;
use globalps_core::names;

use crate::cli::Asking;
use crate::cluster::client::Cluster;
use crate::credentials::live_check::ask;
use crate::diagnose::check::{Check, SecretSeen, answered, questions};
use crate::error::{Result, allowed};
use crate::registry::Trust;
use crate::secret::additional::data_of;
use crate::target::pull_secret;

/// `gps`: names further Secrets; `None` if it can't be read.
pub(crate) async fn registries(
    cluster: &Cluster<'_>,
    gps: Option<&GlobalPullSecret>,
    flags: &Asking,
    trust: Trust,
) -> Result<Vec<Check>> {
    let sources = gps.iter().flat_map(|gps| &gps.spec.sources);
    let names = std::iter::once(names::ADDITIONAL_SECRET)
        .chain(sources.map(|source| source.name.as_str()))
        .chain([names::GLOBAL_SECRET]);
    let secrets = try_join_all(names.map(|name| secret(cluster, name))).await?;
    let (questions, mut checks) = questions(&secrets.into_iter().flatten().collect::<Vec<_>>());
    let logins: Vec<_> = questions.iter().map(|asked| asked.login.clone()).collect();
    let answers = ask(&logins, trust, flags, cluster.printer()).await;
    let answers = questions.iter().zip(&answers);
    checks.extend(answers.map(|(question, (_, answer))| answered(question, answer)));
    Ok(checks)
}

/// `None` if the Secret doesn't exist; other checks report this if it matters.
async fn secret(cluster: &Cluster<'_>, name: &str) -> Result<Option<(String, SecretSeen)>> {
    let seen = match allowed(pull_secret::get(cluster, name).await)? {
        Some(secret) => secret.and_then(|secret| {
            let bytes = data_of(&secret, names::DATA_KEY)?;
            let content = globalps_dockerconfig::Secret::new(bytes);
            Some(SecretSeen::Content(content))
        }),
        None => Some(SecretSeen::Hidden),
    };
    Ok(seen.map(|seen| (name.to_owned(), seen)))
}
