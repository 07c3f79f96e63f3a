//! The `DaemonSet` of an agent: the kubelet's directory, the system bus, and nothing else of the node. The observer only reads the
//! directory.

use globalps_core::api::{GlobalPullSecretSpec, ProviderPaths, Restart};
use globalps_core::names::{LINUX_LABEL, SYNCER_BINARY};
use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet,
};
use k8s_openapi::api::core::v1::{
    Affinity, AppArmorProfile, Capabilities, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    ExecAction, HostPathVolumeSource, NodeAffinity, ObjectFieldSelector, PodSpec, PodTemplateSpec,
    Probe, ResourceRequirements, SELinuxOptions, SeccompProfile, SecurityContext, Toleration,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::affinity::nodes;
use super::agent::Agent;
use super::allowed::Allowed;
use super::placement::placed;
use super::quota::NODE_CRITICAL;
use super::{named, pull_secrets, quantities, value};

/// The pod's mount point for the node's directories.
const KUBELET_MOUNT: &str = "/host/kubelet";
const DBUS_MOUNT: &str = "/host/run/dbus";
const PROVIDER_CONFIG_MOUNT: &str = "/host/provider-config";
const PROVIDER_BIN_MOUNT: &str = "/host/provider-bin";
const HOST_PROVIDER_CONFIG: &str = "HOST_PROVIDER_CONFIG";
const HOST_PROVIDER_BIN_DIR: &str = "HOST_PROVIDER_BIN_DIR";
const RUN_MOUNT: &str = "/run/globalps";
const READY_FILE: &str = "/run/globalps/ready";
/// The node directory with the system bus socket.
pub(super) const DBUS_DIR: &str = "/run/dbus";

/// A starting pod changes nothing on its node, but an image that doesn't start must not stop all agents at once.
const MAX_UNAVAILABLE: &str = "10%";

pub(super) fn daemon_set(
    agent: Agent,
    namespace: &str,
    image: &str,
    spec: &GlobalPullSecretSpec,
) -> Value {
    placed(
        value(of_defaults(agent, namespace, image, spec)),
        &spec.syncer,
    )
}

/// With the default placement and resources.
fn of_defaults(
    agent: Agent,
    namespace: &str,
    image: &str,
    spec: &GlobalPullSecretSpec,
) -> DaemonSet {
    let labels = Some([("name".to_owned(), agent.name().to_owned())].into());
    let (os, linux) = LINUX_LABEL;
    let pod = PodSpec {
        service_account_name: Some(agent.name().to_owned()),
        image_pull_secrets: pull_secrets(spec.syncer.image_pull_secret.as_deref()),
        priority_class_name: Some(NODE_CRITICAL.to_owned()),
        tolerations: Some(vec![Toleration {
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }]),
        node_selector: Some([(os.to_owned(), linux.to_owned())].into()),
        affinity: Some(Affinity {
            node_affinity: Some(NodeAffinity {
                required_during_scheduling_ignored_during_execution: Some(nodes(agent, spec)),
                ..NodeAffinity::default()
            }),
            ..Affinity::default()
        }),
        host_network: spec.syncer.host_network.then_some(true),
        termination_grace_period_seconds: Some(5),
        containers: vec![container(agent, namespace, image, spec)],
        volumes: Some(volumes(agent, spec)),
        ..PodSpec::default()
    };
    DaemonSet {
        spec: Some(DaemonSetSpec {
            selector: LabelSelector {
                match_labels: labels.clone(),
                ..LabelSelector::default()
            },
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDaemonSet {
                    max_unavailable: Some(IntOrString::String(MAX_UNAVAILABLE.to_owned())),
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
        ..named(agent.name(), namespace)
    }
}

pub(super) fn volumes(agent: Agent, spec: &GlobalPullSecretSpec) -> Vec<Volume> {
    let mut volumes = vec![host_path("kubelet", directory(&spec.kubelet.config_file))];
    if has_bus(agent, spec) {
        volumes.push(host_path("dbus", DBUS_DIR));
    }
    if let Some(provider) = provider(agent, spec) {
        volumes.push(host_path("provider-config", provider.config_dir()));
        volumes.push(host_path("provider-bin", &provider.bin_dir));
    }
    volumes.push(Volume {
        name: "run".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    });
    volumes
}

/// The system bus makes the pod root on its node, so it is mounted only if the agent restarts something.
fn has_bus(agent: Agent, spec: &GlobalPullSecretSpec) -> bool {
    agent != Agent::Observer && spec.kubelet.restart != Restart::Never
}

/// The directories of providers that it mounts.
fn provider(agent: Agent, spec: &GlobalPullSecretSpec) -> Option<&ProviderPaths> {
    let provider = spec.kubelet.credential_provider.as_ref();
    provider.filter(|_| agent != Agent::Observer)
}

/// Directory and file name.
fn split(config_file: &str) -> (&str, &str) {
    config_file.rsplit_once('/').unwrap_or_default()
}

/// The file's directory on the node.
fn directory(config_file: &str) -> &str {
    split(config_file).0
}

fn args(agent: Agent, namespace: &str, spec: &GlobalPullSecretSpec) -> Vec<String> {
    let (_, file_name) = split(&spec.kubelet.config_file);
    if agent == Agent::Observer {
        return vec![
            OBSERVE.to_owned(),
            namespace_arg(namespace),
            config_file_arg(file_name),
            ready_arg(),
        ];
    }
    let mut args = vec![
        "run".to_owned(),
        namespace_arg(namespace),
        config_file_arg(file_name),
        unit_arg(&spec.kubelet.unit),
        restart_arg(spec.kubelet.restart),
    ];
    if has_bus(agent, spec) {
        args.push(bus_arg());
    }
    args.push(ready_arg());
    if agent == Agent::Restorer {
        args.push(RESTORE_ONLY.to_owned());
    }
    args
}

/// Exactly the arguments that an agent can get from some spec.
pub(super) fn allowed_args(namespace: &str, allowed: &Allowed) -> Vec<String> {
    let mut args = vec![
        "run".to_owned(),
        OBSERVE.to_owned(),
        namespace_arg(namespace),
        restart_arg(Restart::Always),
        restart_arg(Restart::Never),
        bus_arg(),
        ready_arg(),
        RESTORE_ONLY.to_owned(),
    ];
    let files = allowed.config_files().iter();
    args.extend(files.map(|file| config_file_arg(split(file).1)));
    args.extend(allowed.units().iter().map(|unit| unit_arg(unit)));
    args.sort();
    args.dedup();
    args
}

/// The observer's subcommand.
const OBSERVE: &str = "observe";
const RESTORE_ONLY: &str = "--restore-only";

fn namespace_arg(namespace: &str) -> String {
    format!("--namespace={namespace}")
}

fn config_file_arg(file_name: &str) -> String {
    format!("--config-file={KUBELET_MOUNT}/{file_name}")
}

/// Environment variables besides the node's name. An older syncer ignores unknown variables, but does not start with an unknown
/// argument.
fn environment(agent: Agent, spec: &GlobalPullSecretSpec) -> Vec<(&'static str, String)> {
    let mut variables = vec![host_config_file(&spec.kubelet.config_file)];
    variables.extend(provider(agent, spec).into_iter().flat_map(provider_paths));
    variables
}

/// The path on the node, as the kubelet knows it.
fn host_config_file(config_file: &str) -> (&'static str, String) {
    ("HOST_CONFIG_FILE", config_file.to_owned())
}

fn provider_paths(provider: &ProviderPaths) -> [(&'static str, String); 4] {
    let in_pod = match provider.config_file_name() {
        Some(name) => format!("{PROVIDER_CONFIG_MOUNT}/{name}"),
        None => PROVIDER_CONFIG_MOUNT.to_owned(),
    };
    [
        ("PROVIDER_CONFIG", in_pod),
        (HOST_PROVIDER_CONFIG, provider.config_path.clone()),
        ("PROVIDER_BIN_DIR", PROVIDER_BIN_MOUNT.to_owned()),
        (HOST_PROVIDER_BIN_DIR, provider.bin_dir.clone()),
    ]
}

/// The credential provider directories of a syncer with this environment; `None` if it has none.
pub fn provider_paths_of<'a>(
    environment: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Option<ProviderPaths> {
    let (mut config_path, mut bin_dir) = (None, None);
    for (name, value) in environment {
        match name {
            HOST_PROVIDER_CONFIG => config_path = Some(value.to_owned()),
            HOST_PROVIDER_BIN_DIR => bin_dir = Some(value.to_owned()),
            _ => {}
        }
    }
    Some(ProviderPaths {
        config_path: config_path?,
        bin_dir: bin_dir?,
    })
}

fn unit_arg(unit: &str) -> String {
    format!("--unit={unit}")
}

fn restart_arg(restart: Restart) -> String {
    let restart = match restart {
        Restart::Always => "Always",
        Restart::Never => "Never",
    };
    format!("--restart={restart}")
}

fn bus_arg() -> String {
    format!("--bus={DBUS_MOUNT}/system_bus_socket")
}

fn ready_arg() -> String {
    format!("--ready-file={READY_FILE}")
}

fn ready_command() -> Vec<String> {
    vec![format!("/{SYNCER_BINARY}"), "ready".to_owned(), ready_arg()]
}

pub(super) fn container(
    agent: Agent,
    namespace: &str,
    image: &str,
    spec: &GlobalPullSecretSpec,
) -> Container {
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    };
    let mut mounts = vec![VolumeMount {
        // Without propagation this mount would pin mounts of other pods after those pods are gone.
        mount_propagation: Some("HostToContainer".to_owned()),
        read_only: (agent == Agent::Observer).then_some(true),
        ..mount("kubelet", KUBELET_MOUNT)
    }];
    if has_bus(agent, spec) {
        mounts.push(mount("dbus", DBUS_MOUNT));
    }
    if provider(agent, spec).is_some() {
        mounts.push(mount("provider-config", PROVIDER_CONFIG_MOUNT));
        mounts.push(mount("provider-bin", PROVIDER_BIN_MOUNT));
    }
    mounts.push(mount("run", RUN_MOUNT));
    Container {
        name: "syncer".to_owned(),
        image: Some(image.to_owned()),
        args: Some(args(agent, namespace, spec)),
        env: Some(variables(agent, spec)),
        resources: Some(ResourceRequirements {
            requests: Some(quantities([("cpu", "5m"), ("memory", "16Mi")])),
            // About ten times the usual use. While it merges, the syncer holds several copies of a Secret of up to 1 MiB.
            limits: Some(quantities([("memory", "64Mi")])),
            ..ResourceRequirements::default()
        }),
        readiness_probe: Some(Probe {
            exec: Some(ExecAction {
                command: Some(ready_command()),
            }),
            period_seconds: Some(10),
            timeout_seconds: Some(5),
            ..Probe::default()
        }),
        // Root's files and the bus policy (only uid 0 may restart a unit) need uid 0; nothing needs a capability.
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
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

fn variables(agent: Agent, spec: &GlobalPullSecretSpec) -> Vec<EnvVar> {
    let node_name = EnvVar {
        name: "NODE_NAME".to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: "spec.nodeName".to_owned(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let others = environment(agent, spec)
        .into_iter()
        .map(|(name, value)| EnvVar {
            name: name.to_owned(),
            value: Some(value),
            ..EnvVar::default()
        });
    [node_name].into_iter().chain(others).collect()
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
