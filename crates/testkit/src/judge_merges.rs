//! Judges merges with the kubelet's and containers/image's own code: a merge must not take a credential away from any image.

use anyhow::Result;
use globalps_dockerconfig::{DockerConfig, Precedence, merge, parse};

use crate::fuzz::case;
use crate::judge::compare;
use crate::oracle::{Answer, Case, Image, Oracle, Pair};

/// Merges per batch.
const BATCH: usize = 32;

/// Result of many merges.
#[derive(Default)]
pub struct Report {
    pub merges: u64,
    /// Number of images for which the kubelet had a credential before, and for which CRI-O had one.
    pub tried: u64,
    pub sent: u64,
    /// The first failures, as text.
    pub failures: Vec<String>,
}

/// Two files, and their merge, with the same images.
struct Merge {
    files: [Case; 3],
    /// CRI-O uses an entry with a scheme and a path for the whole host, which a merge does not.
    has_path_after_scheme: bool,
}

/// Merges pairs of generated files, starting with this number; stops after ten failures.
pub fn judge(seed: u64, number: u64) -> Result<Report> {
    let mut oracle = Oracle::start()?;
    let mut merges = (seed..).step_by(2).filter_map(merged);
    let mut report = Report::default();
    while report.merges < number && report.failures.len() < 10 {
        let batch: Vec<Merge> = merges.by_ref().take(BATCH).collect();
        let cases: Vec<Case> = batch.iter().flat_map(|merge| merge.files.clone()).collect();
        let answers = oracle.ask(&cases)?;
        for (merge, answers) in batch.iter().zip(answers.chunks_exact(3)) {
            report.merges += 1;
            report
                .failures
                .extend(compare(&merge.files[2], &answers[2]));
            judge_one(merge, answers, &mut report);
        }
    }
    Ok(report)
}

/// `None` if a kubelet can't read one of the files.
fn merged(number: u64) -> Option<Merge> {
    let (one, other) = (case(number).asked, case(number + 1).asked);
    let read = |case: &Case| {
        let config = parse(&case.config).ok()?;
        config.is_kubelet_readable().then_some(config)
    };
    let (original, additional) = (read(&one)?, read(&other)?);
    let precedence = if number % 4 < 2 {
        Precedence::Additional
    } else {
        Precedence::Original
    };
    let merged = merge(&original, &additional, precedence).config;
    let images = [one.images, other.images].concat();
    let file = |config: Vec<u8>| Case {
        config,
        images: images.clone(),
    };
    let has_path_after_scheme = |config: &DockerConfig| {
        let mut entries = config.entries().iter();
        entries.any(|entry| {
            let after_scheme = entry.key().split_once("://");
            let path = after_scheme.and_then(|(_, rest)| rest.split_once('/'));
            path.is_some_and(|(_, path)| !["", "v1", "v1/", "v2", "v2/"].contains(&path))
        })
    };
    Some(Merge {
        has_path_after_scheme: [&original, &additional]
            .into_iter()
            .any(has_path_after_scheme),
        files: [one.config, other.config, merged.render()].map(file),
    })
}

fn judge_one(merge: &Merge, answers: &[Answer], report: &mut Report) {
    for (at, name) in merge.files[2].images.iter().enumerate() {
        let [one, other, merged] = [0, 1, 2].map(|file| &answers[file].images[at]);
        // Kubelets also send Docker Hub's credentials to hosts without a dot; a merge keeps them for Docker Hub only.
        let is_host_without_dot = !one.repository.starts_with("docker.io/")
            && !one
                .repository
                .split('/')
                .next()
                .unwrap_or_default()
                .contains(['.', ':']);
        let kubelet = |image: &Image| image.tries.iter().any(is_complete);
        let crio = |image: &Image| {
            let has_token = !image.crio.identitytoken.is_empty();
            image.crio.outcome == "credential" && (is_complete(&image.crio.pair) || has_token)
        };
        let (tried, sent) = (kubelet(one) || kubelet(other), crio(one) || crio(other));
        report.tried += u64::from(tried);
        report.sent += u64::from(sent);
        let loses = |had: bool, has: bool| had && !has;
        let reader = if loses(tried && !is_host_without_dot, kubelet(merged)) {
            "the kubelet"
        } else if loses(sent && !merge.has_path_after_scheme, crio(merged)) {
            "CRI-O"
        } else {
            continue;
        };
        let texts = merge
            .files
            .each_ref()
            .map(|file| String::from_utf8_lossy(&file.config));
        report.failures.push(format!(
            "{reader} has no credential for {name:?} any more: {texts:?}"
        ));
    }
}

/// Programs send a user only with a password, and CRI-O treats NUL bytes at its ends as padding.
fn is_complete(pair: &Pair) -> bool {
    !pair.username.is_empty() && pair.password.iter().any(|byte| *byte != 0)
}
