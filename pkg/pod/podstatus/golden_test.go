// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/pod"
)

var update = flag.Bool("update", false, "rewrite the want sections of testdata")

// epoch is second 0 of the times in testdata.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// situation is the in.yaml of a test file. Times are seconds since epoch.
type situation struct {
	Now                     int64                     `json:"now"`
	Start                   int64                     `json:"start"`
	Lifecycle               Lifecycle                 `json:"lifecycle"`
	Verdict                 *Verdict                  `json:"verdict"`
	Resizes                 []Resize                  `json:"resizes"`
	ResizesUnknown          bool                      `json:"resizesUnknown"`
	AllContainersRestarting bool                      `json:"allContainersRestarting"`
	Facts                   map[string]containerInput `json:"facts"`
	Sandboxes               []sandboxInput            `json:"sandboxes"`
	Containers              []instanceInput           `json:"containers"`
	Incomplete              bool                      `json:"incomplete"`
	Probes                  map[string]ProbeVerdict   `json:"probes"`
	HostIPs                 []string                  `json:"hostIPs"`
	StopSignals             bool                      `json:"stopSignals"`
	OOMKilled               []string                  `json:"oomKilled"`
}

type containerInput struct {
	Waiting      *Waiting `json:"waiting"`
	Backoff      string   `json:"backoff"` // restart or pull
	Delay        string   `json:"delay"`
	LastError    string   `json:"lastError"`
	RestartCount int32    `json:"restartCount"`
	Unstarted    bool     `json:"unstarted"`
	Replaced     string   `json:"replaced"`
	ResetCount   int32    `json:"resetCount"`
	// Given is what podworker gave to the newest instance.
	Given *pod.Size `json:"given"`
}

type sandboxInput struct {
	ID          string   `json:"id"`
	Attempt     uint32   `json:"attempt"`
	Created     int64    `json:"created"`
	NotReady    bool     `json:"notReady"`
	IPs         []string `json:"ips"`
	HostNetwork bool     `json:"hostNetwork"`
}

