use std::collections::BTreeSet;

use globalps_core::api::{Attach, ImagePullSecrets};
use globalps_core::names::{ATTACHED_ANNOTATION, GLOBAL_SECRET};
use globalps_core::namespaces::Selection;
use globalps_core::reasons::Reason;
use globalps_core::rollout::{Revision, RevisionId};
use globalps_core::state::ProofKey;
use globalps_dockerconfig::parse;
use globalps_provider::{Content, Scope, ScopedConfig};
use jiff::SignedDuration;
use serde_json::json;

use super::super::clock::SecretClock;
use super::super::digest::Digests;
use super::super::input::{Delivery, NamespacesInput};
use super::super::ownership::Ownership;
use super::super::views::PullSecretView;
use super::*;
use crate::content::digest::Digest;
use crate::content::secret::{Global, Since, revision_of_test};
use crate::targets::account::{AccountFields, AccountView};
use crate::targets::memory::Memory;
use crate::targets::namespace::NamespaceView;
use crate::targets::proof::Proof;
use crate::targets::write::{self, secret_key};

const NAME: &str = GLOBAL_SECRET;
const KEY: ProofKey = ProofKey([1; 16]);

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1)
}

fn since(every_pod: i64, a_source: i64) -> Since {
    let known = [("", every_pod), ("a-source", a_source)];
    let known = known.map(|(source, number)| (source.to_owned(), revision_of_test(number)));
    known.into()
}

/// The annotation for `5,a-source@6`. `5#`: another revision with this number, as after a removal or of a restored etcd. `5x`: without id.
fn annotation(text: &str) -> String {
    let words = text.split(',').map(|word| {
        let number = word.rsplit('@').next().unwrap_or_default();
        let revision = revision_of_test(number.trim_end_matches(['#', 'x']).parse().unwrap_or(0));
        let revision = match number.chars().last() {
            Some('#') => Revision::new(revision.number, RevisionId::from_random(2)),
            Some('x') => revision.unidentified(),
            _ => revision,
        };
        word.replace(number, &revision.text())
    });
    words.collect::<Vec<_>>().join(",")
}

/// The content for every pod since revision 5, and `a-source` for `a*` since 6.
fn global() -> Global {
    let config = parse(br#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#).unwrap();
    Global {
        revision: revision_of_test(7),
        content: Some(Content {
            config: config.clone(),
            scoped: vec![ScopedConfig {
                source: "a-source".to_owned(),
                scope: Scope {
                    namespaces: vec!["a*".to_owned().try_into().unwrap()],
                    service_accounts: Vec::new(),
                },
                config,
            }],
            ..Content::default()
        }),
        content_since: since(5, 6),
        ..Global::default()
    }
}

/// The previous revision.
fn stable() -> Global {
    Global {
        revision: revision_of_test(4),
        content_since: since(4, 4),
        ..global()
    }
}

#[derive(Clone, Copy)]
struct Case<'a> {
    /// `a a2=5,a-source@6 b=5! c~ d- e=4?`: name, content of its Secret (as [`annotation`]); `!`: another client has changed it, `?`: not created by
    /// the controller, `&`: nor that, but its manager says so, `^`: it is being deleted, `~`: the namespace is, `-`: the namespace excludes itself.
    namespaces: &'a str,
    /// `a/default a/ci=ref a/old=mark`: `ref`: with the controller's reference, `mark`: with only the record of it, `own`: with a
    /// foreign one, `many`: with the record and too many others. `a/*`: not all of the namespace are known. `?`: they can't be listed.
    accounts: &'a str,
    attach: Attach,
    is_enabled: bool,
    paused: bool,
    canary: Option<&'a str>,
    min_ready: i64,
    has_stable: bool,
    /// The Secrets were there before the leader, with this time.
    written: Timestamp,
    /// How many seconds the leader has seen everything as it is.
    later: i64,
}

