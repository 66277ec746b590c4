// SPDX-License-Identifier: Apache-2.0

package credprovider

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// world has plugins that are shell scripts and count their runs.
type world struct {
	*Plugins
	t        *testing.T
	dir      string
	accounts *accounts
	clock    *clocktesting.FakeClock
	who      Subject
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), clock: clocktesting.NewFakeClock(time.Now()), accounts: &accounts{}}
	w.Plugins = New(Deps{Accounts: w.accounts, Clock: w.clock, Log: slog.New(slog.DiscardHandler)})
	return w
}

func (w *world) write(name, content string, mode os.FileMode) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(content), mode); err != nil {
		w.t.Fatal(err)
	}
}

// plugin makes a program that answers.
func (w *world) plugin(name, answer string) {
	w.t.Helper()
	w.write(name, fmt.Sprintf("#!/bin/sh\ncat >%[1]s/%[2]s.request\necho run >>%[1]s/%[2]s.runs\n%[3]s\n", w.dir, name, answer), 0o755)
}

func (w *world) runs(name string) int {
	content, _ := os.ReadFile(filepath.Join(w.dir, name+".runs"))
	return strings.Count(string(content), "run")
}

func says(cacheKey, user string) string {
	return fmt.Sprintf(`echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":%q,"auth":{"*.cloud.example":{"username":%q,"password":"'"$SECRET"'"}}}'`, cacheKey, user)
}

func (w *world) configure(providers ...string) Config {
	w.t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n")
	for _, name := range providers {
		fmt.Fprintf(&b, "- name: %s\n  matchImages: ['*.cloud.example']\n  defaultCacheDuration: 1h\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  env: [{name: SECRET, value: s3}]\n", name)
	}
	w.write("config.yaml", b.String(), 0o644)
	return Config{Path: filepath.Join(w.dir, "config.yaml"), BinDir: w.dir, Tokens: true}
}

func (w *world) users(cfg Config, image string) string {
	w.t.Helper()
	repository, _, _ := strings.Cut(image, ":")
	var users []string
	for _, a := range w.Keyring(w.t.Context(), cfg, w.who, image, repository).Lookup(repository) {
		users = append(users, a.Username+"/"+a.Password)
	}
	return strings.Join(users, " ")
}

