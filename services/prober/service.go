// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"cmp"
	"fmt"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/store"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	"github.com/sextant-node/sextant/services/prober/internal/probe"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
	"github.com/sextant-node/sextant/services/prober/internal/turns"
)

// schema of the state file.
const schema = 1

// Deps are what prober runs on.
type Deps struct {
	Kit *service.Kit
	// Runtime answers ExecSync; nil dials podworker's broker.
	Runtime grpc.ClientConnInterface
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// New wires prober into its process; everything runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	conn := deps.Runtime
	if conn == nil {
		// The longest exec probe decides, not the connection.
		broker, err := rpc.Dial(rpc.ClientConfig{Socket: kit.Paths.Broker(), Timeout: time.Hour})
		if err != nil {
			return nil, fmt.Errorf("dial broker: %w", err)
		}
		conn = broker
	}
	kept := kit.StoreConfig("state.db")
	kept.Schema = schema
	file, _, err := store.Open(kept) // without a verdict, probes start over
	if err != nil {
		return nil, err
	}
	journal := store.NewTable(file, "verdicts", store.Proto[*proberv1.PodVerdicts]())
	s := &Service{
		kit: kit, now: deps.Now, metrics: newMetrics(kit.Metrics),
		probes:   &probe.Prober{Runtime: runtimeapi.NewRuntimeServiceClient(conn), UserAgent: "kube-probe/1.36"},
		verdicts: service.Owner(kit, house.ProberVerdicts),
		events:   kit.Events(),
		file:     file,
		journal:  journal,
		dirty:    signal.NewKeys(),
		done:     make(chan finished, 256),
		known:    map[string]*v1.Pod{}, turns: turns.New[*question](turns.Limits{Share: cmp.Or(cfg.Share, 8), Extra: cmp.Or(cfg.Parallel, 256)}),
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.plan = schedule.New(s.now())
	service.Replicate(kit, &err, house.ConfigPods, decodePod, &s.pods)
	service.Replicate(kit, &err, house.PlegPods, decodeRecord, &s.records)
	if err != nil {
		return nil, err
	}
	s.pods.Watch(s.dirty.Mark)
	s.records.Watch(s.dirty.Mark)
	s.beat = kit.Heart("schedule", time.Minute)
	kit.Go("schedule", s.loop)
	kit.Waiting("config and pleg")
	return s, nil
}
