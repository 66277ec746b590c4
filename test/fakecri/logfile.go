// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// maxLogLine is where containerd breaks a line, in bytes of its text.
const maxLogLine = 16 << 10

// logFile is a container's log in the CRI format: one line per line of output,
// "<RFC 3339 nano> <stdout|stderr> <F|P> <text>", P where it does not end.
type logFile struct {
	path  string
	stamp func() time.Time

	mu      sync.Mutex
	f       *os.File // nil once closed
	streams []*logStream
}

func openLog(path string, stamp func() time.Time) (*logFile, error) {
	l := &logFile{path: path, stamp: stamp}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return l, l.open()
}

func (l *logFile) open() (err error) {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	old := l.f
	l.f = f
	if old != nil {
		return old.Close()
	}
	return nil
}

func (l *logFile) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open()
}

// close writes what is left of unfinished lines. Later output is lost.
func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return
	}
	for _, s := range l.streams {
		if len(s.rest) > 0 {
			s.line("P", s.rest)
		}
	}
	l.f.Close() //nolint:errcheck // each line was written by itself
	l.f = nil
}

func (l *logFile) stream(name string) io.Writer {
	s := &logStream{l: l, name: name}
	l.streams = append(l.streams, s)
	return s
}

// logStream is stdout or stderr; rest is the line begun, guarded by logFile.mu.
type logStream struct {
	l    *logFile
	name string
	rest []byte
}

func (s *logStream) Write(p []byte) (int, error) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.l.f == nil {
		return 0, os.ErrClosed
	}
	s.rest = append(s.rest, p...)
	for {
		end := bytes.IndexByte(s.rest, '\n')
		if end < 0 && len(s.rest) < maxLogLine {
			return len(p), nil
		}
		if end < 0 || end > maxLogLine {
			s.line("P", s.rest[:maxLogLine])
			s.rest = s.rest[maxLogLine:]
			continue
		}
		s.line("F", s.rest[:end])
		s.rest = s.rest[end+1:]
	}
}

func (s *logStream) line(tag string, text []byte) {
	// One write per line, so that readers never see half of one.
	// A log that cannot be written does not end the process, as in containerd.
	_, _ = s.l.f.Write(fmt.Appendf(nil, "%s %s %s %s\n", s.l.stamp().Format(time.RFC3339Nano), s.name, tag, text))
}
