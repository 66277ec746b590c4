// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// String writes the layout as text that Parse reads: a line for each NUMA node and CPU.
//
//	node 0 bytes 8589934592 hugepages 2048=16 distances 10,21
//	cpu 0 core 0 cache 0 socket 0 node 0
func (l *Layout) String() string {
	var b strings.Builder
	for _, m := range l.Memory {
		fmt.Fprintf(&b, "node %d bytes %d", m.Node, m.Bytes)
		if len(m.HugePages) > 0 {
			var sizes []string
			for _, kib := range slices.Sorted(maps.Keys(m.HugePages)) {
				sizes = append(sizes, fmt.Sprintf("%d=%d", kib, m.HugePages[kib]))
			}
			fmt.Fprintf(&b, " hugepages %s", strings.Join(sizes, ","))
		}
		if m.Distances != nil {
			distances := make([]string, 0, len(m.Distances))
			for _, d := range m.Distances {
				distances = append(distances, strconv.FormatUint(d, 10))
			}
			fmt.Fprintf(&b, " distances %s", strings.Join(distances, ","))
		}
		b.WriteByte('\n')
	}
	for _, c := range l.CPUs {
		fmt.Fprintf(&b, "cpu %d core %d cache %d socket %d node %d\n", c.ID, c.Core, c.Cache, c.Socket, c.Node)
	}
	return b.String()
}

// Parse reads what String writes; blank lines and what follows a # are left out. An error
// names the line.
func Parse(text string) (*Layout, error) {
	var cpus []CPU
	var memory []Memory
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words)%2 != 0 {
			return nil, fmt.Errorf("%q: names and values are not in pairs", strings.TrimSpace(line))
		}
		var err error
		switch words[0] {
		case "cpu":
			cpus, err = cpu(cpus, words)
		case "node":
			memory, err = node(memory, words)
		default:
			err = fmt.Errorf("%s is neither cpu nor node", words[0])
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
	}
	return New(cpus, memory)
}

func cpu(cpus []CPU, words []string) ([]CPU, error) {
	c := CPU{}
	fields := map[string]*int{"cpu": &c.ID, "core": &c.Core, "cache": &c.Cache, "socket": &c.Socket, "node": &c.Node}
	for i := 0; i < len(words); i += 2 {
		field, ok := fields[words[i]]
		if !ok {
			return nil, fmt.Errorf("a cpu has no %s", words[i])
		}
		n, err := strconv.ParseUint(words[i+1], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", words[i], err)
		}
		*field = int(n)
	}
	return append(cpus, c), nil
}

func node(memory []Memory, words []string) ([]Memory, error) {
	m := Memory{}
	for i := 0; i < len(words); i += 2 {
		name, value := words[i], words[i+1]
		var err error
		switch name {
		case "node":
			var n uint64
			n, err = strconv.ParseUint(value, 10, 16)
			m.Node = int(n)
		case "bytes":
			m.Bytes, err = strconv.ParseUint(value, 10, 64)
		case "hugepages":
			m.HugePages, err = pages(value)
		case "distances":
			m.Distances, err = numbers(value)
		default:
			err = fmt.Errorf("a node has none")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return append(memory, m), nil
}

func pages(text string) (map[uint64]uint64, error) {
	all := map[uint64]uint64{}
	for pair := range strings.SplitSeq(text, ",") {
		size, count, _ := strings.Cut(pair, "=")
		kib, err := strconv.ParseUint(size, 10, 64)
		if err != nil {
			return nil, err
		}
		if all[kib], err = strconv.ParseUint(count, 10, 64); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func numbers(text string) ([]uint64, error) {
	list := []uint64{}
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}
