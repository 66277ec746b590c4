// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/fakecri"
)

// TestRemovalOfAContainerWithATask: one with a task of which the CRI does not know, for which
// it refuses each removal, is removed.
func TestRemovalOfAContainerWithATask(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody())
	id := running(t, rt)
	if _, err := b.Runtime().StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	rt.LeaveTask(id)
	if _, err := b.Runtime().RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Error(err)
	}
	if left := rt.Containers(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
