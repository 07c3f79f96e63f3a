//! The conditions of the status. Pure.

use globalps_core::api::{DeliveryType, condition};
use globalps_core::names::{ADDITIONAL_SECRET, SECRET_TYPE};
use globalps_core::reasons::Reason;
use globalps_core::rollout::{self, Goal, Member};
use globalps_core::state::{NO_NODE_SELECTED, NODES_NOT_SERVED, sources_removed};
use globalps_planner::content::source::Verdict;
use globalps_planner::namespaces::report::NamespacesReport;
use globalps_planner::nodes::absence::Absence;
use globalps_planner::nodes::input::Snapshot;
use globalps_planner::nodes::plan::{Aim, Hold, Plan};
use globalps_planner::nodes::provider_paths::{Deviation, reports_provider};
use globalps_planner::openshift::report::PullSecretReport;

use super::counts::{
    NodeCounts, failures, not_restored, restoring, revision as revision_of, rolling_out,
};
use super::deliveries::{namespaces_synced, pull_secret_synced};
use super::sources::first_bad;
use super::statement::{
    MAY_NOT_READ, NAMED, Statement, WAITS_FOR_PODS, first, list, sentences, statement,
    waits_for_canary,
};

const ROLLED_BACK_HINT: &str =
    "the previous additional Secret stays in force until you change this one";

const ALL_RESTORED: &str = "all nodes are restored; removing the syncers and the other objects";

fn is_invalid(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Invalid(_))
}

fn is_halted(snapshot: &Snapshot, counts: &NodeCounts, members: &[Member]) -> bool {
    rollout::is_halted(counts.halting, &snapshot.config.spec.rollout, members.len())
}

pub(super) fn hold(hold: Hold, snapshot: &Snapshot) -> String {
    match hold {
        Hold::ConfigMissing => {
            "the GlobalPullSecret was deleted; the current credentials stay in force until it is recreated"
        }
        Hold::ConfigUnreadable => {
            let reason = snapshot.config.unreadable.as_deref().unwrap_or_default();
            return format!(
                "the GlobalPullSecret can't be read: {reason}; the current credentials stay in force until you correct it"
            );
        }
        Hold::SourcesRemoved => {
            let Absence::OnlyUnnamed(names) = snapshot.absence() else {
                return String::new();
            };
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            return sources_removed(&list(&names, NAMED));
        }
        Hold::NoNodeSelected => NO_NODE_SELECTED,
        Hold::NodesNotServed => NODES_NOT_SERVED,
        Hold::NoValidContent => {
            "no pull secret is valid; the current credentials stay in force. To remove them, delete the pull secrets"
        }
    }
    .to_owned()
}

/// Reason of the conditions while nothing changes.
fn hold_reason(hold: Hold) -> Reason {
    if hold == Hold::ConfigUnreadable {
        Reason::Unreadable
    } else {
        Reason::Held
    }
}

