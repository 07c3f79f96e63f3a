//! What the controller creates while there is something to sync or to restore: the syncer on every node.

use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet,
};
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Capabilities, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    ExecAction, HostPathVolumeSource, ObjectFieldSelector, PodSpec, PodTemplateSpec, Probe,
    ResourceRequirements, SELinuxOptions, SeccompProfile, SecurityContext, ServiceAccount,
    Toleration, Volume, VolumeMount,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::rbac::{role, role_binding, rule};
use super::{named, value};
use crate::api::{GlobalPullSecretSpec, Restart};
use crate::names::{GLOBAL_SECRET, GROUP, SYNCER};

/// Where the pod sees the node's folders.
const KUBELET_MOUNT: &str = "/host/kubelet";
const DBUS_MOUNT: &str = "/host/run/dbus";
const RUN_MOUNT: &str = "/run/globalps";
const READY_FILE: &str = "/run/globalps/ready";

/// Everything that the controller creates for the nodes besides the Secret. Whoever applies it must take it apart
/// without `..`, so that a new object can't be forgotten.
#[derive(Clone, Debug)]
pub struct SyncerObjects {
    pub service_account: ServiceAccount,
    pub role: Role,
    pub role_binding: RoleBinding,
    pub daemon_set: DaemonSet,
}

impl SyncerObjects {
    pub fn values(self) -> Vec<Value> {
        let Self {
            service_account,
            role,
            role_binding,
            daemon_set,
        } = self;
        vec![
            value(service_account),
            value(role),
            value(role_binding),
            value(daemon_set),
        ]
    }
}

pub fn syncer_objects(namespace: &str, image: &str, spec: &GlobalPullSecretSpec) -> SyncerObjects {
    SyncerObjects {
        service_account: named(SYNCER, namespace),
        role: role(SYNCER, namespace, rules()),
        role_binding: role_binding(SYNCER, namespace, (SYNCER, namespace)),
        daemon_set: daemon_set(namespace, image, spec),
    }
}

/// What the syncer may do.
pub(super) fn rules() -> Vec<PolicyRule> {
    vec![
        rule("", ["secrets"], [GLOBAL_SECRET], ["get"]),
        rule(GROUP, ["nodepullsecrets"], [], ["list", "watch"]),
        rule(GROUP, ["nodepullsecrets/status"], [], ["patch"]),
    ]
}

fn daemon_set(namespace: &str, image: &str, spec: &GlobalPullSecretSpec) -> DaemonSet {
    let labels = Some([("name".to_owned(), SYNCER.to_owned())].into());
    let (kubelet_dir, file_name) = spec
        .kubelet
        .config_file
        .rsplit_once('/')
        .unwrap_or_default();
    let pod = PodSpec {
        service_account_name: Some(SYNCER.to_owned()),
        priority_class_name: Some("system-node-critical".to_owned()),
        tolerations: Some(vec![Toleration {
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }]),
        // Also where `nodeSelector` keeps globalps away: a node that leaves the selection is put back by its pod.
        node_selector: Some([("kubernetes.io/os".to_owned(), "linux".to_owned())].into()),
        host_network: spec.syncer.host_network.then_some(true),
        termination_grace_period_seconds: Some(5),
        containers: vec![container(namespace, image, spec, file_name)],
        volumes: Some(vec![
            host_path("kubelet", kubelet_dir),
            host_path("dbus", "/run/dbus"),
            Volume {
                name: "run".to_owned(),
                empty_dir: Some(EmptyDirVolumeSource {
                    medium: Some("Memory".to_owned()),
                    ..EmptyDirVolumeSource::default()
                }),
                ..Volume::default()
            },
        ]),
        ..PodSpec::default()
    };
    DaemonSet {
        spec: Some(DaemonSetSpec {
            selector: LabelSelector {
                match_labels: labels.clone(),
                ..LabelSelector::default()
            },
            // A new syncer changes nothing on its node, so all of them may be replaced at once.
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDaemonSet {
                    max_unavailable: Some(IntOrString::String("100%".to_owned())),
                    ..RollingUpdateDaemonSet::default()
                }),
            }),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels,
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..DaemonSetSpec::default()
        }),
        ..named(SYNCER, namespace)
    }
}

fn container(
    namespace: &str,
    image: &str,
    spec: &GlobalPullSecretSpec,
    file_name: &str,
) -> Container {
    let restart = match spec.kubelet.restart {
        Restart::Always => "Always",
        Restart::Never => "Never",
    };
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    };
    Container {
        name: "syncer".to_owned(),
        image: Some(image.to_owned()),
        args: Some(vec![
            "run".to_owned(),
            format!("--namespace={namespace}"),
            format!("--config-file={KUBELET_MOUNT}/{file_name}"),
            format!("--unit={}", spec.kubelet.unit),
            format!("--restart={restart}"),
            format!("--bus={DBUS_MOUNT}/system_bus_socket"),
            format!("--ready-file={READY_FILE}"),
        ]),
        env: Some(vec![EnvVar {
            name: "NODE_NAME".to_owned(),
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    field_path: "spec.nodeName".to_owned(),
                    ..ObjectFieldSelector::default()
                }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        }]),
        resources: Some(ResourceRequirements {
            requests: Some(
                [("cpu", "5m"), ("memory", "16Mi")]
                    .map(|(k, v)| (k.to_owned(), Quantity(v.to_owned())))
                    .into(),
            ),
            ..ResourceRequirements::default()
        }),
        readiness_probe: Some(Probe {
            exec: Some(ExecAction {
                command: Some(vec![
                    format!("/{}", crate::names::SYNCER_BINARY),
                    "ready".to_owned(),
                    format!("--ready-file={READY_FILE}"),
                ]),
            }),
            period_seconds: Some(10),
            timeout_seconds: Some(5),
            ..Probe::default()
        }),
        // Files of root, and the bus's rule that only uid 0 may restart a unit, need uid 0; nothing needs a capability.
        security_context: Some(SecurityContext {
            run_as_user: Some(0),
            run_as_group: Some(0),
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            se_linux_options: Some(SELinuxOptions {
                type_: Some("spc_t".to_owned()),
                ..SELinuxOptions::default()
            }),
            app_armor_profile: Some(AppArmorProfile {
                type_: "Unconfined".to_owned(),
                ..AppArmorProfile::default()
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![
            VolumeMount {
                // Without propagation, mounts of other pods below it would stay pinned after those pods are gone.
                mount_propagation: Some("HostToContainer".to_owned()),
                ..mount("kubelet", KUBELET_MOUNT)
            },
            mount("dbus", DBUS_MOUNT),
            mount("run", RUN_MOUNT),
        ]),
        ..Container::default()
    }
}

fn host_path(name: &str, path: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        host_path: Some(HostPathVolumeSource {
            path: path.to_owned(),
            ..HostPathVolumeSource::default()
        }),
        ..Volume::default()
    }
}
