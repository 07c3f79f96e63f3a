//! The signatures of a release, made and verified by cosign itself.

use std::fs;

use globalps_testkit::kubernetes;
use serde_json::json;
use xtask::release::dist::sum;
use xtask::release::{Cosign, PROVENANCE, files};

#[test]
fn a_changed_byte_breaks_a_signature_and_the_provenance() {
    let directory = tempfile::tempdir().unwrap();
    let release = directory.path();
    let names = ["globalps-syncer.tar", "kubectl-globalps-linux-amd64.tar.gz"];
    for name in names {
        fs::write(release.join(name), format!("content of {name}")).unwrap();
    }
    let subject = |name: &str| {
        let sum = sum(&fs::read(release.join(name)).unwrap());
        json!({"digest": {"sha256": sum}, "name": name})
    };
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "predicate": {"buildDefinition": {}, "runDetails": {}},
        "predicateType": "https://slsa.dev/provenance/v1",
        "subject": names.map(subject),
    });
    fs::write(release.join(PROVENANCE), statement.to_string()).unwrap();
    fs::write(release.join("SHA256SUMS"), "sums").unwrap();

    let cosign = Cosign {
        program: kubernetes::build_cosign().unwrap(),
        is_test: true,
    };
    let (keys, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let key = cosign.make_key(keys.path()).unwrap();
    let signed = cosign.sign(release, key.to_str().unwrap()).unwrap();
    assert_eq!(signed.len(), 3, "{signed:?}");
    let public = release.join("cosign.pub");
    assert_eq!(
        fs::read(&public).unwrap(),
        fs::read(keys.path().join("cosign.pub")).unwrap()
    );
    assert_eq!(cosign.prove(release, &public).unwrap(), 3);
    assert!(!files(release).unwrap().contains(&"cosign.key".to_owned()));

    cosign.make_key(others.path()).unwrap();
    let file = release.join(names[0]);
    let signature = release.join(format!("{}.sigstore.json", names[0]));
    let other = others.path().join("cosign.pub");
    assert!(
        cosign.verify(&file, &signature, &other).is_err(),
        "the key of another person"
    );
}
