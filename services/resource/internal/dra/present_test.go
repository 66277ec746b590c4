// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/sextant-node/sextant/pkg/pluginregistration"
	"github.com/sextant-node/sextant/test/dradriver"
)

// TestPresent: a driver counts as there from its registration until 30 s after its last
// connection was lost, and the answer counts 30 s after the start.
func TestPresent(t *testing.T) {
	var mu sync.Mutex
	clock, connections := time.Unix(1000, 0), make(chan string, 100)
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return clock }
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); clock = clock.Add(d) }
	health := newHealthRig(t).h
	d := NewDrivers(func(string, string, string, time.Duration) {}, func(name string) { connections <- name }, health, now)
	t.Cleanup(d.Close)
	is := func(when, want string) {
		t.Helper()
		names, known := d.Present()
		if got := fmt.Sprint(names, known); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	is("at the start", "[] false")
	driver := &dradriver.Driver{Name: "d"}
	socket := filepath.Join(t.TempDir(), "d")
	if err := driver.Serve(socket); err != nil {
		t.Fatal(err)
	}
	p := pluginregistration.Plugin{Name: "d", Endpoint: socket, Versions: []string{drav1.DRAPluginService}, Socket: socket + "-reg"}
	if err := d.Register(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	is("registered", "[d] false")
	<-connections
	pass(time.Hour)
	is("connected for an hour", "[d] true")
	driver.Stop()
	<-connections
	pass(absence - time.Second)
	is("away for 29 s", "[d] true")
	if err := driver.Serve(socket); err != nil {
		t.Fatal(err)
	}
	<-connections
	pass(time.Hour)
	is("back", "[d] true")
	d.Unregister(p)
	<-connections
	is("unregistered", "[d] true")
	pass(absence)
	is("unregistered for 30 s", "[] true")
	is("and then", "[] true")
}
