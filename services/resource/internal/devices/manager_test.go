// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/sextant-node/sextant/services/resource/internal/devices/checkpoint"
	"github.com/sextant-node/sextant/test/deviceplugin"
)

// TestAPluginThatNeverComesBack is waited for as long as Grace, and not longer; its devices
// are capacity as long as Confirm.
func TestAPluginThatNeverComesBack(t *testing.T) {
	dir, start := t.TempDir(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data, err := checkpoint.Marshal(nil, map[string][]string{name: {"a"}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, checkpoint.Name), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	now := start
	m := New(Config{Dir: dir, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	confirm, end := start.Add(Confirm), start.Add(Grace)
	for _, step := range []struct {
		at, next time.Time
		state    State
		capacity int
	}{
		{confirm.Add(-time.Nanosecond), confirm, Away, 1},
		{confirm, end, Away, 0},
		{end.Add(-time.Nanosecond), end, Away, 0},
		{end, time.Time{}, Gone, 0},
	} {
		now = step.at
		next := m.Expire()
		r := m.Inventory()[name]
		if capacity, allocatable := r.Counts(); !next.Equal(step.next) || r.State != step.state || capacity != step.capacity || allocatable != 0 {
			t.Errorf("at %s: next at %s, %s, capacity %d, allocatable %d; want %+v", now, next, r.State, capacity, allocatable, step)
		}
	}
}

// TestAPluginThatNeverLists: its resource is there, with no devices, as of a kubelet.
func TestAPluginThatNeverLists(t *testing.T) {
	m := New(Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Now: time.Now, Changed: func() {}})
	p := &plugin{resource: name}
	m.plugins[name] = p
	m.ended(p, errors.New("ListAndWatch failed"))
	r := m.Inventory()[name]
	if r == nil {
		t.Fatal("the resource is not there")
	}
	if capacity, allocatable := r.Counts(); r.State != Away || capacity != 0 || allocatable != 0 {
		t.Errorf("%s, capacity %d, allocatable %d", r.State, capacity, allocatable)
	}
}

// TestAPluginAfterOneThatHangs: what lists its devices while a call is not answered is hung
// until it answers; another instance, which registers before the first has ended, is not,
// and pods' calls go to it.
func TestAPluginAfterOneThatHangs(t *testing.T) {
	dir, changed := t.TempDir(), make(chan struct{}, 1)
	m := New(Config{
		Dir: dir, Log: slog.New(slog.DiscardHandler), Now: time.Now, Patience: time.Millisecond,
		Changed: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
		Registered: func(string) {}, Allocated: func(string, time.Duration) {},
	})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- m.Serve(ctx) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for { // what is there before is removed
		if _, err := os.Stat(filepath.Join(dir, "kubelet.sock")); err == nil {
			break
		}
		<-tick.C
	}
	lists := func(devices int, want State) {
		t.Helper()
		for {
			if r := m.Inventory()[name]; r != nil && len(r.Devices) == devices {
				if r.State != want {
					t.Fatalf("%d devices: the plugin is %s (%s), want %s", devices, r.State, r.Why, want)
				}
				return
			}
			<-changed
		}
	}
	first := deviceplugin.Start(t, dir, name, deviceplugin.Devices("a"))
	lists(1, Serving)
	first.Hang()
	asked := m.Allocate(name, []string{"a"})
	<-asked.Late
	lists(1, Hung)
	first.Set(deviceplugin.Devices("a", "b")...)
	lists(2, Hung)
	second := deviceplugin.Start(t, dir, name, deviceplugin.Devices("a", "b", "c"), deviceplugin.At("second.sock"))
	lists(3, Serving)
	if <-asked.Done; !errors.Is(asked.Err, ErrAway) {
		t.Errorf("the first: %v", asked.Err)
	}
	asked.Over()
	lists(3, Serving)
	again := m.Allocate(name, []string{"a"})
	if <-again.Done; again.Err != nil || len(second.Allocated()) != 1 {
		t.Errorf("the second: %v, %v", again.Err, second.Allocated())
	}
}

// TestACallThatIsInTime says nothing of another that is not answered.
func TestACallThatIsInTime(t *testing.T) {
	m := New(Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Now: time.Now, Patience: time.Hour, Changed: func() {}})
	p := &plugin{resource: name, life: t.Context()}
	m.plugins[name], m.inventory = p, Inventory{name: {State: Serving}}
	m.become(p, Serving, Hung, "it has not answered Allocate")
	asked := call(m, name, "PreStartContainer", time.Hour, func(context.Context, *plugin) (bool, error) { return true, nil })
	<-asked.Done
	asked.Over()
	if r := m.Inventory()[name]; r.State != Hung {
		t.Errorf("the plugin is %s", r.State)
	}
}

// slowPlugin answers each call after a time, unless the caller has given up.
type slowPlugin struct {
	pluginapi.DevicePluginClient
	takes time.Duration
	says  error
}

func (p slowPlugin) PreStartContainer(ctx context.Context, _ *pluginapi.PreStartContainerRequest, _ ...grpc.CallOption) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, p.answer(ctx)
}

func (p slowPlugin) Allocate(ctx context.Context, _ *pluginapi.AllocateRequest, _ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{}}}, p.answer(ctx)
}

