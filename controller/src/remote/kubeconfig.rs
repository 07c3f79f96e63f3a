//! A client of another cluster, by a kubeconfig that somebody else wrote.

use std::time::Duration;

use globalps_core::kubeconfig::{Unsupported, reject_unsupported};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::bounds::Bounds;
use crate::telemetry::client::READ_TIMEOUT;

const CONNECT: Duration = Duration::from_secs(5);
/// The end of a sentence about a kubeconfig.
pub(crate) const UNUSABLE: &str = "has a certificate, key, token or proxy that can't be used";

/// A client by this kubeconfig; `Err`: the end of a sentence that begins with what it is.
pub(crate) async fn connect(data: Option<&[u8]>) -> Result<Client, String> {
    let builder = ClientBuilder::try_from(config(data).await?).map_err(|_| UNUSABLE.to_owned())?;
    Ok(builder.with_layer(&Bounds).build())
}

/// What a client by this kubeconfig needs to know; `Err` as of [`connect`].
pub(crate) async fn config(data: Option<&[u8]>) -> Result<Config, String> {
    let Some(bytes) = data else {
        return Err("is missing".to_owned());
    };
    let kubeconfig = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| Kubeconfig::from_yaml(text).ok())
        .ok_or("is not a kubeconfig")?;
    reject_unsupported(&kubeconfig).map_err(sentence)?;
    // The errors are dropped: they may quote the kubeconfig.
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|_| {
        "is not a whole kubeconfig: `current-context` must name a context with a server and a user"
    })?;
    // The watches have their own backoff.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(READ_TIMEOUT);
    Ok(config)
}

fn sentence(why: Unsupported) -> String {
    match why {
        Unsupported::NoContext => "has no context that `current-context` names".to_owned(),
        Unsupported::Program => {
            "runs a program to log in (`exec` or `auth-provider`), and the controller has none: \
             give it a token or a client certificate"
                .to_owned()
        }
        Unsupported::File(instead) => format!(
            "names a file, which the controller does not have: put its content into `{instead}`"
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
    async fn a_kubeconfig_that_works_only_elsewhere_is_rejected_and_nothing_of_it_is_shown() {
        let server = "server: 'https://127.0.0.1:6443'";
        for (sentence, data, expected) in [
            ("no such key", None, "is missing"),
            (
                "no kubeconfig",
                Some(b"s3cret: [".to_vec()),
                "is not a kubeconfig",
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
                "a file of a token: the controller's own would be sent",
                Some(kubeconfig(server, "tokenFile: /var/run/s3cret")),
                "into `token`",
            ),
            (
                "a file of an authority",
                Some(kubeconfig(
                    "server: 'https://127.0.0.1', certificate-authority: /s3cret",
                    "token: t",
                )),
                "certificate-authority-data",
            ),
            (
                "a certificate that is none",
                Some(kubeconfig(
                    server,
                    "client-certificate-data: s3cret, client-key-data: s3cret",
                )),
                "can't be used",
            ),
        ] {
            let Err(reason) = connect(data.as_deref()).await else {
                panic!("{sentence}: taken")
            };
            assert!(reason.contains(expected), "{sentence}: {reason}");
            assert!(!reason.contains("s3cret"), "{sentence}: {reason}");
        }
        assert!(connect(Some(&kubeconfig(server, "token: t"))).await.is_ok());
    }
}