func TestAsksThePlugin(t *testing.T) {
	w := newWorld(t)
	w.plugin("cloud", says("Registry", "robot"))
	cfg := w.configure("cloud")
	if got := w.users(cfg, "a.cloud.example/app:1"); got != "robot/s3" {
		t.Errorf("got %q", got)
	}
	request, err := os.ReadFile(filepath.Join(w.dir, "cloud.request"))
	if want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"a.cloud.example/app:1"}`; err != nil || string(request) != want {
		t.Errorf("it was asked %s, %v", request, err)
	}
	if got := w.users(cfg, "docker.io/library/nginx:1"); got != "" || w.runs("cloud") != 1 {
		t.Errorf("an image that does not match: %q, %d runs", got, w.runs("cloud"))
	}
	if got := newWorld(t).users(Config{}, "a.cloud.example/app:1"); got != "" {
		t.Errorf("without a configuration: %q", got)
	}
}

func TestRepairedConfiguration(t *testing.T) {
	w := newWorld(t)
	w.plugin("cloud", says("Registry", "robot"))
	cfg := w.configure("cloud")
	w.write("config.yaml", "nonsense: [", 0o644)
	if got := w.users(cfg, "a.cloud.example/app:1"); got != "" {
		t.Errorf("with a broken configuration: %q", got)
	}
	w.configure("cloud")
	if got := w.users(cfg, "a.cloud.example/app:1"); got != "robot/s3" {
		t.Errorf("after its repair: %q", got)
	}
}

func TestCaches(t *testing.T) {
	for _, tc := range []struct {
		key  string
		runs int // for two images of one registry and one of another
	}{{"Image", 3}, {"Registry", 2}, {"Global", 1}} {
		w := newWorld(t)
		w.plugin("cloud", says(tc.key, "robot"))
		cfg := w.configure("cloud")
		for range 2 {
			for _, image := range []string{"a.cloud.example/x:1", "a.cloud.example/y:1", "b.cloud.example/x:1"} {
				if got := w.users(cfg, image); got != "robot/s3" {
					t.Errorf("%s: %q", image, got)
				}
			}
		}
		if got := w.runs("cloud"); got != tc.runs {
			t.Errorf("%s: %d runs, want %d", tc.key, got, tc.runs)
		}
		w.clock.Step(time.Hour)
		w.users(cfg, "a.cloud.example/x:1")
		if got := w.runs("cloud"); got != tc.runs+1 {
			t.Errorf("%s: %d runs after the time was over, want %d", tc.key, got, tc.runs+1)
		}
	}
}

// TestManyPodsAtOnce: of a plugin no more runs are under way than have a place, and who has
// waited for one takes the answer that has come meanwhile.
func TestManyPodsAtOnce(t *testing.T) {
	w := newWorld(t)
	gate, began := filepath.Join(w.dir, "gate"), filepath.Join(w.dir, "began")
	pipe := func(path string) *os.File {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() }) // only read
		return f
	}
	for _, fifo := range []string{gate, began} {
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	beginnings := pipe(began)
	// A run tells that it has begun, and ends once the gate is open.
	w.plugin("cloud", "echo >"+began+"\n: <"+gate+"\n"+says("Registry", "robot"))
	cfg := w.configure("cloud")
	var pods sync.WaitGroup
	for i := range 5 * maxRuns {
		pods.Go(func() {
			if got := w.users(cfg, fmt.Sprintf("a.cloud.example/app%d:1", i)); got != "robot/s3" {
				t.Errorf("got %q", got)
			}
		})
	}
	if _, err := io.ReadFull(beginnings, make([]byte, maxRuns)); err != nil {
		t.Fatal(err)
	}
	pipe(gate)
	pods.Wait()
	if got := w.runs("cloud"); got != maxRuns {
		t.Errorf("%d runs, want %d", got, maxRuns)
	}
	soon, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for range maxRuns {
		if _, err := w.places.Enter(soon, "cloud"); err != nil {
			t.Fatalf("a place was not given back: %v", err)
		}
	}
}

// TestWithoutAPlace: a pull that is given up while it waits for a plugin's other runs runs none.
func TestWithoutAPlace(t *testing.T) {
	w := newWorld(t)
	w.plugin("cloud", says("Image", "robot"))
	cfg := w.configure("cloud")
	for range maxRuns {
		leave, err := w.enter(t.Context(), "cloud")
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if auths := w.Keyring(ctx, cfg, w.who, "a.cloud.example/x:1", "a.cloud.example/x").Lookup("a.cloud.example/x"); len(auths) > 0 || w.runs("cloud") > 0 {
		t.Errorf("%d credentials, %d runs", len(auths), w.runs("cloud"))
	}
}

func TestBadPluginsHarmNobody(t *testing.T) {
	for name, answer := range map[string]string{
		"fails": "echo boom >&2; exit 1", "nonsense": "echo nonsense", "silent": "", "another kind": `echo '{"kind":"Pod","apiVersion":"v1"}'`,
		"bad key type": says("Never", "x"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.plugin("bad", answer)
			w.plugin("good", says("Image", "robot"))
			if got := w.users(w.configure("bad", "good"), "a.cloud.example/x:1"); got != "robot/s3" {
				t.Errorf("got %q", got)
			}
		})
	}
	w := newWorld(t)
	w.plugin("good", says("Image", "robot"))
	if got := w.users(w.configure("missing", "good"), "a.cloud.example/x:1"); got != "robot/s3" {
		t.Errorf("with a plugin that is not there: %q", got)
	}
}

func TestLoad(t *testing.T) {
	const good = "- {name: a, matchImages: [x.example], defaultCacheDuration: 1m, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n"
	for _, tc := range []struct{ name, config, err string }{
		{"good", "providers:\n" + good, ""},
		{"none", "providers: []\n", "providers: at least one"},
		{"unknown field", "provider: []\n", `unknown field "provider"`},
		{"twice", "providers:\n" + good + good, `providers[1].name: "a" is there twice`},
		{"path", "providers: [{name: ../a, matchImages: [x], defaultCacheDuration: 1m, apiVersion: credentialprovider.kubelet.k8s.io/v1}]\n", "providers[0].name"},
		{"no images", "providers: [{name: a, defaultCacheDuration: 1m, apiVersion: credentialprovider.kubelet.k8s.io/v1}]\n", "providers[0].matchImages"},
		{"no duration", "providers: [{name: a, matchImages: [x], apiVersion: credentialprovider.kubelet.k8s.io/v1}]\n", "providers[0].defaultCacheDuration"},
		{"version", "providers: [{name: a, matchImages: [x], defaultCacheDuration: 1m, apiVersion: v2}]\n", "providers[0].apiVersion"},
		{"tokens", tokens("serviceAccountTokenAudience: x, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [a/b], optionalServiceAccountAnnotationKeys: [c]"), ""},
		{"tokens without an audience", tokens("cacheType: Token, requireServiceAccount: true"), "providers[0].tokenAttributes.serviceAccountTokenAudience: required"},
		{"tokens without a cache type", tokens("serviceAccountTokenAudience: x, requireServiceAccount: true"), "tokenAttributes.cacheType"},
		{"tokens with another cache type", tokens("serviceAccountTokenAudience: x, cacheType: Pod, requireServiceAccount: true"), `cacheType: "Pod"`},
		{"tokens for whom", tokens("serviceAccountTokenAudience: x, cacheType: Token"), "tokenAttributes.requireServiceAccount: required"},
		{"annotations of nobody", tokens("serviceAccountTokenAudience: x, cacheType: Token, requireServiceAccount: false, requiredServiceAccountAnnotationKeys: [a]"), "requireServiceAccount must be true"},
		{"annotations twice", tokens("serviceAccountTokenAudience: x, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [a, a]"), "requiredServiceAccountAnnotationKeys[1]"},
		{"annotations both ways", tokens("serviceAccountTokenAudience: x, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [a], optionalServiceAccountAnnotationKeys: [a]"), "both required and optional"},
		{"annotations that are none", tokens("serviceAccountTokenAudience: x, cacheType: Token, requireServiceAccount: true, optionalServiceAccountAnnotationKeys: ['a b']"), "optionalServiceAccountAnnotationKeys[0]"},
		{"tokens for old plugins", strings.Replace(tokens("serviceAccountTokenAudience: x, cacheType: Token, requireServiceAccount: true"), "kubelet.k8s.io/v1,", "kubelet.k8s.io/v1beta1,", 1), "only with apiVersion"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.write("config.yaml", "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n"+tc.config, 0o644)
			w.write("README", "not a configuration", 0o644)
			for _, path := range []string{w.dir, filepath.Join(w.dir, "config.yaml")} {
				_, err := Load(path)
				if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
					t.Errorf("%s: error %v, want %q", path, err, tc.err)
				}
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestAnswersAreBounded(t *testing.T) {
	var c capped
	for range 3 {
		if n, err := c.Write(make([]byte, maxAnswer/2+1)); n != maxAnswer/2+1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if c.Len() != maxAnswer {
		t.Errorf("kept %d bytes", c.Len())
	}
}
