// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"sync"

	"github.com/sextant-node/sextant/pkg/store"
)

// ledger holds records that are in the journal before they are in memory. Safe for
// concurrent use.
type ledger[V any] struct {
	table *store.Table[V]

	mu  sync.Mutex
	all map[string]V
}

func openLedger[V any](table *store.Table[V]) (*ledger[V], error) {
	all, err := table.All()
	return &ledger[V]{table: table, all: all}, err
}

func (l *ledger[V]) get(key string) (v V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok = l.all[key]
	return v, ok
}

// list are the records that match, in no order.
func (l *ledger[V]) list(match func(V) bool) (some []V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range l.all {
		if match(v) {
			some = append(some, v)
		}
	}
	return some
}

func (l *ledger[V]) put(key string, v V) error {
	if err := l.table.Put(key, v); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[key] = v
	return nil
}

func (l *ledger[V]) drop(key string) error {
	if err := l.table.Delete(key); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, key)
	return nil
}
