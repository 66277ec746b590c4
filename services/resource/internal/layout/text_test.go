// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"strings"
	"testing"

	"github.com/sextant-node/sextant/services/resource/internal/layout"
)

func TestText(t *testing.T) {
	const text = `node 0 bytes 8589934592 hugepages 2048=16,1048576=1 distances 10,21
node 1 bytes 4294967296
cpu 0 core 0 cache 0 socket 0 node 0
cpu 1 core 1 cache 1 socket 1 node 1
cpu 2 core 0 cache 0 socket 0 node 0
cpu 3 core 1 cache 1 socket 1 node 1
`
	l, err := layout.Parse("# a comment\n\n" + text)
	if err != nil || l.String() != text {
		t.Errorf("%v\n%s", err, l)
	}
	if got := l.In(layout.Node, 1).String(); got != "1,3" || l.PerUnit(layout.Core) != 2 || len(l.Units(layout.Socket)) != 2 {
		t.Errorf("node 1 has %s", got)
	}
}

func TestBadText(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "no cpu",
		"cpu 0":                            "",
		"cpu x":                            "cpu: ",
		"cpu 0 core":                       "in pairs",
		"cpu 0 die 1":                      "a cpu has no die",
		"core 0":                           "neither cpu nor node",
		"cpu 0\ncpu 0":                     "cpu 0 is there twice",
		"cpu 0\nnode 1\nnode 1":            "node 1 is there twice",
		"cpu 0\nnode 0 size 1":             "size: ",
		"cpu 0\nnode 0 bytes -1":           "bytes: ",
		"cpu 0\nnode 0 hugepages 2048":     "hugepages: ",
		"cpu 0\nnode 0 distances 10,,21":   "distances: ",
		"cpu 100000":                       "out of range",
		"cpu 0\nnode 0 hugepages 2048=1,x": "hugepages: ",
	} {
		_, err := layout.Parse(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
