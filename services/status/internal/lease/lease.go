// SPDX-License-Identifier: Apache-2.0

// Package lease renews the node's Lease, the sign of life the control plane goes by.
//
// It depends on nothing else that the node does: it has a goroutine and connections
// of its own, and needs to know only its name, the credentials and, to create the
// Lease, the UID of the Node that owns it. The renewing itself is the control loop
// of k8s.io/component-helpers, the kubelet's.
package lease

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	componentlease "k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/service"
)

// renewFraction of the duration is the period of renewal.
const renewFraction = 0.25

// How often credentials and settings are looked at: until all is known, and after that.
const (
	recheck = time.Second
	settled = 5 * time.Second
)

// Settings are what the Lease is renewed by. They may change at any time.
type Settings struct {
	// Node is the name; empty while it is not known.
	Node string
	// Duration of the Lease.
	Duration time.Duration
	// Client with a limit on each request.
	Client kubernetes.Interface
	// Generation of the client: another one means another client.
	Generation int

	// owner is the Node's UID: once it is known, a Lease that could not be created
	// for want of it is created at once.
	owner types.UID
}

// Deps of the loop.
type Deps struct {
	// Settings answers at once, with an error while there are no credentials.
	Settings func() (Settings, error)
	// NodeUID is the UID of the Node, empty while it is not known.
	NodeUID func() types.UID
	Log     *slog.Logger
	// Clock is the machine's when nil.
	Clock clock.Clock
}

// Loop renews.
type Loop struct {
	deps  Deps
	clock *forward
}

// New makes a loop.
func New(deps Deps) *Loop {
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	return &Loop{deps, &forward{Clock: deps.Clock}}
}

// Run renews until ctx ends. The Lease stays: it runs out by itself.
func (l *Loop) Run(ctx context.Context) error {
	var current Settings
	stop := func() {}
	defer func() { stop() }()
	for {
		now, err := l.deps.Settings()
		now.owner = l.deps.NodeUID()
		if err == nil && now.Node != "" && now != current {
			stop()
			stop, current = l.start(ctx, now), now
			l.deps.Log.Info("lease is renewed", "node", now.Node, "duration", now.Duration.String())
		}
		wait := recheck
		if err == nil && now.Node != "" && now.owner != "" {
			wait = settled
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// start runs the control loop with one set of settings; the function it answers
// ends it.
func (l *Loop) start(ctx context.Context, s Settings) (stop func()) {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.FromSlogHandler(l.deps.Log.Handler())))
	done := make(chan struct{})
	controller := componentlease.NewController(
		l.clock, watched{s.Client, l.clock}, s.Node, int32(s.Duration/time.Second),
		func() { l.deps.Log.Warn("lease could not be renewed repeatedly", "node", s.Node) },
		time.Duration(float64(s.Duration)*renewFraction), s.Node, corev1.NamespaceNodeLease, l.own(s.Node, s.owner),
	)
	go func() {
		defer close(done)
		controller.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

var errNoNode = errors.New("the Node that owns the Lease does not exist yet")

// own sets the Node as owner of a new Lease. One that has an owner is renewed
// whatever is known of the Node.
func (l *Loop) own(node string, uid types.UID) componentlease.ProcessLeaseFunc {
	return func(lease *coordinationv1.Lease) error {
		if len(lease.OwnerReferences) > 0 {
			return nil
		}
		if uid == "" {
			if lease.ResourceVersion != "" {
				return nil // exists: renewing comes first
			}
			l.deps.Log.Debug("lease waits", service.KeyError, errNoNode.Error())
			return errNoNode
		}
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}}
		return nil
	}
}
