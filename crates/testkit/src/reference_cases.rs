//! The test cases of HyperShift's own syncer, and what the syncer of globalps does in each: one table, which the test
//! `reference_cases` runs on a bare node and `docs/reference-cases.md` shows.

use std::fmt::Write as _;

/// A credentials file before and after.
#[derive(Clone, Copy, Debug)]
pub struct FileCase {
    pub before: Option<&'static str>,
    pub desired: &'static str,
    /// Number of kubelet restarts that fail.
    pub failures: usize,
    /// A system call that fails, in the syntax of strace's `--inject`.
    pub injection: Option<&'static str>,
    /// What HyperShift's syncer leaves, and how many restarts it requests.
    pub theirs: &'static str,
    /// What the syncer of globalps leaves.
    pub after: Option<&'static str>,
    pub phase: &'static str,
    /// Number of restarts that the syncer of globalps requests.
    pub restarts: usize,
    pub better: &'static str,
}

pub const OLD: &str = r#"{"auths":{"old.registry.com":{"auth":"b2xkOnRlc3Q="}}}"#;
pub const NEW: &str = r#"{"auths":{"test.registry.com":{"auth":"dGVzdDp0ZXN0"}}}"#;
const OLD_LINE: &str = "{\"auths\":{\"old.registry.com\":{\"auth\":\"b2xkOnRlc3Q=\"}}}\n";
const NEW_LINE: &str = "{\"auths\":{\"test.registry.com\":{\"auth\":\"dGVzdDp0ZXN0\"}}}\n";
const BOTH: &str = r#"{"auths":{"old.registry.com":{"auth":"b2xkOnRlc3Q="},"test.registry.com":{"auth":"dGVzdDp0ZXN0"}}}"#;

const OWN_STAYS: &str = "the node's own entry stays";
const CASE: FileCase = FileCase {
    before: Some(OLD),
    desired: NEW,
    failures: 0,
    injection: None,
    theirs: "only the new content, 1",
    after: Some(BOTH),
    phase: "Synced",
    restarts: 1,
    better: OWN_STAYS,
};
/// Neither syncer writes or restarts.
const SAME: FileCase = FileCase {
    before: Some(NEW),
    theirs: "the unchanged file, 0",
    after: Some(NEW),
    restarts: 0,
    better: "",
    ..CASE
};
const FAILS: FileCase = FileCase {
    failures: 3,
    theirs: "the old content, 3; repeats forever",
    after: Some(OLD),
    phase: "RolledBack",
    restarts: 4,
    better: "the kubelet runs again, with the old file; globalps does not retry this content",
    ..CASE
};

pub const FILES: &[FileCase] = &[
    FileCase {
        before: None,
        after: Some(NEW),
        better: "",
        ..CASE
    },
    FileCase {
        before: None,
        theirs: "an empty file, 3; repeats forever",
        after: None,
        better: "the file is removed again: with an empty file every pull of CRI-O fails",
        ..FAILS
    },
    CASE,
    FAILS,
    SAME,
    FileCase {
        theirs: "the old content, 3; the kubelet is not restarted with it",
        ..FAILS
    },
    FileCase {
        // The second rename installs the new file. The seventh, which restores the old one, fails once.
        injection: Some("rename:error=EIO:when=7"),
        theirs: "the new content, 3; two errors",
        better: "globalps retries until the file is restored, and reports the error in the status",
        ..FAILS
    },
    FileCase {
        before: Some(NEW_LINE),
        after: Some(NEW_LINE),
        ..SAME
    },
    FileCase {
        before: Some(OLD_LINE),
        desired: NEW_LINE,
        ..CASE
    },
    FileCase {
        desired: NEW_LINE,
        ..CASE
    },
    CASE,
    FileCase {
        before: Some(NEW_LINE),
        after: Some(NEW_LINE),
        ..SAME
    },
];

/// Results of the kubelet's restart, as systemd or the bus reports them; `call`: the request itself fails.
pub const ENDS: &[&str] = &[
    "call",
    "failed",
    "timeout",
    "canceled",
    "dependency",
    "skipped",
];

