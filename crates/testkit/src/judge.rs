//! Compares globalps with the kubelet's and containers/image's own code.

use std::collections::BTreeMap;

use anyhow::Result;
use globalps_dockerconfig::{
    Credential, Crio, DockerConfig, Explanation, canonical_key, explain, parse,
};

use crate::fuzz::{Histogram, case};
use crate::oracle::{Answer, Case, Image, Oracle, Pair};

/// Cases per batch.
const BATCH: usize = 64;

/// Result of many cases.
pub struct Report {
    pub cases: u64,
    pub kinds: Histogram,
    /// Number of files that the kubelet accepted: a generator that only made invalid files would prove little.
    pub accepted: u64,
    /// Number of images for which the kubelet had a credential, and for which CRI-O had one.
    pub tried: u64,
    pub sent: u64,
    /// The first disagreements, as text.
    pub disagreements: Vec<String>,
}

/// Compares cases, starting with this number; stops after ten disagreements.
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

/// Every difference between globalps and the oracle in a case, as text.
pub fn compare(case: &Case, answer: &Answer) -> Vec<String> {
    let parsed = parse(&case.config);
    let accepted = parsed.as_ref().is_ok_and(DockerConfig::is_kubelet_readable);
    let config = String::from_utf8_lossy(&case.config);
    let mut found = Vec::new();
    if !answer.panic.is_empty() {
        found.push(format!("the oracle panicked: {}: {config:?}", answer.panic));
    }
    if accepted != answer.accepted {
        found.push(format!(
            "accepted: globalps {accepted}, the kubelet {}: {config:?}",
            answer.accepted
        ));
    }
    if let (true, Ok(parsed)) = (answer.accepted, &parsed) {
        let ours = entries(parsed);
        if ours != answer.auths {
            found.push(format!(
                "entries: globalps {ours:?}, the kubelet {:?}: {config:?}",
                answer.auths
            ));
        }
    }
    for (name, image) in case.images.iter().zip(&answer.images) {
        let ours = parsed.as_ref().map(|parsed| explain(parsed, name));
        let difference = match ours {
            Ok(Ok(ours)) => differs(&ours, image),
            Ok(Err(_)) => (!image.repository.is_empty())
                .then(|| format!("rejected only by globalps, is {}", image.repository)),
            // If the file is not JSON or has no usable `auths`, no reader finds any credential.
            Err(_) => (!image.tries.is_empty() || image.crio.outcome != "error")
                .then(|| format!("{image:?}")),
        };
        if let Some(difference) = difference {
            found.push(format!("{name:?}: {difference}: {config:?}"));
        }
    }
    found
}

/// What a kubelet reads from each entry, by the key in the file.
fn entries(config: &DockerConfig) -> BTreeMap<String, Pair> {
    let entries = config.entries().iter();
    entries
        .filter_map(|entry| {
            let credential = entry.credential().ok()?;
            Some((
                entry.key().to_owned(),
                credential.map(pair).unwrap_or_default(),
            ))
        })
        .collect()
}

fn differs(ours: &Explanation, theirs: &Image) -> Option<String> {
    if ours.repository != theirs.repository {
        return Some(format!(
            "repository: globalps {:?}, the kubelet {:?}",
            ours.repository, theirs.repository
        ));
    }
    let tried = ours
        .tries
        .iter()
        .map(|found| (found.key.clone(), pair(&found.credential)));
    let asked = theirs
        .keys
        .iter()
        .cloned()
        .zip(theirs.tries.iter().cloned());
    let (tried, asked) = (ordered(tried.collect()), ordered(asked.collect()));
    if tried != asked {
        return Some(format!("tries: globalps {tried:?}, the kubelet {asked:?}"));
    }
    let same = |crio: &Crio| match crio {
        Crio::Credential(found) => {
            theirs.crio.outcome == "credential" && pair(&found.credential) == theirs.crio.pair
        }
        Crio::None => theirs.crio.outcome == "none",
        Crio::Error { .. } => theirs.crio.outcome == "error",
    };
    (!ours.crio.iter().any(same))
        .then(|| format!("CRI-O: globalps {:?}, CRI-O {:?}", ours.crio, theirs.crio))
}

/// Sorts tries of keys that the kubelet treats as equal, because they come in the random order of a map.
fn ordered(mut tries: Vec<(String, Pair)>) -> Vec<(String, Pair)> {
    tries
        .chunk_by_mut(|(one, _), (other, _)| indexed(one) == indexed(other))
        .for_each(<[_]>::sort);
    tries
}

/// The same text for keys that the kubelet treats as equal. Unlike in `canonical_key`, `https://quay.io/v1` differs
/// from `quay.io`.
pub fn indexed(key: &str) -> String {
    let bare = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    canonical_key(bare.unwrap_or(key))
}

fn pair(credential: &Credential) -> Pair {
    Pair {
        username: credential.username.expose().to_vec(),
        password: credential.password.expose().to_vec(),
    }
}
