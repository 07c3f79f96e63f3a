//! The pull secret of a `HyperShift` `HostedControlPlane` as the original: three objects, each of which names the next.
//! The kubeconfig, a Secret of this cluster; the control plane, on the management cluster; its pull secret beside it.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use globalps_core::api::HostedControlPlaneRef;
use globalps_core::names::{CONTROLLER_NAMESPACE, DATA_KEY};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};

use super::object_watch::{ObjectState, watch_object};
use crate::content::source::{Data, Source};
use crate::telemetry::client::READ_TIMEOUT;

const CONNECT: Duration = Duration::from_secs(5);

/// The last state of one of the three: what it names, or the reason why it can't be read.
type Link<T> = Option<Result<T, String>>;

struct Hosted {
    reference: HostedControlPlaneRef,
    kubeconfigs: BoxStream<'static, ObjectState<Secret>>,
    control_planes: BoxStream<'static, ObjectState<DynamicObject>>,
    secrets: BoxStream<'static, ObjectState<Secret>>,
    /// The kubeconfig, and the client made from it.
    kubeconfig: Link<(Data, Client)>,
    /// Name of its pull secret.
    control_plane: Link<String>,
    pull_secret: Link<Data>,
}

/// Yields the original once it is known, and again when it may have changed.
pub(crate) fn original(
    local: &Client,
    reference: &HostedControlPlaneRef,
) -> BoxStream<'static, Source> {
    let secrets: Api<Secret> = Api::namespaced(local.clone(), CONTROLLER_NAMESPACE);
    let name = &reference.kubeconfig_secret_ref.name;
    let hosted = Hosted {
        reference: reference.clone(),
        kubeconfigs: watch_object(secrets, name, "kubeconfig of the management cluster"),
        control_planes: stream::pending().boxed(),
        secrets: stream::pending().boxed(),
        kubeconfig: None,
        control_plane: None,
        pull_secret: None,
    };
    stream::unfold(hosted, |mut hosted| async move {
        loop {
            hosted.step().await;
            if let Some(source) = hosted.source() {
                return Some((source, hosted));
            }
        }
    })
    .boxed()
}

impl Hosted {
    async fn step(&mut self) {
        tokio::select! {
            Some(state) = self.kubeconfigs.next() => self.on_kubeconfig(state).await,
            Some(state) = self.control_planes.next() => self.on_control_plane(state),
            Some(state) = self.secrets.next() => self.on_secret(state),
        }
    }

    /// `None`: not known yet.
    fn source(&self) -> Option<Source> {
        let unreadable = |reason: &String| Some(Source::Unreadable(reason.clone()));
        match (&self.kubeconfig, &self.control_plane, &self.pull_secret) {
            (Some(Err(reason)), _, _)
            | (Some(Ok(_)), Some(Err(reason)), _)
            | (Some(Ok(_)), Some(Ok(_)), Some(Err(reason))) => unreadable(reason),
            (Some(Ok(_)), Some(Ok(_)), Some(Ok(data))) => Some(Source::Found(data.clone())),
            _ => None,
        }
    }

    async fn on_kubeconfig(&mut self, state: ObjectState<Secret>) {
        let reference = &self.reference.kubeconfig_secret_ref;
        let title = format!("Secret `{CONTROLLER_NAMESPACE}/{}`", reference.name);
        let found = match state {
            ObjectState::Present(secret) => Ok(Data::of(&secret, &reference.key)),
            ObjectState::Absent => Err(format!(
                "there is no {title} with the kubeconfig of the management cluster"
            )),
            ObjectState::Forbidden => Err(format!(
                "the controller may not read {title}: `kubectl globalps install \
                 --hosted-control-plane {}/{} --kubeconfig-secret {} --apply` allows it",
                self.reference.namespace, self.reference.name, reference.name,
            )),
            // Nothing is known to be wrong with the kubeconfig that was read before.
            ObjectState::Unknown(_) if self.kubeconfig.is_some() => return,
            ObjectState::Stale => return,
            ObjectState::Unknown(reason) => Err(format!("{title} could not be read: {reason}")),
        };
        if let (Ok(data), Some(Ok((known, _)))) = (&found, &self.kubeconfig)
            && data == known
        {
            return;
        }
        let connected = match found {
            Ok(data) => match connect(&data).await {
                Ok(client) => Ok((data, client)),
                Err(reason) => Err(format!("key `{}` of {title} {reason}", reference.key)),
            },
            Err(reason) => Err(reason),
        };
        self.control_planes = match &connected {
            Ok((_, client)) => {
                let api =
                    Api::namespaced_with(client.clone(), &self.reference.namespace, &resource());
                watch_object(api, &self.reference.name, "HostedControlPlane")
            }
            Err(_) => stream::pending().boxed(),
        };
        self.secrets = stream::pending().boxed();
        self.kubeconfig = Some(connected);
        self.control_plane = None;
        self.pull_secret = None;
    }

    fn on_control_plane(&mut self, state: ObjectState<DynamicObject>) {
        let HostedControlPlaneRef {
            namespace, name, ..
        } = &self.reference;
        let Some(found) = readable(
            state,
            &format!("HostedControlPlane `{namespace}/{name}`"),
            |object| {
                let pull_secret = object.data.pointer("/spec/pullSecret/name");
                let pull_secret = pull_secret.and_then(|name| name.as_str());
                pull_secret.map(str::to_owned).ok_or_else(|| {
                    format!(
                        "HostedControlPlane `{namespace}/{name}` names no Secret in `spec.pullSecret`"
                    )
                })
            },
        ) else {
            return;
        };
        if let (Ok(pull_secret), Some(Ok((_, client)))) = (&found, &self.kubeconfig)
            && !matches!(&self.control_plane, Some(Ok(known)) if known == pull_secret)
        {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
            self.secrets = watch_object(secrets, pull_secret, "pull secret of the control plane");
            self.pull_secret = None;
        }
        self.control_plane = Some(found);
    }

