// SPDX-License-Identifier: Apache-2.0

package dead

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// of reads containers as "pod/name@created" or "pod/name#attempt@created", the ID being the
// whole.
func of(t *testing.T, text string) (all []Container) {
	t.Helper()
	for id := range strings.FieldsSeq(text) {
		who, age, _ := strings.Cut(id, "@")
		pod, name, _ := strings.Cut(who, "/")
		name, number, _ := strings.Cut(name, "#")
		attempt, _ := strconv.Atoi(number) // 0 for none
		d, err := time.ParseDuration(age)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Container{ID: id, Pod: pod, Name: name, Attempt: attempt, Created: time.Unix(0, 0).Add(d)})
	}
	return all
}

func TestExcess(t *testing.T) {
	for _, tt := range []struct {
		what, have string
		most       int
		want       string
	}{
		{"no limit", "a/c@1s a/c@2s", -1, ""},
		{"not too many", "a/c@1s a/c@2s", 2, ""},
		{"the oldest of each go first", "a/c@1s a/c@2s a/c@3s b/c@1s", 2, "a/c@1s a/c@2s"},
		{"a share each", "a/c@1s a/c@2s a/c@3s b/c@4s b/c@5s b/d@6s", 3, "a/c@1s a/c@2s b/c@4s"},
		{"then the oldest of all", "a/c@1s b/c@2s c/c@3s", 2, "a/c@1s"},
		{"none may stay", "a/c@1s b/c@2s", 0, "a/c@1s b/c@2s"},
		{"nothing is there", "", 0, ""},
		{"the newest instance stays, although the clock was set back", "a/c#0@9s a/c#1@1s", 1, "a/c#0@9s"},
		{"two containers of a pod count apart", "a/c@1s a/d@2s a/d@3s", 2, "a/d@2s"},
	} {
		got := strings.Join(slices.Sorted(maps.Keys(Excess(of(t, tt.have), tt.most))), " ")
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}
