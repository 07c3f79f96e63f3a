//! `fleet install`: the hub's manifests, printed or applied.

use globalps_core::names;
use globalps_manifests::HubInstall;
use k8s_openapi::api::apps::v1::Deployment;

use crate::cli::{Connection, FleetInstall};
use crate::cluster::{Cluster, Program, deployment};
use crate::error::{Exit, Failure, Result};
use crate::install::installer::Installer;
use crate::install::objects::{Object, put_all};
use crate::install::preview::{is_printed, preview, print};
use crate::terminal::printer::Printer;

pub(super) async fn run(
    args: &FleetInstall,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit> {
    let mut hub = HubInstall {
        image: args.image.clone().unwrap_or_default(),
        namespaces: args.namespaces.clone(),
        trusted_namespaces: args.trusted_namespaces.clone(),
        shards: args.shards.unwrap_or(1),
    };
    if is_printed(args.applying.output.as_ref(), args.applying.dry_run)? {
        complete(&mut hub, None, args.all_namespaces)?;
        print(printer, &hub.objects(), args.applying.output.as_ref())?;
        return Ok(Exit::Done);
    }
    let cluster = Cluster::connect(flags, printer)?;
    let found = deployment(&cluster, Program::Hub).await?;
    Installer::may_install(found.as_ref(), args.applying.force_conflicts)?;
    let known = found.as_ref().and_then(installed);
    if let Some(known) = known.as_ref().filter(|_| args.shards.is_none()) {
        hub.shards = known.shards;
    }
    let before = known.as_ref().map_or(1, |known| known.shards);
    complete(&mut hub, known, args.all_namespaces)?;
    let objects = hub.objects();
    let ended: Vec<Object> = (hub.shards..before).flat_map(shard).collect();
    if let Some(exit) = preview(&cluster, &objects, &ended, &args.applying, &[]).await? {
        return Ok(exit);
    }
    // Two processes with other parts would be connected to the same clusters.
    for object in &ended {
        object.delete(&cluster, false).await?;
    }
    put_all(&cluster, objects, names::HUB, args.applying.timeout).await?;
    printer
        .note("the hub is installed; `kubectl globalps fleet add` rolls the first pull secret out");
    Ok(Exit::Done)
}

/// What only this shard has, by kind and name.
fn shard(index: u32) -> [Object; 2] {
    let kinds = [
        ("apps/v1", "Deployment"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
    ];
    let (namespace, name) = (names::CONTROLLER_NAMESPACE, names::hub_shard(index));
    kinds.map(|(version, kind)| Object::named(version, kind, namespace, &name))
}

/// What is not named stays as it is installed.
fn complete(hub: &mut HubInstall, known: Option<HubInstall>, all_namespaces: bool) -> Result<()> {
    let names_none = hub.namespaces.is_empty() && !all_namespaces;
    match known {
        Some(known) => {
            if hub.image.is_empty() {
                hub.image = known.image;
            }
            if names_none {
                hub.namespaces = known.namespaces;
            }
            if hub.trusted_namespaces.is_empty() {
                hub.trusted_namespaces = known.trusted_namespaces;
            }
            Ok(())
        }
        None if hub.image.is_empty() => Err(Failure::new(
            "no image is named, and the hub is not installed",
            "name it with `--image`",
        )),
        None if names_none => Err(Failure::new(
            "no namespaces are named, and the hub is not installed",
            "name those with your clusters with `--namespaces`, or take all of them with `--all-namespaces`",
        )),
        None => Ok(()),
    }
}

/// Image, namespaces, trusted namespaces and shards of the hub that is there.
fn installed(deployment: &Deployment) -> Option<HubInstall> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let container = pod.containers.first()?;
    let value = |flag: &str| {
        let mut args = container.args.iter().flatten();
        args.find_map(|arg| arg.strip_prefix(flag))
    };
    let shards = value("--shard=").and_then(|shard| shard.split_once('/'));
    let list = |flag: &str| {
        let names = value(flag).into_iter().flat_map(|names| names.split(','));
        names.map(str::to_owned).collect()
    };
    Some(HubInstall {
        image: container.image.clone()?,
        namespaces: list("--namespaces="),
        trusted_namespaces: list("--trusted-namespaces="),
        shards: shards.and_then(|(_, of)| of.parse().ok()).unwrap_or(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(image: &str, namespaces: &[&str]) -> HubInstall {
        HubInstall {
            image: image.to_owned(),
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
            trusted_namespaces: Vec::new(),
            shards: 3,
        }
    }

    #[test]
    fn what_is_not_named_stays_as_it_is_installed() {
        let known = HubInstall {
            trusted_namespaces: vec!["a".to_owned()],
            ..hub("r/hub:1", &["a", "b"])
        };
        let objects = known.objects();
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
        let deployment = deployment.cloned().map(serde_json::from_value);
        let deployment: Deployment = deployment.expect("one").expect("a Deployment");
        let known = installed(&deployment);
        for (asked, all, expected) in [
            (hub("", &[]), false, ("r/hub:1", &["a", "b"][..])),
            (hub("r/hub:2", &[]), false, ("r/hub:2", &["a", "b"])),
            (hub("", &["c"]), false, ("r/hub:1", &["c"])),
            (hub("", &[]), true, ("r/hub:1", &[])),
        ] {
            let mut asked = asked;
            complete(&mut asked, known.clone(), all).expect("installed");
            assert_eq!(
                (asked.image.as_str(), &*asked.namespaces),
                (expected.0, &*hub("", expected.1).namespaces)
            );
            assert_eq!(asked.trusted_namespaces, ["a"]);
        }
        assert!(complete(&mut hub("", &["a"]), None, false).is_err());
        assert!(complete(&mut hub("r/hub:1", &[]), None, false).is_err());
        assert!(complete(&mut hub("r/hub:1", &[]), None, true).is_ok());
    }
}
