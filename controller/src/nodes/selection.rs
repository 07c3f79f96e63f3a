//! What the pull secrets resolve to. Pure.

use globalps_core::rollout::{self, Goal, Member, Progress};

use super::input::Snapshot;
use super::members::members;
use crate::content::resolve::{Resolved, Scopes, resolve};
use crate::content::secret::Global;

/// `before`: the state of which content and last valid pull secrets count.
pub(super) fn resolved(snapshot: &Snapshot, before: Option<&Global>) -> Resolved {
    resolved_with(snapshot, before, false)
}

/// The same, but while a canary tries the content, a change of nothing but the namespaces that selectors select waits for it. Each
/// is a revision with a canary of its own: namespaces that come faster than a canary takes would keep every revision, and with
/// it every new password, from all other nodes.
pub(super) fn resolved_after_canary(snapshot: &Snapshot, before: Option<&Global>) -> Resolved {
    let kept = before.filter(|global| is_tried(snapshot, global));
    let kept = kept.and_then(|global| {
        let resolved = resolved_with(snapshot, before, true);
        let content = &resolved.desired.as_ref()?.content;
        let is_in_force = global.content.as_ref()?.means_the_same(content);
        is_in_force.then_some(resolved)
    });
    kept.unwrap_or_else(|| resolved(snapshot, before))
}

/// A canary changes to it now, or enough have just done so and the others get it with this plan.
fn is_tried(snapshot: &Snapshot, global: &Global) -> bool {
    let scopes = snapshot.spec.sources.iter();
    let mut scopes = scopes.filter_map(|source| source.scope.as_ref());
    if global.canary_passed || !scopes.any(|scope| scope.namespace_selector.is_some()) {
        return false;
    }
    let goal = Goal::Revision(global.revision);
    let is_changing = |member: &Member| {
        let is_open = matches!(
            member.at_goal(),
            Some(Progress::InFlight | Progress::Soaking)
        );
        member.is_canary && is_open && !member.is_timed_out()
    };
    let members = members(snapshot, goal, false, global.provider_since);
    let limits = &snapshot.spec.rollout;
    rollout::has_canary_passed(&members, goal, limits) || members.iter().any(is_changing)
}

fn resolved_with(snapshot: &Snapshot, before: Option<&Global>, keeps_namespaces: bool) -> Resolved {
    let scopes = Scopes {
        spec: &snapshot.spec,
        namespaces: snapshot.namespaces.as_deref(),
        keeps_namespaces,
    };
    resolve(
        &scopes,
        &snapshot.additional,
        &snapshot.original,
        &snapshot.sources,
        before,
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    use globalps_core::api::GlobalPullSecretSpec;
    use serde_json::json;

    use super::super::plan::plan;
    use super::super::plan::tests::{A, found, global, line, snapshot};
    use super::*;
    use crate::content::source::Source;

    const PASSWORD: &str = r#"{"auths":{"b":{"auth":"dTpw"}}}"#;
    const NEXT_PASSWORD: &str = r#"{"auths":{"b":{"auth":"dTpx"}}}"#;

    /// A source for the namespaces with a label. Revision 4 was rolled out without it.
    fn of_teams(nodes: &str, namespaces: &[&str], password: &str) -> Snapshot<'static> {
        let mut snapshot = snapshot(found(A), Some(global(4, A)), nodes);
        snapshot.spec = spec(&json!({"matchLabels": {"team": "yes"}}), &[]);
        snapshot.sources = vec![("teams".to_owned(), found(password))];
        set_namespaces(&mut snapshot, namespaces);
        snapshot
    }

    fn spec(selector: &serde_json::Value, accounts: &[&str]) -> GlobalPullSecretSpec {
        let scope = json!({"namespaceSelector": selector, "serviceAccounts": accounts});
        let sources = json!([{"name": "teams", "scope": scope}]);
        let spec = json!({"kubelet": {"delivery": "CredentialProvider"}, "sources": sources});
        serde_json::from_value(spec).unwrap()
    }

    fn set_namespaces(snapshot: &mut Snapshot, names: &[&str]) {
        let labels = BTreeMap::from([("team".to_owned(), "yes".to_owned())]);
        let namespaces = names
            .iter()
            .map(|name| ((*name).to_owned(), labels.clone()));
        snapshot.namespaces = Some(Cow::Owned(namespaces.collect()));
    }

    /// The plan is written; `nodes` are what the cluster is then.
    fn then(before: &Snapshot, nodes: &str, namespaces: &[&str]) -> Snapshot<'static> {
        let written = plan(before).global.unwrap();
        let mut after = of_teams(nodes, namespaces, PASSWORD);
        after.global = Some(Global {
            content: Some(written.content),
            ..written.global
        });
        after
    }

    #[test]
    fn namespaces_of_a_selector_wait_for_a_canary_that_changes_and_for_nothing_else() {
        let nodes = "n1=4:Synced n2=4:Synced";
        let first = of_teams(nodes, &["a"], PASSWORD);
        assert_eq!(line(&first), "Reach(Revision(5)) slot 4 write 5 n1=5");
        for (case, nodes, change, expected) in [
            (
                "the canary changes",
                "n1=5 n2=4:Synced",
                None::<fn(&mut Snapshot)>,
                "Reach(Revision(5))",
            ),
            (
                "it has changed: all nodes get what it has",
                "n1=5:Synced n2=4:Synced",
                None,
                "Reach(Revision(5)) write 5 passed n2=5",
            ),
            (
                "it failed",
                "n1=5:Failed.KubeletDown n2=4:Synced",
                None,
                "Reach(Revision(6)) write 6 n2=6",
            ),
            (
                "it never began",
                nodes,
                None,
                "Reach(Revision(6)) write 6 n1=6",
            ),
            (
                "another password",
                "n1=5 n2=4:Synced",
                Some(|it| it.sources = vec![("teams".to_owned(), found(NEXT_PASSWORD))]),
                "Reach(Revision(6)) write 6 n1=6",
            ),
            (
                "another source",
                "n1=5 n2=4:Synced",
                Some(|it| it.additional = found(PASSWORD)),
                "Reach(Revision(6)) keep 5 write 6 n1=6",
            ),
            (
                "fewer service accounts",
                "n1=5 n2=4:Synced",
                Some(|it| it.spec = spec(&json!({"matchLabels": {"team": "yes"}}), &["one"])),
                "Reach(Revision(6)) write 6 n1=6",
            ),
            (
                "no source",
                "n1=5 n2=4:Synced",
                Some(|it| it.sources = vec![("teams".to_owned(), Source::Absent)]),
                "Reach(Revision(6)) write 6 n1=6",
            ),
        ] {
            let mut next = then(&first, nodes, &["a", "b"]);
            if let Some(change) = change {
                change(&mut next);
            }
            assert_eq!(line(&next), expected, "{case}");
        }
        let passed = then(&first, "n1=5:Synced n2=4:Synced", &["a"]);
        let later = then(&passed, "n1=5:Synced n2=5:Synced", &["a", "b"]);
        let expected = "Reach(Revision(6)) slot 5 write 6 n1=6";
        assert_eq!(line(&later), expected, "the others have got it");
    }
}
