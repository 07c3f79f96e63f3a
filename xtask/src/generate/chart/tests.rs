use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use globalps_testkit::kubernetes::workspace;
use serde_json::Value;

use super::files;

const CHARTS: [&str; 2] = ["globalps", "globalps-crds"];

fn charts() -> PathBuf {
    workspace().join("charts")
}

fn read(path: &str) -> String {
    fs::read_to_string(charts().join(path)).unwrap_or_default()
}

#[test]
fn the_charts_have_the_version_of_the_programs() {
    for name in CHARTS {
        let chart: Value = serde_saphyr::from_str(&read(&format!("{name}/Chart.yaml"))).unwrap();
        assert_eq!(chart["name"], name);
        for field in ["version", "appVersion"] {
            assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{name}: {field}");
        }
    }
}

/// Helm 3 creates hooks and can't apply them, and Argo CD deletes them first, with every object of the kind. What is in `crds` is
/// never upgraded.
#[test]
fn no_definition_is_a_hook_and_each_is_kept() {
    let mut definitions = 0;
    for name in CHARTS {
        assert!(!charts().join(name).join("crds").exists(), "{name}");
    }
    for (path, text) in files(&[]) {
        for document in text.split("---\n") {
            if document.contains("kind: CustomResourceDefinition\n") {
                assert!(path.starts_with("globalps-crds/"), "{path}");
                assert!(!document.contains("helm.sh/hook"), "{document:.300}");
                let keeps = "helm.sh/resource-policy: keep\n";
                assert!(document.contains(keeps), "{document:.300}");
                definitions += 1;
            }
        }
    }
    assert_eq!(definitions, 4);
}

#[test]
fn every_value_is_in_the_schema_and_documented() {
    for name in CHARTS {
        let of = |file: &str| read(&format!("{name}/{file}"));
        let values: Value = serde_saphyr::from_str(&of("values.yaml")).unwrap();
        let schema: Value = serde_json::from_str(&of("values.schema.json")).unwrap();
        let mut known = BTreeSet::new();
        leaves("", &schema, &mut known);
        let readme = of("README.md");
        for path in known {
            let default = values.pointer(&format!("/{}", path.replace('.', "/")));
            assert!(
                default.is_some(),
                "{name}: `{path}` has no default in values.yaml"
            );
            // The readme describes the fields of each program, or of each image, in one row.
            let field = |depth: usize| path.splitn(depth, '.').last().unwrap_or_default();
            let rows = [
                path.clone(),
                format!("*.{}", field(2)),
                format!("*.{}", field(3)),
            ];
            assert!(
                rows.iter()
                    .any(|row| readme.contains(&format!("| `{row}` |"))),
                "`{path}` is missing in charts/{name}/README.md"
            );
        }
    }
}

/// Paths of the values, such as `hub.shards`. Lists, free maps and the configuration are one value.
fn leaves(prefix: &str, schema: &Value, found: &mut BTreeSet<String>) {
    match schema["properties"].as_object() {
        Some(properties) if prefix != "globalPullSecret" => {
            for (name, schema) in properties {
                let path = format!("{prefix}.{name}");
                leaves(path.trim_start_matches('.'), schema, found);
            }
        }
        // Helm sets it; it has no default.
        _ if prefix == "global" => {}
        _ => {
            found.insert(prefix.to_owned());
        }
    }
}
