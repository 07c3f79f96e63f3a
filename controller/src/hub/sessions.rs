//! The sessions with the clusters: one task for each fleet and cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use globalps_planner::clusters::input::ClusterKey;
use globalps_planner::clusters::member::ObservedState;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use super::messages::{Connecting, MemberSpec, Observations, Pair, Shared};
use super::session::Session;
use crate::leader::fencing::Fence;
use crate::remote::bounds::Bounds;

/// Maximum number of sessions of a namespace that connect at the same time: after a start there may be a thousand to connect.
const CONNECTING: usize = 16;
/// The same limit for all namespaces together.
const CONNECTING_TOGETHER: usize = 64;

impl Session {
    pub(super) fn new(
        cluster: ClusterKey,
        shared: Shared,
        specs: watch::Receiver<MemberSpec>,
    ) -> Self {
        Self {
            cluster,
            shared,
            specs,
            state: ObservedState::default(),
            identity: None,
            installed: None,
            installing: None,
            reported: None,
            without_config: None,
        }
    }
}

pub(super) struct Sessions {
    running: BTreeMap<Pair, Running>,
    fence: Fence,
    observations: Arc<Observations>,
    connecting: Arc<Semaphore>,
    /// What the sessions of a namespace share.
    namespaces: BTreeMap<String, (Connecting, Bounds)>,
}

struct Running {
    specs: watch::Sender<MemberSpec>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sessions {
    pub(super) fn new(fence: Fence, observations: Arc<Observations>) -> Self {
        Self {
            running: BTreeMap::new(),
            fence,
            observations,
            connecting: Arc::new(Semaphore::new(CONNECTING_TOGETHER)),
            namespaces: BTreeMap::new(),
        }
    }

    /// Starts the session of this cluster, or sends it the new spec.
    pub(super) fn update(&mut self, pair: Pair, spec: MemberSpec, manager: &Arc<str>) {
        if let Some(running) = self.running.get(&pair) {
            running.specs.send_if_modified(|known| {
                let is_new = *known != spec;
                if is_new {
                    *known = spec;
                }
                is_new
            });
            return;
        }
        let (sender, specs) = watch::channel(spec);
        let namespace = self.namespaces.entry(pair.1.0.clone());
        let (connecting, bounds) = namespace.or_insert_with(|| {
            let connecting = Connecting {
                of_namespace: Arc::new(Semaphore::new(CONNECTING)),
                of_all: Arc::clone(&self.connecting),
            };
            (connecting, Bounds::default())
        });
        let shared = Shared {
            fence: self.fence.clone(),
            manager: Arc::clone(manager),
            observations: Arc::clone(&self.observations),
            connecting: connecting.clone(),
            bounds: bounds.clone(),
        };
        let session = Session::new(pair.1.clone(), shared, specs);
        let task = tokio::spawn(session.run()).abort_handle();
        let specs = sender;
        self.running.insert(pair, Running { specs, task });
    }

    /// Ends all other sessions.
    pub(super) fn keep(&mut self, desired: &BTreeSet<Pair>) {
        self.running.retain(|pair, _| desired.contains(pair));
    }
}
