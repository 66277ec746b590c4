// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Keys of log fields that mean the same in every service.
const (
	KeyService   = "service"
	KeyPod       = "pod" // namespace/name
	KeyUID       = "uid"
	KeyContainer = "container"
	KeyError     = "error"
)

// Formats of logs.
const (
	JSON = "json"
	Text = "text" // key=value
)

// NewLogger writes lines, in JSON or as text, with the service's name.
func NewLogger(w io.Writer, format, service string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if format == Text {
		handler = slog.NewTextHandler(w, options)
	}
	return slog.New(handler).With(KeyService, service)
}

// ParseLevel reads debug, info, warn or error.
func ParseLevel(text string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(strings.ToUpper(text))); err != nil {
		return 0, fmt.Errorf("log level %q: want debug, info, warn or error", text)
	}
	return level, nil
}
