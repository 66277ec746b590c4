package cluster

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/sextant-node/sextant/services/config/internal/watch"
)

// period of looking at the credentials without being told.
const period = 20 * time.Second

// Config of a session.
type Config struct {
	Settings
	// Use works with a client until its context ends: that of Run, or of these
	// credentials.
	Use func(ctx context.Context, client *kubernetes.Clientset)
	// Report hears why there is no client; nil when there is one.
	Report func(err error)
	Log    *slog.Logger
}

// Run makes clients and lets Use work with them until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	for ctx.Err() == nil {
		now, readErr := cfg.read()
		client, err := cfg.client(now, readErr)
		cfg.Report(err)
		if err != nil {
			cfg.Log.Warn("no credentials for the API server", "error", err.Error())
		} else {
			cfg.Log.Info("credentials read", "kubeconfig", cfg.Kubeconfig)
		}
		session, end := context.WithCancel(ctx)
		var parts sync.WaitGroup
		if err == nil {
			parts.Go(func() { cfg.Use(session, client) })
		}
		// A wake that finds everything as it was changes nothing.
		_ = watch.Run(session, watch.Config{
			Paths: now.files, Period: period, Log: cfg.Log,
			Look: func() {
				next, nextErr := cfg.read()
				switch {
				case err == nil && nextErr != nil:
					// Half written, perhaps: what works goes on.
					cfg.Log.Warn("credentials not read, the former stay", "error", nextErr.Error())
				case Text(nextErr) != Text(readErr) || next.sum != now.sum:
					end()
				}
			},
		})
		end()
		parts.Wait()
	}
	return nil
}
