//! The owner of an `OpenShift` node's credentials file, from the node's labels and annotations.

use crate::api::MachineConfigState;
use crate::names::{
    MACHINE_CONFIG_OPERATOR, MACHINE_CONFIG_UPDATE, MCO_ANNOTATION, NODE_POOL_LABEL,
};

/// Annotations of the Machine Config Daemon's progress.
pub const DESIRED_ANNOTATION: &str = "machineconfiguration.openshift.io/desiredConfig";
/// `Done`, `Working` or `Degraded`.
pub const STATE_ANNOTATION: &str = "machineconfiguration.openshift.io/state";
/// Begins with `drain` while the node is drained.
pub const DRAIN_ANNOTATION: &str = "machineconfiguration.openshift.io/desiredDrain";

/// The owner of the node's credentials file, as in `spec.foreignOwner`; empty: globalps may change it. The Machine Config
/// Operator owns the file of its nodes. On nodes of `HyperShift` a daemon writes it only while it updates the node: before it
/// reports the end, it compares the file's bytes and mode, so a change by globalps would prevent the end.
pub fn file_owner<'a>(
    label: impl Fn(&str) -> Option<&'a str>,
    annotation: impl Fn(&str) -> Option<&'a str>,
) -> &'static str {
    let given = |name| annotation(name).filter(|value| !value.is_empty());
    let current = annotation(MCO_ANNOTATION);
    if label(NODE_POOL_LABEL).is_none() {
        // A node that joins gets them one after the other.
        let is_known = current
            .or(given(DESIRED_ANNOTATION))
            .or(given(STATE_ANNOTATION));
        return is_known.map_or("", |_| MACHINE_CONFIG_OPERATOR);
    }
    // HyperShift doesn't set it on a new node: the daemon does, at the end of the node's first update.
    let current = current.unwrap_or_default();
    let is_updated = given(DESIRED_ANNOTATION).is_none_or(|desired| desired == current)
        && given(STATE_ANNOTATION).is_none_or(|state| state == "Done")
        && !given(DRAIN_ANNOTATION).is_some_and(|drain| drain.starts_with("drain"));
    if is_updated {
        ""
    } else {
        MACHINE_CONFIG_UPDATE
    }
}

/// A node of the Machine Config Operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineConfig {
    /// Name of its pool; empty: unknown.
    pub pool: Box<str>,
    /// As far as the Node tells.
    pub state: MachineConfigState,
}

