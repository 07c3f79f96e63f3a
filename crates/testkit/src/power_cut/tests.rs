//! Small disks, and every state in which a power cut may leave them.

use std::fmt::Write as _;

use super::*;

const TEMP: &str = "t";
const FILE: &str = "f";

fn attributes(mode: u32) -> Attributes {
    Attributes {
        mode,
        ..Attributes::default()
    }
}

fn file(bytes: &str) -> Tree {
    Tree::File {
        bytes: bytes.into(),
        attributes: attributes(0o600),
    }
}

fn directory(entries: &[(&str, &str)]) -> Tree {
    Tree::Directory {
        entries: entries
            .iter()
            .map(|(name, bytes)| ((*name).to_owned(), file(bytes)))
            .collect(),
        attributes: attributes(0o700),
    }
}

fn create(path: &str) -> Op {
    Op::Create(path.to_owned(), attributes(0o600))
}

fn write(path: &str, bytes: &str) -> Op {
    Op::Write {
        path: path.to_owned(),
        offset: 0,
        bytes: bytes.into(),
    }
}

fn sync(path: &str) -> Op {
    Op::Sync(path.to_owned())
}

fn rename(from: &str, to: &str) -> Op {
    Op::Rename(from.to_owned(), to.to_owned())
}

/// `name=content` for each file, `_` for a zero byte.
fn line(tree: &Tree) -> String {
    let mut line = String::new();
    for (name, tree) in tree.entries().into_iter().flatten() {
        match tree {
            Tree::File { bytes, .. } => {
                let text = String::from_utf8_lossy(bytes).replace('\0', "_");
                let _ = write!(line, "{name}={text} ");
            }
            Tree::Directory { .. } => {
                let _ = write!(line, "{name}({}) ", self::line(tree));
            }
        }
    }
    line.trim_end().to_owned()
}

/// The possible states after all operations, sorted.
fn possible_after(before: &Tree, ops: &[Op]) -> Vec<String> {
    let mut disk = Disk::new(before);
    for op in ops {
        disk.apply(op).unwrap();
    }
    let states: BTreeSet<String> = disk.possible().iter().map(line).collect();
    states.into_iter().collect()
}

#[test]
fn a_cut_leaves_whatever_was_not_synced_or_not() {
    let old = [(FILE, "old")];
    for (sentence, before, ops, expected) in [
        (
            "an unsynced write is on the disk completely, not at all, by half, or only with its length",
            &old[..],
            vec![write(FILE, "news")],
            vec!["f=ned", "f=news", "f=old", "f=old_"],
        ),
        (
            "synced data stays",
            &old,
            vec![write(FILE, "news"), sync(FILE)],
            vec!["f=news"],
        ),
        (
            "a truncated file is empty or unchanged, and has no new content before the truncation",
            &old,
            vec![Op::Truncate(FILE.to_owned(), 0), write(FILE, "news")],
            vec!["f=", "f=____", "f=ne", "f=news", "f=old"],
        ),
        (
            "a synced file does not exist before its directory is synced",
            &old,
            vec![create(TEMP), write(TEMP, "news"), sync(TEMP)],
            vec!["f=old", "f=old t=news"],
        ),
        (
            "a rename without a sync of the data may leave an empty file",
            &old,
            vec![create(TEMP), write(TEMP, "news"), rename(TEMP, FILE)],
            vec![
                "f=",
                "f=____",
                "f=ne",
                "f=news",
                "f=old",
                "f=old t=",
                "f=old t=____",
                "f=old t=ne",
                "f=old t=news",
            ],
        ),
        (
            "a sync of only the directory is worse: the old file is certainly gone",
            &old,
            vec![
                create(TEMP),
                write(TEMP, "news"),
                rename(TEMP, FILE),
                sync(""),
            ],
            vec!["f=", "f=____", "f=ne", "f=news"],
        ),
        (
            "a rename after a sync of the data leaves the old file or the new one",
            &old,
            vec![
                create(TEMP),
                write(TEMP, "news"),
                sync(TEMP),
                rename(TEMP, FILE),
            ],
            vec!["f=news", "f=old", "f=old t=news"],
        ),
        (
            "a sync of the directory afterwards leaves the new file",
            &old,
            vec![
                create(TEMP),
                write(TEMP, "news"),
                sync(TEMP),
                rename(TEMP, FILE),
                sync(""),
            ],
            vec!["f=news"],
        ),
        (
            "files that change places do so both or not at all, before one of them is removed",
            &[(FILE, "old"), (TEMP, "news")],
            vec![
                Op::Exchange(TEMP.to_owned(), FILE.to_owned()),
                Op::Unlink(TEMP.to_owned()),
            ],
            vec!["f=news", "f=news t=old", "f=old t=news"],
        ),
        (
            "unrelated names change in any order",
            &[("a", ""), ("b", ""), ("c", "")],
            vec![
                Op::Unlink("a".to_owned()),
                Op::Unlink("b".to_owned()),
                sync("c"),
            ],
            vec!["a= b= c=", "a= c=", "b= c=", "c="],
        ),
        (
            "the changes of one name keep their order",
            &old,
            vec![Op::Unlink(FILE.to_owned()), create(FILE)],
            vec!["", "f=", "f=old"],
        ),
        (
            "a file in a lost directory is lost too, synced or not",
            &[],
            vec![
                Op::MakeDirectory("d".to_owned(), attributes(0o700)),
                create("d/f"),
                sync("d/f"),
                sync("d"),
            ],
            vec!["", "d(f=)"],
        ),
    ] {
        let found = possible_after(&directory(before), &ops);
        assert_eq!(found, expected, "{sentence}");
    }
}

#[test]
fn attributes_are_synced_with_a_file_and_not_with_its_data() {
    let mode = |op: fn(String) -> Op| {
        let mut disk = Disk::new(&directory(&[(FILE, "")]));
        let ops = [Op::SetMode(FILE.to_owned(), 0o644), op(FILE.to_owned())];
        for op in &ops {
            disk.apply(op).unwrap();
        }
        disk.possible().len()
    };
    assert_eq!((mode(Op::Sync), mode(Op::SyncData)), (1, 2));
}

#[test]
fn each_state_counts_once_from_its_first_possible_moment() {
    let ops = [create(TEMP), sync(TEMP), sync("")];
    let states = crash_states(&directory(&[]), &ops).unwrap();
    let found: Vec<_> = states
        .distinct
        .iter()
        .map(|(tree, after)| (line(tree), *after))
        .collect();
    assert_eq!(found, [(String::new(), 0), ("t=".to_owned(), 1)]);
    assert_eq!(states.all, 1 + 2 + 2 + 1);
}

#[test]
fn what_cannot_have_happened_is_an_error() {
    for op in [
        sync("none"),
        Op::Unlink("none".to_owned()),
        create(FILE),
        rename(FILE, "d/f"),
    ] {
        let error = crash_states(&directory(&[(FILE, ""), ("d", "")]), &[op]);
        let error = error.err().expect("an error");
        assert!(format!("{error:#}").contains("operation 1"), "{error:#}");
    }
}
