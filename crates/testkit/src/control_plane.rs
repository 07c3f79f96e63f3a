//! etcd, the API server, the controller manager and the scheduler, as processes on the machine.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::kubernetes::{ETCD, bin_dir};
use crate::layout::{API_PORT, Layout, SERVICE_NETWORK};
use crate::objects::is_ready;
use crate::pki::{Authority, write_private};
use crate::process::{kill_all, marked, run, spawn, tail};
use crate::wait::until;

const MEMBERS: [&str; 4] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

/// Records the metadata of every request, for tests of permissions. Also records the object of every write to a
/// `NodePullSecret`, which contains no credential, for tests of limits.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  omitManagedFields: true
  verbs: [create, update, patch, delete]
  resources: [{group: globalps.io, resources: [nodepullsecrets, nodepullsecrets/status]}]
- level: Metadata
";

/// Disables controllers that no test needs: for storage, and for scaling or repeating workloads. An idle controller
/// manager spends a third of its processor time in them.
const WITHOUT: &str = "--controllers=*,-cronjob-controller,-ephemeral-volume-controller,-horizontal-pod-autoscaler-controller,\
-persistentvolume-attach-detach-controller,-persistentvolume-binder-controller,-persistentvolume-expander-controller,\
-persistentvolume-protection-controller,-persistentvolumeclaim-protection-controller,-resourceclaim-controller,\
-service-cidr-controller,-statefulset-controller,-ttl-after-finished-controller,-volumeattributesclass-protection-controller";

/// Starts all four, and returns when the API server reports that it is ready.
pub(crate) fn start(layout: &Layout, authority: &Authority) -> Result<()> {
    start_etcd(layout)?;
    start_api_server(layout)?;
    until(
        "the API server to be ready",
        Duration::from_mins(2),
        Duration::from_millis(100),
        || ready(layout),
    )?;
    for name in ["kube-controller-manager", "kube-scheduler"] {
        let file = layout.pki(&format!("{name}.kubeconfig"));
        let user = format!("system:{name}");
        write_private(&file, &authority.kubeconfig(layout, &user, None)?)?;
        let mut command = Command::new(bin_dir().join(name));
        command
            .arg(format!("--kubeconfig={}", file.display()))
            .arg(format!("--bind-address={}", layout.gateway()))
            .args(["--leader-elect=false", "--authentication-skip-lookup=true"])
            // With the default limits of a shared API server, the controllers alone would need four seconds to start.
            .args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
        if name == "kube-controller-manager" {
            command
                .arg(format!("--root-ca-file={}", layout.pki("ca.crt").display()))
                .arg(format!(
                    "--service-account-private-key-file={}",
                    layout.pki("service-accounts.key").display()
                ))
                .arg("--use-service-account-credentials=true")
                .arg(WITHOUT)
                // A disconnected node becomes NotReady sooner than with the default of 50 s.
                .args([
                    "--node-monitor-grace-period=35s",
                    "--node-monitor-period=2s",
                ]);
        }
        spawn(layout, name, &mut command)?;
    }
    Ok(())
}

fn start_etcd(layout: &Layout) -> Result<()> {
    let client = format!("http://{}:2379", layout.etcd());
    let peer = format!("http://{}:2380", layout.etcd());
    let mut etcd = Command::new(bin_dir().join(ETCD));
    etcd.arg("--data-dir")
        .arg(layout.path("etcd"))
        .args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", &format!("default={peer}")])
        .args(["--unsafe-no-fsync", "--log-level", "warn"]);
    spawn(layout, "etcd", &mut etcd)?;
    Ok(())
}

/// Kills the API server, and starts a new one on the same etcd after `pause`.
pub(crate) fn restart_api_server(layout: &Layout, pause: Duration) -> Result<()> {
    kill(layout, "kube-apiserver")?;
    std::thread::sleep(pause);
    start_api_server_again(layout)
}

/// Copies etcd's data. Stops etcd and the API server for a moment.
pub(crate) fn back_up_etcd(layout: &Layout) -> Result<()> {
    replace_etcd(layout, ("etcd", "etcd-backup"))
}

/// Restores the last copy. Every client then sees the cluster's state at the time of the copy.
pub(crate) fn restore_etcd(layout: &Layout) -> Result<()> {
    replace_etcd(layout, ("etcd-backup", "etcd"))
}

fn replace_etcd(layout: &Layout, (from, to): (&str, &str)) -> Result<()> {
    kill(layout, "kube-apiserver")?;
    kill(layout, "etcd")?;
    let (from, to) = (layout.path(from), layout.path(to));
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    run(Command::new("cp").arg("--archive").args([&from, &to]))?;
    start_etcd(layout)?;
    start_api_server_again(layout)
}

