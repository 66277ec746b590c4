package conformance_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

var (
	agents = flag.String("agents", "reference,sextant", "whose nodes to test, separated by commas")
	focus  = flag.String("focus", `\[sig-node\].*\[NodeConformance\]`, "which of upstream's tests to run: a regular expression")
	skip   = flag.String("skip", `\[Flaky\]|\[Slow\]|\[Serial\]|\[Disruptive\]`, "which of them to leave out")
	procs  = flag.Int("procs", 4, "how many of them to run at once")
)

func TestMain(m *testing.M) {
	flag.Parse()
	harness.Main(m)
}

// TestConformance fails for each of upstream's tests that the reference kubelet
// passes and Sextant does not. Alone, an agent must pass them all.
func TestConformance(t *testing.T) {
	results := map[string]map[string]result{}
	names := strings.Split(*agents, ",")
	for _, agent := range names {
		t.Run(agent, func(t *testing.T) {
			results[agent] = suite(t, agent)
		})
	}
	if t.Failed() {
		return
	}
	fmt.Print(table(names, results))
	for _, spec := range worse(results, "reference", "sextant") {
		t.Errorf("the reference passes, Sextant does not: %s\n%s", spec, results["sextant"][spec].message)
	}
}

// suite runs the tests on one node and returns what became of each.
func suite(t *testing.T, agent string) map[string]result {
	cp := harness.StartControlPlane(t)
	cp.StartScheduler(t)
	runtime := harness.StartRuntime(t, harness.V2)
	provide(t, runtime)
	o := harness.NodeOptions{Runtime: runtime, ControlPlane: cp, Name: agent}
	switch agent {
	case "reference":
		harness.StartReference(t, o)
	case "sextant":
		harness.StartNode(t, o)
	default:
		t.Fatalf("-agents: no agent %q", agent)
	}
	t.Cleanup(func() {
		if err := cp.Admin.CoreV1().Nodes().Delete(context.Background(), agent, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	cp.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "node/"+agent)

	lab := harness.The(t)
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), lab.Tool(t, "conformance", "ginkgo"), "--no-color", fmt.Sprintf("--procs=%d", *procs), "--timeout=3h",
		"--focus="+*focus, "--skip="+*skip, "--output-dir="+dir, "--json-report=report.json",
		lab.Tool(t, "conformance", "e2e.test"), "--", "--kubeconfig="+cp.KubeConfig, "--provider=skeleton", "--minStartupPods=0")
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // an interrupted test ends at once
	cmd.Stdout, cmd.Stderr = log, log
	runErr := cmd.Run()
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatalf("%v: %v\n%s", runErr, err, harness.Tail(log.Name(), 50))
	}
	if to := os.Getenv("SEXTANT_ARTIFACTS"); to != "" {
		if err := os.CopyFS(filepath.Join(to, agent), os.DirFS(dir)); err != nil {
			t.Log(err)
		}
	}
	got, err := read(raw)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 {
		t.Fatalf("no test was run: %v\n%s", runErr, harness.Tail(log.Name(), 50))
	}
	return got
}

// provide gives the runtime the images that the tests name, from the lab's
// registry. Those that cannot be made here are missing for every agent.
func provide(t *testing.T, runtime *harness.Runtime) {
	lab, registry := harness.The(t), harness.StartRegistry(t)
	programs := lab.Tool(t, "conformance", "e2e.test")
	out, err := exec.CommandContext(t.Context(), programs, "--list-images").Output()
	if err != nil {
		t.Fatal(err)
	}
	builder := images.Builder{Source: lab.Source}
	for ref := range strings.FieldsSeq(string(out)) {
		host, path, ok := strings.Cut(ref, "/")
		if !ok || strings.HasPrefix(host, "invalid") {
			continue // is meant to be missing
		}
		img, err := builder.Upstream(t.Context(), ref, filepath.Dir(programs))
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
