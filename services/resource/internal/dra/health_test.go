// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/sextant-node/sextant/pkg/store"
)

// healthRig has a clock of its own.
type healthRig struct {
	*testing.T
	path  string
	clock time.Time
	store *store.Store
	h     *healths
}

func newHealthRig(t *testing.T) *healthRig {
	r := &healthRig{T: t, path: filepath.Join(t.TempDir(), "state.db"), clock: time.Unix(1000, 0)}
	r.open()
	t.Cleanup(func() { r.store.Close() }) //nolint:errcheck // nothing is written at the end
	return r
}

func (r *healthRig) open() {
	r.Helper()
	var err error
	if r.store, _, err = store.Open(store.Config{Path: r.path, Schema: 1, Log: slog.New(slog.DiscardHandler)}); err == nil {
		r.h, err = openHealths(r.store, func() time.Time { return r.clock })
	}
	if err != nil {
		r.Fatal(err)
	}
}

// says is one device, as DEVICE=STATUS, SECONDS and a message, of which all but the first
// may be missing.
func says(text string) *drahealth.DeviceHealth {
	var name, state, message string
	var seconds int64
	device, rest, _ := strings.Cut(text, " ")
	name, state, _ = strings.Cut(device, "=")
	fmt.Sscan(rest, &seconds, &message) //nolint:errcheck // what is missing is zero
	return &drahealth.DeviceHealth{
		Device: &drahealth.DeviceIdentifier{PoolName: "p", DeviceName: name}, Health: drahealth.HealthStatus(drahealth.HealthStatus_value[state]),
		HealthCheckTimeoutSeconds: seconds, Message: message,
	}
}

func (r *healthRig) take(from *instance, texts ...string) {
	var list []*drahealth.DeviceHealth
	for _, text := range texts {
		list = append(list, says(text))
	}
	r.h.take(from, list)
}

// is expects the health of devices a, b, and which drivers have changed.
func (r *healthRig) is(when, want string) {
	r.Helper()
	drivers, _ := r.h.collect()
	for _, d := range drivers {
		if err := r.h.keep(d); err != nil {
			r.Error(err)
		}
	}
	got := fmt.Sprintf("%s %s %v", r.h.of("d", "p", "a").State, r.h.of("d", "p", "b").State, drivers)
	if got != want {
		r.Errorf("%s: %s, want %s", when, got, want)
	}
}

// TestHealth: a report counts until its time is over, though a later one leaves the device
// out; the end of a stream ends what came by it.
func TestHealth(t *testing.T) {
	r, first, second := newHealthRig(t), &instance{driver: "d"}, &instance{driver: "d"}
	r.is("before a report", "Unknown Unknown []")
	r.take(first, "a=HEALTHY", "b=UNHEALTHY 100 broken")
	r.is("reported", "Healthy Unhealthy [d]")
	if got := r.h.of("d", "p", "b").Message; got != "broken" {
		t.Errorf("message %q", got)
	}
	r.take(first, "a=HEALTHY", "b=UNHEALTHY 100 broken")
	r.is("the same again", "Healthy Unhealthy []")
	r.clock = r.clock.Add(31 * time.Second)
	r.is("after 31 s", "Unknown Unhealthy [d]")
	r.take(first, "a=HEALTHY")
	r.is("b is left out", "Healthy Unhealthy [d]")
	r.clock = r.clock.Add(25 * time.Second)
	if _, next := r.h.collect(); !next.Equal(r.clock.Add(5 * time.Second)) {
		t.Errorf("the next report ends at %v, now %v", next, r.clock)
	}
	r.take(second, "b=HEALTHY")
	r.h.drop(first)
	r.is("another instance", "Unknown Healthy [d]")
	r.h.drop(second)
	r.is("its end", "Unknown Unknown [d]")
}

