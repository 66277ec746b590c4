// SPDX-License-Identifier: Apache-2.0

package resize_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/admit"
	"github.com/sextant-node/sextant/services/resource/internal/resize"
)

var update = flag.Bool("update", false, "write the verdicts as they are now")

// node is what a file says of the node; the rest has no say in a resize.
type node struct {
	Allocatable v1.ResourceList `json:"allocatable"`
	StaticCPU   bool            `json:"staticCPU"`
	StaticMem   bool            `json:"staticMemory"`
	NoPodLevel  bool            `json:"noPodLevel"`
	Swap        bool            `json:"swap"`
	Pressure    bool            `json:"memoryPressure"`
}

// TestJudgements replays testdata/*.txtar: the node, its pods by name, and what
// each NAME.asks for. They are judged in their order; what fits is allocated
// before the next is judged.
func TestJudgements(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := judge(t, a)
			i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == "want" })
			if *update {
				if i < 0 {
					a.Files, i = append(a.Files, txtar.File{Name: "want"}), len(a.Files)
				}
				a.Files[i].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if i < 0 || got != string(a.Files[i].Data) {
				t.Errorf("got:\n%s", got)
			}
		})
	}
}

func judge(t *testing.T, a *txtar.Archive) string {
	t.Helper()
	var n node
	pods, asks := map[string]*v1.Pod{}, map[string]*v1.Pod{}
	for _, f := range a.Files {
		var into any
		name, wish := strings.CutSuffix(f.Name, ".asks")
		switch f.Name {
		case "want":
			continue
		case "node":
			into = &n
		default:
			p := &v1.Pod{}
			p.Name, p.Namespace = name, "ns"
			if into = p; wish {
				asks[name] = p
			} else {
				pods[name] = p
			}
		}
		if err := yaml.UnmarshalStrict(f.Data, into); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
	}
	policies := resize.Policies{StaticCPU: n.StaticCPU, StaticMemory: n.StaticMem, PodLevel: !n.NoPodLevel}
	if n.Swap {
		policies.Swap = pod.ResourceOptions{Swap: pod.LimitedSwap, SwapController: true, CgroupV2: true}
	}
	var waiting []resize.Waiting
	for name, p := range pods {
		p.UID = types.UID(name)
		if asks[name] == nil {
			continue
		}
		w := resize.Waiting{Allocated: p, Desired: asks[name]}
		asks[name].UID = p.UID
		if since := asks[name].Annotations["since"]; since != "" {
			d, err := time.ParseDuration(since)
			if err != nil {
				t.Fatal(err)
			}
			w.Since = time.Unix(1000, 0).Add(d)
		}
		waiting = append(waiting, w)
	}
	resize.Sort(waiting)
	var out strings.Builder
	for _, w := range waiting {
		var others []*v1.Pod
		for name, p := range pods {
			if name != w.Desired.Name {
				others = append(others, p)
			}
		}
		fmt.Fprintf(&out, "%s: %v\n", w.Desired.Name, resize.Operations(w.Allocated, w.Desired))
		facts := admit.Node{Name: "n1", Allocatable: n.Allocatable, MemoryPressure: n.Pressure}
		if p := resize.Judge(w.Desired, w.Allocated, others, facts, policies); p != nil {
			fmt.Fprintf(&out, "  %s, %s %s: %s\n", p.Reason, p.Cause, p.Detail, p.Message)
			continue
		}
		pods[w.Desired.Name] = w.Desired
		out.WriteString("  allocated\n")
	}
	return out.String()
}

func TestRoom(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	u := func(v uint64) *uint64 { return &v }
	a := pod.CgroupResources{CPUShares: u(100), CPUQuota: n(5000), CPUPeriod: u(1), Memory: n(10)}
	b := pod.CgroupResources{CPUShares: u(50), CPUQuota: n(9000), CPUPeriod: u(1), Memory: n(5)}
	for _, r := range []pod.CgroupResources{resize.Room(a, b), resize.Room(b, a)} {
		if *r.CPUShares != 100 || *r.CPUQuota != 9000 || *r.Memory != 10 || r.CPUPeriod == nil {
			t.Errorf("%+v", r)
		}
	}
	b.Memory, b.CPUQuota = nil, n(-1)
	for _, r := range []pod.CgroupResources{resize.Room(a, b), resize.Room(b, a)} {
		if r.Memory != nil || *r.CPUQuota != -1 {
			t.Errorf("a limit where there was none: %+v", r)
		}
	}
	b.CPUQuota = nil
	if r := resize.Room(a, b); r.CPUQuota != nil || r.CPUPeriod != nil {
		t.Errorf("a quota where there was none: %+v", r)
	}
}
