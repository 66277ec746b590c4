// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/config/internal/api"
	"github.com/sextant-node/sextant/services/config/internal/cluster"
	"github.com/sextant-node/sextant/services/config/internal/file"
	"github.com/sextant-node/sextant/services/config/internal/identity"
	"github.com/sextant-node/sextant/services/config/internal/manifesturl"
	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/services/config/internal/objects"
)

// objectTTL is how often ConfigMaps and Secrets are asked for when they are not
// watched (kubelet: TTL of the cache, 1 m).
const objectTTL = time.Minute

// answerPatience is how long the API server's first answer is waited for before the
// pods of an earlier life are started without it.
const answerPatience = 5 * time.Second

// linger is how long ConfigMaps are followed that no pod needs any more.
const linger = time.Minute

// defaultPeriod replaces a check frequency that is not set.
const defaultPeriod = 20 * time.Second

// userAgent of everything config asks the API server for.
var userAgent = "sextant-config/" + service.Version

// lister is a source of pods, as the loop sees it.
type lister interface{ Listing() merge.Listing }

// settings are what a source is made of; a source whose settings change is
// replaced, and has to be read again.
type settings struct {
	path, url, header, node, strategy string
	period                            time.Duration
	cluster                           cluster.Settings
}

// slot is one configured source.
type slot struct {
	settings settings
	lister   lister
	run      func(context.Context) error
	// stop ends it; nil while it is not started. done is closed when it ended.
	stop context.CancelFunc
	done chan struct{}
	// before is closed when the source that had this place has ended.
	before <-chan struct{}
}

// sources are the configured sources of pods. configure says which; run runs
// them.
type sources struct {
	now      func() time.Time
	log      *slog.Logger
	wake     signal.Signal // merge soon
	identity *identity.Holder
	session  *session
	objects  *objects.Manager
	kick     signal.Signal

	mu    sync.Mutex
	slots map[string]*slot
}

// wanted are the sources a configuration names.
func wanted(c *kubeletconfig.Config) map[string]settings {
	k := &c.Kubelet
	all := map[string]settings{}
	if k.StaticPodPath != "" {
		all[pod.SourceFile] = settings{path: k.StaticPodPath, node: c.Node.Name, period: periodOf(k.FileCheckFrequency.Duration)}
	}
	if k.StaticPodURL != "" {
		header, err := json.Marshal(k.StaticPodURLHeader)
		if err != nil { // a map of strings always marshals
			header = nil
		}
		all[pod.SourceHTTP] = settings{url: k.StaticPodURL, header: string(header), node: c.Node.Name, period: periodOf(k.HTTPCheckFrequency.Duration)}
	}
	if !c.Standalone() {
		all[pod.SourceAPI] = settings{
			node: c.Node.Name, strategy: string(k.ConfigMapAndSecretChangeDetectionStrategy),
			cluster: cluster.Settings{
				QPS: ptr.Deref(k.KubeAPIQPS, 50), Burst: cmp.Or(k.KubeAPIBurst, 100), ContentType: k.ContentType, UserAgent: userAgent,
			},
		}
	}
	return all
}

func periodOf(d time.Duration) time.Duration {
	if d <= 0 {
		return defaultPeriod
	}
	return d
}

// configure brings the sources in line with a configuration. Those that stay
// the same go on undisturbed.
func (o *sources) configure(c *kubeletconfig.Config) {
	o.mu.Lock()
	defer o.mu.Unlock()
	want := wanted(c)
	before := map[string]<-chan struct{}{}
	for name, sl := range o.slots {
		if set, ok := want[name]; ok && set == sl.settings {
			continue
		}
		before[name] = sl.before // it never started
		if sl.stop != nil {
			sl.stop()
			before[name] = sl.done
		}
		delete(o.slots, name)
	}
	for name, set := range want {
		if _, ok := o.slots[name]; !ok {
			sl := o.newSlot(name, set, c)
			sl.before = before[name]
			o.slots[name] = sl
		}
	}
	o.kick.Send()
}

// newSlot makes a source; it does not run yet.
func (o *sources) newSlot(name string, set settings, c *kubeletconfig.Config) *slot {
	sl := &slot{settings: set, done: make(chan struct{})}
	switch name {
	case pod.SourceFile:
		source := file.New(file.Config{Path: set.path, Node: set.node, Period: set.period, Changed: o.wake.Send, Now: o.now, Log: o.log})
		sl.lister, sl.run = source, source.Run
	case pod.SourceHTTP:
		source := manifesturl.New(manifesturl.Config{
			URL: set.url, Header: c.Kubelet.StaticPodURLHeader, Node: set.node,
			Period: set.period, Changed: o.wake.Send, Log: o.log,
		})
		sl.lister, sl.run = source, source.Run
	case pod.SourceAPI:
		source := api.New(api.Config{Changed: o.wake.Send, Heard: o.identity.Heard, Patience: answerPatience, Log: o.log})
		sl.lister = source
		sl.run = func(ctx context.Context) error { return o.runAPI(ctx, source, set) }
	}
	return sl
}

// runAPI works with the API server for as long as there are credentials.
func (o *sources) runAPI(ctx context.Context, source *api.Source, set settings) error {
	var ttl time.Duration
	if set.strategy == "Get" || set.strategy == "Cache" {
		ttl = objectTTL
	}
	defer o.session.clients.Store(nil)
	return cluster.Run(ctx, cluster.Config{
		Settings: set.cluster, Log: o.log,
		Credentials: o.credentials,
		Report:      source.Report,
		Use: func(ctx context.Context, clients *cluster.Clients) {
			// The former ones answer until here, so that no caller finds none.
			o.session.clients.Store(clients)
			var parts sync.WaitGroup
			parts.Go(func() { source.Follow(ctx, clients, set.node) })
			parts.Go(func() { o.objects.Run(ctx, clients, clients.Claims, ttl) })
			parts.Wait()
		},
	})
}

// run runs the sources until ctx ends.
func (o *sources) run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	for {
		o.mu.Lock()
		for _, sl := range o.slots {
			if sl.stop == nil {
				round, stop := context.WithCancel(ctx)
				sl.stop = stop
				parts.Go(func() { o.live(round, sl) })
			}
		}
		o.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-o.kick:
		}
	}
}

// live runs one source, after the one it replaces.
func (o *sources) live(ctx context.Context, sl *slot) {
	defer close(sl.done)
	if sl.before != nil {
		<-sl.before
	}
	if err := sl.run(ctx); err != nil {
		o.log.Error("source of pods ended", service.KeyError, err.Error())
	}
}

// listings are what the configured sources said last, static ones first.
func (o *sources) listings() []merge.Listing {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []merge.Listing
	for _, name := range []string{pod.SourceFile, pod.SourceHTTP, pod.SourceAPI} {
		if sl, ok := o.slots[name]; ok {
			all = append(all, sl.lister.Listing())
		}
	}
	return all
}

// credentials is the credential as sessions take it.
func (o *sources) credentials() ([]byte, <-chan struct{}, error) {
	held, changed, err := o.identity.Held()
	switch {
	case held != nil:
		return held.Kubeconfig, changed, nil
	case err == nil:
		err = rpc.Unavailable.Errorf("no credentials for the API server yet")
	}
	return nil, changed, err
}
