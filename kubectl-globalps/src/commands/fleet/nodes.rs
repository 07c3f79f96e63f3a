//! `fleet status --nodes`: one cluster, down to its nodes.

use super::super::status::{advise, show, with_health};
use super::status::print;
use crate::cli::{Connection, FleetStatus as Args, Form};
use crate::cluster::fleet::{FleetFacts, FleetFilter};
use crate::cluster::{Cluster, Facts, facts};
use crate::error::{Exit, Failure, Result};
use crate::follow::live::Follow;
use crate::follow::nodes::follow_some;
use crate::target::clusters::missing;
use crate::target::member;
use crate::terminal::output::Output;
use crate::terminal::printer::Printer;
use crate::view::fleet::{ClusterRow, FleetStatus};

pub(super) async fn run(args: &Args, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let how = Output::new(&args.output, args.no_headers);
    let (Some(fleet), [_]) = (&args.fleet, args.clusters.as_slice()) else {
        return Err(Failure::new(
            "`--nodes` shows the nodes of one cluster",
            "name the FleetPullSecret and the cluster: `kubectl globalps fleet status NAME CLUSTER --nodes`",
        ));
    };
    if args.wait {
        return Err(Failure::new(
            "`--wait` waits for what the hub reports, and `--nodes` shows what the cluster itself reports, which may be about an earlier revision",
            "leave out one of them, or follow the nodes with `--watch`",
        ));
    }
    let hub = Cluster::connect(flags, printer)?;
    let filter = FleetFilter {
        clusters: args.clusters.clone(),
        ..FleetFilter::of(fleet)
    };
    let facts = FleetFacts::observe(&hub, filter).await?;
    may_have_nodes(&facts)?;
    let mut statuses = facts.statuses();
    let Some(status) = statuses.first_mut() else {
        return Ok(Exit::Done);
    };
    missing(&args.clusters, status)?;
    let row = one(status)?.clone();
    if how.is_table() && !args.watch {
        print(&hub, std::slice::from_ref(status), &facts.filter, how)?;
        printer.data("");
    }
    let member = member::connect(&hub, &row, args, flags).await?;
    if args.watch {
        let all = facts::NodeFilter::default();
        return member.may(follow_some(&member.cluster, Follow::watch(), all).await);
    }
    let exit = if !args.output.is_text() && args.output != Form::Name {
        let seen = member.may(Facts::observe(&member.cluster).await)?;
        let now = member.cluster.now();
        let of_nodes = member.may(with_health(&member.cluster, &seen, now).await)?;
        for row in &mut status.clusters {
            row.status = Some(of_nodes.clone());
        }
        print(&hub, std::slice::from_ref(status), &facts.filter, how)?;
        advise(printer, &seen, &of_nodes, false)
    } else {
        member.may(show(&member.cluster, how, facts::NodeFilter::default()).await)?
    };
    if exit == Exit::No {
        printer.note(format_args!(
            "commands that are named above are for cluster `{}`: run them with its `--kubeconfig` or `--context`",
            row.name
        ));
    }
    Ok(if status.fleet.ready { exit } else { Exit::No })
}

/// Refuses a fleet whose Secret nodes do not get from globalps.
fn may_have_nodes(facts: &FleetFacts) -> Result<()> {
    let mut fleets = facts.fleets.iter();
    let other = fleets.find(|(_, fleet)| !fleet.spec.target.is_additional());
    let Some((title, fleet)) = other else {
        return Ok(());
    };
    let target = &fleet.spec.target;
    Err(Failure::new(
        format!(
            "FleetPullSecret `{title}` writes Secret `{}/{}`, which globalps delivers to no node",
            target.namespace, target.name
        ),
        "leave out `--nodes`",
    ))
}

/// The cluster that was named.
fn one(status: &FleetStatus) -> Result<&ClusterRow> {
    match status.clusters.as_slice() {
        [one] => Ok(one),
        rows => {
            let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
            Err(Failure::new(
                format!(
                    "the name is that of several clusters: `{}`",
                    names.join("`, `")
                ),
                "name one of them as NAMESPACE/NAME",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, Fleet, FleetCommand};
    use crate::view::fleet::tests::{fleet, object};
    use clap::Parser as _;
    use globalps_core::api::ClusterPhase;

    #[tokio::test(flavor = "current_thread")]
    async fn contradicting_flags_are_refused_before_any_request() {
        const ONE: &str = "`--nodes` shows the nodes of one cluster";
        const WAIT: &str = "`--wait` waits for what the hub reports, and `--nodes` shows what the cluster itself reports, which may be about an earlier revision";
        for (line, expected) in [
            ("--nodes", ONE),
            ("-A --nodes", ONE),
            ("team-a --nodes", ONE),
            ("team-a m1 m2 --nodes", ONE),
            ("team-a m1 --nodes --wait", WAIT),
        ] {
            let line = format!("kubectl-globalps fleet status {line} --kubeconfig /none");
            let cli = Cli::try_parse_from(line.split_whitespace()).expect("flags");
            let Command::Fleet(Fleet {
                command: FleetCommand::Status(args),
            }) = &cli.command
            else {
                unreachable!("it is `fleet status`");
            };
            let found = run(args, &cli.connection, &Printer::silent()).await;
            let failure = found.expect_err(&line);
            assert_eq!(failure.message, expected, "{line}");
            assert!(!failure.hint.is_empty());
        }
    }

    #[test]
    fn one_cluster_is_meant_and_its_nodes_get_the_secret() {
        let mut other = object("m1", ClusterPhase::Synced, 3);
        other.metadata.namespace = Some("edge".to_owned());
        let objects = [object("m1", ClusterPhase::Synced, 3), other];
        let status =
            |named: &str| FleetStatus::of(&fleet("Synced", 3), &objects, &[named.to_owned()]);
        let failure = one(&status("m1")).expect_err("two have the name");
        assert_eq!(
            failure.message,
            "the name is that of several clusters: `clusters/m1`, `edge/m1`"
        );
        let found = status("edge/m1");
        assert_eq!(one(&found).map(|row| row.name.as_str()), Ok("edge/m1"));

        let mut facts = FleetFacts::default();
        let mut fleet = fleet("Synced", 3);
        facts.fleets.insert("clusters/team-a", fleet.clone());
        assert_eq!(may_have_nodes(&facts), Ok(()));
        fleet.spec.target.name = "other".to_owned();
        facts.fleets.insert("clusters/team-a", fleet);
        let failure = may_have_nodes(&facts).expect_err("no node gets it");
        assert_eq!(
            failure.message,
            "FleetPullSecret `clusters/team-a` writes Secret `kube-system/other`, which globalps delivers to no node"
        );
    }
}
