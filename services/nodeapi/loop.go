package nodeapi

import (
	"context"
	"errors"
	"time"

	"github.com/sextant-node/sextant/pkg/kubeconf"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

// relisten is how often a port that cannot be had is tried again, and the
// certificate and the clock are looked at (kubelet: healthz is tried again each 5 s).
const relisten = 5 * time.Second

// listenLoop keeps the configured ports open with the policy and the certificate
// the configuration names. What cannot be had is tried again; what was good
// before stays in force meanwhile.
func (s *Service) listenLoop(ctx context.Context) error {
	beat := s.kit.Heart("listeners", time.Minute)
	open := &ports{inherited: &s.inherited}
	defer func() { open.close() }()
	retry := time.NewTicker(relisten)
	defer retry.Stop()
	var done settled
	for {
		beat()
		if now := (settled{s.current(), s.files(), s.shown.leaf() != nil}); now.conf != nil {
			var err error
			if now != done {
				if err = s.settle(ctx, now, open); err == nil {
					done = now
				}
			}
			s.tell(errors.Join(err, s.shown.trouble()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-retry.C:
		}
	}
}

// settled is what ports and policy were made of.
type settled struct {
	conf      *kubeconf.Config
	files     *configv1.Serving
	certified bool
}

// files are what config read for this server, nil before it has spoken.
func (s *Service) files() *configv1.Serving {
	files, _ := s.serving.Get(nodeItem)
	return files
}

// tell says how it goes.
func (s *Service) tell(err error) {
	switch {
	case err == nil:
		s.kit.Serving()
	case errors.Is(err, errWaiting):
		s.kit.Waiting(err.Error())
	default:
		s.kit.Failing(err.Error())
	}
}

// settle puts a configuration in force.
func (s *Service) settle(ctx context.Context, now settled, open *ports) error {
	policy, err := policyOf(now.conf, s.cfg, now.files)
	if err != nil {
		return err
	}
	s.policy.Store(policy)
	contention(now.conf)
	listeners, err := s.listeners(now.conf)
	if err != nil {
		return err
	}
	return open.become(ctx, s.kit.Log, listeners)
}
