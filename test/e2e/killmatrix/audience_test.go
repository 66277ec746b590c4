// SPDX-License-Identifier: Apache-2.0

package killmatrix_test

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// audience is probed in the place of pods, and remembers when. It answers at
// once, so a probe of it that fails is the prober's fault.
type audience struct {
	port int

	mu    sync.Mutex
	heard map[string][]time.Time // by pod
}

func newAudience(t *testing.T) *audience {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &audience{port: l.Addr().(*net.TCPAddr).Port, heard: map[string][]time.Time{}}
	server := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // until it is closed
	t.Cleanup(func() {
		_ = server.Close() // nobody is left to hear of it
		serving.Wait()
	})
	return a
}

// ServeHTTP answers /POD well and /no/POD badly.
func (a *audience) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	pod, bad := strings.CutPrefix(r.URL.Path, "/no/")
	a.mu.Lock()
	a.heard[strings.TrimPrefix(pod, "/")] = append(a.heard[strings.TrimPrefix(pod, "/")], now)
	a.mu.Unlock()
	if bad {
		http.NotFound(w, r)
	}
}

// probe asks the audience on behalf of a pod; one failure counts.
func (a *audience) probe(path string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Path: path, Port: intstr.FromInt(a.port)}},
		PeriodSeconds: int32(probePeriod / time.Second), FailureThreshold: 1, TimeoutSeconds: 20,
	}
}

// probePeriod is how often the audience is asked for each pod.
const probePeriod = 2 * time.Second

// first is when a pod was first probed after a moment; ok is false if not yet.
func (a *audience) first(pod string, after time.Time) (at time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.heard[pod] {
		if t.After(after) {
			return t, true
		}
	}
	return time.Time{}, false
}

// forget drops what was heard before a moment.
func (a *audience) forget(before time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for pod, list := range a.heard {
		for len(list) > 0 && list[0].Before(before) {
			list = list[1:]
		}
		a.heard[pod] = list
	}
}
