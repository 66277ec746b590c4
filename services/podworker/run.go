// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
)

// run keeps the workers until ctx ends.
func (l *loop) run(ctx context.Context) error {
	if err := l.recall(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-l.config.known:
	}
	l.waiting("config.sources, pleg.pods")
	defer l.running.Wait()
	l.running.Go(func() { l.end.run(ctx, l, l.touchAll) })
	l.mu.Lock()
	l.ctx = ctx
	uids := map[types.UID]bool{}
	for uid := range l.restored {
		uids[uid] = true
	}
	for uid := range l.in.Pods.Items() {
		uids[types.UID(uid)] = true
	}
	for uid := range l.in.Records.Items() {
		uids[types.UID(uid)] = true
	}
	for uid := range uids {
		l.considerLocked(uid, nil)
	}
	l.mu.Unlock()
	l.settle()
	ticker := l.clock.NewTicker(leftoverPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.completed:
			l.leftovers()
			l.countDead()
		case <-ticker.C():
			l.leftovers()
			l.reconsider()
			l.countDead()
			l.reportUncollected(ctx)
			l.beat()
		}
	}
}

// recall reads the journal.
func (l *loop) recall() error {
	records, err := l.journal.All()
	if err != nil {
		return err
	}
	raw, err := l.journal.Config()
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.restored = records
	l.mu.Unlock()
	if raw == nil || l.config.Config() != nil {
		return nil
	}
	c, err := kubeletconfig.Unmarshal(raw)
	if err != nil {
		l.log.Warn("kept configuration is of no use", service.KeyError, err.Error())
		return nil
	}
	l.end.configure(c)
	l.config.set(c)
	return nil
}
