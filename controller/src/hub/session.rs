//! The session with one member cluster: its connection, its watch and the writes into it. Each session is a task, so an
//! unreachable cluster does not delay others.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use globalps_core::api::{ClusterPullSecretStatus, MESSAGE_LIMIT};
use globalps_core::reasons::{Reason, ReasonAndMessage};
use globalps_planner::clusters::desired::{Desired, Release};
use globalps_planner::clusters::input::ClusterKey;
use globalps_planner::clusters::installation::Installation;
use globalps_planner::clusters::member::{Action, ObservedState, action};
use globalps_planner::clusters::member_report::MemberReport;
use globalps_planner::clusters::target::TargetView;
use globalps_planner::clusters::text::sanitized;
use globalps_runtime::backoff::Backoff;
use globalps_runtime::request::within;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::install::{InstallState, install};
use super::member_watch::{WatchEvent, failed, member_events, member_events_later};
use super::messages::{MemberOutcome, MemberSpec, Shared};
use super::requests::{body, identity, secrets, target, unreachable_reason};
use crate::objects::apply::{is_absent, is_denied};
use crate::remote::lean::lean_client;
use crate::remote::{kubeconfig, unreachable};

/// Pauses between attempts to connect.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// Interval of reading the target without an event.
const RESYNC: Duration = Duration::from_mins(10);
/// Pause before the retry of a failed write.
const WRITE_RETRY: Duration = Duration::from_secs(10);
/// Interval of checks whether an installed controller runs.
const INSTALLING: Duration = Duration::from_secs(2);
/// An installation that does not run by then has failed: before the assignment's deadline, which only gives the turn to another cluster.
const INSTALL_FAILS: Duration = Duration::from_mins(5);

pub(super) struct Session {
    pub(super) cluster: ClusterKey,
    pub(super) shared: Shared,
    pub(super) specs: watch::Receiver<MemberSpec>,
    pub(super) state: ObservedState,
    /// uid of the cluster's `kube-system`, as found. Empty: it can't be read. `None`: not connected yet.
    pub(super) identity: Option<String>,
    /// Installation that this session has found running.
    pub(super) installed: Option<Arc<Installation>>,
    /// Attempt to install that does not run yet, and since when: without a break.
    pub(super) installing: Option<(Release, Instant)>,
    /// The last reported status, and the uid of the object that it was for: another client may delete that, and a new one has none.
    pub(super) reported: Option<(String, ClusterPullSecretStatus)>,
    /// Since when the cluster has no `GlobalPullSecret`.
    pub(super) without_config: Option<Instant>,
}

/// Why the current connection ends.
enum Disconnect {
    /// Another kubeconfig, or another target.
    Changed,
    Failed,
    /// The hub ended the session.
    Ended,
}

impl Session {
    /// Runs until the hub ends the session.
    pub(super) async fn run(mut self) {
        let mut backoff = RETRY;
        let mut spec = self.specs.borrow_and_update().clone();
        loop {
            match self.run_connection(&spec, &mut backoff).await {
                Disconnect::Ended => return,
                Disconnect::Changed => backoff.reset(),
                Disconnect::Failed => {
                    self.report();
                    let until = Instant::now() + backoff.pause();
                    if !self.wait(&spec, until).await {
                        return;
                    }
                }
            }
            spec = self.next_spec(&spec);
        }
    }

    /// The newest spec. Another kubeconfig may lead to another cluster, whose identity is not known.
    pub(super) fn next_spec(&mut self, before: &MemberSpec) -> MemberSpec {
        let spec = self.specs.borrow_and_update().clone();
        if spec.kubeconfig != before.kubeconfig {
            self.identity = None;
        }
        spec
    }

