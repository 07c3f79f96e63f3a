//! Fuzzes parsing, validating, matching and merging: one or two credentials files from any bytes, and an image name. Nothing
//! panics or takes long, and the invariants of every file hold.
#![no_main]

use std::borrow::Cow;
use std::collections::BTreeSet;

use globalps_dockerconfig::{
    DockerConfig, Finding, Precedence, explain, merge, merge_on_node, parse, validate,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // JSON contains no NUL.
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
    // Entries that no kubelet can read are removed before a file is used, so they have no invariants.
    if !one.is_kubelet_readable() {
        assert!(
            findings.iter().any(Finding::is_error),
            "an unreadable entry is reported"
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
    let again = parse(&rendered).expect("rendered output can be parsed");
    assert!(again.means_the_same(config), "rendering keeps the meaning");
    assert_eq!(again.render(), rendered, "rendering is stable");
}

fn together(one: &DockerConfig, other: &DockerConfig) {
    for precedence in [Precedence::Additional, Precedence::Original] {
        let merged = merge(one, other, precedence).config;
        assert_eq!(
            registries(&merged),
            &registries(one) | &registries(other),
            "no registry is lost"
        );
        let again = merge(&merged, &DockerConfig::default(), precedence).config;
        assert_eq!(again.render(), merged.render(), "merging is stable");
        on_a_node(one, &merged);
    }
}

/// Adding and removing managed entries restores the node's own file.
fn on_a_node(own: &DockerConfig, ours: &DockerConfig) {
    let put = merge_on_node(own, ours, &[], &[]);
    let nothing = own.with_entries(Vec::new());
    let taken = merge_on_node(&put.config, &nothing, &[put.managed], &put.overridden);
    assert!(
        taken.config.means_the_same(own),
        "the node's own entries are restored"
    );
}

fn registries(config: &DockerConfig) -> BTreeSet<String> {
    let keys = config.by_canonical_key().into_keys();
    keys.map(Cow::into_owned).collect()
}
