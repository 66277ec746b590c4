// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var errTrailing = errors.New("something follows it")

// Flattener turns JSON documents into facts.
type Flattener struct {
	Names *Normalizer
	// Drop are patterns of paths that are left out, with all below them.
	Drop []string
	// Kind are patterns of paths of which only the kind of value matters, not
	// the value: "number", "string", "bool".
	Kind []string
}

// Facts returns a line "path = value" for each leaf of a JSON document, sorted.
// An element of an array is named by what identifies it ("containers[hello]"),
// else by its position; a list of plain values is one leaf.
func (f Flattener) Facts(document []byte) ([]string, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return nil, fmt.Errorf("%.60q is not one JSON document: %w", document, cmp.Or(err, errTrailing))
	}
	facts := f.flatten(nil, "", v)
	slices.Sort(facts)
	return facts, nil
}

// FactsOf is Facts of a value's JSON form.
func (f Flattener) FactsOf(v any) ([]string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return f.Facts(b)
}

func (f Flattener) flatten(facts []string, path string, v any) []string {
	if matchAny(f.Drop, path) {
		return facts
	}
	switch x := v.(type) {
	case map[string]any:
		if len(x) == 0 {
			return append(facts, path+" = {}")
		}
		for k, v := range x {
			key := f.Names.Text(k)
			if path != "" {
				key = path + "." + key
			}
			facts = f.flatten(facts, key, v)
		}
		return facts
	case []any:
		if plain(x) {
			return append(facts, path+" = "+f.list(path, x))
		}
		taken := map[string]int{}
		for i, v := range x {
			name := f.Names.Text(identity(v, i))
			if taken[name]++; taken[name] > 1 {
				name += "#" + strconv.Itoa(taken[name])
			}
			facts = f.flatten(facts, path+"["+name+"]", v)
		}
		return facts
	default:
		return append(facts, path+" = "+f.leaf(path, v))
	}
}

func plain(list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool {
		switch v.(type) {
		case map[string]any, []any:
			return true
		}
		return false
	})
}

func (f Flattener) list(path string, list []any) string {
	var b strings.Builder
	for i, v := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(f.leaf(path, v))
	}
	return "[" + b.String() + "]"
}

func (f Flattener) leaf(path string, v any) string {
	kind := matchAny(f.Kind, path)
	switch x := v.(type) {
	case string:
		if kind {
			return "string"
		}
		return strconv.Quote(f.Names.Text(x))
	case json.Number:
		if kind {
			return "number"
		}
		return f.Names.Number(x.String())
	case bool:
		if kind {
			return "bool"
		}
		return strconv.FormatBool(x)
	default:
		return "null"
	}
}

// identifying are the fields that tell the elements of an API list apart, in the
// order in which they are looked for.
var identifying = []string{"name", "type", "key", "topologyKey", "containerPort", "ip", "uid"}

// identity names an element of an array.
func identity(v any, position int) string {
	object, _ := v.(map[string]any)
	for _, inner := range []string{"metadata", "podRef"} {
		if m, ok := object[inner].(map[string]any); ok {
			if name, ok := m["name"].(string); ok {
				return name
			}
		}
	}
	for _, field := range identifying {
		if x, ok := object[field]; ok {
			return fmt.Sprint(x)
		}
	}
	return strconv.Itoa(position)
}
