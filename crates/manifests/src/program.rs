//! The Deployment of a control-plane program, and the namespace of these programs.

use globalps_core::names::{
    CONTROLLER_NAMESPACE, METRICS_PORT, METRICS_PORT_NAME, PROBES_PORT, PROBES_PORT_NAME,
};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, HTTPGetAction, Namespace,
    PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile,
    SecurityContext, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::quota::CLUSTER_CRITICAL;
use super::{named, pull_secrets, quantities};

/// uid and gid of the programs; the images name them too.
const USER: i64 = 65532;
/// One replica leads, the other stands by.
const REPLICAS: i32 = 2;

pub(super) struct Program<'a> {
    /// Name of the Deployment, and label value of its pods.
    pub(super) name: &'a str,
    pub(super) service_account: &'static str,
    pub(super) container: &'static str,
    pub(super) image: &'a str,
    pub(super) args: Vec<String>,
    /// Pull secret of the image, in the Deployment's namespace.
    pub(super) image_pull_secret: Option<&'a str>,
    /// Memory limit.
    pub(super) memory: &'static str,
    /// An optional `ConfigMap`, and the directory in which the program finds its keys as files.
    pub(super) config: Option<(&'static str, &'static str)>,
}

pub(super) fn deployment(program: Program) -> Deployment {
    let name = program.name;
    let labels = Some([("app.kubernetes.io/name".to_owned(), name.to_owned())].into());
    let selector = LabelSelector {
        match_labels: labels.clone(),
        ..LabelSelector::default()
    };
    let pod = PodSpec {
        service_account_name: Some(program.service_account.to_owned()),
        image_pull_secrets: pull_secrets(program.image_pull_secret),
        priority_class_name: Some(CLUSTER_CRITICAL.to_owned()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        volumes: program.config.map(|(name, _)| vec![config_volume(name)]),
        containers: vec![container(program)],
        // Spreads over nodes if there are several.
        topology_spread_constraints: Some(vec![TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "kubernetes.io/hostname".to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(selector.clone()),
            ..TopologySpreadConstraint::default()
        }]),
        ..PodSpec::default()
    };
    Deployment {
        spec: Some(DeploymentSpec {
            replicas: Some(REPLICAS),
            selector,
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels,
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..DeploymentSpec::default()
        }),
        ..named(name, CONTROLLER_NAMESPACE)
    }
}

fn container(program: Program) -> Container {
    Container {
        name: program.container.to_owned(),
        image: Some(program.image.to_owned()),
        args: Some(program.args),
        ports: Some(vec![
            port(METRICS_PORT_NAME, METRICS_PORT),
            port(PROBES_PORT_NAME, PROBES_PORT),
        ]),
        volume_mounts: program.config.map(|(name, dir)| {
            vec![VolumeMount {
                name: name.to_owned(),
                mount_path: dir.to_owned(),
                read_only: Some(true),
                ..VolumeMount::default()
            }]
        }),
        // Generous: the health check itself reports a stuck loop after a minute, and the machine may be busy.
        liveness_probe: Some(probe("/livez", 10, 6)),
        readiness_probe: Some(probe("/readyz", 3, 3)),
        resources: Some(ResourceRequirements {
            requests: Some(quantities([("cpu", "10m"), ("memory", "32Mi")])),
            limits: Some(quantities([("memory", program.memory)])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn config_volume(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: name.to_owned(),
            optional: Some(true),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number.into(),
        ..ContainerPort::default()
    }
}

fn probe(path: &str, period: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(PROBES_PORT_NAME.to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(5),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

pub(super) fn namespace() -> Namespace {
    let mut namespace: Namespace = named(CONTROLLER_NAMESPACE, "");
    namespace.metadata.labels.get_or_insert_default().insert(
        "pod-security.kubernetes.io/enforce".to_owned(),
        "restricted".to_owned(),
    );
    namespace
}
