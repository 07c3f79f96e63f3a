//! Kills a controller at a write of its choice: the API server asks a webhook before each one, and the webhook does it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use crate::fleet::stage::Stage;
use crate::process::kill;
use crate::webhook::Webhook;

const NAME: &str = "gate";
const USER: &str = "system:serviceaccount:globalps-system:globalps-controller";
/// Writes that were let through before are stored within this time.
const STORED: Duration = Duration::from_millis(30);
/// Without a write for so long, the controller has written all.
const QUIET: Duration = Duration::from_millis(200);

#[derive(Default)]
struct State {
    /// The controller and how many more writes it lives for; `None`: nobody is killed.
    victim: Option<(u32, usize)>,
    /// Nothing of the dead one is let through.
    is_dead: bool,
    /// Writes that were let through, as `UPDATE secrets team-a/global-pull-secret`, and the part of it if it is one.
    writes: Vec<String>,
    last: Option<Instant>,
}

impl State {
    fn decide(&mut self, request: &Value) -> Option<String> {
        if !self.is_dead && self.victim.is_some_and(|(_, left)| left == 0) {
            sleep(STORED);
            self.is_dead = true;
            if let Some((pid, _)) = self.victim.take() {
                kill(pid);
            }
        }
        if self.is_dead {
            return Some("its writer is dead".to_owned());
        }
        if let Some((_, left)) = &mut self.victim {
            *left -= 1;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (operation, resource) = (&request["operation"], &request["resource"]["resource"]);
        let (operation, resource) = (text(operation), text(resource));
        let (namespace, name) = (text(&request["namespace"]), text(&request["name"]));
        let part = text(&request["subResource"]);
        self.writes
            .push(format!("{operation} {resource} {namespace}/{name} {part}"));
        self.last = Some(Instant::now());
        None
    }
}

pub(super) struct Gate {
    /// It answers for as long as this is there.
    _webhook: Webhook,
    state: Arc<Mutex<State>>,
}

impl Gate {
    /// For every write of Secrets, service accounts and the configuration by the controller.
    pub(super) fn new(stage: &Stage) -> Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let decides = Arc::clone(&state);
        let webhook = Webhook::start(move |request| lock(&decides).decide(request))?;
        let operations = ["CREATE", "UPDATE", "DELETE"];
        let rules = json!({
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets", "serviceaccounts"],
                    "operations": operations},
                {"apiGroups": ["globalps.io"], "apiVersions": ["*"],
                    "resources": ["globalpullsecrets", "globalpullsecrets/status"], "operations": operations},
            ],
            "matchConditions": [{"name": "user", "expression": format!("request.userInfo.username == '{USER}'")}],
        });
        stage.apply(&webhook.configuration(NAME, &rules).to_string())?;
        Ok(Self {
            _webhook: webhook,
            state,
        })
    }

    /// The controller is killed at the write that comes after so many others.
    pub(super) fn kill_after(&self, writes: usize, pid: u32) {
        *lock(&self.state) = State {
            victim: Some((pid, writes)),
            ..State::default()
        };
    }

    /// Everything is let through again, and nobody is killed.
    pub(super) fn open(&self) {
        let mut state = lock(&self.state);
        (state.victim, state.is_dead) = (None, false);
    }

    pub(super) fn has_killed(&self) -> bool {
        lock(&self.state).is_dead
    }

    /// Nothing was written for a while.
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
