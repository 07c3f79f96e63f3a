use globalps_core::names::OPERATOR_SECRETS_ANNOTATION;
use globalps_core::reasons::Reason;
use globalps_core::references::RECORDED;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::input::Copies;
use super::super::views::{CatalogSecret, CatalogView, CsvView, SubscriptionView};
use super::*;
use crate::content::source::{Data, Source};
use crate::properties::config;
use crate::targets::account::AccountFields;
use crate::targets::memory::Memory;
use crate::targets::namespace::NamespaceView;

const CONFIG: &[u8] = br#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#;
const NAMESPACES: [&str; 2] = ["a", "b"];
/// Catalogs, by namespace and name; both have a Secret of the same name.
const CATALOGS: [(&str, &str); 2] = [("c", "one"), ("d", "two")];
const SECRETS: [&str; 2] = ["s", "t"];

fn id(namespace: &str, name: &str) -> Id {
    (namespace.to_owned(), name.to_owned())
}

fn found(edition: u64) -> Source {
    let config = String::from_utf8_lossy(CONFIG).replace("dTpw", &format!("dTpw{edition:04}"));
    Source::Found(Data(Some(config.into_bytes())))
}

fn copy(content: SecretContent) -> CopyContent {
    match content {
        SecretContent::Copy(copy) => copy,
        SecretContent::Namespace(_) => panic!("{content:?} is for a namespace"),
    }
}

/// A service account as the API server has it.
#[derive(Clone, Debug, Default)]
struct Account {
    names: Vec<String>,
    recorded: Vec<String>,
    version: u64,
}

/// A cluster, and a leader that acts on it.
#[derive(Default)]
struct Simulation {
    is_enabled: bool,
    paused: bool,
    /// Namespaces that exclude themselves.
    excluded: BTreeSet<&'static str>,
    terminating: bool,
    subscriptions: BTreeMap<String, SubscriptionView>,
    catalogs: BTreeMap<String, CatalogView>,
    csvs: BTreeMap<String, CsvView>,
    secrets: BTreeMap<Id, CatalogSecret>,
    accounts: BTreeMap<String, Account>,
    /// The existing copies; the leader does not see them.
    there: BTreeMap<Id, CopyContent>,
    copies: Copies,
    memory: Memory,
    now: Timestamp,
}

impl Simulation {
    fn new() -> Self {
        let mut simulation = Self {
            is_enabled: true,
            ..Self::default()
        };
        for (namespace, name) in CATALOGS {
            for secret in SECRETS {
                let of = id(namespace, secret);
                let known = CatalogSecret::new(&of, found(0), 0);
                simulation.secrets.insert(of, known);
            }
            simulation.list(namespace, name, &SECRETS[..1]);
        }
        simulation
    }

    fn list(&mut self, namespace: &str, name: &str, secrets: &[&str]) {
        let view = CatalogView {
            id: id(namespace, name),
            version: 1,
            secrets: secrets.iter().map(|name| (*name).to_owned()).collect(),
        };
        self.catalogs.insert(format!("{namespace}/{name}"), view);
    }

    /// A Subscription `sub` of the catalog, and its versions, each with the service accounts `op` and `op-VERSION`.
    fn subscribe(&mut self, namespace: &str, sub: &str, catalog: (&str, &str), csvs: &[&str]) {
        let view = SubscriptionView {
            id: id(namespace, sub),
            version: 1,
            catalog: id(catalog.0, catalog.1),
            csvs: csvs.iter().map(|name| (*name).to_owned()).collect(),
        };
        self.subscriptions
            .insert(format!("{namespace}/{sub}"), view);
        for csv in csvs {
            let accounts = ["op".to_owned(), format!("op-{csv}")];
            for account in &accounts {
                self.accounts
                    .entry(format!("{namespace}/{account}"))
                    .or_default();
            }
            let view = CsvView {
                id: id(namespace, csv),
                version: 1,
                uid: format!("{namespace}-{csv}"),
                accounts: accounts.into(),
                is_copied: false,
            };
            self.csvs.insert(format!("{namespace}/{csv}"), view);
        }
    }

    /// The garbage collector removes the version's own service account and copies without another owner.
    fn uninstall(&mut self, namespace: &str, csv: &str) {
        self.csvs.remove(&format!("{namespace}/{csv}"));
        self.accounts.remove(&format!("{namespace}/op-{csv}"));
        let csvs = &self.csvs;
        self.there.retain(|(of, _), content| {
            let mut owners = content.owners.iter();
            owners.any(|(name, _)| csvs.contains_key(&format!("{of}/{name}")))
        });
    }

