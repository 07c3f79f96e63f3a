// Command flux does with a release what Flux's helm-controller does with Helm's SDK: it applies the definitions in the chart's crds
// directory by a policy (Skip, Create, CreateReplace) and keeps Helm from doing so. It does not wait for pods, as with disableWait.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/cli/values"
	"helm.sh/helm/v4/pkg/getter"
	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/resource"
)

const timeout = 3 * time.Minute

func main() {
	namespace := flag.String("n", "", "namespace of the release")
	file := flag.String("f", "", "file with values")
	policy := flag.String("crds", "", "Skip, Create or CreateReplace; empty: Flux's default")
	flag.Parse()
	if err := run(*namespace, *file, *policy, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(namespace, file, policy string, args []string) error {
	settings := cli.New()
	settings.SetNamespace(namespace)
	config := new(action.Configuration)
	if err := config.Init(settings.RESTClientGetter(), namespace, "secret"); err != nil {
		return err
	}
	command, name := args[0], args[1]
	switch command {
	case "rollback":
		rollback := action.NewRollback(config)
		rollback.Timeout, rollback.WaitStrategy = timeout, kube.HookOnlyStrategy
		return rollback.Run(name)
	case "uninstall":
		uninstall := action.NewUninstall(config)
		uninstall.Timeout, uninstall.WaitStrategy = timeout, kube.StatusWatcherStrategy
		_, err := uninstall.Run(name)
		return err
	}
	of, err := loader.Load(args[2])
	if err != nil {
		return err
	}
	options := values.Options{}
	if file != "" {
		options.ValueFiles = []string{file}
	}
	set, err := options.MergeValues(getter.All(settings))
	if err != nil {
		return err
	}
	if policy == "" {
		policy = map[string]string{"install": "Create", "upgrade": "Skip"}[command]
	}
	if err := applyDefinitions(config, of, policy); err != nil {
		return err
	}
	switch command {
	case "install":
		install := action.NewInstall(config)
		install.ReleaseName, install.Namespace, install.CreateNamespace = name, namespace, true
		install.SkipCRDs, install.Timeout, install.WaitStrategy = true, timeout, kube.HookOnlyStrategy
		_, err = install.Run(of, set)
	case "upgrade":
		upgrade := action.NewUpgrade(config)
		upgrade.Namespace, upgrade.SkipCRDs = namespace, true
		upgrade.Timeout, upgrade.WaitStrategy = timeout, kube.HookOnlyStrategy
		_, err = upgrade.Run(name, of, set)
	default:
		err = fmt.Errorf("unknown command %s", command)
	}
	return err
}

func applyDefinitions(config *action.Configuration, of *chart.Chart, policy string) error {
	if policy == "Skip" {
		return nil
	}
	for _, object := range of.CRDObjects() {
		resources, err := config.KubeClient.Build(bytes.NewReader(object.File.Data), false)
		if err != nil {
			return err
		}
		err = resources.Visit(func(info *resource.Info, err error) error {
			if err != nil {
				return err
			}
			helper := resource.NewHelper(info.Client, info.Mapping)
			_, err = helper.Create(info.Namespace, true, info.Object)
			if apierrors.IsAlreadyExists(err) {
				if policy != "CreateReplace" {
					return nil
				}
				_, err = helper.Replace(info.Namespace, info.Name, true, info.Object)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
