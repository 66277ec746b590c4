// SPDX-License-Identifier: Apache-2.0

// Package stories replays text files against a decision: what happened in, what was decided
// out. A story is a txtar file below testdata; its part "want" is the transcript that the
// rest of it must give.
//
//	go test . -run TestStories -update    writes the transcripts as they are now
package stories

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the transcripts of stories as they are now")

const want = "want"

// Replay runs a test for each testdata/*.txtar, of which there are at least so many: tell
// returns the story's transcript.
func Replay(t *testing.T, least int, tell func(t *testing.T, a *txtar.Archive) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < least {
		t.Fatalf("%d stories, at least %d expected: %v", len(files), least, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if i := index(a, "story"); i < 0 {
				t.Fatal(`there is no part "story"`)
			}
			got, i := tell(t, a), index(a, want)
			if *update {
				if i < 0 {
					a.Files, i = append(a.Files, txtar.File{Name: want}), len(a.Files)
				}
				a.Files[i].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if i < 0 || got != string(a.Files[i].Data) {
				t.Errorf("the transcript differs; got:\n%s", got)
			}
		})
	}
}

// Part is a part of a story by its name; nil if there is none.
func Part(a *txtar.Archive, name string) []byte {
	if i := index(a, name); i >= 0 {
		return a.Files[i].Data
	}
	return nil
}

func index(a *txtar.Archive, name string) int {
	return slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == name })
}
