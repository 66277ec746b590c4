// SPDX-License-Identifier: Apache-2.0

// Package fault has named points at which a test makes a service fail, stop or
// die. A point costs one atomic load while no fault is set, which is always so
// outside tests.
//
// Faults are set from the environment variable SEXTANT_FAULTS or by Set, as
// "name=term->term;name=term", each term "[count*]action[(argument)]" with the
// actions off, error(text), panic(text), pause (until the context ends) and kill
// (the process kills itself as by kill -9). Without a count a term lasts.
package fault

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Env is the environment variable read at start.
const Env = "SEXTANT_FAULTS"

type term struct {
	left   int // -1: for ever
	action string
	arg    string
}

type table struct {
	mu     sync.Mutex
	points map[string][]*term
	caught map[string]int
}

var active atomic.Pointer[table]

// FromEnv sets the faults the environment names.
func FromEnv() error {
	text := os.Getenv(Env)
	if text == "" {
		return nil
	}
	if err := Set(text); err != nil {
		return fmt.Errorf("%s: %w", Env, err)
	}
	return nil
}

// Set replaces all faults; empty text clears them.
func Set(text string) error {
	if strings.TrimSpace(text) == "" {
		active.Store(nil)
		return nil
	}
	t := &table{points: map[string][]*term{}, caught: map[string]int{}}
	for _, point := range strings.Split(text, ";") {
		name, terms, ok := strings.Cut(strings.TrimSpace(point), "=")
		if !ok {
			return fmt.Errorf("fault %q: want name=terms", point)
		}
		for _, text := range strings.Split(terms, "->") {
			parsed, err := parse(strings.TrimSpace(text))
			if err != nil {
				return fmt.Errorf("fault %s: %w", name, err)
			}
			t.points[name] = append(t.points[name], parsed)
		}
	}
	active.Store(t)
	return nil
}

func parse(text string) (*term, error) {
	t := &term{left: -1}
	if count, rest, ok := strings.Cut(text, "*"); ok {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("count %q: want a positive number", count)
		}
		t.left, text = n, rest
	}
	t.action = text
	if open := strings.IndexByte(text, '('); open >= 0 {
		if !strings.HasSuffix(text, ")") {
			return nil, fmt.Errorf("term %q: missing )", text)
		}
		t.action, t.arg = text[:open], text[open+1:len(text)-1]
	}
	switch t.action {
	case "off", "error", "panic", "pause", "kill":
		return t, nil
	}
	return nil, fmt.Errorf("unknown action %q", t.action)
}

// Hit passes a point: nil in production, else whatever fault is set there.
func Hit(ctx context.Context, name string) error {
	t := active.Load()
	if t == nil {
		return nil
	}
	hit := t.take(name)
	if hit == nil {
		return nil
	}
	switch hit.action {
	case "error":
		return fmt.Errorf("fault %s: %s", name, hit.arg)
	case "panic":
		panic(fmt.Sprintf("fault %s: %s", name, hit.arg))
	case "pause":
		<-ctx.Done()
		return ctx.Err()
	case "kill":
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return nil
}

// Caught is how often a point has met a fault since the last Set. A test that kills at a
// point waits for it.
func Caught(name string) int {
	t := active.Load()
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.caught[name]
}

func (t *table) take(name string) *term {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, candidate := range t.points[name] {
		if candidate.left == 0 {
			continue
		}
		if candidate.left > 0 {
			candidate.left--
		}
		t.caught[name]++
		return candidate
	}
	return nil
}
