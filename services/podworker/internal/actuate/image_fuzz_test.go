// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"strings"
	"testing"
	"time"

	"github.com/distribution/reference"

	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzParseImage: an image that is taken has a tag or a digest afterwards, and its
// repository neither.
func FuzzParseImage(f *testing.F) {
	for _, s := range []string{
		"nginx", "nginx:1", "reg.example:5000/a/b", "reg.example:5000/a@sha256:" + strings.Repeat("0", 64), "a:1@sha256:" + strings.Repeat("f", 64), "", "A", "a//b", "docker.io/nginx",
		strings.Repeat("a/", 200), "localhost/a", "[::1]:5000/a", "a:" + strings.Repeat("t", 129), strings.Repeat("0", 64), "é", "a b", "a:\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image string) {
		var tagged, repository string
		var err error
		fuzzing.Allocates(t, 512<<10+100*uint64(len(image)), func() {
			fuzzing.Spends(t, time.Second, func() { tagged, repository, err = parseImage(image) })
		})
		if err != nil {
			if tagged != "" || repository != "" || len(err.Error()) > 4096 {
				t.Errorf("%q, %q, an error of %d bytes", tagged, repository, len(err.Error()))
			}
			return
		}
		named, err := reference.ParseNormalizedNamed(tagged)
		if err != nil || reference.IsNameOnly(named) || named.Name() != repository {
			t.Errorf("%q became %q of %q, %v", image, tagged, repository, err)
		}
		if !strings.Contains(repository, "/") || strings.ContainsAny(repository, "@ \t\n") || !strings.HasPrefix(tagged, image) {
			t.Errorf("%q became %q of %q", image, tagged, repository)
		}
	})
}

// TestParseImageTakesTimeInProportion: with more than 100 KiB, which no API server takes.
func TestParseImageTakesTimeInProportion(t *testing.T) {
	for name, image := range map[string]string{
		"folders": strings.Repeat("a/", 1<<16), "dashes": "a" + strings.Repeat("-", 1<<17), "colons": strings.Repeat("a:", 1<<16),
		"at": strings.Repeat("a@", 1<<16), "dots": strings.Repeat("a.", 1<<16) + "/a",
	} {
		fuzzing.Spends(t, 5*time.Second, func() {
			if _, _, err := parseImage(image); err == nil || len(err.Error()) > 4096 {
				t.Errorf("%s: taken, or an error of some length", name)
			}
		})
	}
}
