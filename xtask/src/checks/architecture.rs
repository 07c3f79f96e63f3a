//! Compares the sources with the tables of `docs/architecture.md`, and limits the length of files.

use globalps_testkit::kubernetes::workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Maximum number of lines before the unit tests.
const LIMIT: usize = 400;

/// A module directory: its name, and the modules that it imports.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    module: String,
    imports: Vec<String>,
}

/// A file below `src`, such as `leader/lease.rs`, with its module and its text.
struct Source {
    path: String,
    module: Vec<String>,
    text: String,
}

/// `mod name;` in a file.
struct Declaration {
    name: String,
    /// The file of the module, if `#[path]` names one.
    file: Option<String>,
    is_test: bool,
}

/// A path in a file: the line, and the absolute module path.
struct Reference {
    line: usize,
    path: Vec<String>,
}

/// The rows of the table below the heading that names this directory: `` | `module` | text | `import`, `import` | ``.
fn table(page: &str, directory: &str) -> Vec<Row> {
    let heading = format!("## `{directory}`");
    let lines = page.lines().skip_while(|line| *line != heading).skip(1);
    lines
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').collect();
            let quoted = cells.get(2).copied().unwrap_or_default().split('`');
            Row {
                module: cells[0].trim_end().trim_end_matches('`').to_owned(),
                imports: quoted.skip(1).step_by(2).map(str::to_owned).collect(),
            }
        })
        .collect()
}

/// `leader/lease.rs` is the module `leader::lease`, `leader/mod.rs` is `leader`; `main.rs` and `lib.rs` are the root.
fn module_of(path: &str) -> Vec<String> {
    let path = path.trim_end_matches(".rs");
    let parts = path.split('/').map(str::to_owned);
    parts
        .filter(|part| !matches!(part.as_str(), "mod" | "main" | "lib"))
        .collect()
}

/// Every `crate::` and `super::` path in the code of a file, and every path that begins with a child module.
fn references(source: &Source, modules: &BTreeSet<Vec<String>>) -> Vec<Reference> {
    let module = &source.module;
    let mut inline: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        if let Some(name) = line.trim_end().strip_suffix(" {")
            && let Some((_, name)) = name.rsplit_once("mod ")
            && !line.starts_with([' ', '/'])
        {
            inline = vec![name.to_owned()];
        } else if line == "}" {
            inline.clear();
        }
        let code = line.split("//").next().unwrap_or_default();
        let here = [&module[..], &inline].concat();
        for path in paths(code) {
            let supers = path.iter().take_while(|part| *part == "super").count();
            let absolute = match path[0].as_str() {
                "crate" => path[1..].to_vec(),
                "super" => {
                    let base = here.len().saturating_sub(supers);
                    [&here[..base], &path[supers..]].concat()
                }
                child => {
                    let child = [&module[..], &[child.to_owned()]].concat();
                    // A module may re-export what its children define in terms of it.
                    if !modules.contains(&child) || code.starts_with("pub") {
                        continue;
                    }
                    child
                }
            };
            found.push(Reference {
                line: at + 1,
                path: absolute,
            });
        }
    }
    found
}

/// The `a::b::c` of a line, split into parts; `a::{b, c}` is `a`.
fn paths(code: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = code.split(|c: char| !is_part(c) && c != ':');
    words
        .filter(|word| word.contains("::"))
        .map(|word| word.split("::").filter(|part| !part.is_empty()))
        .map(|parts| parts.map(str::to_owned).collect::<Vec<_>>())
        .filter(|parts| !parts.is_empty())
        .collect()
}

