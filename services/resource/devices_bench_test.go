// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/test/deviceplugin"
)

// BenchmarkAdmitWithDevices is the admission of a pod that asks for a device, from the call
// to the answer, on a node where a hundred others have one: the plugin's answer, the journal
// on the disk and the pod's cgroup are in it. What is to stay below 5 ms is the 99th percentile.
func BenchmarkAdmitWithDevices(b *testing.B) {
	r := newRig(b, nil)
	r.configure(nil)
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	const others = 100
	var ids []string
	for i := range others + 1 {
		ids = append(ids, fmt.Sprintf("device-%03d", i))
	}
	deviceplugin.Start(b, filepath.Join(r.machine, "device-plugins"), gpu, deviceplugin.Devices(ids...))
	r.counts(fmt.Sprint(others+1), fmt.Sprint(others+1))
	pod := func(uid string) {
		p := wanting(uid, 1)
		p.Spec.Containers[0].Resources.Requests["cpu"] = apiresource.MustParse("1m")
		r.decided(p, "admitted")
	}
	for i := range others {
		pod(fmt.Sprintf("stays-%d", i))
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		uid := fmt.Sprintf("comes-%d", i)
		began := time.Now()
		pod(uid)
		took = append(took, time.Since(began))
		b.StopTimer()
		r.release(uid)
		r.Eventually("released", func() bool { _, ok := r.pods.Get(uid); return !ok })
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
