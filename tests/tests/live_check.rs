//! `kubectl globalps add` checks the credentials with the registry before it writes: real registries, and everything
//! that can go wrong. Needs no cluster: with valid credentials, a dry run shows the Secret.

mod common;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use common::desk::{Desk, Expected, LOUD, PASSWORD};
use globalps_testkit::image::{Image, write, write_index};
use globalps_testkit::lone_registry::{LoneRegistry, REPOSITORY, TokenServer, USER};
use globalps_testkit::product::{Product, Ran, run};
use globalps_testkit::web::{Authority, Identity, Reply, Server, Validity, self_signed};
use serde_json::{Value, json};

const HERE: &[&str] = &["127.0.0.1"];
const SKIP: &str = "`--skip-check` skips the check";
/// File name of a CA certificate.
const CA: &str = "ca.crt";

/// The file of a new CA, and a server certificate that it issued.
fn issued(desk: &Desk) -> (String, Identity) {
    let authority = Authority::new().unwrap();
    let identity = authority.issue(HERE, Validity::Now).unwrap();
    (desk.write(CA, authority.pem()), identity)
}

#[test]
fn a_registry_with_a_password_takes_the_right_one_and_no_other() {
    let desk = Desk::new();
    let (ca, identity) = issued(&desk);
    let registry = LoneRegistry::basic(&desk.path("r"), Some(&identity), PASSWORD).unwrap();
    let address = registry.address();
    let names = [(address.as_str(), "R")];
    let trusting = ["--ca-file", ca.as_str()];
    desk.add(&address, &trusting, &[])
        .goes_on(&names, "`R` accepts the credentials\n+R: ***\n");
    desk.add(&address, &[], &[("SSL_CERT_FILE", &ca)])
        .goes_on(&names, "`R` accepts the credentials\n+R: ***\n");
    desk.add_as("wrong", &address, &trusting, &[]).refuses(
        &names,
        "`R` rejects the user or password: `https://R/v2/` responds with 401",
        "try them with `podman login R`. Nothing was changed",
    );
    desk.add_as("wrong", &address, &["--skip-check"], &[])
        .goes_on(&names, "+R: ***\n");
    // The check requests access to a path that may be a repository. If the repository does not exist, this is not an error.
    desk.add(&format!("{address}/{REPOSITORY}"), &trusting, &[]).goes_on(&names, "`R/team/app` accepts the credentials\n+R/team/app: ***\n\
         warning: `R/team/app`: kubelets use it for everything that starts with it, including `R/team/app-other`\n");
    let asked = desk.api.asked();
    assert!(
        asked.iter().all(|request| request.starts_with("GET ")),
        "a dry run writes nothing: {asked:?}"
    );
}

#[test]
fn a_registry_with_a_token_server_is_asked_as_nodes_ask_it() {
    let desk = Desk::new();
    let (ca, identity) = issued(&desk);
    let tokens = TokenServer::start(Some(&identity), PASSWORD).unwrap();
    let registry = LoneRegistry::bearer(&desk.path("r"), &identity, &tokens).unwrap();
    let (address, token_address) = (registry.address(), tokens.server.address());
    let names = [(address.as_str(), "R"), (token_address.as_str(), "T")];
    let trusting = ["--ca-file", ca.as_str()];
    desk.add(&address, &trusting, &[])
        .goes_on(&names, "`R` accepts the credentials\n+R: ***\n");
    desk.add_as("wrong", &address, &trusting, &[]).refuses(
        &names,
        "`R` rejects the user or password: `https://T/token` responds with 401",
        "try them with `podman login R`. Nothing was changed",
    );
    desk.add(&format!("{address}/{REPOSITORY}"), &trusting, &[]).goes_on(&names, "`R/team/app` accepts the credentials\n+R/team/app: ***\n\
         warning: `R/team/app`: kubelets use it for everything that starts with it, including `R/team/app-other`\n");
    desk.add(&format!("{address}/other/app"), &trusting, &[]).goes_on(&names, "warning: `R/other/app` accepts the credentials, but they may not pull `other/app`, if that is a repository\n\
         +R/other/app: ***\n\
         warning: `R/other/app`: kubelets use it for everything that starts with it, including `R/other/app-other`\n");
    let asked = tokens.server.asked().join("\n");
    let service = "service=a%20test%27s%20registry";
    assert!(
        asked.contains(&format!(
            "GET /token?{service}&scope=repository%3Ateam%2Fapp%3Apull"
        )),
        "{asked}"
    );

    // Otherwise the password would be sent unencrypted.
    let plain = TokenServer::start(None, PASSWORD).unwrap();
    let registry = LoneRegistry::bearer(&desk.path("p"), &identity, &plain).unwrap();
    let (address, token_address) = (registry.address(), plain.server.address());
    let names = [(address.as_str(), "R"), (token_address.as_str(), "T")];
    desk.add(&address, &trusting, &[]).refuses(&names, "`R` could not be checked: it requests the password at `http://T/token`, which is not encrypted", "nothing was sent; if this is intended, add `--insecure`");
    assert_eq!(plain.server.asked(), [] as [&str; 0]);
}

