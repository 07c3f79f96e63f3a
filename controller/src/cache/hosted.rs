//! The pull secret of a `HostedControlPlane` of `HyperShift` as the original one: three objects, each leading to the next.
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

use crate::cache::object_watch::{Seen, follow};
use crate::content::resolve::{Data, Source};

const CONNECT: Duration = Duration::from_secs(5);
/// Longer than any watch lasts: what is silent for so long is gone.
const SILENT: Duration = Duration::from_mins(6);

/// One of the three as it was seen last: what it leads to, or why it can't be read, as a sentence.
type Link<T> = Option<Result<T, String>>;

struct Hosted {
    reference: HostedControlPlaneRef,
    kubeconfigs: BoxStream<'static, Seen<Secret>>,
    control_planes: BoxStream<'static, Seen<DynamicObject>>,
    secrets: BoxStream<'static, Seen<Secret>>,
    /// The kubeconfig that the client was made of.
    kubeconfig: Link<(Data, Client)>,
    /// Name of its pull secret.
    control_plane: Link<String>,
    pull_secret: Link<Data>,
}

/// What the original is, from the first time that it is known, and whenever it may be another.
pub(crate) fn original(
    local: &Client,
    reference: &HostedControlPlaneRef,
) -> BoxStream<'static, Source> {
    let secrets: Api<Secret> = Api::namespaced(local.clone(), CONTROLLER_NAMESPACE);
    let name = &reference.kubeconfig_secret_ref.name;
    let hosted = Hosted {
        reference: reference.clone(),
        kubeconfigs: follow(secrets, name, "kubeconfig of the management cluster"),
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
            Some(seen) = self.kubeconfigs.next() => self.saw_kubeconfig(seen).await,
            Some(seen) = self.control_planes.next() => self.saw_control_plane(seen),
            Some(seen) = self.secrets.next() => self.saw_secret(seen),
        }
    }

    /// `None`: not known yet.
    fn source(&self) -> Option<Source> {
        let unreadable = |why: &String| Some(Source::Unreadable(why.clone()));
        match (&self.kubeconfig, &self.control_plane, &self.pull_secret) {
            (Some(Err(why)), _, _)
            | (Some(Ok(_)), Some(Err(why)), _)
            | (Some(Ok(_)), Some(Ok(_)), Some(Err(why))) => unreadable(why),
            (Some(Ok(_)), Some(Ok(_)), Some(Ok(data))) => Some(Source::Found(data.clone())),
            _ => None,
        }
    }

    async fn saw_kubeconfig(&mut self, seen: Seen<Secret>) {
        let reference = &self.reference.kubeconfig_secret_ref;
        let title = format!("Secret `{CONTROLLER_NAMESPACE}/{}`", reference.name);
        let found = match seen {
            Seen::There(secret) => Ok(Data::of(&secret, &reference.key)),
            Seen::Absent => Err(format!(
                "there is no {title} with the kubeconfig of the management cluster"
            )),
            Seen::Forbidden => Err(format!(
                "the controller may not read {title}: `kubectl globalps install \
                 --hosted-control-plane {}/{} --kubeconfig-secret {} --apply` allows it",
                self.reference.namespace, self.reference.name, reference.name,
            )),
            // Of what was read before nothing is known to be wrong.
            Seen::Unknown(_) if self.kubeconfig.is_some() => return,
            Seen::Unknown(why) => Err(format!("{title} could not be read: {why}")),
        };
        if let (Ok(data), Some(Ok((known, _)))) = (&found, &self.kubeconfig)
            && data == known
        {
            return;
        }
        let connected = match found {
            Ok(data) => match connect(&data).await {
                Ok(client) => Ok((data, client)),
                Err(why) => Err(format!("key `{}` of {title} {why}", reference.key)),
            },
            Err(why) => Err(why),
        };
        self.control_planes = match &connected {
            Ok((_, client)) => {
                let api =
                    Api::namespaced_with(client.clone(), &self.reference.namespace, &resource());
                follow(api, &self.reference.name, "HostedControlPlane")
            }
            Err(_) => stream::pending().boxed(),
        };
        self.secrets = stream::pending().boxed();
        self.kubeconfig = Some(connected);
        self.control_plane = None;
        self.pull_secret = None;
    }

    fn saw_control_plane(&mut self, seen: Seen<DynamicObject>) {
        let HostedControlPlaneRef {
            namespace, name, ..
        } = &self.reference;
        let found = readable(
            seen,
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
        );
        if let (Ok(pull_secret), Some(Ok((_, client)))) = (&found, &self.kubeconfig)
            && !matches!(&self.control_plane, Some(Ok(known)) if known == pull_secret)
        {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
            self.secrets = follow(secrets, pull_secret, "pull secret of the control plane");
            self.pull_secret = None;
        }
        self.control_plane = Some(found);
    }

    fn saw_secret(&mut self, seen: Seen<Secret>) {
        let Some(Ok(name)) = &self.control_plane else {
            return;
        };
        let title = format!("Secret `{}/{name}`", self.reference.namespace);
        self.pull_secret = Some(readable(seen, &title, |secret| {
            Ok(Data::of(secret, DATA_KEY))
        }));
    }
}

fn readable<K, T>(
    seen: Seen<K>,
    title: &str,
    read: impl FnOnce(&K) -> Result<T, String>,
) -> Result<T, String> {
    match seen {
        Seen::There(object) => read(&object),
        Seen::Absent => Err(format!("the management cluster has no {title}")),
        Seen::Forbidden => Err(format!(
            "the user of the kubeconfig may not list and watch {title} on the management cluster"
        )),
        Seen::Unknown(why) => Err(format!(
            "{title} could not be read from the management cluster: {why}"
        )),
    }
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
    refuse(&kubeconfig)?;
    // No word of the errors: they may quote what is in it.
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|_| {
        "is not a whole kubeconfig: `current-context` must name a context with a server and a user"
    })?;
    // Whoever uses it has backoff of its own.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENT);
    Client::try_from(config)
        .map_err(|_| "has a certificate, key, token or proxy that can't be used".to_owned())
}

/// What works only where it was written. A file named here would be one of the controller's own, whose token must not be
/// sent to whom the kubeconfig names.
fn refuse(kubeconfig: &Kubeconfig) -> Result<(), String> {
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
    async fn a_kubeconfig_that_works_only_elsewhere_is_refused_and_nothing_of_it_is_shown() {
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
            let Err(why) = connect(&data).await else {
                panic!("{sentence}: taken")
            };
            assert!(why.contains(expected), "{sentence}: {why}");
            assert!(!why.contains("s3cret"), "{sentence}: {why}");
        }
        assert!(connect(&kubeconfig(server, "token: t")).await.is_ok());
    }
}
