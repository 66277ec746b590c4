// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/test/fuzzing"
)

// Files that blow parsers up end soon, with a message a person can read.
func TestMonstrousFiles(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	keys := strings.Builder{}
	for i := range 8000 {
		fmt.Fprintf(&keys, "  k%d: v\n", i)
	}
	for name, in := range map[string]string{
		"nest":    head + "clusterDNS: " + strings.Repeat("[", 900000),
		"nest2":   head + "clusterDNS: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"nest3":   head + "clusterDNS: " + strings.Repeat("{a: ", 9000) + strings.Repeat("}", 9000),
		"bomb":    head + bomb,
		"keys":    head + "evictionHard:\n" + keys.String(),
		"topkeys": head + strings.ReplaceAll(keys.String(), "  k", "k"),
		"headers": head + "staticPodURLHeader:\n" + strings.ReplaceAll(keys.String(), ": v", ": [v]"),
		"dash":    strings.Repeat("- ", 500000),
		"quest":   strings.Repeat("? ", 500000),
		"docs":    head + strings.Repeat("---\n", 30000),
		"long":    head + "clusterDomain: " + strings.Repeat("x", 1000000),
		"anch":    head + strings.Repeat("&a ", 300000),
		"comm":    head + strings.Repeat("#x\n", 300000),
		"cpus":    head + "reservedSystemCPUs: " + strings.Repeat("0-60000,", 50) + "1\n",
		"sysctl":  head + "allowedUnsafeSysctls: [" + strings.Repeat("a", 900000) + "]\n",
		"tags":    head + "maxPods: !!int " + strings.Repeat("9", 100000) + "\n",
		"float":   head + "memoryThrottlingFactor: " + strings.Repeat("9", 100000) + "e99999999\n",
		"text":    head + "clusterDNS: [&a " + strings.Repeat("x", 100<<10) + strings.Repeat(", *a", 7000) + "]\n",
	} {
		var err error
		fuzzing.Allocates(t, 1<<30, func() { _, _, err = setup{args: withAPI(), config: new(strings.TrimPrefix(in, head))}.load(t) })
		if err != nil && len(err.Error()) > 16<<10 {
			t.Errorf("%s: a message of %d bytes", name, len(err.Error()))
		}
		if n := len(Problems(err)); n > maxProblems+1 {
			t.Errorf("%s: %d problems", name, n)
		}
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	in := ""
	for i := range 60 {
		in += fmt.Sprintf("x%d: 1\n", i)
	}
	_, _, err := setup{config: new(in + "clusterDNS: [" + strings.Repeat("5,", 60) + "]\n")}.load(t)
	lines := problemLines(err)
	if want := "/etc/kubelet/config.yaml:63: clusterDNS[50]: must be a string, is 5 (and 9 more problems)"; lines[len(lines)-1] != want {
		t.Errorf("last line %q, want %q", lines[len(lines)-1], want)
	}
	_, warnings, err := setup{args: withAPI(), config: new(in)}.load(t)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, w := range warnings {
		if strings.Contains(w.Message, "unknown field") {
			told++
		}
	}
	if told != maxIgnored+1 {
		t.Errorf("%d warnings of unknown fields, want %d", told, maxIgnored+1)
	}
}
