//! Whether controller and syncers run. Pure.

use globalps_core::names;
use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::syncers::PodError;
use crate::cluster::{Installed, Sight};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum HealthState {
    Healthy,
    Unhealthy,
    /// There is nothing to do for it.
    NotNeeded,
    /// This user may not see it.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ControllerHealth {
    pub state: HealthState,
    /// Pods that are ready, and that there should be; `null`: unknown.
    pub ready: Option<i32>,
    pub replicas: Option<i32>,
    /// The pod that leads; `null`: none, or unknown.
    pub leader: Option<String>,
    /// Empty if it runs.
    pub message: String,
    /// What to do if it does not run.
    #[serde(skip)]
    pub repair: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SyncersHealth {
    pub state: HealthState,
    /// Pods that are ready, and nodes that should have one; `null`: unknown.
    pub ready: Option<i32>,
    pub desired: Option<i32>,
    /// Empty if they run.
    pub message: String,
    #[serde(skip)]
    is_absent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Health {
    pub controller: ControllerHealth,
    pub syncers: SyncersHealth,
    /// What keeps the syncers' pods from running.
    #[serde(skip)]
    pub pod_errors: Vec<PodError>,
}

impl Health {
    pub(crate) fn of(seen: &Installed, now: Timestamp) -> Self {
        Self {
            controller: controller(seen, now),
            syncers: syncers(seen),
            pod_errors: seen.pod_errors.clone(),
        }
    }

    /// The API server refuses their `DaemonSet`.
    pub(crate) fn syncers_refused(&mut self, message: &str) {
        self.syncers.state = HealthState::Unhealthy;
        message.clone_into(&mut self.syncers.message);
    }

    /// Neither is known to be unhealthy.
    pub(crate) fn is_well(&self) -> bool {
        let states = [self.controller.state, self.syncers.state];
        !states.contains(&HealthState::Unhealthy)
    }

    /// Why nothing would change any more, which no phase of a node says: what must run was deleted, or has no replicas.
    pub(crate) fn is_gone(&self) -> Option<(&str, &str)> {
        let controller = &self.controller;
        let no_pods = controller.replicas.unwrap_or_default() == 0;
        let no_controller = controller.state == HealthState::Unhealthy && no_pods;
        let syncers = &self.syncers;
        let no_syncers = syncers.state == HealthState::Unhealthy && syncers.is_absent;
        match (no_controller, no_syncers) {
            (true, _) => Some((&controller.message, &controller.repair)),
            (false, true) => Some((&syncers.message, "the controller creates it again")),
            (false, false) => None,
        }
    }

    /// A line for each. `wide`: with the pod that leads.
    pub(crate) fn lines(&self, wide: bool) -> [String; 2] {
        [self.controller.line(wide), self.syncers.line()]
    }
}

fn controller(seen: &Installed, now: Timestamp) -> ControllerHealth {
    let Sight::Here(found) = &seen.controller else {
        let message = match (&seen.stopped, &seen.controller) {
            (Some(reason), Sight::Absent) => reason.clone(),
            _ => "this user may not get its Deployment".to_owned(),
        };
        return ControllerHealth {
            state: match seen.controller {
                Sight::Absent => HealthState::Unhealthy,
                _ => HealthState::Unknown,
            },
            ready: None,
            replicas: None,
            leader: None,
            message,
            repair: seen.repair(),
        };
    };
    let leader = match &seen.lease {
        Sight::Here(lease) if lease.is_current(now) => Some(lease.holder.clone()),
        _ => None,
    };
    let error = if let Some(reason) = seen.cause() {
        reason.clone()
    } else if found.ready == 0 {
        format!("0 of {} pods are ready", found.wanted)
    } else if leader.is_none() && seen.lease != Sight::Hidden {
        "no pod leads: its Lease is not renewed".to_owned()
    } else {
        String::new()
    };
    ControllerHealth {
        state: if error.is_empty() {
            HealthState::Healthy
        } else {
            HealthState::Unhealthy
        },
        ready: Some(found.ready),
        replicas: Some(found.wanted),
        leader,
        message: error,
        repair: seen.repair(),
    }
}

fn syncers(seen: &Installed) -> SyncersHealth {
    let first = seen.pod_errors.first().map(PodError::message);
    let (state, message) = match &seen.syncer {
        Sight::Hidden => (
            HealthState::Unknown,
            "this user may not get their DaemonSet".to_owned(),
        ),
        Sight::Absent if first.is_none() && seen.needs_syncers => {
            let message = format!("DaemonSet `{}` does not exist", names::SYNCER);
            (HealthState::Unhealthy, message)
        }
        Sight::Absent if first.is_none() => {
            let message = "there is nothing to sync to nodes".to_owned();
            (HealthState::NotNeeded, message)
        }
        Sight::Here(found) if !found.ours => {
            let message = "their DaemonSet does not belong to globalps".to_owned();
            (HealthState::Unhealthy, message)
        }
        Sight::Here(found) if found.ready >= found.wanted && first.is_none() => {
            (HealthState::Healthy, String::new())
        }
        // A rollout of the DaemonSet needs no look.
        Sight::Absent | Sight::Here(_) => {
            let of_nodes = match &seen.syncer {
                Sight::Here(found) => seen.of_nodes(found),
                _ => None,
            };
            let message = first.unwrap_or_else(|| match of_nodes {
                Some((nodes, true)) => nodes,
                Some((nodes, false)) => format!("{nodes}, the others are starting"),
                None => "the others are starting".to_owned(),
            });
            (HealthState::Unhealthy, message)
        }
    };
    let number = |of: fn(&crate::cluster::installed::Workload) -> i32| match &seen.syncer {
        Sight::Here(found) => Some(of(found)),
        Sight::Absent => Some(0),
        Sight::Hidden => None,
    };
    SyncersHealth {
        state,
        ready: number(|found| found.ready),
        desired: number(|found| found.wanted),
        message,
        is_absent: seen.syncer == Sight::Absent,
    }
}

impl ControllerHealth {
    fn line(&self, wide: bool) -> String {
        let Self {
            state,
            ready,
            replicas,
            leader,
            message,
            repair: _,
        } = self;
        let text = match (state, ready.zip(*replicas)) {
            (HealthState::Healthy, Some((ready, replicas))) => {
                let leader = leader.as_ref().filter(|_| wide);
                let leader = leader.map_or(String::new(), |name| format!(", leader {name}"));
                format!("running, {ready}/{replicas} replicas{leader}")
            }
            (HealthState::Unknown, _) => format!("unknown: {message}"),
            _ => format!("not running: {message}"),
        };
        format!("Controller   {text}")
    }
}

impl SyncersHealth {
    fn line(&self) -> String {
        let message = match self.message.as_str() {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let text = match (self.state, self.ready.zip(self.desired)) {
            (HealthState::Unknown, _) | (_, None) => format!("unknown{message}"),
            (HealthState::NotNeeded, _) => format!("none{message}"),
            (_, Some((ready, desired))) => format!("{ready}/{desired} ready{message}"),
        };
        format!("Syncers      {text}")
    }
}

#[cfg(test)]
mod tests;
