//! The process of a program that runs in a pod: its log, and the signals that stop it.

use std::io;

use clap::ValueEnum;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, registry};

#[derive(Clone, Copy, ValueEnum)]
#[expect(missing_docs, reason = "clap would print it as help")]
pub enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    /// Starts the log of the program with this crate's name. No other crate logs to it: kube's client would log the whole body of a
    /// response that it can't decode.
    pub fn start(self, program: &'static str) {
        let level = tracing::Level::INFO;
        let filter =
            Targets::new().with_targets([(program, level), (env!("CARGO_CRATE_NAME"), level)]);
        let log = tracing_subscriber::fmt::layer().with_writer(io::stderr);
        match self {
            Self::Text => registry()
                .with(log.with_ansi(false).with_filter(filter))
                .init(),
            Self::Json => registry()
                .with(log.json().flatten_event(true).with_filter(filter))
                .init(),
        }
    }
}

/// The signals that stop a program.
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Installs handlers, after which the signals no longer kill the process. Fails if the system refuses a handler.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Until the first SIGTERM or SIGINT.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
