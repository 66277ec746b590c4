package nodeapi

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// relisten is how often a port that cannot be had is tried again, and files are
// looked at for changes (kubelet: healthz is tried again each 5 s).
const relisten = 5 * time.Second

// listenLoop keeps the configured ports open with the policy and the certificate
// the configuration names. What cannot be had is tried again; what was good
// before stays in force meanwhile.
func (s *Service) listenLoop(ctx context.Context) error {
	beat := s.kit.Heart("listeners", time.Minute)
	open := &ports{}
	defer func() { open.close() }()
	retry := time.NewTicker(relisten)
	defer retry.Stop()
	var settled *kubeconf.Config
	var seen string
	for {
		beat()
		if conf := s.current(); conf != nil {
			if files := filesOf(conf, time.Now()); conf != settled || files != seen {
				if err := s.settle(ctx, conf, open); err != nil {
					s.kit.Failing(err.Error())
				} else {
					settled, seen = conf, files
					s.kit.Serving()
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-retry.C:
		}
	}
}

// filesOf changes when a file that a configuration names does, and once a day,
// for certificates run out.
func filesOf(conf *kubeconf.Config, now time.Time) string {
	text := now.Format(time.DateOnly)
	k := &conf.Kubelet
	for _, path := range []string{k.TLSCertFile, k.TLSPrivateKeyFile, k.Authentication.X509.ClientCAFile} {
		if info, err := os.Stat(path); path != "" && err == nil {
			text += fmt.Sprintf(" %s/%d/%d", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return text
}

// settle puts a configuration in force.
func (s *Service) settle(ctx context.Context, conf *kubeconf.Config, open *ports) error {
	policy, err := policyOf(conf, s.cfg.NodeName)
	if err != nil {
		return err
	}
	s.policy.Store(policy)
	listeners, err := s.listeners(conf)
	if err != nil {
		return err
	}
	return open.become(ctx, s.kit.Log, listeners)
}
