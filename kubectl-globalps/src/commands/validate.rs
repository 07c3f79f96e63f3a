//! `validate`: checks a credentials file as nodes would, without a cluster.

use std::io::IsTerminal as _;
use std::path::Path;

use globalps_dockerconfig::{Finding, parse, shown_key, validate_bytes};
use serde_json::{Value, json};

use crate::cli::Validate;
use crate::credentials::file::read;
use crate::credentials::manifest::{CredentialsDocument, contents};
use crate::error::{Exit, Result};
use crate::secret::findings;
use crate::terminal::printer::Printer;

/// The findings of one Secret, or of the file.
struct SecretFindings {
    secret: Option<String>,
    registries: Vec<String>,
    findings: Vec<Finding>,
}

/// A message before reading; `is_terminal`: of stdin.
fn announcement(file: &Path, is_terminal: bool) -> Option<String> {
    let end = if cfg!(windows) {
        "Ctrl-Z and Enter"
    } else {
        "Ctrl-D"
    };
    let waits = file == Path::new("-") && is_terminal;
    waits.then(|| {
        format!(
            "reading a config.json or a Secret manifest from stdin; {end} on an empty line ends it"
        )
    })
}

pub(super) fn run(args: &Validate, printer: &Printer) -> Result<Exit> {
    let file = args.filename.as_ref().unwrap_or(&args.file);
    if let Some(text) = announcement(file, std::io::stdin().is_terminal()) {
        printer.note(text);
    }
    let verdicts: Vec<SecretFindings> = contents(&read(file)?)?
        .into_iter()
        .map(SecretFindings::new)
        .collect();
    printer.print(&args.output, ("the findings", &json(&verdicts)), [], || {
        let name = verdicts.len() > 1;
        let lines: Vec<String> = verdicts.iter().map(|verdict| verdict.text(name)).collect();
        printer.data(&lines.join("\n"));
    })?;
    Ok(Exit::of(verdicts.iter().all(SecretFindings::is_valid)))
}

impl SecretFindings {
    fn new(content: CredentialsDocument) -> Self {
        let registries = parse(&content.bytes).map(|config| {
            let entries = config.entries().iter();
            entries.map(|entry| shown_key(entry.key())).collect()
        });
        Self {
            secret: content.secret,
            registries: registries.unwrap_or_default(),
            findings: validate_bytes(&content.bytes).1,
        }
    }

    fn is_valid(&self) -> bool {
        !self.findings.iter().any(Finding::is_error)
    }

    fn text(&self, name: bool) -> String {
        let findings = findings::text(&self.findings);
        let verdict = if self.is_valid() {
            "valid"
        } else {
            "not valid"
        };
        let registries = match self.registries.len() {
            1 => "1 registry".to_owned(),
            number => format!("{number} registries"),
        };
        match self.secret.as_ref().filter(|_| name) {
            Some(secret) => format!("Secret `{secret}`:\n{findings}{verdict}: {registries}"),
            None => format!("{findings}{verdict}: {registries}"),
        }
    }
}

/// All Secrets together; each finding with the name of its Secret, if it has one.
fn json(verdicts: &[SecretFindings]) -> Value {
    let finding = |secret: &Option<String>, finding: &Finding| {
        let mut finding = json!(finding);
        if let Some(secret) = secret {
            finding["secret"] = json!(secret);
        }
        finding
    };
    let findings: Vec<Value> = verdicts
        .iter()
        .flat_map(|verdict| verdict.findings.iter().map(|f| finding(&verdict.secret, f)))
        .collect();
    let registries: Vec<&String> = verdicts.iter().flat_map(|v| &v.registries).collect();
    let valid = verdicts.iter().all(SecretFindings::is_valid);
    json!({"valid": valid, "registries": registries, "findings": findings})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_that_is_waited_for_gets_an_announcement() {
        for (file, is_terminal, expected) in [
            ("-", true, true),
            ("-", false, false),
            ("config.json", true, false),
        ] {
            let text = announcement(Path::new(file), is_terminal);
            assert_eq!(text.is_some(), expected, "{file} {is_terminal}");
            assert!(text.is_none_or(|text| text.contains("stdin") && text.contains("Ctrl-")));
        }
    }
}
