//! Reports what the node's file has, where another program writes it. Changes nothing on the node.

mod judge;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, KnownSecret, SeenObject, Watched};
use crate::node::drift::Drift;
use crate::node::file;
use crate::report::{StatusReporter, writer};
use judge::judged;

/// Interval between reads of the file without an event, for file systems that report none.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// How long the file has been as it is. A file from the future, by the node's clock, is as old as it is known.
fn age(
    known: &mut Option<(SystemTime, Instant)>,
    modified: Option<SystemTime>,
) -> Option<Duration> {
    let modified = modified?;
    let is_known = known.is_some_and(|(at, _)| at == modified);
    if !is_known {
        *known = Some((modified, Instant::now()));
    }
    let (_, since) = (*known)?;
    let by_clock = modified.elapsed().unwrap_or_default();
    Some(by_clock.max(since.elapsed()))
}

/// The observer of one node.
pub(crate) struct Observer {
    config_file: PathBuf,
    file: Drift,
    objects: watch::Receiver<SeenObject>,
    versions: watch::Receiver<()>,
    secret: watch::Receiver<KnownSecret>,
    reporter: StatusReporter,
    /// When the file was modified, and since when that is known.
    modified: Option<(SystemTime, Instant)>,
}

impl Observer {
    pub(crate) fn new(config_file: PathBuf, ready_file: PathBuf, cluster: Cluster) -> Self {
        let Watched { objects, versions } = cluster.watch_object();
        Self {
            file: Drift::new(&config_file),
            config_file,
            objects,
            versions,
            secret: cluster.watch_secret(),
            reporter: StatusReporter::new(writer::start(cluster), ready_file),
            modified: None,
        }
    }

    /// Returns when the API server no longer accepts this pod.
    pub(crate) async fn run(&mut self) {
        while self.objects.has_changed().is_ok() {
            self.observe();
            let objects = self.objects.clone();
            tokio::select! {
                changed = self.objects.changed() => if changed.is_err() {
                    return;
                },
                changed = self.secret.changed() => if changed.is_err() {
                    return;
                },
                () = self.file.changed() => {}
                () = sleep(READ_AGAIN) => {}
                never = self.reporter.uphold(&objects, &mut self.versions) => match never {},
            }
        }
    }

    /// Reads in this order: the assignment, the Secret, the file. Each is watched, so a later change leads to another report.
    fn observe(&mut self) {
        let object = self.objects.borrow_and_update().clone();
        let secret = self.secret.borrow_and_update();
        self.reporter
            .mark_ready(!matches!(object, SeenObject::Nothing));
        if let Some(object) = object.object() {
            let file = file::read(&self.config_file);
            let age = age(&mut self.modified, file::modified(&self.config_file));
            let status = judged(object, &secret, &file, age);
            self.reporter.report(object, status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_node_makes_no_file_young_forever() {
        let mut known = None;
        let now = SystemTime::now();
        let hour = Duration::from_hours(1);
        let old = age(&mut known, Some(now - hour)).unwrap();
        assert!(old >= hour, "{old:?}");
        // As after a clock that was set back.
        let ahead = Some(now + hour);
        let begins = age(&mut known, ahead).unwrap();
        assert!(begins < hour, "{begins:?}");
        let (_, since) = known.as_mut().unwrap();
        *since -= Duration::from_mins(5);
        assert!(age(&mut known, ahead).unwrap() >= Duration::from_mins(5));
        assert_eq!(age(&mut known, None), None, "it does not tell");
    }
}
