// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

// String is the word that the stories have.
func (v Verdict) String() string { return [...]string{"waiting", "passed", "failed"}[v] }

// TestTrial plays the stories of testdata: a line of terms, then what was seen when,
// and what was said to it.
func TestTrial(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d stories, %v", len(files), err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, story := range archive.Files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+story.Name, func(t *testing.T) {
				play(t, strings.Split(strings.TrimSpace(string(story.Data)), "\n"))
			})
		}
	}
}

func play(t *testing.T, lines []string) {
	t.Helper()
	var trial *Trial
	for i := 0; i < len(lines); i++ {
		words := strings.Fields(lines[i])
		if words[0] == "terms" {
			terms := Terms{Version: "v2", Former: "old", Steady: 5 * time.Second, Limit: 30 * time.Second, Restarts: 2}
			terms.Serving = len(words) > 1 && words[1] == "serving"
			trial = NewTrial(terms)
			continue
		}
		at, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		i++
		want := strings.TrimSpace(lines[i])
		verdict, why := trial.Step(time.Duration(at)*time.Second, seen(t, words[1:]))
		if got := strings.TrimSpace(fmt.Sprintf("=> %s %s", verdict, why)); got != want {
			t.Errorf("at %d s:\n got %s\nwant %s", at, got, want)
		}
	}
}

func seen(t *testing.T, words []string) Seen {
	t.Helper()
	s := Seen{Version: "v2", Epoch: "new", Protocol: 1, Understood: true, Serving: true}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "down":
			s = Seen{Err: "no answer"}
		case "starting":
			s.Serving, s.Reason = false, "waits for config"
		case "epoch":
			s.Epoch = value
		case "version":
			s.Version = value
		case "stranger":
			s.Protocol, s.Understood = 9, false
		default:
			t.Fatalf("word %q", word)
		}
	}
	return s
}