pub(super) fn ready(
    snapshot: &Snapshot,
    plan: &Plan,
    counts: &NodeCounts,
    namespaces: Option<&NamespacesReport>,
    pull_secret: Option<&PullSecretReport>,
) -> Statement {
    let no = |reason, message| statement(condition::READY, "False", reason, message);
    let status = counts.status;
    if let Aim::Hold(reason) = plan.aim
        && (reason == Hold::ConfigUnreadable || !is_invalid(&plan.resolved.additional))
    {
        return no(hold_reason(reason), hold(reason, snapshot));
    }
    let (Aim::Reach(Goal::Revision(_)) | Aim::Hold(_)) = plan.aim else {
        return match (&plan.resolved.additional, plan.aim) {
            (Verdict::Invalid(findings), Aim::Nothing) => {
                no(Reason::AdditionalInvalid, sentences(findings))
            }
            (_, Aim::Nothing) => {
                let mut message = format!("Secret `{ADDITIONAL_SECRET}` does not exist");
                if let Some((_, _, reason)) = first_bad(&plan.resolved.sources) {
                    message = format!("{message}, and no source is valid: {reason}");
                }
                no(Reason::NoAdditional, message)
            }
            (_, Aim::CleanUp) => no(Reason::Restoring, ALL_RESTORED.to_owned()),
            _ => no(Reason::Restoring, restoring(counts)),
        };
    };
    let is_without_nodes = snapshot.config.spec.kubelet.delivery == DeliveryType::None;
    let revision = revision_of(snapshot, plan).number;
    if let Verdict::Invalid(findings) = &plan.resolved.additional {
        let message = format!(
            "revision {revision} stays in force: {}",
            sentences(findings)
        );
        return no(Reason::AdditionalInvalid, message);
    }
    if let Verdict::RolledBack(reason) = &plan.resolved.additional {
        return no(Reason::RolledBack, format!("{reason}; {ROLLED_BACK_HINT}"));
    }
    if let Some(pull_secret) = pull_secret.map(pull_secret_synced)
        && pull_secret.status != "True"
    {
        return no(pull_secret.reason, pull_secret.message);
    }
    if !counts.failed.is_empty() {
        return no(Reason::NodesFailed, failures(snapshot, &counts.failed));
    }
    let is_unreadable = |name: &&String| snapshot.nodes.unreadable.contains_key(*name);
    let unreadable: Vec<String> = counts
        .blocked
        .iter()
        .filter(is_unreadable)
        .cloned()
        .collect();
    if !unreadable.is_empty() {
        return no(Reason::Unreadable, failures(snapshot, &unreadable));
    }
    if !counts.blocked.is_empty() {
        return no(Reason::NodesBlocked, failures(snapshot, &counts.blocked));
    }
    if let Aim::Reach(Goal::Revision(next)) = plan.aim
        && next.number != revision
    {
        let message = format!("revision {} is not written yet", next.number);
        return no(Reason::RollingOut, message);
    }
    if snapshot.config.deviation == Deviation::WaitsForPods {
        return no(Reason::WaitingForSyncers, WAITS_FOR_PODS.to_owned());
    }
    if counts.waiting + status.progressing > 0 {
        return no(Reason::RollingOut, rolling_out(revision, counts));
    }
    if let Some(namespaces) = namespaces.map(namespaces_synced)
        && (namespaces.reason == Reason::RollingOut
            || is_without_nodes && namespaces.status != "True")
    {
        return no(namespaces.reason, namespaces.message);
    }
    if is_without_nodes {
        return match namespaces.map(namespaces_synced) {
            Some(namespaces) => statement(condition::READY, "True", Reason::Synced, namespaces.message),
            None => no(
                Reason::NoDelivery,
                "nothing delivers: `spec.kubelet.delivery` is `None` and `spec.imagePullSecrets.enabled` is false"
                    .to_owned(),
            ),
        };
    }
    in_force(revision, counts)
}

/// How many nodes have the revision, and which ones nobody waits for.
fn in_force(revision: i64, counts: &NodeCounts) -> Statement {
    let status = counts.status;
    let mut message = format!(
        "revision {revision} is in force on {} of {} nodes",
        status.synced, status.total
    );
    if !counts.unreachable.is_empty() {
        message = format!(
            "{message}; NotReady or with an unresponsive syncer: {}",
            list(&counts.unreachable, NAMED)
        );
    }
    if !counts.aside.is_empty() {
        message = format!("{message}; being updated: {}", list(&counts.aside, NAMED));
    }
    if status.synced == 0 {
        let reason = if counts.aside.is_empty() {
            Reason::NoNodes
        } else {
            Reason::NodesUpdating
        };
        return statement(condition::READY, "False", reason, message);
    }
    statement(condition::READY, "True", Reason::Synced, message)
}

