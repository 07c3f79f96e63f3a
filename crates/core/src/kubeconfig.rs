//! Which kubeconfigs of other authors are safe to use. Pure.

use kube::config::Kubeconfig;
use serde_json::Value;

/// Why a kubeconfig is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// `current-context` names a context that doesn't exist.
    NoContext,
    /// The user authenticates with a program: `exec` or `auth-provider`.
    Program,
    /// The user or cluster refers to a file; the value is the field that embeds the content instead.
    File(&'static str),
}

/// The kubeconfig in one YAML document. By way of JSON, as kubectl reads it: the code that reads each field from YAML would be a
/// twentieth of a program. `None`: it is none; the reason would quote it.
pub fn parse(text: &str) -> Option<Kubeconfig> {
    // `n` and `on` are names.
    let options = serde_saphyr::options! { strict_booleans: true };
    let document: Value = serde_saphyr::from_str_with_options(text, options).ok()?;
    serde_json::from_value(document).ok()
}

/// Rejects parts that only work on the machine where the kubeconfig was written. A program would run with the permissions of the
/// process that uses the kubeconfig, and a path would name a file of that process, which must not be sent to the server.
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
        #[rustfmt::skip]
        let cases = [
            ("token: t", SERVER, Ok(())),
            ("exec: {command: aws}", SERVER, Err(Unsupported::Program)),
            ("auth-provider: {name: oidc}", SERVER, Err(Unsupported::Program)),
            ("tokenFile: /run/token", SERVER, Err(Unsupported::File("token"))),
            ("client-certificate: /c", SERVER, Err(Unsupported::File("client-certificate-data"))),
            ("client-key: /k", SERVER, Err(Unsupported::File("client-key-data"))),
            (
                "token: t",
                "server: 'https://h', certificate-authority: /a",
                Err(Unsupported::File("certificate-authority-data")),
            ),
        ];
        for (user, cluster, expected) in cases {
            let text = format!(
                "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
                 clusters: [{{name: c, cluster: {{{cluster}}}}}], \
                 users: [{{name: u, user: {{{user}}}}}, {{name: other, user: {{exec: {{command: x}}}}}}]}}"
            );
            let kubeconfig = parse(&text).expect("a kubeconfig");
            assert_eq!(
                reject_unsupported(&kubeconfig),
                expected,
                "{user} {cluster}"
            );
            let other = text.replacen("current-context: c", "current-context: d", 1);
            let other = parse(&other).expect("a kubeconfig");
            assert_eq!(reject_unsupported(&other), Err(Unsupported::NoContext));
        }
    }

    #[test]
    fn a_kubeconfig_is_read_as_kube_reads_it() {
        let text = "---
apiVersion: v1
kind: Config
current-context: 'c'
preferences: {}
clusters:
- name: c
  cluster: {server: https://h:6443, certificate-authority-data: Y2E=, insecure-skip-tls-verify: false, tls-server-name: n, proxy-url: http://p}
contexts:
- context: {cluster: c, user: u, namespace: n}
  name: c
users:
- name: u
  user: {token: t, username: null, as-groups: [g], as-user-extra: {k: [v]}}
- name: v
  user:
    client-certificate-data: >-
      Yw==
    exec: {apiVersion: client.authentication.k8s.io/v1, command: x, args: [a], env: [{name: n, value: v}], interactiveMode: Never}
extensions: [{name: e, extension: {k: 1}}]
";
        let fields = |kubeconfig: Option<Kubeconfig>| {
            let kubeconfig = kubeconfig.expect("a kubeconfig");
            serde_json::to_value(kubeconfig).expect("JSON")
        };
        let expected = fields(Kubeconfig::from_yaml(text).ok());
        assert_eq!(expected["users"][0]["user"]["token"], "t");
        assert_eq!(fields(parse(text)), expected);
        assert_eq!(fields(parse(&expected.to_string())), expected);
        for text in [
            "",
            "s3cret",
            "[",
            "users: 5",
            "a: b\n---\na: b",
            "users: [{name: 5}]",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
