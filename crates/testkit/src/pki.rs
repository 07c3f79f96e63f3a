//! The cluster's own certificate authority, and kubeconfigs with client certificates.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::json;

use crate::layout::{Layout, SERVICE_ADDRESS};

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// Certificate and key, both PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    /// Creates the authority, the API server's certificates and the signing key of service account tokens below `pki`.
    pub(crate) fn create(layout: &Layout) -> Result<Self> {
        let key = KeyPair::generate()?;
        let certificate = authority_params().self_signed(&key)?.pem();
        write_private(&layout.pki("ca.crt"), &certificate)?;
        write_private(&layout.pki("ca.key"), &key.serialize_pem())?;
        let authority = Self {
            issuer: Issuer::new(authority_params(), key),
            certificate,
        };
        let names = [
            layout.gateway().to_string(),
            SERVICE_ADDRESS.to_string(),
            "kubernetes".to_owned(),
            "kubernetes.default".to_owned(),
            "kubernetes.default.svc".to_owned(),
        ];
        #[rustfmt::skip]
        let pairs = [
            ("apiserver", authority.issue("kube-apiserver", None, &names)?),
            ("apiserver-kubelet", authority.issue("kube-apiserver", Some("system:masters"), &[])?),
        ];
        for (name, identity) in pairs {
            write_private(&layout.pki(&format!("{name}.crt")), &identity.certificate)?;
            write_private(&layout.pki(&format!("{name}.key")), &identity.key)?;
        }
        let tokens = KeyPair::generate()?;
        write_private(&layout.pki("service-accounts.key"), &tokens.serialize_pem())?;
        write_private(
            &layout.pki("service-accounts.pub"),
            &tokens.public_key_pem(),
        )?;
        Ok(authority)
    }

    /// Loads the authority of a cluster that another process created.
    pub(crate) fn load(layout: &Layout) -> Result<Self> {
        let read = |name: &str| {
            fs::read_to_string(layout.pki(name))
                .with_context(|| format!("could not read pki/{name}"))
        };
        let key = KeyPair::from_pem(&read("ca.key")?)?;
        Ok(Self {
            issuer: Issuer::new(authority_params(), key),
            certificate: read("ca.crt")?,
        })
    }

    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for clients and servers; `names` are the addresses and host names of the server.
    pub(crate) fn issue(
        &self,
        name: &str,
        group: Option<&str>,
        names: &[String],
    ) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        Ok(Identity {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// A kubeconfig, as JSON, with a new certificate for this user and group.
    pub(crate) fn kubeconfig(
        &self,
        layout: &Layout,
        name: &str,
        group: Option<&str>,
    ) -> Result<String> {
        Ok(self.kubeconfig_of(layout, &self.issue(name, group, &[])?))
    }

    pub(crate) fn kubeconfig_of(&self, layout: &Layout, identity: &Identity) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": layout.bridge(),
            "clusters": [{"name": layout.bridge(), "cluster": {
                "server": layout.api_url(),
                "certificate-authority-data": STANDARD.encode(&self.certificate),
            }}],
            "users": [{"name": "user", "user": {
                "client-certificate-data": STANDARD.encode(&identity.certificate),
                "client-key-data": STANDARD.encode(&identity.key),
            }}],
            "contexts": [{"name": layout.bridge(), "context": {"cluster": layout.bridge(), "user": "user"}}],
        })
        .to_string()
    }
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "globalps test cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, content: &str) -> Result<()> {
    // Removed first: an existing file would keep its mode.
    let _ = fs::remove_file(path);
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .with_context(|| format!("could not write `{}`", path.display()))
}