/// From a Node's annotations; `None`: the operator has none there. The operator names the configuration of a pool
/// `rendered-POOL-HASH`.
pub fn machine_config<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<MachineConfig> {
    let configuration = annotation(DESIRED_ANNOTATION).or(annotation(MCO_ANNOTATION))?;
    let rendered = configuration.strip_prefix("rendered-");
    let pool = rendered.and_then(|rest| rest.rsplit_once('-'));
    let is_degraded = matches!(
        annotation(STATE_ANNOTATION),
        Some("Degraded" | "Unreconcilable")
    );
    Some(MachineConfig {
        pool: pool.map_or("", |(pool, _)| pool).into(),
        state: if is_degraded {
            MachineConfigState::Degraded
        } else {
            MachineConfigState::Applies
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_in_the_name_of_the_configuration() {
        use MachineConfigState::{Applies, Degraded};
        let known = |pool: &str, state| {
            Some(MachineConfig {
                pool: pool.into(),
                state,
            })
        };
        #[rustfmt::skip]
        let cases = [
            ("another distribution", &[][..], None),
            ("up to date", &[(MCO_ANNOTATION, "rendered-worker-0f"), (DESIRED_ANNOTATION, "rendered-worker-0f"), (STATE_ANNOTATION, "Done")][..], known("worker", Applies)),
            ("it moves to another pool", &[(MCO_ANNOTATION, "rendered-worker-0f"), (DESIRED_ANNOTATION, "rendered-my-infra-0f")], known("my-infra", Applies)),
            ("it has just joined", &[(MCO_ANNOTATION, "rendered-worker-0f")], known("worker", Applies)),
            ("it failed", &[(DESIRED_ANNOTATION, "rendered-worker-0f"), (STATE_ANNOTATION, "Degraded")], known("worker", Degraded)),
            ("it can't", &[(DESIRED_ANNOTATION, "rendered-worker-0f"), (STATE_ANNOTATION, "Unreconcilable")], known("worker", Degraded)),
            ("another name", &[(DESIRED_ANNOTATION, "mine")], known("", Applies)),
            ("half a name", &[(DESIRED_ANNOTATION, "rendered-")], known("", Applies)),
        ];
        for (case, annotations, expected) in cases {
            let found = machine_config(|name| {
                let mut pairs = annotations.iter();
                pairs.find(|pair| pair.0 == name).map(|pair| pair.1)
            });
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn a_node_is_left_alone_while_it_is_updated() {
        let pool = &[(NODE_POOL_LABEL, "p")][..];
        #[rustfmt::skip]
        let cases = [
            ("another distribution", &[][..], &[][..], ""),
            ("no daemon", pool, &[], ""),
            ("the operator's node", &[], &[(MCO_ANNOTATION, "c1")][..], MACHINE_CONFIG_OPERATOR),
            ("the operator's node that has just joined", &[], &[(DESIRED_ANNOTATION, "c1")], MACHINE_CONFIG_OPERATOR),
            ("or whose daemon has only begun", &[], &[(STATE_ANNOTATION, "Working")], MACHINE_CONFIG_OPERATOR),
            ("never updated", pool, &[(MCO_ANNOTATION, "c1")], ""),
            ("its first update is requested", pool, &[(DESIRED_ANNOTATION, "c1")], MACHINE_CONFIG_UPDATE),
            (
                "and under way",
                pool,
                &[(DESIRED_ANNOTATION, "c1"), (STATE_ANNOTATION, "Working")],
                MACHINE_CONFIG_UPDATE,
            ),
            ("a daemon has begun", pool, &[(STATE_ANNOTATION, "Working")], MACHINE_CONFIG_UPDATE),
            (
                "another config is desired",
                pool,
                &[
                    (MCO_ANNOTATION, "c1"),
                    (DESIRED_ANNOTATION, "c2"),
                    (STATE_ANNOTATION, "Done"),
                ],
                MACHINE_CONFIG_UPDATE,
            ),
            (
                "the daemon works",
                pool,
                &[
                    (MCO_ANNOTATION, "c1"),
                    (DESIRED_ANNOTATION, "c1"),
                    (STATE_ANNOTATION, "Working"),
                ],
                MACHINE_CONFIG_UPDATE,
            ),
            ("it failed", pool, &[(MCO_ANNOTATION, "c1"), (STATE_ANNOTATION, "Degraded")], MACHINE_CONFIG_UPDATE),
            (
                "a drain is requested",
                pool,
                &[(MCO_ANNOTATION, "c1"), (DRAIN_ANNOTATION, "drain-c2")],
                MACHINE_CONFIG_UPDATE,
            ),
            (
                "it is done",
                pool,
                &[
                    (MCO_ANNOTATION, "c2"),
                    (DESIRED_ANNOTATION, "c2"),
                    (STATE_ANNOTATION, "Done"),
                    (DRAIN_ANNOTATION, "uncordon-c2"),
                ],
                "",
            ),
        ];
        for (sentence, labels, annotations, expected) in cases {
            let of = |pairs: &'static [(&str, &'static str)]| {
                move |name: &str| {
                    let mut pairs = pairs.iter();
                    pairs.find(|pair| pair.0 == name).map(|pair| pair.1)
                }
            };
            assert_eq!(
                file_owner(of(labels), of(annotations)),
                expected,
                "{sentence}"
            );
        }
    }
}
