// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/apianswer"
	"github.com/sextant-node/sextant/services/status/internal/history"
)

// asked is when the API server was asked for a Node that may be another one than is known,
// and which one config listed then.
type asked struct {
	at     time.Time
	listed types.UID
}

// look reads the Node where somebody may have made another one of its name, and takes that
// over. It makes none.
func (s *Sync) look(ctx context.Context, facts Facts) error {
	if !s.doubtful(facts) {
		return nil
	}
	found, err := s.deps.API.GetNode(ctx, facts.Input.Name)
	if err != nil && !apianswer.NotFound(err) {
		return err
	}
	s.asked = asked{time.Now(), s.listedUID(facts)}
	switch {
	case err != nil:
		s.lose(facts.Input.Name)
	case s.gone || found.UID != s.node.UID:
		s.adopt(found)
	}
	return nil
}

// doubtful reports whether the Node is to be read: it was deleted, or config lists another
// one, which may be of before. That is asked once for each that config lists, and once a
// period.
func (s *Sync) doubtful(facts Facts) bool {
	if !s.registered && !s.gone {
		return false
	}
	listed := s.listedUID(facts)
	if !s.gone && listed == s.node.UID {
		return false
	}
	return listed != s.asked.listed || time.Since(s.asked.at) >= facts.Period
}

// listedUID is that of the Node that config lists, or of the known one when it lists none.
func (s *Sync) listedUID(facts Facts) types.UID {
	if facts.Node == nil {
		return s.node.UID
	}
	return facts.Node.UID
}

// lose notes that the Node was deleted by others: this service does not make it again before
// it is started again.
func (s *Sync) lose(name string) {
	if !s.gone {
		s.deps.Log.Warn("node was deleted at the API server", "node", name)
	}
	s.registered, s.gone = false, true
}

// adopt takes over a Node that others made. Nothing of what was written to the former one
// counts.
func (s *Sync) adopt(n *v1.Node) {
	s.deps.Log.Info("node was made again at the API server", "node", n.Name, "uid", string(n.UID))
	s.learn(n)
	s.registered, s.gone, s.created = true, false, false
	s.written, s.ignored, s.listed = time.Time{}, nil, history.Listed{}
}
