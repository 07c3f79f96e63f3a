//! Runs the test programs of this package in parallel. A test mostly waits (for a Lease to expire, for a kubelet to
//! start, for ten seconds between two restarts), so parallel programs finish much sooner. The number of concurrent
//! programs depends on how busy the processors are, because tests have deadlines.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::kubernetes::{target_dir, workspace};
use crate::layout::INSTANCES;
use crate::map::{self, TestFile};
use crate::processors::Processors;

const POLL: Duration = Duration::from_millis(100);
/// A program is busiest when it starts its cluster, so the next one waits this long before it uses idle processors.
const PERIOD: Duration = Duration::from_secs(8);
/// Share of the processors' time that must be idle to start another program.
const IDLE: f64 = 0.15;
/// Concurrent clusters. Two numbers remain for clusters that are started by hand.
const CLUSTERS: u32 = INSTANCES as u32 - 2;

/// One test program that cargo built.
#[derive(Debug)]
pub struct Program {
    pub path: PathBuf,
    pub file: TestFile,
}

/// Result of one program.
#[derive(Debug)]
pub struct Outcome {
    pub name: &'static str,
    pub seconds: u64,
    pub passed: bool,
    log: PathBuf,
}

impl Outcome {
    fn print(&self, status: &str) -> Result<()> {
        println!("\n===== {}: {} s, {status}", self.name, self.seconds);
        std::io::copy(&mut File::open(&self.log)?, &mut std::io::stdout().lock())?;
        Ok(())
    }
}

/// Builds the test programs with cargo and returns those of the named files, or all that need no other project's program if
/// no file is named. The longest program comes first.
pub fn build(names: &[String]) -> Result<Vec<Program>> {
    for name in names {
        map::find(name)?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--workspace", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    let names: Vec<&str> = match names {
        [] => map::own().collect(),
        names => names.iter().map(String::as_str).collect(),
    };
    for name in names {
        command.args(["--test", name]);
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("could not run cargo")?;
    ensure!(output.status.success(), "the tests do not compile");
    let mut programs = programs(&String::from_utf8_lossy(&output.stdout))?;
    programs.sort_by_key(|program| std::cmp::Reverse(program.file.seconds));
    Ok(programs)
}

/// The test programs in cargo's messages.
fn programs(messages: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's message is not JSON")?;
        let target = &message["target"];
        let is_test = target["kind"] == serde_json::json!(["test"]);
        if let (true, Some(path)) = (is_test, message["executable"].as_str()) {
            programs.push(Program {
                path: path.into(),
                file: map::find(target["name"].as_str().unwrap_or_default())?,
            });
        }
    }
    Ok(programs)
}

/// Maximum load.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// However busy the processors are.
    pub busy: u32,
    /// While the processors are partly idle.
    pub idle: u32,
}

/// A running program.
struct Running {
    file: TestFile,
    child: Child,
    log: PathBuf,
    since: Instant,
}

/// Runs all programs, as many at a time as fit into `capacity`, and prints the whole output of each when it ends. Kills
/// a program that runs longer than `limit`; it counts as failed. `variables`: names and values of the programs' additional variables.
pub fn run(
    mut waiting: Vec<Program>,
    capacity: Capacity,
    limit: Duration,
    variables: &[(&str, &str)],
) -> Result<Vec<Outcome>> {
    let directory = target_dir().join("suite");
    fs::create_dir_all(&directory)?;
    let mut processors = Processors::new(PERIOD)?;
    let mut running: Vec<Running> = Vec::new();
    let mut outcomes = Vec::new();
    while !waiting.is_empty() || !running.is_empty() {
        let files: Vec<TestFile> = waiting.iter().map(|program| program.file).collect();
        let in_use: Vec<TestFile> = running.iter().map(|program| program.file).collect();
        let load = if processors.idle()? >= IDLE {
            capacity.idle
        } else {
            capacity.busy
        };
        if let Some(next) = next(&files, &in_use, load) {
            let program = waiting.remove(next);
            processors.restart()?;
            eprintln!("{} starts", program.file.name);
            running.push(Running::start(&program, &directory, variables)?);
            continue;
        }
        let mut still = Vec::new();
        for mut program in running {
            match program.end(limit)? {
                None => still.push(program),
                Some(status) => outcomes.push(program.report(status)?),
            }
        }
        running = still;
        sleep(POLL);
    }
    Ok(outcomes)
}

/// Index of the next program to start: the first that fits beside the running ones. A program that is larger than the
/// whole capacity runs alone. `capacity`: load.
fn next(waiting: &[TestFile], running: &[TestFile], capacity: u32) -> Option<usize> {
    let load: u32 = running.iter().map(TestFile::load).sum();
    let clusters: u32 = running.iter().map(TestFile::clusters).sum();
    waiting.iter().position(|file| {
        let fits = load + file.load() <= capacity && clusters + file.clusters() <= CLUSTERS;
        running.is_empty() || fits
    })
}