func (p slowPlugin) answer(ctx context.Context) error {
	select {
	case <-time.After(p.takes):
		return p.says
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestAResetTakesItsTime: a plugin that resets a device for as long as PreStartContainer may
// take is not hung; one that takes as long for Allocate is.
func TestAResetTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{
			Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Now: time.Now, Patience: 5 * time.Second, Changed: func() {}, Allocated: func(string, time.Duration) {},
		})
		m.plugins[name] = &plugin{resource: name, life: t.Context(), api: slowPlugin{takes: 25 * time.Second}}
		m.inventory = Inventory{name: {State: Serving}}
		resets := m.PreStart(name, []string{"a"})
		<-time.After(20 * time.Second)
		if r := m.Inventory()[name]; r.State != Serving {
			t.Errorf("while it resets a device the plugin is %s: %s", r.State, r.Why)
		}
		if <-resets.Done; resets.Err != nil {
			t.Error(resets.Err)
		}
		prepares := m.Allocate(name, []string{"a"})
		<-time.After(20 * time.Second)
		if r := m.Inventory()[name]; r.State != Hung {
			t.Errorf("while it does not answer Allocate the plugin is %s", r.State)
		}
		<-prepares.Done
		prepares.Over()
		if r := m.Inventory()[name]; r.State != Serving {
			t.Errorf("after the answer the plugin is %s", r.State)
		}
	})
}

// TestWhoseErrorItIs: what a plugin says that goes on is its answer, also where it has the
// code of a lost connection, and the call was in time. A plugin has gone when its end is
// noticed soon after the call.
func TestWhoseErrorItIs(t *testing.T) {
	const never = time.Hour
	for _, c := range []struct {
		says error
		ends time.Duration // after the answer
		away bool
	}{
		{status.Error(codes.Unavailable, "no vendor daemon"), never, false},
		{status.Error(codes.Canceled, "no vendor daemon"), never, false},
		{status.Error(codes.Unavailable, "EOF"), parting / 2, true},
		{status.Error(codes.Canceled, "closing"), parting / 2, true},
		{status.Error(codes.Internal, "broken"), parting / 2, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := New(Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Now: time.Now, Patience: 5 * time.Second, Changed: func() {}})
			life, end := context.WithCancel(t.Context())
			defer end()
			const takes = 5*time.Second - time.Millisecond
			m.plugins[name] = &plugin{resource: name, life: life, api: slowPlugin{takes: takes, says: c.says}}
			m.inventory = Inventory{name: {State: Serving}}
			time.AfterFunc(takes+c.ends, end)
			asked := m.Allocate(name, []string{"a"})
			<-asked.Done
			if away := errors.Is(asked.Err, ErrAway); away != c.away || !errors.Is(asked.Err, c.says) {
				t.Errorf("%v, then its end after %s: %v, away %t", c.says, c.ends, asked.Err, away)
			}
			if r := m.Inventory()[name]; r.State != Serving {
				t.Errorf("%v: it has answered in time and is %s", c.says, r.State)
			}
		})
	}
}
