// Runs the phases of `kubeadm upgrade node` that may rewrite the kubelet's flags, kubelet-config and post-upgrade, on a node's
// files and without a cluster. They decide themselves what they rewrite, which differs between releases.
package main

import (
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	phases "k8s.io/kubernetes/cmd/kubeadm/app/cmd/phases/upgrade"
	"k8s.io/kubernetes/cmd/kubeadm/app/cmd/phases/workflow"
	configutil "k8s.io/kubernetes/cmd/kubeadm/app/util/config"
)

// node is what the two phases read of an upgrade. Anything else would need a cluster, and panics.
type node struct {
	phases.Data
	cfg                   *kubeadmapi.InitConfiguration
	client                clientset.Interface
	kubeletDir, backupDir string
}

func (n *node) InitCfg() *kubeadmapi.InitConfiguration { return n.cfg }
func (n *node) Client() clientset.Interface            { return n.client }
func (n *node) KubeletDir() string                     { return n.kubeletDir }
func (n *node) KubeConfigDir() string                  { return n.backupDir }
func (n *node) PatchesDir() string                     { return "" }
func (n *node) DryRun() bool                           { return false }
func (n *node) OutputWriter() io.Writer                { return os.Stdout }

func upgrade(kubeletDir, backupDir string) error {
	cfg, err := configutil.DefaultedStaticInitConfiguration()
	if err != nil {
		return err
	}
	// Up to 1.36 a phase removes an annotation of the node.
	name := cfg.NodeRegistration.Name
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	data := &node{cfg: cfg, client: fake.NewClientset(object), kubeletDir: kubeletDir, backupDir: backupDir}
	for _, phase := range []workflow.Phase{phases.NewKubeletConfigPhase(), phases.NewPostUpgradePhase()} {
		if err := phase.Run(data); err != nil {
			return fmt.Errorf("phase %s: %w", phase.Name, err)
		}
	}
	return nil
}

func main() {
	if err := upgrade(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