// TestHealthOfAnEarlierLife: what was reported before a restart counts for its time, from
// the start on, and no longer.
func TestHealthOfAnEarlierLife(t *testing.T) {
	r, from := newHealthRig(t), &instance{driver: "d"}
	r.take(from, "a=HEALTHY", "b=UNHEALTHY 100")
	r.is("reported", "Healthy Unhealthy [d]")
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	r.clock = r.clock.Add(time.Hour)
	r.open()
	r.is("after a restart", "Healthy Unhealthy []")
	r.take(from, "b=UNHEALTHY 100")
	r.is("the driver is back", "Healthy Unhealthy []")
	r.clock = r.clock.Add(31 * time.Second)
	r.is("after 31 s", "Unknown Unhealthy [d]")
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	r.open()
	r.is("after another restart", "Unknown Unhealthy []")
}

// TestHealthIsBounded: neither what a driver says nor how much of it counts without end.
func TestHealthIsBounded(t *testing.T) {
	r, from := newHealthRig(t), &instance{driver: "d"}
	long := says("a=HEALTHY 9223372036854775807")
	long.Message = strings.Repeat("é", 1000)
	list := []*drahealth.DeviceHealth{long}
	for i := range devicesMost + 10 {
		list = append(list, says(fmt.Sprintf("x%d=HEALTHY", i)))
	}
	r.h.take(from, list)
	r.is("reported", "Healthy Unknown [d]")
	got := r.h.of("d", "p", "a")
	if len(got.Message) > messageMost || !utf8.ValidString(got.Message) || !strings.HasSuffix(got.Message, "é...") || got.State != "Healthy" {
		t.Errorf("%s, %d bytes, ends in %q", got.State, len(got.Message), got.Message[len(got.Message)-5:])
	}
	for i := range devicesMost {
		list[i] = says(fmt.Sprintf("y%d=HEALTHY", i))
	}
	r.h.take(from, list)
	if n := len(r.h.drivers["d"]); n > devicesMost {
		t.Errorf("%d devices are kept", n)
	}
	r.is("reported again", "Unknown Unknown [d]")
	if state := r.h.of("d", "p", "x1").State; state != "Unknown" {
		t.Errorf("a device beyond the bound is %s", state)
	}
}

// TestHealthOfContainers: the devices of each of a container's claims, under the pod's name
// of the claim, those of one request where it names one.
func TestHealthOfContainers(t *testing.T) {
	p := podOf(t, `
spec:
  containers: [{name: c, resources: {claims: [{name: a, request: gpu/big}, {name: b}, {name: c}, {name: none}]}}]
  resourceClaims: [{name: a, resourceClaimName: one}, {name: b, resourceClaimName: two}, {name: c, resourceClaimName: unknown}]`)
	claims := map[string]*Claim{
		"one": {Drivers: map[string]Driver{"d": {Devices: []Device{
			{PoolName: "p", DeviceName: "0", RequestNames: []string{"gpu"}, CDIDeviceIDs: []string{"v/c=0", "v/c=all"}},
			{PoolName: "p", DeviceName: "1", RequestNames: []string{"nic"}, CDIDeviceIDs: []string{"v/c=1"}},
		}}}},
		"two": {Drivers: map[string]Driver{
			"e": {Devices: []Device{{PoolName: "q", DeviceName: "2"}, {PoolName: "q", DeviceName: "2"}}},
			"d": {Devices: []Device{{PoolName: "p", DeviceName: "3", CDIDeviceIDs: []string{"v/c=3"}}}},
		}},
	}
	var got []string
	for _, d := range healthOf(p, &p.Spec.Containers[0], func(name string) *Claim { return claims[name] }, func(driver, pool, device string) Health {
		return Health{State: "Healthy", Message: driver + " " + pool + " " + device}
	}) {
		got = append(got, d.Resource+" "+d.ID+": "+d.Message)
	}
	const want = "claim:a/gpu/big v/c=0: d p 0; claim:b v/c=3: d p 3; claim:b e/q/2: e q 2"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("%s\nwant %s", text, want)
	}
}
