// Program oracle runs the kubelet's and CRI-O's own code on credentials files: it reads one JSON object per line, and
// writes one per line in the same order, until its input ends. With three arguments (the kubelet's configuration of
// credential providers, the directory of their programs, and the file that they read) it runs the kubelet's code for
// credential providers.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/pkg/docker/config"
	"github.com/containers/image/v5/types"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/credentialprovider"
	"k8s.io/kubernetes/pkg/util/parsers"
)

// nowhere is a directory that exists on no machine: there are no helpers and no home.
const nowhere = "/nonexistent"

// request is a file, in base64, and image names.
type request struct {
	Config []byte   `json:"config"`
	Images []string `json:"images"`
}

// credential is in base64, because its parts need not be UTF-8.
type credential struct {
	Username []byte `json:"username"`
	Password []byte `json:"password"`
}

type crio struct {
	// credential, none or error
	Outcome string `json:"outcome"`
	credential
	IdentityToken []byte `json:"identitytoken"`
	// The error, if the outcome is error.
	Message string `json:"message"`
}

type image struct {
	// Empty: the kubelet rejects the name.
	Repository string       `json:"repository"`
	Tries      []credential `json:"tries"`
	// The key of each try, as in the file.
	Keys []string `json:"keys"`
	Crio crio     `json:"crio"`
}

type response struct {
	Accepted bool `json:"accepted"`
	// The entries that the kubelet reads, by the key in the file.
	Auths  map[string]credential `json:"auths"`
	Images []image               `json:"images"`
	// The panic of the readers' code. Other fields may be incomplete then.
	Panic string `json:"panic,omitempty"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if err := isolate(); err != nil {
		return err
	}
	if len(arguments) == 3 {
		return provide(arguments[0], arguments[1], arguments[2], os.Stdin, os.Stdout)
	}
	return serve(os.Stdin, os.Stdout)
}

func serve(in io.Reader, out io.Writer) error {
	file, err := newFile()
	if err != nil {
		return err
	}
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		var asked request
		if err := decoder.Decode(&asked); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("could not read a question: %w", err)
		}
		path, err := file.holding(asked.Config)
		if err != nil {
			return fmt.Errorf("could not write the file: %w", err)
		}
		if err := encoder.Encode(answer(path, asked.Images)); err != nil {
			return fmt.Errorf("could not answer: %w", err)
		}
	}
}

// isolate hides this machine's configuration: no home, no runtime directory, no helper on the path or in the working
// directory. It also discards the readers' logs.
func isolate() error {
	os.Clearenv()
	for _, name := range []string{"HOME", "PATH"} {
		if err := os.Setenv(name, nowhere); err != nil {
			return err
		}
	}
	logrus.SetOutput(io.Discard)
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	return os.Chdir("/")
}

// file is in memory, so that nothing is left of it however the program ends; the readers need a path.
type file struct{ *os.File }

func newFile() (file, error) {
	fd, err := unix.MemfdCreate("config.json", unix.MFD_CLOEXEC)
	if err != nil {
		return file{}, fmt.Errorf("could not make a file in memory: %w", err)
	}
	return file{os.NewFile(uintptr(fd), fmt.Sprintf("/proc/self/fd/%d", fd))}, nil
}

// holding returns the path of a file with the content.
func (f file) holding(content []byte) (string, error) {
	if err := f.Truncate(0); err != nil {
		return "", err
	}
	_, err := f.WriteAt(content, 0)
	return f.Name(), err
}

func answer(path string, names []string) (answered response) {
	defer func() {
		if reason := recover(); reason != nil {
			answered.Panic = fmt.Sprint(reason)
		}
	}()
	answered.Auths, answered.Images = map[string]credential{}, []image{}
	auths, err := credentialprovider.ReadSpecificDockerConfigJSONFile(path)
	answered.Accepted = err == nil
	keyring := &credentialprovider.BasicDockerKeyring{}
	if answered.Accepted {
		for key, entry := range auths {
			answered.Auths[key] = credential{[]byte(entry.Username), []byte(entry.Password)}
			// The keyring ignores the email address and returns it, so it carries the key of each try.
			entry.Email = key
			auths[key] = entry
		}
		keyring.Add(nil, auths)
	}
	for _, name := range names {
		answered.Images = append(answered.Images, look(keyring, path, name))
	}
	return answered
}

func look(keyring *credentialprovider.BasicDockerKeyring, path, name string) image {
	found := image{Tries: []credential{}, Keys: []string{}}
	var err error
	if found.Crio, err = ask(path, name); err != nil {
		found.Crio = crio{Outcome: "error", Message: err.Error()}
	}
	if found.Repository, _, _, err = parsers.ParseImageName(name); err != nil {
		return found
	}
	tries, _ := keyring.Lookup(found.Repository)
	for _, try := range tries {
		found.Tries = append(found.Tries, credential{[]byte(try.Username), []byte(try.Password)})
		found.Keys = append(found.Keys, try.Email)
	}
	return found
}

func ask(path, name string) (crio, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return crio{}, err
	}
	// The registries.conf of this machine may name helpers, so an empty one replaces it.
	context := types.SystemContext{
		AuthFilePath:                path,
		SystemRegistriesConfPath:    os.DevNull,
		SystemRegistriesConfDirPath: nowhere,
	}
	sent, err := config.GetCredentialsForRef(&context, named)
	if err != nil {
		return crio{}, err
	}
	if sent == (types.DockerAuthConfig{}) {
		return crio{Outcome: "none"}, nil
	}
	return crio{
		Outcome:       "credential",
		credential:    credential{[]byte(sent.Username), []byte(sent.Password)},
		IdentityToken: []byte(sent.IdentityToken),
	}, nil
}
