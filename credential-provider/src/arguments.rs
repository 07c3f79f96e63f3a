//! The command line. Parsed by hand: the kubelet starts the program at every pull, and an argument library would dominate its
//! size.

use std::ffi::OsString;
use std::path::PathBuf;

use globalps_provider::PodIdentity;

use crate::explain::Question;

pub(crate) const USAGE: &str = "\
Answer the kubelet's request on standard input with the registry credentials for the image

Usage: globalps-credential-provider --data FILE [--scoped]
       globalps-credential-provider --explain IMAGE [--data FILE] [--namespace NAME [--service-account NAME]]

Options:
      --data FILE             File with the credentials, written by the syncer. Optional with --explain; the
                              default is the file next to this program's directory
      --scoped                Answer with the credentials for some pods only; the request must contain the pod's token
      --explain IMAGE         Print which keys match the image, and for which pods; never prints credentials
      --namespace NAME        With --explain: print what a pod in this namespace gets
      --service-account NAME  Service account of that pod [default: default]
  -h, --help                  Print help
  -V, --version               Print version

Exit status: 0 success, including an answer without credentials; 1 --explain: no key matches the image; 2 error
";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    Answer { data: PathBuf, scoped: bool },
    Explain(Question),
    Help,
    Version,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsageError {
    #[error("unknown argument {0:?}")]
    Unknown(OsString),
    #[error("`{0}` requires a value")]
    NoValue(&'static str),
    #[error("the value of `{0}` is not UTF-8")]
    NotText(&'static str),
    #[error("`{0}` is given twice")]
    Twice(&'static str),
    #[error("`--data` is missing")]
    NoData,
    #[error("`{0}` requires `{1}`")]
    Without(&'static str, &'static str),
}

/// Options with a value.
const VALUES: [&str; 4] = ["--data", "--explain", "--namespace", "--service-account"];

pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Invocation, UsageError> {
    let mut arguments = arguments.into_iter();
    let mut values: [Option<OsString>; 4] = Default::default();
    let mut is_scoped = false;
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("-h" | "--help") => return Ok(Invocation::Help),
            Some("-V" | "--version") => return Ok(Invocation::Version),
            Some("--scoped") => {
                is_scoped = true;
                continue;
            }
            _ => {}
        }
        let bytes = argument.as_encoded_bytes();
        let name_length = bytes.iter().position(|byte| *byte == b'=');
        let name = &bytes[..name_length.unwrap_or(bytes.len())];
        let Some(at) = VALUES.iter().position(|value| value.as_bytes() == name) else {
            return Err(UsageError::Unknown(argument));
        };
        let value = match name_length {
            Some(length) => tail(&argument, length + 1),
            None => arguments.next(),
        };
        let value = value.ok_or(UsageError::NoValue(VALUES[at]))?;
        if values[at].replace(value).is_some() {
            return Err(UsageError::Twice(VALUES[at]));
        }
    }
    command(values, is_scoped)
}

fn command(values: [Option<OsString>; 4], is_scoped: bool) -> Result<Invocation, UsageError> {
    let [data, image, namespace, service_account] = values;
    let text = |name, value: Option<OsString>| {
        let text = value.map(OsString::into_string).transpose();
        text.map_err(|_| UsageError::NotText(name))
    };
    let image = text("--explain", image)?;
    let namespace = text("--namespace", namespace)?;
    let service_account = text("--service-account", service_account)?;
    let data = data.map(PathBuf::from);
    if namespace.is_none() && service_account.is_some() {
        return Err(UsageError::Without("--service-account", "--namespace"));
    }
    let pod = namespace.map(|namespace| PodIdentity {
        namespace,
        service_account: service_account.unwrap_or_else(|| "default".to_owned()),
    });
    match image {
        None if pod.is_some() => Err(UsageError::Without("--namespace", "--explain")),
        None => Ok(Invocation::Answer {
            data: data.ok_or(UsageError::NoData)?,
            scoped: is_scoped,
        }),
        Some(_) if is_scoped => Err(UsageError::Without("--scoped", "a request")),
        Some(image) => Ok(Invocation::Explain(Question { data, image, pod })),
    }
}

/// The rest after the first bytes, which are ASCII.
fn tail(argument: &OsString, length: usize) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = argument.as_encoded_bytes().get(length..)?;
    Some(OsString::from_vec(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Invocation, UsageError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn command_lines_of_kubelets_and_users_are_parsed() {
        let answer = |scoped| {
            Ok(Invocation::Answer {
                data: "/d".into(),
                scoped,
            })
        };
        let explain = |data: Option<&str>, pod: Option<(&str, &str)>| {
            let pod = pod.map(|(namespace, service_account)| PodIdentity {
                namespace: namespace.to_owned(),
                service_account: service_account.to_owned(),
            });
            let (data, image) = (data.map(PathBuf::from), "nginx".to_owned());
            Ok(Invocation::Explain(Question { data, image, pod }))
        };
        for (line, expected) in [
            ("--data=/d", answer(false)),
            ("--data /d", answer(false)),
            ("--data=/d --scoped", answer(true)),
            ("--scoped --data /d", answer(true)),
            ("--data /d --explain nginx", explain(Some("/d"), None)),
            ("--explain nginx", explain(None, None)),
            (
                "--explain=nginx --data=/d --namespace a",
                explain(Some("/d"), Some(("a", "default"))),
            ),
            (
                "--explain=nginx --data=/d --namespace a --service-account=ci",
                explain(Some("/d"), Some(("a", "ci"))),
            ),
            ("--data /d --help --nonsense", Ok(Invocation::Help)),
            ("-V", Ok(Invocation::Version)),
            ("", Err(UsageError::NoData)),
            ("--scoped", Err(UsageError::NoData)),
            ("--data", Err(UsageError::NoValue("--data"))),
            ("--data /d --data /e", Err(UsageError::Twice("--data"))),
            ("--data /d extra", Err(UsageError::Unknown("extra".into()))),
            (
                "--data /d --scoped=yes",
                Err(UsageError::Unknown("--scoped=yes".into())),
            ),
            (
                "--data /d --namespace a",
                Err(UsageError::Without("--namespace", "--explain")),
            ),
            (
                "--data /d --explain nginx --service-account a",
                Err(UsageError::Without("--service-account", "--namespace")),
            ),
            (
                "--data /d --explain nginx --scoped",
                Err(UsageError::Without("--scoped", "a request")),
            ),
        ] {
            assert_eq!(parsed(line), expected, "{line}");
        }
    }

    #[test]
    fn a_path_may_be_any_bytes_but_an_image_must_be_text() {
        use std::os::unix::ffi::OsStringExt as _;
        let bytes = |text: &[u8]| OsString::from_vec(text.to_vec());
        let data = parse([bytes(b"--data=/\xff")]).unwrap();
        let expected = Invocation::Answer {
            data: bytes(b"/\xff").into(),
            scoped: false,
        };
        assert_eq!(data, expected);
        let image = parse([bytes(b"--data=/d"), bytes(b"--explain=\xff")]);
        assert_eq!(image, Err(UsageError::NotText("--explain")));
    }
}
