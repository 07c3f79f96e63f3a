//! The nodes' container runtime: containerd, or CRI-O.

use anyhow::Result;

use crate::layout::Layout;
use crate::node_files::NodeFile;
use crate::pki::Authority;
use crate::{containerd, crio};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    Containerd,
    Crio,
}

impl Runtime {
    /// The runtime of this process's nodes.
    pub(crate) fn wanted() -> Self {
        match crio::directory() {
            Some(_) => Self::Crio,
            None => Self::Containerd,
        }
    }

    /// Name of the unit, without `.service`.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Crio => "crio",
        }
    }

    /// Path of the socket that the kubelet connects to.
    pub(crate) fn socket(self) -> &'static str {
        match self {
            Self::Containerd => "/run/containerd/containerd.sock",
            Self::Crio => crio::SOCKET,
        }
    }

    /// Files of a node. `authority`: of the registry with TLS.
    pub(crate) fn files(self, layout: &Layout, authority: &Authority) -> Vec<NodeFile> {
        match self {
            Self::Containerd => containerd::files(layout),
            Self::Crio => crio::files(layout, authority),
        }
    }

    /// The option of systemd-nspawn that makes programs visible on a node that are not the machine's.
    pub(crate) fn bind(self) -> Result<Option<String>> {
        match self {
            Self::Containerd => containerd::bind(),
            Self::Crio => crio::bind(),
        }
    }
}