const CASE: Case = Case {
    namespaces: "",
    accounts: "",
    attach: Attach::Admission,
    is_enabled: true,
    paused: false,
    canary: None,
    min_ready: 0,
    has_stable: false,
    written: Timestamp::constant(3590, 0),
    later: 0,
};

fn run(case: Case, memory: &Memory) -> DeliveryPlan {
    let mut namespaces = BTreeMap::new();
    let mut secrets = BTreeMap::new();
    for word in case.namespaces.split_whitespace() {
        let (name, content) = word.split_once('=').unwrap_or((word, ""));
        let marks = ['!', '?', '&', '^', '~', '-'];
        let bare = name.trim_end_matches(marks).to_owned();
        namespaces.insert(
            bare.clone(),
            NamespaceView {
                name: bare.clone(),
                version: 1,
                labels: (&BTreeMap::new()).into(),
                is_marked_excluded: name.ends_with('-'),
                is_terminating: name.ends_with('~'),
            },
        );
        if word.contains('=') {
            secrets.insert(
                bare.clone(),
                PullSecretView {
                    proof: Some(Proof::new(&KEY, &bare, NAME))
                        .filter(|_| !content.ends_with(['?', '&'])),
                    content: Some(Digest::of(annotation(content.trim_end_matches(marks))))
                        .filter(|_| !content.ends_with('!')),
                    is_applied: !content.ends_with('?'),
                    written: Some(case.written),
                    is_being_deleted: content.ends_with('^'),
                    finalizers: "x.io/y".into(),
                    ..PullSecretView::of_test(&bare)
                },
            );
        }
    }
    let mut accounts = BTreeMap::new();
    let mut crowded = BTreeSet::new();
    for word in case.accounts.trim_matches('?').split_whitespace() {
        let (key, state) = word.split_once('=').unwrap_or((word, ""));
        let (namespace, name) = key.split_once('/').unwrap();
        if name == "*" {
            crowded.insert(namespace.to_owned());
            continue;
        }
        let mut account =
            json!({"metadata": {"name": name, "namespace": namespace, "resourceVersion": "1"}});
        if ["ref", "own"].contains(&state) {
            account["imagePullSecrets"] = json!([{"name": NAME}]);
        }
        if state == "many" {
            let names = (0..40_000).map(|at| json!({"name": format!("x{at}")}));
            account["imagePullSecrets"] = names.collect();
        }
        if ["ref", "mark", "many"].contains(&state) {
            account["metadata"]["annotations"] = json!({ATTACHED_ANNOTATION: NAME});
        }
        let account: AccountFields = serde_json::from_value(account).unwrap();
        accounts.insert(
            key.to_owned(),
            AccountView::new(&account, ATTACHED_ANNOTATION),
        );
    }
    let settings = ImagePullSecrets::default();
    let selection = Selection::new(&settings).unwrap();
    let patterns = ["default".to_owned().try_into().unwrap()];
    let (global, stable) = (global(), stable());
    let delivery = case.is_enabled.then(|| Delivery {
        selection: &selection,
        parts: Parts::of(&global).unwrap(),
        stable: case.has_stable.then(|| Parts::of(&stable).unwrap()),
        attach: case.attach,
        accounts: &patterns,
        canary: case.canary,
        min_ready: SignedDuration::from_secs(case.min_ready),
        paused: case.paused,
    });
    let mut clock = SecretClock::default();
    for seconds in [0, case.later] {
        clock.observe(&secrets, SignedDuration::from_secs(seconds), now());
    }
    let mut ownership = Ownership::default();
    ownership.observe(&secrets, Some(KEY), NAME);
    let identities = ["5", "5,a-source@6"].map(annotation);
    let input = NamespacesInput {
        delivery,
        own_namespace: "own",
        secret_name: NAME,
        namespaces: &namespaces,
        secrets: &secrets,
        accounts: (case.accounts != "?").then_some(&accounts),
        crowded: &crowded,
        memory,
        clock: &clock,
        ownership: &ownership,
        now: now(),
    };
    plan(&input, &mut Digests::of_test(identities))
}

