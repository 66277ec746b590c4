// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"testing"

	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	"github.com/sextant-node/sextant/test/frozen"
)

// TestFrozen: verdicts that released versions kept are read whole.
func TestFrozen(t *testing.T) {
	for version, path := range frozen.Files(t, "state.db") {
		kept := frozen.Messages[*proberv1.PodVerdicts](t, frozen.Open(t, path, schema), "verdicts")
		for uid, want := range map[string]proberv1.Result{"ready": proberv1.Result_RESULT_SUCCESS, "failing": proberv1.Result_RESULT_FAILURE} {
			if v := kept[uid].GetVerdicts(); len(v) != 1 || v[0].GetResult() != want || v[0].GetContainerId() != "c-"+uid {
				t.Errorf("%s: %s: %v", version, uid, v)
			}
		}
	}
}
