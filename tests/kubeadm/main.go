// Rewrites a kubelet's flags file as kubeadm does when it upgrades a node. Further arguments name other flags to remove.
package main

import (
	"fmt"
	"os"

	"k8s.io/kubernetes/cmd/kubeadm/app/phases/upgrade"
)

func main() {
	kubeletDir, backupDir := os.Args[1], os.Args[2]
	unwanted := []string{"pod-infra-container-image"}
	if len(os.Args) > 3 {
		unwanted = os.Args[3:]
	}
	if err := upgrade.RemoveKubeletArgsFromFile(kubeletDir, backupDir, unwanted, false, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
