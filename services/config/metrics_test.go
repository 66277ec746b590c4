// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestGatesAreMetrics(t *testing.T) {
	m := newMachine(t, "featureGates: {KubeletTracing: true, MemoryQoS: true}\n"+standalone)
	m.start()
	m.wants()
	shows := func(want string) bool { return strings.Contains(m.metrics(), "\nkubernetes_feature_enabled"+want+"\n") }
	for _, want := range []string{`{name="MemoryQoS",stage="ALPHA"} 1`, `{name="AllAlpha",stage="ALPHA"} 0`, `{name="AllBeta",stage="BETA"} 0`} {
		if !shows(want) {
			t.Errorf("no %s", want)
		}
	}
	m.configure("featureGates: {MemoryQoS: false}\n" + standalone)
	m.until("the change", func() bool { return shows(`{name="MemoryQoS",stage="ALPHA"} 0`) })
}

// TestRequestsAreMetrics: what is asked of the API server is counted, and which
// pods come of it.
func TestRequestsAreMetrics(t *testing.T) {
	m, server := joined(t, folder)
	server.Put("pods", apiPod("app", "u1"))
	m.write("manifests/etcd.yaml", manifest("etcd", "i:1"))
	m.start()
	m.wants("default/etcd-n1", "ns/app")
	for _, want := range []string{
		"\nrest_client_requests_total{code=\"200\",host=\"",
		"\nkubelet_desired_pods{static=\"\"} 1\n", "\nkubelet_desired_pods{static=\"true\"} 1\n",
	} {
		if !strings.Contains(m.metrics(), want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(m.metrics(), "registered_metrics_total") {
		t.Error("the library's own bookkeeping is shown")
	}
}
