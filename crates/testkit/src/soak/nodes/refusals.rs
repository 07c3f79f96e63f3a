//! Temporarily refuses writes of the controller.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fastrand::Rng;
use globalps_core::names::{CONTROLLER, CONTROLLER_NAMESPACE};

use super::kubectl::{apply, kubectl};
use crate::Cluster;
use crate::product::NAMESPACE;
use crate::refuser::{OF_CONTROLLER, REFUSER, Refused, Refuser};
use crate::rights::service_account;

/// How long writes are refused, in seconds.
const FOR: std::ops::RangeInclusive<u64> = 5..=60;

pub(super) struct Refusals<'a> {
    cluster: &'a Cluster,
    refuser: Refuser,
    /// When the current refusal ends.
    until: Option<Instant>,
}

impl<'a> Refusals<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Result<Self> {
        Ok(Self {
            cluster,
            refuser: Refuser::start()?,
            until: None,
        })
    }

    /// Refuses the controller's writes of one object, such as that of this node. Returns a description.
    pub(super) fn begin(&mut self, random: &mut Rng, node: &str) -> Result<String> {
        let of_node = random.u8(0..3) == 0;
        let other = OF_CONTROLLER[random.usize(..OF_CONTROLLER.len())];
        let (is_silent, seconds) = (random.u8(0..3) == 0, random.u64(FOR));
        ensure!(self.until.is_none(), "other writes are refused already");
        let (kind, name) = if of_node {
            ("nodepullsecrets", node)
        } else {
            other
        };
        let refused = Refused {
            kind,
            namespace: NAMESPACE.to_owned(),
            name: name.to_owned(),
        };
        let user = service_account(CONTROLLER_NAMESPACE, CONTROLLER);
        let webhook = self.refuser.configuration(&[&user], &refused, is_silent);
        // Set even if the response is lost.
        self.until = Some(Instant::now() + Duration::from_secs(seconds));
        apply(self.cluster, &webhook)?;
        let how = if is_silent { "unanswered" } else { "denied" };
        Ok(format!(": {kind} `{name}` {how} for {seconds} s"))
    }

    /// Allows the writes that were refused long enough.
    pub(super) fn end(&mut self, all: bool) -> Result<()> {
        let Some(until) = self.until else {
            return Ok(());
        };
        if all || until <= Instant::now() {
            let kind = "validatingwebhookconfiguration";
            let args = ["delete", kind, REFUSER, "--ignore-not-found"];
            kubectl(self.cluster, &args)?;
            self.until = None;
        }
        Ok(())
    }
}
