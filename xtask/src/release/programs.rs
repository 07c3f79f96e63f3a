//! The programs of a release, and the commands that build them: the same bytes from any directory.

use std::path::Path;

use serde_json::json;

use crate::release::dist::Platform;

/// Cargo's target directory of a release, below the source. Other builds have other flags.
pub const TARGET_DIR: &str = "target/release-build";
/// Directories of the machine in a program's messages become these.
const SOURCE: &str = "/globalps";
const CARGO_HOME: &str = "/cargo";

/// Directories that a build refers to.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Root of the source.
    pub source: &'a Path,
    /// Cargo's own directory, with the sources of the dependencies.
    pub cargo_home: &'a Path,
}

/// A program to run, without the environment that it inherits.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, String)>,
}

/// Names of the programs for a platform, without the plugin.
pub const IN_IMAGES: [&str; 4] = [
    "globalps-controller",
    "globalps-hub",
    "globalps-syncer",
    "globalps-credential-provider",
];

/// File names of the programs for a platform.
pub fn names(platform: &Platform) -> Vec<&'static str> {
    let mut names = vec![platform.program()];
    if platform.os == "linux" {
        names.extend(IN_IMAGES);
    }
    names
}

/// Whether this machine links programs for the platform itself; zig links the others.
pub fn is_native(platform: &Platform) -> bool {
    platform.target == format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// The builds for a platform, in the source's directory. Packages that are built together share features, so the plugin and the
/// provider are built alone. `epoch`: time of the commit, in seconds.
pub fn steps(platform: &Platform, native: bool, places: Places, epoch: &str) -> Vec<Step> {
    let mut builds: Vec<(&[&str], Option<&str>)> = vec![(&["kubectl-globalps"], None)];
    if platform.os == "linux" {
        builds.push((&["globalps-controller", "globalps-syncer"], None));
        builds.push((
            &["globalps-credential-provider"],
            Some(".cargo/provider.toml"),
        ));
    }
    let step = |(packages, config): (&[&str], Option<&str>)| {
        let mut arguments = vec![if native { "build" } else { "zigbuild" }.to_owned()];
        arguments.extend(["--release", "--locked", "--target", platform.target].map(str::to_owned));
        for package in packages {
            arguments.extend(["-p".to_owned(), (*package).to_owned()]);
        }
        if let Some(config) = config {
            arguments.extend(["--config", config].map(str::to_owned));
        }
        let mut environment = environment(places, epoch);
        let mut flags = remap(places);
        if native {
            // Cargo adds them to the flags of .cargo/config.toml.
            let list = json!(flags);
            let config = format!("target.'cfg(target_env = \"musl\")'.rustflags={list}");
            arguments.extend(["--config".to_owned(), config]);
        } else {
            if platform.os == "linux" {
                flags.push("-Cforce-unwind-tables=no".to_owned());
            }
            // They replace those of .cargo/config.toml, which zig's linker does not support.
            environment.push(("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")));
        }
        Step {
            arguments,
            environment,
        }
    };
    builds.into_iter().map(step).collect()
}

fn remap(places: Places) -> Vec<String> {
    [(places.cargo_home, CARGO_HOME), (places.source, SOURCE)]
        .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
        .into()
}

fn environment(places: Places, epoch: &str) -> Vec<(&'static str, String)> {
    let target = places.source.join(TARGET_DIR).display().to_string();
    // `cargo auditable` sets the same variables, but with the absolute path of its program, which would change the symbols' names.
    let arguments = json!({"offline": false, "locked": true, "frozen": false, "config": []});
    vec![
        ("CARGO_TARGET_DIR", target),
        ("RUSTC_WORKSPACE_WRAPPER", "cargo-auditable".to_owned()),
        ("CARGO_AUDITABLE_ORIG_ARGS", arguments.to_string()),
        ("SOURCE_DATE_EPOCH", epoch.to_owned()),
        ("CARGO_INCREMENTAL", "0".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::dist::PLATFORMS;

    fn places() -> Places<'static> {
        Places {
            source: Path::new("/a/source"),
            cargo_home: Path::new("/home/me/.cargo"),
        }
    }

    #[test]
    fn every_build_leaves_out_the_directories_of_this_machine() {
        for platform in PLATFORMS {
            for native in [true, false] {
                for step in steps(&platform, native, places(), "1") {
                    let all = format!("{step:?}");
                    assert!(
                        all.contains("--remap-path-prefix=/a/source=/globalps"),
                        "{all}"
                    );
                    assert!(all.contains("--remap-path-prefix=/home/me/.cargo=/cargo"));
                    assert!(all.contains("\"cargo-auditable\""), "{all}");
                }
            }
        }
    }

    #[test]
    fn images_have_programs_for_linux_only() {
        let packages = |platform: &Platform| {
            let steps = steps(platform, false, places(), "1").into_iter();
            let is_package = |word: &String| word.contains("globalps") && !word.contains('.');
            steps
                .flat_map(|step| step.arguments.into_iter().filter(is_package))
                .collect::<Vec<_>>()
        };
        let (linux, windows) = (&PLATFORMS[0], &PLATFORMS[4]);
        assert_eq!(packages(windows), ["kubectl-globalps"]);
        assert_eq!(
            packages(linux),
            [
                "kubectl-globalps",
                "globalps-controller",
                "globalps-syncer",
                "globalps-credential-provider"
            ]
        );
        assert_eq!(names(windows), ["kubectl-globalps.exe"]);
        assert_eq!(names(linux).len(), 5);
    }

    #[test]
    fn zigs_flags_replace_the_configurations_and_others_are_added() {
        let step = |native| steps(&PLATFORMS[1], native, places(), "1").remove(0);
        let has = |step: &Step, name| step.environment.iter().any(|(found, _)| *found == name);
        assert!(!has(&step(true), "CARGO_ENCODED_RUSTFLAGS"));
        assert_eq!(step(true).arguments[0], "build");
        assert!(has(&step(false), "CARGO_ENCODED_RUSTFLAGS"));
        assert_eq!(step(false).arguments[0], "zigbuild");
    }
}
