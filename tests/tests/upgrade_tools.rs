//! From a previous release to this one and back, with the real Helm and each release's chart, and with each release's
//! plugin, in the middle of a rollout each time.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::cluster;
use common::upgrade::World;
use globalps_testkit::Cluster;
use globalps_testkit::companions::helm;
use globalps_testkit::product::{NAMESPACE, run};
use globalps_testkit::release::{Pushed, Release};
use serde_json::json;

const RELEASE: &str = "globalps";
const DEFINITIONS: &str = "globalps-crds";

#[test]
fn helm_upgrades_and_rolls_back_during_a_rollout() {
    let program = helm().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let values = directory.path().join("values.yaml");
    there_and_back("upgrade-chart", |cluster, step, release, pushed| {
        let image = |reference: &str| {
            let (repository, tag) = reference.rsplit_once(':').unwrap();
            json!({"repository": repository, "tag": tag})
        };
        let images =
            json!({"controller": image(&pushed.controller), "syncer": image(&pushed.syncer)});
        fs::write(&values, json!({"images": images}).to_string()).unwrap();
        let chart = release.chart();
        let definitions = chart.with_file_name(DEFINITIONS);
        if step != Step::Back && definitions.exists() {
            let mut command = Command::new(&program);
            command
                .args(["upgrade", "--install", "-n", NAMESPACE, DEFINITIONS])
                .arg(&definitions)
                // An earlier chart has them as hooks, which don't belong to a release.
                .args(["--take-ownership", "--force-conflicts"]);
            succeeds(command, cluster);
        }
        let args: &[&str] = match step {
            Step::Install => &["install", RELEASE],
            Step::Upgrade => &["upgrade", RELEASE],
            Step::Back => &["rollback", RELEASE, "1"],
        };
        let mut command = Command::new(&program);
        command
            .args(args)
            .args(["-n", NAMESPACE, "--wait=legacy", "--timeout=3m"]);
        if step != Step::Back {
            command.arg(chart).arg("-f").arg(&values);
        }
        succeeds(command, cluster);
    });
}

#[test]
fn the_plugins_install_over_each_other_during_a_rollout() {
    there_and_back("upgrade-plugin", |cluster, _, release, pushed| {
        let mut command = Command::new(release.plugin());
        command
            .args(["install", "--apply", "--controller-image"])
            .args([&pushed.controller, "--syncer-image", &pushed.syncer]);
        succeeds(command, cluster);
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Install,
    Upgrade,
    Back,
}

fn there_and_back(name: &str, change: impl Fn(&Cluster, Step, &Release, &Pushed)) {
    let cluster = cluster(name, 3);
    let world = World::new(&cluster);
    let with_images = |release: Release| {
        let pushed = release.push(&cluster).unwrap();
        (release, pushed)
    };
    let older = with_images(Release::previous_chart());
    let newer = with_images(Release::current());

    change(&cluster, Step::Install, &older.0, &older.1);
    world.first(&older.1);
    for (number, step, (release, pushed)) in [
        (1, Step::Upgrade, &newer),
        (2, Step::Back, &older),
        (3, Step::Upgrade, &newer),
    ] {
        let what = format!("{name}: {step:?}");
        world.during_a_rollout(number, &what, pushed, || {
            change(&cluster, step, release, pushed);
        });
    }
    world.restored();
    world.product.wait_clean().unwrap();
}

fn succeeds(mut command: Command, cluster: &Cluster) {
    command.env("KUBECONFIG", cluster.kubeconfig());
    let program = Path::new(command.get_program()).to_owned();
    let ran = run(&mut command, "").unwrap();
    assert_eq!(ran.code, Some(0), "{}: {ran:?}", program.display());
}