#[test]
fn each_fault_of_a_certificate_is_told_apart() {
    let desk = Desk::new();
    let authority = Authority::new().unwrap();
    let ca = desk.write(CA, authority.pem());
    let other = desk.write("other.crt", Authority::new().unwrap().pem());
    let open = |_: &_| -> Reply { (200, Vec::new(), String::new()) };
    let good = authority.issue(HERE, Validity::Now).unwrap();
    let named = authority.issue(&["r.example.com"], Validity::Now).unwrap();
    let old = authority.issue(HERE, Validity::Over).unwrap();
    let own = self_signed(HERE).unwrap();
    let own_file = desk.write("own.crt", &own.certificate);
    for (sentence, identity, ca_file, message, hint) in [
        (
            "another authority",
            &good,
            &other,
            "the certificate of `127.0.0.1` is signed by an authority that this machine does not trust",
            "pass its certificate authority with `--ca-file`; nodes must trust it too",
        ),
        (
            "another name",
            &named,
            &ca,
            "the certificate of `127.0.0.1` is for `r.example.com`",
            "use the registry name in the certificate",
        ),
        (
            "too old",
            &old,
            &ca,
            "the certificate of `127.0.0.1` has expired",
            "renew the registry's certificate, or check this machine's clock",
        ),
        (
            "an authority's own",
            &own,
            &ca,
            "the certificate of `127.0.0.1` is a certificate authority, not a server certificate (`CA:TRUE`)",
            "if this is intended, pass this certificate with `--ca-file`",
        ),
    ] {
        let server = Server::web(Some(identity), open).unwrap();
        let address = server.address();
        let names = [(address.as_str(), "R")];
        let ran = desk.add(&address, &["--ca-file", ca_file], &[]);
        eprintln!("{sentence}");
        ran.refuses(
            &names,
            &format!("`R` could not be checked: {message}"),
            hint,
        );
        assert_eq!(
            server.asked(),
            [] as [&str; 0],
            "{sentence}: no request was made"
        );
        desk.add(&address, &["--insecure"], &[]).goes_on(&names, &format!(
                "{LOUD}warning: `R` asks for no login at `/v2/`, so the credentials could not be checked\n+R: ***\n"
            ));
    }
    // The server's own certificate, created as in Docker's guide.
    let server = Server::web(Some(&own), open).unwrap();
    let address = server.address();
    desk.add(&address, &["--ca-file", &own_file], &[]).goes_on(&[(&address, "R")], "warning: `R` asks for no login at `/v2/`, so the credentials could not be checked\n+R: ***\n");
    // But not for a name that the certificate does not contain.
    let elsewhere = address.replace("127.0.0.1", "localhost");
    desk.add(&elsewhere, &["--ca-file", &own_file], &[])
        .refuses(
            &[(&elsewhere, "R")],
            "`R` could not be checked: the certificate of `localhost` is for `127.0.0.1`",
            "use the registry name in the certificate",
        );
}

