//! `check --explain`: prints the guide's section about a reason, without a network.

use std::collections::BTreeSet;

use globalps_core::reasons::{Row, TABLES};

use crate::error::{Exit, Failure, Result};
use crate::terminal::printer::Printer;

/// The page as of this build.
const GUIDE: &str = include_str!("../../../../docs/troubleshooting.md");

pub(crate) fn run(reason: &str, printer: &Printer) -> Result<Exit> {
    let found = sections(GUIDE, reason);
    if found.is_empty() {
        return Err(Failure::new(
            format!("the guide has no section about `{reason}`"),
            format!(
                "name a reason as conditions, events, `status` and `check` print it, for example `RolloutHalted`; the sections are {}",
                titles(GUIDE).join(", ")
            ),
        ));
    }
    let text = found.join("\n\n");
    // Comments mark generated or tested parts of the page.
    let lines = text.lines().filter(|line| !line.starts_with("<!-- "));
    printer.data(&lines.collect::<Vec<_>>().join("\n"));
    Ok(Exit::Done)
}

fn all(guide: &str) -> impl Iterator<Item = &str> {
    guide.split("\n## ").skip(1)
}

fn title(section: &str) -> &str {
    section.lines().next().unwrap_or_default()
}

fn titles(guide: &str) -> Vec<&str> {
    all(guide)
        .map(title)
        .filter(|it| !it.contains(' '))
        .collect()
}

/// The section with this title, or those that the catalogue refers to, or those that mention the reason.
fn sections<'a>(guide: &'a str, reason: &str) -> Vec<&'a str> {
    let plain = |text: &str| {
        let letters = text.chars().filter(char::is_ascii_alphanumeric);
        letters.collect::<String>().to_lowercase()
    };
    // An alert's name is the project's name followed by the reason.
    let of_alert = reason.strip_prefix("Globalps").unwrap_or(reason);
    let of_node = format!("node{}", plain(of_alert));
    let wanted = [plain(reason), plain(of_alert), of_node];
    let named = all(guide).find(|section| wanted.contains(&plain(title(section))));
    if let Some(section) = named {
        return vec![section.trim_end()];
    }
    let rows = TABLES.iter().flat_map(|(_, rows)| rows.iter());
    let rows = rows.filter(|row| wanted.contains(&plain(row.reason.as_str())));
    let of_rows: BTreeSet<&str> = rows.filter_map(Row::section).collect();
    if !of_rows.is_empty() {
        let of_rows = all(guide).filter(|section| of_rows.contains(title(section)));
        return of_rows.map(str::trim_end).collect();
    }
    let quoted = format!("`{of_alert}`");
    let mentions = all(guide).filter(|section| section.contains(&quoted));
    mentions.map(str::trim_end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_leads_to_its_section() {
        for reason in ["rollout-halted", "RolloutHalted", "rollouthalted"] {
            let found = sections(GUIDE, reason);
            assert_eq!(found.len(), 1, "{reason}");
            assert!(found[0].starts_with("rollout-halted\n"), "{reason}");
        }
        for (reason, expected) in [
            ("KubeletDown", "node-kubelet-down"),
            ("diskfull", "node-disk"),
            ("NoCanary", "canary-waiting"),
            ("GlobalpsCredentialsExpired", "credentials-expiring"),
        ] {
            let found = sections(GUIDE, reason);
            assert_eq!(title(found[0]), expected, "{reason}");
        }
        assert_eq!(sections(GUIDE, "NoSuchReason"), [] as [&str; 0]);
    }
}
