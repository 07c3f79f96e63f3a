//! The kubelet's and containers/image's own code, behind a pipe.

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

/// For one answer, on a machine that has much else to do.
const DEADLINE: Duration = Duration::from_secs(30);

/// A credentials file, and images to ask for.
#[derive(Clone, Debug)]
pub struct Case {
    pub config: Vec<u8>,
    pub images: Vec<String>,
}

/// User and password as bytes; neither need be text.
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
    /// Why, where the outcome is `error`.
    pub message: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Image {
    /// Empty: the kubelet refuses the name.
    pub repository: String,
    /// In the kubelet's order.
    pub tries: Vec<Pair>,
    /// The key of each try, as it is in the file.
    pub keys: Vec<String>,
    pub crio: Crio,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The kubelet reads the file.
    pub accepted: bool,
    /// What it reads, by key as it is in the file.
    pub auths: BTreeMap<String, Pair>,
    /// One for each image of the case.
    pub images: Vec<Image>,
    /// Why the readers' own code panicked; else empty.
    #[serde(default)]
    pub panic: String,
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    BASE64_STANDARD
        .decode(text)
        .map_err(serde::de::Error::custom)
}

/// The program with a question and an answer a line; it ends when this is dropped.
struct Pipe {
    child: Child,
    questions: Sender<String>,
    answers: Receiver<String>,
    /// Asked and not answered yet.
    owed: usize,
}

impl Pipe {
    /// Builds the program where that is needed, and starts it.
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
        // A thread for each pipe, so that neither side ever waits for the other to read.
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
        self.questions.send(lines).context("the oracle ended")?;
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
            Err(RecvTimeoutError::Disconnected) => bail!("the oracle ended"),
        };
        self.owed -= 1;
        serde_json::from_str(&line).context("the oracle's answer is of another form")
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // It has no files of its own, and may be at a question that it never ends with.
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

    /// The answers to some cases, in their order.
    pub fn ask(&mut self, cases: &[Case]) -> Result<Vec<Answer>> {
        self.send(cases)?;
        self.receive(cases.len())
    }

    /// Asks without waiting: other work can be done meanwhile.
    pub fn send(&mut self, cases: &[Case]) -> Result<()> {
        let question = |case: &Case| {
            let config = BASE64_STANDARD.encode(&case.config);
            json!({"config": config, "images": case.images})
        };
        let questions: Vec<Value> = cases.iter().map(question).collect();
        self.0.send(&questions)
    }

    /// The next answers to what was sent, in its order.
    pub fn receive(&mut self, number: usize) -> Result<Vec<Answer>> {
        self.0.receive(number)
    }
}

/// A pull by a kubelet that is configured with credential providers.
#[derive(Clone, Debug)]
pub struct Pull {
    /// What the providers' file holds.
    pub data: Vec<u8>,
    pub image: String,
    pub namespace: String,
    /// Empty: a static pod.
    pub service_account: String,
    /// Another token than the pod's; empty: the API server grants none.
    pub token: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Offered {
    /// Empty: the kubelet refuses the name.
    pub repository: String,
    /// In the kubelet's order.
    pub tries: Vec<OfferedTry>,
    /// Why the kubelet's own code panicked; else empty.
    #[serde(default)]
    pub panic: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct OfferedTry {
    #[serde(flatten)]
    pub pair: Pair,
    /// It counts as the service account's, not as the node's.
    pub scoped: bool,
}

/// A kubelet's credential providers, which are real programs.
pub struct Kubelet(Pipe);

impl Kubelet {
    /// `config`: the kubelet's configuration of providers. `programs`: where they lie. `data`: the file that they read,
    /// which is written anew for each pull.
    pub fn start(config: &Path, programs: &Path, data: &Path) -> Result<Self> {
        Pipe::start(&[config, programs, data]).map(Self)
    }

    /// What is tried for each pull, one pull after the other.
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
        // Who waits for the answer is told by the other pipe, which ends too.
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
