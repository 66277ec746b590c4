// SPDX-License-Identifier: Apache-2.0

package yamlsize_test

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/yamlsize"
	"github.com/sextant-node/sextant/test/fuzzing"
)

func TestCheck(t *testing.T) {
	const most = 1 << 20
	long := strings.Repeat("A", 1000)
	many := "a: &a " + long + "\n"
	for i := range 2000 {
		many += fmt.Sprintf("a%d: *a\n", i)
	}
	laughs := "a0: &a0 [x]\n"
	for i := range 9 {
		laughs += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                  {"", ""},
		"no aliases":               {"a: [1, 2]\nb: 'x & y'\n", ""},
		"some aliases":             {"a: &a {b: c}\nd: *a\ne: [*a, *a]\n<<: *a\n", ""},
		"a text, many times":       {many, "aliases make more than 1048576 bytes"},
		"aliases of aliases":       {laughs, "aliases make more than 1048576 bytes"},
		"in a second document":     {"a: &x b\n---\n" + many, "aliases make more than"},
		"an anchor within its own": {"a: &a [*a]\n", "contains itself"},
		"no such anchor":           {"a: &b c\nd: *e\n", "unknown anchor"},
		"a large text of its own":  {"a: 'x & y'\nb: " + strings.Repeat(long, 100), ""},
	} {
		var err error
		fuzzing.Allocates(t, 1<<20+40*uint64(len(c.text)), func() { err = yamlsize.Check([]byte(c.text), most) })
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzCheck: what passes stays within a multiple of the bound when it is written out,
// and nothing takes long or much memory to find out.
func FuzzCheck(f *testing.F) {
	f.Add("a: &a [x, y]\nb: [*a, *a]\nc: {<<: *a}\n")
	f.Add("&a [*a]")
	f.Add("a: &a !!binary aGVsbG8=\nb: *a\n? &k [1]\n: *k\n")
	f.Add(strings.Repeat("&a ", 20) + strings.Repeat("[", 50))
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4<<10 {
			return
		}
		const most = 64 << 10
		var err error
		fuzzing.Allocates(t, 1<<20+4096*uint64(len(text)), func() { err = yamlsize.Check([]byte(text), most) })
		if err != nil {
			return
		}
		var out []byte
		if out, err = yaml.YAMLToJSON([]byte(text)); err == nil && len(out) > 16*(most+len(text)) {
			t.Errorf("%d bytes became %d", len(text), len(out))
		}
	})
}
