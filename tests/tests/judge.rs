//! What `core/dockerconfig` says is what the kubelet's and containers/image's own code do.

use globalps_tests::judge::judge;

#[test]
fn ours_and_the_nodes_own_code_agree_on_generated_files() {
    let report = judge(7, 30_000).unwrap();
    assert!(
        report.disagreements.is_empty(),
        "{}",
        report.disagreements.join("\n")
    );
    // The generator is not idle: most files are read, many images find something, and every kind occurs.
    assert!(
        report.accepted > report.cases / 4,
        "{} of {} files are read",
        report.accepted,
        report.cases
    );
    assert!(
        report.tried > report.cases / 10 && report.sent > report.cases / 10,
        "{} and {}",
        report.tried,
        report.sent
    );
    assert!(
        report.kinds.len() > 30 && report.kinds.values().all(|number| *number > 100),
        "{:?}",
        report.kinds
    );
}
