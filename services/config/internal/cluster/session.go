// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"log/slog"
	"sync"
)

// Config of a session.
type Config struct {
	Settings
	// Credentials is the self-contained kubeconfig, or why there is none; changed
	// is closed when the answer differs.
	Credentials func() (kubeconfig []byte, changed <-chan struct{}, err error)
	// Use works with clients until its context ends: that of Run, or of these
	// credentials.
	Use func(ctx context.Context, clients *Clients)
	// Report is called with why there is no client; nil when there is one.
	Report func(err error)
	Log    *slog.Logger
}

// Run makes clients and lets Use work with them until ctx ends. The connections
// of a credential end with it.
func Run(ctx context.Context, cfg Config) error {
	for ctx.Err() == nil {
		var clients *Clients
		var closing func()
		kubeconfig, changed, err := cfg.Credentials()
		if err == nil {
			clients, closing, err = cfg.Client(kubeconfig)
		}
		cfg.Report(err)
		session, end := context.WithCancel(ctx)
		var parts sync.WaitGroup
		if err == nil {
			parts.Go(func() { cfg.Use(session, clients) })
		} else {
			cfg.Log.Warn("no credentials for the API server", "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
		end()
		parts.Wait()
		if closing != nil {
			closing()
		}
	}
	return nil
}