pub(super) fn progressing(
    snapshot: &Snapshot,
    plan: &Plan,
    counts: &NodeCounts,
    members: &[Member],
) -> Statement {
    let open = counts.waiting + counts.status.progressing;
    let (status, reason, message) = match plan.aim {
        Aim::Nothing => ("False", Reason::NothingToDo, String::new()),
        Aim::CleanUp => ("True", Reason::CleaningUp, ALL_RESTORED.to_owned()),
        Aim::Reach(_) if open == 0 => ("False", Reason::Complete, String::new()),
        Aim::Reach(_) if snapshot.config.spec.rollout.paused => (
            "False",
            Reason::Paused,
            "`spec.rollout.paused` is true".to_owned(),
        ),
        Aim::Hold(reason) => ("False", hold_reason(reason), hold(reason, snapshot)),
        Aim::Reach(_) if is_halted(snapshot, counts, members) => {
            ("False", Reason::Halted, failures(snapshot, &counts.failed))
        }
        Aim::Reach(goal) if waits_for_syncers(members, goal) => (
            "True",
            Reason::SyncersRolling,
            "the nodes that wait get the revision once their syncers' pods are replaced".to_owned(),
        ),
        Aim::Reach(goal @ Goal::Revision(_))
            if !plan.canary_passed
                && let Some(stuck) =
                    rollout::stuck_canaries(members, goal, &snapshot.config.spec.rollout) =>
        {
            waits_for_canary(&stuck, "no node matches `spec.rollout.canary.nodeSelector`")
        }
        Aim::Reach(Goal::Revision(revision)) => (
            "True",
            Reason::RollingOut,
            rolling_out(revision.number, counts),
        ),
        Aim::Reach(Goal::Restore) => ("True", Reason::Restoring, restoring(counts)),
    };
    statement(condition::PROGRESSING, status, reason, message)
}

/// Whether only nodes are left whose syncers are about to be replaced.
fn waits_for_syncers(members: &[Member], goal: Goal) -> bool {
    let mut open = members
        .iter()
        .filter(|member| member.goal == goal && !member.is_done() && !member.is_passed_over())
        .peekable();
    open.peek().is_some() && open.all(|member| member.awaits_agent)
}

pub(super) fn degraded(
    snapshot: &Snapshot,
    plan: &Plan,
    counts: &NodeCounts,
    members: &[Member],
) -> Statement {
    let yes = |reason, message| statement(condition::DEGRADED, "True", reason, message);
    if !counts.failed.is_empty() {
        let reason = if is_halted(snapshot, counts, members) {
            Reason::RolloutHalted
        } else {
            Reason::NodesFailed
        };
        return yes(reason, failures(snapshot, &counts.failed));
    }
    if !snapshot.unreadable_objects.is_empty() {
        let named = snapshot.unreadable_objects.iter().cloned();
        return yes(Reason::Unreadable, first(named, NAMED));
    }
    if !counts.blocked.is_empty() {
        return yes(Reason::NodesBlocked, failures(snapshot, &counts.blocked));
    }
    if !counts.not_restored.is_empty() {
        let message = not_restored(snapshot, counts, members.len());
        return yes(Reason::NodesNotRestored, message);
    }
    if let Aim::Hold(reason) = plan.aim {
        return yes(hold_reason(reason), hold(reason, snapshot));
    }
    if let Some(path) = snapshot.other_config_file() {
        let message = format!(
            "nodes use `{path}`, but `spec.kubelet.configFile` differs: it takes effect after all nodes are restored"
        );
        return yes(Reason::ConfigFileDiffers, message);
    }
    if snapshot.config.deviation == Deviation::Keeps {
        return yes(Reason::ProviderPathsDiffer, keeps(snapshot));
    }
    if let Verdict::RolledBack(reason) = &plan.resolved.additional {
        let message = format!("{reason}; {ROLLED_BACK_HINT}");
        return statement(condition::DEGRADED, "True", Reason::RolledBack, message);
    }
    match &plan.resolved.original {
        Verdict::Unreadable(reason) => statement(
            condition::DEGRADED,
            "True",
            Reason::OriginalUnreadable,
            format!("original pull secret: {reason}"),
        ),
        _ if let Some((_, reason, message)) = first_bad(&plan.resolved.sources) => {
            statement(condition::DEGRADED, "True", reason, message)
        }
        _ => statement(
            condition::DEGRADED,
            "False",
            Reason::AsExpected,
            String::new(),
        ),
    }
}

