// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"os"
	"regexp"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// logLine is the CRI log format: time, stream, full or partial, text.
var logLine = regexp.MustCompile(`^(\S+) (stdout|stderr) ([FP]) (.*)$`)

type line struct {
	at                time.Time
	stream, tag, text string
}

// lines reads a whole log; a line that has not the format ends the test.
func (e *env) lines(path string) []line {
	e.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		e.Fatal(err)
	}
	var out []line
	for _, l := range strings.SplitAfter(string(data), "\n") {
		if l == "" {
			continue
		}
		m := logLine.FindStringSubmatch(strings.TrimSuffix(l, "\n"))
		if m == nil || !strings.HasSuffix(l, "\n") {
			e.Fatalf("not a line of the CRI log format: %.200q", l)
		}
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			e.Fatalf("time of a log line: %v", err)
		}
		out = append(out, line{at, m[2], m[3], m[4]})
	}
	return out
}

// text joins the lines of a stream as a reader does.
func text(lines []line, stream string) string {
	var b strings.Builder
	for _, l := range lines {
		if l.stream != stream {
			continue
		}
		b.WriteString(l.text)
		if l.tag == "F" {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func (c *ctr) reopen() error {
	_, err := c.runtime.ReopenContainerLog(c.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: c.id})
	return err
}

var logTests = []test{
	{"has both streams, line by line, unfinished ones marked", func(e *env) {
		before := time.Now().Add(-time.Second)
		c := e.pod().start("echo one; echo two; echo; echo bad >&2; printf 'no end'")
		c.exited()
		var lines []line
		e.until("log is not complete", func() bool {
			lines = e.lines(c.logFile())
			return len(lines) >= 5
		})
		if got, want := text(lines, "stdout"), "one\ntwo\n\nno end"; got != want {
			e.Errorf("stdout %q, want %q", got, want)
		}
		if got, want := text(lines, "stderr"), "bad\n"; got != want {
			e.Errorf("stderr %q, want %q", got, want)
		}
		for _, l := range lines {
			if l.at.Before(before) || l.at.After(time.Now().Add(time.Second)) {
				e.Errorf("a line from %v", l.at)
			}
		}
	}},
	{"breaks a very long line", func(e *env) {
		long := strings.Repeat("0123456789abcdef", 2500) // 40 000 bytes
		p := e.pod()
		config := p.shellConfig(`printf "$LONG"; printf 'end\n'`)
		config.Envs = []*runtimeapi.KeyValue{{Key: "LONG", Value: []byte(long)}}
		c := p.create(config)
		e.ok("StartContainer", c.start())
		c.exited()
		var lines []line
		e.until("log is not complete", func() bool {
			lines = e.lines(c.logFile())
			return text(lines, "stdout") == long+"end\n"
		})
		if len(lines) < 3 || lines[0].tag != "P" || lines[len(lines)-1].tag != "F" {
			e.Errorf("%d lines, first %s, last %s", len(lines), lines[0].tag, lines[len(lines)-1].tag)
		}
	}},
	{"its directory is made", func(e *env) {
		p := e.pod()
		config := p.shellConfig("echo deep")
		config.LogPath = "some/where/below/0.log"
		c := p.create(config)
		e.ok("StartContainer", c.start())
		c.logged("deep")
	}},
	{"a container without a log path has none", func(e *env) {
		p := e.pod()
		config := p.shellConfig("echo lost; exit 4")
		config.LogPath = ""
		c := p.create(config)
		e.ok("StartContainer", c.start())
		if st := c.exited(); st.GetLogPath() != "" || st.GetExitCode() != 4 {
			e.Errorf("log path %q, exit code %d", st.GetLogPath(), st.GetExitCode())
		}
	}},
	{"reopen goes on in a new file", func(e *env) {
		c := e.pod().start("echo first; while [ ! -f /tmp/go ]; do sleep 0.05; done; echo second; sleep 1000")
		c.logged("first")
		rotated := c.logFile() + ".rotated"
		if err := os.Rename(c.logFile(), rotated); err != nil {
			e.Fatal(err)
		}
		e.ok("ReopenContainerLog", c.reopen())
		if _, err := os.Stat(c.logFile()); err != nil {
			e.Errorf("after reopen: %v", err)
		}
		_, err := c.exec(20, "touch", "/tmp/go")
		e.ok("ExecSync", err)
		c.logged("second")
		if got := text(e.lines(rotated), "stdout"); got != "first\n" {
			e.Errorf("the old file has %q", got)
		}
		if got := text(e.lines(c.logFile()), "stdout"); got != "second\n" {
			e.Errorf("the new file has %q", got)
		}
	}},
	{"reopen of what does not run is refused", func(e *env) {
		p := e.pod()
		c := p.create(p.commandConfig("true"))
		e.refused("ReopenContainerLog of a created one", c.reopen())
		e.ok("StartContainer", c.start())
		c.exited()
		e.refused("ReopenContainerLog of an exited one", c.reopen())
	}},
	{"attempts append to one file", func(e *env) {
		p := e.pod()
		for attempt := range uint32(2) {
			config := p.shellConfig("echo again")
			config.Metadata = &runtimeapi.ContainerMetadata{Name: "same", Attempt: attempt}
			config.LogPath = "same.log"
			c := p.create(config)
			e.ok("StartContainer", c.start())
			c.exited()
		}
		e.until("log lacks an attempt", func() bool {
			return text(e.lines(p.logs+"/same.log"), "stdout") == "again\nagain\n"
		})
	}},
}
