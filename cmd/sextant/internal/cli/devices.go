// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/wire"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// deviceReport is what `sextant devices` prints.
type deviceReport struct {
	Plugins []pluginRow  `json:"plugins"`
	Held    []heldRow    `json:"held"`
	Waiting []waitingRow `json:"waiting"`
}

// pluginRow is the plugin of an extended resource.
type pluginRow struct {
	Resource string    `json:"resource"`
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Message  string    `json:"message,omitempty"`
	// Capacity and Allocatable as on the Node; Held is how many devices containers have.
	Capacity    string `json:"capacity"`
	Allocatable string `json:"allocatable"`
	Held        int    `json:"held"`
}

// heldRow is what one container has: a device of a plugin, CPUs or memory of its own, or a
// CDI device of a claim or a plugin.
type heldRow struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Resource is that of the plugin, "claim:NAME" with the pod's name of the claim, "cpu",
	// "memory", "hugepages-SIZE", or "cdi" for another CDI device; ID of memory is how much.
	Resource string `json:"resource"`
	ID       string `json:"id"`
	// NUMA nodes; empty where none is known.
	NUMA   []int64 `json:"numa,omitempty"`
	Health string  `json:"health,omitempty"`
	// Message is what the plugin or driver says of its health.
	Message string `json:"message,omitempty"`
}

// waitingRow is a pod that waits for resource.
type waitingRow struct {
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Message   string    `json:"message"`
	Since     time.Time `json:"since,omitzero"`
}

