use globalps_core::api::Counts;

use super::*;
use crate::terminal::columns::columns;
use comfy_table::Color;

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().expect("a time")
}

fn row(name: &str, phase: Phase, revision: i64, reason: &str) -> Row {
    Row {
        name: name.to_owned(),
        phase,
        revision,
        reason: reason.to_owned(),
        message: "a sentence".to_owned(),
        delivery: "ConfigFile".to_owned(),
        since: "2026-01-01T00:00:00Z".to_owned(),
        restoration: None,
        since_time: "2026-01-01T00:00:00Z".parse().ok(),
    }
}

fn status() -> Status {
    Status {
        ready: false,
        about: About::Now,
        gone: 0,
        revision: 3,
        health: None,
        summary: None,
        paused: false,
        counts: Counts {
            total: 3,
            synced: 1,
            failed: 1,
            ..Counts::default()
        },
        nodes: vec![
            row("node-1", Phase::Synced, 3, ""),
            row("node-2", Phase::RolledBack, 2, "KubeletDown"),
            row("node-3", Phase::Pending, 2, ""),
        ],
        conditions: Vec::new(),
        sources: Vec::new(),
        deliveries: Vec::new(),
        namespaces: None,
        operators: None,
    }
}

#[test]
fn namespaces_and_operators_have_a_line_their_failures_are_last() {
    use globalps_core::api::{ImagePullSecretsStatus, OperatorFailure, OperatorsStatus};
    let mut status = status();
    status.nodes.clear();
    status.counts = Counts::default();
    let namespaces = ImagePullSecretsStatus {
        secret_name: "s".to_owned(),
        attach: "Admission".to_owned(),
        total: 30,
        synced: 9,
        failed: 21,
        failures: vec![globalps_core::api::NamespaceFailure {
            namespace: "a".to_owned(),
            reason: "QuotaExceeded".to_owned(),
            message: "why".to_owned(),
        }],
        ..ImagePullSecretsStatus::default()
    };
    status.namespaces = Some(NamespacesRow {
        status: namespaces,
        is_enabled: true,
    });
    assert_eq!(
        shown(&status, Layout::default()),
        "\
revision 3  not delivered to nodes
Namespaces   9 of 30 synced, 21 failed, attached by Admission

NAMESPACE   REASON          MESSAGE
a           QuotaExceeded   why
... and 20 more: see `kubectl globalps status --namespaces`
"
    );
    let live = Layout {
        width: Some(80),
        live: true,
        ..Layout::default()
    };
    assert!(!shown(&status, live).contains("QuotaExceeded"));
    status.namespaces = None;
    status.operators = Some(OperatorsRow {
        status: OperatorsStatus {
            total: 2,
            synced: 1,
            failed: 1,
            failures: vec![OperatorFailure {
                namespace: "a".to_owned(),
                name: "app".to_owned(),
                reason: "SourceMissing".to_owned(),
                message: "why".to_owned(),
            }],
            ..OperatorsStatus::default()
        },
        is_enabled: true,
    });
    assert_eq!(
        shown(&status, Layout::default()),
        "\
revision 3  not delivered to nodes
Operators    1 of 2 synced, 1 failed

NAMESPACE   SUBSCRIPTION   REASON          MESSAGE
a           app            SourceMissing   why
"
    );
}

fn shown(status: &Status, layout: Layout) -> String {
    render(status, now(), layout, None)
}

#[test]
fn a_table_has_one_line_a_node_under_one_line_for_all() {
    assert_eq!(
        shown(&status(), Layout::default()),
        "\
revision 3  1/3 nodes synced  1 failed
NODE     PHASE        REVISION   AGE   REASON
node-1   Synced       3          10m
node-2   RolledBack   2          10m   KubeletDown
node-3   Pending      2          10m
"
    );
}

/// A bar that counted synced nodes would run backwards.
#[test]
fn while_nodes_are_restored_those_count() {
    let mut status = status();
    status.about = About::Restoration;
    status.counts.failed = 0;
    status.nodes[1] = row("node-2", Phase::Restored, 0, "");
    let layout = Layout {
        width: Some(40),
        live: true,
        ..Layout::default()
    };
    let text = shown(&status, layout);
    assert!(
        text.starts_with("restoring  1/3 nodes restored\n"),
        "{text}"
    );
    status.nodes[0] = row("node-1", Phase::Restored, 0, "");
    assert!(shown(&status, layout).contains("66%"));
    // Its object is gone, and its row with it.
    status.nodes.remove(0);
    status.counts.total = 2;
    status.gone = 1;
    let text = shown(&status, layout);
    assert!(
        text.starts_with("restoring  2/3 nodes restored\n"),
        "{text}"
    );
    assert!(text.contains("66%"), "{text}");
}

