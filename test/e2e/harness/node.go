// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/house"
)

// NodeOptions say what a node is made of. The zero value is a standalone node on
// containerd 2.x with its bus on.
type NodeOptions struct {
	Flavour Flavour
	// Runtime is used instead of a new one of that flavour.
	Runtime *Runtime
	// ControlPlane is joined, if given, with the credentials of that node.
	ControlPlane *ControlPlane
	// Gate is the way to it; if nil, the straight one.
	Gate *Gate
	// BusOff runs the node without its bus.
	BusOff bool
	// Place is taken over from another agent, if given; then the fields above it
	// and those below say nothing but BusOff and Args.
	Place *Place
	// Name of the node; made up if empty.
	Name string
	// Families of the node's addresses, the primary first; IPv4 if empty. Pods have
	// addresses of the same families.
	Families []corev1.IPFamily
	// Root is the root directory; made up if empty.
	Root string
	// PrepareRoot is given the root directory before anything is in it.
	PrepareRoot func(dir string)
	// Configure changes the KubeletConfiguration before the first start.
	Configure func(*kubeletv1beta1.KubeletConfiguration)
	// Flags of a kubelet, for either agent.
	Flags []string
	// Args are added to `sextant up`.
	Args []string
	// Binary is run instead of the lab's. Services that are restarted run what is
	// at that path then.
	Binary string
}

// Node is a running Sextant node: the bus and every service as processes.
type Node struct {
	Place
	// Run, State and Logs are directories of Sextant's: sockets, durable state
	// and the services' own logs.
	Run, State, Logs string

	binary string
	args   []string
}

// ServiceRow is a service as `sextant status -o json` prints it.
type ServiceRow struct {
	Service     string  `json:"service"`
	PID         int     `json:"pid"`
	UID         int     `json:"uid"`
	Version     string  `json:"version"`
	CPUPercent  float64 `json:"cpuPercent"`
	MemoryBytes int64   `json:"memoryBytes"`
	Health      string  `json:"health"`
	Reason      string  `json:"reason"`
	Epoch       string  `json:"epoch"`
	Bus         bool    `json:"bus"`
}

// PodRow is a pod as `sextant pods -o json` prints it.
type PodRow struct {
	Namespace  string   `json:"namespace"`
	Name       string   `json:"name"`
	UID        string   `json:"uid"`
	Ready      string   `json:"ready"`
	Phase      string   `json:"phase"`
	Reason     string   `json:"reason"`
	Lifecycle  string   `json:"lifecycle"`
	Restarts   int      `json:"restarts"`
	IP         string   `json:"ip"`
	WaitsFor   string   `json:"waitsFor"`
	Containers []string `json:"containers"`
}

// StartNode starts a node and returns when `sextant up` says it is up. Its
// services' logs are shown if the test fails; with the test it is purged.
func StartNode(t testing.TB, o NodeOptions) *Node {
	t.Helper()
	n := NewNode(t, o)
	n.Up(t)
	return n
}

// NewNode lays out a node without starting it.
func NewNode(t testing.TB, o NodeOptions) *Node {
	t.Helper()
	place := newPlace(t, o)
	n := &Node{
		Place: *place, binary: o.Binary,
		Run: filepath.Join(place.dir, "run"), State: filepath.Join(place.dir, "state"), Logs: filepath.Join(place.dir, "services"),
	}
	if n.binary == "" {
		n.binary = The(t).Binary(t)
	}
	n.args = append([]string{
		"up", "--detach", "--run-dir=" + n.Run, "--state-dir=" + n.State, "--service-log-dir=" + n.Logs,
		"--timeout=60s",
	}, n.flags...)
	if o.BusOff {
		n.args = append(n.args, "--bus=off")
	}
	n.args = append(n.args, o.Args...)
	t.Cleanup(func() { n.end(t) })
	return n
}

// Up starts the node, also after Down or a crash of everything.
func (n *Node) Up(t testing.TB) {
	t.Helper()
	if out, err := n.run(t.Context(), n.args...); err != nil {
		t.Fatalf("sextant up: %v\n%s", err, out)
	}
}

// TryUp starts the node with further arguments and returns what `sextant up` said.
func (n *Node) TryUp(ctx context.Context, args ...string) (string, error) {
	return n.run(ctx, append(slices.Clone(n.args), args...)...)
}

// Foreground is `sextant up` that runs until it is asked to end, not yet started.
func (n *Node) Foreground(ctx context.Context) *exec.Cmd {
	return exec.CommandContext(ctx, n.binary, slices.DeleteFunc(slices.Clone(n.args), func(arg string) bool {
		return arg == "--detach" || strings.HasPrefix(arg, "--timeout=")
	})...)
}

// Down stops the services; pods go on.
func (n *Node) Down(t testing.TB) {
	t.Helper()
	if out, err := n.run(t.Context(), "down", "--run-dir="+n.Run); err != nil {
		t.Fatalf("sextant down: %v\n%s", err, out)
	}
}

