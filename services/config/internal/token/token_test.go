// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestFresh(t *testing.T) {
	issued := time.Unix(1_000_000, 0)
	cases := map[string]struct {
		life   time.Duration
		age    time.Duration
		jitter float64
		want   bool
	}{
		"new":                              {time.Hour, 0, 0, true},
		"just before 80 %":                 {time.Hour, 48*time.Minute - time.Second, 0, true},
		"at 80 %":                          {time.Hour, 48 * time.Minute, 0, false},
		"jitter makes it up to 10 s early": {time.Hour, 48*time.Minute - 4*time.Second, 0.5, false},
		"a year, a day old":                {365 * 24 * time.Hour, 24 * time.Hour, 0, false},
		"a year, less than a day old":      {365 * 24 * time.Hour, 24*time.Hour - time.Second, 0, true},
		"expired":                          {time.Hour, 2 * time.Hour, 0, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			token := Token{Expires: issued.Add(c.life), Life: c.life}
			now := issued.Add(c.age)
			if got := token.Fresh(now, issued, c.jitter); got != c.want {
				t.Errorf("fresh %v, want %v", got, c.want)
			}
			// By a clock that is behind, the time that has passed decides.
			behind := 365 * 24 * time.Hour
			if got := token.Fresh(now.Add(-behind), issued.Add(-behind), c.jitter); got != c.want {
				t.Errorf("a year behind: fresh %v, want %v", got, c.want)
			}
			// One that was kept over a restart is had since then.
			if got := token.Fresh(now, now, c.jitter); got != c.want {
				t.Errorf("after a restart: fresh %v, want %v", got, c.want)
			}
		})
	}
}

func TestKeysDiffer(t *testing.T) {
	base := Request{Namespace: "ns", ServiceAccount: "sa", Audiences: []string{"a", "b"}, Expiration: time.Hour, PodName: "p", PodUID: "u"}
	seen := map[string]string{base.Key(): "base"}
	for name, change := range map[string]func(*Request){
		"namespace":       func(r *Request) { r.Namespace = "other" },
		"account":         func(r *Request) { r.ServiceAccount = "other" },
		"audiences":       func(r *Request) { r.Audiences = []string{"a,b"} },
		"quoted audience": func(r *Request) { r.Audiences = []string{`a","b`} },
		"expiration":      func(r *Request) { r.Expiration = 2 * time.Hour },
		"pod":             func(r *Request) { r.PodUID = "v" },
	} {
		r := base
		change(&r)
		if was, ok := seen[r.Key()]; ok {
			t.Errorf("%s and %s share key %s", name, was, r.Key())
		}
		seen[r.Key()] = name
	}
}

// issuer is an API server that counts, and can be told to be away.
type issuer struct {
	mu    sync.Mutex
	now   time.Time
	asked int
	away  error
	gate  chan struct{} // when set, an answer waits for it
	kept  map[string]Token
}

func (i *issuer) config() Config {
	return Config{
		Issue: func(context.Context, Request) (Token, error) {
			i.mu.Lock()
			i.asked++
			n, err, now, gate := i.asked, i.away, i.now, i.gate
			i.mu.Unlock()
			if gate != nil {
				<-gate
			}
			if err != nil {
				return Token{}, err
			}
			return Token{Token: fmt.Sprint("t", n), Expires: now.Add(time.Hour), Life: time.Hour}, nil
		},
		Keep:    func(key string, t Token) { i.mu.Lock(); i.kept[key] = t; i.mu.Unlock() },
		Drop:    func(key string) { i.mu.Lock(); delete(i.kept, key); i.mu.Unlock() },
		Now:     func() time.Time { i.mu.Lock(); defer i.mu.Unlock(); return i.now },
		Renewal: func(Request, error) {},
	}
}

func TestCache(t *testing.T) {
	server := &issuer{now: time.Unix(1000, 0), kept: map[string]Token{}}
	cache := New(server.config(), nil)
	r := Request{Namespace: "ns", ServiceAccount: "sa", PodUID: "u", Expiration: time.Hour}
	get := func(want string) {
		t.Helper()
		got, err := cache.Get(t.Context(), r)
		if err != nil || got.Token != want {
			t.Fatalf("got %q, %v; want %q", got.Token, err, want)
		}
	}
	get("t1")
	get("t1") // from the cache
	server.now = server.now.Add(49 * time.Minute)
	server.away = errors.New("away")
	get("t1") // renewal failed, still valid

	cache = New(server.config(), server.kept) // a restart, offline
	get("t1")
	server.away = nil
	get("t4") // renewed; two attempts failed in between

	server.now = server.now.Add(2 * time.Hour)
	server.away = errors.New("away")
	if _, err := cache.Get(t.Context(), r); err == nil {
		t.Fatal("an expired token was handed out")
	}
	cache.Prune(func(string) bool { return false })
	if len(server.kept) != 0 {
		t.Errorf("expired token still kept: %v", server.kept)
	}
}

