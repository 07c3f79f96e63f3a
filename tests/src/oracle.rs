//! The kubelet's and containers/image's own code, behind a pipe.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::kubernetes;

/// A credentials file, and images to ask for.
#[derive(Clone)]
pub struct Case {
    pub config: Vec<u8>,
    pub images: Vec<String>,
}

/// User and password as bytes; neither need be text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
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
}

#[derive(Clone, Debug, Deserialize)]
pub struct Image {
    /// Empty: the name is refused.
    pub repository: String,
    /// In the kubelet's order.
    pub tries: Vec<Pair>,
    pub crio: Crio,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The kubelet reads the file.
    pub accepted: bool,
    /// One for each image of the case.
    pub images: Vec<Image>,
    #[serde(default)]
    pub panic: String,
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    BASE64_STANDARD
        .decode(text)
        .map_err(serde::de::Error::custom)
}

/// A running oracle; it ends when this is dropped.
pub struct Oracle {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    pub fn start() -> Result<Self> {
        let program = kubernetes::build_oracle()?;
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().map(BufWriter::new);
        let output = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Self {
            child,
            input,
            output,
        })
    }

    /// The answers to some cases, in their order. Few enough that the pipes hold a batch: some dozens.
    pub fn ask(&mut self, cases: &[Case]) -> Result<Vec<Answer>> {
        let input = self.input.as_mut().context("no pipe")?;
        for case in cases {
            let line =
                json!({"config": BASE64_STANDARD.encode(&case.config), "images": case.images});
            writeln!(input, "{line}")?;
        }
        input.flush()?;
        let mut answers = Vec::new();
        for _ in cases {
            let mut line = String::new();
            self.output.read_line(&mut line)?;
            ensure!(!line.is_empty(), "the oracle ended");
            answers.push(serde_json::from_str(&line)?);
        }
        Ok(answers)
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // At the end of its input it ends by itself, and takes its files along.
        self.input = None;
        let _ = self.child.wait();
    }
}
