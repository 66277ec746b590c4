// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
)

// TestLogsAreOfWhatPlegHasPublished: a reader of logs has seen in the pod's status what
// pleg published, though its announcement has not reached podworker.
func TestLogsAreOfWhatPlegHasPublished(t *testing.T) {
	n := newNode(t)
	n.live()
	p := web("a")
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	n.wire.mu.Lock()
	n.wire.lost = map[string]bool{house.PlegPods.Name: true}
	n.wire.mu.Unlock()
	id := n.rt.Container("a", "web").GetId()
	n.rt.Exit(id, 3)
	exited := func() bool {
		record, ok := n.records.Get(string(p.UID))
		if !ok || len(record.GetContainers()) == 0 {
			return false
		}
		status := &runtimeapi.ContainerStatus{}
		n.must(proto.Unmarshal(record.GetContainers()[0], status))
		return status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	}
	n.until("published", exited)
	found, ok := logPods{n.loop}.Pod(t.Context(), p.Namespace, p.Name)
	if !ok || len(found.Statuses) != 1 || found.Statuses[0].GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("found %v", found.Statuses)
	}
	statuses, err := logPods{n.loop}.Read(t.Context(), p)
	if err != nil || len(statuses) == 0 || statuses[0].GetLabels()[pod.PodUIDLabel] != string(p.UID) {
		t.Errorf("%v, %v", statuses, err)
	}
}
