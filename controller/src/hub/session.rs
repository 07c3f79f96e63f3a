//! One member cluster: its connection, its one watch, and what is written into it. A task of its own, so that a cluster that
//! is away holds up no other.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use globalps_core::api::{ClusterPhase, ClusterPullSecretStatus};
use globalps_core::names::{
    DATA_KEY, FLEET_ANNOTATION, RETRY_ANNOTATION, REVISION_ANNOTATION, SECRET_TYPE,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::member_watch::{Seen, later, watched};
use super::order::{Observation, Order, Shared};
use crate::clusters::input::ClusterKey;
use crate::clusters::member::{
    Action, Answer, Facts, Reason, Release, TargetView, Terms, Wanted, action, status,
};
use crate::leader::fencing::fenced_client;
use crate::process::backoff::backoff;
use crate::remote::{kubeconfig, unreachable};
use crate::telemetry::client::without_content;

/// Deadline of each request.
const REQUEST: Duration = Duration::from_secs(15);
/// First and longest pause before another attempt to connect.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Between two looks at the target where no event asks for one.
const RESYNC: Duration = Duration::from_mins(10);
/// Between two attempts of a write that was not done.
const WRITE_RETRY: Duration = Duration::from_secs(10);

pub(super) struct Session {
    pub(super) cluster: ClusterKey,
    pub(super) shared: Shared,
    pub(super) orders: watch::Receiver<Order>,
    pub(super) facts: Facts,
    pub(super) identity: Option<String>,
    /// What was reported last.
    pub(super) reported: Option<(Option<String>, Option<ClusterPullSecretStatus>)>,
}

/// Why the present connection is not used any more.
enum Left {
    /// Another kubeconfig, or another target.
    Order,
    Failed,
    /// The hub wants nothing of it any more.
    Ended,
}

impl Session {
    /// Until the hub wants nothing of the member any more.
    pub(super) async fn run(mut self) {
        let mut retries = 0_u32;
        loop {
            let order = self.orders.borrow_and_update().clone();
            let left = self.connected(&order, &mut retries).await;
            match left {
                Left::Ended => return,
                Left::Order => retries = 0,
                Left::Failed => {
                    self.report();
                    let until = Instant::now() + backoff(RETRY, retries);
                    retries = retries.saturating_add(1);
                    if !self.wait(&order, until).await {
                        return;
                    }
                }
            }
        }
    }

    /// Until the time, or another kubeconfig. false: the hub wants nothing any more.
    async fn wait(&mut self, order: &Order, until: Instant) -> bool {
        loop {
            tokio::select! {
                () = sleep_until(until) => return true,
                changed = self.orders.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    self.report();
                    if !self.orders.borrow().has_same_place(order) {
                        return true;
                    }
                }
            }
        }
    }

    fn fail(&mut self, reason: Reason) -> Left {
        self.facts.unreachable = Some(reason);
        Left::Failed
    }

    async fn connected(&mut self, order: &Order, retries: &mut u32) -> Left {
        let Some(data) = &order.kubeconfig else {
            return self.fail((
                "NoKubeconfig",
                "there is no Secret with its kubeconfig".to_owned(),
            ));
        };
        let permit = Arc::clone(&self.shared.connecting).acquire_owned().await;
        let client = match kubeconfig::connect(data.0.as_deref()).await {
            Ok(client) => client,
            Err(reason) => {
                let reason = format!("the key of its kubeconfig {reason}");
                return self.fail(("KubeconfigInvalid", reason));
            }
        };
        let client = fenced_client(&client, &self.shared.token, &self.shared.health);
        if let Err(reason) = self.identify(&client).await {
            return self.fail(reason);
        }
        drop(permit);
        self.facts.unreachable = None;
        if let Err(reason) = self.look(&client, order).await {
            return self.fail(reason);
        }
        let mut events = watched(&client, order);
        let mut again = Instant::now() + RESYNC;
        loop {
            let written = self.write(&client, order).await;
            self.report();
            if let Err(reason) = written {
                return self.fail(reason);
            }
            if self.facts.refused.is_some() {
                again = again.min(Instant::now() + WRITE_RETRY);
            }
            let looks = tokio::select! {
                () = sleep_until(again) => {
                    again = Instant::now() + RESYNC;
                    true
                }
                changed = self.orders.changed() => {
                    if changed.is_err() {
                        return Left::Ended;
                    }
                    if !self.orders.borrow_and_update().has_same_place(order) {
                        return Left::Order;
                    }
                    false
                }
                seen = events.next() => match seen {
                    Some(Seen::Answer(answer)) => {
                        *retries = 0;
                        let is_other = match (&answer, &self.facts.target) {
                            (Answer::Said(said), Some(target)) => !said.is_about(&target.version),
                            _ => true,
                        };
                        self.facts.answer = answer;
                        is_other
                    }
                    Some(Seen::Target) => {
                        *retries = 0;
                        true
                    }
                    Some(Seen::Failed(error)) => match self.after(error) {
                        Ok(()) => {
                            events = later(&client, order);
                            false
                        }
                        Err(reason) => return self.fail(reason),
                    },
                    None => return self.fail(unreachable::timeout()),
                },
            };
            if looks && let Err(reason) = self.look(&client, order).await {
                return self.fail(reason);
            }
        }
    }

    /// A watch that failed. `Err`: the cluster is away.
    fn after(&mut self, error: watcher::Error) -> Result<(), Reason> {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => match &error {
                kube::Error::Api(status) if status.code == 404 => {
                    self.facts.answer = Answer::NoGlobalps;
                    Ok(())
                }
                _ => Err(unreachable::reason(&error)),
            },
            _ => Err(unreachable::timeout()),
        }
    }

    /// Which cluster it is. One that may not be asked is taken for itself.
    async fn identify(&mut self, client: &Client) -> Result<(), Reason> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        match within(namespaces.get_metadata("kube-system")).await {
            Ok(found) => self.identity = found.metadata.uid,
            Err(Some(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => {
                self.identity.get_or_insert_with(String::new);
            }
            Err(error) => return Err(away(error)),
        }
        Ok(())
    }

    async fn look(&mut self, client: &Client, order: &Order) -> Result<(), Reason> {
        let found = within(secrets(client, order).get_opt(&order.target.name)).await;
        let found = found.map_err(away)?;
        let manager = &self.shared.manager;
        let wanted = self.orders.borrow().wanted.clone();
        self.facts.target = found.map(|secret| TargetView::new(&secret, manager, &wanted));
        Ok(())
    }

    /// Does what the newest order wants. `Err`: the cluster is away.
    async fn write(&mut self, client: &Client, place: &Order) -> Result<(), Reason> {
        let order = self.orders.borrow().clone();
        self.facts.refused = None;
        // A kubeconfig may be of another cluster than the one before it.
        let is_accepted = order.identity.is_some() && order.identity == self.identity;
        if !is_accepted || !order.has_same_place(place) {
            return Ok(());
        }
        let api = secrets(client, &order);
        let name = &order.target.name;
        let written = match action(self.facts.target.as_ref(), &order.wanted, &order.fleet) {
            Action::Keep => return Ok(()),
            Action::Refuse(reason) => {
                self.facts.refused = Some(reason);
                return Ok(());
            }
            Action::Apply(release) => {
                let version = self.facts.target.as_ref().map(|target| &target.version);
                let body = body(&order, release, version);
                let params = PatchParams::apply(&self.shared.manager);
                let patch = Patch::Apply(&body);
                within(api.patch(name, &params, &patch)).await.map(Some)
            }
            Action::Delete(uid, version) => {
                let params = DeleteParams::default().preconditions(Preconditions {
                    uid: Some(uid),
                    resource_version: Some(version),
                });
                within(api.delete(name, &params)).await.map(|_| None)
            }
        };
        match written {
            Ok(secret) => {
                let manager = &self.shared.manager;
                let view = |secret| TargetView::new(&secret, manager, &order.wanted);
                self.facts.target = secret.map(view);
                Ok(())
            }
            Err(Some(kube::Error::Api(status))) if status.code == 404 => {
                self.facts.target = None;
                self.refuse(("NotFound", status.message.clone()));
                Ok(())
            }
            Err(Some(kube::Error::Api(status))) if status.code < 500 => {
                let reason = match status.code {
                    409 => "Conflict",
                    401 | 403 => "Forbidden",
                    422 => "Rejected",
                    _ => "NotWritten",
                };
                self.refuse((reason, status.message.clone()));
                // What is there may be another one by now.
                self.look(client, &order).await
            }
            Err(error) => Err(away(error)),
        }
    }

    fn refuse(&mut self, reason: Reason) {
        self.facts.refused = Some(reason);
    }

    /// Reports what is new to the hub.
    fn report(&mut self) {
        let order = self.orders.borrow().clone();
        let news = (self.identity.clone(), self.status(&order));
        if self.reported.as_ref() == Some(&news) {
            return;
        }
        self.reported = Some(news.clone());
        // An error means that the hub's term is over, and this task with it.
        let _ = self.shared.observations.send(Observation {
            fleet: order.fleet.clone(),
            cluster: self.cluster.clone(),
            identity: news.0,
            status: news.1,
        });
    }

    /// `None`: what is in force was not asked after yet, so that nothing is known to have changed.
    fn status(&self, order: &Order) -> Option<ClusterPullSecretStatus> {
        let facts = &self.facts;
        let terms = Terms {
            require_nodes: order.require_nodes,
            is_additional: order.target.is_additional(),
        };
        let is_awaited = terms.require_nodes
            && terms.is_additional
            && facts.answer == Answer::Unknown
            && facts.unreachable.is_none()
            && facts.refused.is_none();
        if is_awaited && order.is_in_force() {
            return None;
        }
        let mut status = status(facts, &order.wanted, &order.fleet, terms);
        status.revision = match (status.phase, &order.wanted) {
            (ClusterPhase::Synced, Wanted::Revision(release)) => release.number,
            (ClusterPhase::Removed, _) => 0,
            _ => order.revision,
        };
        status.observed_generation = order.generation;
        Some(status)
    }
}

