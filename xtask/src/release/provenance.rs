//! The provenance of a release: an in-toto statement, version 1, with SLSA's provenance predicate, version 1.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::materials::Crate;
use super::programs::Step;

/// Location of the source, and the page that describes the build.
const REPOSITORY: &str = "https://github.com/globalps/globalps";

/// Inputs of a release.
#[derive(Debug)]
pub struct Inputs {
    /// Without the `v`.
    pub version: String,
    /// SHA-1 in hex.
    pub commit: String,
    /// URI of the builder; `None`: a person's machine.
    pub builder: Option<String>,
    /// Registry and path of the images.
    pub registry: String,
    /// Builds with `$SOURCE` and `$CARGO_HOME` as directories.
    pub steps: Vec<Step>,
    /// Versions of compilers, linkers and tools by name.
    pub tools: BTreeMap<String, String>,
    /// SHA-256 of `Cargo.lock`, in hex.
    pub lock: String,
    /// SHA-256 of the dependencies, in hex.
    pub crates: BTreeMap<Crate, String>,
}

/// The statement about these files. `files`: SHA-256 in hex by name. It has no time, so that a second build states the same.
pub fn statement(inputs: &Inputs, files: &BTreeMap<String, String>) -> Value {
    let subjects = files
        .iter()
        .map(|(name, sum)| json!({"digest": {"sha256": sum}, "name": name}));
    let page = format!("{REPOSITORY}/blob/v{}/docs/releasing.md", inputs.version);
    let mut materials = vec![
        json!({"digest": {"gitCommit": inputs.commit}, "uri": format!("git+{REPOSITORY}")}),
        json!({"digest": {"sha256": inputs.lock}, "name": "Cargo.lock"}),
    ];
    materials.extend(inputs.crates.iter().map(|((name, version), sum)| {
        json!({"digest": {"sha256": sum}, "uri": format!("pkg:cargo/{name}@{version}")})
    }));
    let commands = inputs.steps.iter().map(|step| {
        let environment: BTreeMap<_, _> = step.environment.iter().cloned().collect();
        json!({"arguments": step.arguments, "environment": environment})
    });
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": format!("{page}#what-it-does"),
                "externalParameters": {
                    "command": format!("make release VERSION={} REGISTRY={}", inputs.version, inputs.registry),
                    "commit": inputs.commit,
                    "version": inputs.version,
                },
                "internalParameters": {"cargo": commands.collect::<Vec<_>>(), "tools": inputs.tools},
                "resolvedDependencies": materials,
            },
            "runDetails": {
                "builder": {"id": inputs.builder.clone().unwrap_or_else(|| format!("{page}#built-by-hand"))},
            },
        },
        "predicateType": "https://slsa.dev/provenance/v1",
        "subject": subjects.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_names_files_commit_commands_and_every_material() {
        let key = ("a".to_owned(), "1.0.0".to_owned());
        let mut inputs = Inputs {
            version: "1.2.3".to_owned(),
            commit: "c0ffee".to_owned(),
            builder: None,
            registry: "example.com/x".to_owned(),
            steps: vec![Step {
                arguments: vec!["build".to_owned()],
                environment: vec![("A", "$SOURCE".to_owned())],
            }],
            tools: [("rustc".to_owned(), "1.95.0".to_owned())].into(),
            lock: "11".to_owned(),
            crates: [(key, "00ff".to_owned())].into(),
        };
        let files = [("x.tar".to_owned(), "22".to_owned())].into();
        let statement = statement(&inputs, &files);
        assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
        assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");
        assert_eq!(
            statement["subject"],
            json!([{"digest": {"sha256": "22"}, "name": "x.tar"}])
        );
        let build = &statement["predicate"]["buildDefinition"];
        assert_eq!(
            build["externalParameters"]["command"],
            "make release VERSION=1.2.3 REGISTRY=example.com/x"
        );
        assert_eq!(
            build["resolvedDependencies"],
            json!([
                {"digest": {"gitCommit": "c0ffee"}, "uri": "git+https://github.com/globalps/globalps"},
                {"digest": {"sha256": "11"}, "name": "Cargo.lock"},
                {"digest": {"sha256": "00ff"}, "uri": "pkg:cargo/a@1.0.0"},
            ])
        );
        assert_eq!(
            build["internalParameters"],
            json!({"cargo": [{"arguments": ["build"], "environment": {"A": "$SOURCE"}}], "tools": {"rustc": "1.95.0"}})
        );
        let builder = |inputs: &Inputs| {
            let statement = super::statement(inputs, &BTreeMap::new());
            statement["predicate"]["runDetails"]["builder"]["id"].clone()
        };
        let page = "https://github.com/globalps/globalps/blob/v1.2.3/docs/releasing.md";
        assert_eq!(builder(&inputs), format!("{page}#built-by-hand"));
        inputs.builder = Some("https://example.com/ci".to_owned());
        assert_eq!(builder(&inputs), "https://example.com/ci");
    }
}