/// The counts are about what was before: a bar of them would run backwards.
#[test]
fn a_change_that_the_controller_has_not_seen_is_shown() {
    let mut status = status();
    status.about = About::Before;
    let layout = Layout {
        width: Some(80),
        live: true,
        ..Layout::default()
    };
    let text = shown(&status, layout);
    let first = "revision 3  1/3 nodes synced  1 failed  a change waits for the controller\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("  33%"), "{text}");
    status.about = About::Awaited;
    let text = shown(&status, layout);
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("   0%"), "{text}");
    status.nodes.clear();
    status.counts = Counts::default();
    let first = "revision 3  a change waits for the controller";
    assert_eq!(headline(&status), first);
}

#[test]
fn the_wide_table_has_deliveries_and_sources_after_the_nodes() {
    let mut status = status();
    status.nodes.truncate(1);
    status.nodes[0].delivery = "CredentialProvider".to_owned();
    let source = |name: &str, scope: Option<&str>, delivery: &str, message: &str| SourceRow {
        name: name.to_owned(),
        valid: true,
        scope: scope.map(str::to_owned),
        delivery: delivery.to_owned(),
        message: message.to_owned(),
    };
    status.sources = vec![
        source("team-a", Some("team-a, team-a-*"), "NotDeliverable", "why"),
        source("all", None, "Nodes", ""),
    ];
    let wide = Layout {
        wide: true,
        ..Layout::default()
    };
    assert_eq!(
        shown(&status, wide),
        "\
revision 3  1/3 nodes synced  1 failed
NODE     PHASE    REVISION   AGE   DELIVERY             REASON   MESSAGE
node-1   Synced   3          10m   CredentialProvider            a sentence

SOURCE   SCOPE              DELIVERY         MESSAGE
team-a   team-a, team-a-*   NotDeliverable   why
all      every pod          Nodes
"
    );
    let bare = Layout {
        no_headers: true,
        ..Layout::default()
    };
    assert_eq!(
        shown(&status, bare),
        "\
node-1   Synced   3          10m

team-a   team-a, team-a-*   NotDeliverable   why
all      every pod          Nodes
"
    );
    let live = Layout {
        width: Some(80),
        live: true,
        ..Layout::default()
    };
    assert!(!shown(&status, live).contains("SOURCE"));
}

#[test]
fn the_live_table_has_a_bar_and_says_what_to_do() {
    let layout = Layout {
        width: Some(40),
        height: Some(24),
        live: true,
        ..Layout::default()
    };
    let advice = (
        "the rollout stopped: node-2 failed".to_owned(),
        "see `kubectl globalps status -o wide`",
    );
    assert_eq!(
        render(&status(), now(), layout, Some(&advice)),
        "\
revision 3  1/3 nodes synced  1 failed
███████████░░░░░░░░░░░░░░░░░░░░░░░░  33%
NODE     PHASE        REASON
node-1   Synced
node-2   RolledBack   KubeletDown
node-3   Pending
the rollout stopped: node-2 failed
hint: see `kubectl globalps status -o
wide`
"
    );
}