fn secrets(client: &Client, order: &Order) -> Api<Secret> {
    Api::namespaced(client.clone(), &order.target.namespace)
}

/// With a version the write is for the Secret that was seen, and for no other.
fn body(order: &Order, release: Release, version: Option<&String>) -> serde_json::Value {
    let mut annotations = json!({
        FLEET_ANNOTATION: order.fleet,
        REVISION_ANNOTATION: release.number.to_string(),
    });
    if !release.retry.is_empty() {
        annotations[RETRY_ANNOTATION] = release.retry.into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": order.target.name,
            "resourceVersion": version,
            "labels": {"app.kubernetes.io/managed-by": "globalps"},
            "annotations": annotations,
        },
        "type": SECRET_TYPE,
        "data": {DATA_KEY: ByteString(release.content.0.clone().unwrap_or_default())},
    })
}

/// `None`: no response in time.
async fn within<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Option<kube::Error>> {
    match timeout(REQUEST, call).await {
        Ok(done) => done.map_err(Some),
        Err(_) => Err(None),
    }
}

fn away(error: Option<kube::Error>) -> Reason {
    if let Some(error) = &error {
        tracing::debug!(error = without_content(error), "a member is away");
    }
    error.map_or_else(unreachable::timeout, |error| unreachable::reason(&error))
}