    fn rotate(&mut self, of: &Id, source: Source) {
        let edition = self.secrets[of].edition;
        self.secrets
            .insert(of.clone(), CatalogSecret::new(of, source, edition));
    }

    fn views(&self) -> BTreeMap<String, AccountView> {
        let view = |(key, account): (&String, &Account)| {
            let (namespace, name) = key.split_once('/').unwrap();
            let names: Vec<Value> = account.names.iter().map(|n| json!({"name": n})).collect();
            let mut object = json!({
                "metadata": {"name": name, "namespace": namespace, "resourceVersion": account.version.to_string()},
                "imagePullSecrets": names,
            });
            if !account.recorded.is_empty() {
                let record = account.recorded.join(",");
                object["metadata"]["annotations"] = json!({OPERATOR_SECRETS_ANNOTATION: record});
            }
            let object: AccountFields = serde_json::from_value(object).unwrap();
            (
                key.clone(),
                AccountView::new(&object, OPERATOR_SECRETS_ANNOTATION),
            )
        };
        self.accounts.iter().map(view).collect()
    }

    fn namespaces(&self) -> BTreeMap<String, NamespaceView> {
        let view = |name: &&str| NamespaceView {
            name: (*name).to_owned(),
            version: 1,
            labels: (&BTreeMap::new()).into(),
            is_marked_excluded: self.excluded.contains(name),
            is_terminating: self.terminating,
        };
        let views = NAMESPACES.iter().map(view);
        views.map(|view| (view.name.clone(), view)).collect()
    }

    fn plan(&mut self) -> DeliveryPlan {
        let views = self.views();
        forget(&mut self.copies, &views);
        plan(&OperatorsInput {
            namespaces: &self.namespaces(),
            is_enabled: self.is_enabled,
            paused: self.paused,
            subscriptions: &self.subscriptions,
            catalogs: &self.catalogs,
            csvs: &self.csvs,
            secrets: &self.secrets,
            accounts: &self.views(),
            copies: &self.copies,
            memory: &self.memory,
            now: self.now,
        })
    }

    fn write(&mut self, write: Write) {
        let key = write.key();
        match write {
            Write::Secret { id, content, .. } => {
                let content = copy(content);
                let records = |(of, account): (&String, &Account)| {
                    of.starts_with(&format!("{}/", id.0)) && account.recorded.contains(&id.1)
                };
                assert!(
                    self.accounts.iter().any(records),
                    "recorded before it is written"
                );
                self.memory.wrote(&key, "");
                self.there.insert(id.clone(), content.clone());
                let at = self.now;
                self.copies.insert(id, KnownCopy::Written { content, at });
            }
            Write::Delete { id, .. } => {
                self.memory.removed(&key);
                self.there.remove(&id);
                self.copies.insert(id, KnownCopy::Deleted);
            }
            Write::Account {
                change,
                what,
                is_restore,
                ..
            } => {
                if is_restore {
                    self.memory.restored(&key, self.now);
                }
                for name in &change.removed {
                    let of = id(key.split('/').next().unwrap(), name);
                    let is_wanted = self.is_wanted(&of);
                    assert!(is_wanted || !self.there.contains_key(&of), "deleted first");
                }
                let account = self.accounts.get_mut(&key).unwrap();
                account.recorded.truncate(RECORDED);
                let own: Vec<String> = account.recorded.clone();
                account
                    .names
                    .retain(|name| !(change.removed.contains(name) && own.contains(name)));
                account
                    .recorded
                    .retain(|name| !change.removed.contains(name));
                for name in &change.added {
                    if !account.names.contains(name) {
                        account.names.push(name.clone());
                    }
                }
                account.recorded.extend(change.added);
                account.recorded.sort();
                account.recorded.dedup();
                account.version += 1;
                self.memory.wrote(&key, &what);
            }
        }
    }

    fn is_wanted(&self, of: &Id) -> bool {
        self.wanted().iter().any(|(copy, _)| copy == of)
    }

