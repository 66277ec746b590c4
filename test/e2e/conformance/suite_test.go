// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/conformance/report"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// fastList names the tests of -fast by their full text, one a line.
//
//go:embed fast.txt
var fastList string

func chosen() []string {
	var list []string
	for line := range strings.Lines(fastList) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}

// target is where tests are run: a cluster, and what is the node's alone if it
// is a lab's.
type target struct {
	kubeConfig string

	controlPlane *harness.ControlPlane
	place        *harness.Place
	// token is an administrator's, for e2e_node, which takes no kubeconfig.
	token string
	// agent and programs are the name of an agent that e2e_node starts itself, and the
	// folder where it is called kubelet.
	agent, programs string
}

// start gives the tests their node: an agent's in the lab, or the cluster's.
func start(t *testing.T, agent string) target {
	if agent == cluster {
		return target{kubeConfig: *kubeConfig}
	}
	if *asKubelet {
		return kubelet(t, agent)
	}
	return node(t, agent)
}

// referenceStarts is how often the suite may start the reference kubelet until its node is
// Ready. A kubelet tries for 20 s to write its CSINode, and gives up for good; on a slow
// machine it registers the Node only then.
const referenceStarts = 4

// suite runs tests on a node and returns what became of each. What ginkgo wrote is
// kept under a name.
func (on target) suite(t *testing.T, name string, choice []string) map[string]report.Result {
	for start := 1; ; start++ {
		got, failure := on.once(t, name, choice)
		if len(got) > 0 {
			return got
		}
		if on.agent != "reference" || start == referenceStarts {
			t.Fatal("no test was run: ", failure)
		}
		t.Logf("start %d of the reference: %s", start, failure)
		emptyLeavings(t)
	}
}

// once runs tests on a node. Without a result it returns why.
func (on target) once(t *testing.T, name string, choice []string) (got map[string]report.Result, failure string) {
	lab := harness.The(t)
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(choice), "--no-color", fmt.Sprintf("--procs=%d", *procs), fmt.Sprintf("--flake-attempts=%d", *attempts),
		"--timeout=5h", "--output-dir="+dir, "--json-report=report.json", suiteIn(t, dir), "--")
	cmd := exec.CommandContext(t.Context(), lab.Tool(t, "conformance", "ginkgo"), append(args, flags(t, on, dir)...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // an interrupted test ends at once
	cmd.Stdout, cmd.Stderr = log, log
	runErr := cmd.Run()
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if to := os.Getenv("SEXTANT_ARTIFACTS"); to != "" {
		keep(t, dir, filepath.Join(to, name))
	}
	raw, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err == nil {
		got, err = report.Read(raw)
	}
	if err != nil || len(got) == 0 {
		return nil, fmt.Sprintf("%v: %v\n%s", runErr, err, harness.Tail(log.Name(), 50))
	}
	return got, ""
}

// suiteIn is upstream's program in a folder, where it is run and writes its files.
func suiteIn(t *testing.T, dir string) string {
	name := *program + ".test"
	link := filepath.Join(dir, name)
	if err := os.Symlink(harness.The(t).Tool(t, "conformance", name), link); err != nil {
		t.Fatal(err)
	}
	return link
}

// keep copies what a run left.
func keep(t *testing.T, from, to string) {
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Log(err)
	}
	for _, name := range []string{"log", "report.json", "kubelet.log", "services.log"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the last two are of an agent that is started by the tests
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0o644)
		}
		if err != nil {
			t.Log(err)
		}
	}
}

// flags are what a program of tests is told; a directory is for its files.
func flags(t *testing.T, on target, dir string) []string {
	if *program != "e2e_node" {
		return []string{"--kubeconfig=" + on.kubeConfig, "--provider=skeleton", "--minStartupPods=0"}
	}
	if on.place == nil && on.agent == "" {
		t.Fatal("-program=e2e_node is for the lab's nodes")
	}
	// What it would ask of the kernel's configuration is not for these tests.
	spec := filepath.Join(dir, "system.yaml")
	if err := os.WriteFile(spec, []byte("os: Linux\nkernelSpec: {versions: ['.*']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if on.agent != "" {
		return kubeletFlags(on, spec, dir)
	}
	return []string{
		"--host=" + on.controlPlane.Server, "--bearer-token=" + on.token, "--node-name=" + on.place.Name,
		"--start-services=false", "--stop-services=false", "--prepull-images=false", "--system-spec-file=" + spec,
		"--container-runtime-endpoint=" + on.place.Runtime.Endpoint(),
	}
}

// administrator makes an account with every right and returns its token.
func administrator(t *testing.T, cp *harness.ControlPlane) string {
	cp.Kubectl(t, "create", "serviceaccount", "tests")
	cp.Kubectl(t, "create", "clusterrolebinding", "tests", "--clusterrole=cluster-admin", "--serviceaccount=default:tests")
	t.Cleanup(func() {
		cp.TryKubectl(context.Background(), "delete", "serviceaccount/tests", "clusterrolebinding/tests")
	})
	return strings.TrimSpace(cp.Kubectl(t, "create", "token", "tests", "--duration=12h"))
}

// node starts a lab's node of an agent.
func node(t *testing.T, agent string) target {
	cp := harness.StartControlPlane(t)
	cp.StartScheduler(t)
	on := target{kubeConfig: cp.KubeConfig, controlPlane: cp, token: administrator(t, cp)}
	runtime := harness.StartRuntime(t, harness.V2)
	provide(t, runtime)
	o := harness.NodeOptions{Runtime: runtime, ControlPlane: cp, Name: agent}
	switch agent {
	case "reference":
		on.place = &harness.StartReference(t, o).Place
	case "sextant":
		on.place = &harness.StartNode(t, o).Place
	default:
		t.Fatalf("-agents: no agent %q", agent)
	}
	t.Cleanup(func() {
		if err := cp.Admin.CoreV1().Nodes().Delete(context.Background(), agent, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	cp.Kubectl(t, "wait", "--for=create", "--timeout=60s", "node/"+agent)
	cp.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "node/"+agent)
	return on
}

// provide gives the runtime the images that the tests name, from the lab's
// registry. Those that cannot be made here are missing for every agent.
func provide(t *testing.T, runtime *harness.Runtime) {
	lab, registry := harness.The(t), harness.StartRegistry(t)
	programs := filepath.Dir(lab.Tool(t, "conformance", "agnhost"))
	refs := images.OfNodes
	if !*asKubelet {
		out, err := exec.CommandContext(t.Context(), filepath.Join(programs, "e2e.test"), "--list-images").Output()
		if err != nil {
			t.Fatal(err)
		}
		refs = strings.Fields(string(out))
	}
	builder := images.Builder{Source: lab.Source}
	for _, ref := range refs {
		host, path, ok := strings.Cut(ref, "/")
		if !ok || strings.HasPrefix(host, "invalid") {
			continue // is meant to be missing
		}
		dir := programs
		if ref == images.DevicePlugin {
			dir = harness.BootFiles
		}
		img, err := builder.Upstream(t.Context(), ref, dir)
		if errors.Is(err, images.ErrUnknown) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		registry.Push(t, path, img)
		if err := runtime.SetRegistry(host, registry.URL()); err != nil {
			t.Fatal(err)
		}
	}
}
