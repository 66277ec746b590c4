// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/pkg/wire"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

const (
	// patience is how long an answer waits for volumes that are being measured.
	patience = time.Second
	// slow is how long a volume may hold up those behind it: one that hangs is
	// left to itself, and asked again when it has come back.
	slow = 5 * time.Second
	// atOnce bounds how many volumes are looked through at a time.
	atOnce = 4
)

type volumeKey struct {
	uid  types.UID
	name string
}

// gaugeOf is one volume's readings.
type gaugeOf struct {
	path    string
	reading *measure.Reading
	at      time.Time     // when the reading began
	asked   time.Time     // when measuring was last begun
	running chan struct{} // closed when the measuring that runs has ended; nil for none
}

// keeper measures volumes and keeps the readings.
type keeper struct {
	measure func(string) (*measure.Reading, error)
	now     func() time.Time
	observe func(volumeKey, *measure.Reading, time.Duration)
	log     *slog.Logger
	slots   chan struct{}

	mu     sync.Mutex
	gauges map[volumeKey]*gaugeOf
}

func newKeeper(how func(string) (*measure.Reading, error), now func() time.Time, observe func(volumeKey, *measure.Reading, time.Duration), log *slog.Logger) *keeper {
	return &keeper{
		measure: how, now: now, observe: observe, log: log,
		slots: make(chan struct{}, atOnce), gauges: map[volumeKey]*gaugeOf{},
	}
}

// look begins to measure the volumes whose readings are older than period, and
// forgets those not named. It returns what to wait for.
func (k *keeper) look(volumes map[volumeKey]string, period time.Duration) []chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, g := range k.gauges {
		if volumes[key] != g.path && g.running == nil {
			delete(k.gauges, key)
		}
	}
	var running []chan struct{}
	now := k.now()
	for key, path := range volumes {
		g := k.gauges[key]
		if g == nil {
			g = &gaugeOf{path: path}
			k.gauges[key] = g
		}
		if g.running == nil && (g.asked.IsZero() || now.Sub(g.asked) >= period || now.Before(g.asked)) {
			g.running, g.asked = make(chan struct{}), now
			go k.run(key, g, g.running)
		}
		// A volume that hung once is not waited for again.
		if g.running != nil && now.Sub(g.asked) < slow {
			running = append(running, g.running)
		}
	}
	return running
}

// run measures one volume. Its slot is given back when it takes too long.
func (k *keeper) run(key volumeKey, g *gaugeOf, done chan struct{}) {
	k.slots <- struct{}{}
	var once sync.Once
	free := func() { once.Do(func() { <-k.slots }) }
	late := time.AfterFunc(slow, func() {
		k.log.Warn("measuring a volume takes long", "uid", string(key.uid), "volume", key.name)
		free()
	})
	began := k.now()
	reading, err := k.measure(g.path)
	late.Stop()
	free()
	if err == nil {
		k.observe(key, reading, k.now().Sub(began))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		g.reading, g.at = reading, began
	} else {
		k.log.Debug("volume not measured", "uid", string(key.uid), "volume", key.name, "error", err.Error())
	}
	g.running = nil
	close(done)
}

func (k *keeper) get(key volumeKey) (reading *measure.Reading, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.gauges[key]
	if g == nil {
		return nil, time.Time{}
	}
	return g.reading, g.at
}

// reasonAbnormal is the event of a volume whose driver says that something is wrong.
const reasonAbnormal = "VolumeConditionAbnormal"

// gauges measures the volumes of pods, by their plugins or by counting files.
type gauges struct {
	in      *inputs
	host    Host
	plugins plugin.Registry
	pods    *pods
	metrics *metrics
}

// measure returns how full a volume is. It may hang.
func (g *gauges) measure(path string) (*measure.Reading, error) {
	r, err := g.plugins.Measure(context.Background(), path, g.in.gate("CSIVolumeHealth"))
	if errors.Is(err, plugin.ErrNoStats) {
		return g.host.Measure(path)
	}
	return r, err
}

// measured counts a measurement, and emits an event about a volume that its driver finds
// abnormal.
func (g *gauges) measured(key volumeKey, r *measure.Reading, took time.Duration) {
	g.metrics.measured(r.Source, took)
	if r.Health == nil || !r.Health.Abnormal {
		return
	}
	if p := g.pods.declared(key.uid); p != nil {
		g.pods.emit(context.Background(), plugin.PodReference(p), v1.EventTypeWarning, reasonAbnormal, fmt.Sprintf("Volume %s: %s", key.name, r.Health.Message))
	}
}

// health has volumes measured also between scrapes, if drivers are to report their health.
func (s *Service) health(ctx context.Context) error {
	for {
		var next <-chan time.Time
		if period := s.maker.in.statsPeriod(); period > 0 && s.maker.in.gate("CSIVolumeHealth") {
			next = time.After(max(period, time.Second))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.maker.in.configured:
		case <-next:
			s.volumeStats(ctx, time.Time{})
		}
	}
}

// Stats implements VolumeService.
func (s *Service) Stats(ctx context.Context, req *volumev1.StatsRequest) (*volumev1.StatsResponse, error) {
	return &volumev1.StatsResponse{Volumes: s.volumeStats(ctx, wire.TimeOf(req.GetSince()))}, nil
}

// volumeStats answers for all mounted volumes that have been measured, since a time if
// there is one.
func (s *Service) volumeStats(ctx context.Context, since time.Time) []*volumev1.VolumeStats {
	period := s.maker.in.statsPeriod()
	if period == 0 {
		return nil
	}
	if !since.IsZero() {
		period = max(0, min(period, s.stats.now().Sub(since)))
	}
	volumes, known := s.mounted()
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, done := range s.stats.look(volumes, period) {
		select {
		case <-done:
		case <-patient.Done():
		}
	}
	var all []*volumev1.VolumeStats
	for _, v := range known {
		r, at := s.stats.get(volumeKey{types.UID(v.GetUid()), v.GetName()})
		if r == nil {
			continue
		}
		v.Time = timestamppb.New(at)
		v.Capacity, v.Available, v.Used = r.Capacity, r.Available, r.Used
		v.Inodes, v.InodesFree, v.InodesUsed = r.Inodes, r.InodesFree, r.InodesIn
		if r.Health != nil {
			v.Abnormal = &r.Health.Abnormal
		}
		all = append(all, v)
	}
	return all
}

// mounted lists the volumes to be measured: all that are mounted, but for those
// that their plugins say are not.
func (s *Service) mounted() (paths map[volumeKey]string, all []*volumev1.VolumeStats) {
	paths = map[volumeKey]string{}
	s.pods.mu.Lock()
	defer s.pods.mu.Unlock()
	for uid, w := range s.pods.all {
		if w.pod == nil || w.withdrawing {
			continue
		}
		for i := range w.pod.Spec.Volumes {
			v := &w.pod.Spec.Volumes[i]
			state := w.volumes[v.Name]
			if state == nil || state.state != mounted || state.made.Path == "" || state.made.Unmeasured {
				continue
			}
			paths[volumeKey{uid, v.Name}] = state.made.Path
			stats := &volumev1.VolumeStats{Uid: string(uid), Name: v.Name, Ephemeral: volumetype.LocalEphemeral(v)}
			if name := volumetype.ClaimName(w.pod, v); name != "" {
				stats.ClaimNamespace, stats.Claim = w.pod.Namespace, name
			}
			all = append(all, stats)
		}
	}
	return paths, all
}
