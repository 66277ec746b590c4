// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/test/e2e/compare"
)

func moves(t *testing.T, side string) compare.Moves {
	t.Helper()
	m, err := compare.MovesOf(compare.Scrape{read(t, side+"-before.txt")}, compare.Scrape{read(t, side+"-after.txt")})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "moves", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestMoves judges the two pairs of scrapes in testdata/moves by each table there.
func TestMoves(t *testing.T) {
	reference, sextant := moves(t, "reference"), moves(t, "sextant")
	tables, err := filepath.Glob(filepath.Join("testdata", "moves", "*.table"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	for _, path := range tables {
		name := strings.TrimSuffix(filepath.Base(path), ".table")
		table, err := compare.ParseMoveTable(string(read(t, name+".table")))
		if err != nil {
			t.Fatal(err)
		}
		report, want := table.Judge(reference, sextant), string(read(t, name+".want"))
		if got := report.String(); got != want {
			t.Errorf("%s:\n%swant\n%s", name, got, want)
		}
		if wrong := strings.Count(want, "\n") > 1; report.OK() == wrong {
			t.Errorf("%s: OK is %v", name, report.OK())
		}
	}
}

// TestSeveralPages: what all pages have, such as the time of the start, is one series.
func TestSeveralPages(t *testing.T) {
	page := func(n string) []byte { return []byte("# TYPE a_total counter\na_total " + n + "\n") }
	m, err := compare.MovesOf(compare.Scrape{page("1"), page("1")}, compare.Scrape{page("4"), page("4")})
	if err != nil || len(m) != 1 || m["a_total{}"].Value != 3 {
		t.Errorf("%v, %v", m, err)
	}
	for _, bad := range []compare.Scrape{{[]byte("Unauthorized\n")}, {page("1"), []byte("a{")}} {
		if _, err := compare.MovesOf(compare.Scrape{page("1")}, bad); err == nil {
			t.Errorf("%q gave movements", bad)
		}
		if _, err := compare.MovesOf(bad, compare.Scrape{page("1")}); err == nil {
			t.Errorf("%q gave movements", bad)
		}
	}
}

func TestParseMoveTableRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"moves a\n":                  `line 1: "moves a" has no reason above it`,
		"equal a\n\nwithin a\n":      `line 3: "within a" is no rule`,
		"equal\n":                    `line 1: "equal" is no rule`,
		"equal a{b}\n":               `line 1: "equal a{b}": "b" is no label with a pattern`,
		"equal a{b=\"c\" d=\"e\"}":   `line 1: "equal a{b=\"c\" d=\"e\"}": "b=\"c\" d=\"e\"" is no label with a pattern`,
		"# Why.\nwithin 1.2.3 a\n":   `line 2: "within 1.2.3 a": strconv.ParseFloat`,
		"# Why.\nabout 3 a by b\n":   `line 2: "about 3 a by b" is no rule`,
		"equal a by b\nequal a by b": `line 2: "equal a by b" is listed twice`,
	} {
		if _, err := compare.ParseMoveTable(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
