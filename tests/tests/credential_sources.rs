//! The sources from which `kubectl globalps add` takes credentials, and how it rejects invalid input. Needs no cluster.

mod common;

use std::process::Command;

use common::base64;
use common::desk::{Desk, Expected, LOUD, PASSWORD};
use globalps_testkit::DEADLINE;
use globalps_testkit::lone_registry::{LoneRegistry, USER};
use globalps_testkit::terminal::Terminal;

#[test]
fn files_of_docker_and_podman_are_read_with_their_helpers() {
    let desk = Desk::new();
    let registry = LoneRegistry::basic(&desk.path("r"), None, PASSWORD).unwrap();
    let address = registry.address();
    let names = [
        (address.as_str(), "R"),
        (desk.directory.path().to_str().unwrap(), "HOME"),
    ];
    // The helper receives only the server on stdin, and answers in docker's format.
    desk.helper(
        "good",
        &format!(
            r#"[ "$1" = get ] && [ "$(cat)" = "{address}" ] && echo '{{"ServerURL":"x","Username":"{USER}","Secret":"{PASSWORD}"}}'"#
        ),
    );
    desk.helper(
        "none",
        "cat > /dev/null; echo 'credentials not found in native keychain'; exit 1",
    );
    desk.helper("fails", &format!("echo '{PASSWORD}'; exit 3"));
    desk.helper("talks", &format!("echo '{PASSWORD}'"));
    desk.helper(
        "token",
        &format!(r#"echo '{{"Username":"<token>","Secret":"{PASSWORD}"}}'"#),
    );
    let good = format!("{LOUD}`R` accepts the credentials\n+R: ***\n");
    let helper = |name: &str| format!(r#"{{"auths":{{}},"credHelpers":{{"{address}":"{name}"}}}}"#);
    let store = format!(r#"{{"auths":{{"{address}":{{}}}},"credsStore":"good"}}"#);
    let auth = base64(&format!("{USER}:{PASSWORD}"));
    let inline = format!(r#"{{"auths":{{"{address}":{{"auth":"{auth}"}}}}}}"#);
    for text in [helper("good"), store, inline.clone()] {
        let file = desk.write("config.json", &text);
        let ran = desk.add_with(&["--authfile", &file, "--insecure"], &[], "");
        ran.goes_on(&names, &good);
        let ran = desk.add_with(&["--insecure"], &[("REGISTRY_AUTH_FILE", &file)], "");
        let noted = format!("credentials of `HOME/config.json` (`$REGISTRY_AUTH_FILE`)\n{good}");
        ran.goes_on(&names, &noted);
        let by_name = ["--authfile", &file, "--registry", &address, "--insecure"];
        desk.add_with(&by_name, &[], "").goes_on(&names, &good);
    }
    // A credentials file, or a manifest, on stdin.
    let manifest = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData:\n  .dockerconfigjson: '{inline}'\n"
    );
    for input in [&inline, &manifest] {
        let ran = desk.add_with(&["--from-file", "-", "--insecure"], &[], input);
        ran.goes_on(&names, &good);
    }
    for (name, message, hint) in [
        (
            "missing",
            "the credential helper `docker-credential-missing`, configured for `R`, is not on the PATH",
            "install it, or give user and password with `-u` and `--password-stdin`",
        ),
        (
            "none",
            "`HOME/config.json` has no credentials for `R`",
            "log in once more, as with `docker login R`, or name another file",
        ),
        (
            "fails",
            "the credential helper `docker-credential-fails` failed for `R` (exit status: 3)",
            "does logging in work, as in `docker login`? Else give user and password with `-u` and `--password-stdin`",
        ),
        (
            "talks",
            "the credential helper `docker-credential-talks` answered for `R` with something that is not its protocol",
            "it must print {\"Username\": ..., \"Secret\": ...}",
        ),
        (
            "token",
            "what `docker-credential-token` has for `R` is an identity token, which a kubelet can't use",
            "make a robot account, service principal or access token for the nodes, and add its user and password",
        ),
        (
            "../good",
            "`docker-credential-../good`, configured for `R`, is not the name of a credential helper",
            "`credHelpers` and `credsStore` name programs without `docker-credential-` and without a directory",
        ),
    ] {
        let file = desk.write("config.json", &helper(name));
        let ran = desk.add_with(&["--authfile", &file, "--insecure"], &[], "");
        ran.refuses(&names, message, hint);
    }
}

#[test]
fn a_terminal_asks_and_shows_nothing_of_the_password() {
    let desk = Desk::new();
    let registry = LoneRegistry::basic(&desk.path("r"), None, PASSWORD).unwrap();
    let address = registry.address();
    let command = desk.command(&["--registry", &address, "--insecure"], &[]);
    let mut terminal = Terminal::start_alone(&command, 80, 24).unwrap();
    terminal.wait_for("Username", DEADLINE).unwrap();
    terminal.press(&format!("{USER}\n")).unwrap();
    terminal.wait_for("Password", DEADLINE).unwrap();
    terminal.wait_hidden(DEADLINE).unwrap();
    terminal.press(&format!("{PASSWORD}\n")).unwrap();
    let (code, screen) = terminal.end(DEADLINE).unwrap();
    assert_eq!(code, Some(0), "{screen}");
    let end = format!(
        "`{address}` accepts the credentials\r\n+{address}: ***\r\nsecret/additional-pull-secret\r\n"
    );
    assert!(screen.ends_with(&end), "{screen:?}");
    assert!(!screen.contains(PASSWORD), "{screen:?}");
}

#[test]
fn ctrl_c_at_the_password_leaves_the_terminal_as_it_was() {
    ended_at_the_password(130, |terminal, _| {
        terminal.press(&format!("{PASSWORD}\u{3}")).unwrap();
    });
}

#[test]
fn sigterm_at_the_password_leaves_the_terminal_as_it_was() {
    ended_at_the_password(143, |terminal, pid| {
        terminal.press(PASSWORD).unwrap();
        let mut kill = Command::new("kill");
        assert!(kill.args(["-TERM", pid]).status().unwrap().success());
    });
}

/// `end` receives the plugin's pid.
fn ended_at_the_password(expected: i32, end: impl FnOnce(&mut Terminal, &str)) {
    let desk = Desk::new();
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    let add = desk.command(&["--registry", "r.example.com", "-u", USER], &[]);
    let words = std::iter::once(add.get_program()).chain(add.get_args());
    let words: Vec<String> = words
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut shell = Command::new("/bin/sh");
    let script = format!(
        "trap : INT; sh -c 'echo $$ > {}; exec \"$@\"' sh {}; echo \"ended $?\"; stty -a",
        pid.display(),
        words.join(" ")
    );
    shell.args(["-c", &script]);
    for (name, value) in add.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    let mut terminal = Terminal::start_alone(&shell, 200, 24).unwrap();
    terminal.wait_for("Password", DEADLINE).unwrap();
    terminal.wait_hidden(DEADLINE).unwrap();
    let pid = std::fs::read_to_string(pid).unwrap();
    end(&mut terminal, pid.trim());
    let (code, screen) = terminal.end(DEADLINE).unwrap();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains(&format!("ended {expected}")), "{screen:?}");
    for (mode, is_on) in [
        (" echo ", true),
        (" icanon ", true),
        ("intr = ^C;", true),
        ("eol = ^C", false),
    ] {
        assert_eq!(screen.contains(mode), is_on, "{mode}: {screen}");
    }
    assert!(!screen.contains("\u{1b}[?25l"), "the cursor: {screen:?}");
    assert!(!screen.contains(PASSWORD), "{screen:?}");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_sentence_and_a_way_out() {
    let desk = Desk::new();
    let flags = |line: &str, input: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        desk.add_with(&words, &[], input)
    };
    let no_ca = desk.write("no.crt", "hunter2");
    #[rustfmt::skip]
    let cases = [
        (
            "-u u --password-stdin",
            "p",
            "`REGISTRY` is missing",
            "name the registry, such as `quay.io`, or a source of credentials with `--authfile`, `--from-secret` or `--from-file`",
        ),
        ("--all", "", "`--all` needs a source of credentials", "name a source: `--authfile`, `--from-secret` or `--from-file`"),
        ("--registry quay.io", "", "the user is missing", "pass the user with `-u` and the password with `--password-stdin`"),
        (
            "--registry quay.io -u u",
            "",
            "no password for user `u`, and no terminal for a prompt",
            "pipe it in with `--password-stdin`",
        ),
        (
            "--registry quay.io -u u --password-stdin",
            "",
            "the password is empty",
            "check that the file is not empty and the variable is set",
        ),
        (
            "--registry quay.io -u u --password-stdin",
            "one\ntwo\n",
            "the password has a line break in it",
            "only one trailing newline is removed; is there a second or an empty line?",
        ),
        (
            "--registry https://quay.io/org -u u --password-stdin",
            "p",
            "`https://quay.io/org` is not a registry: it is a URL with a path",
            "use `quay.io` for the whole registry, or `quay.io/org` for images below that path",
        ),
        (
            "--registry quay.io/org/app:1 -u u --password-stdin",
            "p",
            "`quay.io/org/app:1` is not a registry: it is an image with a tag",
            "leave that out: `quay.io/org/app`; `quay.io` is the whole registry",
        ),
        (
            "--registry quay.io -u u --password-stdin --wait",
            "p",
            "a dry run changes nothing, so there is nothing to wait for",
            "leave out `--wait` or `--dry-run`",
        ),
        (
            "--registry quay.io -u u --password-stdin --ca-file /nowhere",
            "p",
            "`/nowhere` is not a file with certificate authorities: No such file or directory (os error 2)",
            "pass a PEM file; it begins with `-----BEGIN CERTIFICATE-----`",
        ),
        (
            &format!("--registry quay.io -u u --password-stdin --ca-file {no_ca}"),
            "p",
            &format!(
                "`{no_ca}` is not a file with certificate authorities: there is no certificate in it"
            ),
            "pass a PEM file; it begins with `-----BEGIN CERTIFICATE-----`",
        ),
        (
            "--authfile /nowhere --all",
            "",
            "`/nowhere` could not be read: No such file or directory (os error 2)",
            "name docker's `~/.docker/config.json` or podman's `$XDG_RUNTIME_DIR/containers/auth.json`",
        ),
    ];
    for (line, input, message, hint) in cases {
        flags(line, input).refuses(&[], message, hint);
    }
    // The Secret contains one name for Docker Hub, whichever of its names the user enters.
    for name in [
        "docker.io",
        "index.docker.io",
        "https://index.docker.io/v1/",
    ] {
        let ran = flags(
            &format!("--registry {name} -u u --password-stdin --skip-check"),
            "p",
        );
        ran.goes_on(&[], "+docker.io: ***\n");
    }
}
