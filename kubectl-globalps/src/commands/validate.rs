//! `validate`: what nodes would make of a credentials file, without a cluster.

use globalps_core::dockerconfig::{Entry, Finding, parse, validate_bytes};
use serde_json::json;

use super::read;
use crate::changes::content;
use crate::cli::{TextFormat, Validate};
use crate::error::{Exit, Failure};
use crate::printer::Printer;

pub(super) fn run(args: &Validate, printer: &Printer) -> Result<Exit, Failure> {
    let bytes = content(&read(&args.file)?)?;
    let (_, findings) = validate_bytes(&bytes);
    let valid = !findings.iter().any(Finding::is_error);
    let registries: Vec<String> = parse(&bytes)
        .map(|config| {
            config
                .entries()
                .iter()
                .map(Entry::key)
                .map(str::to_owned)
                .collect()
        })
        .unwrap_or_default();
    match args.output {
        TextFormat::Json => {
            let json = json!({"valid": valid, "registries": registries, "findings": findings});
            printer.data(&format!("{json:#}"));
        }
        TextFormat::Text => {
            let text = text(&findings);
            let verdict = if valid { "valid" } else { "not valid" };
            let count = match registries.len() {
                1 => "1 registry".to_owned(),
                number => format!("{number} registries"),
            };
            printer.data(&format!("{text}{verdict}: {count}"));
        }
    }
    Ok(if valid { Exit::Done } else { Exit::No })
}

/// One finding after the other, each with its way out.
pub(super) fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let severity = if finding.is_error() {
            "error"
        } else {
            "warning"
        };
        [
            format!("{severity}: {finding}\n"),
            format!("  hint: {}\n", finding.hint),
        ]
    };
    findings.iter().flat_map(line).collect()
}
