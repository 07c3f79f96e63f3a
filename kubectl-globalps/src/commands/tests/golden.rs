//! What command lines print and how they end, compared with a file.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::testing::fake_api::{CommandLine as _, FakeApi};

/// The objects of the server, changed by merge patches; an object that it does not have is new.
pub(super) fn changed<'a>(
    api: FakeApi,
    changes: impl IntoIterator<Item = (&'a str, Value)>,
) -> FakeApi {
    changes.into_iter().fold(api, |api, (path, change)| {
        let mut object = api.object(path).unwrap_or_default();
        json_patch::merge(&mut object, &change);
        api.with_object(path, object)
    })
}

/// A command line with what it prints on stdout and, after `!`, on stderr; its writes; and how it ends.
pub(super) fn transcript(api: &FakeApi, line: &str, writes: impl FnOnce() -> String) -> String {
    let (ran, [out, err]) = api.printed(line);
    let mut text = format!("$ kubectl globalps {line}\n");
    for (mark, printed) in [("  ", out), ("! ", err)] {
        for line in printed.lines() {
            let _ = writeln!(text, "{mark}{}", stable_line(line));
        }
    }
    let end = match ran {
        Ok(exit) => format!("{exit:?}"),
        Err(failure) => format!("{:?}: {}; {}", failure.exit, failure.message, failure.hint),
    };
    format!("{text}{}= {end}\n\n", writes())
}

/// Without what depends on the number of objects.
fn stable_line(line: &str) -> String {
    let is_version = ["resourceVersion", "uid"]
        .iter()
        .any(|it| line.contains(it));
    if is_version {
        line.replace(|c: char| c.is_ascii_digit(), "#")
    } else {
        line.to_owned()
    }
}

/// Compares the titles and transcripts of all cases with `NAME.txt`. `UPDATE_NAME`, in capitals, writes the file: a
/// change of it is one that users see.
pub(super) fn assert_on_record(name: &str, cases: impl Iterator<Item = (&'static str, String)>) {
    let mut text = String::new();
    for (title, lines) in cases {
        let _ = write!(text, "# {title}\n\n{lines}");
    }
    let text = text.trim_end().to_owned() + "\n";
    let file = format!("src/commands/tests/{name}.txt");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os(format!("UPDATE_{}", name.to_uppercase())).is_some() {
        std::fs::write(&file, &text).expect("a file");
    }
    let recorded = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = text.lines().zip(recorded.lines());
    let differs = differs
        .enumerate()
        .find(|(_, (found, on_record))| found != on_record);
    assert_eq!(differs, None, "the first line that differs");
    assert!(text == recorded, "one has more lines");
}
