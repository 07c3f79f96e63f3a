//! The software bill of materials of a program, from the list that `cargo auditable` embedded.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::materials::Crate;

/// Adds checksums and licences to a CycloneDX document of `auditable2cdx`, which knows names, versions and dependencies.
pub fn complete(
    mut sbom: Value,
    checksums: &BTreeMap<Crate, String>,
    licences: &BTreeMap<Crate, String>,
) -> Result<Value> {
    sbom["version"] = json!(1);
    let mut unknown = Vec::new();
    let root = sbom.pointer_mut("/metadata/component");
    add(root.context("no program")?, checksums, licences);
    let components = sbom["components"].as_array_mut();
    for component in components.context("no list of dependencies")? {
        add(component, checksums, licences);
        if component.get("licenses").is_none() {
            unknown.push(format!("{} {}", component["name"], component["version"]));
        }
    }
    ensure!(
        unknown.is_empty(),
        "no licence in Cargo.toml of {}",
        unknown.join(", ")
    );
    Ok(sbom)
}

fn add(
    component: &mut Value,
    checksums: &BTreeMap<Crate, String>,
    licences: &BTreeMap<Crate, String>,
) {
    let text = |name: &str| component[name].as_str().unwrap_or_default().to_owned();
    let key = (text("name"), text("version"));
    let purl = format!("pkg:cargo/{}@{}", key.0, key.1);
    // A crate of this workspace has one that ends with an invalid placeholder.
    component["purl"] = json!(purl);
    if let Some(sum) = checksums.get(&key) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    if let Some(licence) = licences.get(&key) {
        component["licenses"] = json!([{"expression": licence}]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps() -> (BTreeMap<Crate, String>, BTreeMap<Crate, String>) {
        let key = |name: &str| (name.to_owned(), "1.0.0".to_owned());
        let licence = |name: &str| (key(name), "MIT".to_owned());
        (
            [(key("a"), "00ff".to_owned())].into(),
            [licence("a"), licence("own")].into(),
        )
    }

    fn document(name: &str) -> Value {
        json!({
            "bomFormat": "CycloneDX", "specVersion": "1.3",
            "metadata": {"component": {"type": "application", "name": "own", "version": "1.0.0", "bom-ref": "1",
                "purl": "pkg:cargo/own@1.0.0&download_url=redacted"}},
            "components": [{"type": "library", "name": name, "version": "1.0.0", "bom-ref": "0", "purl": "pkg:cargo/a@1.0.0"}],
            "dependencies": [{"ref": "1", "dependsOn": ["0"]}],
        })
    }

    #[test]
    fn every_dependency_has_a_checksum_and_a_licence() {
        let (checksums, licences) = maps();
        let sbom = complete(document("a"), &checksums, &licences).unwrap();
        assert_eq!(sbom["version"], 1);
        let component = &sbom["components"][0];
        assert_eq!(
            component["hashes"],
            json!([{"alg": "SHA-256", "content": "00ff"}])
        );
        assert_eq!(component["licenses"], json!([{"expression": "MIT"}]));
        let root = &sbom["metadata"]["component"];
        assert_eq!(root["purl"], "pkg:cargo/own@1.0.0");
        assert_eq!(root.get("hashes"), None);
        assert_eq!(sbom["dependencies"], document("a")["dependencies"]);
    }

    #[test]
    fn a_dependency_without_a_licence_is_an_error() {
        let (checksums, licences) = maps();
        let error = complete(document("b"), &checksums, &licences).unwrap_err();
        assert!(error.to_string().contains("\"b\""), "{error}");
    }
}