/// Kills a component, and returns when it is gone.
pub(crate) fn kill(layout: &Layout, component: &str) -> Result<()> {
    kill_all(component, || {
        let mut found = marked(&layout.bridge())?;
        found.retain(|process| process.component == component);
        Ok(found.into_iter().map(|process| process.pid).collect())
    })
}

fn start_api_server_again(layout: &Layout) -> Result<()> {
    start_api_server(layout)?;
    until(
        "the API server to be ready again",
        Duration::from_mins(2),
        Duration::from_millis(100),
        || ready(layout),
    )
}

fn start_api_server(layout: &Layout) -> Result<()> {
    let policy = layout.path("audit-policy.yaml");
    fs::write(&policy, AUDIT_POLICY)?;
    let pki = |flag: &str, file: &str| format!("--{flag}={}", layout.pki(file).display());
    let mut server = Command::new(bin_dir().join("kube-apiserver"));
    server
        .arg(format!("--etcd-servers=http://{}:2379", layout.etcd()))
        .arg(format!("--bind-address={}", layout.gateway()))
        .arg(format!("--advertise-address={}", layout.gateway()))
        .arg(format!("--secure-port={API_PORT}"))
        .arg(format!("--service-cluster-ip-range={SERVICE_NETWORK}"))
        .arg(pki("client-ca-file", "ca.crt"))
        .arg(pki("tls-cert-file", "apiserver.crt"))
        .arg(pki("tls-private-key-file", "apiserver.key"))
        .arg(pki("kubelet-client-certificate", "apiserver-kubelet.crt"))
        .arg(pki("kubelet-client-key", "apiserver-kubelet.key"))
        .arg(pki("kubelet-certificate-authority", "ca.crt"))
        .arg(pki("service-account-key-file", "service-accounts.pub"))
        .arg(pki(
            "service-account-signing-key-file",
            "service-accounts.key",
        ))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .args([
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
        ])
        .arg("--allow-privileged=true")
        .args(admission(layout)?)
        // DNS does not know the names of nodes.
        .arg("--kubelet-preferred-address-types=InternalIP")
        .arg(format!("--audit-policy-file={}", policy.display()))
        .arg(format!(
            "--audit-log-path={}",
            layout.log("audit").display()
        ));
    spawn(layout, "kube-apiserver", &mut server)?;
    Ok(())
}

const ADMISSION: &str = "admission.json";

/// Makes the API server admit pods with Kubernetes' own priority classes only in namespaces whose quota names these.
pub(crate) fn limit_priority_classes(layout: &Layout) -> Result<()> {
    let limited = json!({"resource": "pods", "matchScopes": [{"scopeName": "PriorityClass",
        "operator": "In", "values": ["system-cluster-critical", "system-node-critical"]}]});
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ResourceQuota", "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
            "limitedResources": [limited],
        }}],
    });
    fs::write(layout.path(ADMISSION), configuration.to_string())?;
    restart_api_server(layout, Duration::ZERO)
}

/// The flag for that configuration, if there is one.
fn admission(layout: &Layout) -> Result<Option<String>> {
    let file = layout.path(ADMISSION);
    let flag = format!("--admission-control-config-file={}", file.display());
    Ok(file.try_exists()?.then_some(flag))
}

fn ready(layout: &Layout) -> Result<Option<()>> {
    check_alive(layout)?;
    let address = SocketAddr::from((layout.gateway(), API_PORT));
    // A connection attempt is cheaper than a request.
    if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
        return Ok(None);
    }
    Ok(is_ready(layout).then_some(()))
}

/// Fails with the end of a component's log if a component has died.
pub(crate) fn check_alive(layout: &Layout) -> Result<()> {
    let running = marked(&layout.bridge())?;
    for member in MEMBERS {
        let log = layout.log(member);
        if log.exists() && !running.iter().any(|process| process.component == member) {
            bail!(
                "{member} died; the end of `{}`:\n{}",
                log.display(),
                tail(&log, 5)
            );
        }
    }
    Ok(())
}

/// Runs kubectl as the cluster's admin.
pub(crate) fn kubectl(layout: &Layout, args: &[&str]) -> Result<String> {
    run(kubectl_command(layout).args(args)).context("kubectl")
}

pub(crate) fn kubectl_command(layout: &Layout) -> Command {
    let mut command = Command::new(bin_dir().join("kubectl"));
    command
        // kubectl usually ends before there is much garbage, and collecting it takes a sixth of its processor time.
        .env("GOGC", "off")
        .env("GOMEMLIMIT", "256MiB")
        .arg(format!("--kubeconfig={}", layout.kubeconfig().display()))
        // kubectl's discovery cache is keyed by address, and the next cluster has the same address.
        .arg(format!(
            "--cache-dir={}",
            layout.path("kubectl-cache").display()
        ));
    command
}
