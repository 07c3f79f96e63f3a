//! Other programs that write `openshift-config/pull-secret`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fastrand::Rng;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::document::{Document, Edit};
use super::ledger::{Ledger, text_of};

const ADMIN: &str = "admin.example.com";
const GUEST: &str = "z-guest.example.com";
const OPERATOR: &str = "weu.arosvc.azurecr.io";
const OF_OPERATOR: &str = "{ \"auth\": \"b3BlcmF0b3I6cA==\" }";
/// As often as the operator looks.
const REPAIRS: Duration = Duration::from_secs(2);

/// Some of them. They end between two writes.
pub(super) struct Writers {
    ends: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Who loses what others have written meanwhile.
    pub(super) fn careless(ledger: &Ledger, seed: u64) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let random = Rng::with_seed(seed);
        let tasks = vec![tokio::spawn(admin(
            ledger.clone(),
            random,
            Arc::clone(&ends),
        ))];
        Self { ends, tasks }
    }

    /// Who look at the version.
    pub(super) fn careful(ledger: &Ledger, seed: u64) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let random = Rng::with_seed(seed);
        let tasks = vec![
            tokio::spawn(guest(ledger.clone(), random, Arc::clone(&ends))),
            tokio::spawn(operator(ledger.clone(), Arc::clone(&ends))),
        ];
        Self { ends, tasks }
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.ends.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await?;
        }
        Ok(())
    }
}

fn moment(random: &mut Rng, least: u64, most: u64) -> Duration {
    Duration::from_millis(random.u64(least..=most))
}

async fn write_again(ends: &AtomicBool, pause: Duration) -> bool {
    sleep(pause).await;
    !ends.load(Ordering::Relaxed)
}

/// Reads the whole, changes something, and writes the whole up to 2 seconds later, whatever has been written meanwhile.
async fn admin(ledger: Ledger, mut random: Rng, ends: Arc<AtomicBool>) {
    let mut number = 0;
    while write_again(&ends, moment(&mut random, 500, 5000)).await {
        number += 1;
        if let Err(error) = admin_once(&ledger, &mut random, number).await {
            eprintln!("the administrator: {error:#}");
        }
    }
}

async fn admin_once(ledger: &Ledger, random: &mut Rng, number: u32) -> Result<()> {
    let read = ledger.read().await?;
    let own = Edit::Put {
        key: ADMIN,
        value: format!(
            "{{\"auth\":\"{}\" }}",
            BASE64_STANDARD.encode(format!("admin:{number}"))
        ),
        separator: ",",
    };
    let edits = match random.u8(0..10) {
        0..4 => vec![own],
        4 => vec![Edit::Remove(ADMIN)],
        5 => vec![own, Edit::Render { is_pretty: true }],
        6 => vec![own, Edit::Render { is_pretty: false }],
        7 => vec![own, Edit::Remove(OPERATOR)],
        8 => vec![],
        _ => vec![Edit::Break],
    };
    let breaks = matches!(edits[..], [Edit::Break]);
    sleep(moment(random, 0, 2000)).await;
    ledger.write(&read, edits, false).await?;
    if breaks {
        // The earlier copy is restored.
        sleep(moment(random, 300, 2000)).await;
        ledger.write(&read, Vec::new(), false).await?;
    }
    Ok(())
}

/// Repairs its own entry.
async fn operator(ledger: Ledger, ends: Arc<AtomicBool>) {
    while write_again(&ends, REPAIRS).await {
        if let Err(error) = repair(&ledger).await {
            eprintln!("the operator: {error:#}");
        }
    }
}

async fn repair(ledger: &Ledger) -> Result<()> {
    let read = ledger.read().await?;
    let Some(document) = Document::parse(&text_of(&read)) else {
        return Ok(());
    };
    if document.value(OPERATOR) == Some(OF_OPERATOR) {
        return Ok(());
    }
    let edit = Edit::Put {
        key: OPERATOR,
        value: OF_OPERATOR.to_owned(),
        separator: ", ",
    };
    ledger.write(&read, vec![edit], true).await?;
    Ok(())
}

/// Adds an entry of its own and removes it again.
async fn guest(ledger: Ledger, mut random: Rng, ends: Arc<AtomicBool>) {
    while write_again(&ends, moment(&mut random, 300, 4000)).await {
        if let Err(error) = come_or_go(&ledger, &mut random).await {
            eprintln!("the guest: {error:#}");
        }
    }
}

async fn come_or_go(ledger: &Ledger, random: &mut Rng) -> Result<()> {
    let read = ledger.read().await?;
    let Some(document) = Document::parse(&text_of(&read)) else {
        return Ok(());
    };
    let edit = if document.value(GUEST).is_some() {
        Edit::Remove(GUEST)
    } else {
        Edit::Put {
            key: GUEST,
            value: format!(
                "{{  \"email\" : \"guest-{}@example.com\",\n\t\"auth\":\"Z3Vlc3Q6cA==\" }}",
                random.u8(..)
            ),
            separator: "\n ,\t",
        }
    };
    ledger.write(&read, vec![edit], true).await?;
    Ok(())
}
