//! The map of the test files: what each one shows, where it runs and how long it takes. It generates the table in
//! `tests/README.md`, and the suite starts the longest file first.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

/// Environment of a test file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Only the programs, with registries and servers that the test starts.
    Programs,
    /// The real syncer with a simulated systemd and API server.
    BareNode,
    /// The kubelet's and containers/image's own code, as a Go program.
    Oracle,
    /// A real control plane with this many real nodes; 0: only an API server.
    Nodes(u8),
    /// Like [`Self::Nodes`], beside another project's own program. Only `make ecosystem` runs it, because that program
    /// must be built.
    Beside(u8),
    /// Two clusters at the same time, with this many real nodes in total.
    TwoClusters(u8),
    /// This many clusters at the same time, with this many real nodes in total.
    Clusters(u8, u8),
}

/// One file in `tests/tests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestFile {
    /// Name for `cargo test --test`.
    pub name: &'static str,
    pub on: On,
    /// Approximate duration on two busy cores.
    pub seconds: u16,
    pub shows: &'static str,
}

impl TestFile {
    /// Load on the machine: one for a control plane and one for each node.
    pub fn load(&self) -> u32 {
        match self.on {
            On::Programs | On::BareNode | On::Oracle => 2,
            On::Nodes(nodes) | On::Beside(nodes) => 1 + u32::from(nodes),
            On::TwoClusters(nodes) => 2 + u32::from(nodes),
            On::Clusters(clusters, nodes) => u32::from(clusters) + u32::from(nodes),
        }
    }

    /// Maximum number of clusters that it runs at the same time; one if it needs none.
    pub fn clusters(&self) -> u32 {
        match self.on {
            On::Clusters(clusters, _) => clusters.into(),
            On::TwoClusters(_) => 2,
            _ => 1,
        }
    }
}

/// One line per file; rustfmt would use six.
macro_rules! files {
    ($($name:ident on $on:ident $(($($nodes:literal),*))?, $seconds:literal s: $shows:literal;)*) => {
        &[$(TestFile { name: stringify!($name), on: On::$on $(($($nodes),*))?, seconds: $seconds, shows: $shows }),*]
    };
}

