//! Clients of other clusters from kubeconfigs of another author.

use std::time::Duration;

use globalps_core::kubeconfig::{Unsupported, parse, reject_unsupported};
use kube::client::ClientBuilder;
use kube::config::KubeConfigOptions;
use kube::{Client, Config};

use super::bounds::Bounds;
use crate::telemetry::client::READ_TIMEOUT;

const CONNECT: Duration = Duration::from_secs(5);
/// Predicate for an error message with the kubeconfig as its subject.
pub(crate) const UNUSABLE: &str = "has an invalid certificate, key, token or proxy";

/// A client from this kubeconfig. `Err`: a predicate like [`UNUSABLE`], whose subject the caller adds.
pub(crate) async fn connect(data: Option<&[u8]>) -> Result<Client, String> {
    let builder = ClientBuilder::try_from(config(data).await?).map_err(|_| UNUSABLE.to_owned())?;
    Ok(builder.with_layer(&Bounds::default()).build())
}

/// The client configuration from this kubeconfig. `Err`: as for [`connect`].
pub(crate) async fn config(data: Option<&[u8]>) -> Result<Config, String> {
    let Some(bytes) = data else {
        return Err("is missing".to_owned());
    };
    let kubeconfig = std::str::from_utf8(bytes)
        .ok()
        .and_then(parse)
        .ok_or("is not a valid kubeconfig")?;
    reject_unsupported(&kubeconfig).map_err(unsupported)?;
    // The original errors are dropped because they may quote the kubeconfig.
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(
        |_| "is incomplete: `current-context` must name a context with a server and a user",
    )?;
    // The callers retry with their own backoff.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(READ_TIMEOUT);
    Ok(config)
}

fn unsupported(reason: Unsupported) -> String {
    match reason {
        Unsupported::NoContext => "has no context with the name in `current-context`".to_owned(),
        Unsupported::Program => {
            "runs a program to authenticate (`exec` or `auth-provider`), which globalps never does: \
             use a token or a client certificate"
                .to_owned()
        }
        Unsupported::File(instead) => format!(
            "names a file, which globalps never reads: put the content into `{instead}` instead"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> Vec<u8> {
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{{cluster}}}}}], users: [{{name: u, user: {{{user}}}}}, \
             {{name: other, user: {{exec: {{command: x}}}}}}]}}"
        );
        text.into_bytes()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_unusable_kubeconfig_is_rejected_and_not_quoted() {
        let server = "server: 'https://127.0.0.1:6443'";
        for (case, data, expected) in [
            ("no data", None, "is missing"),
            (
                "no kubeconfig",
                Some(b"s3cret: [".to_vec()),
                "is not a valid kubeconfig",
            ),
            (
                "no context",
                Some(b"apiVersion: v1".to_vec()),
                "current-context",
            ),
            (
                "a program",
                Some(kubeconfig(server, "exec: {command: aws, args: [s3cret]}")),
                "runs a program",
            ),
            (
                "a token file: the process would send its own token",
                Some(kubeconfig(server, "tokenFile: /var/run/s3cret")),
                "into `token`",
            ),
            (
                "a CA file",
                Some(kubeconfig(
                    "server: 'https://127.0.0.1', certificate-authority: /s3cret",
                    "token: t",
                )),
                "certificate-authority-data",
            ),
            (
                "an invalid certificate",
                Some(kubeconfig(
                    server,
                    "client-certificate-data: s3cret, client-key-data: s3cret",
                )),
                "has an invalid certificate",
            ),
        ] {
            let Err(reason) = connect(data.as_deref()).await else {
                panic!("{case}: accepted")
            };
            assert!(reason.contains(expected), "{case}: {reason}");
            assert!(!reason.contains("s3cret"), "{case}: {reason}");
        }
        assert!(connect(Some(&kubeconfig(server, "token: t"))).await.is_ok());
    }
}
