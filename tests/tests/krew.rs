//! The plugin's archive, installed like krew does, and run by kubectl.

use std::fs;
use std::process::Command;

use globalps_testkit::kubernetes;
use globalps_testkit::product::run;
use serde_json::Value;
use xtask::release::{dist, krew};

#[test]
fn kubectl_runs_what_krew_installs() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("dist");
    let written = dist::write(&kubernetes::target_dir(), &output).unwrap();
    let archive = "kubectl-globalps-linux-amd64.tar.gz";
    assert!(
        written.iter().any(|name| name == archive),
        "run `make image`: {written:?}"
    );

    let text = fs::read_to_string(output.join("globalps.yaml")).unwrap();
    let manifest: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(
        krew::violations(&manifest, "globalps.yaml"),
        Vec::<String>::new()
    );

    let home = directory.path().join("krew");
    let bin = krew::install(&manifest, ("linux", "amd64"), &output.join(archive), &home).unwrap();
    let version = manifest["spec"]["version"].as_str().unwrap();
    let store = home.join("store/globalps").join(version);
    let license = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../LICENSE")).unwrap();
    assert_eq!(fs::read(store.join("LICENSE")).unwrap(), license);

    let mut kubectl = Command::new(kubernetes::bin_dir().join("kubectl"));
    kubectl
        .args(["globalps", "version", "--client", "-o", "json"])
        .env("PATH", &bin);
    let ran = run(&mut kubectl, "").unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        format!("v{}", said["client"]["version"].as_str().unwrap()),
        version
    );

    let sums = fs::read_to_string(output.join("checksums.txt")).unwrap();
    let mut sha256sum = Command::new("sha256sum");
    sha256sum.args(["--check", "-"]).current_dir(&output);
    assert_eq!(run(&mut sha256sum, &sums).unwrap().code, Some(0));

    let other = directory.path().join("other.tar.gz");
    fs::write(&other, b"something else").unwrap();
    let refused = krew::install(
        &manifest,
        ("linux", "amd64"),
        &other,
        &directory.path().join("x"),
    );
    assert!(refused.is_err(), "a different archive is rejected");
}