#[test]
fn plain_http_is_for_those_who_ask_for_it() {
    let desk = Desk::new();
    let registry = LoneRegistry::basic(&desk.path("r"), None, PASSWORD).unwrap();
    let address = registry.address();
    let names = [(address.as_str(), "R")];
    desk.add(&address, &[], &[]).refuses(
        &names,
        "`R` could not be checked: `R` does not speak TLS",
        "if the registry uses plain HTTP on purpose, add `--insecure`",
    );
    desk.add(&address, &["--insecure"], &[]).goes_on(
        &names,
        &format!("{LOUD}`R` accepts the credentials\n+R: ***\n"),
    );
    desk.add_as("wrong", &address, &["--insecure"], &[])
        .refuses(
            &names,
            "`R` rejects the user or password: `http://R/v2/` responds with 401",
            "try them with `podman login R`. Nothing was changed",
        );
}

#[test]
fn each_answer_that_is_not_a_registrys_is_told_apart() {
    let desk = Desk::new();
    let (ca, identity) = issued(&desk);
    let header = |name, value: &str| vec![(name, value.to_owned())];
    let login = "www-authenticate";
    for (reply, message, hint) in [
        (
            (403, Vec::new()),
            "`R` could not be checked: `https://R/v2/` rejects requests from this machine (403)",
            format!("does a firewall or the registry block this machine's address? {SKIP}"),
        ),
        (
            (404, Vec::new()),
            "`R` could not be checked: there is no registry at `https://R/v2/` (404)",
            "use the host of the image names, optionally with a path: `HOST/PATH`".to_owned(),
        ),
        (
            (429, header("retry-after", "90")),
            "`R` could not be checked: `https://R/v2/` limits the rate of requests (429)",
            format!("try again in 1 min 30 s; {SKIP}"),
        ),
        (
            (503, Vec::new()),
            "`R` could not be checked: `https://R/v2/` has an internal error (503)",
            format!("try again later; {SKIP}"),
        ),
        (
            (302, header("location", "/v2/")),
            "`R` could not be checked: `https://R/v2/` redirects too many times",
            format!("is it a registry? {SKIP}"),
        ),
        (
            (302, header("location", "http://127.0.0.1:1/")),
            "`R` could not be checked: it requests the password at `http://127.0.0.1:1/`, which is not encrypted",
            "nothing was sent; if this is intended, add `--insecure`".to_owned(),
        ),
        (
            (401, Vec::new()),
            "`R` could not be checked: `https://R/v2/` responds with 401 and names no login scheme",
            format!("is it a registry, or a proxy in front of it? {SKIP}"),
        ),
        (
            (401, header(login, "NTLM")),
            "`R` could not be checked: `https://R/v2/` requires the login scheme `NTLM`, which nodes don't support",
            format!("nodes log in with a password, or with a token for it; {SKIP}"),
        ),
        (
            (401, header(login, "Bearer realm=\"nowhere\"")),
            "`R` could not be checked: it requests the password at `nowhere`, which is not encrypted",
            "nothing was sent; if this is intended, add `--insecure`".to_owned(),
        ),
    ] {
        let (status, headers) = reply;
        let server = Server::web(Some(&identity), move |request| {
            let sent = request.headers().get("authorization");
            assert!(
                sent.is_none(),
                "the password goes only to a server that requires it"
            );
            (status, headers.clone(), String::new())
        })
        .unwrap();
        let address = server.address();
        let ran = desk.add(&address, &["--ca-file", &ca], &[]);
        ran.refuses(&[(&address, "R")], message, &hint);
    }
}