/// The message names these nodes: one that stays unreachable, or that lies, would block all others.
fn keeps(snapshot: &Snapshot) -> String {
    let kubelet = &snapshot.config.spec.kubelet;
    let paths = kubelet.credential_provider.as_ref().map_or_else(
        || "with flags in kubeadm's file".to_owned(),
        |paths| format!("in `{}` and `{}`", paths.config_path, paths.bin_dir),
    );
    let what = format!(
        "nodes have the credential provider {paths}, but `spec.kubelet.credentialProvider` differs"
    );
    if kubelet.delivery == DeliveryType::CredentialProvider {
        return format!(
            "{what}: to apply it, set `delivery` to `ConfigFile` until every node uses that"
        );
    }
    let objects = snapshot.nodes.objects.iter();
    let with_provider = objects.filter(|(_, object)| reports_provider(object));
    let names: Vec<String> = with_provider.map(|(name, _)| name.clone()).collect();
    format!(
        "{what}: it takes effect once these nodes use the credentials file again or are deleted: {}",
        list(&names, NAMED)
    )
}

pub(super) fn additional_valid(verdict: &Verdict, snapshot: &Snapshot) -> Statement {
    let new =
        |status, reason, message| statement(condition::ADDITIONAL_VALID, status, reason, message);
    match verdict {
        Verdict::Absent => new(
            "Unknown",
            Reason::Absent,
            format!("Secret `{ADDITIONAL_SECRET}` does not exist"),
        ),
        Verdict::Valid(findings) => {
            let warnings = [type_warning(snapshot), sentences(findings)];
            let warnings = warnings.into_iter().filter(|text| !text.is_empty());
            new(
                "True",
                Reason::Valid,
                warnings.collect::<Vec<_>>().join("; "),
            )
        }
        Verdict::RolledBack(reason) => new("True", Reason::RolledBack, reason.clone()),
        Verdict::Unreadable(reason) => new("False", Reason::Unreadable, reason.clone()),
        Verdict::Forbidden => new("False", Reason::Forbidden, MAY_NOT_READ.to_owned()),
        Verdict::Invalid(findings) | Verdict::Partly(findings) => {
            let stays = if snapshot.recorded.global.is_some() {
                "; the last valid one stays in force"
            } else {
                ""
            };
            new(
                "False",
                Reason::Invalid,
                format!("{}{stays}", sentences(findings)),
            )
        }
    }
}

pub(super) fn original_valid(verdict: &Verdict) -> Statement {
    let new =
        |status, reason, message| statement(condition::ORIGINAL_VALID, status, reason, message);
    match verdict {
        Verdict::Absent => new(
            "True",
            Reason::NodeFile,
            "no original pull secret: each node's own file is the base".to_owned(),
        ),
        Verdict::RolledBack(_) => new("True", Reason::Valid, String::new()),
        Verdict::Valid(findings) => new("True", Reason::Valid, sentences(findings)),
        Verdict::Unreadable(reason) => new("False", Reason::Unreadable, reason.clone()),
        Verdict::Forbidden => new("False", Reason::Forbidden, MAY_NOT_READ.to_owned()),
        Verdict::Partly(findings) => new(
            "False",
            Reason::BadEntries,
            format!("entries omitted: {}", sentences(findings)),
        ),
        Verdict::Invalid(findings) => new("False", Reason::Invalid, sentences(findings)),
    }
}

/// Other types work, but the API server does not validate their content.
fn type_warning(snapshot: &Snapshot) -> String {
    match snapshot.secrets.additional_type.as_deref() {
        None | Some(SECRET_TYPE) => String::new(),
        Some(other) => format!("its type is `{other}` instead of the usual `{SECRET_TYPE}`"),
    }
}

#[cfg(test)]
mod tests {
    use globalps_core::names::MACHINE_CONFIG_UPDATE;
    use globalps_planner::content::secret::Global;
    use globalps_planner::content::source::{Data, Source};
    use globalps_planner::nodes::plan::plan;
    use globalps_planner::nodes::testing::{global, snapshot};

    use jiff::SignedDuration;

    use super::*;
    use crate::report::counts::count;

    const CONTENT: &str = r#"{"auths":{"a.example.com":{"auth":"dTpw"}}}"#;

