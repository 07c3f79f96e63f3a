//! The session with one member cluster: its connection, its watch and the writes into it. Each session is a task, so an
//! unreachable cluster does not delay others.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use globalps_core::api::{ClusterPhase, ClusterPullSecretStatus};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::install::{Installed, install};
use super::member_watch::{Seen, later, watched};
use super::order::{Observation, Order, Shared};
use super::requests::{away, body, secrets, within};
use crate::clusters::input::ClusterKey;
use crate::clusters::installation::Installation;
use crate::clusters::member::{
    Action, Answer, Facts, Reason, Release, TargetView, Terms, Wanted, action, shown, status,
};
use crate::process::backoff::backoff;
use crate::remote::lean::lean_client;
use crate::remote::{kubeconfig, unreachable};

/// First and longest pause before another attempt to connect.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Interval of reading the target without an event.
const RESYNC: Duration = Duration::from_mins(10);
/// Pause before the retry of a failed write.
const WRITE_RETRY: Duration = Duration::from_secs(10);

/// Interval of checks whether an installed controller runs.
const INSTALLING: Duration = Duration::from_secs(2);
/// Maximum length of the uid of a member's `kube-system`: a member can report any text.
const IDENTITY: usize = 64;

pub(super) struct Session {
    pub(super) cluster: ClusterKey,
    pub(super) shared: Shared,
    pub(super) orders: watch::Receiver<Order>,
    pub(super) facts: Facts,
    pub(super) identity: Option<String>,
    /// Installation that this session has found running.
    pub(super) installed: Option<Arc<Installation>>,
    /// Last reported status.
    pub(super) reported: Option<ClusterPullSecretStatus>,
}

/// Why the current connection ends.
enum Left {
    /// Another kubeconfig, or another target.
    Order,
    Failed,
    /// The hub ended the session.
    Ended,
}

impl Session {
    /// Runs until the hub ends the session.
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

