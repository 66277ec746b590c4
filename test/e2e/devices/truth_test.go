// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/test/cdi"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/load"
)

// has is what the process of a container has.
type has struct {
	pod, uid string
	devices  []string // and claims, "KIND NAME"
	cpus     cpuset.CPUSet
}

// pinnedName begins the names of pods with CPUs of their own.
const pinnedName = "pinned-"

// wholeName begins the names of those that have them as a whole.
const wholeName = pinnedName + "whole-"

func (h has) pinned() bool { return strings.HasPrefix(h.pod, pinnedName) }

// ledger notes what each container had when it was seen first.
type ledger struct {
	mu    sync.Mutex
	first map[string]has // by container ID
	// processes by container ID: a container has one.
	processes map[string]int
}

func newLedger() *ledger { return &ledger{first: map[string]has{}, processes: map[string]int{}} }

// running is what every container that runs has, by its ID.
func (c *crowd) running(ctx context.Context) (map[string]has, error) {
	list, err := c.Node.Runtime.Runtimes.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, err
	}
	all := map[string]has{}
	for _, one := range list.GetContainers() {
		pid, err := c.process(ctx, one.GetId())
		if err != nil {
			return nil, err
		}
		h := has{pod: one.GetLabels()["io.kubernetes.pod.name"], uid: one.GetLabels()["io.kubernetes.pod.uid"]}
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err != nil || strings.HasPrefix(string(status), "Name:\trunc") {
			continue // it has ended since, or runc has not become the container's program yet
		}
		environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err != nil || len(environ) == 0 {
			continue
		}
		h.devices = cdi.Held(strings.Split(string(environ), "\x00"))
		for line := range strings.Lines(string(status)) {
			if cpus, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				if h.cpus, err = cpuset.Parse(strings.TrimSpace(cpus)); err != nil {
					return nil, err
				}
			}
		}
		all[one.GetId()] = h
	}
	return all, nil
}

// process is that of a running container.
func (c *crowd) process(ctx context.Context, id string) (int, error) {
	c.ledger.mu.Lock()
	pid := c.ledger.processes[id]
	c.ledger.mu.Unlock()
	if pid > 0 {
		return pid, nil
	}
	resp, err := c.Node.Runtime.Runtimes.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, err
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(resp.GetInfo()["info"]), &info); err != nil {
		return 0, err
	}
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	c.ledger.processes[id] = info.PID
	return info.PID, nil
}

// truth compares what containers have with what they had, with each other, and with what
// the driver has prepared.
func (c *crowd) truth() (found []judge.Finding) {
	c.T.Helper()
	prepared := c.driver.Prepared() // before: what a pod that starts has is there by then
	var all map[string]has
	if err := harness.Within(c.T.Context(), load.Patience, func(ctx context.Context) (err error) {
		all, err = c.running(ctx)
		return err
	}); err != nil {
		c.T.Error(err)
		return nil
	}
	add := func(kind judge.Kind, format string, args ...any) {
		found = append(found, judge.Finding{Kind: kind, What: fmt.Sprintf(format, args...)})
	}
	holder, owner := map[string]has{}, map[int]has{}
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		now := all[id]
		was, seen := c.ledger.first[id]
		if !seen {
			c.ledger.first[id], was = now, now
			if want := wanted(now.pod); len(now.devices) != want {
				add(judge.Taken, "pod %s began with %v, and asks for %d", now.pod, now.devices, want)
			}
		}
		if !slices.Equal(was.devices, now.devices) {
			add(judge.Taken, "pod %s had %v and has %v", now.pod, was.devices, now.devices)
		}
		if now.pinned() && !was.cpus.Equals(now.cpus) {
			add(judge.Taken, "pod %s had the CPUs %s and has %s", now.pod, was.cpus, now.cpus)
		}
		for _, device := range now.devices {
			if claim := claimOf(device); claim != "" {
				if uid := c.churn.claim(claim); seen && !slices.Contains(prepared, uid) {
					add(judge.Taken, "pod %s has the claim %s (%s), which is not prepared", now.pod, claim, uid)
				}
				continue // claims may be shared
			}
			if other, twice := holder[device]; twice && other.uid != now.uid {
				add(judge.Twice, "%s: pods %s and %s", device, other.pod, now.pod)
			}
			holder[device] = now
		}
		if !now.pinned() {
			continue
		}
		for _, cpu := range now.cpus.List() {
			if other, twice := owner[cpu]; twice {
				add(judge.Twice, "CPU %d: pods %s and %s", cpu, other.pod, now.pod)
			}
			owner[cpu] = now
		}
	}
	return found
}

// apart waits until no container shares CPUs that another has of its own, and until the
// PodResources API shows of each container what it has.
func (c *crowd) apart() error {
	return harness.Within(c.T.Context(), load.Patience, func(ctx context.Context) error {
		all, err := c.running(ctx)
		if err != nil {
			return err
		}
		var own cpuset.CPUSet
		for _, h := range all {
			if h.pinned() {
				own = own.Union(h.cpus)
			}
		}
		for _, h := range all {
			if shared := h.cpus.Intersection(own); !h.pinned() && !shared.IsEmpty() {
				return fmt.Errorf("pod %s runs on CPUs %s of another", h.pod, shared)
			}
		}
		listed, err := c.listed(ctx)
		if err != nil {
			return err
		}
		for _, h := range all {
			is, ok := listed[h.pod]
			if !ok {
				return fmt.Errorf("pod %s is not in the PodResources API", h.pod)
			}
			if !slices.Equal(is.devices, h.devices) || h.pinned() && !is.cpus.Equals(h.cpus) {
				return fmt.Errorf("pod %s has %v and CPUs %s, by the PodResources API %v and %s", h.pod, h.devices, h.cpus, is.devices, is.cpus)
			}
		}
		return nil
	})
}

// listed is what the PodResources API shows of pods, by name.
func (c *crowd) listed(ctx context.Context) (map[string]has, error) {
	conn, err := grpc.NewClient("unix:"+filepath.Join(c.Node.Root, "pod-resources", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	resp, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err = errors.Join(err, conn.Close()); err != nil {
		return nil, err
	}
	all := map[string]has{}
	for _, p := range resp.GetPodResources() {
		h := has{pod: p.GetName()}
		for _, one := range p.GetContainers() {
			var cpus []int
			for _, id := range one.GetCpuIds() {
				cpus = append(cpus, int(id))
			}
			h.cpus = h.cpus.Union(cpuset.New(cpus...))
			for _, d := range one.GetDevices() {
				for _, id := range d.GetDeviceIds() {
					h.devices = append(h.devices, d.GetResourceName()+" "+id)
				}
			}
			for _, d := range one.GetDynamicResources() {
				for _, r := range d.GetClaimResources() {
					for _, name := range r.GetCdiDevices() {
						h.devices = append(h.devices, strings.Replace(name.GetName(), "=", " ", 1))
					}
				}
			}
		}
		slices.Sort(h.devices)
		all[h.pod] = h
	}
	return all, nil
}
