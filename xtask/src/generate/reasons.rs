//! The parts of the pages that list reasons, from the catalogue.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use globalps_core::api::condition;
use globalps_core::reasons::{
    CLUSTER_EVENTS, CLUSTERS, CONDITIONS, EVENTS, FLEETS, NAMESPACES, NODE_SECTIONS, NODES,
    OPERATORS, PULL_SECRET, ROLLOUT, Row, SECRETS, Severity, UNSUPPORTED, WRITES,
};

pub const PAGES: [&str; 3] = [
    "docs/many-clusters.md",
    "docs/operations.md",
    "docs/troubleshooting.md",
];

/// Between `<!-- reasons: NAME -->` and `<!-- end -->`.
const BEGIN: &str = "<!-- reasons: ";
const END: &str = "<!-- end -->\n";

/// The page with its lists as the catalogue has them.
pub fn page(page: &str) -> Result<String> {
    let mut parts = page.split(BEGIN);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part
            .split_once(" -->\n")
            .context("a list of reasons has no name")?;
        let (_, after) = rest
            .split_once(END)
            .with_context(|| format!("the list `{name}` has no end"))?;
        let _ = write!(text, "{BEGIN}{name} -->\n{}{END}{after}", list(name)?);
    }
    Ok(text)
}

fn list(name: &str) -> Result<String> {
    let of = |type_: &str| {
        let rows = CONDITIONS.concat();
        rows.into_iter()
            .filter(|row| row.of == type_)
            .collect::<Vec<_>>()
    };
    // Without the reasons that are not failures.
    let failed = |rows: &[Row]| {
        let is_fine = |row: &&Row| row.finding.is_some_and(|it| it.severity == Severity::Info);
        rows.iter()
            .filter(|row| !is_fine(row))
            .copied()
            .collect::<Vec<_>>()
    };
    Ok(match name {
        "nodes" => table("phase | reason | meaning | section", NODES),
        "node-sections" => sections(NODE_SECTIONS),
        "unsupported" => table("phase | reason | meaning", UNSUPPORTED),
        "rollout" => table(
            "condition | reason | meaning | section",
            &[ROLLOUT, SECRETS].concat(),
        ),
        "expiring" => table(
            "status | reason | meaning",
            &of(condition::CREDENTIALS_EXPIRING),
        ),
        "rejected" => table(
            "status | reason | meaning",
            &of(condition::CREDENTIALS_REJECTED),
        ),
        "forgotten" => table("status | reason | meaning", &of(condition::OLD_FORGOTTEN)),
        "namespaces" => table("reason | meaning", &failed(NAMESPACES)),
        "operators" => table("reason | meaning", &failed(OPERATORS)),
        "pull-secret" => table("reason | meaning", &failed(PULL_SECRET)),
        "writes" => table("reason | meaning", WRITES),
        "events" => table("event | reason | meaning | see", EVENTS),
        "clusters" => table("phase | reason | meaning", CLUSTERS),
        "fleets" => table("condition | reason | meaning", FLEETS),
        "cluster-events" => table("event | reason | meaning", CLUSTER_EVENTS),
        _ => bail!("no list of reasons is `{name}`"),
    })
}

fn sections(sections: &[(&str, &str)]) -> String {
    let one = |(name, text): &(&str, &str)| format!("## {name}\n\n{text}\n");
    let all: Vec<String> = sections.iter().map(one).collect();
    all.join("\n")
}

/// `head`: the columns that the table has.
fn table(head: &str, rows: &[Row]) -> String {
    let columns: Vec<&str> = head.split(" | ").collect();
    let mut text = format!("| {head} |\n|{}\n", "---|".repeat(columns.len()));
    for row in rows {
        let cells = columns.iter().map(|column| cell(column, row));
        let _ = writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

fn cell(column: &str, row: &Row) -> String {
    match column {
        "reason" => format!("`{}`", row.reason),
        "meaning" => row.meaning.to_owned(),
        "status" => format!("`{}`", row.status),
        "condition" if row.status.is_empty() => "a cluster in `failures`".to_owned(),
        "condition" => format!("`{}` is `{}`", row.of, row.status),
        "section" | "see" => {
            let page = if column == "see" {
                "troubleshooting.md"
            } else {
                ""
            };
            let link = |section| format!("[{section}]({page}#{section})");
            row.section().map_or(String::new(), link)
        }
        _ => format!("`{}`", row.of.replace(", ", "`, `")),
    }
}