    /// Waits until this time, or until the kubeconfig or the target changes. false: the hub ended the session.
    async fn wait(&mut self, spec: &MemberSpec, until: Instant) -> bool {
        loop {
            tokio::select! {
                () = sleep_until(until) => return true,
                changed = self.specs.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    self.report();
                    if !self.specs.borrow().has_same_place(spec) {
                        return true;
                    }
                }
            }
        }
    }

    fn fail(&mut self, (reason, message): ReasonAndMessage) -> Disconnect {
        self.state.unreachable = Some((reason, sanitized(&message, MESSAGE_LIMIT)));
        Disconnect::Failed
    }

    /// The cluster says why: a megabyte, if it likes.
    fn block(&mut self, reason: Reason, message: &str) {
        self.state.blocked = Some((reason, sanitized(message, MESSAGE_LIMIT)));
    }

    async fn run_connection(&mut self, spec: &MemberSpec, backoff: &mut Backoff) -> Disconnect {
        let data = match &spec.kubeconfig {
            Ok(data) => data,
            Err(reason) => return self.fail(reason.clone()),
        };
        let permits = self.shared.connecting.permits().await;
        let config = kubeconfig::config(data.0.as_deref()).await;
        let client = |config| lean_client(config, &self.shared.fence, &self.shared.bounds);
        let invalid = |error| format!("its kubeconfig {error}");
        let client = match config.and_then(client).map_err(invalid) {
            Ok(client) => client,
            Err(message) => return self.fail((Reason::KubeconfigInvalid, message)),
        };
        if let Err(reason) = self.identify(&client).await {
            return self.fail(reason);
        }
        if let Err(reason) = self.read_target(&client, spec).await {
            return self.fail(reason);
        }
        drop(permits);
        self.installed = None;
        self.installing = None;
        let mut events = member_events(&client, spec);
        let mut next_read = Instant::now() + RESYNC;
        loop {
            if !self.recognize() {
                return Disconnect::Failed;
            }
            let has_installed = match self.write(&client, spec).await {
                Ok(has_installed) => has_installed,
                Err(reason) => {
                    self.report();
                    return self.fail(reason);
                }
            };
            if has_installed {
                // `GlobalPullSecret` is served now, so the watch must start again.
                self.state.report = MemberReport::Unknown;
                events = member_events(&client, spec);
            }
            let config_is_due = self.await_config();
            self.report();
            next_read = config_is_due.map_or(next_read, |at| next_read.min(at));
            if self.state.is_installing {
                next_read = next_read.min(Instant::now() + INSTALLING);
            }
            if self.state.blocked.is_some() {
                next_read = next_read.min(Instant::now() + WRITE_RETRY);
            }
            let is_outdated = tokio::select! {
                () = sleep_until(next_read) => {
                    next_read = Instant::now() + RESYNC;
                    self.installed = None;
                    true
                }
                changed = self.specs.changed() => {
                    if changed.is_err() {
                        return Disconnect::Ended;
                    }
                    if !self.specs.borrow_and_update().has_same_place(spec) {
                        return Disconnect::Changed;
                    }
                    false
                }
                event = events.next() => match event {
                    Some(WatchEvent::Report(report)) => {
                        self.reached(backoff);
                        let is_other = match (&report, &self.state.target) {
                            (MemberReport::Status(status), Some(target)) => !status.refers_to(&target.version),
                            _ => true,
                        };
                        self.state.report = report;
                        is_other
                    }
                    Some(WatchEvent::Target) => {
                        self.reached(backoff);
                        true
                    }
                    Some(WatchEvent::Failed(error)) => match failed(&error) {
                        Ok(report) => {
                            self.state.report = report;
                            self.reached(backoff);
                            events = member_events_later(&client, spec);
                            false
                        }
                        Err(reason) => return self.fail(reason),
                    },
                    None => return self.fail(unreachable::timeout()),
                },
            };
            if is_outdated && let Err(reason) = self.read_target(&client, spec).await {
                return self.fail(reason);
            }
        }
    }

    /// Marks the cluster as reachable. Only an event of its watch does so: otherwise the phase would flap for a cluster that
    /// responds to other requests but never to the watch.
    fn reached(&mut self, backoff: &mut Backoff) {
        backoff.reset();
        self.state.unreachable = None;
    }

    /// Whether the kubeconfig leads to the pinned cluster. What another one has and reports says nothing of that.
    pub(super) fn recognize(&mut self) -> bool {
        let spec = self.specs.borrow();
        if spec.pin.allows(self.identity.as_deref()) {
            return true;
        }
        let found = self.identity.as_deref().unwrap_or_default();
        let reason = spec.pin.refusal(found, &spec.fleet, &self.cluster);
        self.state = ObservedState {
            blocked: Some(reason),
            ..ObservedState::default()
        };
        false
    }

    /// With the same kubeconfig, a cluster that no longer permits this session to read its identity still counts as the same one.
    pub(super) async fn identify(&mut self, client: &Client) -> Result<(), ReasonAndMessage> {
        let found = identity(client).await?;
        self.identity = found.or(self.identity.take()).or(Some(String::new()));
        Ok(())
    }

    pub(super) async fn read_target(
        &mut self,
        client: &Client,
        spec: &MemberSpec,
    ) -> Result<(), ReasonAndMessage> {
        let found = target(client, spec).await?;
        let manager = &self.shared.manager;
        let desired = self.specs.borrow().desired.clone();
        self.state.target = found.map(|secret| TargetView::new(&secret, manager, &desired));
        Ok(())
    }

    /// Applies the newest spec. Returns whether it installed globalps. `Err`: the cluster is unreachable.
    pub(super) async fn write(
        &mut self,
        client: &Client,
        place: &MemberSpec,
    ) -> Result<bool, ReasonAndMessage> {
        let spec = self.specs.borrow().clone();
        self.state.blocked = None;
        self.state.is_installing = false;
        // A new kubeconfig may lead to another cluster than before.
        if !spec.accepts(self.identity.as_ref()) || !spec.has_same_place(place) {
            return Ok(false);
        }
        let action = action(
            self.state.target.as_ref(),
            &spec.desired,
            spec.names(),
            &spec.known,
        );
        let has_installed = match &spec.desired {
            Desired::Revision(release) if !matches!(action, Action::Block(_)) => {
                self.install(client, release, &spec).await?
            }
            _ => {
                self.installing = None;
                false
            }
        };
        // The new globalps must run before the Secret changes, because it verifies the credentials.
        if self.state.blocked.is_none() && !self.state.is_installing {
            self.write_target(client, &spec, action).await?;
        }
        Ok(has_installed)
    }

    /// Returns whether it applied objects. It skips the check of an installation that is known to run.
    async fn install(
        &mut self,
        client: &Client,
        release: &Release,
        spec: &MemberSpec,
    ) -> Result<bool, ReasonAndMessage> {
        let Some(installation) = release.install.as_ref() else {
            return Ok(false);
        };
        if self.installed.as_ref() == Some(installation) {
            return Ok(false);
        }
        match install(client, installation, &self.shared.manager, &spec.fleet).await {
            Ok(InstallState::Running) => {
                self.installing = None;
                self.installed = Some(Arc::clone(installation));
                Ok(false)
            }
            Ok(InstallState::Starting { written }) => {
                let known = self.installing.take().filter(|(it, _)| it == release);
                let (release, since) = known.unwrap_or_else(|| (release.clone(), Instant::now()));
                self.state.is_installing = true;
                self.state.is_install_late =
                    spec.outcome == MemberOutcome::NotInstalled || since.elapsed() >= INSTALL_FAILS;
                self.installing = Some((release, since));
                Ok(written)
            }
            Err(kube::Error::Api(status)) if status.code < 500 => {
                let reason = match status.code {
                    401 | 403 => Reason::InstallForbidden,
                    _ => Reason::NotInstalled,
                };
                self.block(reason, &format!("globalps: {}", status.message));
                Ok(false)
            }
            Err(error) => Err(unreachable_reason(&error)),
        }
    }

    async fn write_target(
        &mut self,
        client: &Client,
        spec: &MemberSpec,
        action: Action,
    ) -> Result<(), ReasonAndMessage> {
        let api = secrets(client, spec);
        let name = &spec.target.name;
        let written = match action {
            Action::Keep => return Ok(()),
            Action::Block(reason) => {
                self.state.blocked = Some(reason);
                return Ok(());
            }
            Action::Apply(release) => {
                let version = self.state.target.as_ref().map(|target| &target.version);
                let body = body(spec, release, version);
                let params = PatchParams {
                    // Reverts other clients' changes of the hub's own Secret; fails if its version is no longer `version`.
                    force: self.state.target.as_ref().is_some_and(TargetView::is_own),
                    ..PatchParams::apply(&self.shared.manager)
                };
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
                let view = |secret| TargetView::new(&secret, manager, &spec.desired);
                self.state.target = secret.and_then(|it| it.into_result().ok()).map(view);
                Ok(())
            }
            Err(kube::Error::Api(status)) if is_absent(&status) => {
                self.state.target = None;
                self.block(Reason::NotFound, &status.message);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code < 500 => {
                let reason = match status.code {
                    409 => Reason::Conflict,
                    401 | 403 => Reason::Forbidden,
                    422 => Reason::Rejected,
                    _ if is_denied(&status) => Reason::Rejected,
                    _ => Reason::NotWritten,
                };
                self.block(reason, &status.message);
                // The Secret may have changed since it was read.
                self.read_target(client, spec).await
            }
            Err(error) => Err(unreachable_reason(&error)),
        }
    }
}
