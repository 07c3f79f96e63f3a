package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/credentialprovider"
	"k8s.io/kubernetes/pkg/credentialprovider/plugin"
	"k8s.io/kubernetes/pkg/util/parsers"
)

// pull is the provider's data file, in base64, and the image that a pod pulls.
type pull struct {
	Data  []byte `json:"data"`
	Image string `json:"image"`
	// Empty: a static pod.
	ServiceAccount string `json:"serviceAccount"`
	Namespace      string `json:"namespace"`
	// Replaces the token with the pod's claims; empty: the API server issues none.
	Token *string `json:"token"`
}

type offer struct {
	credential
	// The kubelet records that the credential belongs to the service account, not to the node.
	Scoped bool `json:"scoped"`
}

type offered struct {
	// Empty: the kubelet rejects the name.
	Repository string  `json:"repository"`
	Tries      []offer `json:"tries"`
	Panic      string  `json:"panic,omitempty"`
}

// provide runs the kubelet's own code for each pull, with this configuration of providers, which are real programs. A
// process can register a configuration only once, so only the data file changes between pulls.
func provide(config, programs, data string, in io.Reader, out io.Writer) error {
	var granted *string
	token := func(namespace, name string, asked *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
		switch {
		case granted == nil:
			asked.Status.Token = tokenOf(namespace, name, asked)
		case *granted == "":
			return nil, errors.New("the audience is not allowed")
		default:
			asked.Status.Token = *granted
		}
		return asked, nil
	}
	account := func(namespace, name string) (*v1.ServiceAccount, error) {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)}
		return &v1.ServiceAccount{ObjectMeta: meta}, nil
	}
	if err := plugin.RegisterCredentialProviderPlugins(config, programs, token, account); err != nil {
		return fmt.Errorf("the kubelet would not start: %w", err)
	}
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		var asked pull
		if err := decoder.Decode(&asked); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("could not read a question: %w", err)
		}
		if err := os.WriteFile(data, asked.Data, 0o600); err != nil {
			return fmt.Errorf("could not write the data file: %w", err)
		}
		granted = asked.Token
		if err := encoder.Encode(offers(asked)); err != nil {
			return fmt.Errorf("could not answer: %w", err)
		}
	}
}

func offers(asked pull) (answered offered) {
	defer func() {
		if reason := recover(); reason != nil {
			answered.Panic = fmt.Sprint(reason)
		}
	}()
	answered.Tries = []offer{}
	repository, _, _, err := parsers.ParseImageName(asked.Image)
	if err != nil {
		return answered
	}
	answered.Repository = repository
	keyring := plugin.NewExternalCredentialProviderDockerKeyring(asked.Namespace, "pod", "uid", asked.ServiceAccount)
	tries, _ := keyring.Lookup(repository)
	for _, try := range tries {
		answered.Tries = append(answered.Tries, offerOf(try))
	}
	return answered
}

func offerOf(try credentialprovider.TrackedAuthConfig) offer {
	return offer{
		credential{[]byte(try.Username), []byte(try.Password)},
		try.Source != nil && try.Source.ServiceAccount != nil,
	}
}

// tokenOf returns a token like the API server's, but with an invalid signature.
func tokenOf(namespace, name string, asked *authenticationv1.TokenRequest) string {
	claims := map[string]any{
		"aud": asked.Spec.Audiences,
		"iss": "https://kubernetes.default.svc",
		"sub": "system:serviceaccount:" + namespace + ":" + name,
		"exp": 4102444800,
		"kubernetes.io": map[string]any{
			"namespace":      namespace,
			"serviceaccount": map[string]string{"name": name, "uid": string(asked.UID)},
			"pod":            map[string]string{"name": asked.Spec.BoundObjectRef.Name, "uid": string(asked.Spec.BoundObjectRef.UID)},
		},
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"RS256","kid":"k"}`)) + "." + part(payload) + "." + part([]byte("signature"))
}