/// Every difference from the table, as a sentence.
fn violations(rows: &[Row], sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let above = |import: &String| rows[..at].iter().any(|row| row.module == *import);
        for import in row.imports.iter().filter(|import| !above(import)) {
            found.push(format!(
                "`{}` imports `{import}`, which is not a row above it",
                row.module
            ));
        }
    }
    let modules = sources.iter().map(|source| source.module.clone());
    let modules: BTreeSet<_> = modules.collect();
    let mut used = BTreeSet::new();
    // Modules that only tests use may be outside the rooms, and every room may import them.
    let tests = test_modules(sources);
    let is_for_tests = |name: &String| tests.contains(&vec![name.clone()]);
    let is_root = |path: &str| matches!(path, "main.rs" | "lib.rs") || path.starts_with("bin/");
    let in_rooms = sources.iter().filter(|source| {
        !is_root(&source.path) && !tests.contains(&source.module[..source.module.len().min(1)])
    });
    for source in in_rooms {
        let Some((directory, _)) = source.path.split_once('/') else {
            found.push(format!("{} is in no module directory", source.path));
            continue;
        };
        let Some(row) = rows.iter().find(|row| row.module == directory) else {
            found.push(format!("{}: no row for `{directory}`", source.path));
            continue;
        };
        for Reference { line, path } in references(source, &modules) {
            let place = format!("{}:{line}", source.path);
            let Some(target) = path.first() else {
                found.push(format!("{place}: imports several modules at once"));
                continue;
            };
            if is_for_tests(target) {
                continue;
            }
            if target != directory && !row.imports.contains(target) {
                found.push(format!("{place}: `{directory}` may not import `{target}`"));
            }
            used.insert((directory, target.clone()));
        }
    }
    for row in rows {
        let is_used = |import: &&String| used.contains(&(row.module.as_str(), (*import).clone()));
        for import in row.imports.iter().filter(|import| !is_used(import)) {
            found.push(format!("no file of `{}` imports `{import}`", row.module));
        }
        if !sources
            .iter()
            .any(|source| source.module.first() == Some(&row.module))
        {
            found.push(format!("there is no directory `{}`", row.module));
        }
    }
    let circle = circle(between_files(sources));
    if !circle.is_empty() {
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        found.push(format!("import each other: {}", names.join(", ")));
    }
    found
}

/// Which file imports which, as modules. Tests don't count: they may build their objects with whatever there is.
fn between_files(sources: &[Source]) -> BTreeSet<(Vec<String>, Vec<String>)> {
    let modules: BTreeSet<_> = sources.iter().map(|it| it.module.clone()).collect();
    let tests = test_modules(sources);
    let mut found = BTreeSet::new();
    for source in sources {
        if tests.iter().any(|test| source.module.starts_with(test)) {
            continue;
        }
        for Reference { line, path } in references(source, &modules) {
            let mut file = (1..=path.len()).rev().map(|end| &path[..end]);
            let file = file.find(|path| modules.contains(*path));
            if let Some(file) = file.filter(|_| line <= lines_of_code(&source.text)) {
                found.insert((source.module.clone(), file.to_vec()));
            }
        }
    }
    found
}

/// The files that import each other, also in a circle of several.
fn circle(mut imports: BTreeSet<(Vec<String>, Vec<String>)>) -> BTreeSet<Vec<String>> {
    imports.retain(|(one, other)| one != other);
    loop {
        let all = imports.len();
        let importing: BTreeSet<_> = imports.iter().map(|(one, _)| one.clone()).collect();
        imports.retain(|(_, other)| importing.contains(other));
        let imported: BTreeSet<_> = imports.iter().map(|(_, other)| other.clone()).collect();
        imports.retain(|(one, _)| imported.contains(one));
        if imports.len() == all {
            return imports.into_iter().map(|(one, _)| one).collect();
        }
    }
}

/// Every Rust file below a directory of the workspace, by its path in that directory.
fn sources(directory: &str) -> Vec<Source> {
    let root = workspace().join(directory);
    let mut found = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).expect("a path below the root");
                let name = name.to_str().expect("UTF-8").to_owned();
                found.push((name, fs::read_to_string(&path).expect("a text")));
            }
        }
    }
    found.sort();
    with_modules(found)
}

/// The modules that a file declares and that have their own files.
fn declarations(text: &str) -> Vec<Declaration> {
    let mut found = Vec::new();
    let (mut file, mut is_test) = (None, false);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("#[path = \"") {
            file = rest.strip_suffix("\"]").map(str::to_owned);
        } else if line == "#[cfg(test)]" || line == "#[cfg(any(test, feature = \"testing\"))]" {
            is_test = true;
        } else if !line.starts_with("#[") {
            let name = line
                .strip_suffix(';')
                .and_then(|line| line.rsplit_once("mod "));
            if let Some((_, name)) = name.filter(|_| !line.starts_with([' ', '/'])) {
                found.push(Declaration {
                    name: name.to_owned(),
                    file: file.take(),
                    is_test,
                });
            }
            (file, is_test) = (None, false);
        }
    }
    found
}

