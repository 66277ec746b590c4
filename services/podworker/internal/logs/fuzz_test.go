// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/klog/v2"

	"github.com/sextant-node/sextant/test/fuzzing"
)

const oneLine = "2026-01-01T00:00:00.000000000Z stdout F line\n"

// readAll reads a log from a cursor on, and returns what came and the last cursor.
func readAll(t *testing.T, path string, after *cursor, timestamps bool, limit int64) (string, []byte) {
	t.Helper()
	return readStreams(t, path, after, timestamps, limit, true, true)
}

// readStreams is readAll with standard output, standard error or both.
func readStreams(t *testing.T, path string, after *cursor, timestamps bool, limit int64, out, err bool) (string, []byte) {
	t.Helper()
	var got bytes.Buffer
	var last []byte
	to := &lines{timestamps: timestamps, limit: limit, after: after, at: cursor{ID: "c"}, out: func(data []byte, at cursor) error {
		got.Write(data)
		last = at.bytes()
		return nil
	}}
	options := &logs.LogOptions{Timestamp: true}
	if after != nil {
		options.Since = after.Time
	}
	quiet := klog.NewContext(t.Context(), klog.Logger{})
	// The reader ends at a line that it cannot read; what it had read before counts.
	_ = logs.ReadLogs(quiet, path, "c", options, nil, stream{to, out}, stream{to, err})
	return got.String(), last
}

// ofReader is what the reader of cri-client itself, which a kubelet uses, makes of a log.
func ofReader(t *testing.T, path string, timestamps bool, limit int64, out, err bool) string {
	t.Helper()
	var got bytes.Buffer
	var stdout, stderr io.Writer
	if out {
		stdout = &got
	}
	if err {
		stderr = &got
	}
	_ = logs.ReadLogs(klog.NewContext(t.Context(), klog.Logger{}), path, "c", &logs.LogOptions{Timestamp: timestamps, LimitBytes: &limit}, nil, stdout, stderr)
	return got.String()
}

// FuzzReadLog: a log, whatever is in the file, is read without harm to the process, and a
// reader that was interrupted anywhere gets the rest and nothing twice.
func FuzzReadLog(f *testing.F) {
	for _, s := range []string{
		"", oneLine, strings.Repeat(oneLine, 3), "2026-01-01T00:00:00.000000000Z stdout P part\n2026-01-01T00:00:00.000000000Z stdout F end\n" + oneLine,
		"2026-01-01T00:00:00.000000000+24:00 stdout F a day away\n" + oneLine, "9999-12-31T23:59:59.999999999-23:00 stderr F next millennium\n", "0000-01-01T00:00:00.0Z stdout F zero\n",
		"0000-01-01T00:00:00.0+01:00 stdout F before\n", "2026-01-01T00:00:00.5Z stdout F 2026-01-01T00:00:00.500000000Z twice\n", "2026-01-01T00:00:00Z stdout F\n", "{\"log\":\"json\\n\",\"stream\":\"stdout\",\"time\":\"2026-01-01T00:00:00Z\"}\n",
		"2026-01-01T00:00:00Z stdout P \n2026-01-01T00:00:00Z stdout P \n2026-01-01T00:00:00Z stdout F \n", "2026-01-01T00:00:00Z stdout F no end", "2026-01-01T00:00:02Z stdout F a\n2026-01-01T00:00:01Z stdout F b\n",
		"2026-01-01T00:00:00Z stdout P part\n2026-01-01T00:00:01Z stderr F between\n2026-01-01T00:00:02Z stdout F rest\n", "2026-01-01T00:00:00Z stdout P \n2026-01-01T00:00:01Z stdout F after nothing\n",
		"{\"log\":\"no end\",\"stream\":\"stderr\",\"time\":\"2026-01-01T00:00:00Z\"}\n{\"log\":\"\",\"stream\":\"stdout\",\"time\":\"2026-01-01T00:00:00Z\"}\n{\"log\":\"x\",\"stream\":\"stdout\",\"time\":\"2026-01-01T00:00:00Z\"}\n",
	} {
		f.Add([]byte(s), 5, true)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte, limit int, timestamps bool) {
		path := filepath.Join(dir, "0.log")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		fuzzing.Allocates(t, 2<<20+100*uint64(len(content)), func() {
			fuzzing.Spends(t, 2*time.Second, func() {
				whole, last := readAll(t, path, nil, timestamps, -1)
				if len(whole) > 40*len(content)+1000 {
					t.Errorf("%d bytes of %d", len(whole), len(content))
				}
				for i, some := range []struct{ out, err bool }{{true, true}, {true, false}, {false, true}} {
					least := int64(max(1, limit)) + 1<<40*int64(i%2)
					got, _ := readStreams(t, path, nil, timestamps, least, some.out, some.err)
					if want := ofReader(t, path, timestamps, least, some.out, some.err); got != want {
						t.Errorf("%+v, timestamps %v, %d bytes at most:\n%q, a kubelet:\n%q", some, timestamps, least, got, want)
					}
				}
				if last == nil {
					return
				}
				after, err := parseCursor(last)
				if err != nil || after == nil {
					t.Fatalf("cursor %q: %v", last, err)
				}
				if first, _ := readAll(t, path, nil, timestamps, int64(max(1, limit))); !strings.HasPrefix(whole, first) || len(first) > max(1, limit) {
					t.Errorf("the first %d bytes are %q, of %q", limit, first, whole)
				}
			})
		})
	})
}

