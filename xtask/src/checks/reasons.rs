//! Only the catalogue defines reasons: the programs' sources contain no code of a reason, each reason has a writer, and
//! the guide has each section that the catalogue refers to.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use globalps_core::reasons::{Reason, Row, TABLES, Writer};
use globalps_testkit::kubernetes::workspace;

use super::links::anchors;

const GUIDE: &str = "docs/troubleshooting.md";

/// Literals that are codes of the catalogue and mean something else: phases and states, types of conditions, answers of the API
/// server, the state of a pod, words in the texts of errors.
const OTHERS: [&str; 11] = [
    "controller/src/objects/pods.rs",
    "controller/src/remote/unreachable.rs",
    "crates/core/src/api/cluster.rs",
    "crates/core/src/api/condition.rs",
    "crates/core/src/api/fleet.rs",
    "crates/core/src/api/node_pull_secret.rs",
    "crates/core/src/api/source.rs",
    "crates/manifests/src/policy.rs",
    "kubectl-globalps/src/cluster/client.rs",
    "kubectl-globalps/src/view/namespaces.rs",
    "syncer/src/node/file.rs",
];

/// Sections of alerts that are about no reason.
const OF_ALERTS: [&str; 4] = ["api", "controller", "lease", "restarts-often"];

/// The sources below a directory, relative to the repository, each without its unit tests.
fn sources(directory: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(workspace().join(directory)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = format!("{directory}/{name}");
        let is_test = ["tests", "testing", "properties", "fake_", "examples.rs"]
            .iter()
            .any(|it| name.contains(it));
        if is_test {
            continue;
        }
        if workspace().join(&path).is_dir() {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(workspace().join(&path)).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next();
            found.push((path.into(), code.unwrap_or_default().to_owned()));
        }
    }
    found
}

/// Whether the code names the reason, and not one that begins with its name.
fn names(code: &str, reason: Reason) -> bool {
    let path = format!("Reason::{reason}");
    let mut ends = code
        .match_indices(&path)
        .map(|(at, _)| &code[at + path.len()..]);
    ends.any(|rest| !rest.starts_with(|it: char| it.is_alphanumeric()))
}

#[test]
fn each_reason_is_in_the_catalogue_and_nowhere_else() {
    let mut found = Vec::new();
    for directory in [
        "controller/src",
        "crates/core/src",
        "crates/manifests/src",
        "crates/planner/src",
        "crates/registry/src",
        "kubectl-globalps/src",
        "syncer/src",
    ] {
        for (path, code) in sources(directory) {
            let is_catalogue = path.starts_with("crates/core/src/reasons");
            if is_catalogue || OTHERS.iter().any(|it| path == Path::new(it)) {
                continue;
            }
            let literals = code.split('"').skip(1).step_by(2);
            let reasons = literals.filter(|it| Reason::parse(it).is_some());
            found.extend(reasons.map(|it| format!("{}: \"{it}\"", path.display())));
        }
    }
    assert_eq!(
        found,
        Vec::<String>::new(),
        "use `globalps_core::reasons::Reason`"
    );
    let rows: BTreeSet<Reason> = TABLES
        .iter()
        .flat_map(|(_, rows)| rows.iter().map(|row| row.reason))
        .collect();
    let all: BTreeSet<Reason> = Reason::ALL.iter().copied().collect();
    assert_eq!(rows, all);
}

#[test]
fn each_reason_has_a_writer() {
    let code = |directories: &[&str]| -> String {
        let sources = directories.iter().flat_map(|it| sources(it));
        sources.map(|(_, code)| code).collect()
    };
    let hub = [
        "controller/src/hub",
        "crates/planner/src/clusters",
        "controller/src/remote",
    ];
    let shared = [
        "controller/src/report",
        "crates/planner/src/refused",
        "controller/src/objects",
    ];
    for (writer, rows) in TABLES {
        let code = match writer {
            Writer::Syncer => code(&["syncer/src"]),
            Writer::Controller => code(&["controller/src", "crates/planner/src"]),
            Writer::Hub => code(&[hub, shared].concat()),
            Writer::Plugin => code(&["kubectl-globalps/src"]),
        };
        for row in rows {
            let reason = row.reason;
            assert!(
                names(&code, reason),
                "{writer:?} never writes `{reason}` of {}",
                row.of
            );
        }
    }
}

#[test]
fn each_section_of_a_reason_and_of_an_alert_is_in_the_guide() {
    let guide = anchors(&fs::read_to_string(workspace().join(GUIDE)).unwrap());
    let rows = TABLES.iter().flat_map(|(_, rows)| rows.iter());
    let sections: BTreeSet<&str> = rows.filter_map(Row::section).collect();
    for section in &sections {
        assert!(
            guide.contains(*section),
            "{GUIDE} has no section `{section}`"
        );
    }
    let alerts = workspace().join("manifests/monitoring/alerts.yaml");
    let alerts = fs::read_to_string(alerts).unwrap();
    let urls = alerts.lines().filter(|line| line.contains("runbook_url: "));
    let mut number = 0;
    for url in urls {
        let (_, section) = url.split_once("troubleshooting.md#").unwrap_or_default();
        assert!(guide.contains(section), "{GUIDE} has no section for {url}");
        let is_known = sections.contains(section) || OF_ALERTS.contains(&section);
        assert!(is_known, "no reason has the section of {url}");
        number += 1;
    }
    assert!(number > 15, "{number}");
}

#[test]
fn a_reason_is_named_by_its_whole_name() {
    for (code, expected) in [
        ("Reason::Held", true),
        ("(Reason::Held, x)", true),
        ("Reason::HeldBack", false),
        ("Held", false),
    ] {
        assert_eq!(names(code, Reason::Held), expected, "{code}");
    }
}
