//! Property: after any events, exactly the desired Secrets and references exist in the end, and nothing of others has changed.

use std::collections::BTreeSet;

use globalps_core::api::{Attach, ImagePullSecrets};
use globalps_core::names::{ATTACHED_ANNOTATION, GLOBAL_SECRET};
use globalps_core::namespaces::Selection;
use globalps_core::reasons::Reason;
use globalps_core::rollout::{Revision, RevisionId};
use globalps_core::state::ProofKey;
use globalps_dockerconfig::parse;
use globalps_provider::{Content, Pattern, Scope, ScopedConfig};
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::json;

use super::super::clock::SecretClock;
use super::super::digest::Digests;
use super::super::input::{Delivery, NamespacesInput};
use super::super::ownership::Ownership;
use super::super::views::PullSecretView;
use super::*;
use crate::content::digest::Digest;
use crate::content::secret::{Global, revision_of_test};
use crate::properties::config;
use crate::targets::account::{AccountFields, AccountView};
use crate::targets::memory::Memory;
use crate::targets::namespace::NamespaceView;
use crate::targets::proof::Proof;
use crate::targets::write::secret_key;

const NAME: &str = GLOBAL_SECRET;
const NAMESPACES: usize = 6;
const KEY: ProofKey = ProofKey([1; 16]);
/// Another client's Secret, to which each service account refers.
const THEIRS: &str = "theirs";

#[derive(Clone, Debug)]
enum Event {
    Create(usize),
    Delete(usize),
    Exclude(usize, bool),
    /// The content for every pod, or that of the source for even namespaces, changes.
    Rotate(bool),
    /// A restored etcd, or a removal that left Secrets behind: numbers start again.
    Reinstall,
    /// Another leader, which remembers nothing.
    Leader,
    Enable(bool),
    Attach(bool),
    Pause(bool),
    Canary(Option<usize>),
    /// The API server's clock is this many days ahead.
    Skew(i64),
    /// Another client overwrites the Secret, whose annotations and manager stay, and maybe removes the proof. It deletes the Secret, or
    /// creates one of its own, maybe in the name of the controller and with the proof of another namespace.
    Overwrite(usize, bool),
    DeleteSecret(usize),
    Foreign(usize, bool),
    /// A backup is restored: another Secret, with earlier content.
    Restore(usize),
    /// The record of a service account claims another client's reference.
    Claim(usize),
    /// Another client removes the reference, or adds one of its own.
    RemoveReference(usize),
    OwnReference(usize),
    /// A finalizer keeps deleted Secrets in this namespace, or no longer.
    Finalizer(usize, bool),
    /// The API server rejects writes in this namespace, or accepts them again.
    Refuse(usize, bool),
    Plan,
}

fn event() -> impl Strategy<Value = Event> {
    let at = 0..NAMESPACES;
    prop_oneof![
        3 => at.clone().prop_map(Event::Create),
        1 => at.clone().prop_map(Event::Delete),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, on)| Event::Exclude(at, on)),
        2 => any::<bool>().prop_map(Event::Rotate),
        1 => Just(Event::Reinstall),
        1 => Just(Event::Leader),
        1 => any::<bool>().prop_map(Event::Enable),
        1 => any::<bool>().prop_map(Event::Attach),
        1 => any::<bool>().prop_map(Event::Pause),
        1 => proptest::option::of(at.clone()).prop_map(Event::Canary),
        1 => prop_oneof![Just(0), Just(-400), Just(60_000)].prop_map(Event::Skew),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, on)| Event::Overwrite(at, on)),
        1 => at.clone().prop_map(Event::DeleteSecret),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, on)| Event::Foreign(at, on)),
        1 => at.clone().prop_map(Event::Restore),
        1 => at.clone().prop_map(Event::Claim),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, on)| Event::Finalizer(at, on)),
        1 => at.clone().prop_map(Event::RemoveReference),
        1 => at.clone().prop_map(Event::OwnReference),
        1 => (at, any::<bool>()).prop_map(|(at, on)| Event::Refuse(at, on)),
        6 => Just(Event::Plan),
    ]
}

/// A reference to the Secret on the service account `default`, and whether it is recorded.
#[expect(
    clippy::struct_excessive_bools,
    reason = "they do not depend on each other"
)]
#[derive(Clone, Copy, Default)]
struct Account {
    has_reference: bool,
    is_recorded: bool,
    is_foreign: bool,
    claims_theirs: bool,
}

