package store

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
)

// Table is one named set of records of one type in a store. Safe for
// concurrent use; writers at the same time share a disk flush.
type Table[T any] struct {
	store  *Store
	bucket []byte
	codec  Codec[T]
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

// Proto is the codec for protobuf messages.
func Proto[M proto.Message]() Codec[M] {
	return Codec[M]{
		Marshal: func(m M) ([]byte, error) { return proto.Marshal(m) },
		Unmarshal: func(data []byte) (M, error) {
			var zero M
			m := zero.ProtoReflect().New().Interface().(M)
			return m, proto.Unmarshal(data, m)
		},
	}
}

// NewTable opens a table, making it if needed.
func NewTable[T any](s *Store, name string, codec Codec[T]) (*Table[T], error) {
	there := false
	err := s.db.View(func(tx *bbolt.Tx) error {
		there = tx.Bucket([]byte(name)) != nil
		return nil
	})
	if err == nil && !there {
		err = s.db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists([]byte(name))
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	return &Table[T]{s, []byte(name), codec}, nil
}

// Put writes a record; when it returns nil, the record is on disk.
func (t *Table[T]) Put(key string, value T) error {
	data, err := t.codec.Marshal(value)
	if err != nil {
		return fmt.Errorf("table %s: %s: %w", t.bucket, key, err)
	}
	err = t.store.db.Batch(func(tx *bbolt.Tx) error { return tx.Bucket(t.bucket).Put([]byte(key), data) })
	if err != nil {
		return fmt.Errorf("table %s: %s: %w", t.bucket, key, err)
	}
	return nil
}

// Delete removes a record; a missing one is no error.
func (t *Table[T]) Delete(key string) error {
	err := t.store.db.Batch(func(tx *bbolt.Tx) error { return tx.Bucket(t.bucket).Delete([]byte(key)) })
	if err != nil {
		return fmt.Errorf("table %s: %s: %w", t.bucket, key, err)
	}
	return nil
}

// Get reads a record. A record that does not decode is an error.
func (t *Table[T]) Get(key string) (value T, ok bool, err error) {
	err = t.store.db.View(func(tx *bbolt.Tx) error {
		data := tx.Bucket(t.bucket).Get([]byte(key))
		if data == nil {
			return nil
		}
		ok = true
		value, err = t.codec.Unmarshal(data)
		return err
	})
	if err != nil {
		return value, false, fmt.Errorf("table %s: %s: %w", t.bucket, key, err)
	}
	return value, ok, nil
}

// All reads every record. Records that do not decode are logged and left out.
func (t *Table[T]) All() (map[string]T, error) {
	all := map[string]T{}
	err := t.store.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(t.bucket).ForEach(func(key, data []byte) error {
			value, err := t.codec.Unmarshal(data)
			if err != nil {
				t.store.log.Error("record skipped", "table", string(t.bucket), "key", string(key), "error", err.Error())
				return nil
			}
			all[string(key)] = value
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", t.bucket, err)
	}
	return all, nil
}