/// Every file in `tests/tests`, by name.
pub const FILES: &[TestFile] = files! {
    add on Nodes(0), 30 s: "`add` extends the Secret and changes nothing else in it; conflicts, dry runs, missing permissions";
    advice on Nodes(0), 60 s: "the commands in the controller's messages, as they are printed: each helps, and undoes nothing that another one did";
    alerts on Beside(0), 10 s: "which alerts fire in which state, and that each names its section of troubleshooting, by Prometheus' own tool";
    allowed_kubelets on Nodes(0), 30 s: "an editor of the GlobalPullSecret can configure only kubelets and their directories";
    by_hand on Nodes(1), 20 s: "`globalps-syncer restore` with a real systemd; a unit without a kubelet is not restarted";
    chart on Beside(1), 150 s: "the Helm charts and the kustomize base have the objects of `install`; Helm 3 and 4 install, upgrade, roll back and remove a release";
    clocks on Nodes(0), 200 s: "clocks of nodes that are ahead, behind, slow or set during a rollout, and another leader: the canary soaks, the limit holds, and no node fails";
    clusters on TwoClusters(1), 80 s: "many clusters without a hub: Cluster API's own manager and a ClusterResourceSet deliver the pull secret to the nodes of another cluster";
    crash_states on BareNode, 500 s: "every state in which a power cut can leave the disk, and a second power cut during the recovery";
    crashes on Nodes(2), 200 s: "controllers and syncers are killed at random moments";
    credential_provider on Nodes(3), 250 s: "delivery with the credential provider: one kubelet restart to enable it, none for a rotation, one to disable it; scopes; damaged data; drift; nodes that don't support it";
    credential_sources on Programs, 2 s: "where `add` reads credentials: files, helpers, a terminal; what it rejects";
    delivery_kills on Nodes(0), 220 s: "the controller is killed at every write into namespaces and for operators: the next controller finishes, and other clients' objects stay unchanged";
    drift on Nodes(1), 90 s: "entries that another process removes are restored; frequent rotations";
    ecr on Nodes(1), 60 s: "ECR's own credential provider, configured as on EKS, before, during and after delivery with globalps' credential provider";
    exhaustion on Nodes(0), 150 s: "a tenant writes service accounts, Secrets and labels as many and as large as the API server accepts: the controller's memory stays small, and the other namespaces get their Secrets in time";
    external_secrets on Beside(1), 120 s: "External Secrets' own controller writes, rotates, deletes and recreates the pull secrets: at most one change, no loss, and the plugin names it";
    faults on Nodes(6), 500 s: "every row of the table in `docs/faults.md`";
    fleet on TwoClusters(5), 440 s: "new nodes, deletions in every order, blocked nodes, canaries, hostile statuses, rejected syncer pods";
    flow on Nodes(3), 90 s: "the main job: after a Secret is created, every node can pull; after it is deleted, every node has its old file, byte for byte; `why`, `--retry-pods` and `kubelet-readmission`";
    flux on Beside(1), 100 s: "Flux's own kustomize-controller applies, reverts and prunes the pull secret and the configuration, and the plugin names it";
    forgers on Nodes(0), 60 s: "Secrets and records of service accounts that other clients write in the controller's name: neither believed nor overwritten; what the controller wrote is restored, also from a backup and after its record was lost";
    healing on Nodes(3), 500 s: "managed objects that are changed or deleted out of band; nodes that are unreachable during the removal";
    hosted on TwoClusters(2), 80 s: "the pull secret of a `HostedControlPlane`, from the management cluster";
    hub on Clusters(4, 4), 170 s: "the hub with Cluster API: a rollout through three clusters with real nodes halts when a node fails, is retried, undone and removed; a ClusterResourceSet in the same clusters";
    hub_install on Clusters(2, 2), 40 s: "the hub installs globalps in a new cluster, with a pull secret for its own images, and rolls out other images as the next revision";
    hub_kills on Nodes(0), 140 s: "the hub is killed at every write, on the management cluster and in members: the next hub finishes, and other clients' objects stay unchanged";
    hub_liars on Nodes(0), 210 s: "malicious member clusters: absurd numbers, redirects, endless responses, the UID of another cluster; a tenant with 500 large Secrets";
    hub_members on Clusters(3, 1), 70 s: "clusters that are unreachable, managed by another hub, registered twice or the hub itself; failover to another hub; clusters that are no longer selected";
    hub_odd_values on Nodes(0), 100 s: "the same as `odd_values` for what the hub watches: FleetPullSecrets, ClusterPullSecrets and Clusters of Cluster API";
    hub_rights on TwoClusters(0), 30 s: "the hub's RBAC rules match its requests exactly, on the management cluster and in a member; its credentials for a member give access to nothing else";
    in_place on Nodes(2), 100 s: "a stand-in of the Machine Config Daemon updates a node in place at random moments: it never finds our bytes where it compares, the credentials are back within a second, kubelet starts are counted, a removal in the middle";
    installers on Beside(0), 150 s: "the charts by Helm 3 and 4, Flux's use of Helm's SDK, Argo CD's sync engine and kubectl: definitions and their objects survive each step";
    interference on Nodes(4), 240 s: "what others do to a healthy fleet: they write a node's spec, delete a Node during a change, or name a syncer image that doesn't exist";
    judge on Oracle, 60 s: "globalps, the kubelet and CRI-O read credentials files in the same way; the kubelet's own code runs the credential provider";
    krew on Programs, 7 s: "the plugin's archive installs as krew installs it";
    kubeadm on BareNode, 100 s: "the real `kubeadm upgrade node`, which rewrites the kubelet's flags in some states of a node, before, during and after delivery with the credential provider: no restart, no drift, and it stays after the removal; a provider without a state";
    leader on Nodes(5), 300 s: "the leader is killed, frozen, disconnected and evicted in the middle of a rollout";
    live_check on Programs, 12 s: "`add` checks the credentials with the registry first: tokens, certificates, redirects, proxies; `images push`";
    namespaces on Nodes(1), 60 s: "pull secrets in namespaces, with nothing on nodes: admission, service accounts, foreign Secrets, quotas, conflicts, scopes, pausing, removal";
    observe on Nodes(0), 60 s: "`delivery: Observe` beside a stand-in of HyperShift's controller and syncer, 12 nodes: no status says `Synced` for content that the node's file lacks, each is true within 2 s, and HyperShift's objects stay unchanged";
    odd_values on Nodes(0), 180 s: "odd values in every field that others may write: only the object with the value is affected, and it is named";
    openshift_nodes on Nodes(2), 60 s: "`delivery: OpenShift` with real nodes: `install` recognises the cluster, the operator brings the pull secret to the nodes, each node says what it waits for, a pod pulls with the new password, no kubelet restarts, a removal leaves the document as it was";
    operators on Nodes(1), 60 s: "pull secrets of operators, with the Operator Lifecycle Manager's own resources: copies and references, rotations, upgrades, removal in every order";
    originals on Nodes(1), 30 s: "the cluster's own pull secret is merged, and never blocks the additional one";
    output on Programs, 4 s: "`-o kyaml`, `jsonpath` and `go-template` print what kubectl prints; `$KUBECTL_PATH`";
    pages on Clusters(3, 3), 50 s: "the commands of the README and the pages in `docs/`, as they are printed, on real clusters";
    permissions on Nodes(2), 130 s: "the RBAC rules match the requests exactly; a syncer's token reports only its own node";
    plugin on Nodes(2), 150 s: "the plugin's whole job, from `install` to `uninstall`, with `bundle` and dry runs";
    plugin_connection on Nodes(0), 120 s: "kubeconfigs, contexts, impersonation, exec plugins and TLS work as in kubectl";
    plugin_holds on Nodes(1), 20 s: "what `status`, `check` and `remove` print when a rollout or a cleanup is blocked; `--skip-unreachable`";
    plugin_operations on Nodes(1), 40 s: "pause, resume, retry, history, undo, status and check, with prepared objects";
    policies on Nodes(0), 60 s: "the admission policies reject every attempt to misuse the controller's service account";
    policy_fields on Nodes(0), 200 s: "the admission policies refuse a change of every field that is not on their lists";
    priority_classes on Nodes(1), 60 s: "a cluster that admits the priority classes of the pods only in namespaces with a quota for them, as GKE does";
    privileges on Nodes(1), 120 s: "the syncer needs each of its privileges: something fails without it";
    provider on Programs, 2 s: "the credential provider always responds, even to damaged data or an invalid request, and prints the reason in one line";
    provider_delivery on BareNode, 120 s: "the credential provider is enabled with one restart, rotates without any, is restored after drift, and is removed byte for byte; next to another provider";
    provider_kills on BareNode, 40 s: "the syncer is killed at every step of the switch to the credential provider and back";
    reference_cases on BareNode, 70 s: "the cases of the reference implementation, in `docs/reference-cases.md`";
    refusals on Nodes(2), 160 s: "invalid Secrets change nothing; if a kubelet does not start, its old file is restored";
    refused_writes on Nodes(0), 300 s: "an admission webhook rejects the controller's writes of one object, or never responds; quotas; an immutable Secret: everything else goes on, and the object is named";
    refusing_namespaces on Nodes(1), 40 s: "namespaces whose Secret a webhook rejects, an unreachable webhook blocks or another client has filled: reported, and the other namespaces continue; a source that is too large";
    releasing on Programs, 10 s: "cosign signs and verifies a release; a changed byte or another key is rejected";
    roles on Nodes(1), 80 s: "a user of `globalps-viewer`, or of Kubernetes' `view`, runs `status` and `list` without Secrets; one of `globalps-operator` does what `add`, `undo`, `pause`, `remove`, `why` and others need, and nothing else";
    rollout on Nodes(3), 360 s: "retry, rollback of the fleet, pause, history, a leaked password that is forgotten everywhere, a node that is added while no controller runs";
    short_lived on Beside(1), 300 s: "passwords of ECR, Google and Azure that External Secrets' generators renew: each refresh restarts the kubelet with the file and none with the provider";
    sources on Nodes(2), 180 s: "several sources, each validated separately; very large and immutable Secrets; a credential that expires soon";
    standalone_openshift on Nodes(0), 90 s: "`delivery: OpenShift` with 12 nodes in two pools of a stand-in of the Machine Config Operator, while an administrator, an operator and a guest write the same Secret and the controller is killed: no byte of others changes, each status is true within 2 s, and a removal leaves the Secret as it is without globalps";
    static_pods on Nodes(1), 20 s: "static pods are not covered by delivery into namespaces";
    syncer on BareNode, 140 s: "one syncer, step by step: errors of its node, a kubelet that stays down, file modes, readiness, manual restore";
    terminal on Programs, 1 s: "messages on a narrow terminal, and without a cluster";
    testbed on TwoClusters(2), 20 s: "test clusters run side by side and leave nothing on the machine";
    tutorials on Beside(1), 120 s: "the commands of `docs/tutorials.md`, as they are printed, on real clusters";
    units on Nodes(4), 60 s: "kubelets in the units of k3s, RKE2 and MicroShift: an agent's is restarted, a server's is not";
    upgrade on TwoClusters(6), 80 s: "from the previous release to this one and back, during a rollout, in both orders";
    upgrade_tools on Beside(3), 200 s: "the same with the Helm chart and the plugin of each release: Helm upgrades and rolls back, and the plugins install over each other";
    verification on Nodes(1), 120 s: "`spec.verify`: a password that was changed at a real registry is reported before a pull fails";
    virtual_nodes on Nodes(2), 90 s: "nobody waits for nodes without a machine, known by a label or a taint: rotations, `status`, `check` and `remove --all`";
    why on Nodes(1), 40 s: "`why` names the image that was broken: of a volume, an init or ephemeral container, a sandbox, a Secret that the kubelet can't read, an image that is there for other pods";
};

