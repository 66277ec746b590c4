// SPDX-License-Identifier: Apache-2.0

package quiet

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Log writes lines that others cause, one a minute of a kind and four in all, each with
// the number of those of its kind that were left out. Safe for concurrent use.
type Log struct {
	logger *slog.Logger
	mu     sync.Mutex
	limit  Limit
}

// NewLog makes a Log that writes to a logger.
func NewLog(logger *slog.Logger) *Log { return &Log{logger: logger, limit: Limit{Period: time.Minute}} }

// Say writes a line of a kind, unless there were too many.
func (l *Log) Say(level slog.Level, kind, message string, about ...any) {
	if !l.logger.Enabled(context.Background(), level) {
		return
	}
	l.mu.Lock()
	ok, suppressed := l.limit.Allow(kind, time.Now())
	l.mu.Unlock()
	if !ok {
		return
	}
	if suppressed > 0 {
		about = append(about, "suppressed", suppressed)
	}
	l.logger.Log(context.Background(), level, message, about...)
}
