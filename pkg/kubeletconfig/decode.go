// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/pattern"
	"github.com/sextant-node/sextant/pkg/yamlsize"
)

// document is one decoded configuration file.
type document struct {
	// json is the file as a JSON object, without defaults.
	json []byte
	// lines is where each field, list element and map key stands in the file.
	lines map[string]int
	// leaves are the fields the file sets, in file order.
	leaves []setLeaf
	// ignored are what a kubelet's strict decoding refuses and its lenient decoding
	// passes over.
	ignored []Warning
}

// setLeaf is a field that a file sets.
type setLeaf struct {
	path string
	// merged: the file's value is added to the former one, key by key, instead of
	// replacing it.
	merged bool
}

// maxExpanded bounds a file with its aliases written out, in bytes.
const maxExpanded = 10 << 20

// maxIgnored bounds the warnings of one file.
const maxIgnored = 50

// decodeFile reads a KubeletConfiguration: YAML or JSON, one document, apiVersion and
// kind as they must be, every value of its field's type. All problems are returned. An
// unknown or duplicate field is a warning, as for a kubelet that falls back to lenient
// decoding: a file of the next minor version starts the node.
func decodeFile(file string, data []byte) (*document, []*Problem) {
	fail := func(line int, format string, args ...any) []*Problem {
		return []*Problem{{Source: Source{File: file, Line: line}, Detail: fmt.Sprintf(format, args...)}}
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fail(0, "the file is empty")
	}
	root, err := parseNodes(data)
	if err != nil {
		return nil, fail(lineOf(err), "%s", cleanYAML(err))
	}
	if err := yamlsize.CheckNode(root, maxExpanded); err != nil {
		return nil, fail(0, "%s", cleanYAML(err))
	}
	raw, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, fail(lineOf(err), "%s", cleanYAML(err))
	}
	var top any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&top); err != nil {
		return nil, fail(0, "not valid JSON: %v", err)
	}
	obj, ok := top.(map[string]any)
	if !ok {
		return nil, fail(root.Line, "must be a mapping of fields, is %s", describe(top))
	}
	d := &decoder{file: file, lines: map[string]int{}}
	d.typeMeta(obj, root)
	if len(d.problems) == 0 {
		d.walk("", obj, root, reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]())
	}
	if len(d.problems) > 0 {
		return nil, d.problems
	}
	if d.removed {
		if raw, err = json.Marshal(obj); err != nil {
			return nil, fail(0, "not valid JSON: %v", err)
		}
	}
	return &document{json: raw, lines: d.lines, leaves: d.leaves, ignored: d.ignoredOnes()}, nil
}

// parseNodes parses the one YAML document of a file for its line numbers. It recovers
// from panics of the parser, because the bytes are untrusted.
func parseNodes(data []byte) (root *yamlv3.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("yaml: %v", r)
		}
	}()
	dec := yamlv3.NewDecoder(bytes.NewReader(data))
	var doc yamlv3.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the file holds no document")
		}
		return nil, err
	}
	for {
		var more yamlv3.Node
		err := dec.Decode(&more)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if n := content(&more); n != nil && n.Tag != "!!null" {
			return nil, fmt.Errorf("yaml: line %d: a second document; one file holds one configuration", n.Line)
		}
	}
	if n := content(&doc); n != nil {
		return n, nil
	}
	return nil, errors.New("the file holds no document")
}

// content returns the top node of a document.
func content(doc *yamlv3.Node) *yamlv3.Node {
	if doc.Kind == yamlv3.DocumentNode && len(doc.Content) > 0 {
		return doc.Content[0]
	}
	return nil
}

var (
	yamlLine = pattern.Lazy(`line (\d+): `)
	// zeroBased matches the messages of the library's parser, which counts
	// lines from zero where its scanner counts from one.
	zeroBased = pattern.Lazy(`did not find expected (<|key|node content|'-' indicator|',' or '[\]}]')`)
)

// lineOf finds the line number in a YAML library's error, 0 if there is none.
func lineOf(err error) int {
	m := yamlLine().FindStringSubmatch(err.Error())
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	if zeroBased().MatchString(err.Error()) {
		n++
	}
	return n
}

// cleanYAML returns the message of a YAML library's error without the prefixes
// that our own message carries in its place.
func cleanYAML(err error) string {
	msg := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:", "construct errors:"} {
		msg = strings.TrimSpace(strings.TrimPrefix(msg, prefix))
	}
	if loc := yamlLine().FindStringIndex(msg); loc != nil && loc[0] == 0 {
		msg = msg[loc[1]:]
	}
	return clipTo(strings.Join(strings.Fields(msg), " "), 200)
}

// describe names the kind of a JSON value for error messages.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return clip(v.String())
	case string:
		return strconv.Quote(clip(v))
	case []any:
		return "a list"
	default:
		return "a mapping"
	}
}

// clip shortens a value that is only quoted to be recognised.
func clip(s string) string { return clipTo(s, 80) }

// clipTo shortens s to a number of characters.
func clipTo(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
