//! Kills a program at a chosen write: the API server calls a webhook before each write, and the webhook kills the
//! program. A server that the test simulates can do the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use crate::fleet::stage::{CONTROLLER_NAMESPACE, Stage};
use crate::process::kill;
use crate::rights::service_account;
use crate::webhook::Webhook;

const NAME: &str = "gate";
/// Maximum time until an admitted write is stored.
const STORED: Duration = Duration::from_millis(30);
/// After this time without a write, the program counts as finished.
const QUIET: Duration = Duration::from_millis(200);

#[derive(Default)]
struct State {
    /// The program, and the number of further writes before it is killed; `None`: it is not killed.
    victim: Option<(u32, usize)>,
    /// Whether to reject every later write of the killed program.
    is_dead: bool,
    /// The admitted writes, as `UPDATE secrets team-a/global-pull-secret`, with the subresource if there is one.
    writes: Vec<String>,
    last: Option<Instant>,
}

impl State {
    /// Whether the write is admitted.
    fn admits(&mut self, write: String) -> bool {
        if !self.is_dead && self.victim.is_some_and(|(_, left)| left == 0) {
            sleep(STORED);
            self.is_dead = true;
            if let Some((pid, _)) = self.victim.take() {
                kill(pid);
            }
        }
        if self.is_dead {
            return false;
        }
        if let Some((_, left)) = &mut self.victim {
            *left -= 1;
        }
        self.writes.push(write);
        self.last = Some(Instant::now());
        true
    }
}

/// From the `request` of an `AdmissionReview`.
fn write_of(request: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (operation, resource) = (&request["operation"], &request["resource"]["resource"]);
    let (operation, resource) = (text(operation), text(resource));
    let (namespace, name) = (text(&request["namespace"]), text(&request["name"]));
    let part = text(&request["subResource"]);
    format!("{operation} {resource} {namespace}/{name} {part}")
}

pub(super) struct Gate {
    /// Runs until this value is dropped.
    _webhook: Webhook,
    state: Arc<Mutex<State>>,
}

impl Gate {
    /// A gate for every write of this program's service account that the webhook's `rules` match.
    pub(super) fn new(stage: &Stage, program: &str, rules: &Value) -> Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let decides = Arc::clone(&state);
        let webhook = Webhook::start(move |request| {
            let is_admitted = lock(&decides).admits(write_of(request));
            (!is_admitted).then(|| "the writer is dead".to_owned())
        })?;
        let user = service_account(CONTROLLER_NAMESPACE, program);
        let condition = format!("request.userInfo.username == '{user}'");
        let about = json!({
            "rules": rules, "matchConditions": [{"name": "user", "expression": condition}],
        });
        stage.apply(webhook.configuration(NAME, &about))?;
        Ok(Self {
            _webhook: webhook,
            state,
        })
    }

    /// A function that decides on writes to other servers.
    pub(super) fn admission(&self) -> impl Fn(String) -> bool + Send + Sync + use<> {
        let state = Arc::clone(&self.state);
        move |write| lock(&state).admits(write)
    }

    /// Kills the program at the next write after this many.
    pub(super) fn kill_after(&self, writes: usize, pid: u32) {
        *lock(&self.state) = State {
            victim: Some((pid, writes)),
            ..State::default()
        };
    }

    /// Admits every write again, and kills no program.
    pub(super) fn open(&self) {
        let mut state = lock(&self.state);
        (state.victim, state.is_dead) = (None, false);
    }

    pub(super) fn has_killed(&self) -> bool {
        lock(&self.state).is_dead
    }

    /// Whether there was no write for a while.
    pub(super) fn is_quiet(&self) -> bool {
        let last = lock(&self.state).last;
        last.is_none_or(|last| last.elapsed() >= QUIET)
    }

    pub(super) fn writes(&self) -> Vec<String> {
        lock(&self.state).writes.clone()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
