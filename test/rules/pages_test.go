// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// decided is the third line of a decision.
var decided = regexp.MustCompile(`^Date: \d{4}-\d\d-\d\d\. Status: (accepted|superseded by \[\d{4}\]\(\d{4}-[a-z0-9-]+\.md\))\.$`)

// TestDecisions: each page of docs/decisions has a number of its own, which its title
// repeats, and says when it was decided and whether it holds.
func TestDecisions(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(root, "docs/decisions/[0-9]*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	seen := map[string]string{}
	for _, page := range pages {
		name := filepath.Base(page)
		number, _, _ := strings.Cut(name, "-")
		if other := seen[number]; other != "" {
			t.Errorf("%s and %s have one number", other, name)
		}
		seen[number] = name
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitN(string(text), "\n", 4)
		if len(lines) < 4 || !strings.HasPrefix(lines[0], "# "+number+". ") {
			t.Errorf("%s does not begin with %q", name, "# "+number+". TITLE")
			continue
		}
		if !decided.MatchString(lines[2]) {
			t.Errorf("%s: the third line is %q, not \"Date: YYYY-MM-DD. Status: accepted.\" or \"superseded by [NNNN](PAGE)\"", name, lines[2])
		}
	}
}

// widest is how many columns a line of prose has at most. Tables and what is copied
// from a terminal have what they need.
const widest = 120

// TestProse: a page can be read beside another window.
func TestProse(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range tooWide(string(text)) {
			t.Errorf("%s:%d: more than %d columns", page, n, widest)
		}
	}
}

// tooWide returns the numbers of the lines of prose that are too long.
func tooWide(text string) (lines []int) {
	code, n := false, 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if !code && !strings.HasPrefix(line, "|") && len([]rune(line)) > widest {
			lines = append(lines, n)
		}
	}
	return lines
}

func TestTooWide(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 30)
	text := "short\n" + long + "\n| " + long + "\n```\n" + long + "\n```\n" + long + "\n"
	if got := tooWide(text); len(got) != 2 || got[0] != 2 || got[1] != 7 {
		t.Errorf("found lines %v, want 2 and 7", got)
	}
}
