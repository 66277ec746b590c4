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

	"github.com/sextant-node/sextant/test/images"
)

// serveImages starts a registry on loopback, which every containerd trusts
// without TLS, with a busybox under two names and two digests.
func serveImages(t *testing.T) (shell, spare, missing string) {
	t.Helper()
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")

	img, err := images.Builder{Source: "."}.Image(t.Context(), images.Busybox)
	if err != nil {
		t.Fatal(err)
	}
	other, err := mutate.Config(img, v1.Config{Cmd: []string{"true"}, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	push(t, srv.URL+"/v2/crisuite/busybox", "1", img)
	push(t, srv.URL+"/v2/crisuite/spare", "1", other)
	return host + "/crisuite/busybox:1", host + "/crisuite/spare:1", host + "/crisuite/missing:1"
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
