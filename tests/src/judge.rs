//! Ours against the kubelet's and containers/image's own code.

use anyhow::Result;
use globalps_core::dockerconfig::{
    Credential, Crio, DockerConfig, Explanation, canonical_key, explain, parse,
};

use crate::fuzz::{Histogram, case};
use crate::oracle::{Answer, Case, Image, Oracle, Pair};

/// Cases that are in the pipe at once.
const BATCH: usize = 64;

/// What a run of many cases gave.
pub struct Report {
    pub cases: u64,
    pub kinds: Histogram,
    /// Cases that were read, of all of them: a generator that only makes bad ones proves little.
    pub accepted: u64,
    /// Images for which the kubelet had a credential, and CRI-O.
    pub tried: u64,
    pub sent: u64,
    /// At most some of them, each as text.
    pub disagreements: Vec<String>,
}

/// Compares the cases from this number on; stops after ten disagreements.
pub fn judge(seed: u64, number: u64) -> Result<Report> {
    let mut oracle = Oracle::start()?;
    let mut numbers = seed..;
    let mut report = Report {
        cases: 0,
        kinds: Histogram::default(),
        accepted: 0,
        tried: 0,
        sent: 0,
        disagreements: Vec::new(),
    };
    while report.cases < number && report.disagreements.len() < 10 {
        let batch: Vec<Case> = numbers
            .by_ref()
            .take(BATCH)
            .map(|number| {
                let case = case(number);
                report.kinds.add(&case);
                case.asked
            })
            .collect();
        let answers = oracle.ask(&batch)?;
        for (case, answer) in batch.iter().zip(&answers) {
            report.cases += 1;
            report.accepted += u64::from(answer.accepted);
            report.tried += answer
                .images
                .iter()
                .filter(|image| !image.tries.is_empty())
                .count() as u64;
            report.sent += answer
                .images
                .iter()
                .filter(|image| image.crio.outcome == "credential")
                .count() as u64;
            report.disagreements.extend(compare(case, answer));
        }
    }
    Ok(report)
}

/// What ours says otherwise about a case, each as text.
pub fn compare(case: &Case, answer: &Answer) -> Vec<String> {
    let parsed = parse(&case.config);
    let accepted = parsed.as_ref().is_ok_and(DockerConfig::is_kubelet_readable);
    let config = String::from_utf8_lossy(&case.config);
    let mut found = Vec::new();
    if !answer.panic.is_empty() {
        found.push(format!("the oracle panics: {}: {config:?}", answer.panic));
    }
    if accepted != answer.accepted {
        found.push(format!(
            "accepted: ours {accepted}, the kubelet {}: {config:?}",
            answer.accepted
        ));
    }
    for (name, image) in case.images.iter().zip(&answer.images) {
        let ours = parsed.as_ref().map(|parsed| explain(parsed, name));
        let difference = match ours {
            Ok(Ok(ours)) => differs(&ours, image),
            Ok(Err(_)) => (!image.repository.is_empty())
                .then(|| format!("refused by ours only, is {}", image.repository)),
            // Not even JSON, or no `auths` that could be one: nobody has anything of it.
            Err(_) => (!image.tries.is_empty() || image.crio.outcome != "error")
                .then(|| format!("{image:?}")),
        };
        if let Some(difference) = difference {
            found.push(format!("{name:?}: {difference}: {config:?}"));
        }
    }
    found
}

fn differs(ours: &Explanation, theirs: &Image) -> Option<String> {
    if ours.repository != theirs.repository {
        return Some(format!(
            "repository: ours {:?}, theirs {:?}",
            ours.repository, theirs.repository
        ));
    }
    let mut rest = theirs.tries.as_slice();
    let mut tries = ours.tries.as_slice();
    if tries.len() != rest.len() {
        return Some(format!("tries: ours {tries:?}, theirs {rest:?}"));
    }
    // Keys that are one to the kubelet come in the random order of a map; all others in a fixed one.
    while let Some(first) = tries.first() {
        let key = canonical_key(&first.key);
        let length = tries
            .iter()
            .take_while(|found| canonical_key(&found.key) == key)
            .count();
        let (mut group, mut their_group): (Vec<Pair>, Vec<Pair>) = (
            tries[..length]
                .iter()
                .map(|found| pair(&found.credential))
                .collect(),
            rest[..length].to_vec(),
        );
        group.sort();
        their_group.sort();
        if group != their_group {
            return Some(format!(
                "tries: ours {:?}, theirs {:?}",
                ours.tries, theirs.tries
            ));
        }
        (tries, rest) = (&tries[length..], &rest[length..]);
    }
    let same = |crio: &Crio| match crio {
        Crio::Credential(found) => {
            theirs.crio.outcome == "credential" && pair(&found.credential) == theirs.crio.pair
        }
        Crio::None => theirs.crio.outcome == "none",
        Crio::Error { .. } => theirs.crio.outcome == "error",
    };
    (!ours.crio.iter().any(same))
        .then(|| format!("CRI-O: ours {:?}, theirs {:?}", ours.crio, theirs.crio))
}

fn pair(credential: &Credential) -> Pair {
    Pair {
        username: credential.username.expose().to_vec(),
        password: credential.password.expose().to_vec(),
    }
}