#[test]
fn a_registry_that_opens_only_v2_gets_the_credentials() {
    let desk = Desk::new();
    let (ca, identity) = issued(&desk);
    let trusting = ["--ca-file", ca.as_str()];
    let tokens = TokenServer::start(Some(&identity), PASSWORD).unwrap();
    let bearer = format!(
        "Bearer realm=\"https://{}/token\",service=\"s\"",
        tokens.server.address()
    );
    let right = format!(
        "Basic {}",
        BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"))
    );
    let warning = "warning: `R/team/app`: kubelets use it for everything that starts with it, including `R/team/app-other`\n";
    let accepts = "accepts the credentials, but asks for no login at `/v2/`, so nodes with CRI-O don't send them";
    // The challenge, whether `/v2/` checks a password that is sent to it, and the name of the component that rejects a wrong one.
    for (challenge, reads, rejects) in [
        ("Basic realm=\"x\"", false, "R/v2/team/app/tags/list"),
        ("Basic realm=\"x\"", true, "R/v2/"),
        (bearer.as_str(), false, "T/token"),
        (bearer.as_str(), true, "T/token"),
    ] {
        let (challenge_, right) = (challenge.to_owned(), right.clone());
        let server = Server::web(Some(&identity), move |request| {
            let sent = request.headers().get("authorization");
            let sent = sent.and_then(|sent| sent.to_str().ok());
            let is_right = match sent {
                Some(sent) if challenge_.starts_with("Bearer") => sent.starts_with("Bearer "),
                sent => sent == Some(&right),
            };
            let is_open = request.uri().path() == "/v2/" && (sent.is_none() || !reads);
            if is_right || is_open {
                return (200, Vec::new(), String::new());
            }
            let asks = vec![("www-authenticate", challenge_.clone())];
            (401, asks, String::new())
        })
        .unwrap();
        let (address, token_address) = (server.address(), tokens.server.address());
        let names = [(address.as_str(), "R"), (token_address.as_str(), "T")];
        let repository = format!("{address}/team/app");
        eprintln!("{challenge}, {reads}");
        desk.add(&repository, &trusting, &[]).goes_on(
            &names,
            &format!("warning: `R/team/app` {accepts}\n+R/team/app: ***\n{warning}"),
        );
        // The registry may equally ignore a password that it did not request.
        let unknown = "asks for no login at `/v2/`, so the credentials could not be checked";
        let is_basic = challenge.starts_with("Basic");
        let right_one = if is_basic { unknown } else { accepts };
        let rejected = |key: &str, url: &str| {
            format!("`{key}` rejects the user or password: `https://{url}` responds with 401")
        };
        let hint = |key: &str| format!("try them with `podman login {key}`. Nothing was changed");
        desk.add_as("wrong", &repository, &trusting, &[]).refuses(
            &names,
            &rejected("R/team/app", rejects),
            &hint("R/team/app"),
        );
        if reads {
            desk.add_as("wrong", &address, &trusting, &[]).refuses(
                &names,
                &rejected("R", rejects),
                &hint("R"),
            );
            desk.add(&address, &trusting, &[])
                .goes_on(&names, &format!("warning: `R` {right_one}\n+R: ***\n"));
        } else {
            desk.add_as("wrong", &address, &trusting, &[])
                .goes_on(&names, &format!("warning: `R` {unknown}\n+R: ***\n"));
        }
    }
}

