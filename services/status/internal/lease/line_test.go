// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/services/status/internal/api"
	"github.com/sextant-node/sextant/services/status/internal/lease"
	"github.com/sextant-node/sextant/test/fakeapi"
)

// TestLeaseOverALineThatSwallows: the Lease is renewed over a new connection after two
// renewals that were not answered, and not when HTTP/2 gives the old one up, after 45 s.
func TestLeaseOverALineThatSwallows(t *testing.T) {
	cluster := fakeapi.New()
	server := cluster.ServeTLS()
	defer server.Close()
	line := fakeapi.NewLine(t, server.Listener.Addr().String())
	const duration = 3 * time.Second // of the Lease, and the most that one request takes
	source := api.NewSource(api.Config{Lease: duration, Kubeconfig: fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://%s', insecure-skip-tls-verify: true}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\nusers: [{name: u, user: {}}]\n", line.Addr())})
	loop := lease.New(lease.Deps{
		Settings: func() (lease.Settings, error) {
			c, err := source.Clients()
			if err != nil {
				return lease.Settings{}, err
			}
			return lease.Settings{Node: "n1", Duration: duration, Client: c.Lease, Generation: c.Generation}, nil
		},
		NodeUID: func() types.UID { return "u" }, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := loop.Run(ctx); err != nil {
			t.Errorf("lease: %v", err)
		}
	}()
	defer func() { cancel(); <-ended }()
	renewed := func(what string, within time.Duration) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		var before time.Time
		if l := cluster.Lease("n1"); l != nil {
			before = l.Spec.RenewTime.Time
		}
		if err := cluster.Eventually(ctx, func() bool { l := cluster.Lease("n1"); return l != nil && l.Spec.RenewTime.After(before) }); err != nil {
			t.Fatalf("not renewed %s", what)
		}
	}
	renewed("at first", 2*time.Minute)
	renewed("again", 2*time.Minute)
	line.Swallow()
	renewed("over a new connection", 40*time.Second)
}
