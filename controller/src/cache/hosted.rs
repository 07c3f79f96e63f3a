//! The pull secret of a `HyperShift` `HostedControlPlane` as the original. A chain of three objects: the kubeconfig, a Secret of
//! this cluster; the control plane, on the management cluster; and its pull secret in the same namespace.

use futures::stream::{self, BoxStream, StreamExt as _};
use globalps_core::api::HostedControlPlaneRef;
use globalps_core::decode::Item;
use globalps_core::names::{CONTROLLER_NAMESPACE, DATA_KEY};
use globalps_planner::content::source::{Data, Source};
use globalps_runtime::object_watch::{ObjectState, watch_object};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};

use crate::remote::kubeconfig::connect;

/// The last state of one of the three: what it refers to, or why it can't be read.
type Link<T> = Option<Result<T, String>>;

struct Hosted {
    reference: HostedControlPlaneRef,
    kubeconfigs: BoxStream<'static, ObjectState<Secret>>,
    control_planes: BoxStream<'static, ObjectState<DynamicObject>>,
    secrets: BoxStream<'static, ObjectState<Secret>>,
    /// The kubeconfig and its client.
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
    let secrets: Api<Item<Secret>> = Api::namespaced(local.clone(), CONTROLLER_NAMESPACE);
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
                 --hosted-control-plane {}/{} --kubeconfig-secret {}` allows it",
                self.reference.namespace, self.reference.name, reference.name,
            )),
            // A failed request doesn't invalidate the kubeconfig that was read before.
            ObjectState::Unknown(_) if self.kubeconfig.is_some() => return,
            ObjectState::Stale => return,
            ObjectState::Unknown(reason) | ObjectState::Unreadable(reason) => {
                Err(format!("could not read {title}: {reason}"))
            }
        };
        if let (Ok(data), Some(Ok((known, _)))) = (&found, &self.kubeconfig)
            && data == known
        {
            return;
        }
        let connected = match found {
            Ok(data) => match connect(data.0.as_deref()).await {
                Ok(client) => Ok((data, client)),
                Err(reason) => Err(format!("key `{}` of {title} {reason}", reference.key)),
            },
            Err(reason) => Err(reason),
        };
        self.control_planes = match &connected {
            Ok((_, client)) => {
                let api: Api<Item<DynamicObject>> =
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
                        "HostedControlPlane `{namespace}/{name}` has no Secret in `spec.pullSecret`"
                    )
                })
            },
        ) else {
            return;
        };
        if let (Ok(pull_secret), Some(Ok((_, client)))) = (&found, &self.kubeconfig)
            && !matches!(&self.control_plane, Some(Ok(known)) if known == pull_secret)
        {
            let secrets: Api<Item<Secret>> = Api::namespaced(client.clone(), namespace);
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

/// `None`: no new information.
fn readable<K, T>(
    state: ObjectState<K>,
    title: &str,
    read: impl FnOnce(&K) -> Result<T, String>,
) -> Option<Result<T, String>> {
    Some(match state {
        ObjectState::Present(object) => read(&object),
        ObjectState::Absent => Err(format!("the management cluster has no {title}")),
        ObjectState::Forbidden => Err(format!(
            "the kubeconfig's user may not list and watch {title} on the management cluster"
        )),
        ObjectState::Unknown(reason) | ObjectState::Unreadable(reason) => Err(format!(
            "could not read {title} from the management cluster: {reason}"
        )),
        ObjectState::Stale => return None,
    })
}

fn resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("hypershift.openshift.io", "v1beta1", "HostedControlPlane");
    ApiResource::from_gvk(&gvk)
}
