//! The shipped credential provider: for any error in its data or its request, it responds at once with no credentials,
//! exit status 0, and one line with the reason.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use globalps_dockerconfig::parse;
use globalps_provider::{API_VERSION, Content, Scope, ScopedConfig, render_data};
use globalps_testkit::product::provider_path;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

/// Limit for one run on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// User and password of every entry.
const PAIR: &str = "cm9ib3Q6aHVudGVyMg==";

fn content() -> Content {
    let config = |key: &str| {
        let text = json!({"auths": {key: {"auth": PAIR}}}).to_string();
        parse(text.as_bytes()).unwrap()
    };
    Content {
        config: config("quay.io"),
        scoped: vec![ScopedConfig {
            source: "team-a-pull-secret".to_owned(),
            scope: Scope {
                namespaces: vec!["team-a".to_owned().try_into().unwrap()],
                service_accounts: Vec::new(),
            },
            config: config("quay.io/org"),
        }],
        ..Content::default()
    }
}

fn token(namespace: &str) -> String {
    let claims =
        json!({"kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": "ci"}}});
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    format!(
        "{}.{}.{}",
        part("{}"),
        part(&claims.to_string()),
        part("signature")
    )
}

fn request(image: &str, token: Option<&str>) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "CredentialProviderRequest",
        "image": image,
        "serviceAccountToken": token,
    })
}

fn run(command: &mut Command, input: &[u8]) -> Output {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}: run `make image`", provider_path().display()));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that does not read all input closes the pipe.
    thread::spawn(move || stdin.write_all(&input));
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > DEADLINE {
            child.kill().unwrap();
            panic!("it does not exit: {command:?}");
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

fn answer(data: &Path, is_scoped: bool, input: &[u8]) -> Output {
    let mut command = Command::new(provider_path());
    command.arg(format!("--data={}", data.display()));
    command.args(is_scoped.then_some("--scoped"));
    run(&mut command, input)
}

/// The keys of the response, and the line on standard error.
fn read(output: &Output) -> (Vec<String>, String) {
    assert!(output.status.success(), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["apiVersion"], API_VERSION);
    assert_eq!(answer["kind"], "CredentialProviderResponse");
    assert_eq!(answer["cacheKeyType"], "Image");
    assert_eq!(answer["cacheDuration"], "0s");
    let auth = answer["auth"].as_object().unwrap();
    for entry in auth.values() {
        assert_eq!(*entry, json!({"username": "robot", "password": "hunter2"}));
    }
    let complaint = String::from_utf8(output.stderr.clone()).unwrap();
    for secret in ["hunter2", PAIR, "eyJ"] {
        assert!(!complaint.contains(secret), "{complaint}");
    }
    (auth.keys().cloned().collect(), complaint)
}

#[test]
fn each_pod_gets_what_it_may_have() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::write(&data, render_data(1, &content())).unwrap();
    for (image, is_scoped, namespace, expected) in [
        ("quay.io/org/app", false, None, vec!["quay.io"]),
        ("quay.io/org/app", false, Some("team-a"), vec!["quay.io"]),
        ("quay.io/org/app", true, Some("team-a"), vec!["quay.io/org"]),
        ("quay.io/org/app", true, Some("team-a-b"), vec![]),
        ("quay.io/other", true, Some("team-a"), vec![]),
        ("nginx", false, None, vec![]),
    ] {
        let token = namespace.map(token);
        let input = request(image, token.as_deref()).to_string();
        let (keys, complaint) = read(&answer(&data, is_scoped, input.as_bytes()));
        assert_eq!(keys, expected, "{image} {namespace:?}");
        assert_eq!(complaint, "");
    }
}

#[test]
fn whatever_is_wrong_it_answers_with_nothing_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let good = render_data(1, &content());
    let garbage = [b"\xff\0{".repeat(100), good.clone()].concat();
    let newer = br#"{"version":2,"revision":1,"secrets":[]}"#;
    let other = String::from_utf8(good.clone()).unwrap();
    let other = other.replacen("team-a", "team-b", 1);
    for (name, bytes) in [
        ("good", &good[..]),
        ("empty", b""),
        ("cut", &good[..good.len() - 1]),
        ("garbage", &garbage),
        ("newer", newer),
        ("other", other.as_bytes()),
        ("secret", br#"{"version":1,"revision":"hunter2"}"#),
    ] {
        fs::write(path(name), bytes).unwrap();
    }
    let large = fs::File::create(path("large")).unwrap();
    large.set_len(100 * 1024 * 1024 * 1024).unwrap();
    mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let asked = request("quay.io/org/app", Some(&token("team-a"))).to_string();
    for is_scoped in [false, true] {
        for (name, expected) in [
            ("absent", "No such file or directory"),
            ("", "it is not a regular file"),
            ("pipe", "it is not a regular file"),
            ("large", "it is larger than 8388608 bytes"),
            ("empty", "it is damaged"),
            ("cut", "it is damaged"),
            ("garbage", "it is damaged"),
            ("secret", "it is damaged"),
            ("other", "it is damaged"),
            (
                "newer",
                "it has version 2, but this program reads version 1",
            ),
        ] {
            let output = answer(&path(name), is_scoped, asked.as_bytes());
            wrong(&output, &format!("the data file is unusable: {expected}"));
        }
        let beta = asked.replace("/v1\"", "/v1beta1\"");
        let long = format!("{}{asked}", " ".repeat(1024 * 1024));
        let id = request(&"0".repeat(64), None).to_string();
        let upper = request("quay.io/hunter2/\nUPPER", None).to_string();
        for (input, expected) in [
            ("", "invalid request: it is not a"),
            ("hunter2", "invalid request: it is not a"),
            (&asked[..40], "invalid request: it is not a"),
            (&beta, "invalid request: its API version must be"),
            (&long, "invalid request: it is larger than"),
            (&id, "invalid image name: 64 hexadecimal"),
            (&upper, "invalid image name: "),
        ] {
            wrong(
                &answer(&path("good"), is_scoped, input.as_bytes()),
                expected,
            );
        }
    }
    for (token, expected) in [
        (None, "the kubelet passed no service account token"),
        (Some(""), "the kubelet passed no service account token"),
        (Some("eyJ.eyJ.eyJ"), "the token has no claims for namespace"),
    ] {
        let input = request("quay.io/org/app", token).to_string();
        wrong(&answer(&path("good"), true, input.as_bytes()), expected);
    }
}