/// The writes in order: `a=5` (`~`: the previous revision), `-a`, `+a/default`, `-a/default`; then `synced/total`, and reasons of
/// failures.
fn line(case: Case, memory: &Memory) -> String {
    let plan = run(case, memory);
    let mut words: Vec<String> = plan
        .writes
        .iter()
        .map(|write| match write {
            Write::Secret { id, content, .. } => {
                let write::SecretContent::Namespace(NamespaceContent {
                    identity,
                    is_stable,
                    ..
                }) = content
                else {
                    panic!("{content:?} is for an operator");
                };
                let random = format!("-{}", revision_of_test(1).id);
                let stable = if *is_stable { "~" } else { "" };
                format!("{}={}{stable}", id.0, identity.replace(&random, ""))
            }
            Write::Delete { id, .. } => format!("-{}", id.0),
            Write::Account { key, change, .. } => match change.added[..] {
                [] => format!("-{key}"),
                _ => format!("+{key}"),
            },
        })
        .collect();
    words.push(format!("{}/{}", plan.summary.synced, plan.summary.total));
    words.extend(plan.summary.failures.iter().map(|f| f.reason.to_string()));
    if plan.needs_stable {
        words.push("stable?".to_owned());
    }
    if plan.summary.is_clean {
        words.push("clean".to_owned());
    }
    if plan.summary.is_over && !plan.summary.is_clean {
        words.push("over".to_owned());
    }
    words.join(" ")
}

#[test]
fn each_namespace_gets_its_content_one_first() {
    for (sentence, namespaces, expected) in [
        ("one namespace first", "a b c", "a=5,a-source@6 0/3 stable?"),
        ("then all", "a=5,a-source@6 b c", "b=5 c=5 1/3"),
        (
            "one first for each new part",
            "b=5 b2=5 a a2",
            "a=5,a-source@6 2/4 stable?",
        ),
        ("existing Secrets stay", "a=5,a-source@6 b=5", "2/2"),
        (
            "content that some namespace has needs no canary",
            "a=4 b=5 b2=4",
            "a=5,a-source@6 b2=5 1/3",
        ),
        (
            "nothing for kube-*, excluded and terminating namespaces",
            "kube-x b- c~ d",
            "d=5 0/1",
        ),
        (
            "a changed Secret is restored",
            "a=5,a-source@6 b=5!",
            "b=5 1/2",
        ),
        (
            "a number that another revision had is other content",
            "a=5#,a-source@6 b=5# b2=5x",
            "a=5,a-source@6 0/3",
        ),
        (
            "also of a source",
            "a=5,a-source@6# b=5 a2=5,a-source@6x",
            "a=5,a-source@6 1/3",
        ),
        (
            "and it is replaced after the canary",
            "a=5,a-source@6 b=5# a2=5#,a-source@6",
            "a2=5,a-source@6 b=5 1/3",
        ),
        (
            "a foreign Secret stays",
            "a=5,a-source@6 b=?",
            "1/2 ForeignSecret",
        ),
        (
            "the controller's state is not removed",
            "a=5,a-source@6 own=7",
            "1/1",
        ),
        (
            "left over",
            "a=5,a-source@6 kube-x=5 b-=5",
            "-b -kube-x 1/1",
        ),
        (
            "a foreign Secret is never deleted",
            "a=5,a-source@6 kube-x=5?",
            "1/1",
        ),
        (
            "what its manager says is not believed",
            "a=5,a-source@6 b=& b2=4& kube-x=5&",
            "1/3 ForeignSecret ForeignSecret",
        ),
        (
            "with the content that it gets it is no other client's",
            "a=5,a-source@6 b=5& b2=5?",
            "b=5 1/3 ForeignSecret",
        ),
    ] {
        let case = Case { namespaces, ..CASE };
        assert_eq!(line(case, &Memory::default()), expected, "{sentence}");
    }
}