    fn on_secret(&mut self, state: ObjectState<Secret>) {
        let Some(Ok(name)) = &self.control_plane else {
            return;
        };
        let title = format!("Secret `{}/{name}`", self.reference.namespace);
        if let Some(found) = readable(state, &title, |secret| Ok(Data::of(secret, DATA_KEY))) {
            self.pull_secret = Some(found);
        }
    }
}

/// `None`: nothing new is known.
fn readable<K, T>(
    state: ObjectState<K>,
    title: &str,
    read: impl FnOnce(&K) -> Result<T, String>,
) -> Option<Result<T, String>> {
    Some(match state {
        ObjectState::Present(object) => read(&object),
        ObjectState::Absent => Err(format!("the management cluster has no {title}")),
        ObjectState::Forbidden => Err(format!(
            "the user of the kubeconfig may not list and watch {title} on the management cluster"
        )),
        ObjectState::Unknown(reason) => Err(format!(
            "{title} could not be read from the management cluster: {reason}"
        )),
        ObjectState::Stale => return None,
    })
}

fn resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("hypershift.openshift.io", "v1beta1", "HostedControlPlane");
    ApiResource::from_gvk(&gvk)
}

/// A client by this kubeconfig; `Err`: the end of a sentence that begins with what it is.
async fn connect(data: &Data) -> Result<Client, String> {
    let Some(bytes) = &data.0 else {
        return Err("is missing".to_owned());
    };
    let kubeconfig = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| Kubeconfig::from_yaml(text).ok())
        .ok_or("is not a kubeconfig")?;
    reject_unsupported(&kubeconfig)?;
    // The errors are dropped: they may quote the kubeconfig.
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|_| {
        "is not a whole kubeconfig: `current-context` must name a context with a server and a user"
    })?;
    // The watches have their own backoff.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(READ_TIMEOUT);
    Client::try_from(config)
        .map_err(|_| "has a certificate, key, token or proxy that can't be used".to_owned())
}

/// Rejects what works only on the machine where the kubeconfig was written. A file path would name a file of the controller
/// itself, whose token must not be sent to the server in the kubeconfig.
fn reject_unsupported(kubeconfig: &Kubeconfig) -> Result<(), String> {
    let wanted = kubeconfig.current_context.as_deref();
    let context = kubeconfig
        .contexts
        .iter()
        .find(|context| Some(context.name.as_str()) == wanted)
        .and_then(|context| context.context.as_ref());
    let Some(context) = context else {
        return Err("has no context that `current-context` names".to_owned());
    };
    let users = kubeconfig.auth_infos.iter();
    let users = users.filter(|user| Some(&user.name) == context.user.as_ref());
    for user in users.filter_map(|user| user.auth_info.as_ref()) {
        if user.exec.is_some() || user.auth_provider.is_some() {
            return Err(
                "runs a program to log in (`exec` or `auth-provider`), and the controller has none: \
                 give it a token or a client certificate"
                    .to_owned(),
            );
        }
        for (file, instead) in [
            (&user.token_file, "token"),
            (&user.client_certificate, "client-certificate-data"),
            (&user.client_key, "client-key-data"),
        ] {
            if file.is_some() {
                return Err(format!(
                    "names a file, which the controller does not have: put its content into `{instead}`"
                ));
            }
        }
    }
    let clusters = kubeconfig.clusters.iter();
    let clusters = clusters.filter(|cluster| cluster.name == context.cluster);
    for cluster in clusters.filter_map(|cluster| cluster.cluster.as_ref()) {
        if cluster.certificate_authority.is_some() {
            return Err(
                "names a file, which the controller does not have: put its content into \
                 `certificate-authority-data`"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> Data {
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{{cluster}}}}}], users: [{{name: u, user: {{{user}}}}}, \
             {{name: other, user: {{exec: {{command: x}}}}}}]}}"
        );
        Data(Some(text.into_bytes()))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_kubeconfig_that_works_only_elsewhere_is_rejected_and_nothing_of_it_is_shown() {
        let server = "server: 'https://127.0.0.1:6443'";
        for (sentence, data, expected) in [
            ("no such key", Data(None), "is missing"),
            (
                "no kubeconfig",
                Data(Some(b"s3cret: [".to_vec())),
                "is not a kubeconfig",
            ),
            (
                "no context",
                Data(Some(b"apiVersion: v1".to_vec())),
                "current-context",
            ),
            (
                "a program",
                kubeconfig(server, "exec: {command: aws, args: [s3cret]}"),
                "runs a program",
            ),
            (
                "a file of a token: the controller's own would be sent",
                kubeconfig(server, "tokenFile: /var/run/s3cret"),
                "into `token`",
            ),
            (
                "a file of an authority",
                kubeconfig(
                    "server: 'https://127.0.0.1', certificate-authority: /s3cret",
                    "token: t",
                ),
                "certificate-authority-data",
            ),
            (
                "a certificate that is none",
                kubeconfig(
                    server,
                    "client-certificate-data: s3cret, client-key-data: s3cret",
                ),
                "can't be used",
            ),
        ] {
            let Err(reason) = connect(&data).await else {
                panic!("{sentence}: taken")
            };
            assert!(reason.contains(expected), "{sentence}: {reason}");
            assert!(!reason.contains("s3cret"), "{sentence}: {reason}");
        }
        assert!(connect(&kubeconfig(server, "token: t")).await.is_ok());
    }
}
