// SPDX-License-Identifier: Apache-2.0

package quiet

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

var start = time.Unix(1_700_000_000, 0)

// TestOneKind: a line a second, which says how many there would have been.
func TestOneKind(t *testing.T) {
	var l Limit
	written, suppressed := 0, 0
	for i := range 1001 { // a hundred a second
		if ok, s := l.Allow("a", start.Add(time.Duration(i)*10*time.Millisecond)); ok {
			written++
			suppressed += s
		}
	}
	if written != 11 || suppressed != 990 {
		t.Errorf("%d lines written, that tell of %d others; want 11 and 990", written, suppressed)
	}
}

// TestManyKinds: however many origins there are, the lines and what is remembered
// stay few.
func TestManyKinds(t *testing.T) {
	var l Limit
	written, told := 0, 0
	const seconds, each = 60, 3000
	for i := range seconds * each {
		if ok, s := l.Allow(fmt.Sprint(i%7919), start.Add(time.Duration(i)*time.Second/each)); ok {
			written++
			told += s
		}
	}
	if written > most*(seconds+1) || written < most*(seconds-2) {
		t.Errorf("%d lines in %d s, want %d each", written, seconds, most)
	}
	if len(l.kinds) > known+1 {
		t.Errorf("%d kinds are remembered, at most %d are to be", len(l.kinds), known+1)
	}
	left := 0
	for _, k := range l.kinds {
		left += k.suppressed
	}
	if written+told+left != seconds*each {
		t.Errorf("%d written, %d told of, %d to be told of: of %d lines", written, told, left, seconds*each)
	}
	// Those that are known already are told apart for as long as there is something
	// to tell of; the others are one kind.
	if ok, _ := l.Allow("new", start.Add(time.Hour)); !ok {
		t.Error("a line after an hour's quiet is not written")
	}
}

// TestClockSetBack: nothing is kept quiet for as long as the clock was ahead.
func TestClockSetBack(t *testing.T) {
	var l Limit
	for range 2 * most {
		l.Allow("a", start)
		l.Allow("b", start)
	}
	for _, kind := range []string{"a", "b", "c"} {
		if ok, _ := l.Allow(kind, start.Add(-time.Hour)); !ok {
			t.Errorf("%s is not written after the clock was set back", kind)
		}
	}
}

func FuzzCut(f *testing.F) {
	for _, text := range []string{"", "short", strings.Repeat("x", 300), strings.Repeat("ä", 200), strings.Repeat("\xff", 300), strings.Repeat("€", 100), "\xf0\x9f\x98"} {
		f.Add(text, 256)
		f.Add(text, 3)
		f.Add(text, 0)
	}
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < 0 || most > 1<<16 {
			return
		}
		got := Cut(text, most)
		if len(text) <= most {
			if got != text {
				t.Errorf("%q became %q", text, got)
			}
			return
		}
		kept, rest, _ := strings.Cut(got, "... (")
		if !strings.HasPrefix(got, text[:max(0, most-utf8.UTFMax)]) || rest != "" && len(kept) > most || len(got) > most+40 {
			t.Errorf("%d of %q became %q", most, text, got)
		}
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q was cut within a character: %q", text, got)
		}
	})
}

// TestLog: of lines that a stranger causes ten times a second, one a minute is written,
// with the number of the others.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		log := NewLog(slog.New(slog.NewJSONHandler(&written, nil)))
		for range 3 * 600 {
			log.Say(slog.LevelWarn, "uid 7", "peer refused", "uid", 7)
			log.Say(slog.LevelDebug, "uid 7", "not to be written at all")
			<-time.After(100 * time.Millisecond)
		}
		log.Say(slog.LevelWarn, "uid 7", "peer refused", "uid", 7)
		lines := strings.Split(strings.TrimSpace(written.String()), "\n")
		if len(lines) != 4 || strings.Contains(lines[0], "suppressed") || !strings.Contains(lines[3], `"suppressed":599`) {
			t.Errorf("%d lines:\n%s", len(lines), written.String())
		}
	})
}
