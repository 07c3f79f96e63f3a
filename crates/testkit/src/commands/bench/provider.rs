//! Measures how long a pull waits for the credential provider. Runs the shipped program and `/bin/true` alternately, so
//! that load on the machine affects both.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::product::provider_path;
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use globalps_dockerconfig::{DockerConfig, parse};
use globalps_provider::{API_VERSION, Content, Scope, ScopedConfig, render_data};
use serde_json::{Map, Value, json};

#[derive(clap::Args)]
pub struct Args {
    /// Runs of each program
    #[arg(long, env, default_value_t = 500)]
    runs: usize,
}

/// A program, its input, and its time limit.
struct Case {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    input: Vec<u8>,
    /// Limit of the median; `None`: the program is the baseline.
    limit: Option<Duration>,
    /// Text that the output of every run must contain.
    expected: &'static str,
    times: Vec<Duration>,
}

pub fn run(args: &Args) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut cases = cases(dir.path())?;
    for _ in 0..args.runs {
        for case in &mut cases {
            case.times.push(time(case)?);
        }
    }
    println!("{} runs of each, in turn; milliseconds", args.runs);
    println!("{:<42} {:>7} {:>7} {:>7}", "", "median", "95 %", "goal");
    let mut is_fast = true;
    for case in &mut cases {
        case.times.sort();
        let at = |percent: usize| case.times[(case.times.len() - 1) * percent / 100];
        let goal = case.limit.map_or(String::new(), milliseconds);
        let (median, high) = (milliseconds(at(50)), milliseconds(at(95)));
        println!("{:<42} {median:>7} {high:>7} {goal:>7}", case.name);
        is_fast &= case.limit.is_none_or(|limit| at(50) <= limit);
    }
    ensure!(is_fast, "a median is above its goal");
    Ok(())
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1000.0)
}

fn cases(dir: &Path) -> Result<Vec<Case>> {
    let program = provider_path();
    ensure!(
        program.exists(),
        "`{}` is missing: run `make bench-provider`",
        program.display()
    );
    let all = |entries| Content {
        config: config(entries),
        ..Content::default()
    };
    let scoped = |entries: usize| {
        let source = |at: usize| ScopedConfig {
            source: format!("team-{at}-pull-secret"),
            scope: Scope {
                namespaces: format!("team-{at}-*").try_into().into_iter().collect(),
                service_accounts: Vec::new(),
            },
            config: config(10),
        };
        Content {
            scoped: (0..entries / 10).map(source).collect(),
            ..Content::default()
        }
    };
    let mut cases = vec![Case {
        name: "/bin/true",
        program: "/bin/true".into(),
        arguments: Vec::new(),
        input: request(),
        limit: None,
        expected: "",
        times: Vec::new(),
    }];
    for (name, file, content, milliseconds) in [
        ("10 entries", "few", all(10), 3),
        ("5,000 entries", "many", all(5_000), 5),
        ("10 entries with a scope", "few-scoped", scoped(10), 3),
        (
            "5,000 entries in 500 scopes",
            "many-scoped",
            scoped(5_000),
            5,
        ),
    ] {
        let path = dir.join(file);
        std::fs::write(&path, render_data(1, &content))?;
        let mut arguments = vec![format!("--data={}", path.display())];
        arguments.extend((!content.scoped.is_empty()).then(|| "--scoped".to_owned()));
        cases.push(Case {
            name,
            program: program.clone(),
            arguments,
            input: request(),
            limit: Some(Duration::from_millis(milliseconds)),
            expected: r#""username":"robot-7""#,
            times: Vec::new(),
        });
    }
    Ok(cases)
}

/// Realistic entries: a host with a path, and a token as the password.
fn config(entries: usize) -> DockerConfig {
    let auths: Map<String, Value> = (0..entries)
        .map(|at| {
            let pair = format!("robot-{at}:{}", "0123456789".repeat(6));
            let auth = BASE64_STANDARD.encode(pair);
            (
                format!("registry-{at}.example.com/team"),
                json!({"auth": auth}),
            )
        })
        .collect();
    let text = json!({"auths": auths}).to_string();
    parse(text.as_bytes()).unwrap_or_default()
}

fn request() -> Vec<u8> {
    let claims =
        json!({"kubernetes.io": {"namespace": "team-0-a", "serviceaccount": {"name": "ci"}}});
    let part = |text: String| BASE64_URL_SAFE_NO_PAD.encode(text);
    let token = [
        r#"{"alg":"RS256"}"#.to_owned(),
        claims.to_string(),
        "s".repeat(256),
    ]
    .map(part);
    let request = json!({
        "apiVersion": API_VERSION,
        "kind": "CredentialProviderRequest",
        "image": "registry-7.example.com/team/app",
        "serviceAccountToken": token.join("."),
    });
    request.to_string().into_bytes()
}

fn time(case: &Case) -> Result<Duration> {
    let start = Instant::now();
    let mut child = Command::new(&case.program)
        .args(&case.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .with_context(|| format!("could not start `{}`", case.program.display()))?;
    let mut input = child.stdin.take().context("no pipe")?;
    // `true` exits without reading its input.
    let _ = input.write_all(&case.input);
    drop(input);
    let output = child.wait_with_output()?;
    let time = start.elapsed();
    ensure!(output.status.success(), "{}: {}", case.name, output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        text.contains(case.expected),
        "{}: no credentials",
        case.name
    );
    Ok(time)
}
