//! Combines several sources in order of precedence, and records which source each registry comes from. Pure.

use globalps_core::api::ConflictStatus;
use globalps_dockerconfig::{DockerConfig, Entry, Precedence, shown_key};

/// The entries of several sources, one per registry.
pub struct Combined<'a> {
    entries: globalps_dockerconfig::Combined<'a>,
    /// Registries of which several sources have different credentials.
    pub conflicts: Vec<ConflictStatus>,
}

/// The sources, each with the name of its Secret.
pub fn combine<'a>(sources: &[(&str, &'a DockerConfig)]) -> Combined<'a> {
    let configs: Vec<&DockerConfig> = sources.iter().map(|(_, config)| *config).collect();
    let entries = globalps_dockerconfig::combine(&configs);
    let name = |source: usize| sources[source].0.to_owned();
    let conflicts = entries.shadowed.iter().map(|shadowed| ConflictStatus {
        registry: shadowed.registry.clone(),
        effective: Precedence::Additional,
        source: name(shadowed.effective),
        shadowed: name(shadowed.shadowed),
    });
    Combined {
        conflicts: conflicts.collect(),
        entries,
    }
}

impl Combined<'_> {
    /// The effective entries.
    pub fn config(&self) -> DockerConfig {
        self.entries.config()
    }

    /// Registries whose credentials in `merged` come from this source.
    pub fn registries(&self, source: usize, merged: &DockerConfig) -> Vec<String> {
        let merged = merged.by_canonical_key();
        let in_force = |key: &str, entry: &Entry| {
            let other = merged.get(key);
            other.is_some_and(|other| other.means_the_same(entry))
        };
        self.entries
            .of_file(source)
            .filter(|(key, entry)| in_force(key, entry))
            .map(|(key, _)| shown_key(key))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use globalps_dockerconfig::parse;

    use super::*;

    fn config(text: &str) -> DockerConfig {
        let auths: Vec<String> = text
            .split_whitespace()
            .map(|word| word.split_once('=').unwrap())
            .map(|(key, auth)| format!(r#""{key}":{{"auth":"{auth}"}}"#))
            .collect();
        parse(format!(r#"{{"auths":{{{}}}}}"#, auths.join(",")).as_bytes()).unwrap()
    }

    #[test]
    fn an_earlier_source_shadows_a_later_one() {
        let (first, second, third) = (
            config("a=dTpw b=dTpw"),
            config("https://a/=dTpx b=dTpw c=dTpw"),
            config("c=dTpx d=dTpw"),
        );
        let combined = combine(&[("one", &first), ("two", &second), ("three", &third)]);
        let conflicts: Vec<_> = combined
            .conflicts
            .iter()
            .map(|c| format!("{}: {} over {}", c.registry, c.source, c.shadowed))
            .collect();
        assert_eq!(conflicts, ["a: one over two", "c: two over three"]);
        let merged = combined.config();
        assert!(merged.means_the_same(&config("a=dTpw b=dTpw c=dTpw d=dTpw")));
        let of = |at| combined.registries(at, &merged).join(" ");
        assert_eq!([of(0), of(1), of(2)], ["a b", "c", "d"]);
        let original_wins = config("a=dTpw b=dTpw c=dTpz d=dTpw");
        assert_eq!(combined.registries(1, &original_wins), [""; 0]);
    }
}
