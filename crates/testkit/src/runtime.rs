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
    /// The one that nodes of this process run.
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

    /// Files of a node. `authority`: that of the registry with TLS.
    pub(crate) fn files(self, layout: &Layout, authority: &Authority) -> Vec<NodeFile> {
        match self {
            Self::Containerd => containerd::files(layout),
            Self::Crio => crio::files(layout, authority),
        }
    }

    /// How systemd-nspawn makes programs that are not the machine's visible on a node.
    pub(crate) fn bind(self) -> Result<Option<String>> {
        match self {
            Self::Containerd => containerd::bind(),
            Self::Crio => crio::bind(),
        }
    }
}