#[test]
fn credentials_that_a_shell_or_an_editor_damaged_are_named() {
    let desk = Desk::new();
    let (ca, identity) = issued(&desk);
    let registry = LoneRegistry::basic(&desk.path("r"), Some(&identity), PASSWORD).unwrap();
    let address = registry.address();
    let names = [(address.as_str(), "R")];
    let trusting = ["--ca-file", ca.as_str()];
    desk.add_as(&format!("\u{feff}{PASSWORD}\r\n"), &address, &trusting, &[])
        .goes_on(&names, "`R` accepts the credentials\n+R: ***\n");
    let rejected = "`R` rejects the user or password: `https://R/v2/` responds with 401";
    let auth = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}\n"));
    let file = desk.write(
        "line-feed.json",
        &format!(r#"{{"auths":{{"{address}":{{"auth":"{auth}"}}}}}}"#),
    );
    desk.add_with(&["--authfile", &file, "--ca-file", &ca], &[], "").refuses(&names, rejected, "the password ends with a line break: add the credentials again without it; else try them with `podman login R`. Nothing was changed");
    let robot = ["--registry", &address, "-u", "robot", "--password-stdin"];
    desk.add_with(&[&robot, &trusting[..]].concat(), &[], PASSWORD).refuses(&names, rejected, "the user of a Harbor robot has one `$`: put it in single quotes, as in `-u 'robot$NAME'`; else try them with `podman login R`. Nothing was changed");
}

#[test]
fn a_redirect_takes_the_password_to_no_other_server() {
    let desk = Desk::new();
    let (ca, identity) = issued(&desk);
    let asks = vec![("www-authenticate", "Basic realm=\"x\"".to_owned())];
    let (sent, received) = std::sync::mpsc::channel();
    let other = Server::web(Some(&identity), move |request| {
        let has_password = request.headers().contains_key("authorization");
        sent.send(has_password).unwrap();
        (401, asks.clone(), String::new())
    })
    .unwrap();
    let location = format!("https://{}/v2/", other.address());
    let server = Server::web(Some(&identity), move |_| {
        (307, vec![("location", location.clone())], String::new())
    })
    .unwrap();
    let (address, other_address) = (server.address(), other.address());
    desk.add(&address, &["--ca-file", &ca], &[]).refuses(
        &[(&address, "R"), (&other_address, "OTHER")],
        "`R` rejects the user or password: `https://OTHER/v2/` responds with 401",
        "try them with `podman login R`. Nothing was changed",
    );
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [false, false]);
}

#[test]
fn a_token_server_that_is_none_is_told() {
    let desk = Desk::new();
    let (ca, identity) = issued(&desk);
    for (status, body, message, hint) in [
        (
            200,
            "<html>",
            "`R` could not be checked: `https://T/token` returned neither a token nor an error",
            format!("is that the registry's token server? {SKIP}"),
        ),
        (
            200,
            r#"{"token": ""}"#,
            "`R` could not be checked: `https://T/token` returned neither a token nor an error",
            format!("is that the registry's token server? {SKIP}"),
        ),
        (
            200,
            r#"{"access_token": "t"}"#,
            "`R` rejects the user or password: `https://R/v2/` responds with 401",
            "try them with `podman login R`. Nothing was changed".to_owned(),
        ),
        (
            403,
            "",
            "`R` denies access to this user: `https://T/token` responds with 403",
            "is the password correct, is the account locked, and may it pull? Nothing was changed"
                .to_owned(),
        ),
        (
            503,
            "",
            "`R` could not be checked: `https://T/token` has an internal error (503)",
            format!("try again later; {SKIP}"),
        ),
    ] {
        let tokens = Server::web(Some(&identity), move |_| {
            (status, Vec::new(), body.to_owned())
        })
        .unwrap();
        let realm = format!("Bearer realm=\"https://{}/token\"", tokens.address());
        let server = Server::web(Some(&identity), move |_| {
            (
                401,
                vec![("www-authenticate", realm.clone())],
                String::new(),
            )
        })
        .unwrap();
        let (address, token_address) = (server.address(), tokens.address());
        let names = [(address.as_str(), "R"), (token_address.as_str(), "T")];
        let ran = desk.add(&address, &["--ca-file", &ca], &[]);
        ran.refuses(&names, message, &hint);
    }
}

