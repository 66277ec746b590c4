// SPDX-License-Identifier: Apache-2.0

package frozen

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestKept(t *testing.T) {
	was := map[string]any{"a": 1.0, "b": map[string]any{"c": "x"}, "d": []any{1.0}}
	for name, c := range map[string]struct {
		is   any
		lost bool
	}{
		"the same":  {map[string]any{"a": 1.0, "b": map[string]any{"c": "x"}, "d": []any{1.0}}, false},
		"more":      {map[string]any{"a": 1.0, "b": map[string]any{"c": "x", "n": 1.0}, "d": []any{1.0}, "n": 1.0}, false},
		"renamed":   {map[string]any{"a2": 1.0, "b": map[string]any{"c": "x"}, "d": []any{1.0}}, true},
		"inside":    {map[string]any{"a": 1.0, "b": map[string]any{}, "d": []any{1.0}}, true},
		"of a list": {map[string]any{"a": 1.0, "b": map[string]any{"c": "x"}, "d": []any{}}, true},
		"nothing":   {nil, true},
	} {
		if err := kept("", was, c.is); (err != nil) != c.lost {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type inner struct {
	Name string `json:"name"`
	Next *inner `json:"next,omitempty"`
}

// TestShapeOf: every field that encoding/json writes has a line, and only those.
func TestShapeOf(t *testing.T) {
	type record struct {
		inner
		At     time.Time       `json:"at,omitzero"`
		Counts map[string]int  `json:"counts"`
		Parts  []inner         `json:"parts"`
		Raw    []byte          `json:"raw"`
		As     json.RawMessage `json:"as"`
		Long   int64           `json:"long,string"`
		Plain  bool
		Left   func()            `json:"-"`
		Nested map[string][]bool `json:"nested"`
	}
	want := strings.Join([]string{
		"/Plain bool", "/as json of RawMessage", "/at time", "/counts/* number", "/long quoted", "/name string", "/nested/*/# bool", "/next again",
		"/parts/#/name string", "/parts/#/next again", "/raw bytes",
	}, "\n")
	if got := ShapeOf[record](); got != want {
		t.Errorf("shape\n%s\nwant\n%s", got, want)
	}
}
