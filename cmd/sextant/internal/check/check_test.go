// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/services/supervisor"
	"github.com/sextant-node/sextant/test/fakecri"
)

var update = flag.Bool("update", false, "write the judgements of testdata again")

// TestJudge: the facts of each node in testdata are judged as its .txt says.
func TestJudge(t *testing.T) {
	nodes, err := filepath.Glob("testdata/*.json")
	if err != nil || len(nodes) == 0 {
		t.Fatalf("no nodes: %v", err)
	}
	for _, path := range nodes {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			facts := &Facts{}
			decoder := json.NewDecoder(strings.NewReader(string(data)))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(facts); err != nil {
				t.Fatal(err)
			}
			found := Judge(facts)
			got := fmt.Sprintf("worst: %s\n", Worst(found))
			for _, f := range found {
				got += fmt.Sprintf("%s: %s: %s\n", f.Level, f.Subject, f.Message)
			}
			golden := strings.TrimSuffix(path, ".json") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestKubeadmArgs: the flags are those of kubeadm's unit with its files.
func TestKubeadmArgs(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/c.sock --node-ip=10.0.0.1\"\n")
	write("etc/default/kubelet", "# KUBELET_EXTRA_ARGS=--no\nKUBELET_EXTRA_ARGS='--v=2'\n")
	write("etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=--v=3\n") // of kubeadm's RPM
	got, err := KubeadmArgs(root)
	want := []string{
		"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf", "--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--config=/var/lib/kubelet/config.yaml", "--container-runtime-endpoint=unix:///run/c.sock", "--node-ip=10.0.0.1", "--v=3",
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// TestPreparesFiles: what sextant-prepare.service reads is what is looked at here.
func TestPreparesFiles(t *testing.T) {
	unit, err := os.ReadFile("../../../../deploy/systemd/sextant-prepare.service")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for line := range strings.Lines(string(unit)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "EnvironmentFile=-/"); ok {
			files = append(files, name)
		}
	}
	if d := cmp.Diff(kubeadmFiles, files); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestManifests: a static pod that runs blocks where the manifest that may have it is
// refused, unless Sextant runs the node, and so keeps the pod; a file that has none does not.
func TestManifests(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: strings.TrimPrefix(rt.Endpoint(), "unix://"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // nothing was left to send
	run := func(name, source string) {
		t.Helper()
		_, err := runtimeapi.NewRuntimeServiceClient(conn).RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata:    &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: name, Uid: name},
			Annotations: map[string]string{pod.ConfigSourceAnnotation: source},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	conf := &kubeletconfig.Config{}
	conf.Kubelet.StaticPodPath = t.TempDir()
	conf.Node.Name = "n1"
	write := func(name, image string) {
		t.Helper()
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: '%s', futureField: x}]}\n", name, image)
		if err := os.WriteFile(filepath.Join(conf.Kubelet.StaticPodPath, name+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	judged := func(agent Agent) string {
		f := &Facts{Agent: agent, Runtime: runtimeOf(t.Context(), &supervisor.Plan{Endpoint: rt.Endpoint()})}
		f.manifests(conf)
		j := &judge{}
		j.manifests(f)
		got := fmt.Sprintf("%s %q\n", strings.Join(f.Runtime.Static, " "), f.Runtime.Error)
		for _, found := range j.found {
			got += fmt.Sprintf("%s: %s: %s\n", found.Level, filepath.Base(found.Subject), found.Message)
		}
		return got
	}
	write("a", "i:1")
	write("b", "")
	run("a-n1", pod.SourceFile)
	run("c", pod.SourceAPI)
	const used = "differs: a.yaml: used in part: unknown field \"spec.containers[0].futureField\"\n"
	const refused = "b.yaml: no pod: spec.containers[0].image: invalid pod: spec.containers[0].image: Required value"
	if d := cmp.Diff("default/a-n1 \"\"\n"+used+"differs: "+refused+"\n", judged(Agent{PID: 1})); d != "" {
		t.Errorf("a file that no pod is of (-want +got):\n%s", d)
	}
	run("b-n1", pod.SourceFile)
	want := "default/a-n1 default/b-n1 \"\"\n" + used + "blocks: " + refused +
		": Sextant would end what runs and is in no other manifest, default/b-n1: mend this one, or remove it first\n"
	if d := cmp.Diff(want, judged(Agent{PID: 1})); d != "" {
		t.Errorf("its pod runs (-want +got):\n%s", d)
	}
	if d := cmp.Diff("default/a-n1 default/b-n1 \"\"\n"+used+"differs: "+refused+"\n", judged(Agent{PID: 1, Sextant: true})); d != "" {
		t.Errorf("Sextant runs it (-want +got):\n%s", d)
	}
}

// TestFlexVolume: plugins are found by their programs, and a pod's volume names its driver.
func TestFlexVolume(t *testing.T) {
	dir := t.TempDir()
	for path, mode := range map[string]os.FileMode{
		"vendor~disk/disk": 0o755, "vendor~off/off": 0o644, "vendor~empty/other": 0o755, "nfs/nfs": 0o755,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	f := &Facts{}
	f.flexVolume(dir)
	f.flexVolume(filepath.Join(dir, "none"))
	if d := cmp.Diff([]string{"nfs", "vendor/disk"}, f.FlexVolume); d != "" || len(f.Unread) > 0 {
		t.Errorf("%v (-want +got):\n%s", f.Unread, d)
	}
	p := podOf(&v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{Driver: "vendor/disk"}}}}}})
	want := []string{"volume data: volume plugin kubernetes.io/flexvolume is not supported by this node agent (FlexVolume driver vendor/disk)"}
	if d := cmp.Diff(want, p.Volumes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestRunningAgent: a process called kubelet that has a kubelet's arguments, and no other;
// of a pod none, whatever it calls itself.
func TestRunningAgent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give a process away")
	}
	const system, own = "/system.slice/kubelet.service", "pid:[1]"
	proc := t.TempDir()
	in := func(space, cgroup, pid, exe string, args ...string) {
		t.Helper()
		dir := filepath.Join(proc, pid)
		if err := os.MkdirAll(filepath.Join(dir, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cmdline": strings.Join(args, "\x00") + "\x00", "cgroup": "0::" + cgroup + "\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Symlink(exe, filepath.Join(dir, "exe")), os.Symlink(space, filepath.Join(dir, "ns/pid"))); err != nil {
			t.Fatal(err)
		}
	}
	in(own, "/user.slice", "self", "/usr/bin/sextant", "sextant", "migrate")
	in(own, "/init.scope", "1", "/sbin/init", "/sbin/init")
	in(own, "/user.slice", "20", "/usr/bin/vi", "vi", "kubelet")
	in(own, system, "30", "/usr/bin/sextant", "kubelet", "start", "podworker")
	in("pid:[2]", "/kubepods.slice/kubepods-podx.slice/cri-containerd-y.scope", "31", "/bin/sh", "kubelet", "--image-credential-provider-bin-dir=/proc/31/root")
	in("pid:[3]", "/docker/z", "32", "/usr/bin/kubelet", "kubelet", "--config=/proc/32/root/config.yaml")
	in(own, "/kubepods/besteffort/podx/y", "33", "/bin/sh", "kubelet", "--config=/proc/33/root/config.yaml")
	in(own, system, "34", "/bin/sh", "kubelet", "--config=/home/u/config.yaml")
	if err := os.Chown(filepath.Join(proc, "34"), 1000, -1); err != nil {
		t.Fatal(err)
	}
	if agent, _ := runningAgent(proc); agent.PID != 0 {
		t.Errorf("process %d is no kubelet", agent.PID)
	}
	in(own, system, "40", "/usr/bin/kubelet", "/usr/bin/kubelet", "--config=/x", "--v=2")
	agent, args := runningAgent(proc)
	if d := cmp.Diff([]string{"--config=/x", "--v=2"}, args); d != "" || agent != (Agent{PID: 40}) {
		t.Errorf("%+v (-want +got):\n%s", agent, d)
	}
}
