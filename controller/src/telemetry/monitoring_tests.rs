//! Every metric in `manifests/monitoring` exists, and every metric is used there.

use serde_json::Value;

use crate::telemetry::metrics::tests::page;

const ALERTS: &str = include_str!("../../../manifests/monitoring/alerts.yaml");
const POD_MONITOR: &str = include_str!("../../../manifests/monitoring/podmonitor.yaml");
const DASHBOARD: &str = include_str!("../../../manifests/monitoring/dashboard.json");

/// Every `expr` in a document, at any depth.
fn expressions(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match (name.as_str(), value) {
                ("expr", Value::String(text)) => vec![text.clone()],
                _ => expressions(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(expressions).collect(),
        _ => Vec::new(),
    }
}

/// The metrics of an expression, each with the text between its braces.
fn metrics(expression: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (at, _) in expression.match_indices("globalps_") {
        let rest = &expression[at..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let selector = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'))
            .map_or("", |(selector, _)| selector);
        found.push((name.to_owned(), selector.to_owned()));
    }
    found
}

/// Whether the page has the metric with each label of the selector, and with each value that is a plain word.
fn exists(page: &str, name: &str, selector: &str) -> bool {
    let samples: Vec<&str> = page
        .lines()
        .filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        })
        .collect();
    let matchers = selector.split(',').filter(|matcher| !matcher.is_empty());
    !samples.is_empty()
        && matchers.into_iter().all(|matcher| {
            let (label, value) = matcher.split_once('=').unwrap_or_default();
            let label = label.trim_end_matches('!');
            let words = value.trim_matches(['~', '"']).split('|');
            words.into_iter().all(|word| {
                let wanted = if word.chars().all(char::is_alphabetic) {
                    format!("{label}=\"{word}\"")
                } else {
                    format!("{label}=\"")
                };
                samples.iter().any(|sample| sample.contains(&wanted))
            })
        })
}

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_exists() {
    let page = page();
    let alerts: Value = serde_saphyr::from_str(ALERTS).expect("YAML");
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut used = Vec::new();
    for (file, document, least) in [("alerts", alerts, 10), ("dashboard", dashboard, 10)] {
        let expressions = expressions(&document);
        assert!(expressions.len() >= least, "{file}: {expressions:?}");
        for expression in expressions {
            let metrics = metrics(&expression);
            assert!(!metrics.is_empty(), "{file}: {expression}");
            for (name, selector) in metrics {
                assert!(
                    exists(&page, &name, &selector),
                    "{file}: {name}{{{selector}}} in {expression}"
                );
                used.push(name);
            }
        }
    }
    for line in page.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap_or_default();
        assert!(
            used.iter().any(|used| used.starts_with(name)),
            "neither the dashboard nor an alert uses {name}"
        );
    }
}

#[test]
fn a_missing_metric_is_found() {
    let page = page();
    for (name, selector, expected) in [
        ("globalps_nodes", "phase=\"Failed\"", true),
        ("globalps_nodes", "phase=~\"Failed|RolledBack\"", true),
        ("globalps_nodes", "phase=~\"Failed|Broken\"", false),
        ("globalps_nodes", "node=\"Failed\"", false),
        ("globalps_node", "", false),
        ("globalps_api_requests_total", "code=~\"5..|error\"", true),
        ("globalps_rollout_duration_seconds", "", false),
        ("globalps_rollout_duration_seconds_bucket", "", true),
    ] {
        assert_eq!(
            exists(&page, name, selector),
            expected,
            "{name}{{{selector}}}"
        );
    }
}

#[test]
fn the_pod_monitor_finds_the_pods_of_the_manifest() {
    let monitor: Value = serde_saphyr::from_str(POD_MONITOR).expect("YAML");
    let manifest = globalps_manifests::Manifests::of_images("c", "s");
    let objects = manifest.objects();
    let deployment = objects
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .expect("a Deployment");
    let template = &deployment["spec"]["template"];
    assert_eq!(
        monitor["metadata"]["namespace"],
        deployment["metadata"]["namespace"]
    );
    assert_eq!(
        monitor["spec"]["selector"]["matchLabels"],
        template["metadata"]["labels"]
    );
    assert_eq!(
        monitor["spec"]["podMetricsEndpoints"][0]["port"],
        template["spec"]["containers"][0]["ports"][0]["name"]
    );
}
