// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/standin"
)

// disks is the real disk, but for a volume "hang" whose file system hangs, and
// for claims, which some other agent has mounted.
type disks struct {
	*setup.Host
	claims string
	hang   chan struct{}
}

func (d disks) Measure(path string) (*measure.Reading, error) {
	if filepath.Base(path) == "hang" {
		<-d.hang
	}
	return d.Host.Measure(path)
}

func (d disks) Mounted(uid types.UID, plugin, volume string, own bool) (string, bool) {
	if !own {
		return d.claims, true
	}
	return d.Host.Mounted(uid, plugin, volume, own)
}

// fast is a clock that is ahead of the time.
type fast struct {
	clock.RealClock
	ahead *atomic.Int64
}

func (f fast) Now() time.Time { return time.Now().Add(time.Duration(f.ahead.Load())) }

type measured struct {
	*rig
	disks disks
	ahead atomic.Int64
	kit   *service.Kit
}

func newMeasured(t *testing.T) *measured {
	t.Helper()
	m := &measured{rig: newRig(t, nil), disks: disks{claims: t.TempDir(), hang: make(chan struct{})}}
	m.disks.Host = setup.NewHost(m.root)
	m.stop()
	m.start(func(d *volume.Deps) {
		d.Host = m.disks
		d.Clock = fast{ahead: &m.ahead}
		m.kit = d.Kit
	})
	return m
}

// stats of one volume, nil when it is not told.
func (m *measured) stats(uid, name string) *volumev1.VolumeStats {
	m.Helper()
	return m.statsSince(uid, name, nil)
}

func (m *measured) statsSince(uid, name string, since *timestamppb.Timestamp) *volumev1.VolumeStats {
	m.Helper()
	resp, err := m.client.Stats(m.Context(), &volumev1.StatsRequest{Since: since})
	if err != nil {
		m.Fatal(err)
	}
	for _, v := range resp.GetVolumes() {
		if v.GetUid() == uid && v.GetName() == name {
			return v
		}
	}
	return nil
}

func TestStats(t *testing.T) {
	m := newMeasured(t)
	m.allocatable("8Gi")
	m.configMap("c", map[string]string{"k": "v"})
	m.declare(of(t, "u", `
- {name: e, emptyDir: {}}
- {name: m, emptyDir: {medium: Memory, sizeLimit: 8Mi}}
- {name: c, configMap: {name: c}}
- {name: h, hostPath: {path: /dev}}
`))
	m.ready("u")
	e := m.stats("u", "e")
	if e.GetCapacity() == 0 || e.GetAvailable() > e.GetCapacity() || e.GetInodesUsed() != 1 || !e.GetEphemeral() || e.GetTime() == nil {
		t.Errorf("emptyDir: %v", e)
	}
	if v := m.stats("u", "m"); v.GetCapacity() != 8<<20 || v.GetEphemeral() {
		t.Errorf("emptyDir in memory: %v", v)
	}
	if v := m.stats("u", "c"); v.GetInodesUsed() < 3 || !v.GetEphemeral() {
		t.Errorf("configMap: %v", v)
	}
	if v := m.stats("u", "h"); v != nil {
		t.Errorf("a folder of the host was measured: %v", v)
	}
	// A reading is kept for a minute.
	m.write(m.path("u", "empty-dir", "e", "file"), strings.Repeat("x", 1<<20))
	m.ahead.Store(int64(50 * time.Second))
	if now := m.stats("u", "e"); now.GetUsed() != e.GetUsed() {
		t.Errorf("measured again: %v", now)
	}
	// Who needs it newer has it measured.
	if now := m.statsSince("u", "e", timestamppb.New(e.GetTime().AsTime().Add(-time.Second))); now.GetUsed() != e.GetUsed() {
		t.Errorf("measured again, since it was measured: %v", now)
	}
	if now := m.statsSince("u", "e", timestamppb.New(e.GetTime().AsTime().Add(40*time.Second))); now.GetUsed() < e.GetUsed()+1<<20 {
		t.Errorf("not measured again: %v", now)
	}
	m.write(m.path("u", "empty-dir", "e", "file"), strings.Repeat("x", 1<<20))
	m.ahead.Store(int64(120 * time.Second))
	if now := m.stats("u", "e"); now.GetUsed() < e.GetUsed()+1<<20 || now.GetInodesUsed() != 2 {
		t.Errorf("after a minute: %v, was %v", now, e)
	}
	// Or for as long as the configuration says; never when it says no.
	conf := &kubeletconfig.Config{}
	conf.Kubelet.APIVersion, conf.Kubelet.Kind = kubeletconfig.APIVersion, kubeletconfig.Kind
	conf.Kubelet.VolumeStatsAggPeriod.Duration = -1
	standin.SetKubelet(m.House, m.kubelet, conf)
	m.Eventually("switched off", func() bool { return m.stats("u", "e") == nil })
	m.withdraw("u")
	m.gone("u")
}