#[test]
fn who_is_not_there_or_says_nothing_is_not_waited_for() {
    let desk = Desk::new();
    let silent = Server::silent().unwrap();
    let address = silent.address();
    let start = Instant::now();
    desk.add(&address, &["--check-timeout", "1s"], &[]).refuses(
        &[(&address, "R")],
        "`R` could not be checked: `R` accepted the connection but did not respond within 1 s",
        &format!("allow more time with `--check-timeout`; {SKIP}"),
    );
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );

    // No server listens there.
    let address = "127.0.0.1:1".to_owned();
    desk.add(&address, &[], &[]).refuses(
        &[(&address, "R")],
        "`R` could not be checked: `R` refuses connections",
        &format!("check the port and whether the registry runs; {SKIP}"),
    );

    // A server that disconnects at once.
    let rude = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = rude.local_addr().unwrap().to_string();
    std::thread::spawn(move || rude.incoming().for_each(drop));
    let ran = desk.add(&address, &[], &[]);
    let start = format!(
        "error: `{address}` could not be checked: the TLS handshake with `{address}` failed: "
    );
    assert!(ran.stderr.starts_with(&start), "{ran:?}");
    assert_eq!(ran.code, Some(2), "{ran:?}");

    let ran = desk.add("r.invalid", &[], &[]);
    assert!(
        ran.stderr.starts_with(
            "error: `r.invalid` could not be checked: the name `r.invalid` could not be resolved: "
        ),
        "{ran:?}"
    );
    assert!(
        ran.stderr
            .ends_with(&format!("\n\nhint: check the host name; {SKIP}\n")),
        "{ran:?}"
    );

    desk.add("*.example.com", &[], &[]).goes_on(&[], "warning: `*.example.com` stands for many registries, so its credentials could not be checked\n\
         +*.example.com: ***\nwarning: `*.example.com`: CRI-O doesn't support patterns\n");
}

#[test]
fn proxies_are_used_as_the_environment_says() {
    let desk = Desk::new();
    let (ca, identity) = issued(&desk);
    let registry = LoneRegistry::basic(&desk.path("r"), Some(&identity), PASSWORD).unwrap();
    let address = registry.address();
    let trusting = ["--ca-file", ca.as_str()];
    let good = "`R` accepts the credentials\n+R: ***\n";
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
        let proxy = Server::proxy(None).unwrap();
        let url = format!("http://{}", proxy.address());
        let names = [(address.as_str(), "R")];
        desk.add(&address, &trusting, &[(variable, &url)])
            .goes_on(&names, good);
        let target = format!("CONNECT {address}");
        assert_eq!(
            proxy.asked(),
            [target.as_str(), target.as_str()],
            "{variable}"
        );
        for without in ["NO_PROXY", "no_proxy"] {
            let env = [(variable, url.as_str()), (without, "127.0.0.0/8")];
            desk.add(&address, &trusting, &env).goes_on(&names, good);
        }
        assert_eq!(
            proxy.asked().len(),
            2,
            "{variable}: not for a registry in `NO_PROXY`"
        );
    }

    // The proxy requires a password itself.
    let proxy = Server::proxy(Some("Basic dTpw")).unwrap();
    let proxy_address = proxy.address();
    let names = [(address.as_str(), "R"), (proxy_address.as_str(), "P")];
    let url = format!("http://u:p@{proxy_address}");
    desk.add(&address, &trusting, &[("HTTPS_PROXY", &url)])
        .goes_on(&names, good);
    let url = format!("http://u:{PASSWORD}@{proxy_address}");
    desk.add(&address, &trusting, &[("HTTPS_PROXY", &url)])
        .refuses(
            &names,
            "`R` could not be checked: the proxy `http://P` requires a user and a password",
            "set them in the variable: `HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT`",
        );

    // The proxy can't reach the registry, or is down itself.
    let free = "127.0.0.1:1".to_owned();
    let proxy = Server::proxy(None).unwrap();
    let url = format!("http://{}", proxy.address());
    let names = [(free.as_str(), "R"), (url.as_str(), "P")];
    desk.add(&free, &[], &[("HTTPS_PROXY", &url)]).refuses(
        &names,
        "`R` could not be checked: the proxy `P` rejects the connection (502)",
        "to bypass the proxy, add the registry to `NO_PROXY`",
    );
    let nowhere = format!("http://{free}");
    desk.add(&address, &trusting, &[("HTTPS_PROXY", &nowhere)])
        .refuses(
            &[(&address, "R"), (&nowhere, "P")],
            "`R` could not be checked: the proxy `P` refuses connections",
            "check `HTTPS_PROXY`; to bypass the proxy, add the registry to `NO_PROXY`",
        );
    desk.add(
        &address,
        &trusting,
        &[("HTTPS_PROXY", "socks5://127.0.0.1:1")],
    )
    .refuses(
        &[(&address, "R")],
        "`R` could not be checked: the proxy `socks5://127.0.0.1:1` has an unsupported scheme",
        &format!("use an `http://` or `https://` proxy; {SKIP}"),
    );

    // Plain HTTP goes through the proxy by absolute URLs.
    let plain = LoneRegistry::basic(&desk.path("p"), None, PASSWORD).unwrap();
    let (address, proxy) = (plain.address(), Server::proxy(None).unwrap());
    let url = format!("http://{}", proxy.address());
    let env = [("http_proxy", url.as_str())];
    desk.add(&address, &["--insecure"], &env)
        .goes_on(&[(&address, "R")], &format!("{LOUD}{good}"));
    let target = format!("GET http://{address}/v2/");
    assert_eq!(proxy.asked(), [target.as_str(), target.as_str()]);
}