#[test]
fn without_room_for_all_the_failed_ones_are_shown() {
    let layout = Layout {
        height: Some(5),
        ..Layout::default()
    };
    let text = shown(&status(), layout);
    assert!(text.contains("node-2") && !text.contains("node-1"));
    assert!(
        text.ends_with("... and 2 more: 1 Pending, 1 Synced\n"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 4);
}

#[test]
fn a_fleet_of_thousands_fits_the_terminal() {
    let mut status = status();
    let many = (0..5000).map(|at| row(&format!("worker-{at}"), Phase::Synced, 3, ""));
    status.nodes.extend(many);
    let layout = Layout {
        width: Some(80),
        height: Some(24),
        live: true,
        color: true,
        ..Layout::default()
    };
    let advice = ("the rollout is in progress".to_owned(), "wait");
    let text = render(&status, now(), layout, Some(&advice));
    assert!(text.lines().count() < 24, "{text}");
    assert!(text.contains("node-2") && text.contains("node-3"), "{text}");
    assert!(text.contains(" Synced\n"), "{text}");
}

#[test]
fn no_line_of_a_live_table_is_wider_than_the_terminal() {
    let mut status = status();
    status.nodes[1].name = "a-node-with-a-very-long-name.of.some.example.com".to_owned();
    for width in [20, 40, 60] {
        let layout = Layout {
            width: Some(width),
            live: true,
            ..Layout::default()
        };
        for line in shown(&status, layout).lines() {
            assert!(
                line.chars().count() <= usize::from(width),
                "{width}: {line:?}"
            );
        }
    }
    let layout = Layout {
        width: Some(40),
        ..Layout::default()
    };
    assert!(
        shown(&status, layout).contains("of.some.example.com"),
        "what stays on the screen is whole"
    );
}

#[test]
fn color_is_only_where_it_was_asked_for() {
    let colored = Layout {
        color: true,
        ..Layout::default()
    };
    assert!(shown(&status(), colored).contains("\x1b["));
    assert!(!shown(&status(), Layout::default()).contains('\x1b'));
}

#[test]
fn without_a_terminal_only_changes_are_printed() {
    let before = status().nodes;
    let mut after = before.clone();
    after[2].phase = Phase::Syncing;
    after.remove(0);
    assert_eq!(
        changes(&before, &after, 3),
        ["node-3  Syncing  revision 2 -> 3", "node-1  gone"]
    );
    assert_eq!(changes(&[], &before, 3).len(), 3);
}

#[test]
fn a_change_has_its_target_revision_and_its_reasons_message() {
    for (phase, revision, wanted, reason, expected) in [
        (Phase::Syncing, 0, 1, "", "Syncing  to revision 1"),
        (Phase::Pending, 1, 2, "", "Pending  revision 1 -> 2"),
        (Phase::Synced, 2, 2, "", "Synced  revision 2"),
        (Phase::RolledBack, 1, 2, "", "RolledBack  revision 1"),
        (Phase::Restoring, 1, 0, "", "Restoring  revision 1"),
        (
            Phase::Synced,
            2,
            2,
            "ModeNarrowed",
            "Synced  revision 2  ModeNarrowed: a sentence",
        ),
    ] {
        let found = change(&row("n", phase, revision, reason), wanted);
        assert_eq!(found, expected);
    }
}

#[test]
fn a_node_has_these_fields_in_json_in_this_order() {
    assert_eq!(
        serde_json::to_string(&row("node-1", Phase::Synced, 3, "")).expect("JSON"),
        r#"{"name":"node-1","phase":"Synced","revision":3,"reason":"","message":"a sentence","since":"2026-01-01T00:00:00Z","delivery":"ConfigFile"}"#
    );
}

#[test]
fn a_phase_has_its_color_and_its_place_where_there_is_no_room_for_all() {
    let (red, green, yellow) = (Some(Color::Red), Some(Color::Green), Some(Color::Yellow));
    let cases = [
        (Phase::Synced, green),
        (Phase::Unsupported, None),
        (Phase::Restored, green),
        (Phase::Excluded, None),
        (Phase::Pending, None),
        (Phase::Unreachable, Some(Color::Magenta)),
        (Phase::Other("Unheard".into()), None),
        (Phase::Syncing, yellow),
        (Phase::Restoring, yellow),
        (Phase::Unreadable, red),
        (Phase::RolledBack, red),
        (Phase::ForeignOwner, red),
        (Phase::Failed, red),
    ];
    let mut status = status();
    let colored = Layout {
        color: true,
        no_headers: true,
        ..Layout::default()
    };
    for (phase, color) in &cases {
        status.nodes = vec![row("n", phase.clone(), 0, "")];
        let cell = columns(&["PHASE"], &[vec![phase.to_string()]], None, |_, _| *color);
        let (_, cell) = cell.split_once('\n').expect("a header and a row");
        let text = shown(&status, colored);
        let is_painted = text.contains('\x1b');
        assert!(text.contains(cell), "{phase}: {text:?}");
        assert_eq!(is_painted, color.is_some(), "{phase}: {text:?}");
    }
    status.nodes = cases.map(|(phase, _)| row("n", phase, 0, "")).into();
    let low = Layout {
        height: Some(5),
        ..Layout::default()
    };
    assert_eq!(
        shown(&status, low),
        "\
revision 3  1/3 nodes synced  1 failed
NODE   PHASE        REVISION   AGE   REASON
n      Unreadable   0          10m
... and 12 more: 1 Failed, 1 ForeignOwner, 1 RolledBack, 1 Restoring, 1 Syncing, 1 Unheard, 1 Unreachable, 1 Pending, 1 Excluded, 1 Restored, 1 Synced, 1 Unsupported
"
    );
}

#[test]
fn the_headline_names_the_nodes_that_need_a_look() {
    let mut status = status();
    status.counts.unreachable = 2;
    status.counts.unsupported = 1;
    status.paused = true;
    assert_eq!(
        headline(&status),
        "revision 3  1/3 nodes synced  1 failed  2 unreachable  1 unsupported  paused"
    );
}
