//! Files in a node's root that differ from the machine's.

use anyhow::Result;
use serde_json::json;

use crate::kubernetes::minor;
use crate::layout::{Layout, SERVICE_ADDRESS};
use crate::pki::Authority;
use crate::runtime::Runtime;
use crate::state::NodeState;

/// Path of the built programs on a node.
pub(crate) const BIN: &str = "/opt/kubernetes/bin";

/// Units that are enabled on a node.
pub(crate) fn units() -> [&'static str; 3] {
    ["kubelet", Runtime::wanted().unit(), "node-network"]
}

/// Directories of the machine that a node must not see: its own services, and networks of its containers.
pub(crate) const EMPTIED: [&str; 5] = [
    "etc/systemd/system",
    "etc/cni/net.d",
    "etc/containerd",
    "etc/containers",
    "var/lib/cni",
];

/// File with the kubelet's flags, in the kubelet's directory.
pub(crate) const KUBEADM_FLAGS: &str = "kubeadm-flags.env";

/// Content of that file, as kubeadm writes it.
pub(crate) fn kubeadm_flags(layout: &Layout, node: &NodeState) -> String {
    let ip = layout.node_ip(node.index);
    format!("KUBELET_KUBEADM_ARGS=\"--node-ip={ip}\"\n")
}

/// Path below the root, and content.
pub(crate) type NodeFile = (String, String);

pub(crate) fn all(
    layout: &Layout,
    node: &NodeState,
    authority: &Authority,
) -> Result<Vec<NodeFile>> {
    let runtime = Runtime::wanted();
    let name = &node.name;
    let ip = layout.node_ip(node.index).to_string();
    let user = format!("system:node:{name}");
    let identity = authority.issue(&user, Some("system:nodes"), &[ip.clone(), name.clone()])?;
    let mut files = vec![
        file(
            "etc/kubernetes/kubelet.kubeconfig",
            authority.kubeconfig_of(layout, &identity),
        ),
        file("etc/kubernetes/ca.crt", authority.certificate().to_owned()),
        file("etc/kubernetes/kubelet.crt", identity.certificate),
        file("etc/kubernetes/kubelet.key", identity.key),
        file(
            "etc/kubernetes/kubelet.json",
            kubelet_config(minor(), runtime),
        ),
        file(
            "etc/cni/net.d/10-pods.conflist",
            cni_config(layout, node.index),
        ),
        file("etc/systemd/system/kubelet.service", kubelet_unit(runtime)),
        file(
            "etc/systemd/system/node-mounts.service",
            MOUNTS_UNIT.to_owned(),
        ),
        file(
            "etc/systemd/system/node-network.service",
            network_unit(layout, &ip),
        ),
        // The console shows the whole journal. Its log on the machine outlives the node.
        file(
            "etc/systemd/journald.conf.d/node.conf",
            "[Journal]\nStorage=volatile\nForwardToConsole=yes\nMaxLevelConsole=info\n".to_owned(),
        ),
        file(
            "etc/systemd/system.conf.d/node.conf",
            "[Manager]\nDefaultTimeoutStopSec=10s\n".to_owned(),
        ),
        file("etc/hostname", format!("{name}\n")),
        file(
            "etc/machine-id",
            format!("{}\n", machine_id(layout, node.index)),
        ),
        file("etc/fstab", String::new()),
    ];
    files.extend(runtime.files(layout, authority));
    Ok(files)
}

pub(crate) fn file(path: &str, content: String) -> NodeFile {
    (path.to_owned(), content)
}

fn machine_id(layout: &Layout, index: u8) -> String {
    format!("{:030x}{:02x}", layout.instance, index)
}

/// `minor`: the kubelet's minor version.
fn kubelet_config(minor: u32, runtime: Runtime) -> String {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": "/etc/kubernetes/kubelet.crt",
        "tlsPrivateKeyFile": "/etc/kubernetes/kubelet.key",
        "containerRuntimeEndpoint": format!("unix://{}", runtime.socket()),
        "clusterDomain": "cluster.local",
        // Nodes share one machine and don't control its limits, swap and disk.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
        // No limit on parallel pulls.
        "serializeImagePulls": false,
        "registryPullQPS": 0,
        // Heartbeats that are frequent enough for the controller manager's short grace period.
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 20,
    });
    // Nodes don't control the machine's cgroup version either.
    if minor >= 31 {
        config["failCgroupV1"] = false.into();
    }
    // Tests kill containers on purpose and should not wait five minutes for the sixth start.
    if minor >= 35 {
        config["crashLoopBackOff"] = json!({"maxContainerRestartPeriod": "2s"});
    }
    config.to_string()
}

/// The unit reads the kubelet's flags from a file, as kubeadm's unit does.
fn kubelet_unit(runtime: Runtime) -> String {
    let runtime = runtime.unit();
    format!(
        "[Unit]
After={runtime}.service node-network.service node-mounts.service
Wants={runtime}.service
[Service]
EnvironmentFile=-/var/lib/kubelet/{KUBEADM_FLAGS}
ExecStart={BIN}/kubelet --config=/etc/kubernetes/kubelet.json --kubeconfig=/etc/kubernetes/kubelet.kubeconfig $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"
    )
}

/// nspawn mounts v1 control groups read-only, and v2 writable. Pods with mount propagation need shared mounts.
const MOUNTS_UNIT: &str = "\
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'mount --make-rshared /; grep -E \" cgroup ro\" /proc/mounts | while read -r _ target _; do mount -o remount,bind,rw \"$target\"; done'
";

fn network_unit(layout: &Layout, ip: &str) -> String {
    let gateway = layout.gateway();
    format!(
        "[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'ip address add {ip}/24 dev host0; ip link set lo up; ip link set host0 up; ip route add default via {gateway}; ip route add {SERVICE_ADDRESS}/32 via {gateway}'
[Install]
WantedBy=multi-user.target
"
    )
}

fn cni_config(layout: &Layout, index: u8) -> String {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": true, "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": layout.pod_subnet(index)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            }},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
    .to_string()
}