/// Content of the Secret, whether HyperShift's syncer accepts it, and what globalps reports: nothing, or the code of
/// the first error.
#[rustfmt::skip]
pub const CONTENTS: &[(&str, bool, &str)] = &[
    (r#"{"auths":{"r.io":{"auth":"dTpw"}}}"#, true, ""),
    (r#"{"auths":{"r.io":{"auth":"dTpw"},"s.io":{"auth":"dTpw"}}}"#, true, ""),
    (r#"{"auths":{}}"#, true, "NoEntries"),
    (r#"{"auths":{"r.io":{"auth":"dTpw"}},"credsStore":"x","credHelpers":{"s.io":"y"}}"#, true, ""),
    (r#"{"auths":null}"#, true, "NoEntries"),
    (r#"{"auths":"not an object"}"#, true, "AuthsNotObject"),
    (r#"{"auths":[]}"#, true, "AuthsNotObject"),
    (r#"{"auths":{"r.io":{"auth":"dTpw"}}"#, false, "NotJson"),
    (r#"{"auths":{"r.io":{"auth":"dTpw"},}}"#, false, "NotJson"),
    (r#"{auths:{"r.io":{"auth":"dTpw"}}}"#, false, "NotJson"),
    (r#"{"registries":{}}"#, false, "NoAuths"),
    ("", false, "NotJson"),
    ("null", false, "NoAuths"),
    (r#""some text""#, false, "NotObject"),
    (r#"["auths"]"#, false, "NotObject"),
    ("123", false, "NotObject"),
    ("true", false, "NotObject"),
    ("   ", false, "NotJson"),
    ("{}", false, "NoAuths"),
    (r#"{"config":{"auths":{"r.io":{"auth":"dTpw"}}}}"#, false, "NoAuths"),
];

/// The tables as Markdown.
pub fn document() -> String {
    let mut text = "# The test cases of HyperShift's own syncer\n\n\
        Generated from the tables in `crates/testkit/src/reference_cases.rs` by `make generate`.\nThe test `reference_cases` runs the syncer of globalps, the real program on a node with a simulated systemd. \
        The results of HyperShift's syncer are from its unit tests.\n\n\
        ## A credentials file, before and after\n\n\
        `old` and `new` are one entry each; `⏎` is a final newline.\n\n\
        | before | assigned | failing restarts | HyperShift: file, restarts | globalps: file, restarts, phase | improvement |\n\
        |---|---|---|---|---|---|\n"
        .to_owned();
    for case in FILES {
        let failures = match (case.failures, case.injection) {
            (0, _) => "none".to_owned(),
            (failures, None) => format!("{failures}"),
            (failures, Some(_)) => format!("{failures}, and the first attempt to restore the file"),
        };
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {failures} | {} | {}, {}, `{}` | {} |",
            short(case.before),
            short(Some(case.desired)),
            case.theirs,
            short(case.after),
            case.restarts,
            case.phase,
            case.better,
        );
    }
    text += "\n## Result of the restart\n\nHyperShift's syncer treats every result except `done` as an error, and waits without a deadline. \
        globalps has a deadline for every step, checks that a new kubelet process runs\nand accepts connections, and reports \
        the result in the node's status. Each of these results, three times in a row, causes a rollback:\n\n";
    for end in ENDS {
        let _ = match *end {
            "call" => writeln!(text, "- the request itself fails"),
            end => writeln!(text, "- `{end}`"),
        };
    }
    text += "\n## Content of the Secret\n\nHyperShift's syncer validates it on the node. globalps rejects invalid content before any node gets it, \
        reports each error, and keeps the last valid content in force.\n\n\
        | content | HyperShift | globalps |\n|---|---|---|\n";
    for (content, is_taken, code) in CONTENTS {
        let content = match content.trim() {
            "" if content.is_empty() => "empty".to_owned(),
            "" => "spaces".to_owned(),
            content => format!("`{content}`"),
        };
        let theirs = if *is_taken { "accepted" } else { "error" };
        let ours = if code.is_empty() {
            "accepted".to_owned()
        } else {
            format!("`{code}`")
        };
        let _ = writeln!(text, "| {content} | {theirs} | {ours} |");
    }
    text
}

fn short(file: Option<&str>) -> String {
    let Some(text) = file else {
        return "absent".to_owned();
    };
    let line = if text.ends_with('\n') { "⏎" } else { "" };
    let words = match text.trim_end() {
        OLD => "old",
        NEW => "new",
        _ => "old and new",
    };
    format!("{words}{line}")
}

#[cfg(test)]
mod tests {
    use globalps_dockerconfig::validate_bytes;

    use super::*;

    #[test]
    fn ours_takes_nothing_that_theirs_refuses_and_names_it() {
        for (content, is_taken, code) in CONTENTS {
            let (config, findings) = validate_bytes(content.as_bytes());
            let error = findings.iter().find(|finding| finding.is_error());
            let found = error.map_or(String::new(), |error| format!("{:?}", error.code));
            assert_eq!(found, *code, "{content}");
            assert_eq!(config.is_some(), code.is_empty(), "{content}");
            assert!(*is_taken || !code.is_empty(), "{content}");
        }
    }
}