#[test]
fn new_content_waits_for_its_canary_new_namespaces_get_the_old() {
    for (sentence, case, expected) in [
        (
            "paused: existing Secrets stay, and new namespaces get the stable content",
            Case {
                namespaces: "a=4,a-source@4 n",
                paused: true,
                has_stable: true,
                ..CASE
            },
            "n=4~ 0/2",
        ),
        (
            "a configured canary",
            Case {
                namespaces: "a=4,a-source@4 a2=4,a-source@4 n",
                canary: Some("a2"),
                has_stable: true,
                ..CASE
            },
            "a2=5,a-source@6 n=4~ 0/3",
        ),
        (
            "a canary that has everything",
            Case {
                namespaces: "a=4,a-source@4 b=5",
                canary: Some("b"),
                ..CASE
            },
            "a=5,a-source@6 1/2",
        ),
        (
            "a canary that does not exist",
            Case {
                namespaces: "a=4,a-source@4 n",
                canary: Some("x"),
                has_stable: true,
                ..CASE
            },
            "n=4~ 0/2",
        ),
        (
            "its Secret must be old enough",
            Case {
                namespaces: "a=5,a-source@6 a2=4,a-source@4",
                min_ready: 11,
                ..CASE
            },
            "1/2",
        ),
        (
            "and it is",
            Case {
                namespaces: "a=5,a-source@6 a2=4,a-source@4",
                min_ready: 10,
                ..CASE
            },
            "a2=5,a-source@6 1/2",
        ),
    ] {
        assert_eq!(line(case, &Memory::default()), expected, "{sentence}");
    }
    let ahead = Case {
        namespaces: "a=5,a-source@6 a2=4,a-source@4",
        min_ready: 10,
        written: Timestamp::MAX,
        ..CASE
    };
    let again_at = run(ahead, &Memory::default()).again_at;
    assert_eq!(
        again_at,
        Some(now() + SignedDuration::from_secs(10)),
        "a time in the future delays nothing"
    );
    let waiting = Case {
        namespaces: "a=5,a-source@6 a2",
        min_ready: 11,
        ..CASE
    };
    let again_at = run(waiting, &Memory::default()).again_at;
    assert_eq!(again_at, Some(now() + SignedDuration::from_secs(1)));
    let absent = Case {
        namespaces: "a",
        canary: Some("x"),
        ..CASE
    };
    assert!(run(absent, &Memory::default()).summary.canary.is_some());
}

#[test]
fn a_failed_namespace_is_reported_and_blocks_no_other() {
    let mut memory = Memory::default();
    let message = "exceeded quota".to_owned();
    memory.failed(
        &key("a"),
        Reason::QuotaExceeded,
        message.clone(),
        now(),
        1.0,
    );
    let case = Case {
        namespaces: "a a2 b",
        ..CASE
    };
    assert_eq!(
        line(case, &memory),
        "a2=5,a-source@6 0/3 QuotaExceeded stable?"
    );
    let done = Case {
        namespaces: "a a2=5,a-source@6 b",
        ..CASE
    };
    assert_eq!(line(done, &memory), "b=5 1/3 QuotaExceeded");
    let mut memory = Memory::default();
    let earlier = now() - SignedDuration::from_secs(2);
    memory.failed(&key("a"), Reason::QuotaExceeded, message, earlier, 1.0);
    assert_eq!(
        line(done, &memory),
        "a=5,a-source@6 b=5 1/3 QuotaExceeded",
        "its backoff is over"
    );
    let alone = Case {
        namespaces: "a",
        ..CASE
    };
    assert_eq!(
        line(alone, &memory),
        "a=5,a-source@6 0/1 QuotaExceeded",
        "there is no other canary"
    );
}