type instanceInput struct {
	Name      string `json:"name"`
	ID        string `json:"id"`
	State     string `json:"state"` // created, running, exited, never-ran, unknown
	Created   int64  `json:"created"`
	Finished  int64  `json:"finished"`
	Exit      int32  `json:"exit"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
	Restarts  int    `json:"restarts"`
	CPUShares int64  `json:"cpuShares"`
	CPUQuota  int64  `json:"cpuQuota"`
	Memory    int64  `json:"memory"`
	// RRO are the paths of mounts that are read-only all the way down.
	RRO []string `json:"rro"`
	UID *int64   `json:"uid"`
	// StopSignal as the runtime tells it.
	StopSignal string `json:"stopSignal"`
}

func at(seconds int64) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func (s situation) input(t *testing.T, p *v1.Pod, old *v1.PodStatus) Input {
	t.Helper()
	in := Input{
		Pod: p, Old: old, Now: at(s.Now), Probes: s.Probes, OOMKilled: s.OOMKilled,
		Node: Node{HostIPs: s.HostIPs, StopSignals: s.StopSignals},
		Facts: Facts{
			Lifecycle: s.Lifecycle, Verdict: s.Verdict, Resizes: s.Resizes, ResizesUnknown: s.ResizesUnknown,
			AllContainersRestarting: s.AllContainersRestarting, Containers: map[string]ContainerFacts{},
		},
		Observed: Observed{Complete: !s.Incomplete, At: at(s.Now)},
	}
	if in.Node.HostIPs == nil {
		in.Node.HostIPs = []string{"192.0.2.1"}
	}
	if s.Start != 0 {
		in.Facts.StartTime = at(s.Start)
	}
	for name, f := range s.Facts {
		cf := ContainerFacts{
			Waiting: f.Waiting, RestartCount: f.RestartCount, Unstarted: f.Unstarted, Replaced: f.Replaced, ResetCount: f.ResetCount, Given: f.Given,
		}
		if f.Backoff != "" {
			delay, err := time.ParseDuration(f.Delay)
			if err != nil {
				t.Fatal(err)
			}
			cf.Backoff = &Backoff{Kind: BackoffKind(f.Backoff), Delay: delay, Until: at(s.Now).Add(delay), LastError: f.LastError}
		}
		in.Facts.Containers[name] = cf
	}
	for _, sb := range s.Sandboxes {
		in.Observed.Sandboxes = append(in.Observed.Sandboxes, sb.status(p))
	}
	for _, c := range s.Containers {
		in.Observed.Containers = append(in.Observed.Containers, c.status(t, p))
	}
	return in
}

func (s sandboxInput) status(p *v1.Pod) *runtimeapi.PodSandboxStatus {
	out := &runtimeapi.PodSandboxStatus{
		Id: s.ID, CreatedAt: at(s.Created).UnixNano(), Labels: pod.SandboxLabels(p),
		Metadata: &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: s.Attempt},
		Network:  &runtimeapi.PodSandboxNetworkStatus{},
		Linux:    &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{}}},
	}
	if s.NotReady {
		out.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	if s.HostNetwork {
		out.Linux.Namespaces.Options.Network = runtimeapi.NamespaceMode_NODE
	}
	for i, ip := range s.IPs {
		if i == 0 {
			out.Network.Ip = ip
		} else {
			out.Network.AdditionalIps = append(out.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
	}
	return out
}

func (c instanceInput) status(t *testing.T, p *v1.Pod) *runtimeapi.ContainerStatus {
	t.Helper()
	spec, _ := pod.FindContainer(p, c.Name)
	if spec == nil {
		t.Fatalf("no container %q in the pod", c.Name)
	}
	annotations, err := pod.ContainerAnnotations(p, spec, c.Restarts, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := &runtimeapi.ContainerStatus{
		Id: c.ID, Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(c.Restarts)},
		CreatedAt: at(c.Created).UnixNano(), Labels: pod.ContainerLabels(p, spec), Annotations: annotations,
		Image: &runtimeapi.ImageSpec{Image: "registry.example/" + spec.Image}, ImageRef: "registry.example/" + spec.Image + "@sha256:1",
	}
	switch c.State {
	case "running":
		out.State, out.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, out.CreatedAt
	case "exited":
		out.State, out.StartedAt = runtimeapi.ContainerState_CONTAINER_EXITED, out.CreatedAt
		out.FinishedAt, out.ExitCode, out.Reason, out.Message = at(c.Finished).UnixNano(), c.Exit, c.Reason, c.Message
	case "created":
		out.State = runtimeapi.ContainerState_CONTAINER_CREATED
	case "never-ran":
		out.State = runtimeapi.ContainerState_CONTAINER_EXITED
		out.FinishedAt, out.ExitCode, out.Reason, out.Message = at(c.Finished).UnixNano(), c.Exit, c.Reason, c.Message
	default:
		out.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
	}
	if c.CPUShares+c.CPUQuota+c.Memory > 0 {
		out.Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
			CpuShares: c.CPUShares, CpuQuota: c.CPUQuota, CpuPeriod: 100000, MemoryLimitInBytes: c.Memory,
		}}
	}
	out.StopSignal = runtimeapi.Signal(runtimeapi.Signal_value[c.StopSignal])
	if c.UID != nil {
		out.User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: *c.UID, Gid: *c.UID, SupplementalGroups: []int64{7}}}
	}
	for _, path := range c.RRO {
		out.Mounts = append(out.Mounts, &runtimeapi.Mount{ContainerPath: path, Readonly: true, RecursiveReadOnly: true})
	}
	return out
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// Each file of testdata is a situation: pod.yaml, in.yaml, old.yaml (the previous status, if
// any) and reported.yaml (what the API server has, likewise) go in, want.yaml comes out.
// Rendering once more with the outcome as both, a minute later, must change nothing: no test
// may flap.
func TestRender(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 25 {
		t.Fatalf("only %d situations", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := &v1.Pod{}
			if err := yaml.UnmarshalStrict(section(a, "pod.yaml"), p); err != nil {
				t.Fatal(err)
			}
			var s situation
			if err := yaml.UnmarshalStrict(section(a, "in.yaml"), &s); err != nil {
				t.Fatal(err)
			}
			var old *v1.PodStatus
			if raw := section(a, "old.yaml"); raw != nil {
				old = &v1.PodStatus{}
				if err := yaml.UnmarshalStrict(raw, old); err != nil {
					t.Fatal(err)
				}
			}
			in := s.input(t, p, old)
			if raw := section(a, "reported.yaml"); raw != nil {
				in.Reported = &v1.PodStatus{}
				if err := yaml.UnmarshalStrict(raw, in.Reported); err != nil {
					t.Fatal(err)
				}
			}
			before := p.DeepCopy()
			got := Render(in)
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("Render changed its input:\n%s", diff)
			}
			again := in
			again.Old, again.Now = &got, in.Now.Add(time.Minute)
			if in.Reported != nil {
				again.Reported = &got
			}
			if second := Render(again); !Equal(&got, &second) {
				t.Errorf("a second rendering differs:\n%s", cmp.Diff(got, second))
			}
			raw, err := yaml.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				rewrite(t, file, a, raw)
				return
			}
			if diff := cmp.Diff(string(section(a, "want.yaml")), string(raw)); diff != "" {
				t.Errorf("status differs (-want +got):\n%s", diff)
			}
		})
	}
}

func rewrite(t *testing.T, file string, a *txtar.Archive, want []byte) {
	t.Helper()
	for i := range a.Files {
		if a.Files[i].Name == "want.yaml" {
			a.Files = a.Files[:i]
			break
		}
	}
	a.Files = append(a.Files, txtar.File{Name: "want.yaml", Data: want})
	if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
		t.Fatal(err)
	}
}
