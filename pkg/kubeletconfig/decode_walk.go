// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// decoder compares a file with the Go type it is to fill. Values come from the JSON
// form, which is what counts; the YAML nodes beside them give lines and show
// duplicates, and may be missing behind aliases and merge keys.
type decoder struct {
	file     string
	lines    map[string]int
	leaves   []setLeaf
	problems []*Problem
	ignored  []Warning
	removed  bool // an unknown field was taken out of the JSON form
}

func (d *decoder) problem(path string, line int, format string, args ...any) {
	d.problems = append(d.problems, &Problem{
		Source: Source{File: d.file, Line: line}, Field: path, Detail: fmt.Sprintf(format, args...),
	})
}

func (d *decoder) ignore(path string, line int, format string, args ...any) {
	d.ignored = append(d.ignored, Warning{
		Kind: NotHonoured, Source: Source{File: d.file, Line: line}, Name: clip(path), Message: fmt.Sprintf(format, args...),
	})
}

// ignoredOnes are the warnings, of which the last stands for all beyond the most.
func (d *decoder) ignoredOnes() []Warning {
	rest := len(d.ignored) - maxIgnored
	if rest <= 0 {
		return d.ignored
	}
	last := d.ignored[maxIgnored]
	last.Message += fmt.Sprintf(" (and %d more)", rest-1)
	return append(d.ignored[:maxIgnored:maxIgnored], last)
}

// typeMeta checks apiVersion and kind, without which nothing else has a meaning.
func (d *decoder) typeMeta(obj map[string]any, n *yamlv3.Node) {
	for _, want := range []struct{ field, value string }{{"apiVersion", APIVersion}, {"kind", Kind}} {
		got, ok := obj[want.field]
		switch {
		case !ok || got == nil || got == "":
			d.problem(want.field, n.Line, "is missing; must be %s", want.value)
		case got != want.value:
			d.problem(want.field, mapNode(n).lineOf(want.field), "is %s; must be %s", describe(got), want.value)
		}
	}
}

// walk checks value v, found at path, against type t.
func (d *decoder) walk(path string, v any, n *yamlv3.Node, t reflect.Type) {
	if n != nil && path != "" {
		if _, ok := d.lines[path]; !ok {
			d.lines[path] = n.Line
		}
	}
	if v == nil {
		return
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if decodesItself(t) {
		d.self(path, v, n, t)
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		d.structure(path, v, n, t)
	case reflect.Map:
		d.mapping(path, v, n, t)
	case reflect.Slice:
		elems, ok := v.([]any)
		if !ok {
			d.problem(path, lineAt(n), "must be a list, is %s", describe(v))
			return
		}
		for i, e := range elems {
			d.walk(fmt.Sprintf("%s[%d]", path, i), e, element(n, i), t.Elem())
		}
	default:
		d.scalar(path, v, n, t)
	}
}

// structure checks the fields of an object.
func (d *decoder) structure(path string, v any, n *yamlv3.Node, t reflect.Type) {
	obj, ok := v.(map[string]any)
	if !ok {
		d.problem(path, lineAt(n), "must be a mapping, is %s", describe(v))
		return
	}
	d.duplicates(n, func(key string) string { return child(path, key) })
	fields := fieldsOf(t)
	m := mapNode(n)
	for _, key := range m.keys(obj) {
		p := child(path, key)
		i := slices.IndexFunc(fields, func(f structField) bool { return f.name == key })
		if i < 0 {
			d.ignore(p, m.lineOf(key), "unknown field, ignored%s", hint(key, fields))
			delete(obj, key)
			d.removed = true
			continue
		}
		d.mark(p, m.lineOf(key))
		if isLeaf(fields[i].typ) || obj[key] == nil {
			merged := fields[i].typ.Kind() == reflect.Map && obj[key] != nil
			d.leaves = append(d.leaves, setLeaf{p, merged})
		}
		d.walk(p, obj[key], m.value(key), fields[i].typ)
	}
}

// mapping checks the values of a map.
func (d *decoder) mapping(path string, v any, n *yamlv3.Node, t reflect.Type) {
	obj, ok := v.(map[string]any)
	if !ok {
		d.problem(path, lineAt(n), "must be a mapping, is %s", describe(v))
		return
	}
	at := func(key string) string { return path + "[" + key + "]" }
	d.duplicates(n, at)
	m := mapNode(n)
	for _, key := range m.keys(obj) {
		d.mark(at(key), m.lineOf(key))
		d.walk(at(key), obj[key], m.value(key), t.Elem())
	}
}

// self checks a value whose type decodes itself, such as a duration.
func (d *decoder) self(path string, v any, n *yamlv3.Node, t reflect.Type) {
	raw, err := json.Marshal(v)
	if err == nil {
		err = checkQuantity(strings.Trim(string(raw), `"`))
	}
	if err == nil {
		err = unmarshalSafely(raw, reflect.New(t).Interface())
	}
	if err == nil {
		return
	}
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		d.problem(path, lineAt(n), `must be a duration such as "90s" or "1h30m", is %s`, describe(v))
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[resource.QuantityValue]():
		d.problem(path, lineAt(n), "must be a quantity such as 200m or 1Gi, is %s", describe(v))
	default:
		d.problem(path, lineAt(n), "is %s: %v", describe(v), err)
	}
}

