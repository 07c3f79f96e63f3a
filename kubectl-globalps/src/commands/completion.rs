//! `completion`, and the completions that kubectl requests from a plugin.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use globalps_core::api::{NodePullSecret, SourceRef};
use globalps_core::names;
use globalps_dockerconfig::{parse, shown_key};
use kube::ResourceExt as _;
use kube::api::ListParams;

use crate::cli::completion::{Live, Suggestion, WordCompletions, wanted};
use crate::cli::{Cli, Completion, Connection};
use crate::cluster::runtime::block_on;
use crate::cluster::{Cluster, kubeconfig};
use crate::error::{Exit, Result};
use crate::secret::additional::data_of;
use crate::secret::scope::shown;
use crate::target::fleet_history::revision_choices;
use crate::target::history;
use crate::target::pull_secret::{self, additional};
use crate::terminal::printer::Printer;
use crate::view::status::has_failed;

/// Users don't wait longer for a completion.
const DEADLINE: Duration = Duration::from_millis(1500);

/// Tells cobra's shell scripts not to complete file names.
const NO_FILES: u8 = 4;

/// Tells them not to add a space after the word.
const NO_SPACE: u8 = 2;

/// Prints the shell's script for the program's own name.
pub(super) fn run(args: &Completion, printer: &Printer) -> Exit {
    let mut script = Vec::new();
    let mut command = Cli::command();
    clap_complete::generate(args.shell, &mut command, "kubectl-globalps", &mut script);
    printer.data(&String::from_utf8_lossy(&script));
    Exit::Done
}

/// Prints the completions for kubectl: one per line with a tab and a description, then a line with a directive for the
/// shell. Errors are silent, because a message would appear in the command line.
pub(crate) fn answer(words: &[String]) {
    let printer = Printer::silent();
    let wanted = wanted(Cli::command(), words);
    let mut choices = wanted.choices.clone();
    if let Some(live) = wanted.live {
        choices.extend(ask(live, &wanted, &printer));
    }
    let mut lines: Vec<String> = choices
        .iter()
        .map(|(word, about)| format!("{word}\t{about}"))
        .collect();
    lines.push(format!(":{}", directive(&choices, wanted.files)));
    printer.data(&lines.join("\n"));
}

fn directive(choices: &[Suggestion], files: bool) -> u8 {
    let is_open = |(word, _): &Suggestion| word.ends_with('=');
    let no_files = if files { 0 } else { NO_FILES };
    if !choices.is_empty() && choices.iter().all(is_open) {
        no_files | NO_SPACE
    } else {
        no_files
    }
}

fn ask(live: Live, wanted: &WordCompletions, printer: &Printer) -> Vec<Suggestion> {
    let flags = ["kubectl-globalps", "version"]
        .map(str::to_owned)
        .into_iter()
        .chain(wanted.connection.iter().cloned());
    let Ok(mut cli) = Cli::try_parse_from(flags) else {
        return Vec::new();
    };
    cli.connection.is_of_fleet = live.is_of_fleet();
    let flags = &cli.connection;
    let found = match live {
        Live::Contexts | Live::Clusters | Live::Users => Ok(of_kubeconfig(live, flags)),
        _ => block_on(async {
            tokio::time::timeout(DEADLINE, of_cluster(live, wanted, flags, printer))
                .await
                .unwrap_or(Ok(Vec::new()))
        }),
    };
    let mut choices = found.unwrap_or_default();
    choices.retain(|(word, _)| word.starts_with(&wanted.prefix) && !wanted.given.contains(word));
    choices
}

fn of_kubeconfig(live: Live, flags: &Connection) -> Vec<Suggestion> {
    let Ok(Some(config)) = kubeconfig::read(flags) else {
        return Vec::new();
    };
    let names: Vec<String> = match live {
        Live::Contexts => config
            .contexts
            .into_iter()
            .map(|named| named.name)
            .collect(),
        Live::Clusters => config
            .clusters
            .into_iter()
            .map(|named| named.name)
            .collect(),
        _ => config
            .auth_infos
            .into_iter()
            .map(|named| named.name)
            .collect(),
    };
    names
        .into_iter()
        .map(|name| (name, String::new()))
        .collect()
}

async fn of_cluster(
    live: Live,
    wanted: &WordCompletions,
    flags: &Connection,
    printer: &Printer,
) -> Result<Vec<Suggestion>> {
    let cluster = Cluster::connect(flags, printer)?;
    match live {
        Live::Fleets | Live::MemberClusters | Live::FailedMemberClusters | Live::FleetRevisions => {
            super::fleet::choices(live, wanted.given.first(), &cluster).await
        }
        Live::Registries => {
            let secret = additional(&cluster).await?.unwrap_or_default();
            let bytes = data_of(&secret, names::DATA_KEY).unwrap_or_default();
            let config = parse(bytes).unwrap_or_default();
            let keys: BTreeSet<String> = config
                .entries()
                .iter()
                .map(|entry| shown_key(&entry.canonical_key()))
                .collect();
            let about = || "in additional-pull-secret".to_owned();
            Ok(keys.into_iter().map(|key| (key, about())).collect())
        }
        Live::Sources => {
            let gps = pull_secret::configuration(&cluster).await?;
            let sources = gps.map(|gps| gps.spec.sources).unwrap_or_default();
            let who = |source: &SourceRef| shown(source.scope.as_ref());
            Ok(sources.iter().map(|s| (s.name.clone(), who(s))).collect())
        }
        Live::Revisions => {
            let revisions = history::observe(&cluster).await?.revisions;
            Ok(revision_choices(&revisions))
        }
        _ => {
            let api = cluster.api::<NodePullSecret>();
            let all = ListParams::default();
            let objects = cluster
                .call("list the NodePullSecrets", api.list(&all))
                .await?;
            Ok(objects
                .iter()
                .map(|object| {
                    let status = object.status.as_ref();
                    (
                        object.name_any(),
                        status
                            .map(|status| status.phase.clone())
                            .unwrap_or_default(),
                    )
                })
                .filter(|(_, phase)| live == Live::Nodes || has_failed(phase))
                .map(|(name, phase)| (name, phase.to_string()))
                .collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_a_template_follows_gets_no_space() {
        for (words, files, expected) in [
            (vec!["json", "jsonpath="], false, 4),
            (vec!["jsonpath="], false, 6),
            (vec![], false, 4),
            (vec![], true, 0),
        ] {
            let choices = words.iter().map(|word| ((*word).to_owned(), String::new()));
            let choices: Vec<Suggestion> = choices.collect();
            assert_eq!(directive(&choices, files), expected, "{words:?}");
        }
    }
}
