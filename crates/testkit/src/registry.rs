//! Registries on the bridge's address: an open one, and one that requires a password, without and with TLS.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::layout::Layout;
use crate::pki::{Authority, write_private};
use crate::process::{run, spawn};
use crate::secrecy;
use crate::wait::{DEADLINE, until};

const USER: &str = "puller";

/// One of a cluster's registries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Without a password.
    Open,
    /// With a password for every pull and push.
    Private,
    /// The same content and password as [`Self::Private`], with TLS. The cluster's authority issues the certificate.
    Tls,
}

impl Access {
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Private => "private",
            Self::Tls => "tls",
        }
    }
}

/// The registries of a cluster. The nodes' containerd is configured for plain HTTP, and for the authority.
pub struct Registry {
    layout: Layout,
}

impl Registry {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            layout: layout.clone(),
        }
    }

    /// Host and port, for image references.
    pub fn address(&self, access: Access) -> String {
        match access {
            Access::Open => self.layout.open_registry(),
            Access::Private => self.layout.private_registry(),
            Access::Tls => self.layout.tls_registry(),
        }
    }

    /// Path of the certificate of the authority that issued the one of [`Access::Tls`], in PEM.
    pub fn authority(&self) -> PathBuf {
        self.layout.pki("ca.crt")
    }

    /// The only user of the private registry.
    pub fn user(&self) -> &'static str {
        USER
    }

    /// The password of [`Self::user`], random for each cluster.
    pub fn password(&self) -> Result<String> {
        fs::read_to_string(self.path("password")).context("could not read the registry's password")
    }

    /// Changes the password. The private registry then only accepts the new one.
    pub fn set_password(&self, password: &str) -> Result<()> {
        secrecy::remember_login(USER, password);
        write_private(&self.path("htpasswd"), &htpasswd(USER, password)?)?;
        write_private(&self.path("password"), password)?;
        write_private(&self.path("config.json"), &self.docker_config()?)
    }

    /// A registry credentials file (`config.json`) with only the private registry's entry.
    pub fn docker_config(&self) -> Result<String> {
        let auth = STANDARD.encode(format!("{USER}:{}", self.password()?));
        Ok(json!({"auths": {self.address(Access::Private): {"auth": auth}}}).to_string())
    }

    /// Pushes an OCI archive; `name` is like `team/app:1`. Returns the full image reference.
    pub fn push(&self, archive: &Path, access: Access, name: &str) -> Result<String> {
        let reference = format!("{}/{name}", self.address(access));
        let mut command = Command::new("skopeo");
        command
            .args([
                "copy",
                "--quiet",
                "--insecure-policy",
                "--dest-tls-verify=false",
            ])
            .arg(format!("oci-archive:{}", archive.display()))
            .arg(format!("docker://{reference}"));
        match access {
            Access::Private | Access::Tls => {
                command.arg("--dest-authfile").arg(self.path("config.json"))
            }
            Access::Open => command.arg("--dest-no-creds"),
        };
        run(&mut command).with_context(|| format!("could not push `{reference}`"))?;
        Ok(reference)
    }

    /// Tags an image of the private registry, in either registry.
    pub fn tag(&self, image: &str, access: Access, name: &str) -> Result<()> {
        let mut command = Command::new("skopeo");
        command
            .args(["copy", "--quiet", "--insecure-policy"])
            .args(["--src-tls-verify=false", "--dest-tls-verify=false"])
            .arg("--src-authfile")
            .arg(self.path("config.json"))
            .arg(format!(
                "docker://{}/{image}",
                self.address(Access::Private)
            ))
            .arg(format!("docker://{}/{name}", self.address(access)));
        match access {
            Access::Private | Access::Tls => {
                command.arg("--dest-authfile").arg(self.path("config.json"))
            }
            Access::Open => command.arg("--dest-no-creds"),
        };
        run(&mut command).with_context(|| format!("could not tag `{image}` as `{name}`"))?;
        Ok(())
    }

    pub(crate) fn start(&self) -> Result<()> {
        fs::create_dir_all(self.path(""))?;
        // 128 random bits, without characters that are special in a shell or a URL.
        let password = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        self.set_password(&password.trim().replace('-', ""))?;
        let address = self.layout.gateway().to_string();
        let identity = Authority::load(&self.layout)?.issue("registry", None, &[address])?;
        write_private(&self.path("tls.crt"), &identity.certificate)?;
        write_private(&self.path("tls.key"), &identity.key)?;
        let all = [Access::Open, Access::Private, Access::Tls];
        for access in all {
            let directory = match access {
                Access::Open => "open",
                Access::Private | Access::Tls => "private",
            };
            let mut config = json!({
                "version": "0.1",
                "log": {"level": "info", "accesslog": {"disabled": false}},
                "storage": {
                    "filesystem": {"rootdirectory": self.path(directory)},
                    "delete": {"enabled": true},
                },
                "http": {"addr": self.address(access)},
            });
            if access == Access::Tls {
                let (certificate, key) = (self.path("tls.crt"), self.path("tls.key"));
                config["http"]["tls"] = json!({"certificate": certificate, "key": key});
            }
            if access != Access::Open {
                config["auth"] =
                    json!({"htpasswd": {"realm": "test", "path": self.path("htpasswd")}});
            }
            let name = access.name();
            let file = self.path(&format!("{name}.yml"));
            write_private(&file, &config.to_string())?;
            let mut server = Command::new("docker-registry");
            spawn(
                &self.layout,
                &format!("registry-{name}"),
                server.arg("serve").arg(file),
            )?;
        }
        for access in all {
            let address: SocketAddr = self.address(access).parse()?;
            until(
                &format!("the registry at {address}"),
                DEADLINE,
                Duration::from_millis(50),
                || Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()),
            )?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.layout.path("registry").join(name)
    }
}

/// A line of a registry's htpasswd file.
pub(crate) fn htpasswd(user: &str, password: &str) -> Result<String> {
    // Passes the password through stdin, because every user can read arguments.
    let mut child = Command::new("htpasswd")
        .args(["-n", "-i", "-B", user])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("could not run `htpasswd`")?;
    child
        .stdin
        .take()
        .context("`htpasswd` has no pipe")?
        .write_all(password.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "`htpasswd` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}
