//! Chooses the unit that runs the kubelet, among those that may. Pure.

use std::time::Duration;

/// A kubelet that starts again and again is not active for this long. It may be left over from an earlier installation.
pub(super) const SETTLED: Duration = Duration::from_secs(30);

/// A unit that may run the kubelet: it is not inactive, or globalps asked for its restart.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    /// For example `active`, `activating` or `failed`.
    pub(crate) active_state: String,
    /// Since it last became active, by the node's monotonic clock: the other one may be set back.
    pub(crate) active_for: Duration,
    /// How often systemd started it again by itself.
    pub(crate) restarts: u32,
    /// A kubelet is among its processes.
    pub(crate) runs_kubelet: bool,
}

impl Candidate {
    fn is_active(&self) -> bool {
        matches!(self.active_state.as_str(), "active" | "reloading")
    }

    /// Whether the unit's kubelet may accept connections.
    pub(crate) fn may_serve(&self) -> bool {
        let is_down = matches!(self.active_state.as_str(), "failed" | "inactive");
        self.is_active() || self.runs_kubelet && !is_down
    }

    /// The unit's state, as a clause.
    pub(crate) fn shown(&self) -> String {
        format!("`{}` is {}", self.name, self.active_state)
    }

    fn runs_it(&self) -> bool {
        self.is_active() && self.runs_kubelet
    }

    /// Whether the unit has run a kubelet since its first start, even if only for a short time.
    fn runs_it_steadily(&self) -> bool {
        self.runs_it() && self.restarts == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitChoice {
    Unit(&'static str),
    /// No unit has been started.
    None,
    /// Several units may have run the kubelet, and none shows that it is the one.
    Unclear,
}

/// The unit that runs the kubelet: the one that has been active with a kubelet for some time; then the one that globalps last
/// restarted, because that kubelet may be down, unless another one runs it since its first start, as after a boot; then what is
/// left if only one is. `restarted`: that unit; `None`: not known.
pub(crate) fn choose(candidates: &[Candidate], restarted: Option<&str>) -> UnitChoice {
    let settled = |it: &&Candidate| it.runs_it() && it.active_for >= SETTLED;
    let settled = candidates.iter().find(settled);
    let is_elsewhere = |known: &&Candidate| {
        !known.runs_it_steadily() && candidates.iter().any(Candidate::runs_it_steadily)
    };
    let known = candidates.iter().find(|it| Some(it.name) == restarted);
    let known = || known.filter(|known| !is_elsewhere(known));
    if let Some(found) = settled.or_else(known) {
        return UnitChoice::Unit(found.name);
    }
    let only = |may_be: fn(&Candidate) -> bool| {
        let mut found = candidates.iter().filter(|it| may_be(it));
        match (found.next(), found.next()) {
            (None, _) => None,
            (Some(one), None) => Some(UnitChoice::Unit(one.name)),
            (Some(_), Some(_)) => Some(UnitChoice::Unclear),
        }
    };
    only(Candidate::runs_it)
        .or_else(|| only(|it| it.runs_kubelet))
        .or_else(|| only(Candidate::is_active))
        .or_else(|| only(|_| true))
        .unwrap_or(UnitChoice::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `NAME STATE SECONDS RESTARTS`, with `+` if it runs a kubelet.
    fn candidate(text: &'static str) -> Candidate {
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap_or_default();
        let (name, state, seconds, restarts) = (next(), next(), next(), next());
        Candidate {
            name,
            active_state: state.trim_end_matches('+').to_owned(),
            active_for: Duration::from_secs(seconds.parse().unwrap_or(0)),
            restarts: restarts.parse().unwrap_or(0),
            runs_kubelet: state.ends_with('+'),
        }
    }

    #[test]
    fn the_unit_that_is_active_and_runs_a_kubelet_is_chosen() {
        #[rustfmt::skip]
        let cases = [
            ("none", &[][..], None, UnitChoice::None),
            ("one that is down", &["k failed"], None, UnitChoice::Unit("k")),
            ("a failed one is left over", &["k failed", "a active+ 900"], None, UnitChoice::Unit("a")),
            ("so is one that starts again and again", &["k active+ 1", "a active+ 900"], None, UnitChoice::Unit("a")),
            ("or that waits for its next start", &["k activating", "a active+ 5"], None, UnitChoice::Unit("a")),
            ("one without a kubelet", &["k active 900", "a active+ 900"], None, UnitChoice::Unit("a")),
            ("one that is being started", &["k active 900", "a activating+"], None, UnitChoice::Unit("a")),
            (
                "the control plane's server with its kubelet",
                &["k failed", "server active+ 900"],
                None,
                UnitChoice::Unit("server"),
            ),
            ("both have just been started", &["k active+ 1", "a active+ 2"], None, UnitChoice::Unclear),
            ("both are down", &["k failed", "a failed"], None, UnitChoice::Unclear),
            (
                "the kubelet that this syncer or the one before left down",
                &["k failed", "a failed"],
                Some("a"),
                UnitChoice::Unit("a"),
            ),
            (
                "while the other one starts again and again",
                &["k active+ 1 3", "a failed"],
                Some("a"),
                UnitChoice::Unit("a"),
            ),
            ("a node that moved and has just booted", &["k failed", "a active+ 5"], Some("k"), UnitChoice::Unit("a")),
            ("whose leftover unit still tries", &["k activating 0 2", "a active+ 5"], Some("k"), UnitChoice::Unit("a")),
            ("the one that globalps restarted just now", &["k active+ 1", "a active+ 1"], Some("k"), UnitChoice::Unit("k")),
            ("the node was moved to another unit since", &["k failed", "a active+ 900"], Some("k"), UnitChoice::Unit("a")),
            ("processes can't be listed, and one is active", &["k failed", "a active 900"], None, UnitChoice::Unit("a")),
        ];
        for (sentence, candidates, restarted, expected) in cases {
            let candidates: Vec<_> = candidates.iter().map(|text| candidate(text)).collect();
            assert_eq!(choose(&candidates, restarted), expected, "{sentence}");
        }
    }
}
