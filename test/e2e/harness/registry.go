// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sextant-node/sextant/test/images"
)

// RegistryHost is the host part of image names that the lab's registry serves.
const RegistryHost = "registry.sextant.test"

// Registry is an OCI registry on loopback that can be told to misbehave, one
// repository at a time. Repositories are named without host and tag: "hello".
type Registry struct {
	pull, push *httptest.Server

	mu       sync.Mutex
	rules    map[string]rule
	requests map[string][]string
}

// rule is what happens to pulls of one repository.
type rule struct {
	withheld       bool
	status         int           // answer to everything, if not zero
	user, password string        // demanded, if user is set
	corrupt        bool          // blobs differ from their digest
	stall          chan struct{} // requests wait until it is closed
}

// StartRegistry returns the registry of the lab, serving the hello image. The
// rules that a test sets are lifted when it ends.
func StartRegistry(t testing.TB) *Registry {
	t.Helper()
	lab := The(t)
	r := lab.registry.get(t, "start the registry", func() (*Registry, error) {
		store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
		r := &Registry{rules: map[string]rule{}, requests: map[string][]string{}}
		r.pull, r.push = httptest.NewServer(r.apply(store)), httptest.NewServer(store)
		lab.atEnd(func(context.Context) error {
			r.liftAll()
			r.pull.CloseClientConnections()
			r.pull.Close()
			r.push.Close()
			return nil
		})
		img, err := images.Builder{Source: lab.Source}.Image(context.Background(), images.Hello)
		if err != nil {
			return nil, err
		}
		return r, r.store("hello:v1", img)
	})
	t.Cleanup(r.liftAll)
	return r
}

// URL is the address pulls go to.
func (r *Registry) URL() string { return r.pull.URL }

// Name turns "hello:v1" into the name a pod uses.
func (r *Registry) Name(ref string) string { return RegistryHost + "/" + ref }

// Push stores an image under a reference like "hello:v2", whatever the rules.
func (r *Registry) Push(t testing.TB, ref string, img v1.Image) {
	t.Helper()
	if err := r.store(ref, img); err != nil {
		t.Fatal(err)
	}
}

func (r *Registry) store(ref string, img v1.Image) error {
	tag, err := name.NewTag(strings.TrimPrefix(r.push.URL, "http://")+"/"+ref, name.Insecure)
	if err != nil {
		return err
	}
	if err := remote.Write(tag, img); err != nil {
		return fmt.Errorf("push %s: %w", ref, err)
	}
	return nil
}

// Withhold makes a repository look empty.
func (r *Registry) Withhold(repo string) { r.change(repo, func(x *rule) { x.withheld = true }) }

// Fail answers every request for a repository with an HTTP status.
func (r *Registry) Fail(repo string, status int) { r.change(repo, func(x *rule) { x.status = status }) }

// Corrupt makes the blobs of a repository differ from their digests.
func (r *Registry) Corrupt(repo string) { r.change(repo, func(x *rule) { x.corrupt = true }) }

// RequireLogin demands basic authentication for a repository.
func (r *Registry) RequireLogin(repo, user, password string) {
	r.change(repo, func(x *rule) { x.user, x.password = user, password })
}

// Stall lets requests for a repository wait until Release.
func (r *Registry) Stall(repo string) {
	r.change(repo, func(x *rule) {
		if x.stall == nil {
			x.stall = make(chan struct{})
		}
	})
}

// Release lifts every rule of a repository; stalled requests go on.
func (r *Registry) Release(repo string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.rules[repo].stall; s != nil {
		close(s)
	}
	delete(r.rules, repo)
}

// Requests lists the requests for a repository so far, as "GET /v2/…".
func (r *Registry) Requests(repo string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests[repo])
}

func (r *Registry) liftAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.rules {
		if x.stall != nil {
			close(x.stall)
		}
	}
	clear(r.rules)
}

func (r *Registry) change(repo string, f func(*rule)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.rules[repo]
	f(&x)
	r.rules[repo] = x
}

// apply puts the rules before the registry.
func (r *Registry) apply(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		repo := repository(req.URL.Path)
		r.mu.Lock()
		x := r.rules[repo]
		if repo != "" {
			r.requests[repo] = append(r.requests[repo], req.Method+" "+req.URL.Path)
		}
		r.mu.Unlock()
		if x.stall != nil {
			select {
			case <-x.stall:
			case <-req.Context().Done():
				return
			}
		}
		user, password, _ := req.BasicAuth()
		switch {
		case x.user != "" && (!equal(user, x.user) || !equal(password, x.password)):
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			answer(w, http.StatusUnauthorized, "UNAUTHORIZED")
		case x.status != 0:
			answer(w, x.status, "UNAVAILABLE")
		case x.withheld:
			answer(w, http.StatusNotFound, "MANIFEST_UNKNOWN")
		case x.corrupt && req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/blobs/"):
			next.ServeHTTP(&corrupter{ResponseWriter: w}, req)
		default:
			next.ServeHTTP(w, req)
		}
	})
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func answer(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q}]}`, code) // the client may have gone
}

// repository finds the name in /v2/NAME/manifests/… and /v2/NAME/blobs/….
func repository(path string) string {
	rest, ok := strings.CutPrefix(path, "/v2/")
	if !ok {
		return ""
	}
	for _, kind := range []string{"/manifests/", "/blobs/", "/tags/"} {
		if repo, _, ok := strings.Cut(rest, kind); ok {
			return repo
		}
	}
	return ""
}

// corrupter flips a bit of the first byte of a body.
type corrupter struct {
	http.ResponseWriter
	done bool
}

func (c *corrupter) Write(b []byte) (int, error) {
	if c.done || len(b) == 0 {
		return c.ResponseWriter.Write(b)
	}
	c.done = true
	flipped := slices.Clone(b)
	flipped[0] ^= 1
	return c.ResponseWriter.Write(flipped)
}
