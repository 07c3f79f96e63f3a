use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::files;
use crate::kubernetes::workspace;

fn chart() -> PathBuf {
    workspace().join("charts/globalps")
}

fn read(path: &str) -> String {
    fs::read_to_string(chart().join(path)).unwrap_or_default()
}

/// `UPDATE_MANIFESTS=1` writes them.
#[test]
fn the_committed_chart_matches_the_builders() {
    let monitoring = workspace().join("manifests/monitoring");
    for (path, text) in files(|name| fs::read_to_string(monitoring.join(name)).unwrap()) {
        if std::env::var_os("UPDATE_MANIFESTS").is_some() {
            let file = chart().join(&path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, &text).unwrap();
        }
        assert!(
            read(&path) == text,
            "charts/globalps/{path} differs from the builders: run `make manifests`"
        );
    }
}

#[test]
fn the_chart_has_the_version_of_the_programs() {
    let chart: Value = serde_saphyr::from_str(&read("Chart.yaml")).unwrap();
    for field in ["version", "appVersion"] {
        assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
}

#[test]
fn every_value_is_in_the_schema_and_documented() {
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let mut known = BTreeSet::new();
    leaves("", &schema, &mut known);
    let readme = read("README.md");
    for path in known {
        let default = values.pointer(&format!("/{}", path.replace('.', "/")));
        assert!(default.is_some(), "`{path}` has no default in values.yaml");
        // The readme describes the fields of each program, or of each image, in one row.
        let rows = [
            path.clone(),
            format!("*.{}", path.rsplit('.').next().unwrap()),
        ];
        assert!(
            rows.iter()
                .any(|row| readme.contains(&format!("| `{row}` |"))),
            "`{path}` is missing in charts/globalps/README.md"
        );
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
