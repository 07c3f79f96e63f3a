//! `explain`: which credentials go with an image, and why, from a file.

use globalps_core::dockerconfig::{
    Crio, Explanation, Finding, Secret, Try, explain, parse, shown_key, validate_bytes,
};
use serde_json::{Value, json};

use super::{read, validate};
use crate::cli::{Explain, TextFormat};
use crate::error::{Exit, Failure};
use crate::manifest::content;
use crate::printer::Printer;

pub(super) fn run(args: &Explain, printer: &Printer) -> Result<Exit, Failure> {
    let bytes = content(&read(&args.authfile)?)?;
    let (_, findings) = validate_bytes(&bytes);
    // Of a file that is none, a kubelet has as much as of an empty one.
    let parsed = parse(&bytes);
    let is_file = parsed.is_ok();
    let explanation = explain(&parsed.unwrap_or_default(), &args.image).map_err(|error| {
        Failure::new(
            format!("`{}` is no image's name: {error}", args.image),
            "write it as in a pod, for example `quay.io/org/app:1`",
        )
    })?;
    let explanation = Explanation {
        accepted: explanation.accepted && is_file,
        ..explanation
    };
    let crio = if is_file {
        explanation.crio.first().cloned().unwrap_or(Crio::None)
    } else {
        Crio::Error {
            key: String::new(),
            why: "the file is no credentials file",
        }
    };
    match args.output {
        TextFormat::Json => {
            let json = json(&args.image, &explanation, &crio, &findings);
            printer.data(&format!("{json:#}"));
        }
        TextFormat::Text => printer.data(text(&explanation, &crio, &findings).trim_end()),
    }
    Ok(if explanation.tries.is_empty() {
        Exit::No
    } else {
        Exit::Done
    })
}

fn json(image: &str, explanation: &Explanation, crio: &Crio, findings: &[Finding]) -> Value {
    let tries: Vec<Value> = explanation
        .tries
        .iter()
        .map(|found| json!({"key": shown_key(&found.key), "username": shown(&found.credential.username)}))
        .collect();
    let crio = match crio {
        Crio::Credential(Try { key, credential }) => {
            json!({"outcome": "credential", "key": shown_key(key), "username": shown(&credential.username)})
        }
        Crio::None => json!({"outcome": "none", "key": "", "username": ""}),
        Crio::Error { key, .. } => {
            json!({"outcome": "error", "key": shown_key(key), "username": ""})
        }
    };
    json!({
        "image": image,
        "repository": explanation.repository,
        "kubelet": {"accepted": explanation.accepted, "tries": tries},
        "crio": crio,
        "findings": findings,
    })
}

fn text(explanation: &Explanation, crio: &Crio, findings: &[Finding]) -> String {
    let mut lines = vec![format!("repository: {}", explanation.repository)];
    match (explanation.accepted, explanation.tries.as_slice()) {
        (false, _) => lines.push("kubelet:    ignores the whole file".to_owned()),
        (true, []) => lines.push("kubelet:    has no credential for it".to_owned()),
        (true, tries) => lines.extend(tries.iter().enumerate().map(|(at, found)| {
            let label = if at == 0 {
                "kubelet:   "
            } else {
                "  then:    "
            };
            format!(
                "{label} `{}`, as {}",
                shown_key(&found.key),
                shown(&found.credential.username)
            )
        })),
    }
    lines.push(match crio {
        Crio::Credential(found) => {
            format!(
                "CRI-O:      `{}`, as {}",
                shown_key(&found.key),
                shown(&found.credential.username)
            )
        }
        Crio::None => "CRI-O:      has no credential for it".to_owned(),
        Crio::Error { key, why } if key.is_empty() => format!("CRI-O:      fails: {why}"),
        Crio::Error { key, why } => {
            format!("CRI-O:      fails because of `{}`: {why}", shown_key(key))
        }
    });
    format!("{}\n{}", lines.join("\n"), validate::text(findings))
}

/// A user's name, which is no secret here: it is what tells two credentials apart.
fn shown(username: &Secret) -> String {
    String::from_utf8_lossy(username.expose()).into_owned()
}