#[test]
fn references_are_added_after_secrets_and_removed_before_them() {
    let accounts = Attach::ServiceAccounts;
    for (sentence, case, expected) in [
        (
            "the Secret first",
            Case {
                namespaces: "a",
                accounts: "a/default a/ci",
                attach: accounts,
                ..CASE
            },
            "a=5,a-source@6 0/1",
        ),
        (
            "then the reference",
            Case {
                namespaces: "a=5,a-source@6",
                accounts: "a/default a/ci",
                attach: accounts,
                ..CASE
            },
            "+a/default 0/1",
        ),
        (
            "an account with too many references, or too many accounts, harm their namespace alone",
            Case {
                namespaces: "a=5,a-source@6 b=5 c=5",
                accounts: "a/default b/ci=ref b/default=many c/*",
                attach: accounts,
                ..CASE
            },
            "+a/default -b/ci 0/3 TooManyReferences TooManyAccounts",
        ),
        (
            "they keep no Secret",
            Case {
                namespaces: "a=5,a-source@6 b=5",
                accounts: "a/default=many b/*",
                is_enabled: false,
                ..CASE
            },
            "-a -b 0/0",
        ),
        (
            "after another client removed it",
            Case {
                namespaces: "a=5,a-source@6 b=5",
                accounts: "a/default=mark b/default=ref",
                attach: accounts,
                ..CASE
            },
            "+a/default 1/2",
        ),
        (
            "no reference to a foreign Secret",
            Case {
                namespaces: "a=5?",
                accounts: "a/default",
                attach: accounts,
                ..CASE
            },
            "0/1 ForeignSecret",
        ),
        (
            "a foreign reference is sufficient",
            Case {
                namespaces: "a=5,a-source@6",
                accounts: "a/default=own",
                attach: accounts,
                ..CASE
            },
            "1/1",
        ),
        (
            "with admission no reference is needed",
            Case {
                namespaces: "a=5,a-source@6",
                accounts: "a/default=ref a/ci=own",
                ..CASE
            },
            "-a/default 0/1",
        ),
        (
            "an excluded namespace loses the reference",
            Case {
                namespaces: "a-=5",
                accounts: "a/default=ref",
                attach: accounts,
                ..CASE
            },
            "-a/default 0/0",
        ),
        (
            "and then the Secret",
            Case {
                namespaces: "a-=5",
                accounts: "a/default",
                attach: accounts,
                ..CASE
            },
            "-a 0/0",
        ),
        (
            "Secrets don't wait for service accounts that can't be listed",
            Case {
                namespaces: "a=4,a-source@4 b-=5",
                accounts: "?",
                attach: accounts,
                ..CASE
            },
            "a=5,a-source@6 -b 0/1",
        ),
        (
            "nobody knows whether they have references",
            Case {
                namespaces: "a=5,a-source@6",
                accounts: "?",
                attach: accounts,
                ..CASE
            },
            "0/1",
        ),
        (
            "and with admission nobody needs to",
            Case {
                namespaces: "a=5,a-source@6",
                accounts: "?",
                ..CASE
            },
            "1/1",
        ),
        (
            "a removal ends without them",
            Case {
                namespaces: "a",
                accounts: "?",
                is_enabled: false,
                ..CASE
            },
            "0/0 over",
        ),
        (
            "everything is removed",
            Case {
                namespaces: "a=5 b=5 c=5? d",
                accounts: "a/default=ref c/default=own",
                is_enabled: false,
                ..CASE
            },
            "-b -a/default 0/0",
        ),
        (
            "nothing is left",
            Case {
                namespaces: "a c=5? d~=5",
                accounts: "c/default=own",
                is_enabled: false,
                ..CASE
            },
            "0/0 clean",
        ),
    ] {
        assert_eq!(line(case, &Memory::default()), expected, "{sentence}");
    }
}

