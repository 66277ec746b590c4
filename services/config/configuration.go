package config

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/identity"
	"github.com/sextant-node/sextant/services/config/internal/watch"
)

// kubeletItem is the key of the one item of config.kubelet.
const kubeletItem = "kubelet"

// reloadPeriod is how often the configuration files are read without being told.
const reloadPeriod = time.Minute

// firstConfiguration puts the configuration in force that the process starts
// with: the one on disk now, or the last good one.
func (s *Service) firstConfiguration(ctx context.Context) error {
	kept, err := s.keptConfiguration()
	if err != nil {
		return err
	}
	s.configuration.current = kept
	next, warnings, err := s.cfg.Load()
	s.logWarnings(warnings)
	switch {
	case err == nil:
		return s.accept(ctx, next)
	case kept == nil:
		return fmt.Errorf("configuration: %w", err)
	}
	s.publishConfiguration(ctx)
	s.refuse(ctx, err)
	return nil
}

// keptConfiguration takes over what an earlier life had in force; nil if
// nothing of use was kept.
func (s *Service) keptConfiguration() (*kubeconf.Config, error) {
	all, err := s.keeper.Kubelet.All()
	if err != nil {
		return nil, err
	}
	record, ok := all[kubeletItem]
	if !ok {
		return nil, nil
	}
	c := &s.configuration
	c.generation, c.encoded = record.GetGeneration(), record.GetConfig()
	kept, err := kubeconf.Unmarshal(c.encoded)
	if err != nil {
		s.log.Warn("last good configuration is of no use", service.KeyError, err.Error())
		return nil, nil
	}
	return kept, nil
}

// accept puts a configuration in force; the same one again is no new
// generation.
func (s *Service) accept(ctx context.Context, next *kubeconf.Config) error {
	encoded, err := next.Marshal()
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	c := &s.configuration
	c.mu.Lock()
	before := c.current
	c.current, c.refused = next, ""
	changed := !bytes.Equal(c.encoded, encoded)
	if changed {
		c.encoded = encoded
		c.generation++
	}
	record := &configv1.KubeletConfig{Generation: c.generation, Config: c.encoded}
	c.mu.Unlock()
	if changed {
		// A disk that is full must not stop the node; it starts from the files then.
		if err := s.keeper.Kubelet.Now(kubeletItem, record); err != nil {
			s.log.Error("configuration not kept", service.KeyError, err.Error())
		}
		s.logAccepted(ctx, before, next, record.GetGeneration())
	}
	s.publishConfiguration(ctx)
	return nil
}

func (s *Service) logAccepted(ctx context.Context, before, next *kubeconf.Config, generation uint64) {
	if before == nil {
		s.log.Info("configuration in force", "generation", generation, "files", next.Files)
		return
	}
	fields := kubeconf.Changes(before, next)
	s.log.Info("configuration changed", "generation", generation, "fields", fields)
	if len(fields) > 0 {
		s.tell(ctx, "KubeletConfigurationChanged", "generation "+fmt.Sprint(generation)+": "+strings.Join(fields, ", "))
	}
}

// publishConfiguration serves what is in force and arranges the sources by it.
func (s *Service) publishConfiguration(ctx context.Context) {
	c := &s.configuration
	c.mu.Lock()
	current := c.current
	record := &configv1.KubeletConfig{Generation: c.generation, Config: c.encoded}
	c.mu.Unlock()
	if _, err := s.feeds.kubelet.Set(ctx, kubeletItem, record); err != nil {
		s.log.Error("configuration not published", service.KeyError, err.Error())
		return
	}
	s.feeds.kubelet.SetComplete(ctx, true)
	s.metrics.generation.Set(float64(record.GetGeneration()))
	s.identity.Configure(identity.Settings{
		Kubeconfig: current.Node.KubeConfig, Bootstrap: current.Node.BootstrapKubeConfig, Dir: current.Node.CertDir,
		Node: current.Node.Name, Rotate: current.Kubelet.RotateCertificates,
	})
	s.serving.look()
	s.sources.configure(current)
	s.look()
}

// refuse keeps what is in force and says once why the new one is not.
func (s *Service) refuse(ctx context.Context, err error) {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	c := &s.configuration
	c.mu.Lock()
	known := c.refused == text
	c.refused = text
	generation := c.generation
	c.mu.Unlock()
	if known {
		return
	}
	for _, p := range kubeconf.Problems(err) {
		s.log.Error("configuration refused", "source", p.Source.String(), "field", p.Field, service.KeyError, p.Error())
	}
	s.warn(ctx, nil, "InvalidKubeletConfiguration", fmt.Sprintf("generation %d stays in force: %s", generation, text))
	s.look()
}

// reload reads the configuration again.
func (s *Service) reload(ctx context.Context) {
	next, warnings, err := s.cfg.Load()
	if err == nil {
		if current, _ := s.configuration.get(); current.Node.Name != next.Node.Name {
			err = fmt.Errorf("node name changed from %q to %q: takes effect when config is restarted", current.Node.Name, next.Node.Name)
		}
	}
	if err != nil {
		s.refuse(ctx, err)
		return
	}
	current, refused := s.configuration.get()
	if refused == "" && sameConfiguration(current, next) {
		return
	}
	s.logWarnings(warnings)
	if err := s.accept(ctx, next); err != nil {
		s.refuse(ctx, err)
	}
}

func sameConfiguration(a, b *kubeconf.Config) bool {
	left, leftErr := a.Marshal()
	right, rightErr := b.Marshal()
	return leftErr == nil && rightErr == nil && bytes.Equal(left, right)
}

func (s *Service) logWarnings(warnings []kubeconf.Warning) {
	for _, w := range warnings {
		s.log.Warn("configuration", "kind", string(w.Kind), "source", w.Source.String(), "name", w.Name, "message", w.Message)
	}
}

// watchConfiguration reloads when a configuration file changes.
func (s *Service) watchConfiguration(ctx context.Context) error {
	for ctx.Err() == nil {
		paths := s.configurationPaths()
		round, end := context.WithCancel(ctx)
		err := watch.Run(round, watch.Config{
			Paths: paths, Period: reloadPeriod, Log: s.log,
			Look: func() {
				s.reload(ctx)
				if !slices.Equal(paths, s.configurationPaths()) {
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

func (s *Service) configurationPaths() []string {
	current, _ := s.configuration.get()
	return append(slices.Clone(s.cfg.Watch), current.Files...)
}
