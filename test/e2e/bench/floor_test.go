// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/bench/figures"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// floorParallel is how many pods are started beside each other: more are no
// faster on few cores.
const floorParallel = 10

// floor measures what the runtime takes by itself: the three calls that a pod
// of one container cannot do without.
func floor(t *testing.T, run *figures.Run, rt *harness.Runtime) {
	logs := t.TempDir()
	for i := range *single {
		began := time.Now()
		id := bare(t, rt, logs, fmt.Sprintf("single-%d", i))
		run.Add(figures.Floor, figures.Create, time.Since(began).Seconds())
		began = time.Now()
		end(t, rt, id)
		run.Add(figures.Floor, figures.Delete, time.Since(began).Seconds())
	}
	for round := range *rounds {
		ids := make([]string, *pods)
		began := time.Now()
		parallel(*pods, func(i int) { ids[i] = bare(t, rt, logs, fmt.Sprintf("many-%d-%d", round, i)) })
		run.Add(figures.Floor, figures.Up, time.Since(began).Seconds())
		if round == *rounds-1 {
			rest(t, *settle)
			run.Add(figures.Floor, figures.IdleRuntime, idleRuntime(t, rt))
		}
		began = time.Now()
		parallel(*pods, func(i int) { end(t, rt, ids[i]) })
		run.Add(figures.Floor, figures.Down, time.Since(began).Seconds())
		if t.Failed() {
			return
		}
	}
}

// idleRuntime is what the runtime uses while nobody asks it for anything, in
// percent of one core.
func idleRuntime(t *testing.T, rt *harness.Runtime) float64 {
	t.Helper()
	processes, began := rt.Processes(), time.Now()
	before := cpu(t, processes)
	rest(t, *idle)
	return 100 * (cpu(t, processes) - before).Seconds() / time.Since(began).Seconds()
}

// parallel does something n times, floorParallel of them at once.
func parallel(n int, do func(i int)) {
	next := make(chan int)
	var all sync.WaitGroup
	for range min(floorParallel, n) {
		all.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// bare makes a pod of one pause container by CRI calls alone.
func bare(t *testing.T, rt *harness.Runtime, logs, uid string) (sandbox string) {
	ctx := t.Context()
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "bench", Uid: uid},
		Hostname:     uid,
		LogDirectory: filepath.Join(logs, uid),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: rt.CgroupRoot + "/pod" + uid},
	}
	pod, err := rt.Runtimes.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Errorf("RunPodSandbox: %v", err)
		return ""
	}
	c, err := rt.Runtimes.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod.GetPodSandboxId(), SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "pause"},
			Image:    &runtimeapi.ImageSpec{Image: images.Pause},
			LogPath:  "pause.log",
			Linux:    &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err == nil {
		_, err = rt.Runtimes.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()})
	}
	if err != nil {
		t.Errorf("container of %s: %v", uid, err)
	}
	return pod.GetPodSandboxId()
}

// end removes a pod; its container goes with the sandbox.
func end(t *testing.T, rt *harness.Runtime, sandbox string) {
	_, err := rt.Runtimes.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox})
	if err == nil {
		_, err = rt.Runtimes.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox})
	}
	if err != nil {
		t.Errorf("remove sandbox: %v", err)
	}
}
