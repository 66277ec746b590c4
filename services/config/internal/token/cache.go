// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/sextant-node/sextant/pkg/apianswer"
)

// Config of a cache.
type Config struct {
	// Issue asks the API server.
	Issue func(context.Context, Request) (Token, error)
	// Keep stores a token under a key; Drop removes it.
	Keep func(key string, t Token)
	Drop func(key string)
	Now  func() time.Time
	// Boot is the kernel's boot ID.
	Boot string
	// Renewal is called for a renewal that failed while the old token still serves.
	Renewal func(Request, error)
}

// Cache of tokens. Make it with New; safe for concurrent use.
type Cache struct {
	cfg    Config
	flight singleflight.Group

	mu     sync.Mutex
	tokens map[string]held
}

// held is a token, and since when this process has it: by a clock that is behind, its end
// is far away.
type held struct {
	Token
	since time.Time
}

// silence is how long the API server is waited for before a token of an earlier boot
// serves.
const silence = 2 * time.Second

var errSilent = fmt.Errorf("the API server did not answer within %s", silence)

// New makes a cache that holds what an earlier life kept.
func New(cfg Config, kept map[string]Token) *Cache {
	c := &Cache{cfg: cfg, tokens: map[string]held{}}
	for key, t := range kept {
		c.tokens[key] = held{t, cfg.Now()}
	}
	return c
}

// Get answers with a token that is valid. One of an earlier boot, of which a clock that
// was wrong since may say that, serves only while the API server gives no answer.
// Requests for the same token at the same time are one.
func (c *Cache) Get(ctx context.Context, r Request) (Token, error) {
	key := r.Key()
	c.mu.Lock()
	had, ok := c.tokens[key]
	c.mu.Unlock()
	earlier := ok && had.Boot != c.cfg.Boot
	if ok && !earlier && had.Fresh(c.cfg.Now(), had.since, rand.Float64()) {
		return had.Token, nil
	}
	// The first caller's deadline must not fail the others: it is the API
	// client's own that counts then.
	answer := c.flight.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		t, err := c.cfg.Issue(ctx, r)
		if err == nil {
			t.PodUID, t.Boot = r.PodUID, c.cfg.Boot
			c.put(key, t)
		}
		return t, err
	})
	var silent <-chan time.Time
	if earlier {
		silent = time.After(silence)
	}
	var err error
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-silent:
		err = errSilent
	case got := <-answer:
		if got.Err == nil {
			return got.Val.(Token), nil
		}
		err = got.Err
	}
	if ok && had.Usable(c.cfg.Now()) && !(earlier && refused(err)) {
		c.cfg.Renewal(r, err)
		return had.Token, nil
	}
	return Token{}, fmt.Errorf("token for service account %s/%s: %w", r.Namespace, r.ServiceAccount, err)
}

func (c *Cache) put(key string, t Token) {
	c.mu.Lock()
	c.tokens[key] = held{t, c.cfg.Now()}
	c.mu.Unlock()
	c.cfg.Keep(key, t)
}

// refused reports whether the API server answered that there is no token, and not that it
// cannot tell now, or whom it does not know.
func refused(err error) bool {
	s, answered := apianswer.Of(err)
	return answered && s.Code >= 400 && s.Code < 500 && s.Code != http.StatusTooManyRequests && s.Code != http.StatusUnauthorized
}

// Prune forgets tokens that expired, and those of pods that are gone.
func (c *Cache) Prune(gone func(podUID string) bool) {
	now := c.cfg.Now()
	var dropped []string
	c.mu.Lock()
	for key, t := range c.tokens {
		if !t.Usable(now) || gone(t.PodUID) {
			delete(c.tokens, key)
			dropped = append(dropped, key)
		}
	}
	c.mu.Unlock()
	for _, key := range dropped {
		c.cfg.Drop(key)
	}
}
