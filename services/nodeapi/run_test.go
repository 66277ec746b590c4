// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/nodeapi"
)

func TestRun(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, nil)
	alice := who{token: "good"}
	post := func(path string) answer { t.Helper(); return r.do(alice, http.MethodPost, path) }
	expect(t, "output", post("/run/ns/p/c?cmd=echo+a+b"), 200, "a b\n")
	expect(t, "with a uid", post("/run/ns/p/p/c?cmd=echo+a+b"), 200, "a b\n")
	if a := post("/run/ns/p/c?cmd=echo+a"); a.header.Get("Content-Type") != "application/json" {
		t.Errorf("type %s", a.header.Get("Content-Type"))
	}
	expect(t, "a failure", post("/run/ns/p/c?cmd=cat+/none"), 500, "command 'cat /none' exited with 1: cat: can't open '/none'")
	expect(t, "a missing executable", post("/run/ns/p/c?cmd=none"), 500, "executable file not found")
	expect(t, "no pod", post("/run/ns/q/c?cmd=true"), 404, "pod does not exist")
	expect(t, "no container", post("/run/ns/p/q?cmd=true"), 500, `container not found ("q")`)
	expect(t, "by get", r.do(alice, http.MethodGet, "/run/ns/p/c?cmd=true"), 405, "")

	// In a form, as old clients send it.
	req, err := http.NewRequest(http.MethodPost, "https://"+address(r.port)+"/run/ns/p/c", strings.NewReader("cmd=echo+form"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer good"}, "Content-Type": {"application/x-www-form-urlencoded"}}
	resp, err := r.client(who{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "form\n" {
		t.Errorf("a form: %q, %v", body, err)
	}
}

func TestCheckpoint(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, nil)
	post := func(path string) answer { t.Helper(); return r.do(who{token: "good"}, http.MethodPost, path) }
	a := post("/checkpoint/ns/p/c?timeout=nonsense&timeout=7")
	var got struct{ Items []string }
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.code != 200 || len(got.Items) != 1 || got.Items[0] != "/checkpoints/p-c-7s" {
		t.Errorf("%d %q, %v", a.code, a.body, err)
	}
	expect(t, "no pod", post("/checkpoint/ns/q/c"), 404, "pod does not exist")
	expect(t, "no container", post("/checkpoint/ns/p/q"), 404, "container q does not exist")
	expect(t, "no number", post("/checkpoint/ns/p/c?timeout=7&timeout=nonsense"), 404, "cannot parse value of timeout parameter")
	expect(t, "a runtime that cannot", post("/checkpoint/ns/p/down"), 500, "checkpointing of ns/p/down failed (no criu)")
	r.configure(func(c *kubeletconfig.Config) { c.Kubelet.FeatureGates = map[string]bool{"ContainerCheckpoint": false} })
	r.Eventually("switched off", func() bool { return post("/checkpoint/ns/p/c").code == 404 })
}

func TestRunningPods(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, nil)
	get := func() string { t.Helper(); return r.do(who{token: "good"}, http.MethodGet, "/runningpods/").body }
	want := `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"p","namespace":"ns","uid":"p"},"spec":{"containers":[{"name":"c","image":"docker.io/fake/shell:latest","resources":{}}]},"status":{}}]}`
	r.Eventually("the pod runs", func() bool { return get() == want })
	r.records.Delete(r.House.Context(), "p")
	r.Eventually("nothing runs", func() bool { return strings.Contains(get(), `"items":[]`) })
}

// TestABrokerThatRestarts is waited for.
func TestABrokerThatRestarts(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, nil)
	r.runtime.Down()
	done := make(chan answer, 1)
	go func() { done <- r.do(who{token: "good"}, http.MethodPost, "/run/ns/p/c?cmd=echo+back") }()
	r.runtime.Up()
	if a := <-done; a.code != 200 || a.body != "back\n" {
		t.Errorf("%d %q", a.code, a.body)
	}
}