    #[test]
    fn without_delivery_to_nodes_what_is_held_is_not_said_of_nodes() {
        let bad = Data(Some("{".into()));
        let before = || {
            let mut before = global(5, CONTENT);
            before.last_additional = Some(bad.clone());
            before.config_file = None;
            before
        };
        let unreadable = || Source::Unreadable("away".to_owned());
        let mut of_source = snapshot(Source::Absent, Some(before()), "");
        of_source.secrets.sources = vec![("team".to_owned(), unreadable())];
        let mut of_config = snapshot(Source::Absent, Some(before()), "");
        of_config.config.unreadable = Some("spec.verify: bad".to_owned());
        let mut unnamed = snapshot(Source::Absent, Some(before()), "");
        unnamed.secrets.unnamed_sources = vec![("team".to_owned(), unreadable())];
        for (mut snapshot, expected) in [
            (of_source, Hold::NoValidContent),
            (of_config, Hold::ConfigUnreadable),
            (unnamed, Hold::SourcesRemoved),
        ] {
            snapshot.config.spec.kubelet.delivery = DeliveryType::None;
            let plan = plan(&snapshot);
            assert_eq!(plan.aim, Aim::Hold(expected));
            let counts = count(&plan.members, Goal::Restore);
            for found in [
                super::ready(&snapshot, &plan, &counts, None, None),
                super::progressing(&snapshot, &plan, &counts, &plan.members),
                super::degraded(&snapshot, &plan, &counts, &plan.members),
            ] {
                assert!(
                    found.message.contains("stay in force") && !found.message.contains("node"),
                    "{}: {}",
                    found.type_,
                    found.message
                );
            }
        }
    }

    #[test]
    fn a_rollout_says_for_which_canary_it_waits() {
        for (case, canaries, nodes, expected) in [
            (
                "one can go",
                "ab",
                "a=4:Synced b=4:Synced c=4:Synced",
                "True RollingOut",
            ),
            (
                "one is done, the other is not ready",
                "ab",
                "a=5:Synced !b=4:Synced c=4:Synced",
                "True WaitingForCanary no canary can change now: b",
            ),
            (
                "one is done, the other is foreign",
                "ab",
                "a=5:Synced %b=4:Synced c=4:Synced",
                "True RollingOut",
            ),
            (
                "the only one is foreign",
                "b",
                "a=4:Synced %b=4:Synced",
                "True WaitingForCanary no canary can change now: b",
            ),
            (
                "none matches",
                "",
                "a=4:Synced b=4:Synced",
                "False NoCanary no node matches `spec.rollout.canary.nodeSelector`",
            ),
        ] {
            let before = Global {
                canary_passed: false,
                rolled_out: None,
                ..global(5, CONTENT)
            };
            let keep = Source::Found(Data(Some(CONTENT.into())));
            let mut snapshot = snapshot(keep, Some(before), nodes);
            let canary = &mut snapshot.config.spec.rollout.canary;
            canary.nodes = 2;
            canary.node_selector = [("canary".to_owned(), "yes".to_owned())].into();
            for (name, node) in snapshot.nodes.views.to_mut() {
                let is_canary = if canaries.contains(&**name) {
                    "yes"
                } else {
                    "no"
                };
                let labels = [("kubernetes.io/os", "linux"), ("canary", is_canary)];
                let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
                node.labels = (&std::collections::BTreeMap::from(labels)).into();
            }
            let plan = plan(&snapshot);
            let Aim::Reach(goal) = plan.aim else {
                unreachable!("{case}: {:?}", plan.aim);
            };
            let counts = count(&plan.members, goal);
            let found = super::progressing(&snapshot, &plan, &counts, &plan.members);
            let found = format!("{} {} {}", found.status, found.reason, found.message);
            assert!(found.starts_with(expected), "{case}: {found}");
        }
    }

