//! `fleet diff`: what the source Secret changes in the clusters.

use globalps_core::api::{ClusterPhase, FleetPullSecret, FleetSecretRef};
use globalps_core::names;
use globalps_dockerconfig::{DockerConfig, validate_bytes};
use kube::ResourceExt as _;

use crate::cli::{Connection, FleetDiff};
use crate::cluster::client::Cluster;
use crate::cluster::fleet::{FleetFacts, FleetFilter};
use crate::credentials::file::read;
use crate::credentials::manifest::proposed;
use crate::error::{Exit, Failure, Result};
use crate::secret::additional::{data_of, refuse_invalid};
use crate::secret::changes::{InForce, changes, sides, text};
use crate::target::clusters::missing;
use crate::target::fleet_history::own_revision;
use crate::target::pull_secret;
use crate::terminal::external_diff::{Text, show};
use crate::terminal::printer::Printer;
use crate::view::fleet::difference::{ClusterDifference, FleetDifference};
use crate::view::fleet::verdict::command;
use crate::view::fleet::{ClusterRow, title};

pub(super) async fn run(args: &FleetDiff, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let file = args.filename.as_deref().map(read).transpose()?;
    let file = file.as_deref().map(proposed).transpose()?;
    let hub = Cluster::connect(flags, printer)?;
    let has_file = file.is_some();
    let Some((difference, in_force, wanted)) = compare(&hub, args, file).await? else {
        return Ok(Exit::Done);
    };
    let shown = text(&difference.changes);
    let text = Text {
        lines: &shown,
        file: &args.fleet,
        sides: || sides(&in_force, &wanted, &difference.changes),
    };
    show(printer, &args.output, &difference, &text)?;
    if args.output.is_text() {
        let of_clusters = difference.of_clusters();
        if !of_clusters.is_empty() {
            printer.data(&of_clusters);
        }
        for line in difference.notes() {
            printer.note(line);
        }
    }
    Ok(Exit::of(difference.is_empty(has_file)))
}

/// The difference, what is in force, and what is wanted: `file`, or what the source Secret has.
async fn compare(
    hub: &Cluster<'_>,
    args: &FleetDiff,
    file: Option<DockerConfig>,
) -> Result<Option<(FleetDifference, InForce, DockerConfig)>> {
    let filter = FleetFilter {
        clusters: args.clusters.clone(),
        ..FleetFilter::of(&args.fleet)
    };
    let facts = FleetFacts::observe(hub, filter).await?;
    let statuses = facts.statuses();
    let mut fleets = facts.fleets.iter();
    let (Some((_, fleet)), Some(status)) = (fleets.next(), statuses.first()) else {
        return Ok(None);
    };
    missing(&args.clusters, status)?;
    let wanted = match file {
        Some(file) => file,
        None => source(hub, fleet).await?,
    };
    let revision = status.fleet.revision;
    let in_force = of_revision(hub, fleet, revision).await?;
    let mut clusters = Vec::new();
    for row in status.clusters.iter().filter(|_| status.is_part) {
        let changes = if row.revision == revision {
            changes(&in_force, &wanted)
        } else {
            changes(&of_revision(hub, fleet, row.revision).await?, &wanted)
        };
        clusters.push(ClusterDifference {
            name: row.name.clone(),
            phase: row.phase.to_string(),
            revision: row.revision,
            changes,
        });
    }
    let lagging = status.clusters.iter().filter(|row| lags(row));
    let difference = FleetDifference {
        name: title(fleet),
        revision,
        changes: changes(&in_force, &wanted),
        lagging_clusters: lagging.map(|row| row.name.clone()).collect(),
        clusters,
    };
    Ok(Some((difference, in_force, wanted)))
}

/// A cluster that has not what it should have.
fn lags(row: &ClusterRow) -> bool {
    row.phase != ClusterPhase::Synced
}

/// What the source Secret has. Without a valid one the hub changes nothing, so that there is nothing to compare.
async fn source(hub: &Cluster<'_>, fleet: &FleetPullSecret) -> Result<DockerConfig> {
    let FleetSecretRef { name, key } = &fleet.spec.secret_ref;
    let hint = || {
        let undo = command("undo", &title(fleet));
        format!("every cluster keeps what it has; fix the Secret, or go back with {undo}")
    };
    let secret = pull_secret::get(hub, name).await?;
    let bytes = secret.as_ref().and_then(|secret| data_of(secret, key));
    let bytes = bytes.ok_or_else(|| {
        let namespace = &hub.namespace;
        let message = match secret {
            Some(_) => format!("source Secret `{namespace}/{name}` has no key `{key}`"),
            None => format!("there is no source Secret `{namespace}/{name}`"),
        };
        Failure::new(message, hint())
    })?;
    let (config, findings) = validate_bytes(bytes);
    refuse_invalid(name, &findings).map_err(|failure| Failure::new(failure.message, hint()))?;
    Ok(config.unwrap_or_default())
}

