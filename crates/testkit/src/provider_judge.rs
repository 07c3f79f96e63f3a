//! Compares the credential provider, as the kubelet's own code runs it, with what `core` computes.

use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use globalps_dockerconfig::attempts;
use globalps_provider::{Offer, PROVIDERS, ProviderConfig, offers, ports};

use crate::fuzz::{PullCase, pull_case};
use crate::judge::indexed;
use crate::oracle::{Kubelet, Offered, Pair};
use crate::product::provider_path;

/// Pulls per batch.
const BATCH: usize = 64;

/// Result of many pulls.
#[derive(Default)]
pub struct Report {
    pub pulls: u64,
    /// Number of pulls for which the kubelet had a credential for every pod, and for which it had one for some pods.
    pub with_node_wide: u64,
    pub with_scoped: u64,
    /// Number of pulls for which a scope withholds a credential.
    pub out_of_scope: u64,
    /// Number of image names that the kubelet rejects.
    pub refused: u64,
    /// The first disagreements, as text.
    pub disagreements: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, of) in [
            (self.with_node_wide, "pulls with a credential for every pod"),
            (self.with_scoped, "pulls with a credential for some pods"),
            (
                self.out_of_scope,
                "pulls from which a scope keeps a credential",
            ),
            (self.refused, "pulls of a name that the kubelet rejects"),
        ] {
            writeln!(f, "{number:>10}  {of}")?;
        }
        Ok(())
    }
}

/// Compares pulls, starting with this number, on all CPUs; each worker stops after ten disagreements.
pub fn judge(seed: u64, number: u64) -> Result<Report> {
    let workers = thread::available_parallelism().map_or(1, usize::from) as u64;
    let numbers = |worker: u64| (0..number).filter(move |at| at % workers == worker);
    let reports: Vec<Result<Report>> = thread::scope(|scope| {
        let start = |worker| scope.spawn(move || run(numbers(worker).map(|at| seed + at)));
        let running: Vec<_> = (0..workers).map(start).collect();
        let end = |worker: thread::ScopedJoinHandle<'_, Result<Report>>| worker.join();
        running
            .into_iter()
            .map(|worker| end(worker).unwrap_or_else(|_| Err(anyhow!("a worker panicked"))))
            .collect()
    });
    let mut sum = Report::default();
    for report in reports {
        let report = report?;
        sum.pulls += report.pulls;
        sum.with_node_wide += report.with_node_wide;
        sum.with_scoped += report.with_scoped;
        sum.out_of_scope += report.out_of_scope;
        sum.refused += report.refused;
        sum.disagreements.extend(report.disagreements);
    }
    Ok(sum)
}

fn run(numbers: impl Iterator<Item = u64> + Clone) -> Result<Report> {
    let dir = tempfile::tempdir()?;
    let (config, data) = (dir.path().join("providers.json"), dir.path().join("data"));
    // All ports that the content will use: a process can register its providers only once.
    let mut known = ProviderConfig {
        scopes: true,
        ..ProviderConfig::default()
    };
    for number in numbers.clone() {
        let content = pull_case(number).content;
        known.ports.extend(ports(&content.config));
        let scoped = content.scoped.iter();
        known
            .ports
            .extend(scoped.flat_map(|one| ports(&one.config)));
    }
    let data_path = data.to_str().context("a path that is not UTF-8")?;
    fs::write(&config, known.document(data_path, true))?;
    let program = std::path::absolute(provider_path())?;
    ensure!(
        program.exists(),
        "`{}` is missing: run `make image`",
        program.display()
    );
    for name in PROVIDERS {
        symlink(&program, dir.path().join(name))?;
    }
    let mut kubelet = Kubelet::start(&config, dir.path(), &data)?;
    let mut report = Report::default();
    let mut cases = numbers.map(pull_case);
    while report.disagreements.len() < 10 {
        let batch: Vec<PullCase> = cases.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        let pulls: Vec<_> = batch.iter().map(|case| &case.asked).collect();
        for (case, offered) in batch.iter().zip(kubelet.pull(&pulls)?) {
            report.add(case, &offered);
        }
    }
    Ok(report)
}

impl Report {
    fn add(&mut self, case: &PullCase, offered: &Offered) {
        let scoped = offered.tries.iter().filter(|one| one.scoped).count();
        self.pulls += 1;
        self.with_scoped += u64::from(scoped > 0);
        self.with_node_wide += u64::from(scoped < offered.tries.len());
        self.refused += u64::from(offered.repository.is_empty());
        self.out_of_scope += u64::from(withholds(case));
        self.disagreements.extend(compare(case, offered));
    }
}

/// The credentials that a kubelet tries, and whether each is for some pods only.
type Tries = Vec<(Pair, bool)>;

/// Whether an entry serves the image but not this pod.
fn withholds(case: &PullCase) -> bool {
    case.content.scoped.iter().any(|scoped| {
        let pod = case.pod.as_ref();
        let is_outside = !pod.is_some_and(|pod| scoped.scope.covers(pod));
        let tries = attempts(&[&scoped.config], &case.asked.image);
        is_outside && tries.is_ok_and(|tries| !tries.is_empty())
    })
}

/// The difference to core's result for a pull, as text.
fn compare(case: &PullCase, offered: &Offered) -> Option<String> {
    let ours = offers(&case.content, &case.asked.image, case.pod.as_ref());
    let theirs: Tries = offered
        .tries
        .iter()
        .map(|one| (one.pair.clone(), one.scoped))
        .collect();
    let difference = if !offered.panic.is_empty() {
        format!("the oracle panicked: {}", offered.panic)
    } else {
        match ours {
            Err(_) if offered.repository.is_empty() => return None,
            Err(error) => format!("globalps rejects the name ({error}), the kubelet accepts it"),
            Ok(_) if offered.repository.is_empty() => "the kubelet rejects the name".to_owned(),
            Ok(ours) => {
                let (ours, theirs) = ordered(&ours, theirs);
                if ours == theirs {
                    return None;
                }
                format!("globalps {ours:?}, the kubelet {theirs:?}")
            }
        }
    };
    let data = String::from_utf8_lossy(&case.asked.data);
    Some(format!(
        "{:?} in {}/{} (token {:?}): {difference}: {data}",
        case.asked.image, case.asked.namespace, case.asked.service_account, case.asked.token
    ))
}

/// Sorts both lists where the kubelet's order is random: among keys of one provider that the kubelet treats as equal.
fn ordered(ours: &[Offer], mut theirs: Tries) -> (Tries, Tries) {
    let is_same = |one: &Offer, other: &Offer| {
        one.source.is_some() == other.source.is_some()
            && indexed(&one.attempt.key) == indexed(&other.attempt.key)
    };
    let mut sorted = Vec::new();
    for group in ours.chunk_by(is_same) {
        let mut pairs: Vec<_> = group.iter().map(pair).collect();
        pairs.sort();
        if let Some(group) = theirs.get_mut(sorted.len()..sorted.len() + group.len()) {
            group.sort();
        }
        sorted.extend(pairs);
    }
    (sorted, theirs)
}

fn pair(offer: &Offer) -> (Pair, bool) {
    let pair = Pair {
        username: offer.attempt.credential.username.expose().to_vec(),
        password: offer.attempt.credential.password.expose().to_vec(),
    };
    (pair, offer.source.is_some())
}