/// Path and text of files, each with its module.
fn with_modules(files: Vec<(String, String)>) -> Vec<Source> {
    let mut by_attribute = BTreeMap::new();
    for (path, text) in &files {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        for declaration in declarations(text) {
            if let Some(file) = declaration.file {
                let file = format!("{directory}/{file}")
                    .trim_start_matches('/')
                    .to_owned();
                by_attribute.insert(file, [&module_of(path)[..], &[declaration.name]].concat());
            }
        }
    }
    let sources = files.into_iter().map(|(path, text)| Source {
        module: by_attribute
            .remove(&path)
            .unwrap_or_else(|| module_of(&path)),
        path,
        text,
    });
    sources.collect()
}

/// The modules that are declared below `#[cfg(test)]`.
fn test_modules(sources: &[Source]) -> BTreeSet<Vec<String>> {
    let of_file = |source: &Source| {
        let module = source.module.clone();
        let tests = declarations(&source.text).into_iter();
        let tests = tests.filter(|declaration| declaration.is_test);
        tests
            .map(move |declaration| [&module[..], &[declaration.name]].concat())
            .collect::<Vec<_>>()
    };
    sources.iter().flat_map(of_file).collect()
}

fn lines_of_code(text: &str) -> usize {
    // A test module in its own file, or a test-only import, does not end the code.
    let end = text.find("#[cfg(test)]\nmod tests {");
    let end = end.or_else(|| text.find("#[cfg(test)]\npub(crate) mod tests {"));
    let code = &text[..end.unwrap_or(text.len())];
    let code = code
        .strip_suffix("#[cfg(test)]\nmod tests;\n")
        .unwrap_or(code);
    code.lines().count()
}

#[test]
fn the_programs_import_as_the_table_says() {
    let page = fs::read_to_string(workspace().join("docs/architecture.md")).expect("the page");
    for directory in [
        "crates/planner/src",
        "controller/src",
        "syncer/src",
        "kubectl-globalps/src",
    ] {
        let rows = table(&page, directory);
        assert!(rows.len() >= 5, "{directory}: {rows:?}");
        let found = violations(&rows, &sources(directory));
        assert!(found.is_empty(), "{directory}:\n{}", found.join("\n"));
    }
}

/// Maximum number of files in a chain of imports between commands.
const LAYERS: usize = 6;

#[test]
fn commands_are_not_built_on_commands() {
    let sources = sources("kubectl-globalps/src");
    let mut imports = between_files(&sources);
    let is_command = |module: &[String]| module.first().is_some_and(|room| room == "commands");
    imports.retain(|(one, other)| one != other && is_command(one) && is_command(other));
    let mut layers = 1;
    while !imports.is_empty() {
        let importing: BTreeSet<_> = imports.iter().map(|(one, _)| one.clone()).collect();
        imports.retain(|(_, other)| importing.contains(other));
        layers += 1;
    }
    assert!(layers > 2, "the imports are not found");
    assert!(layers <= LAYERS, "{layers} layers, at most {LAYERS}");
}

