// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/service"
)

func waits(ctx context.Context) error { <-ctx.Done(); return nil }

func TestTheFirstCauseStopsAll(t *testing.T) {
	boom := errors.New("boom")
	err := service.RunTasks(t.Context(), time.Minute,
		service.Task{Name: "good", Run: waits},
		service.Task{Name: "bad", Run: func(context.Context) error { return boom }},
		service.Task{Name: "late", Run: func(ctx context.Context) error { <-ctx.Done(); return errors.New("second") }},
	)
	if !errors.Is(err, boom) || !strings.HasPrefix(err.Error(), "bad: ") {
		t.Errorf("got %v, want the first cause by name", err)
	}
}

func TestAnOrderlyEndIsNoError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := service.RunTasks(ctx, time.Minute, service.Task{Name: "a", Run: waits}); err != nil {
		t.Error(err)
	}
}

func TestReturningEarlyIsACause(t *testing.T) {
	err := service.RunTasks(t.Context(), time.Minute, service.Task{Name: "a", Run: func(context.Context) error { return nil }})
	if err == nil || !strings.Contains(err.Error(), "a: returned early") {
		t.Errorf("got %v", err)
	}
}

func TestAPanicIsACause(t *testing.T) {
	err := service.RunTasks(t.Context(), time.Minute, service.Task{Name: "a", Run: func(context.Context) error { panic("boom") }})
	if err == nil || !strings.Contains(err.Error(), "panic: boom") {
		t.Errorf("got %v", err)
	}
}

func TestGraceIsALimit(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	err := service.RunTasks(t.Context(), time.Millisecond,
		service.Task{Name: "stuck", Run: func(context.Context) error { <-release; return nil }},
		service.Task{Name: "bad", Run: func(context.Context) error { return errors.New("boom") }},
	)
	if err == nil || !strings.Contains(err.Error(), "boom") || !strings.Contains(err.Error(), "[stuck]") {
		t.Errorf("got %v, want the cause and who was left behind", err)
	}
}
