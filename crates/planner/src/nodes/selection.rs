//! What the pull secrets resolve to. Pure.

use globalps_core::api::GlobalPullSecretSpec;
use globalps_core::rollout::{self, Member};

use super::input::PullSecrets;
use super::members::Rollout;
use crate::content::resolve::{Resolved, Scopes, resolve};
use crate::content::secret::Global;

/// `before`: the state of which content and last valid pull secrets count.
pub(super) fn resolved(
    spec: &GlobalPullSecretSpec,
    secrets: &PullSecrets,
    before: Option<&Global>,
) -> Resolved {
    resolved_with(spec, secrets, before, false)
}

/// The same, but namespaces that a selector selects in addition wait while a canary tries the content, while nodes get it that
/// need no restart, and while the rollout has halted. Each is a revision with a canary of its own: if they came faster than a
/// canary takes, no other node ever got a new password, and where it has halted, each would break one more node. What restarts
/// kubelets has no such end soon, and is superseded.
pub(super) fn resolved_for_rollout(
    spec: &GlobalPullSecretSpec,
    secrets: &PullSecrets,
    before: Option<&Global>,
    in_force: &Rollout,
) -> Resolved {
    let resolved = resolved(spec, secrets, before);
    let mut scopes = spec.sources.iter().filter_map(|it| it.scope.as_ref());
    let has_selector = scopes.any(|scope| scope.namespace_selector.is_some());
    let Some(global) = before.filter(|_| has_selector) else {
        return resolved;
    };
    if is_in_force(global, &resolved) {
        return resolved;
    }
    let without_new = resolved_with(spec, secrets, before, true);
    if is_in_force(global, &without_new) && is_tried(spec, global, in_force) {
        without_new
    } else {
        resolved
    }
}

fn is_in_force(global: &Global, resolved: &Resolved) -> bool {
    let desired = resolved.desired.as_ref();
    desired.is_some_and(|desired| global.has(&desired.content))
}

/// Whether its rollout has halted, or ends soon what it is at.
fn is_tried(spec: &GlobalPullSecretSpec, global: &Global, in_force: &Rollout) -> bool {
    let (limits, members) = (&spec.rollout, &in_force.members);
    let goal = in_force.target.map(|target| target.ledger.goal);
    let Some(goal) = goal.filter(|goal| members.iter().any(|member| member.goal == *goal)) else {
        return false;
    };
    if global.rolled_out.is_some() || limits.paused {
        return false;
    }
    in_force.step.outcome.is_halted
        || if in_force.step.outcome.ledger.canary_passed {
            members.iter().any(Member::waits_in_place)
        } else {
            rollout::stuck_canaries(members, goal, limits).is_none()
        }
}