/// The names of the files that only need this repository.
pub fn own() -> impl Iterator<Item = &'static str> {
    let own = |file: &&TestFile| !matches!(file.on, On::Beside(_));
    FILES.iter().filter(own).map(|file| file.name)
}

/// The names of the files that run beside other projects' own programs.
pub fn companions() -> impl Iterator<Item = &'static str> {
    let beside = |file: &&TestFile| matches!(file.on, On::Beside(_));
    FILES.iter().filter(beside).map(|file| file.name)
}

/// The entry of a file.
pub fn find(name: &str) -> Result<TestFile> {
    let found = FILES.iter().find(|file| file.name == name);
    found.copied().with_context(|| {
        format!("there is no test file `{name}` in the map, `crates/testkit/src/map.rs`")
    })
}

/// `tests/README.md` with the table, which is between two comments.
pub fn readme(page: &str) -> Result<String> {
    const BEGIN: &str = "<!-- from crates/testkit/src/map.rs -->\n";
    const END: &str = "<!-- end -->\n";
    let parts = page.split_once(BEGIN).zip(page.split_once(END));
    let ((before, _), (_, after)) = parts.context("there is no place for the table")?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", table()))
}

/// The table as Markdown.
fn table() -> String {
    let mut text = "| file | on | takes | shows |\n|---|---|---|---|\n".to_owned();
    for file in FILES {
        let on = match file.on {
            On::Programs => "programs".to_owned(),
            On::BareNode => "bare node".to_owned(),
            On::Oracle => "oracle".to_owned(),
            On::Nodes(0) => "API server".to_owned(),
            On::Nodes(1) => "1 node".to_owned(),
            On::Nodes(nodes) => format!("{nodes} nodes"),
            On::Beside(1) => "1 node, `make ecosystem`".to_owned(),
            On::Beside(nodes) => format!("{nodes} nodes, `make ecosystem`"),
            On::TwoClusters(1) => "2 clusters, 1 node".to_owned(),
            On::TwoClusters(nodes) => format!("2 clusters, {nodes} nodes"),
            On::Clusters(clusters, 1) => format!("{clusters} clusters, 1 node"),
            On::Clusters(clusters, nodes) => format!("{clusters} clusters, {nodes} nodes"),
        };
        let (name, seconds, shows) = (file.name, file.seconds, file.shows);
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "| [`{name}`](tests/{name}.rs) | {on} | {seconds} s | {shows} |"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::kubernetes::workspace;

    fn package() -> PathBuf {
        workspace().join("tests")
    }

    fn names(directory: &str) -> BTreeSet<String> {
        fs::read_dir(package().join(directory))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn every_test_file_is_in_the_map_and_nothing_else() {
        let mapped: BTreeSet<_> = FILES.iter().map(|file| file.name.to_owned()).collect();
        let differ: Vec<_> = names("tests")
            .symmetric_difference(&mapped)
            .cloned()
            .collect();
        assert!(
            differ.is_empty(),
            "{differ:?}: change `FILES` in `crates/testkit/src/map.rs`, then run `make generate`"
        );
        assert!(FILES.is_sorted_by_key(|file| file.name));
    }

    /// `flow::wait` in the README is the function `wait` in `tests/tests/flow.rs`.
    #[test]
    fn every_test_that_the_map_of_promises_names_exists() {
        let text = fs::read_to_string(package().join("README.md")).unwrap();
        let mut number = 0;
        for name in text.split('`').skip(1).step_by(2) {
            let Some((file, test)) = name.split_once("::") else {
                continue;
            };
            let path = package().join(format!("tests/{file}.rs"));
            let source = fs::read_to_string(&path).unwrap_or_default();
            let is_there = source.contains(&format!("fn {test}("));
            assert!(is_there, "`{name}` is not in `{}`", path.display());
            number += 1;
        }
        assert!(number > 20, "{number}");
    }
}
