// SPDX-License-Identifier: Apache-2.0

// Package callerlog writes log lines whose number and text a caller controls. Of one
// address and message it writes one line a second at most, and it cuts every text.
package callerlog

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/pkg/quiet"
	"github.com/sextant-node/sextant/services/nodeapi/internal/fair"
)

// Longest texts, in bytes: an attribute, the stack of a handler that panicked, and the
// command of a session.
const (
	maxText    = 256
	maxStack   = 4 << 10
	maxCommand = 8 << 10
)

// Log is a log with these limits. It is safe for concurrent use.
type Log struct {
	logger     *slog.Logger
	suppressed prometheus.Counter

	mu    sync.Mutex
	limit quiet.Limit
}

// New makes a Log that writes to logger and counts in registry the lines left out.
func New(logger *slog.Logger, registry prometheus.Registerer) *Log {
	return &Log{logger: logger, suppressed: metric.In(registry).Counter("sextant_nodeapi_log_lines_suppressed_total",
		"Lines about callers that were not written to the log because there were too many.")}
}

// Log writes a line about the caller at an address, which may be empty.
func (l *Log) Log(ctx context.Context, level slog.Level, from, message string, args ...any) {
	if !l.logger.Enabled(ctx, level) {
		return
	}
	l.mu.Lock()
	ok, suppressed := l.limit.Allow(message+" "+fair.Origin(from).String(), time.Now())
	l.mu.Unlock()
	if !ok {
		l.suppressed.Inc()
		return
	}
	for i, value := range args {
		if text, isText := value.(string); isText {
			args[i] = Cut(text)
		}
	}
	if from != "" {
		args = append(args, "from", from)
	}
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	l.logger.Log(ctx, level, message, args...)
}

// Write takes the lines of http.Server.ErrorLog: handlers that panicked, and connections
// that broke, which are of interest to debuggers only.
func (l *Log) Write(line []byte) (int, error) {
	ctx := context.Background()
	if bytes.Contains(line, []byte("panic serving")) {
		l.Log(ctx, slog.LevelError, "", "handler panicked", "stack", stack(quiet.Cut(string(line), maxStack)))
	} else {
		l.Log(ctx, slog.LevelDebug, "", "net/http", "line", string(bytes.TrimSpace(line)))
	}
	return len(line), nil
}

// stack has a limit of its own.
type stack string

// Cut shortens a text that a caller chose.
func Cut(text string) string { return quiet.Cut(text, maxText) }

// Command shortens the command of a session, to 64 words at most.
func Command(command []string) []string {
	left := maxCommand
	for i, word := range command {
		if len(word) > left || i == 64 {
			return append(command[:i:i], quiet.Cut(word, left), "...")
		}
		left -= len(word)
	}
	return command
}
