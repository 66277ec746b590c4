// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/keep"
	"github.com/sextant-node/sextant/services/config/internal/watch"
)

// kubeletItem is the key of the one item of config.kubelet.
const kubeletItem = "kubelet"

// reloadPeriod is how often the configuration files are read without a signal.
const reloadPeriod = time.Minute

// configurator puts configurations in force: those of the files, when they change and are
// valid.
type configurator struct {
	// load reads what there is, watched names what makes it run again beside what it read.
	load    func() (*kubeletconfig.Config, []kubeletconfig.Warning, error)
	watched []string
	inForce *configuration
	keeper  *keep.Keeper
	feed    *feed.Owner[*configv1.KubeletConfig]
	metrics *metrics
	report  reporter
	log     *slog.Logger
	// apply arranges the rest of the service by a configuration, wake has pods merged soon.
	apply func(*kubeletconfig.Config)
	wake  signal.Signal
}

// first puts the configuration in force that the process starts
// with: the one on disk now, or the last good one.
func (c *configurator) first(ctx context.Context) error {
	kept, err := c.kept()
	if err != nil {
		return err
	}
	c.inForce.current = kept
	next, warnings, err := c.load()
	c.logWarnings(warnings)
	switch {
	case err == nil:
		return c.accept(ctx, next, warnings)
	case kept == nil:
		return fmt.Errorf("configuration: %w", err)
	}
	c.publish(ctx)
	c.refuse(ctx, err)
	return nil
}

// kept takes over what an earlier life had in force; nil if
// nothing of use was kept.
func (c *configurator) kept() (*kubeletconfig.Config, error) {
	all, err := c.keeper.Kubelet.All()
	if err != nil {
		return nil, err
	}
	record, ok := all[kubeletItem]
	if !ok {
		return nil, nil
	}
	f := c.inForce
	f.generation, f.encoded = record.GetGeneration(), record.GetConfig()
	kept, err := kubeletconfig.Unmarshal(f.encoded)
	if err != nil {
		c.log.Warn("last good configuration is of no use", service.KeyError, err.Error())
		return nil, nil
	}
	return kept, nil
}

// accept puts a configuration in force; the same one again is no new
// generation. The warnings are those of loading it.
func (c *configurator) accept(ctx context.Context, next *kubeletconfig.Config, warnings []kubeletconfig.Warning) error {
	encoded, err := next.Marshal()
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	f := c.inForce
	f.mu.Lock()
	before := f.current
	f.current, f.refused = next, ""
	changed := !bytes.Equal(f.encoded, encoded)
	if changed {
		f.encoded = encoded
		f.generation++
	}
	record := &configv1.KubeletConfig{Generation: f.generation, Config: f.encoded}
	f.mu.Unlock()
	if changed {
		// A disk that is full must not stop the node; it starts from the files then.
		if err := c.keeper.Kubelet.Now(kubeletItem, record); err != nil {
			c.log.Error("configuration not kept", service.KeyError, err.Error())
		}
		c.logAccepted(ctx, before, next, record.GetGeneration())
	}
	c.reportNotHonoured(ctx, warnings, changed)
	c.publish(ctx)
	return nil
}

func (c *configurator) logAccepted(ctx context.Context, before, next *kubeletconfig.Config, generation uint64) {
	if before == nil {
		c.log.Info("configuration in force", "generation", generation, "files", next.Files)
		return
	}
	fields := kubeletconfig.Changes(before, next)
	fields = kubeletconfig.WithRestarts(fields)
	c.log.Info("configuration changed", "generation", generation, "fields", fields)
	if len(fields) > 0 {
		c.report.tell(ctx, "KubeletConfigurationChanged", "generation "+fmt.Sprint(generation)+": "+strings.Join(fields, ", "))
	}
}

// publish serves what is in force and arranges the service by it.
func (c *configurator) publish(ctx context.Context) {
	f := c.inForce
	f.mu.Lock()
	current := f.current
	record := &configv1.KubeletConfig{Generation: f.generation, Config: f.encoded}
	f.mu.Unlock()
	if _, err := c.feed.Set(ctx, kubeletItem, record); err != nil {
		c.log.Error("configuration not published", service.KeyError, err.Error())
		return
	}
	c.feed.SetComplete(ctx, true)
	c.metrics.generation.Set(float64(record.GetGeneration()))
	c.apply(current)
}

// refuse keeps what is in force and says once why the new one is not.
func (c *configurator) refuse(ctx context.Context, err error) {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	f := c.inForce
	f.mu.Lock()
	known := f.refused == text
	f.refused = text
	generation := f.generation
	f.mu.Unlock()
	if known {
		return
	}
	for _, p := range kubeletconfig.Problems(err) {
		c.log.Error("configuration refused", "source", p.Source.String(), "field", p.Field, service.KeyError, p.Error())
	}
	c.report.warn(ctx, nil, "InvalidKubeletConfiguration", fmt.Sprintf("generation %d stays in force: %s", generation, text))
	c.wake.Send()
}

// reload reads the configuration again.
func (c *configurator) reload(ctx context.Context) {
	next, warnings, err := c.load()
	if err == nil {
		if current, _ := c.inForce.get(); current.Node.Name != next.Node.Name {
			err = fmt.Errorf("node name changed from %q to %q: takes effect when config is restarted", current.Node.Name, next.Node.Name)
		}
	}
	if err != nil {
		c.refuse(ctx, err)
		return
	}
	current, refused := c.inForce.get()
	if refused == "" && sameConfiguration(current, next) {
		return
	}
	c.logWarnings(warnings)
	if err := c.accept(ctx, next, warnings); err != nil {
		c.refuse(ctx, err)
	}
}

func sameConfiguration(a, b *kubeletconfig.Config) bool {
	left, leftErr := a.Marshal()
	right, rightErr := b.Marshal()
	return leftErr == nil && rightErr == nil && bytes.Equal(left, right)
}

func (c *configurator) logWarnings(warnings []kubeletconfig.Warning) {
	for _, w := range warnings {
		c.log.Warn("configuration", "kind", string(w.Kind), "source", w.Source.String(), "name", w.Name, "message", w.Message)
	}
}

// reportNotHonoured sets the metric of what is not honoured. An event of the Node
// lists it for each generation; the log has the reasons.
func (c *configurator) reportNotHonoured(ctx context.Context, warnings []kubeletconfig.Warning, changed bool) {
	var names []string
	for _, w := range warnings {
		if w.Kind == kubeletconfig.NotHonoured && !slices.Contains(names, w.Name) {
			names = append(names, w.Name)
		}
	}
	values := map[string]float64{}
	for _, name := range names {
		values[name] = 1
	}
	c.metrics.notHonoured.Set(values)
	if changed && len(names) > 0 {
		c.report.warn(ctx, nil, "KubeletConfigurationNotHonoured", "missing or honoured in part, the log of config says why: "+strings.Join(names, ", "))
	}
}

// watch reloads when a configuration file changes.
func (c *configurator) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		paths := c.paths()
		round, end := context.WithCancel(ctx)
		err := watch.Run(round, watch.Config{
			Paths: paths, Period: reloadPeriod, Log: c.log,
			Look: func() {
				c.reload(ctx)
				if !slices.Equal(paths, c.paths()) {
					end()
				}
			},
		})
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *configurator) paths() []string {
	current, _ := c.inForce.get()
	return append(slices.Clone(c.watched), current.Files...)
}
