// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
)

// TestReads: the machine of the test has a loopback interface, and its name resolves.
func TestReads(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 10)
	r := NewReader(slog.New(slog.DiscardHandler), func() { changed <- struct{}{} })
	if r.Host() != nil {
		t.Error("read before it runs")
	}
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	r.Name("localhost")
	<-changed
	h := r.Host()
	if !slices.Contains(h.Interfaces, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("interfaces %v", h.Interfaces)
	}
	if !slices.ContainsFunc(h.Resolved, netip.Addr.IsLoopback) {
		t.Errorf("localhost resolves to %v", h.Resolved)
	}
	if h.Route4.IsValid() && !slices.Contains(h.Interfaces, h.Route4) {
		t.Errorf("the default route goes by %v, which is no address of %v", h.Route4, h.Interfaces)
	}
	r.Name("127.0.0.2")
	<-changed
	if got := r.Host().Resolved; len(got) != 1 || got[0].Unmap() != netip.MustParseAddr("127.0.0.2") {
		t.Errorf("another name resolves to %v", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
