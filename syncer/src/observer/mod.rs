//! Reports what the node's file has, where another program writes it. Changes nothing on the node.

mod judge;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::cluster::{Cluster, KnownSecret, SeenObject, Watched};
use crate::node::drift::Drift;
use crate::node::file;
use crate::report::{StatusReporter, writer};
use judge::judged;

/// Interval between reads of the file without an event, for file systems that report none.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// The observer of one node.
pub(crate) struct Observer {
    config_file: PathBuf,
    file: Drift,
    objects: watch::Receiver<SeenObject>,
    versions: watch::Receiver<()>,
    secret: watch::Receiver<KnownSecret>,
    reporter: StatusReporter,
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
            self.reporter.report(object, judged(object, &secret, &file));
        }
    }
}
