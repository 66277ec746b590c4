// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/measure"
)

const (
	empty  = "kubernetes.io/empty-dir"
	config = "kubernetes.io/configmap"
)

func operation(plugin, name, status string) string {
	return `storage_operation_duration_seconds{migrated="false",operation_name="` + name + `",status="` + status + `",volume_plugin="` + plugin + `"}`
}

func total(plugin, state string) string {
	return `volume_manager_total_volumes{plugin_name="` + plugin + `",state="` + state + `_state_of_world"}`
}

func overall(plugin string) string {
	return `volume_operation_total_seconds{operation_name="overall_volume_mount",plugin_name="` + plugin + `"}`
}

func TestMetrics(t *testing.T) {
	r := newRig(t, nil)
	measure.Expect(t, r.metrics, map[string]float64{
		"reconstruct_volume_operations_total": 0, "reconstruct_volume_operations_errors_total": 0,
		"force_cleaned_failed_volume_operations_total": 0, "force_cleaned_failed_volume_operation_errors_total": 0,
		total(empty, "desired"): math.NaN(), overall(empty): math.NaN(),
	})
	r.declare(of(t, "u", `
- {name: e, emptyDir: {}}
- {name: c, configMap: {name: late}}
- {name: i, image: {reference: r/i}}
- {name: bad, nfs: {server: s, path: /p}}`))
	r.Eventually("the first", func() bool { return r.volume("u", "e").GetHostPath() != "" && r.volume("u", "bad").GetError() != "" })
	measure.Expect(t, r.metrics, map[string]float64{
		overall(empty): 1, overall(config): math.NaN(),
		total(empty, "desired"): 1, total(empty, "actual"): 1,
		total(config, "desired"): 1, total(config, "actual"): math.NaN(),
	})
	// What waits is tried again after half a second, with all that is in its lane.
	if n := measure.Value(t, r.metrics, operation(empty, "volume_mount", "success")); n < 1 {
		t.Errorf("%v volumes made", n)
	}
	if n := measure.Value(t, r.metrics, operation("kubernetes.io/nfs", "volume_mount", "fail-unknown")); n < 1 {
		t.Errorf("%v failures", n)
	}
	r.configMap("late", map[string]string{"k": "v"})
	r.Eventually("the other", func() bool { return r.volume("u", "c").GetHostPath() != "" })
	measure.Expect(t, r.metrics, map[string]float64{overall(config): 1, total(config, "actual"): 1})
	r.withdraw("u")
	r.gone("u")
	measure.Expect(t, r.metrics, map[string]float64{
		operation(empty, "volume_unmount", "success"): 1, operation(config, "volume_unmount", "success"): 1,
		operation("kubernetes.io/image", "volume_unmount", "success"): 1,
		total(empty, "desired"): math.NaN(), total(empty, "actual"): math.NaN(),
	})
}

// TestMetricsOfRestarts: volumes found on disk are counted, and those of which
// nothing is known are counted as removed by force.
func TestMetricsOfRestarts(t *testing.T) {
	r := newRig(t, nil)
	for _, uid := range []string{"a", "b"} {
		r.declare(of(t, uid, `- {name: e, emptyDir: {}}`))
		r.ready(uid)
	}
	r.stop()
	r.start(nil)
	measure.Expect(t, r.metrics, map[string]float64{
		"reconstruct_volume_operations_total": 2, "reconstruct_volume_operations_errors_total": 0,
		total(empty, "actual"): 2,
	})
	r.stop()
	r.write(filepath.Join(r.Paths.StateOf(house.Volume), "state.db"), strings.Repeat("garbage", 4096))
	r.start(nil)
	measure.Expect(t, r.metrics, map[string]float64{
		"reconstruct_volume_operations_total": 2, "reconstruct_volume_operations_errors_total": 2,
	})
	r.Eventually("found on disk", func() bool { return r.volume("a", "e").GetStep() == "found on disk" })
	r.withdraw("a")
	r.gone("a")
	measure.Expect(t, r.metrics, map[string]float64{
		"force_cleaned_failed_volume_operations_total": 1, "force_cleaned_failed_volume_operation_errors_total": 0,
	})
}