    #[test]
    fn a_node_that_is_updated_is_named_and_is_no_error() {
        let ready =
            |of: &str| format!("True Synced revision 5 is in force on {of}; being updated: b");
        let complete = "False Complete ";
        let well = "False AsExpected ";
        let late = "b: SteppedAside: its update has lasted for more than an hour: ";
        for (nodes, updated, minutes, expected) in [
            (
                "a=5:Synced b=5:Synced",
                &["b"][..],
                0,
                [&ready("1 of 2 nodes"), complete, well],
            ),
            (
                "a=5:Synced b=5:SteppedAside",
                &["b"],
                59,
                [&ready("1 of 2 nodes"), complete, well],
            ),
            (
                "a=5:Synced b=5:SteppedAside",
                &["b"],
                60,
                [
                    &format!("False NodesBlocked {late}"),
                    complete,
                    &format!("True NodesBlocked {late}"),
                ],
            ),
            (
                "a=5:SteppedAside b=5:SteppedAside",
                &["a", "b"],
                0,
                [
                    "False NodesUpdating revision 5 is in force on 0 of 2 nodes; being updated: a, b",
                    complete,
                    well,
                ],
            ),
        ] {
            let keep = Source::Found(Data(Some(CONTENT.into())));
            let mut snapshot = snapshot(keep, Some(global(5, CONTENT)), nodes);
            for name in updated {
                let view = snapshot
                    .nodes
                    .views
                    .to_mut()
                    .get_mut(*name)
                    .expect("a node");
                view.file_owner = MACHINE_CONFIG_UPDATE;
                let object = snapshot
                    .nodes
                    .objects
                    .to_mut()
                    .get_mut(*name)
                    .expect("an object");
                MACHINE_CONFIG_UPDATE.clone_into(&mut object.spec.foreign_owner);
            }
            let objects = snapshot.nodes.objects.values().map(|object| &**object);
            let views = snapshot.nodes.views.values().map(|view| &**view);
            let since = snapshot.clock.uptime - SignedDuration::from_mins(minutes);
            let leader = snapshot.clock.leader.to_mut();
            leader.observe(objects, views, since);
            let plan = plan(&snapshot);
            let Aim::Reach(goal) = plan.aim else {
                unreachable!("{:?}", plan.aim);
            };
            let counts = count(&plan.members, goal);
            let found = [
                super::ready(&snapshot, &plan, &counts, None, None),
                super::progressing(&snapshot, &plan, &counts, &plan.members),
                super::degraded(&snapshot, &plan, &counts, &plan.members),
            ];
            let found = found.map(|it| format!("{} {} {}", it.status, it.reason, it.message));
            assert_eq!(found, expected, "{nodes} {minutes}");
        }
    }

    #[test]
    fn nodes_that_cannot_be_restored_are_named_and_others_go_on() {
        let restore = Source::Absent;
        let keep = || Source::Found(Data(Some(CONTENT.into())));
        for (case, additional, nodes, progressing, degraded) in [
            (
                "the others are restored",
                restore.clone(),
                "a=R:RolledBack b=5:Synced",
                "Restoring",
                "NodesBlocked a: RolledBack: ",
            ),
            (
                "nothing else is left",
                restore.clone(),
                "a=R:RolledBack b=R:Restored c=R:Failed.DiskFull",
                "Complete",
                "NodesBlocked a: RolledBack: ; c: Failed: ",
            ),
            (
                "a kubelet is left down",
                restore,
                "a=R:Failed.KubeletDown b=5:Synced",
                "Halted",
                "RolloutHalted a: Failed: ",
            ),
            (
                "a deselected node refuses",
                keep(),
                "-a=R:RolledBack b=5:Synced c=4:Synced",
                "RollingOut",
                "NodesNotRestored not selected any more, but not restored: a: RolledBack: ",
            ),
            (
                "its kubelet is left down",
                keep(),
                "-a=R:Failed.KubeletDown b=5:Synced",
                "Complete",
                "NodesNotRestored not selected any more, but not restored: a: Failed: ; no further node is restored until \
                 `kubectl globalps retry`",
            ),
            (
                "a deselected node is restored",
                keep(),
                "-a=R:Restored b=5:Synced",
                "Complete",
                "AsExpected ",
            ),
        ] {
            let snapshot = snapshot(additional, Some(global(5, CONTENT)), nodes);
            let plan = plan(&snapshot);
            let Aim::Reach(goal) = plan.aim else {
                unreachable!("{case}: {:?}", plan.aim);
            };
            let counts = count(&plan.members, goal);
            let found = super::progressing(&snapshot, &plan, &counts, &plan.members);
            assert_eq!(found.reason.as_str(), progressing, "{case}");
            let found = super::degraded(&snapshot, &plan, &counts, &plan.members);
            let found = format!("{} {}", found.reason, found.message);
            assert_eq!(found, degraded, "{case}");
        }
    }
}