impl Running {
    fn start(program: &Program, directory: &Path, variables: &[(&str, &str)]) -> Result<Self> {
        let log = directory.join(format!("{}.log", program.file.name));
        let output = File::create(&log)?;
        // When this process ends, the test ends with it, and the test's clusters end with the test.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "SIGKILL", "--"])
            .arg(&program.path)
            .current_dir(workspace().join("tests"))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("could not run `setpriv`, which is part of util-linux")?;
        Ok(Self {
            file: program.file,
            child,
            log,
            since: Instant::now(),
        })
    }

    /// Exit status if the program has ended, or was killed at the time limit.
    fn end(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        if self.since.elapsed() > limit {
            eprintln!("killing {} after {} s", self.file.name, limit.as_secs_f32());
            self.child.kill()?;
            return Ok(Some(self.child.wait()?));
        }
        Ok(self.child.try_wait()?)
    }

    fn report(self, status: ExitStatus) -> Result<Outcome> {
        let seconds = self.since.elapsed().as_secs();
        let name = self.file.name;
        let outcome = Outcome {
            name,
            seconds,
            passed: status.success(),
            log: self.log,
        };
        outcome.print(&status.to_string())?;
        Ok(outcome)
    }
}

/// Prints the output of each failed program again, because a truncated log may only keep its end.
pub fn print_failed(outcomes: &[Outcome]) -> Result<()> {
    let mut failed = outcomes.iter().filter(|outcome| !outcome.passed);
    failed.try_for_each(|outcome| outcome.print("FAILED"))
}

/// Fails with an error that names the failed programs.
pub fn verdict(outcomes: &[Outcome]) -> Result<()> {
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| !outcome.passed)
        .map(|outcome| outcome.name)
        .collect();
    if outcomes.is_empty() {
        bail!("no test program ran");
    }
    if !failed.is_empty() {
        bail!(
            "{} of {} test programs failed: {}; their output is above and in `target/suite`",
            failed.len(),
            outcomes.len(),
            failed.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::On;

    #[test]
    fn programs_start_in_order_if_they_fit_and_large_ones_run_alone() {
        // The loads are 1, 2, 4, 6 and 9.
        let [api, one, three, five, eight] = [0, 1, 3, 5, 8].map(|nodes| on(On::Nodes(nodes)));
        for (case, waiting, running, expected) in [
            ("nothing waits", &[][..], &[][..], None),
            ("the first fits", &[three, api], &[], Some(0)),
            ("exactly", &[three], &[three], Some(0)),
            ("the second does", &[five, one], &[three], Some(1)),
            ("none does", &[five, five], &[three], None),
            ("larger than everything, alone", &[eight], &[], Some(0)),
            ("larger, with another one running", &[eight], &[api], None),
        ] {
            assert_eq!(next(waiting, running, 8), expected, "{case}");
        }
    }

    #[test]
    fn programs_wait_until_their_clusters_have_numbers() {
        let running = [on(On::Clusters(4, 0)); 3];
        let waiting = [on(On::Clusters(3, 0)), on(On::TwoClusters(0))];
        assert_eq!(next(&waiting, &running, 100), Some(1));
        assert_eq!(next(&waiting[..1], &running, 100), None);
    }

    fn on(on: On) -> TestFile {
        TestFile {
            on,
            ..map::FILES[0]
        }
    }

    #[test]
    fn one_failure_or_no_test_at_all_is_a_failure() {
        let outcome = |name, passed| Outcome {
            name,
            seconds: 1,
            passed,
            log: PathBuf::new(),
        };
        verdict(&[outcome("flow", true)]).unwrap();
        verdict(&[]).unwrap_err();
        let failed = verdict(&[outcome("flow", true), outcome("leader", false)]).unwrap_err();
        let text = failed.to_string();
        assert!(
            text.starts_with("1 of 2 test programs failed: leader;"),
            "{text}"
        );
    }

    #[test]
    fn only_test_programs_are_taken_from_what_cargo_says() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"flow"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"flow"},"executable":"/bin/flow"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"flow"},"executable":"/deps/flow-1"}
{"reason":"build-finished","success":true}"#;
        let found = programs(messages).unwrap();
        let paths: Vec<_> = found.iter().map(|program| program.path.clone()).collect();
        assert_eq!(paths, [PathBuf::from("/deps/flow-1")]);
        let unknown = messages.replace("\"flow\"", "\"unknown\"");
        let error = programs(&unknown).unwrap_err();
        assert!(
            format!("{error:#}").contains("testkit/src/map.rs"),
            "{error:#}"
        );
    }
}
