//! Any bytes as one or two credentials files and the name of an image: nothing panics, nothing takes long, and what
//! must hold of every file does.
#![no_main]

use std::collections::BTreeSet;

use globalps_core::dockerconfig::{
    DockerConfig, Entry, Finding, Precedence, explain, merge, merge_on_node, parse, validate,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // No JSON has a NUL in it.
    let mut parts = data.split(|byte| *byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (one, other, image) = (next(), next(), next());
    let Ok(one) = parse(one) else {
        return;
    };
    let findings = validate(&one);
    if let Ok(image) = std::str::from_utf8(image) {
        let _ = explain(&one, image);
    }
    // Entries that no kubelet can read are left out before a file is used, so nothing is promised of them.
    if !one.is_kubelet_readable() {
        assert!(
            findings.iter().any(Finding::is_error),
            "what is not read is named"
        );
        return;
    }
    alone(&one);
    if let Some(other) = parse(other).ok().filter(DockerConfig::is_kubelet_readable) {
        together(&one, &other);
    }
});

fn alone(config: &DockerConfig) {
    let rendered = config.render();
    let again = parse(&rendered).expect("what is written can be read");
    assert!(
        again.means_the_same(config),
        "what is written means the same"
    );
    assert_eq!(again.render(), rendered, "and is written the same again");
}

fn together(one: &DockerConfig, other: &DockerConfig) {
    for precedence in [Precedence::Additional, Precedence::Original] {
        let merged = merge(one, other, precedence).config;
        assert_eq!(
            keys(&merged).len(),
            merged.entries().len(),
            "one entry for each registry"
        );
        assert_eq!(
            keys(&merged),
            &keys(one) | &keys(other),
            "no registry is lost"
        );
        on_a_node(one, &merged);
    }
}

/// Ours go into the node's own file and out again, and what was there before is there again.
fn on_a_node(own: &DockerConfig, ours: &DockerConfig) {
    let put = merge_on_node(own, ours, &BTreeSet::new(), &[]);
    let nothing = own.with_entries(Vec::new());
    let taken = merge_on_node(&put.config, &nothing, &keys(ours), &put.overridden);
    assert!(
        taken.config.means_the_same(own),
        "the node's own entries come back"
    );
}

fn keys(config: &DockerConfig) -> BTreeSet<String> {
    let key = |entry: &Entry| entry.canonical_key().into_owned();
    config.entries().iter().map(key).collect()
}
