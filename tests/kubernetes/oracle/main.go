// Program oracle answers what a kubelet and CRI-O make of a credentials file, by their own code: one JSON object a
// line in, one a line out.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/pkg/docker/config"
	"github.com/containers/image/v5/types"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/credentialprovider"
	"k8s.io/kubernetes/pkg/util/parsers"
)

// request is a file, in base64, and names of images.
type request struct {
	Config []byte   `json:"config"`
	Images []string `json:"images"`
}

// credential is in base64: neither part need be text.
type credential struct {
	Username []byte `json:"username"`
	Password []byte `json:"password"`
}

type crio struct {
	// credential, none or error
	Outcome string `json:"outcome"`
	credential
}

type image struct {
	// Empty: the kubelet refuses the name.
	Repository string       `json:"repository"`
	Tries      []credential `json:"tries"`
	Crio       crio         `json:"crio"`
}

type response struct {
	Accepted bool    `json:"accepted"`
	Images   []image `json:"images"`
	Panic    string  `json:"panic,omitempty"`
}

func main() {
	logrus.SetOutput(io.Discard)
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve() error {
	// Nothing of this machine may answer: no home, no runtime directory, no helper on the path.
	dir, err := os.MkdirTemp("/dev/shm", "oracle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "DOCKER_CONFIG", "PATH"} {
		os.Setenv(name, filepath.Join(dir, "empty"))
	}
	os.Unsetenv("REGISTRY_AUTH_FILE")
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	decoder := json.NewDecoder(in)
	for {
		var asked request
		if err := decoder.Decode(&asked); err == io.EOF {
			return out.Flush()
		} else if err != nil {
			return err
		}
		if err := encoder.Encode(answer(dir, asked)); err != nil {
			return err
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

func answer(dir string, asked request) (answered response) {
	defer func() {
		if reason := recover(); reason != nil {
			answered.Panic = fmt.Sprint(reason)
		}
	}()
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, asked.Config, 0o600); err != nil {
		panic(err)
	}
	file, err := credentialprovider.ReadSpecificDockerConfigJSONFile(path)
	answered.Accepted = err == nil
	keyring := &credentialprovider.BasicDockerKeyring{}
	if answered.Accepted {
		keyring.Add(nil, file)
	}
	answered.Images = []image{}
	for _, name := range asked.Images {
		answered.Images = append(answered.Images, look(keyring, path, name))
	}
	return answered
}

func look(keyring *credentialprovider.BasicDockerKeyring, path, name string) image {
	found := image{Tries: []credential{}, Crio: crio{Outcome: "error"}}
	repository, _, _, err := parsers.ParseImageName(name)
	if err != nil {
		return found
	}
	found.Repository = repository
	tries, _ := keyring.Lookup(repository)
	for _, try := range tries {
		found.Tries = append(found.Tries, credential{[]byte(try.Username), []byte(try.Password)})
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return found
	}
	sent, err := config.GetCredentialsForRef(&types.SystemContext{AuthFilePath: path}, named)
	switch {
	case err != nil:
	case sent == types.DockerAuthConfig{}:
		found.Crio.Outcome = "none"
	default:
		found.Crio = crio{"credential", credential{[]byte(sent.Username), []byte(sent.Password)}}
	}
	return found
}
