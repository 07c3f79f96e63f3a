//! `crates/dockerconfig` and `crates/provider` give the same results as the kubelet's and containers/image's own code.

use globalps_testkit::judge::{compare, judge};
use globalps_testkit::oracle::{Case, Oracle};
use globalps_testkit::{judge_merges, provider_judge};

#[test]
fn ours_and_the_nodes_own_code_agree_on_generated_files() {
    let report = judge(7, 30_000).unwrap();
    assert!(
        report.disagreements.is_empty(),
        "{}",
        report.disagreements.join("\n")
    );
    // The generator is useful: most files are accepted, many images match, and every kind occurs.
    assert!(
        report.accepted > report.cases / 4,
        "{} of {} files are accepted",
        report.accepted,
        report.cases
    );
    assert!(
        report.tried > report.cases / 10 && report.sent > report.cases / 10,
        "{} and {}",
        report.tried,
        report.sent
    );
    assert_eq!(report.kinds.missing(), []);
}

#[test]
fn the_kubelet_gets_from_the_credential_provider_what_core_says() {
    let report = provider_judge::judge(7, 600).unwrap();
    assert!(
        report.disagreements.is_empty(),
        "{}",
        report.disagreements.join("\n")
    );
    assert_eq!(report.pulls, 600);
    // Most pulls match an entry, and a scope.
    assert!(report.with_node_wide > 150, "{report}");
    assert!(report.with_scoped > 30, "{report}");
    assert!(report.out_of_scope > 80, "{report}");
}

#[test]
fn a_merge_takes_no_credential_from_the_kubelet_or_crio() {
    let report = judge_merges::judge(7, 10_000).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    assert!(
        report.tried > 2_000 && report.sent > 1_000,
        "{} and {}",
        report.tried,
        report.sent
    );
}

/// 8 characters of host and slash, and 248 of path.
const LONG: &str = concat!(
    "quay.io/",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
);

/// Every file and image on which globalps and the readers once disagreed.
#[rustfmt::skip]
const CORPUS: [(&str, &str); 11] = [
    // containers/image rejects an IPv6 address as a registry.
    (r#"{"auths":{"[::1]:5000":{"auth":"dTpw"}}}"#, "[::1]:5000/a"),
    (r#"{"auths":{"https://[::1]":{"auth":"dTpw"}}}"#, "[::1]/a"),
    // It also rejects a host in upper case that has neither a dot nor a port.
    (r#"{"auths":{"Org":{"auth":"dTpw"}}}"#, "Org/app"),
    // It counts the host towards the maximum length of a name.
    (r#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#, LONG),
    // An entry with no effect, because its key is repeated, still invalidates the file.
    (r#"{"auths":{"r.io":{"auth":"pants"},"r.io":{"auth":"dTpw"}}}"#, "r.io/a"),
    (r#"{"auths":{"r.io":1},"auths":null}"#, "r.io/a"),
    // For the kubelet, null is an entry without credentials, and an absent value is no entry.
    (r#"{"auths":{"r.io":null}}"#, "r.io/a"),
    ("null", "r.io/a"),
    // Only the kubelet reads `HttpHeaders`, and only containers/image reads `credHelpers`.
    (r#"{"auths":{"r.io":{"auth":"dTpw"}},"HttpHeaders":[]}"#, "r.io/a"),
    (r#"{"auths":{"r.io":{"auth":"dTpw"}},"credHelpers":{"r.io":1}}"#, "r.io/a"),
    (r#"{"AUTHS":{"r.io":{"auth":"dTpw"}}}"#, "r.io/a"),
];

#[test]
fn ours_and_the_nodes_own_code_agree_where_they_once_did_not() {
    let cases: Vec<Case> = CORPUS
        .iter()
        .map(|(config, image)| Case {
            config: config.as_bytes().to_vec(),
            images: vec![(*image).to_owned()],
        })
        .collect();
    let answers = Oracle::start().unwrap().ask(&cases).unwrap();
    for (case, answer) in cases.iter().zip(&answers) {
        let disagreements = compare(case, answer);
        assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
    }
}
