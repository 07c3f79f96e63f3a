//! Which kubeconfigs of other authors are safe to use. Pure.

use kube::config::Kubeconfig;

/// Why a kubeconfig is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// `current-context` names a context that doesn't exist.
    NoContext,
    /// Its user authenticates with a program: `exec` or `auth-provider`.
    Program,
    /// Its user or cluster refers to a file; the value is the field that embeds the content instead.
    File(&'static str),
}

/// Rejects what works only on the machine where the kubeconfig was written. A program would run with the rights of the process
/// that uses the kubeconfig, and a path would name a file of that process, which must not be sent to the server.
pub fn reject_unsupported(kubeconfig: &Kubeconfig) -> Result<(), Unsupported> {
    let wanted = kubeconfig.current_context.as_deref();
    let context = kubeconfig
        .contexts
        .iter()
        .find(|context| Some(context.name.as_str()) == wanted)
        .and_then(|context| context.context.as_ref())
        .ok_or(Unsupported::NoContext)?;
    let users = kubeconfig.auth_infos.iter();
    let users = users.filter(|user| Some(&user.name) == context.user.as_ref());
    for user in users.filter_map(|user| user.auth_info.as_ref()) {
        if user.exec.is_some() || user.auth_provider.is_some() {
            return Err(Unsupported::Program);
        }
        for (file, instead) in [
            (&user.token_file, "token"),
            (&user.client_certificate, "client-certificate-data"),
            (&user.client_key, "client-key-data"),
        ] {
            if file.is_some() {
                return Err(Unsupported::File(instead));
            }
        }
    }
    let clusters = kubeconfig.clusters.iter();
    let mut clusters = clusters.filter(|cluster| cluster.name == context.cluster);
    let names_file = clusters.any(|it| {
        let cluster = it.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.certificate_authority.is_some())
    });
    if names_file {
        return Err(Unsupported::File("certificate-authority-data"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_that_runs_a_program_or_reads_a_file_is_rejected() {
        const SERVER: &str = "server: 'https://127.0.0.1:6443'";
        for (user, cluster, expected) in [
            ("token: t", SERVER, Ok(())),
            ("exec: {command: aws}", SERVER, Err(Unsupported::Program)),
            (
                "auth-provider: {name: oidc}",
                SERVER,
                Err(Unsupported::Program),
            ),
            (
                "tokenFile: /run/token",
                SERVER,
                Err(Unsupported::File("token")),
            ),
            (
                "client-certificate: /c",
                SERVER,
                Err(Unsupported::File("client-certificate-data")),
            ),
            (
                "client-key: /k",
                SERVER,
                Err(Unsupported::File("client-key-data")),
            ),
            (
                "token: t",
                "server: 'https://h', certificate-authority: /a",
                Err(Unsupported::File("certificate-authority-data")),
            ),
        ] {
            let text = format!(
                "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
                 clusters: [{{name: c, cluster: {{{cluster}}}}}], \
                 users: [{{name: u, user: {{{user}}}}}, {{name: other, user: {{exec: {{command: x}}}}}}]}}"
            );
            let kubeconfig = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
            assert_eq!(
                reject_unsupported(&kubeconfig),
                expected,
                "{user} {cluster}"
            );
            let other = text.replacen("current-context: c", "current-context: d", 1);
            let other = Kubeconfig::from_yaml(&other).expect("a kubeconfig");
            assert_eq!(reject_unsupported(&other), Err(Unsupported::NoContext));
        }
    }
}