    /// Waits until this time, or until the kubeconfig or the target changes. false: the hub ended the session.
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
                "the Secret with its kubeconfig does not exist or has no kubeconfig".to_owned(),
            ));
        };
        let permit = Arc::clone(&self.shared.connecting).acquire_owned().await;
        let config = kubeconfig::config(data.0.as_deref()).await;
        let client = match config.and_then(|it| lean_client(it, &self.shared.fence)) {
            Ok(client) => client,
            Err(reason) => {
                let reason = format!("its kubeconfig {reason}");
                return self.fail(("KubeconfigInvalid", reason));
            }
        };
        if let Err(reason) = self.identify(&client).await {
            return self.fail(reason);
        }
        drop(permit);
        if let Err(reason) = self.look(&client, order).await {
            return self.fail(reason);
        }
        self.installed = None;
        let mut events = watched(&client, order);
        let mut again = Instant::now() + RESYNC;
        loop {
            let has_installed = match self.write(&client, order).await {
                Ok(has_installed) => has_installed,
                Err(reason) => {
                    self.report();
                    return self.fail(reason);
                }
            };
            if has_installed {
                // `GlobalPullSecret` is served now, so the watch must start again.
                self.facts.answer = Answer::Unknown;
                events = watched(&client, order);
            }
            self.report();
            if self.facts.is_installing {
                again = again.min(Instant::now() + INSTALLING);
            }
            if self.facts.refused.is_some() {
                again = again.min(Instant::now() + WRITE_RETRY);
            }
            let looks = tokio::select! {
                () = sleep_until(again) => {
                    again = Instant::now() + RESYNC;
                    self.installed = None;
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
                        self.reached(retries);
                        let is_other = match (&answer, &self.facts.target) {
                            (Answer::Said(said), Some(target)) => !said.is_about(&target.version),
                            _ => true,
                        };
                        self.facts.answer = answer;
                        is_other
                    }
                    Some(Seen::Target) => {
                        self.reached(retries);
                        true
                    }
                    Some(Seen::Failed(error)) => match self.after(error) {
                        Ok(()) => {
                            self.reached(retries);
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

    /// Marks the cluster as reachable. Only an event of its watch does so: otherwise the phase would flap for a cluster that
    /// responds to other requests but never to the watch.
    fn reached(&mut self, retries: &mut u32) {
        *retries = 0;
        self.facts.unreachable = None;
    }

    /// Handles an error of the watch. `Err`: the cluster is unreachable.
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

    /// Reads the cluster's identity. It is empty if the kubeconfig does not allow that.
    async fn identify(&mut self, client: &Client) -> Result<(), Reason> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        match within(namespaces.get_metadata("kube-system")).await {
            Ok(found) => self.identity = found.metadata.uid.map(|uid| shown(&uid, IDENTITY)),
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

    /// Applies the newest order. Returns whether it installed globalps. `Err`: the cluster is unreachable.
    async fn write(&mut self, client: &Client, place: &Order) -> Result<bool, Reason> {
        let order = self.orders.borrow().clone();
        self.facts.refused = None;
        self.facts.is_installing = false;
        // A new kubeconfig may lead to another cluster than before.
        let is_accepted = order.identity.is_some() && order.identity == self.identity;
        if !is_accepted || !order.has_same_place(place) {
            return Ok(false);
        }
        let action = action(self.facts.target.as_ref(), &order.wanted, &order.fleet);
        let has_installed = match &order.wanted {
            Wanted::Revision(release) if !matches!(action, Action::Refuse(_)) => {
                self.install(client, release, &order.fleet).await?
            }
            _ => false,
        };
        // The new globalps must run before the Secret changes, because it verifies the credentials.
        if self.facts.refused.is_none() && !self.facts.is_installing {
            self.put(client, &order, action).await?;
        }
        Ok(has_installed)
    }

    /// Returns whether it applied objects. It skips the check of an installation that is known to run.
    async fn install(
        &mut self,
        client: &Client,
        release: &Release,
        fleet: &str,
    ) -> Result<bool, Reason> {
        let Some(installation) = release.install.as_ref() else {
            return Ok(false);
        };
        if self.installed.as_ref() == Some(installation) {
            return Ok(false);
        }
        match install(client, installation, &self.shared.manager, fleet).await {
            Ok(Installed::Runs) => {
                self.installed = Some(Arc::clone(installation));
                Ok(false)
            }
            Ok(Installed::Waits { written }) => {
                self.facts.is_installing = true;
                Ok(written)
            }
            Err(Some(kube::Error::Api(status))) if status.code < 500 => {
                let reason = match status.code {
                    401 | 403 => "InstallForbidden",
                    _ => "NotInstalled",
                };
                self.facts.refused = Some((reason, format!("globalps: {}", status.message)));
                Ok(false)
            }
            Err(error) => Err(away(error)),
        }
    }

    async fn put(&mut self, client: &Client, order: &Order, action: Action) -> Result<(), Reason> {
        let api = secrets(client, order);
        let name = &order.target.name;
        let written = match action {
            Action::Keep => return Ok(()),
            Action::Refuse(reason) => {
                self.facts.refused = Some(reason);
                return Ok(());
            }
            Action::Apply(release) => {
                let version = self.facts.target.as_ref().map(|target| &target.version);
                let body = body(order, release, version);
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
                self.facts.refused = Some(("NotFound", status.message.clone()));
                Ok(())
            }
            Err(Some(kube::Error::Api(status))) if status.code < 500 => {
                let reason = match status.code {
                    409 => "Conflict",
                    401 | 403 => "Forbidden",
                    422 => "Rejected",
                    _ => "NotWritten",
                };
                self.facts.refused = Some((reason, status.message.clone()));
                // The Secret may have changed since it was read.
                self.look(client, order).await
            }
            Err(error) => Err(away(error)),
        }
    }

    /// Reports a changed status to the hub.
    fn report(&mut self) {
        let order = self.orders.borrow().clone();
        let Some(status) = self.status(&order) else {
            return;
        };
        if self.reported.as_ref() == Some(&status) {
            return;
        }
        self.reported = Some(status.clone());
        // An error means that the hub's term has ended, which also ends this task.
        let _ = self.shared.observations.send(Observation {
            fleet: order.fleet.clone(),
            cluster: self.cluster.clone(),
            status,
        });
    }

    /// `None`: the cluster had the wanted revision, and its watch has not reported yet. A status now would only show a brief
    /// `Syncing` after each restart of the hub.
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
        if is_awaited && order.is_in_force() && order.identity == self.identity {
            return None;
        }
        let mut status = status(facts, &order.wanted, &order.fleet, terms);
        // A cluster with another identity did not get this revision from the hub.
        let is_accepted = order.identity.is_some() && order.identity == self.identity;
        status.revision = match (status.phase, &order.wanted) {
            (ClusterPhase::Synced, Wanted::Revision(release)) if is_accepted => release.number,
            (ClusterPhase::Removed, _) => 0,
            _ => order.revision,
        };
        status.observed_generation = order.generation;
        status.identity.clone_from(&self.identity);
        Some(status)
    }
}