#[test]
fn no_file_is_too_long_to_read() {
    let mut found = Vec::new();
    for directory in [
        "crates/core/src",
        "crates/dockerconfig/src",
        "crates/fake-api/src",
        "crates/manifests/src",
        "crates/planner/src",
        "crates/provider/src",
        "crates/registry/src",
        "crates/runtime/src",
        "controller/src",
        "syncer/src",
        "credential-provider/src",
        "kubectl-globalps/src",
        "xtask/src",
    ] {
        let sources = sources(directory);
        let tests = test_modules(&sources);
        for source in sources
            .iter()
            .filter(|source| !tests.iter().any(|test| source.module.starts_with(test)))
        {
            let lines = lines_of_code(&source.text);
            if lines > LIMIT {
                let path = format!("{directory}/{}", source.path);
                found.push(format!("{path}: {lines} lines, at most {LIMIT}"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_import_that_the_table_does_not_have_is_found() {
    let rows = || {
        let page = "## `x/src`\n\n| module | for | imports |\n|---|---|---|\n| `low` | a | |\n| `high` | b | `low` |\n\n## `y/src`\n| `other` | c | |\n";
        table(page, "x/src")
    };
    assert_eq!(
        rows(),
        [
            Row {
                module: "low".to_owned(),
                imports: Vec::new()
            },
            Row {
                module: "high".to_owned(),
                imports: vec!["low".to_owned()]
            },
        ]
    );
    for (sentence, files, expected) in [
        (
            "imports that match the table",
            &[
                ("main.rs", "use high::x;\nuse low::y;"),
                ("low/mod.rs", "mod a;\nuse a::A;\n// crate::high"),
                ("low/a.rs", "use std::fmt;"),
                ("high/mod.rs", "use crate::low::a::A;"),
            ][..],
            "",
        ),
        (
            "an import back",
            &[
                ("low/mod.rs", "use crate::high::X;"),
                ("high/mod.rs", "use crate::low::Y;"),
            ],
            "low/mod.rs:1: `low` may not import `high`",
        ),
        (
            "an import back by `super`, and one within the module",
            &[
                ("low/a.rs", "use super::b::X;\nuse super::super::high::Y;"),
                ("low/b.rs", ""),
                ("high/mod.rs", "use super::low::Y;"),
            ],
            "low/a.rs:2: `low` may not import `high`",
        ),
        (
            "a path in a unit test, one level deeper",
            &[
                (
                    "low/a.rs",
                    "mod tests {\n    use super::super::super::high::Y;\n}",
                ),
                ("high/mod.rs", "fn f() { crate::low::g() }"),
            ],
            "low/a.rs:2: `low` may not import `high`",
        ),
        (
            "a path in unit tests in a file of their own",
            &[
                (
                    "low/a.rs",
                    "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;",
                ),
                ("low/a_tests.rs", "use super::super::b::B;"),
                ("low/b.rs", ""),
                ("high/mod.rs", "use crate::low::Y;"),
            ],
            "",
        ),
        (
            "a directory without a row",
            &[
                ("low/a.rs", ""),
                ("high/mod.rs", "use crate::low::Y;"),
                ("new/mod.rs", ""),
            ],
            "new/mod.rs: no row for `new`",
        ),
        (
            "a file outside the directories",
            &[
                ("low/a.rs", ""),
                ("high/mod.rs", "use crate::low::Y;"),
                ("flat.rs", ""),
            ],
            "flat.rs is in no module directory",
        ),
        (
            "a row without a directory, and an unused import",
            &[("high/mod.rs", "")],
            "no file of `high` imports `low`",
        ),
        (
            "a module that re-exports what a child defines",
            &[
                ("low/mod.rs", "pub(crate) use a::A;\npub(crate) struct B;"),
                ("low/a.rs", "use super::B;"),
                ("high/mod.rs", "use crate::low::A;"),
            ],
            "",
        ),
        (
            "two files that import each other",
            &[
                ("low/mod.rs", "use a::A;\npub struct B;"),
                ("low/a.rs", "use super::B;"),
                ("high/mod.rs", "use crate::low::Y;"),
            ],
            "import each other: low, low::a",
        ),
        (
            "three files that import each other in a circle, below one that they import",
            &[
                ("low/a.rs", "use super::b::B;"),
                ("low/b.rs", "use super::c::C;\nuse super::d::D;"),
                ("low/c.rs", "use super::a::A;"),
                ("low/d.rs", ""),
                ("high/mod.rs", "use crate::low::a::A;"),
            ],
            "import each other: low::a, low::b, low::c",
        ),
    ] {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        let sources = with_modules(files.collect());
        let found = violations(&rows(), &sources);
        if expected.is_empty() {
            assert_eq!(found, [""; 0], "{sentence}");
        } else {
            assert!(
                found.iter().any(|found| found.contains(expected)),
                "{sentence}: {found:?}"
            );
        }
    }
}

#[test]
fn unit_tests_do_not_count_as_code() {
    let code = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
    assert_eq!(lines_of_code(code), 2);
    let files = [
        ("a.rs", "#[cfg(test)]\nmod tests;"),
        (
            "b/mod.rs",
            "#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;",
        ),
        ("b/b_tests.rs", ""),
        ("main.rs", "#[cfg(test)]\nmod cases;\nmod d;"),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
    let sources = with_modules(files.into());
    let found = test_modules(&sources)
        .into_iter()
        .map(|module| module.join("::"));
    assert_eq!(found.collect::<Vec<_>>(), ["a::tests", "b::tests", "cases"]);
    assert_eq!(sources[2].module, ["b", "tests"], "where `#[path]` says so");
}
