// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Config of a cache.
type Config struct {
	// Issue asks the API server.
	Issue func(context.Context, Request) (Token, error)
	// Keep stores a token under a key; Drop removes it.
	Keep func(key string, t Token)
	Drop func(key string)
	Now  func() time.Time
	// Renewal is called for a renewal that failed while the old token still serves.
	Renewal func(Request, error)
}

// Cache of tokens. Make it with New; safe for concurrent use.
type Cache struct {
	cfg    Config
	flight singleflight.Group

	mu     sync.Mutex
	tokens map[string]Token
}

// New makes a cache that holds what an earlier life kept.
func New(cfg Config, kept map[string]Token) *Cache {
	c := &Cache{cfg: cfg, tokens: map[string]Token{}}
	for key, t := range kept {
		c.tokens[key] = t
	}
	return c
}

// Get answers with a token that is valid. Requests for the same token at the
// same time are one.
func (c *Cache) Get(ctx context.Context, r Request) (Token, error) {
	key := r.Key()
	c.mu.Lock()
	had, ok := c.tokens[key]
	c.mu.Unlock()
	if ok && had.Fresh(c.cfg.Now(), rand.Float64()) {
		return had, nil
	}
	// The first caller's deadline must not fail the others: it is the API
	// client's own that counts then.
	answer := c.flight.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		t, err := c.cfg.Issue(ctx, r)
		if err == nil {
			t.PodUID = r.PodUID
			c.put(key, t)
		}
		return t, err
	})
	var err error
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case got := <-answer:
		if got.Err == nil {
			return got.Val.(Token), nil
		}
		err = got.Err
	}
	if ok && had.Usable(c.cfg.Now()) {
		c.cfg.Renewal(r, err)
		return had, nil
	}
	return Token{}, fmt.Errorf("token for service account %s/%s: %w", r.Namespace, r.ServiceAccount, err)
}

func (c *Cache) put(key string, t Token) {
	c.mu.Lock()
	c.tokens[key] = t
	c.mu.Unlock()
	c.cfg.Keep(key, t)
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
