//! Benchmarks: parse, validate and merge registry credentials, including 1 MiB of worst-case input.

use criterion::{Criterion, criterion_group, criterion_main};
use globalps_dockerconfig::{Precedence, explain, merge, parse, validate, validate_bytes};
use std::hint::black_box;
use std::time::Duration;

const MIB: usize = 1 << 20;

/// The longest possible DNS label, so that a pattern is tried at every position.
const LONG_HOST: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:5000/app";

fn file(entries: usize) -> Vec<u8> {
    let entry =
        |at: usize| format!(r#""reg-{at}.example.com/org":{{"auth":"dXNlcjpwYXNzd29yZA=="}}"#);
    let entries: Vec<String> = (0..entries).map(entry).collect();
    format!(r#"{{"auths":{{{}}}}}"#, entries.join(",")).into_bytes()
}

/// Inputs that stress a parser: depth, many repetitions, long tokens.
fn worst() -> Vec<(&'static str, Vec<u8>)> {
    let around = |inner: String| format!(r#"{{"auths":{{{inner}}}}}"#).into_bytes();
    let repeated = |text: &str| text.repeat(MIB / text.len());
    vec![
        ("open brackets", vec![b'['; MIB]),
        ("nested to the limit", {
            let depth = 9_998;
            let pairs = format!("{}{},", "[".repeat(depth), "]".repeat(depth));
            format!(
                r#"{{"x":[{}1],"auths":{{}}}}"#,
                pairs.repeat(MIB / pairs.len())
            )
            .into_bytes()
        }),
        (
            "empty entries",
            around(
                (0..MIB / 12)
                    .map(|at| format!(r#""{at:05}":{{}}"#))
                    .collect::<Vec<_>>()
                    .join(","),
            ),
        ),
        (
            "one registry in many spellings",
            around(
                (0..MIB / 15)
                    .map(|at| format!(r#""a.a#{at:x}":{{}}"#))
                    .collect::<Vec<_>>()
                    .join(","),
            ),
        ),
        (
            "one repeated key",
            around(repeated(r#""r":{},"#) + r#""r":{}"#),
        ),
        (
            "one repeated field",
            around(format!(
                r#""r":{{{}"auth":"dTpw"}}"#,
                repeated(r#""auth":"dTpw","#)
            )),
        ),
        (
            "one long string of escapes",
            around(format!(r#""{}":{{}}"#, repeated("\\ud83d\\ude00"))),
        ),
        (
            "bytes that aren't UTF-8",
            around(r#""r":{"x":""#.to_owned())
                .into_iter()
                .chain(vec![0xff; MIB])
                .chain(*b"\"}}}")
                .collect(),
        ),
        (
            "one long auth",
            around(format!(
                r#""r":{{"auth":"{}"}}"#,
                "dXNlcjpwYXNz".repeat(MIB / 12)
            )),
        ),
        (
            "one long key",
            around(format!(r#""{}":{{"auth":"dTpw"}}"#, "a.".repeat(MIB / 2))),
        ),
        (
            "one long pattern",
            around(format!(
                r#""{}b:5000":{{"auth":"dTpw"}}"#,
                "*a".repeat(MIB / 2)
            )),
        ),
    ]
}

fn bench(criterion: &mut Criterion) {
    for entries in [10, 5_000] {
        let bytes = file(entries);
        criterion.bench_function(
            &format!("parse, validate and merge {entries} entries"),
            |bencher| {
                bencher.iter(|| {
                    let (config, findings) = validate_bytes(black_box(&bytes));
                    let config = config.expect("a good file");
                    (merge(&config, &config, Precedence::Additional), findings)
                });
            },
        );
    }
    for (name, bytes) in worst() {
        let mut group = criterion.benchmark_group(format!("1 MiB, {name}"));
        group.bench_function("parse", |bencher| {
            bencher.iter(|| parse(black_box(&bytes)).is_ok());
        });
        let Ok(config) = parse(&bytes) else {
            continue;
        };
        group.bench_function("validate", |bencher| bencher.iter(|| validate(&config)));
        group.bench_function("merge", |bencher| {
            bencher.iter(|| merge(&config, &config, Precedence::Original));
        });
        group.bench_function("render", |bencher| bencher.iter(|| config.render()));
        for image in ["a.a/org/app", LONG_HOST] {
            group.bench_function(format!("explain {image}"), |bencher| {
                bencher.iter(|| explain(&config, image).is_ok());
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = bench
}
criterion_main!(benches);