/// What the plan can't see.
#[derive(Clone, Debug)]
struct Stored {
    view: PullSecretView,
    /// The controller created it, or it is a backup of that.
    is_own: bool,
    /// Identity of its content; empty: that of another client.
    content: String,
}

impl Stored {
    fn has(&self, part: &str) -> bool {
        self.is_own && self.content.split(',').any(|word| word == part)
    }

    fn set(&mut self, content: &str) {
        content.clone_into(&mut self.content);
        self.view.content = Some(Digest::of(content));
    }
}

struct Simulation {
    namespaces: BTreeMap<String, NamespaceView>,
    secrets: BTreeMap<String, Stored>,
    accounts: BTreeMap<String, Account>,
    rejected: BTreeSet<String>,
    finalizers: BTreeSet<String>,
    global: Global,
    is_enabled: bool,
    attach: Attach,
    paused: bool,
    canary: Option<String>,
    memory: Memory,
    clock: SecretClock,
    ownership: Ownership,
    /// Secrets that were ever created.
    created: usize,
    min_ready: SignedDuration,
    skew: SignedDuration,
    now: Timestamp,
}

fn name(at: usize) -> String {
    format!("n{at}")
}

impl Simulation {
    fn new() -> Self {
        let config = parse(br#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#).unwrap();
        let even = ["n0", "n2", "n4"].map(|name| name.to_owned().try_into().unwrap());
        Self {
            namespaces: BTreeMap::new(),
            secrets: BTreeMap::new(),
            accounts: BTreeMap::new(),
            rejected: BTreeSet::new(),
            finalizers: BTreeSet::new(),
            global: Global {
                revision: revision_of_test(1),
                content: Some(Content {
                    config: config.clone(),
                    scoped: vec![ScopedConfig {
                        source: "even".to_owned(),
                        scope: Scope {
                            namespaces: even.into(),
                            service_accounts: Vec::new(),
                        },
                        config,
                    }],
                    ..Content::default()
                }),
                content_since: [
                    (String::new(), revision_of_test(1)),
                    ("even".to_owned(), revision_of_test(1)),
                ]
                .into(),
                ..Global::default()
            },
            is_enabled: true,
            attach: Attach::Admission,
            paused: false,
            canary: None,
            memory: Memory::default(),
            clock: SecretClock::default(),
            ownership: Ownership::default(),
            created: 0,
            min_ready: SignedDuration::from_secs(2),
            skew: SignedDuration::ZERO,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn happen(&mut self, event: &Event) {
        self.now += SignedDuration::from_secs(1);
        match event {
            Event::Create(at) => {
                let name = name(*at);
                self.namespaces
                    .entry(name.clone())
                    .or_insert(NamespaceView {
                        name: name.clone(),
                        version: 1,
                        labels: (&BTreeMap::new()).into(),
                        is_marked_excluded: false,
                        is_terminating: false,
                    });
                self.accounts.entry(name).or_default();
            }
            Event::Delete(at) => {
                let name = name(*at);
                self.namespaces.remove(&name);
                self.secrets.remove(&name);
                self.accounts.remove(&name);
            }
            Event::Exclude(at, on) => {
                if let Some(namespace) = self.namespaces.get_mut(&name(*at)) {
                    namespace.is_marked_excluded = *on;
                }
            }
            Event::Rotate(every_pod) => {
                self.global.revision.number += 1;
                let part = if *every_pod { "" } else { "even" };
                let since = &mut self.global.content_since;
                since.insert(part.to_owned(), self.global.revision);
            }
            Event::Reinstall => {
                let id = RevisionId::from_random(self.now.as_second().unsigned_abs());
                self.global.revision = Revision::new(1, id);
                for since in self.global.content_since.values_mut() {
                    *since = self.global.revision;
                }
                self.happen(&Event::Leader);
            }
            Event::Leader => {
                self.memory = Memory::default();
                self.clock = SecretClock::default();
                self.ownership = Ownership::default();
                // What has lost its proof by then is another client's.
                for secret in self.secrets.values_mut() {
                    secret.is_own &= secret.view.proof.is_some();
                }
            }
            Event::Enable(on) => self.is_enabled = *on,
            Event::Attach(by_accounts) => {
                self.attach = if *by_accounts {
                    Attach::ServiceAccounts
                } else {
                    Attach::Admission
                }
            }
            Event::Pause(on) => self.paused = *on,
            Event::Canary(at) => self.canary = at.map(name),
            Event::Skew(days) => self.skew = SignedDuration::from_hours(days * 24),
            Event::Overwrite(at, strips) => {
                // A leader has seen it before.
                let views = self.views();
                self.ownership.observe(&views, Some(KEY), NAME);
                if let Some(secret) = self.secrets.get_mut(&name(*at)) {
                    secret.set("");
                    secret.view.version += 1;
                    secret.view.proof = secret.view.proof.filter(|_| !strips);
                }
            }
            Event::DeleteSecret(at) => self.delete(&name(*at)),
            Event::Finalizer(at, on) => {
                let name = name(*at);
                if *on {
                    self.finalizers.insert(name);
                } else {
                    self.release(&name);
                }
            }
            Event::Foreign(at, forges) => {
                let (name, other) = (name(*at), name(at + 1));
                if self.namespaces.contains_key(&name) && !self.secrets.contains_key(&name) {
                    let mut theirs = self.secret(&name, "");
                    theirs.is_own = false;
                    theirs.view.is_applied = *forges;
                    let proof = Proof::new(&KEY, &other, NAME);
                    theirs.view.proof = forges.then_some(proof);
                    self.secrets.insert(name, theirs);
                }
            }
            Event::Restore(at) => {
                let name = name(*at);
                if let Some(secret) = self.secrets.get(&name)
                    && secret.is_own
                    && !secret.view.is_being_deleted
                {
                    let restored = self.secret(&name, "earlier");
                    self.secrets.insert(name, restored);
                }
            }
            Event::Claim(at) => {
                if let Some(account) = self.accounts.get_mut(&name(*at)) {
                    account.claims_theirs = true;
                }
            }
            Event::RemoveReference(at) => {
                if let Some(account) = self.accounts.get_mut(&name(*at)) {
                    account.has_reference = false;
                    account.is_foreign = false;
                }
            }
            Event::OwnReference(at) => {
                if let Some(account) = self.accounts.get_mut(&name(*at))
                    && !account.is_recorded
                    && !account.has_reference
                {
                    account.has_reference = true;
                    account.is_foreign = true;
                }
            }
            Event::Refuse(at, on) => {
                if *on {
                    self.rejected.insert(name(*at));
                } else {
                    self.rejected.remove(&name(*at));
                }
            }
            Event::Plan => {
                self.act();
            }
        }
    }

    fn views(&self) -> BTreeMap<String, PullSecretView> {
        let views = self.secrets.iter();
        views
            .map(|(name, it)| (name.clone(), it.view.clone()))
            .collect()
    }

    fn plan(&self) -> DeliveryPlan {
        let secrets = self.views();
        let settings = ImagePullSecrets::default();
        let selection = Selection::new(&settings).unwrap();
        let patterns: [Pattern; 1] = ["default".to_owned().try_into().unwrap()];
        let accounts = self.accounts.iter().map(|(namespace, account)| {
            let key = AccountView::key_of(namespace, "default");
            (key, view(namespace, *account))
        });
        let accounts = accounts.collect();
        let delivery = self.is_enabled.then(|| Delivery {
            selection: &selection,
            parts: Parts::of(&self.global).unwrap(),
            stable: None,
            attach: self.attach,
            accounts: &patterns,
            canary: self.canary.as_deref(),
            min_ready: self.min_ready,
            paused: self.paused,
        });
        let parts = Parts::of(&self.global).unwrap();
        let identities = [&[][..], &[0]].map(|at| parts.identity(at).unwrap());
        let input = NamespacesInput {
            delivery,
            own_namespace: "own",
            secret_name: NAME,
            namespaces: &self.namespaces,
            secrets: &secrets,
            accounts: Some(&accounts),
            crowded: &BTreeSet::new(),
            memory: &self.memory,
            clock: &self.clock,
            ownership: &self.ownership,
            now: self.now,
        };
        super::plan(&input, &mut Digests::of_test(identities))
    }

    /// Written now.
    fn secret(&mut self, namespace: &str, identity: &str) -> Stored {
        self.created += 1;
        let view = PullSecretView {
            version: self.now.as_second().unsigned_abs(),
            uid: Digest::of(self.created),
            proof: Some(Proof::new(&KEY, namespace, NAME)),
            is_applied: true,
            written: Some(self.now + self.skew),
            ..PullSecretView::of_test(namespace)
        };
        let mut secret = Stored {
            view,
            is_own: true,
            content: String::new(),
        };
        secret.set(identity);
        secret
    }

    fn delete(&mut self, namespace: &str) {
        if !self.finalizers.contains(namespace) {
            self.secrets.remove(namespace);
        } else if let Some(secret) = self.secrets.get_mut(namespace) {
            secret.view.is_being_deleted = true;
        }
    }

    /// Its Secrets have no finalizer any more.
    fn release(&mut self, namespace: &str) {
        self.finalizers.remove(namespace);
        let is_deleted = |secret: &Stored| secret.view.is_being_deleted;
        if self.secrets.get(namespace).is_some_and(is_deleted) {
            self.secrets.remove(namespace);
        }
    }

    /// Executes the plan; returns whether there was anything to do.
    fn act(&mut self) -> bool {
        let names: BTreeSet<String> = self.namespaces.keys().cloned().collect();
        self.memory.retain(|name| names.contains(name));
        let uptime = self.now.duration_since(Timestamp::UNIX_EPOCH);
        let views = self.views();
        self.clock.observe(&views, uptime, self.now);
        self.ownership.observe(&views, Some(KEY), NAME);
        let plan = self.plan();
        for write in &plan.writes {
            self.write(write);
        }
        !plan.writes.is_empty()
    }

    fn write(&mut self, write: &Write) {
        let key = write.key();
        let namespace = key.split('/').next().unwrap_or_default().to_owned();
        if write.is_restore() {
            self.memory.restored(&key, self.now);
        }
        if self.rejected.contains(&namespace) {
            self.memory
                .failed(&key, Reason::Rejected, String::new(), self.now, 1.0);
            return;
        }
        match write {
            Write::Secret { .. } => {
                let known = self.secrets.get(&namespace);
                assert!(
                    known.is_none_or(|secret| secret.is_own),
                    "a foreign Secret is never written"
                );
                let identity = write.what();
                self.memory.wrote(&key, identity);
                let uid = known.map(|known| known.view.uid);
                let mut secret = self.secret(&namespace, identity);
                secret.view.uid = uid.unwrap_or(secret.view.uid);
                self.secrets.insert(namespace, secret);
            }
            Write::Delete { .. } => {
                let secret = &self.secrets[&namespace];
                assert!(secret.is_own, "a foreign Secret is never deleted");
                assert!(!secret.view.is_being_deleted, "deleted once");
                self.delete(&namespace);
                assert!(
                    !self.accounts[&namespace].is_recorded,
                    "references are removed first"
                );
                self.memory.removed(&key);
            }
            Write::Account { change, .. } => {
                let account = self.accounts.get_mut(&namespace).unwrap();
                assert!(!change.removed.iter().any(|name| name == THEIRS));
                account.claims_theirs = false;
                let is_attached = !change.added.is_empty();
                if is_attached {
                    assert!(!account.has_reference && self.secrets.contains_key(&namespace));
                    self.memory.wrote(&key, write.what());
                } else {
                    assert!(account.is_recorded && !account.is_foreign);
                    self.memory.removed(&key);
                }
                account.has_reference = is_attached;
                account.is_recorded = is_attached;
            }
        }
    }

    /// No more disturbances, and time passes: the end of every backoff and conflict.
    fn settle(&mut self) {
        self.rejected.clear();
        self.paused = false;
        self.canary = None;
        for _ in 0..60 {
            self.now += SignedDuration::from_mins(6);
            self.act();
        }
        assert!(!self.act(), "it converges");
        self.check();
        for at in 0..NAMESPACES {
            self.release(&name(at));
        }
    }

    /// What is being deleted, and is kept by a finalizer, is named, and nothing else waits for it.
    fn check(&self) {
        let summary = self.plan().summary;
        let parts = Parts::of(&self.global).unwrap();
        for (name, namespace) in &self.namespaces {
            let is_wanted = self.is_enabled && !namespace.is_marked_excluded;
            let secret = self.secrets.get(name);
            let account = self.accounts[name];
            let secret = secret.filter(|secret| secret.is_own);
            if let Some(kept) = secret.filter(|secret| secret.view.is_being_deleted) {
                let is_failed = |reason| {
                    let mut failures = summary.failures.iter();
                    failures.any(|it| it.namespace == *name && it.reason == reason)
                };
                assert!(is_failed(Reason::Terminating), "{name}: {kept:?}");
                continue;
            }
            match secret {
                Some(secret) if is_wanted => {
                    let wanted = parts.identity(&parts_of(parts.content, name));
                    assert_eq!(Some(&secret.content), wanted.as_ref(), "{name}");
                    let proof = Proof::new(&KEY, name, NAME);
                    assert_eq!(secret.view.proof, Some(proof), "{name}");
                }
                Some(_) => panic!("{name} has something left over"),
                None => assert!(
                    !is_wanted || self.secrets.contains_key(name),
                    "{name} has one"
                ),
            }
            let is_attached = is_wanted && self.attach == Attach::ServiceAccounts;
            if !is_attached {
                assert!(!account.is_recorded, "{name} keeps no reference");
                assert_eq!(account.has_reference, account.is_foreign, "{name}");
            } else if secret.is_some() {
                assert!(account.has_reference, "{name} has its reference");
            }
        }
        let is_empty = self.secrets.values().all(|secret| !secret.is_own);
        assert!(self.is_enabled || summary.is_over && summary.is_clean == is_empty);
    }
}

fn view(namespace: &str, account: Account) -> AccountView {
    let mut object =
        json!({"metadata": {"name": "default", "namespace": namespace, "resourceVersion": "1"}});
    let names = [(true, THEIRS), (account.has_reference, NAME)];
    let names = names.iter().filter(|(has, _)| *has);
    object["imagePullSecrets"] = names.map(|(_, name)| json!({"name": name})).collect();
    let record = [(account.claims_theirs, THEIRS), (account.is_recorded, NAME)];
    let record: Vec<&str> = record.iter().filter(|it| it.0).map(|it| it.1).collect();
    if !record.is_empty() {
        object["metadata"]["annotations"] = json!({ATTACHED_ANNOTATION: record.join(",")});
    }
    let object: AccountFields = serde_json::from_value(object).unwrap();
    let mut view = AccountView::new(&object, ATTACHED_ANNOTATION);
    view.references.believe(|name| name == NAME);
    view
}

/// Slowly enough that each change is undone.
#[test]
fn a_fight_over_the_canarys_secret_holds_no_other_namespace() {
    for canary in [None, Some(0)] {
        let mut simulation = Simulation::new();
        simulation.min_ready = SignedDuration::from_secs(300);
        for at in 0..4 {
            simulation.happen(&Event::Create(at));
        }
        simulation.happen(&Event::Plan);
        assert!(simulation.secrets.contains_key("n0"), "the first canary");
        simulation.happen(&Event::Canary(canary));
        for _ in 0..40 {
            simulation.now += SignedDuration::from_secs(160);
            simulation.happen(&Event::Overwrite(0, false));
            simulation.happen(&Event::Plan);
        }
        let others = (1..4).filter(|at| simulation.secrets.contains_key(&name(*at)));
        let expected = if canary.is_none() { 3 } else { 0 };
        assert_eq!(others.count(), expected, "{canary:?}");
        let error = simulation.plan().summary.canary;
        assert_eq!(error.is_some(), canary.is_some(), "{error:?}");
        assert!(error.is_none_or(|error| error.contains("`n0`")));
    }
    let mut alone = Simulation::new();
    alone.min_ready = SignedDuration::from_secs(300);
    alone.happen(&Event::Create(0));
    for _ in 0..10 {
        alone.now += SignedDuration::from_secs(160);
        alone.happen(&Event::Plan);
        alone.happen(&Event::Overwrite(0, false));
    }
    alone.happen(&Event::Plan);
    assert!(alone.plan().summary.canary.is_some(), "it is named");
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn namespaces_reach_the_desired_state_after_any_events(
        events in proptest::collection::vec(event(), 1..60),
    ) {
        let mut simulation = Simulation::new();
        for event in &events {
            let before = simulation.passed();
            simulation.happen(event);
            if matches!(event, Event::Plan) {
                simulation.check_canaries(&before);
            }
        }
        simulation.settle();
        simulation.settle();
    }
}

impl Simulation {
    /// Parts that some namespace has.
    fn passed(&self) -> BTreeSet<String> {
        let own = self.secrets.values().filter(|secret| secret.is_own);
        own.flat_map(|secret| secret.content.split(','))
            .map(str::to_owned)
            .collect()
    }

    /// One plan delivers a new part to only one namespace, unless it restores one.
    fn check_canaries(&self, before: &BTreeSet<String>) {
        let now = self.now.as_second().unsigned_abs();
        for part in self.passed().difference(before) {
            let with_part = || self.secrets.iter().filter(|(_, secret)| secret.has(part));
            let newly = with_part().filter(|(_, secret)| secret.view.version == now);
            let count = newly.count();
            let was_restored = count > 1
                && with_part().next().is_some_and(|(name, secret)| {
                    let key = secret_key(name, NAME);
                    self.memory.has_written(&key, &secret.content)
                });
            assert!(
                count <= 1 || was_restored,
                "{part} came to {count} namespaces at once"
            );
        }
    }
}