/// A write failed this many seconds ago, and is retried one second after that.
fn failed(memory: &mut Memory, of: &str, seconds: i64) {
    let then = now() - SignedDuration::from_secs(seconds);
    memory.failed(&key(of), Reason::Rejected, "no".to_owned(), then, 1.0);
}

fn restored(memory: &mut Memory, of: &str, times: u32) {
    for _ in 0..times {
        memory.restored(&key(of), now());
    }
}

/// Of the Secret in this namespace, or of this service account.
fn key(of: &str) -> String {
    match of.split_once('/') {
        Some(_) => of.to_owned(),
        None => secret_key(of, NAME),
    }
}

#[test]
fn a_canary_that_fails_is_passed_over() {
    let none = Memory::default();
    let mut contested = Memory::default();
    contested.wrote(&key("a"), &annotation("5,a-source@6"));
    restored(&mut contested, "a", 5);
    let mut about_earlier = Memory::default();
    about_earlier.wrote(&key("a"), &annotation("4,a-source@4"));
    restored(&mut about_earlier, "a", 5);
    let mut rejected = Memory::default();
    failed(&mut rejected, "a", 0);
    let mut due = Memory::default();
    failed(&mut due, "a", 1);
    for (sentence, namespaces, memory, expected, has_failed) in [
        (
            "a foreign Secret",
            "a=? a2",
            &none,
            "a2=5,a-source@6 0/2 ForeignSecret",
            false,
        ),
        (
            "and no other namespace",
            "a=?",
            &none,
            "0/1 ForeignSecret",
            true,
        ),
        (
            "a fight",
            "a a2",
            &contested,
            "a2=5,a-source@6 0/2 Conflict",
            false,
        ),
        (
            "a fight, and no other namespace",
            "a",
            &contested,
            "0/1 Conflict",
            true,
        ),
        (
            "a fight, no other namespace, other content",
            "a=4,a-source@4!",
            &about_earlier,
            "a=5,a-source@6 0/1",
            false,
        ),
        (
            "a rejected canary",
            "a a2",
            &rejected,
            "a2=5,a-source@6 0/2 Rejected",
            false,
        ),
        (
            "and no other namespace",
            "a",
            &rejected,
            "0/1 Rejected",
            true,
        ),
        (
            "until it is retried",
            "a",
            &due,
            "a=5,a-source@6 0/1 Rejected",
            false,
        ),
        (
            "after others",
            "a a2",
            &due,
            "a2=5,a-source@6 0/2 Rejected stable?",
            false,
        ),
        (
            "also if it has a part already",
            "a a2 b=5",
            &rejected,
            "a2=5,a-source@6 1/3 Rejected",
            false,
        ),
    ] {
        let case = Case { namespaces, ..CASE };
        assert_eq!(line(case, memory), expected, "{sentence}");
        let canary_error = run(case, memory).summary.canary;
        assert_eq!(canary_error.is_some(), has_failed, "{sentence}");
    }
    for (sentence, namespaces, has_failed) in [
        ("a configured canary that does not exist", "a=4", true),
        (
            "does not matter without new content",
            "a=5,a-source@6 a2",
            false,
        ),
    ] {
        let case = Case {
            namespaces,
            canary: Some("x"),
            ..CASE
        };
        let canary_error = run(case, &none).summary.canary;
        assert_eq!(canary_error.is_some(), has_failed, "{sentence}");
    }
}

