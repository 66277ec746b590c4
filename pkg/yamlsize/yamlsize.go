// SPDX-License-Identifier: Apache-2.0

// Package yamlsize bounds what YAML stands for: a few aliases of a long text, or of
// each other, make gigabytes of a small file once they are written out. It is pure.
package yamlsize

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Check makes sure that the documents in data, with every alias written out, have at
// most so many bytes of text and marks. Data without anchors is not looked at: it
// stands for itself.
func Check(data []byte, most int) (err error) {
	if !bytes.ContainsRune(data, '&') {
		return nil
	}
	defer func() {
		if r := recover(); r != nil { // of the parser
			err = fmt.Errorf("yaml: %v", r)
		}
	}()
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := CheckNode(&document, most); err != nil {
			return err
		}
	}
}

// CheckNode is Check for what was parsed already.
func CheckNode(node *yaml.Node, most int) error {
	m := measure{most: most, sizes: map[*yaml.Node]int{}}
	size, err := m.of(node)
	if err == nil && size > most {
		err = fmt.Errorf("aliases make more than %d bytes of it", most)
	}
	return err
}

// measure remembers the sizes of what has been measured.
type measure struct {
	most  int
	sizes map[*yaml.Node]int // -1 while it is being measured
}

// of is the size of a node, or anything above the bound.
func (m *measure) of(n *yaml.Node) (int, error) {
	if size, ok := m.sizes[n]; ok {
		if size < 0 {
			return 0, fmt.Errorf("line %d: an anchor contains itself", n.Line)
		}
		return size, nil
	}
	m.sizes[n] = -1
	size := len(n.Value) + 1
	for _, child := range n.Content {
		s, err := m.of(child)
		if err != nil {
			return 0, err
		}
		if size += s + 1; size > m.most {
			break
		}
	}
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		var err error
		if size, err = m.of(n.Alias); err != nil {
			return 0, err
		}
	}
	m.sizes[n] = size
	return size, nil
}
