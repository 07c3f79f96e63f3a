//! Sections of the guide about nodes with errors. The page has them from here.

macro_rules! sections {
    ($($name:literal: $text:literal;)*) => {
        /// Name and text in Markdown, in the page's order. By hand, the page has more about the last one.
        pub const NODE_SECTIONS: &[(&str, &str)] = &[$(($name, $text)),*];
    };
}

sections! {
    "foreign-owner":
        "Another process changed the managed entries five times within ten minutes, so globalps stopped restoring them. Find that process and stop it, then run `kubectl globalps retry`.";
    "managed-file":
        "Another program manages the file on this node, so globalps leaves it alone; a retry does not change this. Configure the credentials in that program (for the Machine Config Operator, the node's message has the command), or exclude the node with the label `globalps.io/exclude=true`.";
    "node-update":
        "The Machine Config Daemon updates the node in place: `desiredConfig` differs from `currentConfig` in the Node's annotations `machineconfiguration.openshift.io/…`, `state` is not `Done`, or a drain is requested. Before the daemon reports `Done`, it compares the bytes and the mode of the kubelet's credentials file with its own. So globalps restores the node's own file, without a kubelet restart, and changes nothing until the update has ended. A file that the daemon has written already stays as it is. After the update the node gets its revision again. If `state` is `Degraded`, the annotation `machineconfiguration.openshift.io/reason` names the cause.";
    "node-confirmation":
        "On nodes of HyperShift's node pools a Machine Config Daemon may write the credentials file during an update, and compares it before the end. So before the syncer replaces a file that another program wrote, it asks the controller, which reads the Node once more and answers in the annotation `globalps.io/may-replace` of the NodePullSecret. This takes less than a second. If it lasts, no controller leads: `kubectl globalps status` shows it. Content in force stays in force.";
    "node-bus":
        "The syncer restarts the kubelet through systemd, over `/run/dbus/system_bus_socket`. While the bus does not respond, no change that needs a restart starts; one that had started may have written the file, and waits. When the bus responds again, it continues by itself. The controller assigns a change that had not started again after at least 15 seconds; with `kubectl globalps retry`, at once.";
    "node-systemd":
        "systemd answers a question about the kubelet's unit with an error, which the node's message quotes, or there is no systemd on the bus. The unit's state is unknown, so no change starts, and one that had started is neither finished nor rolled back until systemd answers without an error. A list of the unit's processes is not needed.";
    "node-unit":
        "The unit in `spec.kubelet.unit` is masked, missing, or runs no kubelet (the message names its programs). `Auto` looks for the units in [distributions](distributions.md). If several of them are on the node and none is active with a kubelet, none is restarted: name the right one in `spec.kubelet.unit`, or remove the one that is left over. A node whose kubelet serves although none of them is active is not restarted either, but gets the file: it is `Synced` with `RestartNotPossible`, and the message names the kubelet's socket.";
    "node-kubelet-down":
        "The kubelet starts neither with the new nor with the previous file, so the file is not the cause. `journalctl -u kubelet` on the node has the error. The syncer resets the unit and starts it again until the kubelet serves, with a backoff from 10 seconds to 2 minutes. Then the node is `RolledBack` with `KubeletRecovered`.";
    "node-rolled-back":
        "The kubelet did not come up with the new file, three times. The old file is restored and the kubelet runs. The rollout halts when `maxFailures` is reached. Run `journalctl -u kubelet` on the node for the time in the status. When the cause is repaired: `kubectl globalps retry`. If the content is the cause: `kubectl globalps undo`.";
    "node-disk":
        "The file can't be read or written: the disk is full or read-only, the file is immutable, larger than 4 MiB or not a regular file, its directory is missing, or a policy of the node forbids it. A change that had not started has changed nothing. Repair the cause. The revision is assigned again after 15 seconds or more, or at once with `kubectl globalps retry`. The syncer continues a change that had started, and checks content that was already in force again, by itself within 10 seconds.";
    "node-two-syncers":
        "Two syncers run on this node. The second one waits, because they would undo each other's work. Look for a second DaemonSet, perhaps of an installation in another namespace, and delete it with `kubectl -n NAMESPACE delete daemonset global-pull-secret-syncer`, and whatever creates it there. If there is none, another process of root holds the lock `.globalps.lock` beside the credentials file: `lsof /var/lib/kubelet/.globalps.lock` on the node names it. A syncer that waits reports this when nothing has answered the node's assignment for 5 seconds. When the lock is free, the controller assigns the revision again after 15 seconds or more, or at once with `kubectl globalps retry`.";
    "node-state":
        "The syncer's state in `.globalps`, beside the credentials file, is damaged or was written by a newer version. Nothing is changed, because the state contains the node's own file. If the version is newer, install that version again. If the state is damaged, repair it on the node: `snapshot` in it, if readable, is the file before the first change. Or move `state.json` away: the syncer then takes the credentials file as the node's own ([StateLost](#node-state-lost)). If the kubelet's flags name the credential provider, the syncer adopts it, so a later removal takes the flags out before it deletes the files.";
    "node-state-lost":
        "There was no state on a node on which globalps had worked, as after a damaged `state.json` was moved away. The syncer can't tell which entries of the credentials file globalps wrote, so it removes none: the node's message names those under registries that it delivers. After a restore they are in the file again; remove those that are not the node's own.";
    "node-secret":
        "The node has an assignment but can't read Secret `kube-system/global-pull-secret`. Content in force stays in force. The node's message names the cause: either the node can't reach the API server, or the syncer has lost its permissions. `kubectl globalps install` restores the permissions.";
    "node-file-quarantined":
        "The file of this node could not be parsed when a change or a restore began: a kubelet ignores such a file, even if only one entry is bad. Its readable entries stay; if it is no credentials file at all, those of the snapshot do. The syncer quarantined the file in `.globalps`; the node's message has its name.";
    "node-drift":
        "Another process removed or changed managed entries, and the syncer restored them. This restarts the kubelet only if it happened while no syncer watched the file. One conflict is harmless. If conflicts continue, the node becomes [foreign-owner](#foreign-owner).";
    "node-file-outdated":
        "Another program writes the file (`spec.kubelet.delivery` is `Observe`), and the file does not have what Secret `global-pull-secret` says. HyperShift's syncer compares both every 30 seconds. If it takes longer: `kubectl get pods -n kube-system -l name=global-pull-secret-syncer -o wide` shows whether one runs on the node. None runs on nodes of InPlace NodePools.";
    "node-machine-config":
        "With `spec.kubelet.delivery: OpenShift`, the Machine Config Operator writes the file. `oc get machineconfigpools` shows the pools: a paused one changes no node until `spec.paused` is false again; a degraded one names the node. On the node, the annotation `machineconfiguration.openshift.io/reason` says what is wrong, often a file that another program has changed: restore that file, and the operator continues. The other nodes of the pool may wait for it.";
    "node-file-unusable":
        "Another program writes the file, and a kubelet ignores all of it: it is no JSON, or one entry is invalid. The node's message says which.";
    "node-merge":
        "HyperShift's controller merges `additional-pull-secret` with the original pull secret into `global-pull-secret`. Until then no node can have the new content. If it takes longer than a minute, HyperShift's controller can't use the pull secret, or does not run. Its log is on the management cluster.";
    "node-provider":
        "The credential provider can't be set up on this node, so it keeps the credentials file; the line has the node's message. The causes: the kubelet is too old; globalps can't set its flags (the message has the reason); or the program can't run in the flags' directory (a mount with `noexec`, a read-only file system, a symbolic link). If the distribution sets the flags itself, set their values in `spec.kubelet.credentialProvider`.";
    "node-provider-config":
        "The kubelet's configuration of credential providers can't be parsed, so globalps adds nothing to it; the message has the file and the line. The node keeps the credentials file. If the node is `Failed` with this reason, that file contains entries of globalps, which can't be removed until you repair it, or the provider is in paths that the syncer's pod does not have: set `spec.kubelet.credentialProvider` to the paths in the message.";
    "node-provider-failed":
        "After a change the syncer runs the installed program as the kubelet does. The program did not return what the new content requires, so the node keeps what it had before; the node's message has the error. When the cause is repaired: `kubectl globalps retry`. If the content is the cause: `kubectl globalps undo`.";
    "node-failed":
        "Another reason. `kubectl globalps status -o wide` has the node's message, and its syncer's log has more.";
    "node-unreadable":
        "The node's NodePullSecret can't be decoded; the line names the field. The node keeps what it has and gets nothing new, and the rollout continues without it. See the object with `kubectl get nodepullsecret NODE -n kube-system -o yaml`. Correct the field, or delete the object: the controller creates it again, and the syncer reports what the node has.";
    "node-unreachable":
        "The Node is NotReady, or its syncer has not responded to its assignment for 2 minutes, or its pod does not run; `kubectl globalps status -o wide` shows which. A syncer that doesn't respond although its pod is Ready may be frozen: delete its pod. Other nodes wait for it for at most 5 minutes. It gets the newest revision when it is back.\n\n`remove --all` and `uninstall` wait for such nodes. `--skip-unreachable` finishes without them: it sets the annotation `globalps.io/abandon: \"true\"` on their NodePullSecrets, and lists the nodes. A node that is back before the cleanup ends is restored like the others. If the pull secret is there again, the annotation ends after half a minute: a later `remove --all` waits for the node again. On the others, the managed entries stay in the credentials file, with the directory `.globalps` beside it. To clean up such a node by hand, [restore it with `globalps-syncer restore`](#restore-one-node-by-hand), which needs no cluster.";
}
