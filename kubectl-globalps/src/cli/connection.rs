//! kubectl's own flags for the connection to the cluster.

use std::path::{Path, PathBuf};

use clap::Args;
use globalps_core::names;

use super::Limit;

/// kubectl passes none of its own flags to a plugin, so the plugin defines them.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Connection {
    /// Kubeconfig file
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub user: Option<String>,
    /// Namespace of what the command line names: pods of `why`, `FleetPullSecret`s of `fleet`. Default: the context's
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Namespace of the pull secrets and the syncer
    #[arg(long, global = true, value_name = "NAME", default_value = names::NAMESPACE)]
    pub pull_secret_namespace: String,
    /// Address of the API server
    #[arg(short, long, global = true, value_name = "URL", hide_short_help = true)]
    pub server: Option<String>,
    /// Bearer token for the API server
    #[arg(long, global = true, value_name = "TOKEN", hide_short_help = true)]
    pub token: Option<String>,
    /// User to impersonate
    #[arg(
        long = "as",
        global = true,
        value_name = "USER",
        hide_short_help = true
    )]
    pub as_user: Option<String>,
    /// Group to impersonate; may be repeated
    #[arg(long, global = true, value_name = "GROUP", hide_short_help = true)]
    pub as_group: Vec<String>,
    /// UID to impersonate
    #[arg(long, global = true, value_name = "UID", hide_short_help = true)]
    pub as_uid: Option<String>,
    /// Additional information of the user to impersonate; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = extra, hide_short_help = true)]
    pub as_user_extra: Vec<(String, String)>,
    /// Certificate authority of the API server
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub certificate_authority: Option<PathBuf>,
    /// Client certificate
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub client_certificate: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub client_key: Option<PathBuf>,
    /// Don't verify the API server's certificate
    #[arg(long, global = true, hide_short_help = true)]
    pub insecure_skip_tls_verify: bool,
    /// Server name for verifying the API server's certificate
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub tls_server_name: Option<String>,
    /// Proxy between this machine and the API server
    #[arg(long, global = true, value_name = "URL", hide_short_help = true)]
    pub proxy_url: Option<String>,
    /// Timeout of one request to the API server; 0: none
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        default_value = "30s",
        hide_short_help = true
    )]
    pub request_timeout: Limit,
    /// The command works on objects of `namespace`, not on the pull secrets of this cluster.
    #[arg(skip)]
    pub is_of_fleet: bool,
}

impl Connection {
    /// Connects to a member cluster and ignores the flags for the connection to the hub.
    pub(crate) fn of_member(&self, kubeconfig: &Path, context: Option<&String>) -> Self {
        Self {
            kubeconfig: Some(kubeconfig.to_owned()),
            context: context.cloned(),
            namespace: None,
            pull_secret_namespace: names::NAMESPACE.to_owned(),
            is_of_fleet: false,
            cluster: None,
            user: None,
            server: None,
            token: None,
            as_user: None,
            as_group: Vec::new(),
            as_uid: None,
            as_user_extra: Vec::new(),
            certificate_authority: None,
            client_certificate: None,
            client_key: None,
            insecure_skip_tls_verify: false,
            tls_server_name: None,
            proxy_url: None,
            request_timeout: self.request_timeout,
        }
    }
}

fn extra(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or("the form is `KEY=VALUE`")?;
    Ok((key.to_owned(), value.to_owned()))
}
