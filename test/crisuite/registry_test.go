// SPDX-License-Identifier: Apache-2.0

package crisuite_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/crisuite"
	"github.com/sextant-node/sextant/test/images"
)

// serveImages starts a registry on loopback, which every containerd trusts
// without TLS, with a busybox under three names and as many digests.
func serveImages(t *testing.T) crisuite.Images {
	t.Helper()
	login := &runtimeapi.AuthConfig{Username: "user", Password: "secret"}
	srv := httptest.NewServer(guard(registry.New(registry.Logger(log.New(io.Discard, "", 0))), "/v2/private/", login))
	t.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")

	img, err := images.Builder{Source: "."}.Image(t.Context(), images.Busybox)
	if err != nil {
		t.Fatal(err)
	}
	variant := func(command string) v1.Image {
		other, err := mutate.Config(img, v1.Config{Cmd: []string{command}, Env: []string{"PATH=/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		return other
	}
	push(t, srv.URL+"/v2/crisuite/busybox", "1", img)
	push(t, srv.URL+"/v2/crisuite/spare", "1", variant("true"))
	push(t, strings.Replace(srv.URL, "//", "//"+login.GetUsername()+":"+login.GetPassword()+"@", 1)+"/v2/private/app", "1", variant("false"))
	return crisuite.Images{
		Shell: host + "/crisuite/busybox:1", Spare: host + "/crisuite/spare:1", Missing: host + "/crisuite/missing:1",
		Private: host + "/private/app:1", Login: login,
	}
}

// guard asks for a login below a path.
func guard(next http.Handler, below string, login *runtimeapi.AuthConfig) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if strings.HasPrefix(r.URL.Path, below) && (user != login.GetUsername() || password != login.GetPassword()) {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func push(t *testing.T, base, tag string, img v1.Image) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	layers, err := img.Layers()
	must(err)
	for _, l := range layers {
		digest, err := l.Digest()
		must(err)
		r, err := l.Compressed()
		must(err)
		blob, err := io.ReadAll(r)
		must(err)
		send(t, http.MethodPost, fmt.Sprintf("%s/blobs/uploads/?digest=%s", base, digest), "application/octet-stream", blob)
	}
	digest, err := img.ConfigName()
	must(err)
	config, err := img.RawConfigFile()
	must(err)
	send(t, http.MethodPost, fmt.Sprintf("%s/blobs/uploads/?digest=%s", base, digest), "application/octet-stream", config)
	manifest, err := img.RawManifest()
	must(err)
	mediaType, err := img.MediaType()
	must(err)
	send(t, http.MethodPut, base+"/manifests/"+tag, string(mediaType), manifest)
}

func send(t *testing.T, method, url, mediaType string, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", mediaType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s %s: %s: %s", method, url, resp.Status, text)
	}
}