// Purge stops the node and removes its pods and every trace.
func (n *Node) Purge(t testing.TB) {
	t.Helper()
	if out, err := n.run(t.Context(), "down", "--purge", "--run-dir="+n.Run); err != nil {
		t.Fatalf("sextant down --purge: %v\n%s", err, out)
	}
}

// Traces lists what is on the machine of the node: its run directory, its pods'
// cgroups, processes and mounts.
func (n *Node) Traces() []string {
	found := Traces(filepath.Dir(n.Run), "no-such-name")
	for _, dir := range append(glob("/sys/fs/cgroup/*"+n.Runtime.CgroupRoot), "/sys/fs/cgroup"+n.Runtime.CgroupRoot, n.Run) {
		if _, err := os.Stat(dir); err == nil {
			found = append(found, "directory "+dir)
		}
	}
	return found
}

// Verb runs an operator's verb on the node and returns what it printed.
func (n *Node) Verb(t testing.TB, verb string, args ...string) string {
	t.Helper()
	out, err := n.run(t.Context(), append([]string{verb, "--run-dir=" + n.Run}, args...)...)
	if err != nil {
		t.Fatalf("sextant %s: %v\n%s", verb, err, out)
	}
	return out
}

// TryVerb is Verb for where a failure is part of the answer.
func (n *Node) TryVerb(ctx context.Context, verb string, args ...string) string {
	out, err := n.run(ctx, append([]string{verb, "--run-dir=" + n.Run}, args...)...)
	if err != nil {
		return out + err.Error()
	}
	return out
}

// Command is `sextant` with arguments for this node, not yet started.
func (n *Node) Command(ctx context.Context, verb string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, n.binary, append([]string{verb, "--run-dir=" + n.Run}, args...)...)
}

func (n *Node) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, n.binary, args...)
	var out, warn bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &warn
	// Detached services must not keep the test waiting for their output.
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) && ended.ExitCode() == notWell && out.Len() > 0 {
		err = nil
	}
	if err != nil {
		return out.String() + warn.String(), err
	}
	return out.String(), nil
}

// notWell is what a verb exits with that has shown something which is not well.
const notWell = 3

// Services asks for the services of the node.
func (n *Node) Services(ctx context.Context) ([]ServiceRow, error) {
	return rows[ServiceRow](ctx, n, "status")
}

// Pods asks for the pods of the node.
func (n *Node) Pods(ctx context.Context) ([]PodRow, error) { return rows[PodRow](ctx, n, "pods") }

func rows[T any](ctx context.Context, n *Node, verb string) ([]T, error) {
	out, err := n.run(ctx, verb, "--run-dir="+n.Run, "-o=json")
	if err != nil {
		return nil, fmt.Errorf("sextant %s: %w: %s", verb, err, out)
	}
	var all []T
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("sextant %s: %w: %s", verb, err, out)
	}
	return all, nil
}

// Pod finds one pod by name, the node's suffix of a static pod's name left out.
func (n *Node) Pod(ctx context.Context, name string) (PodRow, error) {
	pods, err := n.Pods(ctx)
	if err != nil {
		return PodRow{}, err
	}
	for _, p := range pods {
		if p.Name == name || p.Name == name+"-"+n.Name {
			return p, nil
		}
	}
	return PodRow{}, fmt.Errorf("no pod %s among %d", name, len(pods))
}

// PID returns the process id of a service.
func (n *Node) PID(t testing.TB, service string) int {
	t.Helper()
	all, err := n.Services(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Service == service && s.PID > 0 {
			return s.PID
		}
	}
	t.Fatalf("no process of service %s", service)
	return 0
}

// Process is the process id of a service, as the process table has it: 0 while
// there is none.
func (n *Node) Process(service house.Service) int {
	for _, p := range n.Processes() {
		if p.Name == string(service) {
			return p.PID
		}
	}
	return 0
}

// Serving says which service does not serve, and why.
func (n *Node) Serving(ctx context.Context) error {
	all, err := n.Services(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Health != "serving" {
			return fmt.Errorf("%s is %s: %s", s.Service, s.Health, s.Reason)
		}
	}
	return nil
}

// Kill ends a service as kill -9 does and returns the process id it had.
func (n *Node) Kill(t testing.TB, service string) int {
	t.Helper()
	pid := n.PID(t, service)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatalf("kill -9 %s: %v", service, err)
	}
	return pid
}

// end shows what a failed test needs and purges the node.
func (n *Node) end(t testing.TB) {
	// Not the test's context: that has ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	if t.Failed() {
		for _, verb := range []string{"status", "pods"} {
			out, err := n.run(ctx, verb, "--run-dir="+n.Run)
			t.Logf("sextant %s (%v):\n%s", verb, err, out)
		}
	}
	keep(t, n.Name, glob(filepath.Join(n.Logs, "*.log"))...)
	if _, err := os.Stat(n.Run); err == nil {
		if out, err := n.run(ctx, "down", "--purge", "--run-dir="+n.Run); err != nil {
			t.Errorf("sextant down --purge: %v\n%s", err, out)
			n.Runtime.explain(t, out)
		}
	}
}