func TestAHangingVolumeIsMeasuredAlone(t *testing.T) {
	m := newMeasured(t)
	m.declare(of(t, "u", "\n- {name: hang, emptyDir: {}}\n- {name: e, emptyDir: {}}\n"))
	m.ready("u")
	if v := m.stats("u", "e"); v == nil {
		t.Error("a volume beside the one that hangs was not measured")
	}
	if v := m.stats("u", "hang"); v != nil {
		t.Errorf("a volume that hangs was measured: %v", v)
	}
	close(m.disks.hang)
	m.Eventually("measured when it has come back", func() bool { return m.stats("u", "hang") != nil })
}

// TestAClaimOfAHostPathIsNotMeasured, as with a kubelet: neither in another life of the
// service, nor when the volume cannot be made sure of any more.
func TestAClaimOfAHostPathIsNotMeasured(t *testing.T) {
	r := newRig(t, nil)
	folder := t.TempDir()
	kind := v1.HostPathDirectory
	r.volumeOf("data", "pv", v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
		HostPath: &v1.HostPathVolumeSource{Path: folder, Type: &kind},
	}})
	told := func(when string) {
		t.Helper()
		resp, err := r.client.Stats(t.Context(), &volumev1.StatsRequest{Since: timestamppb.Now()})
		if err != nil || len(resp.GetVolumes()) != 1 || resp.GetVolumes()[0].GetName() != "e" {
			t.Errorf("%s: told %v, %v, want what is in e alone", when, resp, err)
		}
	}
	r.declare(of(t, "u", "\n- {name: data, persistentVolumeClaim: {claimName: data}}\n- {name: e, emptyDir: {}}\n"))
	r.ready("u")
	told("made")
	r.stop()
	r.start(nil)
	r.ready("u")
	told("made again")
	standin.Set(r.House, r.objects, "PersistentVolume//pv", &configv1.Object{Kind: "PersistentVolume", Name: "pv", Absent: true})
	r.Eventually("its volume has been deleted", func() bool {
		return r.volume("u", "data").GetError() != "" && r.volume("u", "data").GetHostPath() == folder
	})
	told("not made any more")
}

func TestClaims(t *testing.T) {
	m := newMeasured(t)
	if err := os.WriteFile(filepath.Join(m.disks.claims, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	m.declare(of(t, "u", "\n- {name: data, persistentVolumeClaim: {claimName: big}}\n- {name: scratch, ephemeral: {}}\n- {name: e, emptyDir: {}}\n"))
	m.Eventually("the claim", func() bool { return m.stats("u", "data").GetClaim() == "big" })
	if v := m.stats("u", "scratch"); v.GetClaim() != "u-name-scratch" || v.GetClaimNamespace() != "ns" || v.GetInodesUsed() != 2 {
		t.Errorf("an ephemeral volume: %v", v)
	}
	m.Eventually("the other volume", func() bool { return m.stats("u", "e") != nil })
	families, err := m.kit.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			key := f.GetName()
			for _, l := range metric.GetLabel() {
				key += " " + l.GetValue()
			}
			told[key] = metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	for key, want := range map[string]float64{
		"kubelet_volume_stats_inodes_used ns big": 2, "kubelet_volume_stats_inodes_used ns u-name-scratch": 2,
		"kubelet_volume_metric_collection_duration_seconds du": 3,
	} {
		if told[key] != want {
			t.Errorf("%s is %v, want %v", key, told[key], want)
		}
	}
	for key := range told {
		if strings.HasPrefix(key, "kubelet_volume_stats_") && !strings.Contains(key, " ns ") {
			t.Errorf("%s is no claim's", key)
		}
	}
}