fn resolved_with(
    spec: &GlobalPullSecretSpec,
    secrets: &PullSecrets,
    before: Option<&Global>,
    waits_with_namespaces: bool,
) -> Resolved {
    let scopes = Scopes {
        spec,
        namespaces: secrets.namespaces.as_deref(),
        waits_with_namespaces,
    };
    resolve(
        &scopes,
        &secrets.additional,
        &secrets.original,
        &secrets.sources,
        before,
    )
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    use globalps_core::api::{DeliveryType, GlobalPullSecretSpec};
    use serde_json::json;

    use super::super::input::Snapshot;
    use super::super::plan::tests::{line, written};
    use super::super::testing::{A, found, global, snapshot};
    use super::*;
    use crate::content::source::Source;

    const B: &str = r#"{"auths":{"b":{"auth":"dTpw"}}}"#;
    const PASSWORD: &str = r#"{"auths":{"b":{"auth":"dTpx"}}}"#;
    const NEXT_PASSWORD: &str = r#"{"auths":{"b":{"auth":"dTpy"}}}"#;

    type Change = Box<dyn FnOnce(&mut Snapshot)>;

    fn spec(namespaces: &[&str], accounts: &[&str]) -> GlobalPullSecretSpec {
        let selector = json!({"matchLabels": {"team": "yes"}});
        let scope = json!({
            "namespaces": namespaces, "namespaceSelector": selector, "serviceAccounts": accounts,
        });
        let sources = json!([{"name": "teams", "scope": scope}]);
        let spec = json!({"kubelet": {"delivery": "CredentialProvider"}, "sources": sources});
        serde_json::from_value(spec).unwrap()
    }

    /// A source for namespaces with a label, and one by name. All nodes run the provider. `-b`: it has lost its label.
    fn of_teams(
        global: Global,
        nodes: &str,
        namespaces: &str,
        password: &str,
    ) -> Snapshot<'static> {
        let mut snapshot = snapshot(found(A), Some(global), nodes);
        snapshot.config.spec = spec(&["named"], &[]);
        snapshot.secrets.sources = vec![("teams".to_owned(), found(password))];
        let label = |team: &str| BTreeMap::from([("team".to_owned(), team.to_owned())]);
        let namespaces = namespaces.split_whitespace();
        let namespaces = namespaces.map(|word| match word.strip_prefix('-') {
            Some(name) => (name.to_owned(), label("no")),
            None => (word.to_owned(), label("yes")),
        });
        snapshot.secrets.namespaces = Some(Cow::Owned(namespaces.collect()));
        for (name, object) in snapshot.nodes.objects.to_mut() {
            object.spec.kubelet_version = snapshot.nodes.views[name].kubelet_version.to_string();
            let status = object.status.as_mut().unwrap();
            status.delivery = DeliveryType::CredentialProvider.as_str().to_owned();
        }
        snapshot
    }

    /// The plan after revision 4 was rolled out to the namespaces `a` and `gone`, a new password became revision 5, and the
    /// cluster has changed.
    fn after(nodes: &str, namespaces: &str, change: impl FnOnce(&mut Snapshot)) -> String {
        let four = of_teams(global(3, A), "n1=3:Synced n2=3:Synced", "a gone", B);
        let four = Global {
            canary_passed: true,
            rolled_out: Some(four.clock.now),
            ..written(&four)
        };
        let rolled_out = four.revision;
        let old = of_teams(four, "n1=4:Synced n2=4:Synced", "a gone", PASSWORD);
        assert_eq!(line(&old), "Reach(Revision(5)) slot 4 write 5 n1=5");
        let mut next = of_teams(written(&old), nodes, namespaces, PASSWORD);
        next.recorded.rolled_out_revision = Some(rolled_out);
        change(&mut next);
        line(&next)
    }

    #[test]
    fn more_namespaces_wait_for_what_ends_soon_and_halted_rollouts() {
        let nothing = |_: &mut Snapshot| {};
        for (case, nodes, expected) in [
            (
                "the canary has yet to begin",
                "n1=4:Synced n2=4:Synced",
                "Reach(Revision(5)) n1=5",
            ),
            ("it changes", "n1=5 n2=4:Synced", "Reach(Revision(5))"),
            (
                "it has changed, and the others get it",
                "n1=5:Synced n2=4:Synced",
                "Reach(Revision(5)) write 5 passed n2=5",
            ),
            (
                "all have it",
                "n1=5:Synced n2=5:Synced",
                "Reach(Revision(6)) slot 5 write 6 n1=6",
            ),
            (
                "none can change",
                "!n1=4:Synced !n2=4:Synced",
                "Reach(Revision(6)) write 6",
            ),
            (
                "the rollout has halted",
                "n1=5:RolledBack n2=4:Synced",
                "Reach(Revision(5))",
            ),
        ] {
            assert_eq!(after(nodes, "a b", nothing), expected, "{case}");
        }
        let two_canaries = |it: &mut Snapshot| it.config.spec.rollout.canary.nodes = 2;
        assert_eq!(
            after("n1=5:Synced n2=4:Synced", "a b", two_canaries),
            "Reach(Revision(5)) n2=5"
        );
        let passed = |it: &mut Snapshot| it.recorded.global.as_mut().unwrap().canary_passed = true;
        assert_eq!(
            after("n1=5:Synced n2=4:Synced", "a b", passed),
            "Reach(Revision(5)) n2=5",
            "not all of them fit into one plan"
        );
        let restarts = |it: &mut Snapshot| {
            passed(it);
            it.recorded.global.as_mut().unwrap().provider_since = 5;
        };
        assert_eq!(
            after("n1=5:Synced n2=4:Synced", "a b", restarts),
            "Reach(Revision(6)) slot 5 write 6 n1=6",
            "restarts take long"
        );
    }

    #[test]
    fn what_is_taken_away_or_named_applies_at_once() {
        let at_once = "Reach(Revision(6)) write 6 n1=6";
        let waits = "Reach(Revision(5))";
        for (case, namespaces, expected) in [
            ("one is new", "a gone b", waits),
            ("one has gone", "a", waits),
            ("one has lost its label", "-a gone", at_once),
            ("one has come back without it", "a -gone", at_once),
        ] {
            let found = after("n1=5 n2=4:Synced", namespaces, |_| {});
            assert_eq!(found, expected, "{case}");
        }
        let source = |source: Source| vec![("teams".to_owned(), source)];
        let changes: [(&str, Change, &str); 8] = [
            (
                "another password",
                Box::new(move |it| it.secrets.sources = source(found(NEXT_PASSWORD))),
                at_once,
            ),
            (
                "no source",
                Box::new(move |it| it.secrets.sources = source(Source::Absent)),
                at_once,
            ),
            (
                "another pull secret for all",
                Box::new(|it| it.secrets.additional = found(B)),
                "Reach(Revision(6)) keep 5 write 6 n1=6",
            ),
            (
                "one more by name",
                Box::new(|it| it.config.spec = spec(&["named", "other"], &[])),
                at_once,
            ),
            (
                "none by name",
                Box::new(|it| {
                    it.config.spec = spec(&[], &[]);
                    let namespaces = it.secrets.namespaces.as_mut().unwrap().to_mut();
                    namespaces.insert("named".to_owned(), BTreeMap::new());
                }),
                at_once,
            ),
            (
                "fewer service accounts",
                Box::new(|it| it.config.spec = spec(&["named"], &["one"])),
                at_once,
            ),
            (
                "a selector that selects others",
                Box::new(|it| {
                    let scope = it.config.spec.sources[0].scope.as_mut().unwrap();
                    let selector = json!({"matchLabels": {"team": "no"}});
                    scope.namespace_selector = serde_json::from_value(selector).unwrap();
                }),
                at_once,
            ),
            (
                "a pause: then nothing ends soon",
                Box::new(|it| it.config.spec.rollout.paused = true),
                "Reach(Revision(6)) write 6",
            ),
        ];
        for (case, change, expected) in changes {
            let found = after("n1=5 n2=4:Synced", "a gone b", change);
            assert_eq!(found, expected, "{case}");
        }
    }
}
