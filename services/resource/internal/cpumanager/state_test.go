// SPDX-License-Identifier: Apache-2.0

package cpumanager_test

import (
	"strings"
	"testing"

	"github.com/sextant-node/sextant/services/resource/internal/cpumanager"
)

// TestReadState reads files with the sums that a kubelet 1.36 writes.
func TestReadState(t *testing.T) {
	none, err := cpumanager.ReadState([]byte(`{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`))
	if err != nil || len(none) != 0 {
		t.Error(none, err)
	}
	const static = `{"policyName":"static","defaultCpuSet":"0,2-3","entries":{"u1":{"a":"5","c":"1"},"u2":{"b":"4"}},"checksum":1298532187}`
	all, err := cpumanager.ReadState([]byte(static))
	if err != nil || all["u1"].Containers["a"].String() != "5" || all["u1"].Containers["c"].String() != "1" || all["u2"].Containers["b"].String() != "4" {
		t.Error(all, err)
	}
	for data, want := range map[string]string{
		strings.Replace(static, `"5"`, `"6"`, 1):                         "checkpoint is corrupted: checksum 1298532187, want ",
		`{"policyName":"static","entries":{"u":{"a":"x"}},"checksum":0}`: "entries[u][a]: ",
		`{`: "unexpected end of JSON input",
	} {
		if _, err := cpumanager.ReadState([]byte(data)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", data, err, want)
		}
	}
}
