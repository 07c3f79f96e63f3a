use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::testing::snapshot;
use super::*;
use crate::content::secret::revision_of_test;
use crate::content::source::Source;

#[test]
fn a_failure_has_its_node_and_cause() {
    for (nodes, expected) in [
        ("a=5:RolledBack", "a: RolledBack: it did not start"),
        ("!a=5:RolledBack", "a: RolledBack: it did not start"),
        ("!a=5:Synced", "a: it became NotReady 10 s after the change"),
        (
            "a=5:Synced",
            "a: it does not stay Ready and unchanged: `minReadySeconds` has not passed once since the change",
        ),
        ("a=5:never", "a"),
        ("b=5:RolledBack", "a"),
        (
            "!a=R:RolledBack",
            "a: it became NotReady 10 s after the change",
        ),
        (
            "a=6:RolledBack",
            "a: RolledBack: it did not start; it failed revision 5 before and has not been synced since, so this does not halt the rollout",
        ),
        ("a=6:Failed.DiskFull", "a: Failed: it did not start"),
    ] {
        let mut snapshot = snapshot(Source::Absent, None, nodes);
        let done = snapshot.clock.now - SignedDuration::from_secs(70);
        for object in snapshot.nodes.objects.to_mut().values_mut() {
            if object.spec.revision == 6 {
                object.spec.failed_revision = 5;
                object.spec.failed_revision_id = revision_of_test(5).id;
            }
            if let Some(status) = &mut object.status {
                status.message = "it did not start".to_owned();
                status.kubelet_restarted_at = Some(Time(done));
                status.last_transition_time = Some(Time(done));
            }
        }
        assert_eq!(failure(&snapshot, "a"), expected, "{nodes}");
    }
}

#[test]
fn canary_min_ready_seconds_may_be_longer() {
    let mut spec = GlobalPullSecretSpec::default();
    spec.rollout.min_ready_seconds = 5;
    spec.rollout.canary.min_ready_seconds = 60;
    assert_eq!(min_ready(&spec, true), SignedDuration::from_secs(60));
    assert_eq!(min_ready(&spec, false), SignedDuration::from_secs(5));
    spec.rollout.min_ready_seconds = 90;
    assert_eq!(min_ready(&spec, true), SignedDuration::from_secs(90));
}
