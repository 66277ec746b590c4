// SPDX-License-Identifier: Apache-2.0

// Package frozen reads state files that a released version wrote, as the services of
// this tree do, and reports whether that version could read theirs.
//
// The files are in testdata/frozen/VERSION beside the tests, written by that version's
// services with pods on the fake runtime (test/env/releases.txt has the commits). A file
// is never made again: a release that writes otherwise adds one.
package frozen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/store"
)

// Files are copies of a state file of every version that is kept, by version.
func Files(t testing.TB, name string) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("testdata", "frozen", "*", name))
	if err != nil || len(found) == 0 {
		t.Fatalf("no frozen %s: %v", name, err)
	}
	files := map[string]string{}
	for _, path := range found {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(copied, data, 0o600); err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(filepath.Dir(path))] = copied
	}
	return files
}

// Open opens a copy of a frozen file with the schema of this tree; none of it may count
// as damaged.
func Open(t testing.TB, path string, schema uint64) *store.Store {
	t.Helper()
	s, damage, err := store.Open(store.Config{Path: path, Schema: schema, Log: slog.New(slog.DiscardHandler)})
	if err != nil || damage != nil {
		t.Fatalf("%s: damage %v, %v", path, damage, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Records are those of a table of JSON. Each must keep everything that is in it when
// this tree's type reads it and writes it again: a field that was renamed, or changed
// its type, would be lost at an upgrade.
func Records[T any](t testing.TB, s *store.Store, table string) map[string]T {
	t.Helper()
	codec := store.JSON[T]()
	return records(t, s, table, codec, func(raw []byte, value T) error {
		again, err := codec.Marshal(value)
		if err != nil {
			return err
		}
		var was, is any
		if err := json.Unmarshal(raw, &was); err != nil {
			return err
		}
		if err := json.Unmarshal(again, &is); err != nil {
			return err
		}
		return kept("", was, is)
	})
}

// Messages are those of a table of protobuf; none may have a field that this tree does
// not know.
func Messages[M proto.Message](t testing.TB, s *store.Store, table string) map[string]M {
	t.Helper()
	return records(t, s, table, store.Proto[M](), func(_ []byte, m M) error {
		if n := len(m.ProtoReflect().GetUnknown()); n > 0 {
			return fmt.Errorf("%d bytes of fields that are not known any more", n)
		}
		return nil
	})
}

func records[T any](t testing.TB, s *store.Store, table string, codec store.Codec[T], check func(raw []byte, value T) error) map[string]T {
	t.Helper()
	bare := store.NewTable(s, table, store.Codec[[]byte]{Unmarshal: func(data []byte) ([]byte, error) { return bytes.Clone(data), nil }})
	typed := store.NewTable(s, table, codec)
	raw, err := bare.All()
	if err != nil || len(raw) == 0 {
		t.Fatalf("table %s: %d records, %v", table, len(raw), err)
	}
	values, err := typed.All()
	if err != nil || len(values) != len(raw) {
		t.Fatalf("table %s: %d of %d records, %v", table, len(values), len(raw), err)
	}
	for key, value := range values {
		if err := check(raw[key], value); err != nil {
			t.Errorf("table %s, record %s: %v", table, key, err)
		}
	}
	return values
}

// kept reports what a JSON value has lost: fields may be added, none may go or change.
func kept(at string, was, is any) error {
	object, ok := was.(map[string]any)
	if !ok {
		if !reflect.DeepEqual(was, is) {
			return fmt.Errorf("%s was %v, is %v", at, was, is)
		}
		return nil
	}
	now, _ := is.(map[string]any)
	for name, value := range object {
		if err := kept(at+"/"+name, value, now[name]); err != nil {
			return err
		}
	}
	return nil
}
