package actuate

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/gc"
)

func TestCollect(t *testing.T) {
	n := start(t, false)
	p := web(script("exit 1"))
	spec := n.up(p)
	var made []string
	for attempt := range 2 {
		spec.RestartCount = attempt
		id, err := n.StartContainer(n.ctx(), spec)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, id)
		over := func() bool {
			return n.rt.Container("web", "web").GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		}
		if err := n.rt.WaitFor(n.ctx(), over); err != nil {
			t.Fatal(err)
		}
	}
	facts := gc.Facts{Now: time.Now(), Complete: true, Pods: map[types.UID]bool{p.UID: true}}
	for _, c := range n.rt.Containers() {
		facts.Containers = append(facts.Containers, gc.Container{ID: c.GetId(), Name: "web", SandboxID: spec.SandboxID, Pod: p.UID, Created: time.Unix(0, c.GetCreatedAt())})
	}
	facts.Sandboxes = []gc.Sandbox{{ID: spec.SandboxID, Pod: p.UID, Ready: true}}
	keepOne := gc.Policy{MaxPerContainer: 1, MaxTotal: -1}
	if err := n.Collect(n.ctx(), facts, keepOne); err != nil {
		t.Fatal(err)
	}
	if left := n.rt.Containers(); len(left) != 1 || left[0].GetId() != made[1] {
		t.Errorf("left %v, want the newer", left)
	}
	logs := pod.ContainerLogDir(n.cfg.PodLogsDir, p.Namespace, p.Name, p.UID, "web")
	if exists(filepath.Join(logs, "0.log")) || !exists(filepath.Join(logs, "1.log")) {
		t.Error("the wrong log was removed")
	}

	// The pod is gone and the runtime is clean: so is the disk.
	facts.Pods, facts.Containers, facts.Sandboxes = nil, nil, nil
	if err := n.Collect(n.ctx(), facts, keepOne); err != nil {
		t.Fatal(err)
	}
	if err := n.Collect(n.ctx(), facts, keepOne); err != nil { // the links lead nowhere now
		t.Fatal(err)
	}
	links, err := os.ReadDir(n.cfg.LegacyLogsDir)
	if err != nil {
		t.Fatal(err)
	}
	if exists(n.layout.Pod(p.UID)) || exists(logDirOf(n, p)) || len(links) != 0 {
		t.Errorf("left on the disk: %v", links)
	}
}
