//! The program that the kubelet runs at a pull: reads a `CredentialProviderRequest` from standard input and writes the
//! credentials for the image to standard output. It answers even after an error: a pull that needs no credentials of globalps
//! must go on.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests are not shipped")
)]

mod arguments;
mod data;
mod explain;
mod failure;
mod request;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use globalps_dockerconfig::{Try, shown_key};
use globalps_provider::{Audience, BINARY, answer, response};
use zeroize::Zeroizing;

use arguments::{Invocation, USAGE};
use failure::AnswerError;
use request::Request;

fn main() -> ExitCode {
    keep_memory_private();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments::parse(arguments) {
        Ok(Invocation::Answer { data, scoped }) => {
            let (response, complaint) = respond(&data, scoped, &mut io::stdin().lock());
            // It is not an error if nothing reads the answer.
            let _ = io::stdout().write_all(&response);
            if let Some(complaint) = complaint {
                complain(&complaint);
            }
            ExitCode::SUCCESS
        }
        Ok(Invocation::Explain(question)) => match explain::explain(&question) {
            Ok((text, is_served)) => {
                say(&text);
                ExitCode::from(u8::from(!is_served))
            }
            Err(failure) => {
                complain(&failure);
                ExitCode::from(2)
            }
        },
        Ok(Invocation::Help) => {
            say(USAGE);
            ExitCode::SUCCESS
        }
        Ok(Invocation::Version) => {
            say(&format!("{BINARY} {}\n", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&format!("{error}; see `{BINARY} --help`"));
            ExitCode::from(2)
        }
    }
}

/// The response to the request on `input`, and the error, if any.
fn respond(
    data: &Path,
    is_scoped: bool,
    input: &mut dyn Read,
) -> (Zeroizing<Vec<u8>>, Option<String>) {
    match tries(data, is_scoped, input) {
        Ok(tries) => {
            let (bytes, left_out) = response(&tries);
            let keys: Vec<String> = left_out.into_iter().map(shown_key).collect();
            let complaint = (!keys.is_empty())
                .then(|| format!("left out, because user or password is not UTF-8: {keys:?}"));
            (Zeroizing::new(bytes), complaint)
        }
        Err(failure) => {
            let (empty, _) = response(&[]);
            (Zeroizing::new(empty), Some(failure.to_string()))
        }
    }
}

fn tries(data: &Path, is_scoped: bool, input: &mut dyn Read) -> Result<Vec<Try>, AnswerError> {
    let bytes = request::read(input)?;
    let request = Request::parse(&bytes)?;
    let audience = if is_scoped {
        Audience::Pod(request.token())
    } else {
        Audience::EveryPod
    };
    let data = data::read(data)?;
    Ok(answer(&data, request.image(), audience)?)
}

fn say(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

fn complain(line: &dyn Display) {
    let _ = writeln!(io::stderr(), "{BINARY}: {line}");
}

/// Keeps credentials in memory out of core dumps and away from other processes of the same user.
fn keep_memory_private() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Lowering a limit needs no privilege, and there is no fallback if it fails.
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
