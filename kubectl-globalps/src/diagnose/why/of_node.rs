//! Causes between the node and the registry, which no credential fixes. Pure.

use super::cause::{Cause, Code, Evidence};
use super::named::Runtime;

impl Evidence<'_> {
    /// `why`: the runtime's message, or the registry's answer to this machine.
    pub(super) fn unreachable(&self, why: &str) -> Cause {
        if let Some(hint) = self.certificate(&self.failing.message) {
            return self.of(
                Code::CertificateUntrusted,
                format!(
                    "{} does not trust the certificate of `{}`: {why}",
                    self.node(),
                    self.registry
                ),
                String::new(),
                &hint,
            );
        }
        let node = self.node();
        self.of(
            Code::RegistryUnreachable,
            format!("`{}` can't be reached: {why}", self.registry),
            String::new(),
            &format!(
                "credentials don't fix it: check DNS, firewall, proxy and certificate authorities of {node} for `{}`",
                self.registry
            ),
        )
    }

    fn node(&self) -> String {
        match self.pod.node.as_str() {
            "" => "the node".to_owned(),
            node => format!("`{node}`"),
        }
    }

    /// The hint, if the message is about the registry's certificate.
    fn certificate(&self, message: &str) -> Option<String> {
        let message_of = message.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| message_of.contains(word));
        if !has(&["x509:", "certificate"]) {
            return None;
        }
        let registry = self.registry;
        if has(&["has expired", "not yet valid"]) {
            return Some("renew the registry's certificate, or check the node's clock".to_owned());
        }
        if has(&[
            "is valid for",
            "doesn't contain any ip sans",
            "not any names",
        ]) {
            return Some("name the registry in the image as its certificate does".to_owned());
        }
        let node = self.node();
        // The runtimes read these files at each pull.
        let containerd = format!(
            "write the authority's certificate to `/etc/containerd/certs.d/{registry}/ca.crt`, and to `hosts.toml` beside it `server = \"https://{registry}\"`, `[host.\"https://{registry}\"]` and `ca = \"/etc/containerd/certs.d/{registry}/ca.crt\"`; containerd's `config_path` must be `/etc/containerd/certs.d`"
        );
        let crio = format!(
            "write the authority's certificate to `/etc/containers/certs.d/{registry}/ca.crt`"
        );
        Some(match Runtime::of(message) {
            Runtime::Containerd => format!("on {node}, {containerd}"),
            Runtime::Crio => format!("on {node}, {crio}"),
            Runtime::Unknown => {
                format!("on {node}, with containerd {containerd}; with CRI-O {crio}")
            }
        })
    }
}