// unmarshalSafely turns a panic of a type's own decoder into an error.
func unmarshalSafely(raw []byte, into any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot be decoded: %v", r)
		}
	}()
	return json.Unmarshal(raw, into)
}

// scalar checks a string, number or bool.
func (d *decoder) scalar(path string, v any, n *yamlv3.Node, t reflect.Type) {
	want := ""
	num, isNum := v.(json.Number)
	switch t.Kind() {
	case reflect.String:
		if _, ok := v.(string); !ok {
			want = "a string"
		}
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			want = "true or false"
		}
	case reflect.Float32, reflect.Float64:
		if _, err := num.Float64(); !isNum || err != nil {
			want = "a number"
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if _, err := strconv.ParseInt(num.String(), 10, t.Bits()); !isNum || err != nil {
			want = fmt.Sprintf("a whole number of %d bits", t.Bits())
		}
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		if _, err := strconv.ParseUint(num.String(), 10, t.Bits()); !isNum || err != nil {
			want = fmt.Sprintf("a whole number of %d bits, not negative", t.Bits())
		}
	}
	if want != "" {
		d.problem(path, lineAt(n), "must be %s, is %s", want, describe(v))
	}
}

// duplicates reports keys that stand twice in the mapping at n.
func (d *decoder) duplicates(n *yamlv3.Node, at func(string) string) {
	if n == nil || n.Kind != yamlv3.MappingNode {
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yamlv3.ScalarNode || k.Tag == "!!merge" {
			continue
		}
		if line, ok := first[k.Value]; ok {
			d.ignore(at(k.Value), k.Line, "duplicate field, first set in line %d; the last one counts", line)
			continue
		}
		first[k.Value] = k.Line
	}
}

// mark notes the line of a key; the key's line is what a person looks for.
func (d *decoder) mark(path string, line int) {
	if line > 0 {
		d.lines[path] = line
	}
}

// mappingNode is a YAML mapping with its keys looked up once.
type mappingNode struct {
	line    int
	order   []string
	entries map[string][2]*yamlv3.Node // key and value
}

// mapNode indexes the mapping at n; a nil or other node has no entries. Of a
// duplicate key the last counts, as in the JSON form.
func mapNode(n *yamlv3.Node) mappingNode {
	m := mappingNode{line: lineAt(n), entries: map[string][2]*yamlv3.Node{}}
	if n == nil || n.Kind != yamlv3.MappingNode {
		return m
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yamlv3.ScalarNode {
			continue
		}
		if _, ok := m.entries[k.Value]; !ok {
			m.order = append(m.order, k.Value)
		}
		m.entries[k.Value] = [2]*yamlv3.Node{k, n.Content[i+1]}
	}
	return m
}

// keys returns the keys of obj as they stand in the file, those that come from
// elsewhere (merge keys, aliases) after them in sorted order.
func (m mappingNode) keys(obj map[string]any) []string {
	keys := make([]string, 0, len(obj))
	for _, k := range m.order {
		if _, ok := obj[k]; ok {
			keys = append(keys, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(obj)) {
		if _, ok := m.entries[k]; !ok {
			keys = append(keys, k)
		}
	}
	return keys
}

// value returns the node under key, nil if there is none.
func (m mappingNode) value(key string) *yamlv3.Node { return m.entries[key][1] }

// lineOf returns the line of key, or of the mapping without it.
func (m mappingNode) lineOf(key string) int {
	if e, ok := m.entries[key]; ok {
		return e[0].Line
	}
	return m.line
}

func element(n *yamlv3.Node, i int) *yamlv3.Node {
	if n == nil || n.Kind != yamlv3.SequenceNode || i >= len(n.Content) {
		return nil
	}
	return n.Content[i]
}

func lineAt(n *yamlv3.Node) int {
	if n == nil {
		return 0
	}
	return n.Line
}

func child(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// hint proposes the field that was probably meant.
func hint(key string, fields []structField) string {
	for _, f := range fields {
		if strings.EqualFold(f.name, key) {
			return fmt.Sprintf("; did you mean %s?", f.name)
		}
	}
	return ""
}
