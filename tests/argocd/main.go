// Command argocd synchronizes a cluster with the objects in a file, by Argo CD's sync engine, as an Application with automatic pruning
// does, and prints what the engine says of each object. What the file no longer has is pruned; an empty file removes everything.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/engine"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/sync/common"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// tracking is the annotation by which the engine knows the objects of the application.
	tracking = "argocd.argoproj.io/tracking-id"
	deadline = 3 * time.Minute
)

func main() {
	if err := run(os.Getenv("KUBECONFIG"), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, application, file string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	wanted, err := kube.SplitYAML(text)
	if err != nil {
		return err
	}
	for _, object := range wanted {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[tracking] = application
		object.SetAnnotations(annotations)
	}
	live := cache.NewClusterCache(config, cache.SetLogr(logr.Discard()),
		cache.SetPopulateResourceInfoHandler(func(object *unstructured.Unstructured, _ bool) (any, bool) {
			of := object.GetAnnotations()[tracking]
			return of, of != ""
		}))
	synchronizer := engine.NewEngine(config, live, engine.WithLogr(logr.Discard()))
	stop, err := synchronizer.Run()
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	isOurs := func(resource *cache.Resource) bool { return resource.Info == application }
	results, err := synchronizer.Sync(ctx, wanted, isOurs, "1", "default",
		sync.WithPrune(true), sync.WithLogr(logr.Discard()))
	failed := 0
	for _, result := range results {
		fmt.Printf("%s\t%s\t%s\n", result.ResourceKey.String(), result.Status, result.Message)
		if result.Status == common.ResultCodeSyncFailed {
			failed++
		}
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d objects failed", failed)
	}
	return err
}