fn wrong(output: &Output, expected: &str) {
    let (keys, complaint) = read(output);
    assert!(keys.is_empty(), "{expected}: {keys:?}");
    let start = format!("globalps-credential-provider: {expected}");
    assert!(
        complaint.starts_with(&start),
        "{complaint:?} is not {start:?}"
    );
    assert_eq!(complaint.matches('\n').count(), 1, "{complaint:?}");
    assert!(complaint.ends_with('\n'), "{complaint:?}");
}

#[test]
fn a_hundred_pulls_survive_a_replaced_and_a_broken_file() {
    let dir = tempfile::tempdir().unwrap();
    let (data, next) = (dir.path().join("data"), dir.path().join("next"));
    let good = render_data(1, &content());
    fs::write(&data, &good).unwrap();
    let input = request("quay.io/org/app", None).to_string();
    let batch = || -> usize {
        thread::scope(|scope| {
            let pull = || {
                let (keys, complaint) = read(&answer(&data, false, input.as_bytes()));
                assert_eq!(keys.is_empty(), !complaint.is_empty(), "{complaint}");
                keys.len()
            };
            let pulls: Vec<_> = (0..100).map(|_| scope.spawn(pull)).collect();
            while !pulls.iter().all(thread::ScopedJoinHandle::is_finished) {
                fs::write(&next, &good).unwrap();
                fs::rename(&next, &data).unwrap();
                fs::write(&data, &good[..100]).unwrap();
                fs::write(&data, "garbage").unwrap();
                fs::remove_file(&data).unwrap();
                fs::write(&next, &good).unwrap();
                fs::rename(&next, &data).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            let served = pulls.into_iter().map(|pull| pull.join().unwrap());
            served.sum()
        })
    };
    // On a busy machine, a whole batch may run while the file is damaged.
    let start = Instant::now();
    while batch() == 0 {
        assert!(start.elapsed() < DEADLINE, "no pull saw the intact file");
    }
}

#[test]
fn nobody_has_to_listen() {
    let dir = tempfile::tempdir().unwrap();
    let program = provider_path();
    for script in [
        "exec \"$0\" --data=\"$1\" >&-",
        "exec \"$0\" --data=\"$1\" 2>&-",
        "exec \"$0\" --data=\"$1\" >&- 2>&-",
        "exec \"$0\" --data=\"$1\" <&- >&- 2>&-",
        "exec \"$0\" --data=\"$1\" >/dev/full 2>/dev/full",
        "\"$0\" --data=\"$1\" 2>&1 | exec true",
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&program).arg(dir.path());
        let output = run(&mut command, request("nginx", None).to_string().as_bytes());
        assert!(output.status.success(), "{script}: {output:?}");
    }
}

#[test]
fn a_person_gets_names_and_an_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::write(&data, render_data(7, &content())).unwrap();
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(provider_path());
        let output = run(command.arg("--data").arg(&data).args(arguments), b"");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    #[rustfmt::skip]
    let cases = [
        (&["--explain", "quay.io/org/app"][..], 0, "pods of team-a, from source `team-a-pull-secret`"),
        (&["--explain", "quay.io/org/app", "--namespace", "team-b"], 0, "quay.io/org: not for this pod"),
        (&["--explain", "nginx"], 1, "no entry matches this image"),
        (&["--explain", "UPPER/X"], 2, "invalid image name"),
        (&["--nonsense"], 2, "unknown argument \"--nonsense\""),
        (&["--version"], 0, env!("CARGO_PKG_VERSION")),
        (&["--help"], 0, "Usage: globalps-credential-provider --data FILE"),
    ];
    for (arguments, status, expected) in cases {
        let (code, text) = ask(arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert!(!text.contains("hunter2") && !text.contains(PAIR), "{text}");
    }
    // At the path where the syncer installs it.
    let program = dir.path().join("bin/globalps-credential-provider");
    fs::create_dir(dir.path().join("bin")).unwrap();
    // Copied by another process, because a program can't be executed while another test's new child process still has
    // it open for writing.
    let copied = run(Command::new("cp").arg(provider_path()).arg(&program), b"");
    assert!(copied.status.success(), "{copied:?}");
    fs::rename(&data, dir.path().join(globalps_provider::DATA_FILE)).unwrap();
    let output = run(Command::new(program).args(["--explain", "quay.io/a"]), b"");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("quay.io: for every pod\n"), "{text}");
}
