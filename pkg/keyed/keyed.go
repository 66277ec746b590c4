// SPDX-License-Identifier: Apache-2.0

// Package keyed bounds how many at a time work on the same thing: on one disk, one file
// server, one program. What hangs holds up those that ask for its own key and no others. It
// keeps nothing of a key that nobody works on or waits for.
package keyed

import (
	"context"
	"sync"
)

// Limit lets some at a time work on a key.
type Limit struct {
	most int
	mu   sync.Mutex
	keys map[string]*key
}

type key struct {
	places chan struct{}
	users  int // who works on it or waits for it
}

// NewLimit makes a Limit of so many at a time, at least one; of one it is a lock for each key.
func NewLimit(most int) *Limit { return &Limit{most: most, keys: map[string]*key{}} }

// Enter waits for a place at a key. What it returns gives the place back, and is to be called
// once. The error is that of the context: nothing is taken when it has ended.
func (l *Limit) Enter(ctx context.Context, name string) (leave func(), err error) {
	k := l.join(name)
	select {
	case k.places <- struct{}{}:
		leave = func() { <-k.places; l.part(name, k) }
		if err := ctx.Err(); err != nil { // select may take either when both are ready
			leave()
			return nil, err
		}
		return leave, nil
	case <-ctx.Done():
		l.part(name, k)
		return nil, ctx.Err()
	}
}

// Lock waits for a place at a key without a limit of time.
func (l *Limit) Lock(name string) (leave func()) {
	leave, _ = l.Enter(context.Background(), name) // that context never ends
	return leave
}

func (l *Limit) join(name string) *key {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[name]
	if k == nil {
		k = &key{places: make(chan struct{}, l.most)}
		l.keys[name] = k
	}
	k.users++
	return k
}

func (l *Limit) part(name string, k *key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.keys, name)
	}
}
