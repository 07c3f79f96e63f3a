//! Compares what each node's status says with its file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use globalps_core::api::{NodePullSecret, Phase};
use globalps_dockerconfig::{DockerConfig, parse};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use super::content_of;

/// A status may be wrong for this long.
const WITHIN: Duration = Duration::from_secs(2);

/// What the watcher saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Comparisons of a status with a file.
    pub compared: usize,
    /// Those in which the status was `Synced` for the current Secret.
    pub synced: usize,
    /// `Synced` for too long while the file lacked something.
    pub wrong: Vec<String>,
    /// Not `Synced` for too long although the file had everything.
    pub late: Vec<String>,
    /// The longest time until a status was true again.
    pub longest: Duration,
}

pub(in crate::fleet) struct Watcher {
    files: BTreeMap<String, PathBuf>,
    /// Of each node: since when its status is not true, of which state.
    untrue: BTreeMap<String, (Instant, Vec<u8>)>,
    pub(in crate::fleet) seen: Seen,
}

impl Watcher {
    pub(in crate::fleet) fn new(files: BTreeMap<String, PathBuf>) -> Self {
        Self {
            files,
            untrue: BTreeMap::new(),
            seen: Seen::default(),
        }
    }

    /// `secret`: what the files should have; `is_newest`: it has the newest content, so that the nodes' statuses should say so. A change
    /// of `state` begins another time.
    pub(in crate::fleet) fn compare(
        &mut self,
        objects: Vec<NodePullSecret>,
        secret: &Secret,
        is_newest: bool,
        state: &[u8],
    ) -> Result<()> {
        let bytes = content_of(secret);
        let wanted = parse(&bytes)?;
        for object in objects {
            let name = object.name_any();
            let Some(file) = self.files.get(&name) else {
                continue;
            };
            let found = std::fs::read(file).unwrap_or_default();
            let has = has(&found, &wanted);
            let says = says(&object, secret);
            self.seen.compared += 1;
            self.seen.synced += usize::from(says);
            let is_true = says == has || has && !is_newest;
            let state = [&*found, &bytes, b"|", state].concat();
            let now = Instant::now();
            if is_true {
                self.untrue.remove(&name);
                continue;
            }
            let since = self
                .untrue
                .entry(name.clone())
                .or_insert((now, state.clone()));
            if !says && since.1 != state {
                *since = (now, state);
            }
            let lasts = now.duration_since(since.0);
            self.seen.longest = self.seen.longest.max(lasts);
            if lasts > WITHIN {
                let status = object.status.unwrap_or_default();
                let line = format!(
                    "{name}: {} {} for {} ms: {}",
                    status.phase,
                    status.reason,
                    lasts.as_millis(),
                    status.message
                );
                let lines = if says {
                    &mut self.seen.wrong
                } else {
                    &mut self.seen.late
                };
                lines.push(line);
                self.untrue.remove(&name);
            }
        }
        Ok(())
    }
}

/// A kubelet with this file has everything.
pub(in crate::fleet) fn has(file: &[u8], wanted: &DockerConfig) -> bool {
    let Ok(file) = parse(file) else {
        return false;
    };
    let there = file.by_canonical_key();
    let wanted = wanted.by_canonical_key().into_iter();
    let mut wanted = wanted.map(|(key, entry)| {
        there
            .get(&key)
            .is_some_and(|found| found.means_the_same(entry))
    });
    file.is_kubelet_readable() && wanted.all(|is_there| is_there)
}

/// The status says that the node has the content of this Secret.
pub(in crate::fleet) fn says(object: &NodePullSecret, secret: &Secret) -> bool {
    let generation = object.metadata.generation.unwrap_or_default();
    let observed = object.spec.observed.clone().unwrap_or_default();
    let version = secret.metadata.resource_version.clone().unwrap_or_default();
    let status = object.status.as_ref();
    !object.spec.restore
        && observed.resource_version == version
        && status.is_some_and(|status| {
            status.phase == Phase::Synced
                && status.observed_generation == generation
                && status.in_force() == object.spec.assigned()
        })
}
