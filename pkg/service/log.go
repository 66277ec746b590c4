// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// Keys of log fields that mean the same in every service.
const (
	KeyService   = "service"
	KeyPod       = "pod" // namespace/name
	KeyUID       = "uid"
	KeyContainer = "container"
	KeyError     = "error"
	KeyTrace     = "trace"
)

// Formats of logs.
const (
	JSON = "json"
	Text = "text" // key=value
)

// NewLogger writes lines, in JSON or as text, with the service's name, and the trace of
// the context where there is one.
func NewLogger(w io.Writer, format, service string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if format == Text {
		handler = slog.NewTextHandler(w, options)
	}
	return slog.New(traced{handler}).With(KeyService, service)
}

// ParseLevel reads debug, info, warn or error.
func ParseLevel(text string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(strings.ToUpper(text))); err != nil {
		return 0, fmt.Errorf("log level %q: want debug, info, warn or error", text)
	}
	return level, nil
}

type traced struct{ slog.Handler }

func (t traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		r.AddAttrs(slog.String(KeyTrace, span.TraceID().String()))
	}
	return t.Handler.Handle(ctx, r)
}

func (t traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{t.Handler.WithAttrs(attrs)} }
func (t traced) WithGroup(name string) slog.Handler       { return traced{t.Handler.WithGroup(name)} }
