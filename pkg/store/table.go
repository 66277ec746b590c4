// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/wire"
)

// Table is one named set of records of one type in a store. Safe for
// concurrent use; writers at the same time share a disk flush.
type Table[T any] struct {
	store *Store
	name  string
	codec Codec[T]
}

// Codec turns records into bytes and back.
type Codec[T any] struct {
	Marshal   func(T) ([]byte, error)
	Unmarshal func([]byte) (T, error)
}

// JSON is the codec for plain Go types.
func JSON[T any]() Codec[T] {
	return Codec[T]{
		Marshal: func(v T) ([]byte, error) { return json.Marshal(v) },
		Unmarshal: func(data []byte) (v T, err error) {
			err = json.Unmarshal(data, &v)
			return v, err
		},
	}
}

// Proto is the codec for protobuf messages; text that is not UTF-8 is cleaned.
func Proto[M proto.Message]() Codec[M] {
	return Codec[M]{
		Marshal: func(m M) ([]byte, error) { return wire.Marshal(m) },
		Unmarshal: func(data []byte) (M, error) {
			var zero M
			m := zero.ProtoReflect().New().Interface().(M)
			return m, proto.Unmarshal(data, m)
		},
	}
}

// NewTable names a table; it is made with its first record. The name must be no table of
// the store's own.
func NewTable[T any](s *Store, name string, codec Codec[T]) *Table[T] {
	if name == sumTable || name == metaTable {
		panic("table " + name + ": the name is taken") // an error of the program
	}
	return &Table[T]{s, name, codec}
}

// Put writes a record; when it returns nil, the record is on the disk, or in
// memory while the disk takes no writes.
func (t *Table[T]) Put(key string, value T) error {
	data, err := t.codec.Marshal(value)
	if err == nil {
		err = t.write(key, change{data: data})
	}
	if err != nil {
		return fmt.Errorf("table %s: %s: %w", t.name, key, err)
	}
	return nil
}

// Delete removes a record; a missing one is no error.
func (t *Table[T]) Delete(key string) error {
	if err := t.write(key, change{gone: true}); err != nil {
		return fmt.Errorf("table %s: %s: %w", t.name, key, err)
	}
	return nil
}

func (t *Table[T]) write(name string, c change) error { return t.store.write(key{t.name, name}, c) }

// Get reads a record. A record that does not decode is an error.
func (t *Table[T]) Get(key string) (value T, ok bool, err error) {
	data, ok, err := t.store.get(t.name, key)
	if err == nil && ok {
		value, err = t.codec.Unmarshal(data)
	}
	if err != nil {
		return value, false, fmt.Errorf("table %s: %s: %w", t.name, key, err)
	}
	return value, ok, nil
}

// All reads every record. Records that do not decode are logged and left out.
func (t *Table[T]) All() (map[string]T, error) {
	records, err := t.store.all(t.name)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", t.name, err)
	}
	all := make(map[string]T, len(records))
	for key, data := range records {
		value, err := t.codec.Unmarshal(data)
		if err != nil {
			t.store.cfg.Log.Error("record skipped", "table", t.name, "key", key, "error", err.Error())
			continue
		}
		all[key] = value
	}
	return all, nil
}