// FuzzParseCursor: a cursor that is taken is the one that is given again.
func FuzzParseCursor(f *testing.F) {
	for _, s := range []string{"", `{"id":"c","time":"2026-01-01T00:00:00Z","count":1}`, `{"id":"c","count":-1}`, `{"id":""}`, `{"id":"c","time":"2026-01-01T00:00:00+24:00"}`, "[]", `{"id":"c","parts":9999999999999999999}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		fuzzing.Allocates(t, 512<<10+100*uint64(len(raw)), func() {
			c, err := parseCursor(raw)
			if err != nil || c == nil {
				if (c == nil) == (err == nil) != (len(raw) == 0) {
					t.Errorf("%q: %v, %v", raw, c, err)
				}
				return
			}
			again, err := parseCursor(c.bytes())
			if err != nil || again.ID != c.ID && !strings.Contains(c.ID, "\ufffd") || !again.Time.Equal(c.Time) || again.Count != c.Count || again.Parts != c.Parts {
				t.Errorf("%+v became %+v, %v", c, again, err)
			}
		})
	})
}

// TestResumesAnywhere: a reader interrupted after any line, or piece of one, gets the rest.
func TestResumesAnywhere(t *testing.T) {
	var content strings.Builder
	for i := range 20 {
		fmt.Fprintf(&content, "2026-01-01T00:00:%02d.000000000Z %s %c text %d\n", i/4, []runtimeapi.LogStreamType{runtimeapi.Stdout, runtimeapi.Stderr}[i%2], "PFF"[i%3], i)
	}
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(content.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	whole, _ := readAll(t, path, nil, true, -1)
	seen := map[int]bool{}
	for limit := range len(whole) {
		first, at := readAll(t, path, nil, true, int64(max(1, limit)))
		if seen[len(first)] || !strings.HasSuffix(first, "\n") {
			continue // only what ends with a line is interrupted there
		}
		seen[len(first)] = true
		after, err := parseCursor(at)
		if err != nil {
			t.Fatal(err)
		}
		if rest, _ := readAll(t, path, after, true, -1); first+rest != whole {
			t.Errorf("after %d bytes: %q", len(first), rest)
		}
	}
	if len(seen) < 10 {
		t.Errorf("interrupted at %d places", len(seen))
	}
}