// TestAnotherBoot: the clock of a machine that was off says little of how old a token is.
// One of an earlier boot serves only while the API server gives no answer.
func TestAnotherBoot(t *testing.T) {
	resource := schema.GroupResource{Resource: "serviceaccounts"}
	for name, c := range map[string]struct {
		boot   string
		away   error
		silent bool
		want   string // empty for an error
		asked  int
	}{
		"config was restarted":             {boot: "one", want: "t1", asked: 0},
		"the machine was":                  {boot: "two", want: "t2", asked: 1},
		"the API server is away":           {boot: "two", away: errors.New("connection refused"), want: "t1", asked: 1},
		"it is being started":              {boot: "two", away: apierrors.NewServiceUnavailable("not yet"), want: "t1", asked: 1},
		"a load balancer answers":          {boot: "two", away: apierrors.NewGenericServerResponse(404, "post", resource, "sa", "no backend", 0, true), want: "t1", asked: 1},
		"it does not answer":               {boot: "two", silent: true, want: "t1", asked: 1},
		"it refuses":                       {boot: "two", away: apierrors.NewNotFound(resource, "sa"), asked: 1},
		"it refuses, config was restarted": {boot: "one", away: apierrors.NewNotFound(resource, "sa"), want: "t1", asked: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &issuer{now: time.Unix(1000, 0), kept: map[string]Token{}}
				cfg := server.config()
				cfg.Boot = "one"
				r := Request{Namespace: "ns", ServiceAccount: "sa", PodUID: "u", Expiration: time.Hour}
				if _, err := New(cfg, nil).Get(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				server.now, server.away = server.now.Add(time.Minute), c.away
				if c.silent {
					server.gate = make(chan struct{})
				}
				cfg.Boot = c.boot
				cache, began := New(cfg, server.kept), time.Now()
				got, err := cache.Get(t.Context(), r)
				if got.Token != c.want || (err == nil) != (c.want != "") {
					t.Errorf("got %q, %v; want %q", got.Token, err, c.want)
				}
				if asked := server.asked - 1; asked != c.asked {
					t.Errorf("asked %d times, want %d", asked, c.asked)
				}
				if took := time.Since(began); c.silent != (took == silence) || took > silence {
					t.Errorf("took %s", took)
				}
				if c.silent {
					close(server.gate)
					synctest.Wait()
				}
				if c.want == "t2" {
					if got, err := cache.Get(t.Context(), r); err != nil || got.Token != "t2" {
						t.Errorf("then %q, %v: asked for again", got.Token, err)
					}
				}
			})
		})
	}
}

func TestPruneDropsTokensOfPodsThatAreGone(t *testing.T) {
	server := &issuer{now: time.Unix(1000, 0), kept: map[string]Token{}}
	cache := New(server.config(), nil)
	for _, uid := range []string{"stays", "goes"} {
		if _, err := cache.Get(t.Context(), Request{PodUID: uid, Expiration: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	cache.Prune(func(uid string) bool { return uid == "goes" })
	if len(server.kept) != 1 {
		t.Fatalf("kept %v, want one", server.kept)
	}
	for _, token := range server.kept {
		if token.PodUID != "stays" {
			t.Errorf("kept the token of %s", token.PodUID)
		}
	}
}

func TestOneRequestForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &issuer{now: time.Unix(1000, 0), kept: map[string]Token{}, gate: make(chan struct{})}
		cache := New(server.config(), nil)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if _, err := cache.Get(t.Context(), Request{PodUID: "u", Expiration: time.Hour}); err != nil {
					t.Error(err)
				}
			})
		}
		// A caller that gives up does not spoil the answer for the others.
		gone, cancel := context.WithCancel(t.Context())
		group.Go(func() {
			if _, err := cache.Get(gone, Request{PodUID: "u", Expiration: time.Hour}); !errors.Is(err, context.Canceled) {
				t.Errorf("caller that gave up got %v", err)
			}
		})
		synctest.Wait() // all of them wait now
		cancel()
		close(server.gate)
		group.Wait()
		if server.asked != 1 {
			t.Errorf("asked %d times", server.asked)
		}
	})
}