    /// Desired copies, with the key of a service account that refers to them; independent of the plan's code.
    fn wanted(&self) -> BTreeSet<(Id, String)> {
        let mut wanted = BTreeSet::new();
        for sub in self.subscriptions.values().filter(|_| self.is_enabled) {
            if self.excluded.contains(sub.id.0.as_str()) {
                continue;
            }
            let catalog = &self.catalogs[&format!("{}/{}", sub.catalog.0, sub.catalog.1)];
            for csv in &sub.csvs {
                let Some(csv) = self.csvs.get(&format!("{}/{csv}", sub.id.0)) else {
                    continue;
                };
                for (secret, account) in catalog
                    .secrets
                    .iter()
                    .flat_map(|s| csv.accounts.iter().map(move |a| (s, a)))
                {
                    let copy = format!("globalps-{}.{secret}", sub.catalog.0);
                    wanted.insert((id(&sub.id.0, &copy), format!("{}/{account}", sub.id.0)));
                }
            }
        }
        wanted
    }

    /// Returns whether there was anything to do.
    fn step(&mut self) -> bool {
        let writes = self.plan().writes;
        let wrote = !writes.is_empty();
        for write in writes {
            self.write(write);
        }
        wrote
    }

    fn act(&mut self) {
        for _ in 0..20 {
            if !self.step() {
                return;
            }
        }
        panic!("it does not converge: {:?}", self.plan().writes);
    }

    fn check(&self) {
        let wanted = self.wanted();
        for (copy, key) in &wanted {
            let Some(account) = self.accounts.get(key) else {
                continue;
            };
            assert!(account.names.contains(&copy.1), "{key} refers to {copy:?}");
            let source = (copy.1["globalps-".len()..]).split_once('.').unwrap();
            let source = &self.secrets[&id(source.0, source.1)];
            let there = self.there.get(copy);
            let is_new = there.is_some_and(|content| content.edition == source.edition);
            assert!(is_new || source.error.is_some(), "{copy:?} has its content");
        }
        for copy in self.there.keys() {
            assert!(
                wanted.iter().any(|(of, _)| of == copy),
                "{copy:?} is left over"
            );
        }
        for (key, account) in &self.accounts {
            for name in &account.recorded {
                let of = id(key.split('/').next().unwrap(), name);
                assert!(wanted.contains(&(of, key.clone())), "{key} records {name}");
            }
            assert_eq!(
                account.names.iter().filter(|n| *n == "own").count(),
                1,
                "{key}"
            );
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Namespace, Subscription, catalog, first version, and whether a second one is being installed.
    Subscribe(usize, usize, usize, u8, bool),
    Unsubscribe(usize, usize),
    Uninstall(usize, u8),
    /// How many Secrets the catalog names.
    List(usize, usize),
    Rotate(usize, usize),
    Break(usize, usize),
    /// Rewrites a service account without references and record.
    Upgrade(usize),
    /// Removes a reference.
    Detach(usize),
    /// Removes the record, and leaves the references.
    Unrecord(usize),
    Pause(bool),
    Enable(bool),
    Exclude(usize, bool),
    NewLeader,
    Wait,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..2usize, 0..2usize, 0..2usize, 0..3u8, any::<bool>())
            .prop_map(|(n, s, c, v, two)| Event::Subscribe(n, s, c, v, two)),
        2 => (0..2usize, 0..2usize).prop_map(|(n, s)| Event::Unsubscribe(n, s)),
        2 => (0..2usize, 0..4u8).prop_map(|(n, v)| Event::Uninstall(n, v)),
        2 => (0..2usize, 0..3usize).prop_map(|(c, n)| Event::List(c, n)),
        2 => (0..2usize, 0..2usize).prop_map(|(c, s)| Event::Rotate(c, s)),
        1 => (0..2usize, 0..2usize).prop_map(|(c, s)| Event::Break(c, s)),
        1 => any::<usize>().prop_map(Event::Upgrade),
        1 => any::<usize>().prop_map(Event::Detach),
        1 => any::<usize>().prop_map(Event::Unrecord),
        1 => any::<bool>().prop_map(Event::Pause),
        1 => any::<bool>().prop_map(Event::Enable),
        1 => (0..2usize, any::<bool>()).prop_map(|(n, is)| Event::Exclude(n, is)),
        1 => Just(Event::NewLeader),
        1 => Just(Event::Wait),
    ]
}

