//! kubeadm's rewrite of the kubelet's flags: in which states of a node an upgrade to a release rewrites them. The test
//! program `kubeadm` compares this with the phases of the real `kubeadm upgrade node`, which are built here.

use std::path::PathBuf;

use anyhow::Result;

use crate::kubernetes::{build_beside, minor_of, target_dir, version_flags};
use crate::older_release;

/// The release of `make test`: the newest one that rewrites the flags in both states in which any release does.
pub const VERSION: &str = "v1.35.4";
const MODULE: &str = "tests/kubeadm";
const NAME: &str = "kubeadm-upgrade";

/// The state of a node before an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The flags contain the image of the pause container, which older releases of kubeadm set.
    PauseImage,
    /// The flags contain the socket of the container runtime, and the file in which newer releases keep the socket does
    /// not exist.
    RuntimeSocket,
    /// The flags contain the socket, and that file exists.
    InstanceConfig,
    /// The flags contain none of these.
    Others,
}

impl State {
    pub const ALL: [Self; 4] = [
        Self::PauseImage,
        Self::RuntimeSocket,
        Self::InstanceConfig,
        Self::Others,
    ];

    /// The flag that a release may remove.
    pub fn flag(self) -> Option<&'static str> {
        match self {
            Self::PauseImage => Some("--pod-infra-container-image=registry.k8s.io/pause:3.10"),
            Self::RuntimeSocket | Self::InstanceConfig => {
                Some("--container-runtime-endpoint=unix:///run/containerd/containerd.sock")
            }
            Self::Others => None,
        }
    }

    /// Whether an upgrade to this minor release removes [`flag`](Self::flag) and sorts the others; otherwise it leaves the file.
    pub fn is_rewritten(self, minor: u32) -> bool {
        match self {
            Self::PauseImage => minor <= 35,
            Self::RuntimeSocket => minor <= 36,
            Self::InstanceConfig | Self::Others => false,
        }
    }

    /// Description for the page.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::PauseImage => "`--pod-infra-container-image`",
            Self::RuntimeSocket => "`--container-runtime-endpoint`, no `instance-config.yaml`",
            Self::InstanceConfig => "`--container-runtime-endpoint` and `instance-config.yaml`",
            Self::Others => "other flags",
        }
    }
}

/// The release whose kubeadm upgrades nodes in this process: the variable `KUBERNETES`, or [`VERSION`].
pub fn version() -> String {
    std::env::var("KUBERNETES").unwrap_or_else(|_| VERSION.to_owned())
}

/// The minor version of [`version`].
pub fn minor() -> u32 {
    let version = version();
    minor_of(&version).unwrap_or_else(|| panic!("`{version}` is no release such as `{VERSION}`"))
}

/// Builds the phases of [`version`]'s `kubeadm upgrade node` that may rewrite the flags, and returns the program's
/// path. Takes two or three minutes the first time.
pub fn build() -> Result<PathBuf> {
    let version = version();
    let linker = version_flags(&version);
    let flags = ["-ldflags", &linker];
    if version == VERSION {
        return build_beside(MODULE, &flags, ".", NAME);
    }
    let directory = std::path::absolute(target_dir().join("kubernetes/kubeadm"))?;
    let mod_file = older_release::mod_file(&directory, &version)?;
    let mod_file = format!("-modfile={}", mod_file.display());
    let flags = [&flags[..], &["-mod=mod", &mod_file]].concat();
    build_beside(MODULE, &flags, ".", &format!("{NAME}-{version}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::workspace;

    #[test]
    fn the_version_is_that_of_the_module() {
        let module = workspace().join(MODULE).join("go.mod");
        let module = std::fs::read_to_string(module).unwrap();
        assert!(module.contains(&format!("k8s.io/kubernetes {VERSION}")));
    }
}
