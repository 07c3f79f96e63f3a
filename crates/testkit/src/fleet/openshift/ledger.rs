//! Who has written which version of `openshift-config/pull-secret`, and what it would be without globalps: the same edits of others,
//! applied to a text that globalps has never seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, pin_mut};
use globalps_core::names::{DATA_KEY, OPENSHIFT_ORIGINAL};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::document::{Edit, Keys, problem};
use crate::fleet::observed::content_of;

/// The one Secret.
pub(super) fn api(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), OPENSHIFT_ORIGINAL.0)
}

pub(super) fn text_of(secret: &Secret) -> String {
    String::from_utf8_lossy(&content_of(secret)).into_owned()
}

/// What the watch has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Chronicle {
    /// The newest version, and the text without globalps.
    pub(super) newest: String,
    pub(super) without_us: String,
    /// It is byte by byte what it is without globalps.
    pub(super) is_as_without_us: bool,
    /// Of others, and of globalps.
    pub(super) versions: (usize, usize),
    pub(super) problems: Vec<String>,
}

#[derive(Default)]
struct State {
    /// The edits of others by the version that they made, with the version that they had read.
    edits: BTreeMap<String, (String, Vec<Edit>)>,
    /// By version.
    without_us: BTreeMap<String, String>,
    chronicle: Chronicle,
}

/// Shared by the writers and the watch. Locked during each write, so that the watch knows its author.
#[derive(Clone)]
pub(super) struct Ledger {
    api: Api<Secret>,
    state: Arc<Mutex<State>>,
    keys: Keys,
}

impl Ledger {
    pub(super) fn new(client: &Client, keys: Keys) -> Self {
        Self {
            api: api(client),
            state: Arc::default(),
            keys,
        }
    }

    pub(super) async fn read(&self) -> Result<Secret> {
        Ok(self.api.get(OPENSHIFT_ORIGINAL.1).await?)
    }

    /// Writes the whole Secret that was read, with these edits. `is_careful`: not if it has changed since. Returns whether it was
    /// written.
    pub(super) async fn write(
        &self,
        read: &Secret,
        edits: Vec<Edit>,
        is_careful: bool,
    ) -> Result<bool> {
        let mut secret = read.clone();
        let text = text_of(read);
        let text = edits.iter().fold(text, |text, edit| edit.apply(&text));
        let data = (DATA_KEY.to_owned(), ByteString(text.into_bytes()));
        secret.data = Some([data].into());
        secret.metadata.managed_fields = None;
        let base = read.resource_version().unwrap_or_default();
        if !is_careful {
            secret.metadata.resource_version = None;
        }
        let mut state = self.state.lock().await;
        let params = PostParams::default();
        match self.api.replace(&read.name_any(), &params, &secret).await {
            Ok(stored) => {
                let version = stored.resource_version().unwrap_or_default();
                // A write that changes nothing makes no version.
                if version != base {
                    state.edits.entry(version).or_insert((base, edits));
                }
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn chronicle(&self) -> Chronicle {
        self.state.lock().await.chronicle.clone()
    }

    /// Judges each version. Ends only with an error, which is among the problems.
    pub(super) async fn watch(self, first: Secret) {
        if let Err(error) = self.follow(first).await {
            let line = format!("the watch has ended: {error:#}");
            self.state.lock().await.chronicle.problems.push(line);
        }
    }

    async fn follow(&self, first: Secret) -> Result<()> {
        let mut version = first.resource_version().context("a version")?;
        let text = text_of(&first);
        {
            let mut state = self.state.lock().await;
            state.without_us.insert(version.clone(), text.clone());
            state.chronicle.newest.clone_from(&version);
            state.chronicle.without_us = text;
        }
        let named = format!("metadata.name={}", OPENSHIFT_ORIGINAL.1);
        let params = WatchParams::default().fields(&named).timeout(290);
        loop {
            let events = self.api.watch(&params, &version).await?;
            pin_mut!(events);
            while let Some(event) = events.next().await {
                match event? {
                    WatchEvent::Modified(secret) => {
                        version = secret.resource_version().unwrap_or_default();
                        self.judge(&version, &text_of(&secret)).await?;
                    }
                    WatchEvent::Bookmark(_) => {}
                    other => bail!("unexpected: {other:?}"),
                }
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn judge(&self, version: &str, text: &str) -> Result<()> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let is_others = state.edits.contains_key(version);
        let without_us = match state.edits.get(version) {
            Some((base, edits)) => {
                let base = state.without_us.get(base).context("the version read")?;
                let edits = edits.iter();
                edits.fold(base.clone(), |text, edit| edit.apply(&text))
            }
            None => state.chronicle.without_us.clone(),
        };
        state
            .without_us
            .insert(version.to_owned(), without_us.clone());
        let chronicle = &mut state.chronicle;
        if is_others {
            chronicle.versions.0 += 1;
        } else {
            chronicle.versions.1 += 1;
        }
        if let Some(why) = problem(text, &without_us, self.keys) {
            let author = if is_others { "others" } else { "globalps" };
            let line = format!("version {version} of {author}: {why}");
            chronicle.problems.push(line);
        }
        chronicle.is_as_without_us = text == without_us;
        chronicle.newest = version.to_owned();
        chronicle.without_us = without_us;
        Ok(())
    }
}