/// 0: nothing.
async fn of_revision(hub: &Cluster<'_>, fleet: &FleetPullSecret, number: i64) -> Result<InForce> {
    if number == 0 {
        return Ok(InForce::default());
    }
    let name = names::fleet_revision(&fleet.name_any(), number);
    let secret = pull_secret::get(hub, &name).await?;
    let revision = secret
        .as_ref()
        .and_then(|secret| own_revision(fleet, secret));
    let config = revision.map(|revision| revision.config).ok_or_else(|| {
        Failure::new(
            format!(
                "revision {number} is not kept: FleetPullSecret `{}` has no Secret `{name}`",
                title(fleet)
            ),
            "the hub keeps what it rolls out and what clusters are assigned; does it run?",
        )
    })?;
    Ok(InForce::only(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Form;
    use crate::cluster::client::tests::mocked;
    use crate::view::fleet::tests::{fleet, object};
    use k8s_openapi::ByteString;
    use serde_json::{Value, json};

    const SECRETS: &str = "/api/v1/namespaces/clusters/secrets";
    const KINDS: &str = "/apis/globalps.io/v1alpha1/namespaces/clusters";

    fn secret(revision: i64, auths: &Value) -> Value {
        let config = json!({"auths": auths}).to_string();
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": format!("team-a-revision-{revision}"),
                "annotations": {"globalps.io/revision": revision.to_string()},
                "ownerReferences": [{"apiVersion": "v", "kind": "k", "name": "n", "uid": "fleet-1"}],
            },
            "data": {".dockerconfigjson": ByteString(config.into_bytes())},
        })
    }

    /// The JSON, the text and whether all is the same; or the error.
    async fn diff(
        source: (u16, Value),
        clusters: &[&str],
        file: Option<&str>,
    ) -> Result<(Value, String, bool), String> {
        let printer = Printer::silent();
        let old = json!({"a": {"auth": "dTpx"}, "b": {"auth": "dTpx"}});
        let new = json!({"a": {"auth": "dTpw"}, "c": {"auth": "dTpw"}});
        let objects = json!([
            object("m1", ClusterPhase::Synced, 3),
            object("m2", ClusterPhase::Failed, 2),
        ]);
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": objects});
        let at = |path: &str| format!("{SECRETS}/{path}");
        let (source_at, two, three) = (
            at("team-a-source"),
            at("team-a-revision-2"),
            at("team-a-revision-3"),
        );
        let kinds = [
            format!("{KINDS}/fleetpullsecrets/team-a"),
            format!("{KINDS}/clusterpullsecrets"),
        ];
        let hub = mocked(
            &[
                (&kinds[0], 200, json!(fleet("ClustersFailed", 3))),
                (&kinds[1], 200, list),
                (&source_at, source.0, source.1),
                (&two, 200, secret(2, &old)),
                (&three, 200, secret(3, &new)),
            ],
            &printer,
        );
        let args = FleetDiff {
            fleet: "team-a".to_owned(),
            clusters: clusters.iter().map(ToString::to_string).collect(),
            filename: None,
            output: Form::Json,
        };
        let has_file = file.is_some();
        let file = file.map(|text| proposed(text.as_bytes()).expect("credentials"));
        let found = compare(&hub, &args, file)
            .await
            .map_err(|failure| failure.message)?;
        let (difference, ..) = found.expect("one");
        Ok((
            json!(difference),
            text(&difference.changes) + &difference.of_clusters(),
            difference.is_empty(has_file),
        ))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_source_is_compared_with_the_hubs_and_a_clusters_content() {
        let same = || {
            (
                200,
                secret(
                    0,
                    &json!({"a": {"auth": "dTpw"}, "https://c": {"username": "u", "password": "p"}}),
                ),
            )
        };
        let other = || {
            (
                200,
                secret(0, &json!({"a": {"auth": "dTpx"}, "d": {"auth": "dTpx"}})),
            )
        };
        let (found, text, is_same) = diff(same(), &[], None).await.expect("a difference");
        assert_eq!(
            found,
            json!({
                "name": "clusters/team-a", "revision": 3, "changes": [],
                "laggingClusters": ["clusters/m2"],
            })
        );
        assert_eq!((text.as_str(), is_same), ("", false), "one lags");
        let (_, _, is_same) = diff(same(), &["m1"], None).await.expect("a difference");
        assert!(is_same, "m1 has it");
        let (found, text, is_same) = diff(other(), &["clusters/m2"], None)
            .await
            .expect("a difference");
        let change = |registry: &str, change: &str| json!({"registry": registry, "change": change});
        assert_eq!(
            found,
            json!({
                "name": "clusters/team-a", "revision": 3,
                "changes": [change("a", "changed"), change("c", "removed"), change("d", "added")],
                "laggingClusters": ["clusters/m2"],
                "clusters": [{
                    "name": "clusters/m2", "phase": "Failed", "revision": 2,
                    "changes": [change("b", "removed"), change("d", "added")],
                }],
            })
        );
        assert_eq!(
            text,
            "\
-a: *** (before)
+a: *** (after)
-c: ***
+d: ***
clusters/m2: Failed, revision 2
-b: ***
+d: ***
"
        );
        assert!(!is_same);
        let file = r#"{"auths":{"a":{"auth":"dTpw"},"c":{"auth":"dTpw"}}}"#;
        let (_, _, is_same) = diff(other(), &[], Some(file)).await.expect("a difference");
        assert!(is_same, "clusters that lag are no fault of a proposal");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn without_a_valid_source_there_is_nothing_to_compare() {
        for (sentence, source, expected) in [
            (
                "absent",
                (404, json!({})),
                "there is no source Secret `clusters/team-a-source`",
            ),
            (
                "another key",
                (
                    200,
                    json!({"metadata": {"name": "s"}, "data": {"config": "e30="}}),
                ),
                "source Secret `clusters/team-a-source` has no key `.dockerconfigjson`",
            ),
            (
                "not valid",
                (200, secret(0, &json!({"a": {"auth": "broken"}}))),
                "Secret `team-a-source` is not valid",
            ),
            (
                "hidden",
                (403, json!({})),
                "not allowed to get Secret `clusters/team-a-source`",
            ),
        ] {
            let message = diff(source, &[], None).await.expect_err(sentence);
            assert!(message.starts_with(expected), "{sentence}: {message}");
        }
        let same = (200, secret(0, &json!({})));
        let message = diff(same, &["m9"], None)
            .await
            .expect_err("no such cluster");
        assert_eq!(
            message,
            "FleetPullSecret `clusters/team-a` has no cluster `m9`"
        );
    }
}