#[test]
fn an_unremovable_secret_is_named_and_delays_nothing_else() {
    let mut refused = Memory::default();
    failed(&mut refused, "b", 30);
    let mut just_refused = Memory::default();
    failed(&mut just_refused, "b", 29);
    let mut kept = Memory::default();
    failed(&mut kept, "b/default", 30);
    let none = Memory::default();
    for (sentence, is_enabled, namespaces, later, memory, expected, waiting) in [
        (
            "it may take a while",
            true,
            "a=5,a-source@6 b=4^",
            29,
            &none,
            "1/2",
            1,
        ),
        (
            "then it fails",
            true,
            "a=5,a-source@6 b=4^ c=4",
            30,
            &none,
            "c=5 1/3 Terminating",
            1,
        ),
        (
            "when it has the content, too",
            true,
            "a=5,a-source@6 b=5^",
            30,
            &none,
            "1/2 Terminating",
            0,
        ),
        (
            "a left-over is none of those that should have one",
            true,
            "a=5,a-source@6 b-=5^ c=4 kube-x=5^",
            30,
            &none,
            "c=5 1/2 Terminating Terminating",
            1,
        ),
        (
            "everything is removed",
            false,
            "a b=5^ c=5",
            29,
            &none,
            "-c 0/0",
            0,
        ),
        (
            "but what cannot be",
            false,
            "a b=5^ c=5",
            30,
            &none,
            "-c 0/0 Terminating",
            0,
        ),
        (
            "and that is the end",
            false,
            "a b=5^",
            30,
            &none,
            "0/0 Terminating over",
            0,
        ),
        ("not before", false, "a b=5^", 29, &none, "0/0", 0),
        (
            "a webhook refuses it",
            false,
            "a b=5",
            0,
            &refused,
            "-b 0/0 Rejected over",
            0,
        ),
        (
            "not yet for long",
            false,
            "a b=5",
            0,
            &just_refused,
            "-b 0/0 Rejected",
            0,
        ),
        (
            "its reference",
            false,
            "a b=5",
            0,
            &kept,
            "-b/default 0/0 Rejected over",
            0,
        ),
    ] {
        let case = Case {
            namespaces,
            accounts: if expected.contains("b/default") {
                "b/default=ref"
            } else {
                ""
            },
            is_enabled,
            later,
            ..CASE
        };
        assert_eq!(line(case, memory), expected, "{sentence}");
        let plan = run(case, memory);
        assert_eq!(plan.summary.waiting, waiting, "{sentence}");
        let failures = plan.summary.failures.iter();
        let mut terminating = failures.filter(|failure| failure.reason == Reason::Terminating);
        assert!(terminating.all(|it| it.message.contains("finalizers x.io/y")));
        if later == 29 {
            let again_at = now() + SignedDuration::from_secs(1);
            assert_eq!(plan.again_at, Some(again_at), "{sentence}");
        }
    }
}

#[test]
fn a_reference_that_is_not_removed_yet_keeps_its_secret() {
    for (seconds, expected) in [(0, "0/0 Rejected"), (1, "-a/default 0/0 Rejected")] {
        let mut memory = Memory::default();
        failed(&mut memory, "a/default", seconds);
        let case = Case {
            namespaces: "a-=5",
            accounts: "a/default=ref",
            attach: Attach::ServiceAccounts,
            ..CASE
        };
        assert_eq!(line(case, &memory), expected);
    }
}

#[test]
fn the_summary_counts_namespaces_and_own_references() {
    let case = Case {
        namespaces: "a=5,a-source@6 b=4 c~ d- kube-x own",
        accounts: "a/default=ref a/ci=mark b/default=own b/ci",
        attach: Attach::ServiceAccounts,
        ..CASE
    };
    let summary = run(case, &Memory::default()).summary;
    let counts = (summary.total, summary.excluded, summary.accounts);
    assert_eq!(counts, (2, 2, 2));
}

#[test]
fn removals_do_not_wait_for_the_last_writes_of_a_rotation() {
    let due: Vec<String> = (0..=WRITES).map(|at| format!("n{at}")).collect();
    let namespaces = format!("first=5 {} left-=5", due.join(" "));
    let case = Case {
        namespaces: &namespaces,
        ..CASE
    };
    let writes = run(case, &Memory::default()).writes;
    assert_eq!(writes.len(), WRITES + 1);
    assert!(matches!(writes.last(), Some(Write::Delete { id, .. }) if id.0 == "left"));
}