func devicesCommand() *cobra.Command {
	var n nodeFlags
	var o output
	c := &cobra.Command{
		Use:   "devices",
		Short: "Show device plugins, which container has which devices, CPUs and memory, and which pods wait for them",
		Example: `  sextant devices
  sextant devices -o json | jq '.held[] | select(.resource == "cpu")'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			report, err := gatherDevices(c.Context(), n.paths)
			if err != nil {
				return err
			}
			return printDevices(c.OutOrStdout(), &o, report, time.Now())
		},
	}
	n.asks(c)
	o.register(c)
	return c
}

// gatherDevices asks resource; what podworker says of pods that wait is left out if it does
// not answer.
func gatherDevices(ctx context.Context, paths house.Paths) (*deviceReport, error) {
	node, err := service.Pull(ctx, paths, house.ResourceNode, feed.Whole[*resourcev1.NodeResources])
	if err != nil {
		return nil, silent(house.Resource, err)
	}
	pods, err := service.Pull(ctx, paths, house.ResourcePods, feed.Whole[*resourcev1.PodAllocation])
	if err != nil {
		return nil, silent(house.Resource, err)
	}
	states, err := service.Pull(ctx, paths, house.PodWorkerPods, feed.Whole[*podworkerv1.PodState])
	if err != nil {
		states = nil
	}
	nodes, err := numaNodes("/sys/devices/system/node")
	if err != nil {
		return nil, err
	}
	return devicesOf(node["node"], pods, states, nodes), nil
}

// numaNodes reads which CPUs the NUMA nodes have; nothing on a kernel without them.
func numaNodes(dir string) (map[int64]cpuset.CPUSet, error) {
	files, _ := filepath.Glob(filepath.Join(dir, "node[0-9]*/cpulist")) // the pattern is good
	nodes := map[int64]cpuset.CPUSet{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		id, numberErr := strconv.ParseInt(strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "node"), 10, 64)
		cpus, err := cpuset.Parse(strings.TrimSpace(string(text)))
		if err := errors.Join(numberErr, err); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		nodes[id] = cpus
	}
	return nodes, nil
}

// devicesOf joins what resource has given with the pods that wait for it.
func devicesOf(node *resourcev1.NodeResources, pods map[string]*resourcev1.PodAllocation, states map[string]*podworkerv1.PodState, nodes map[int64]cpuset.CPUSet) *deviceReport {
	report := &deviceReport{Plugins: []pluginRow{}, Held: []heldRow{}, Waiting: []waitingRow{}}
	count := map[string]int{}
	for _, p := range pods {
		for _, row := range heldBy(p, nodes) {
			report.Held = append(report.Held, row)
			count[row.Resource]++
		}
	}
	for _, p := range node.GetDevicePlugins() {
		name := p.GetResource()
		report.Plugins = append(report.Plugins, pluginRow{
			Resource: name, State: p.GetState(), Since: wire.TimeOf(p.GetSince()), Message: p.GetMessage(),
			Capacity: node.GetCapacity()[name], Allocatable: node.GetAllocatable()[name], Held: count[name],
		})
	}
	for _, s := range states {
		if w := s.GetWait(); w.GetOwner() == string(house.Resource) {
			report.Waiting = append(report.Waiting, waitingRow{s.GetNamespace(), s.GetName(), w.GetMessage(), wire.TimeOf(w.GetSince())})
		}
	}
	slices.SortFunc(report.Plugins, func(a, b pluginRow) int { return cmp.Compare(a.Resource, b.Resource) })
	slices.SortFunc(report.Held, func(a, b heldRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(report.Waiting, func(a, b waitingRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return report
}

// heldBy are the rows of one pod.
func heldBy(p *resourcev1.PodAllocation, nodes map[int64]cpuset.CPUSet) (rows []heldRow) {
	health, claims := map[[3]string]*resourcev1.DeviceHealth{}, map[[2]string]string{}
	for _, h := range p.GetDeviceHealth() {
		health[[3]string{h.GetContainer(), h.GetResource(), h.GetId()}] = h
		if strings.HasPrefix(h.GetResource(), "claim:") {
			claims[[2]string{h.GetContainer(), h.GetId()}] = h.GetResource()
		}
	}
	for _, c := range p.GetContainers() {
		row := heldRow{Namespace: p.GetNamespace(), Pod: p.GetName(), Container: c.GetName()}
		add := func(name, id string, numa []int64) {
			next := row
			how := health[[3]string{c.GetName(), name, id}]
			next.Resource, next.ID, next.NUMA, next.Health, next.Message = name, id, numa, how.GetHealth(), how.GetMessage()
			rows = append(rows, next)
		}
		for _, given := range c.GetPluginDevices() {
			for _, d := range given.GetDevices() {
				add(given.GetResource(), d.GetId(), d.GetNodes())
			}
		}
		if cpus, err := cpuset.Parse(c.GetCpusetCpus()); err == nil && !cpus.IsEmpty() {
			var near []int64
			for _, id := range slices.Sorted(maps.Keys(nodes)) {
				if !nodes[id].Intersection(cpus).IsEmpty() {
					near = append(near, id)
				}
			}
			add("cpu", c.GetCpusetCpus(), near)
		}
		for _, b := range c.GetMemory() {
			if b.GetSize() > 0 {
				add(b.GetType(), resource.NewQuantity(int64(b.GetSize()), resource.BinarySI).String(), b.GetNodes())
			}
		}
		for _, name := range c.GetCdiDevices() {
			add(cmp.Or(claims[[2]string{c.GetName(), name}], "cdi"), name, nil)
		}
	}
	return rows
}

func printDevices(w io.Writer, o *output, report *deviceReport, now time.Time) error {
	if o.format != "table" {
		return o.print(w, report, nil, nil)
	}
	var plugins, held, waiting [][]string
	for _, p := range report.Plugins {
		plugins = append(plugins, []string{p.Resource, p.State, ageOf(p.Since, now), p.Capacity, p.Allocatable, fmt.Sprint(p.Held), p.Message})
	}
	for _, h := range report.Held {
		nodes := make([]string, 0, len(h.NUMA))
		for _, n := range h.NUMA {
			nodes = append(nodes, fmt.Sprint(n))
		}
		held = append(held, []string{h.Namespace + "/" + h.Pod, h.Container, h.Resource, h.ID, orDash(strings.Join(nodes, ",")), orDash(h.Health), orDash(h.Message)})
	}
	for _, p := range report.Waiting {
		waiting = append(waiting, []string{p.Namespace + "/" + p.Pod, ageOf(p.Since, now), p.Message})
	}
	between := ""
	for _, t := range []struct {
		header []string
		cells  [][]string
	}{
		{[]string{"PLUGIN OF", "STATE", "SINCE", "CAPACITY", "ALLOCATABLE", "HELD", "WHY"}, plugins},
		{[]string{"POD", "CONTAINER", "RESOURCE", "ID", "NUMA", "HEALTH", "WHY"}, held},
		{[]string{"WAITING POD", "SINCE", "WHY"}, waiting},
	} {
		if len(t.cells) == 0 && len(report.Plugins)+len(held)+len(waiting) > 0 {
			continue
		}
		if _, err := io.WriteString(w, between); err != nil {
			return err
		}
		between = "\n"
		if err := o.print(w, nil, t.header, t.cells); err != nil {
			return err
		}
	}
	return nil
}
