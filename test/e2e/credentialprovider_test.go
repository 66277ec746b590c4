// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

const (
	// ecrHost is a registry of AWS, by the name that its credential provider asks for.
	ecrHost = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
	ecrRepo = "private"
)

// TestCredentialProvider: images of a registry that wants a password, which the credential
// provider of AWS has from the cloud, beside the reference kubelet. It is asked once for two
// pods, as its answer says; without the plugin the pull is refused.
func TestCredentialProvider(t *testing.T) {
	lab, registry := harness.The(t), harness.StartRegistry(t)
	plugins := filepath.Join(lab.Dir, "credential-providers") // the services' users may enter it
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", plugins+"/", "k8s.io/cloud-provider-aws/cmd/ecr-credential-provider")
	build.Dir = "../env/credential-provider"
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	img, err := images.Builder{Source: lab.Source}.Image(t.Context(), images.Hello)
	if err != nil {
		t.Fatal(err)
	}
	registry.Push(t, ecrRepo+":v1", img)
	const password = "by the hour"
	registry.RequireLogin(ecrRepo, "AWS", password)
	t.Cleanup(func() { registry.Release(ecrRepo) })

	cp := harness.StartControlPlane(t)
	seen := observe(t, cp)
	look := func(start func(harness.NodeOptions) *harness.Place) string {
		cloud := &ecr{password: password}
		server := httptest.NewServer(cloud)
		t.Cleanup(server.Close)
		a := newAgent(t, start(harness.NodeOptions{ControlPlane: cp, Flags: []string{
			"--image-credential-provider-bin-dir=" + plugins, "--image-credential-provider-config=" + providers(t, plugins, server.URL),
		}}), cp, seen)
		if err := a.place.Runtime.SetRegistry(ecrHost, registry.URL()); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"first", "second"} {
			a.make(a.private(name))
			a.ready(name)
		}
		text := fmt.Sprintf("the cloud was asked %d times for two pods\n", cloud.asked.Load())
		cloud.refuses.Store(true)
		// The answer for this host is kept; of another one the cloud is asked.
		other := a.private("refused")
		other.Spec.Containers[0].Image = strings.Replace(other.Spec.Containers[0].Image, "1234", "4321", 1)
		if err := a.place.Runtime.SetRegistry(strings.Replace(ecrHost, "1234", "4321", 1), registry.URL()); err != nil {
			t.Fatal(err)
		}
		a.make(other)
		return text + a.waits("refused") + "\n"
	}
	want := look(func(o harness.NodeOptions) *harness.Place { return &harness.StartReference(t, o).Place })
	got := look(func(o harness.NodeOptions) *harness.Place { return &harness.StartNode(t, o).Place })
	if t.Log(want); got != want {
		t.Errorf("Sextant:\n%s\nthe kubelet:\n%s", got, want)
	}
}

// private is a pod whose image is in the registry that wants a password.
func (a *agent) private(name string) *corev1.Pod {
	p := a.pod(name)
	p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = ecrHost+"/"+ecrRepo+":v1", corev1.PullAlways
	return p
}

// waits is why the container of a pod waits for its image.
func (a *agent) waits(name string) (why string) {
	a.Helper()
	harness.Eventually(a, usual, name+" to be refused", func(context.Context) error {
		p := a.seen.pod(a.ns, name)
		if p == nil || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil {
			return errors.New("it does not wait")
		}
		if why = p.Status.ContainerStatuses[0].State.Waiting.Reason; why != "ErrImagePull" && why != "ImagePullBackOff" {
			return errors.New(why)
		}
		why = "ErrImagePull"
		return nil
	})
	return name + ": " + why
}

// providers is a configuration with the plugin alone, whose cloud is at an address.
func providers(t *testing.T, dir, cloud string) string {
	t.Helper()
	path := filepath.Join(dir, strings.TrimPrefix(cloud, "http://")+".yaml")
	text := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr-credential-provider
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.dkr.ecr.*.amazonaws.com"]
  defaultCacheDuration: 12h
  env:
  - {name: AWS_ENDPOINT_URL_ECR, value: %q}
  - {name: AWS_ACCESS_KEY_ID, value: key}
  - {name: AWS_SECRET_ACCESS_KEY, value: secret}
  - {name: AWS_EC2_METADATA_DISABLED, value: "true"}
`, cloud)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// ecr answers the one request that the plugin makes, GetAuthorizationToken.
type ecr struct {
	password string
	asked    atomic.Int32
	refuses  atomic.Bool
}

func (e *ecr) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if e.refuses.Load() || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetAuthorizationToken") {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"__type":"AccessDeniedException"}`)) // the plugin may have ended
		return
	}
	e.asked.Add(1)
	_ = json.NewEncoder(w).Encode(map[string]any{"authorizationData": []map[string]any{{ // the plugin may have ended
		"authorizationToken": base64.StdEncoding.EncodeToString([]byte("AWS:" + e.password)),
		"expiresAt":          time.Now().Add(12 * time.Hour).Unix(),
	}}})
}