fn happens(simulation: &mut Simulation, event: Event) {
    match event {
        Event::Subscribe(n, s, c, v, two) => {
            let second = format!("v{}", v + 1);
            let first = format!("v{v}");
            let csvs = [first.as_str(), second.as_str()];
            let csvs = if two { &csvs[..] } else { &csvs[..1] };
            simulation.subscribe(NAMESPACES[n], &format!("sub{s}"), CATALOGS[c], csvs);
            for account in simulation.accounts.values_mut() {
                if !account.names.contains(&"own".to_owned()) {
                    account.names.insert(0, "own".to_owned());
                }
            }
        }
        Event::Unsubscribe(n, s) => {
            simulation
                .subscriptions
                .remove(&format!("{}/sub{s}", NAMESPACES[n]));
        }
        Event::Uninstall(n, v) => simulation.uninstall(NAMESPACES[n], &format!("v{v}")),
        Event::List(c, n) => simulation.list(CATALOGS[c].0, CATALOGS[c].1, &SECRETS[..n.min(2)]),
        Event::Rotate(c, s) => {
            let of = id(CATALOGS[c].0, SECRETS[s]);
            let edition = simulation.secrets[&of].edition;
            simulation.rotate(&of, found(edition));
        }
        Event::Break(c, s) => simulation.rotate(&id(CATALOGS[c].0, SECRETS[s]), Source::Absent),
        Event::Upgrade(at) | Event::Detach(at) => {
            let is_upgrade = matches!(event, Event::Upgrade(_));
            let count = simulation.accounts.len();
            if let Some(account) = simulation.accounts.values_mut().nth(at % count.max(1)) {
                account.names.retain(|name| name == "own");
                if is_upgrade {
                    account.recorded.clear();
                }
                account.version += 1;
            }
        }
        Event::Unrecord(at) => {
            let count = simulation.accounts.len();
            if let Some(account) = simulation.accounts.values_mut().nth(at % count.max(1)) {
                account.recorded.clear();
                account.version += 1;
            }
        }
        Event::Pause(paused) => simulation.paused = paused,
        Event::Enable(is_enabled) => simulation.is_enabled = is_enabled,
        Event::Exclude(n, true) => {
            simulation.excluded.insert(NAMESPACES[n]);
        }
        Event::Exclude(n, false) => {
            simulation.excluded.remove(NAMESPACES[n]);
        }
        Event::NewLeader => {
            simulation.copies.clear();
            simulation.memory = Memory::default();
        }
        Event::Wait => simulation.now += SignedDuration::from_mins(11),
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn exactly_the_needed_copies_exist_after_any_events(events in prop::collection::vec(event(), 1..40)) {
        let mut simulation = Simulation::new();
        for event in events {
            // Without a record of a copy, only the leader that wrote it finds it.
            let forgets = matches!(event, Event::Upgrade(_) | Event::Unrecord(_));
            happens(&mut simulation, event);
            if forgets {
                simulation.paused = false;
            }
            simulation.act();
        }
        simulation.paused = false;
        for _ in 0..3 {
            simulation.now += SignedDuration::from_mins(11);
            simulation.act();
        }
        simulation.check();
        let summary = simulation.plan().summary;
        prop_assert_eq!(summary.synced + summary.failed, summary.total);
        prop_assert!(simulation.is_enabled || summary.is_clean && simulation.there.is_empty());
    }
}

fn installed() -> Simulation {
    let mut simulation = Simulation::new();
    simulation.subscribe("a", "sub", CATALOGS[0], &["v1"]);
    for account in simulation.accounts.values_mut() {
        account.names.push("own".to_owned());
    }
    simulation
}

fn line(simulation: &mut Simulation) -> String {
    let plan = simulation.plan();
    let words = plan.writes.iter().map(|write| match write {
        Write::Secret { id, content, .. } => {
            format!("{}={}", id.1, copy(content.clone()).edition)
        }
        Write::Delete { id, .. } => format!("-{}", id.1),
        Write::Account { key, change, .. } => {
            let sign = if change.added.is_empty() { '-' } else { '+' };
            format!("{sign}{key}")
        }
    });
    let failures = plan
        .summary
        .failures
        .iter()
        .map(|failure| failure.reason.to_string());
    let counts = format!("{}/{}", plan.summary.synced, plan.summary.total);
    let words: Vec<String> = words.chain([counts]).chain(failures).collect();
    words.join(" ")
}

#[test]
fn a_reference_is_added_before_its_copy_and_removed_after_it() {
    let mut simulation = installed();
    assert_eq!(line(&mut simulation), "+a/op +a/op-v1 0/1");
    simulation.step();
    assert_eq!(line(&mut simulation), "globalps-c.s=1 0/1");
    simulation.act();
    assert_eq!(line(&mut simulation), "1/1");
    simulation.list("c", "one", &[]);
    assert_eq!(line(&mut simulation), "-globalps-c.s 0/0");
    simulation.step();
    assert_eq!(line(&mut simulation), "-a/op -a/op-v1 0/0");
}

#[test]
fn obstacles_are_reported() {
    let mut simulation = installed();
    simulation.act();
    simulation.rotate(&id("c", "s"), Source::Absent);
    assert_eq!(line(&mut simulation), "0/1 SourceMissing", "the copy stays");
    simulation.rotate(&id("c", "s"), Source::Forbidden);
    assert_eq!(line(&mut simulation), "0/1 SourceForbidden");
    simulation.rotate(&id("c", "s"), Source::Found(Data(Some(b"{".to_vec()))));
    assert_eq!(line(&mut simulation), "0/1 SourceInvalid");
    simulation.rotate(&id("c", "s"), found(7));
    assert_eq!(line(&mut simulation), "globalps-c.s=5 0/1");
    simulation.list("c", "one", &SECRETS);
    simulation.act();
    simulation.list("c", "one", &SECRETS[..1]);
    simulation.step();
    let (message, now) = ("no".to_owned(), simulation.now);
    let memory = &mut simulation.memory;
    memory.failed("a/op", Reason::Rejected, message, now, 1.0);
    let left = "-a/op-v1 0/1 Rejected";
    assert_eq!(line(&mut simulation), left, "a record that stays");
    simulation.accounts.remove("a/op-v1");
    simulation.memory = Memory::default();
    simulation.act();
    assert_eq!(line(&mut simulation), "0/1 ServiceAccountMissing");
}

#[test]
fn in_a_pause_a_new_operator_gets_its_secret_a_rotation_waits() {
    let mut simulation = installed();
    simulation.paused = true;
    simulation.act();
    assert_eq!(line(&mut simulation), "1/1");
    simulation.rotate(&id("c", "s"), found(1));
    assert_eq!(line(&mut simulation), "0/1");
    simulation.copies.clear();
    simulation.memory = Memory::default();
    assert_eq!(line(&mut simulation), "0/1", "nor by another leader");
    simulation.paused = false;
    assert_eq!(line(&mut simulation), "globalps-c.s=2 0/1");
}

#[test]
fn terminating_namespaces_are_skipped_and_excluded_ones_cleaned() {
    let mut simulation = installed();
    simulation.act();
    simulation.terminating = true;
    assert_eq!(line(&mut simulation), "0/0");
    simulation.terminating = false;
    simulation.excluded.insert("a");
    assert_eq!(line(&mut simulation), "-globalps-c.s 0/0");
}

#[test]
fn leftovers_are_removed_and_copies_are_rewritten_periodically() {
    let mut simulation = installed();
    simulation.act();
    let again = simulation.now + SignedDuration::from_mins(10);
    assert_eq!(simulation.plan().again_at, Some(again));
    let retry = simulation.now + SignedDuration::from_secs(1);
    simulation.memory.failed(
        "a/other",
        Reason::Rejected,
        String::new(),
        simulation.now,
        1.0,
    );
    assert_eq!(simulation.plan().again_at, Some(retry), "the earlier one");
    simulation.now = again;
    assert_eq!(line(&mut simulation), "globalps-c.s=1 1/1");
    assert_eq!(simulation.plan().again_at, None, "it is due");
    simulation.act();
    assert!(!simulation.plan().summary.is_clean);
    simulation.is_enabled = false;
    let mut states = Vec::new();
    for _ in 0..3 {
        let summary = simulation.plan().summary;
        states.push((simulation.there.len(), summary.accounts, summary.is_clean));
        simulation.step();
    }
    assert_eq!(states, [(1, 2, false), (0, 2, false), (0, 0, true)]);
    // A copy that no service account records.
    simulation.is_enabled = true;
    simulation.act();
    simulation.accounts.clear();
    simulation.is_enabled = false;
    assert!(!simulation.plan().summary.is_clean);
    simulation.act();
    assert!(simulation.plan().summary.is_clean && simulation.there.is_empty());
}

/// A backup from before the removal brings the copy and the service account back.
#[test]
fn a_copy_that_is_there_again_with_its_record_is_deleted_again() {
    let mut simulation = installed();
    simulation.act();
    let (accounts, there) = (simulation.accounts.clone(), simulation.there.clone());
    simulation.list("c", "one", &[]);
    for _ in 0..2 {
        simulation.accounts.clone_from(&accounts);
        simulation.there.clone_from(&there);
        simulation.act();
        assert!(simulation.there.is_empty());
        assert!(simulation.copies.is_empty(), "{:?}", simulation.copies);
        let mut accounts = simulation.accounts.values();
        assert!(accounts.all(|account| account.recorded.is_empty()));
    }
}

/// Anybody who may write a service account may write its record.
#[test]
fn a_plans_writes_are_bounded_whatever_accounts_record() {
    let mut simulation = installed();
    simulation.act();
    let recording = |of: usize, count| Account {
        names: vec!["own".to_owned()],
        recorded: (0..count).map(|name| format!("x{of}-{name}")).collect(),
        version: 1,
    };
    simulation
        .accounts
        .insert("b/t".to_owned(), recording(0, 40_000));
    assert_eq!(simulation.plan().writes.len(), RECORDED);
    for of in 1..=100 {
        let account = recording(of, 50);
        simulation.accounts.insert(format!("b/t{of}"), account);
    }
    assert_eq!(simulation.plan().writes.len(), WRITES);
    simulation.act();
    simulation.check();
}

#[test]
fn a_reference_is_restored_five_times_before_a_conflict() {
    for forgets in [false, true] {
        let mut simulation = installed();
        simulation.act();
        let remove = |simulation: &mut Simulation| {
            let account = simulation.accounts.get_mut("a/op").unwrap();
            account.names = vec!["own".to_owned()];
            if forgets {
                account.recorded.clear();
            }
        };
        for _ in 0..5 {
            remove(&mut simulation);
            simulation.act();
            assert_eq!(simulation.accounts["a/op"].names.len(), 2, "{forgets}");
        }
        remove(&mut simulation);
        assert_eq!(line(&mut simulation), "0/1 Conflict", "{forgets}");
    }
}

#[test]
fn copies_and_subscriptions_without_version_are_no_operators() {
    let mut simulation = installed();
    simulation.csvs.get_mut("a/v1").unwrap().is_copied = true;
    assert_eq!(line(&mut simulation), "0/0");
    simulation.csvs.clear();
    assert_eq!(line(&mut simulation), "0/0");
}

#[test]
fn olm_objects_are_read_leniently() {
    use super::super::olm::OlmObject;
    let metadata = json!({"name": "x", "namespace": "a", "resourceVersion": "7", "uid": "u"});
    let subscription: OlmObject = serde_json::from_value(json!({
        "metadata": metadata, "spec": {"name": "p", "source": "one", "sourceNamespace": "c"},
        "status": {"currentCSV": "v2", "installedCSV": "v1", "state": "UpgradePending"}}))
    .unwrap();
    let view = SubscriptionView::from(subscription);
    assert_eq!(view.catalog, id("c", "one"));
    assert_eq!(view.csvs, ["v1".to_owned(), "v2".to_owned()].into());
    let bare: OlmObject = serde_json::from_value(json!({"metadata": metadata})).unwrap();
    assert!(SubscriptionView::from(bare).csvs.is_empty());
    let catalog: OlmObject =
        serde_json::from_value(json!({"metadata": metadata, "spec": {"secrets": ["s", ""]}}))
            .unwrap();
    assert_eq!(CatalogView::from(catalog).secrets, ["s".to_owned()].into());
    for (status, labels, is_copied) in [
        (json!({"phase": "Succeeded"}), json!({}), false),
        (json!({"reason": "Copied"}), json!({}), true),
        (json!({}), json!({"olm.copiedFrom": "b"}), true),
    ] {
        let mut metadata = metadata.clone();
        metadata["labels"] = labels;
        let deployment = |pod: Value| json!({"name": "d", "spec": {"template": {"spec": pod}}});
        let csv: OlmObject = serde_json::from_value(json!({
            "metadata": metadata, "status": status,
            "spec": {"displayName": "X", "install": {"strategy": "deployment", "spec": {"deployments": [
                deployment(json!({"serviceAccountName": "op"})), deployment(json!({"containers": []}))]}}}}))
        .unwrap();
        let view = CsvView::from(csv);
        assert_eq!(
            view.accounts,
            ["default".to_owned(), "op".to_owned()].into()
        );
        assert_eq!((view.is_copied, view.uid.as_str()), (is_copied, "u"));
    }
}
