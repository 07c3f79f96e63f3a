//! kubectl's flags that override a kubeconfig.

use std::collections::HashMap;
use std::path::PathBuf;

use kube::Config;

use crate::cli::Connection;
use crate::cluster::proxy::named;
use crate::error::{Failure, Result};

pub(crate) fn apply(config: &mut Config, flags: &Connection) -> Result<()> {
    if flags.insecure_skip_tls_verify && flags.certificate_authority.is_some() {
        return Err(Failure::new(
            "`--certificate-authority` and `--insecure-skip-tls-verify` contradict each other",
            "leave out one of them",
        ));
    }
    for file in [
        &flags.certificate_authority,
        &flags.client_certificate,
        &flags.client_key,
    ]
    .into_iter()
    .flatten()
    {
        std::fs::File::open(file).map_err(|error| {
            Failure::new(
                format!("`{}` could not be read: {error}", file.display()),
                "name a file that you may read",
            )
        })?;
    }
    if let Some(file) = &flags.certificate_authority {
        config.root_cert_file = Some(file.clone());
    }
    if flags.insecure_skip_tls_verify {
        config.accept_invalid_certs = true;
        config.root_cert = None;
        config.root_cert_file = None;
    }
    if let Some(name) = &flags.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    if let Some(address) = flags.proxy_url.as_ref().filter(|it| !it.is_empty()) {
        config.proxy_url = Some(named("--proxy-url", address)?);
    }
    let auth = &mut config.auth_info;
    if let Some(token) = &flags.token {
        auth.token = Some(token.clone().into());
        auth.token_file = None;
        auth.exec = None;
        auth.auth_provider = None;
        auth.username = None;
        auth.password = None;
        // An API server prefers a client certificate over a token.
        auth.client_certificate = None;
        auth.client_certificate_data = None;
        auth.client_key = None;
        auth.client_key_data = None;
    }
    let path = |file: &PathBuf| Some(file.display().to_string());
    if let Some(file) = &flags.client_certificate {
        auth.client_certificate = path(file);
        auth.client_certificate_data = None;
    }
    if let Some(file) = &flags.client_key {
        auth.client_key = path(file);
        auth.client_key_data = None;
    }
    if let Some(user) = &flags.as_user {
        auth.impersonate = Some(user.clone());
    }
    if !flags.as_group.is_empty() {
        auth.impersonate_groups = Some(flags.as_group.clone());
    }
    if let Some(uid) = &flags.as_uid {
        auth.impersonate_uid = Some(uid.clone());
    }
    if !flags.as_user_extra.is_empty() {
        let mut extra: HashMap<String, Vec<String>> = HashMap::new();
        for (key, value) in &flags.as_user_extra {
            extra.entry(key.clone()).or_default().push(value.clone());
        }
        auth.impersonate_user_extra = Some(extra);
    }
    let is_described = auth.impersonate_groups.is_some()
        || auth.impersonate_uid.is_some()
        || auth.impersonate_user_extra.is_some();
    if auth.impersonate.is_none() && is_described {
        return Err(Failure::new(
            "`--as-group`, `--as-uid` and `--as-user-extra` need a user to impersonate",
            "name one with `--as`",
        ));
    }
    Ok(())
}
