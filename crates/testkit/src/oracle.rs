//! The kubelet's and containers/image's own code, in a separate program behind a pipe.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::kubernetes;

/// Limit for one response, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// A credentials file, and images to look up.
#[derive(Clone, Debug)]
pub struct Case {
    pub config: Vec<u8>,
    pub images: Vec<String>,
}

/// User and password as bytes, which need not be UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Pair {
    #[serde(deserialize_with = "bytes")]
    pub username: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub password: Vec<u8>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Crio {
    /// `credential`, `none` or `error`.
    pub outcome: String,
    #[serde(flatten)]
    pub pair: Pair,
    #[serde(deserialize_with = "bytes")]
    pub identitytoken: Vec<u8>,
    /// The error, if the outcome is `error`.
    pub message: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Image {
    /// Empty: the kubelet rejects the name.
    pub repository: String,
    /// Credentials in the kubelet's order.
    pub tries: Vec<Pair>,
    /// The key of each try, as in the file.
    pub keys: Vec<String>,
    pub crio: Crio,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The kubelet accepts the file.
    pub accepted: bool,
    /// The entries that it reads, by the key in the file.
    pub auths: BTreeMap<String, Pair>,
    /// One for each image of the case.
    pub images: Vec<Image>,
    /// The panic message of the readers' own code; otherwise empty.
    #[serde(default)]
    pub panic: String,
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    BASE64_STANDARD
        .decode(text)
        .map_err(serde::de::Error::custom)
}

/// The program, which reads one question and writes one answer per line; it ends when this is dropped.
struct Pipe {
    child: Child,
    questions: Sender<String>,
    answers: Receiver<String>,
    /// Number of questions that are not answered yet.
    owed: usize,
}

impl Pipe {
    /// Builds the program if necessary, and starts it.
    fn start(arguments: &[&Path]) -> Result<Self> {
        let program = kubernetes::build_oracle()?;
        let mut child = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start `{}`", program.display()))?;
        let input = child.stdin.take().context("no pipe")?;
        let output = child.stdout.take().context("no pipe")?;
        // One thread per pipe, so that neither side blocks the other.
        let (questions, to_ask) = channel();
        let (answered, answers) = channel();
        thread::spawn(move || write_lines(input, &to_ask));
        thread::spawn(move || read_lines(output, &answered));
        Ok(Self {
            child,
            questions,
            answers,
            owed: 0,
        })
    }

    fn send(&mut self, questions: &[Value]) -> Result<()> {
        let lines = questions.iter().fold(String::new(), |lines, question| {
            lines + &format!("{question}\n")
        });
        self.questions.send(lines).context("the oracle exited")?;
        self.owed += questions.len();
        Ok(())
    }

    fn receive<T: DeserializeOwned>(&mut self, number: usize) -> Result<Vec<T>> {
        if number > self.owed {
            bail!("{number} answers to {} questions", self.owed);
        }
        (0..number).map(|_| self.answer()).collect()
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = match self.answers.recv_timeout(DEADLINE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                bail!("the oracle did not answer within {} s", DEADLINE.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the oracle exited"),
        };
        self.owed -= 1;
        serde_json::from_str(&line).context("the oracle's answer has an unknown format")
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // The program has no files of its own, and may hang in a question.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The readers of credentials files.
pub struct Oracle(Pipe);

impl Oracle {
    pub fn start() -> Result<Self> {
        Pipe::start(&[]).map(Self)
    }

    /// The answers for some cases, in order.
    pub fn ask(&mut self, cases: &[Case]) -> Result<Vec<Answer>> {
        self.send(cases)?;
        self.receive(cases.len())
    }

    /// Sends cases without waiting, so that the caller can do other work meanwhile.
    pub fn send(&mut self, cases: &[Case]) -> Result<()> {
        let question = |case: &Case| {
            let config = BASE64_STANDARD.encode(&case.config);
            json!({"config": config, "images": case.images})
        };
        let questions: Vec<Value> = cases.iter().map(question).collect();
        self.0.send(&questions)
    }

    /// The next answers, in the order of the questions.
    pub fn receive(&mut self, number: usize) -> Result<Vec<Answer>> {
        self.0.receive(number)
    }
}

/// A pull by a kubelet with credential providers.
#[derive(Clone, Debug)]
pub struct Pull {
    /// Content of the providers' file.
    pub data: Vec<u8>,
    pub image: String,
    pub namespace: String,
    /// Empty for a static pod.
    pub service_account: String,
    /// A token that replaces the pod's; empty if the API server issues none.
    pub token: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Offered {
    /// Empty: the kubelet rejects the name.
    pub repository: String,
    /// Credentials in the kubelet's order.
    pub tries: Vec<OfferedTry>,
    /// The panic message of the kubelet's own code; otherwise empty.
    #[serde(default)]
    pub panic: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct OfferedTry {
    #[serde(flatten)]
    pub pair: Pair,
    /// Whether it belongs to the service account, not to the node.
    pub scoped: bool,
}

/// A kubelet's credential providers, which are real programs.
pub struct Kubelet(Pipe);

impl Kubelet {
    /// `config`: the kubelet's configuration of providers. `programs`: their directory. `data`: the file that they
    /// read, which is rewritten for each pull.
    pub fn start(config: &Path, programs: &Path, data: &Path) -> Result<Self> {
        Pipe::start(&[config, programs, data]).map(Self)
    }

    /// The credentials that are tried for each pull; the pulls run one after the other.
    pub fn pull(&mut self, pulls: &[&Pull]) -> Result<Vec<Offered>> {
        let question = |pull: &&Pull| {
            json!({
                "data": BASE64_STANDARD.encode(&pull.data),
                "image": pull.image,
                "namespace": pull.namespace,
                "serviceAccount": pull.service_account,
                "token": pull.token,
            })
        };
        let questions: Vec<Value> = pulls.iter().map(question).collect();
        self.0.send(&questions)?;
        self.0.receive(pulls.len())
    }
}

fn write_lines(mut input: ChildStdin, lines: &Receiver<String>) {
    for lines in lines {
        // The reader of the other pipe, which ends too, reports the error.
        if input.write_all(lines.as_bytes()).is_err() {
            return;
        }
    }
}

fn read_lines(output: ChildStdout, lines: &Sender<String>) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { return };
        if lines.send(line).is_err() {
            return;
        }
    }
}
