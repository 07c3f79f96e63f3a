//! When the alerts fire and when they don't, evaluated by Prometheus itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use globalps_testkit::product::run;
use globalps_testkit::prometheus::promtool;
use serde_json::{Value, json};

/// A state, its metrics, and the alerts that fire after hours of it, with their severity.
type State = (
    &'static str,
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
);

const STATES: [State; 6] = [
    (
        "a registry rejects the credentials",
        &[r#"globalps_condition{type="CredentialsRejected",status="True"} 1"#],
        &[("GlobalpsCredentialsRejected", "critical")],
    ),
    (
        "a rollout is halted",
        &[
            r#"globalps_condition{type="Degraded",status="True"} 1"#,
            "globalps_degraded_by_content 0",
        ],
        &[("GlobalpsDegraded", "critical")],
    ),
    (
        "a source is invalid, and its last valid content stays in force",
        &[
            r#"globalps_condition{type="Degraded",status="True"} 1"#,
            "globalps_degraded_by_content 1",
        ],
        &[("GlobalpsSecretInvalid", "warning")],
    ),
    (
        "the additional pull secret is invalid",
        &[
            r#"globalps_condition{type="AdditionalValid",status="False"} 1"#,
            "globalps_degraded_by_content 0",
        ],
        &[("GlobalpsSecretInvalid", "warning")],
    ),
    (
        "nodes of the Machine Config Operator, and excluded ones",
        &[
            r#"globalps_nodes{phase="ForeignOwner"} 5"#,
            r#"globalps_nodes{phase="Excluded"} 1"#,
            "globalps_nodes_contested 0",
        ],
        &[],
    ),
    (
        "another program keeps changing the file of a node",
        &[
            r#"globalps_nodes{phase="ForeignOwner"} 6"#,
            "globalps_nodes_contested 1",
        ],
        &[("GlobalpsForeignOwner", "warning")],
    ),
];

/// Metrics of two healthy controllers.
const WELL: [&str; 3] = [
    "globalps_leader 1",
    r#"globalps_build_info{instance="a"} 1"#,
    r#"globalps_build_info{instance="b"} 1"#,
];

#[test]
fn alerts_fire_for_what_someone_must_do() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/monitoring/alerts.yaml");
    let parsed: Value = serde_saphyr::from_str(&fs::read_to_string(&rules).unwrap()).unwrap();
    let all = parsed["groups"][0]["rules"].as_array().unwrap();
    let troubleshooting = fs::read_to_string(rules.with_file_name("../../docs/troubleshooting.md"));
    let troubleshooting = troubleshooting.unwrap();
    for rule in all {
        let name = &rule["alert"];
        let url = rule["annotations"]["runbook_url"].as_str().unwrap();
        let page = concat!(
            env!("CARGO_PKG_REPOSITORY"),
            "/blob/main/docs/troubleshooting.md#"
        );
        let anchor = url
            .strip_prefix(page)
            .unwrap_or_else(|| panic!("{name}: {url}"));
        let heading = format!("\n## {anchor}\n");
        assert!(troubleshooting.contains(&heading), "{name}: {url}");
    }
    let tests: Vec<Value> = STATES
        .iter()
        .map(|(state, series, firing)| {
            let series = WELL.iter().chain(*series).map(|line| {
                let (series, value) = line.rsplit_once(' ').unwrap();
                json!({"series": series, "values": format!("{value}x180")})
            });
            let expected = |name: &str| -> Vec<Value> {
                let rule = all.iter().find(|rule| rule["alert"] == name).unwrap();
                let found = firing.iter().find(|(firing, _)| *firing == name);
                let alert = found.map(|(_, severity)| {
                    let mut annotations = rule["annotations"].clone();
                    let summary = annotations["summary"].as_str().unwrap();
                    annotations["summary"] = json!(summary.replace("{{ $value }}", "1"));
                    json!({"exp_labels": {"severity": severity}, "exp_annotations": annotations})
                });
                alert.into_iter().collect()
            };
            let names = all.iter().map(|rule| rule["alert"].as_str().unwrap());
            let alerts = names.map(
                |name| json!({"eval_time": "2h", "alertname": name, "exp_alerts": expected(name)}),
            );
            json!({
                "name": state, "interval": "1m", "input_series": series.collect::<Vec<_>>(),
                "alert_rule_test": alerts.collect::<Vec<_>>(),
            })
        })
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tests.json");
    let rules = std::path::absolute(rules).unwrap();
    let text = json!({"rule_files": [rules], "evaluation_interval": "1m", "tests": tests});
    fs::write(&file, text.to_string()).unwrap();
    let mut command = Command::new(promtool().unwrap());
    let ran = run(command.args(["test", "rules"]).arg(file), "").unwrap();
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
}