/// Archives of small programs, with two architectures for the controller. Returns their directory.
fn archives(desk: &Desk) -> String {
    let plugin = std::fs::read(Product::plugin_path()).unwrap();
    let directory = desk.path("images");
    std::fs::create_dir_all(&directory).unwrap();
    let program = |name: &str, machine: Option<u8>| {
        let mut bytes = plugin[..64 * 1024].to_vec();
        if let Some(machine) = machine {
            // `e_machine` of the ELF header.
            (bytes[18], bytes[19]) = (machine, 0);
        }
        let path = desk.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let (own, arm) = (program("own", Some(62)), program("arm", Some(183)));
    let image = |name, binary| Image {
        binary,
        name,
        beside: &[],
        user: "65532:65532",
        reference: name,
    };
    let controller = [&own, &arm].map(|binary| image("globalps-controller", binary));
    write_index(&controller, &directory.join("globalps-controller.tar")).unwrap();
    let syncer = image("globalps-syncer", &own);
    write(&syncer, &directory.join("globalps-syncer.tar")).unwrap();
    directory.display().to_string()
}

fn push(desk: &Desk, registry: &str, flags: &[&str]) -> Ran {
    let directory = archives(desk);
    let words = ["images", "push", registry, "--dir", &directory];
    let mut command = Command::new(Product::plugin_path());
    command.args(words).args(flags).env_clear();
    command.env("HOME", desk.directory.path());
    let ran = run(&mut command, PASSWORD).unwrap();
    let shown = format!("{ran:?}");
    assert!(!shown.contains(PASSWORD), "a password is shown: {shown}");
    ran
}

/// With TLS and a password, and with tokens, whose scope is each repository.
#[test]
fn images_pushed_to_real_registries_are_pulled_by_digest() {
    let desk = Desk::new();
    let (ca, identity) = issued(&desk);
    let tokens = TokenServer::start(Some(&identity), PASSWORD).unwrap();
    let basic = LoneRegistry::basic(&desk.path("r"), Some(&identity), PASSWORD).unwrap();
    let bearer = LoneRegistry::bearer(&desk.path("t"), &identity, &tokens).unwrap();
    for registry in [&basic, &bearer] {
        let to = format!("{}/tools", registry.address());
        let flags = ["--ca-file", &ca, "-u", USER, "--password-stdin"];
        let ran = push(&desk, &to, &[&flags[..], &["-o", "json"]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stderr.contains(": 4 of 4 blobs sent"), "{ran:?}");
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        let images: Vec<&str> = report["images"]
            .as_array()
            .unwrap()
            .iter()
            .map(|image| image["image"].as_str().unwrap())
            .collect();
        let [controller, syncer] = images[..] else {
            panic!("{images:?}")
        };
        assert!(controller.starts_with(&format!("{to}/globalps-controller@sha256:")));
        let install = format!(
            "kubectl globalps install --controller-image {controller} --syncer-image {syncer}"
        );
        assert_eq!(report["install"], install);
        // Another push sends nothing; its credentials come from a file.
        let auth = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
        let config = json!({"auths": {registry.address(): {"auth": auth}}}).to_string();
        let file = desk.write("auth.json", &config);
        let ran = push(&desk, &to, &["--ca-file", &ca, "--authfile", &file]);
        assert_eq!(ran.stdout, format!("{install}\n"), "{ran:?}");
        assert!(ran.stderr.contains(": 0 of 4 blobs sent"), "{ran:?}");
        if std::ptr::eq(registry, &bearer) {
            continue;
        }
        for image in images
            .iter()
            .chain([&&*format!("{to}/globalps-syncer:latest")])
        {
            let copy = desk.path("copy");
            let mut skopeo = Command::new("skopeo");
            skopeo.args(["copy", "--quiet", "--all", "--insecure-policy"]);
            skopeo.args(["--src-tls-verify=false", "--src-authfile", &file]);
            skopeo.arg(format!("docker://{image}"));
            skopeo.arg(format!("dir:{}", copy.display()));
            let ran = run(&mut skopeo, "").unwrap();
            assert_eq!(ran.code, Some(0), "{image}: {ran:?}");
        }
    }
    let wrong = push(&desk, &basic.address(), &["--ca-file", &ca]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(
        wrong.stderr.contains("asks for a user and a password"),
        "{wrong:?}"
    );
}

/// The registry is busy for this many uploads after the first.
#[test]
fn a_failed_upload_is_repeated_and_not_forever() {
    for (is_busy_for, expected) in [(1, 0), (99, 2)] {
        let desk = Desk::new();
        let (puts, stored) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
        let server = Server::web(None, move |request| {
            let path = request.uri().path().to_owned();
            let mut stored = stored.lock().unwrap();
            let location = |to: String| vec![("location", to)];
            let (status, headers) = match request.method().as_str() {
                "HEAD" if stored.contains(path.rsplit('/').next().unwrap()) => (200, Vec::new()),
                "HEAD" => (404, Vec::new()),
                "POST" => (202, location(format!("{path}1?state=a%3Db"))),
                "PUT" if path.contains("/manifests/") => (201, Vec::new()),
                "PUT" => {
                    let query = request.uri().query().unwrap_or_default();
                    let digest = query.strip_prefix("state=a%3Db&digest=").unwrap();
                    assert!(!request.body().is_empty());
                    let number = puts.fetch_add(1, Ordering::Relaxed);
                    if (1..=is_busy_for).contains(&number) {
                        (503, Vec::new())
                    } else {
                        stored.insert(digest.to_owned());
                        (201, Vec::new())
                    }
                }
                _ => (200, Vec::new()),
            };
            (status, headers, String::new())
        })
        .unwrap();
        let ran = push(&desk, &server.address(), &["--insecure"]);
        assert_eq!(ran.code, Some(expected), "{ran:?}");
        let asked = server.asked();
        let uploads = asked
            .iter()
            .filter(|it| it.starts_with("PUT") && it.contains("/blobs/"));
        if expected == 0 {
            assert_eq!(uploads.count(), 7, "6 blobs, one of them twice: {asked:?}");
            let last = asked.last().unwrap();
            assert!(
                last.ends_with("/globalps-syncer/manifests/latest"),
                "{last}"
            );
        } else {
            assert_eq!(
                uploads.count(),
                4,
                "the first, and three attempts: {asked:?}"
            );
            assert!(ran.stderr.contains("503"), "{ran:?}");
        }
    }
}
