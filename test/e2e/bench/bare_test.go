// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// bareRequest is what the calls that make a pod of one container ask for: the pod's
// UID, its cgroup, and a folder for its files.
type bareRequest func(uid, cgroup, dir string) (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig, error)

// least is what a runtime cannot do without.
func least(uid, cgroup, dir string) (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig, error) {
	return &runtimeapi.PodSandboxConfig{
			Metadata:     &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "bench", Uid: uid},
			Hostname:     uid,
			LogDirectory: dir,
			Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: cgroup},
		}, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "pause"},
			Image:    &runtimeapi.ImageSpec{Image: images.Pause},
			LogPath:  "pause.log",
			Linux:    &runtimeapi.LinuxContainerConfig{},
		}, nil
}

// sameAs is what Sextant asks for: that of a pod of its own, which the runtime tells.
// Files and folders of the host that the container mounts are copied to a folder.
func sameAs(t *testing.T, o harness.NodeOptions, kept string) bareRequest {
	ctx, cp := t.Context(), o.ControlPlane
	o.Name = "bench-model"
	n := harness.StartNode(t, o)
	ns := cp.Namespace(t)
	a := &agent{node: o.Name, cp: cp, ns: ns, seen: watchPods(t, cp, ns)}
	ready(t, cp, o.Name)
	a.create(t, "model")
	a.seen.await(t, "Ready", a.seen.ready, "model")
	var sandbox runtimeapi.PodSandboxConfig
	var container runtimeapi.ContainerConfig
	pods, err := o.Runtime.Runtimes.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": a.seen.uid("model")},
	}})
	if err != nil || len(pods.GetItems()) != 1 {
		t.Fatalf("sandbox of the model: %v, %v", pods, err)
	}
	id := pods.GetItems()[0].GetId()
	pod, err := o.Runtime.Runtimes.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	asked(t, pod.GetInfo(), &sandbox)
	containers, err := o.Runtime.Runtimes.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: id}})
	if err != nil || len(containers.GetContainers()) != 1 {
		t.Fatalf("container of the model: %v, %v", containers, err)
	}
	c, err := o.Runtime.Runtimes.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: containers.GetContainers()[0].GetId(), Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	asked(t, c.GetInfo(), &container)
	for i, m := range container.GetMounts() {
		to := filepath.Join(kept, fmt.Sprint(i))
		if err := duplicate(m.GetHostPath(), to); err != nil {
			t.Fatal(err)
		}
		m.HostPath = to
	}
	a.remove(t, "model")
	a.seen.await(t, "gone", a.seen.gone, "model")
	n.Down(t)
	if err := cp.Admin.CoreV1().Nodes().Delete(ctx, o.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return func(uid, cgroup, dir string) (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig, error) {
		s, c := proto.CloneOf(&sandbox), proto.CloneOf(&container)
		s.Metadata.Name, s.Metadata.Uid, s.Hostname, s.LogDirectory = uid, uid, uid, dir
		s.Labels["io.kubernetes.pod.uid"], s.Labels["io.kubernetes.pod.name"] = uid, uid
		s.Linux.CgroupParent = cgroup
		for i, m := range c.GetMounts() {
			to := filepath.Join(dir, "mounts", fmt.Sprint(i))
			if err := duplicate(m.GetHostPath(), to); err != nil {
				return nil, nil, err
			}
			m.HostPath = to
		}
		return s, c, nil
	}
}

// asked reads the request that containerd keeps of what it made.
func asked(t *testing.T, info map[string]string, into any) {
	t.Helper()
	kept := struct {
		Config any `json:"config"`
	}{into}
	if err := json.Unmarshal([]byte(info["info"]), &kept); err != nil {
		t.Fatalf("what the runtime tells of a request: %v", err)
	}
}

// duplicate copies a file, or a folder with what is in it.
func duplicate(from, to string) error {
	info, err := os.Stat(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	b, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, b, info.Mode().Perm()))
}

// barePod is what is asked for one pod; its files are there.
type barePod struct {
	sandbox   *runtimeapi.PodSandboxConfig
	container *runtimeapi.ContainerConfig
}

// of is what is asked for a pod.
func (request bareRequest) of(t *testing.T, rt *harness.Runtime, logs, uid string) (p barePod) {
	t.Helper()
	var err error
	if p.sandbox, p.container, err = request(uid, rt.CgroupRoot+"/pod"+uid, filepath.Join(logs, uid)); err != nil {
		t.Fatal(err)
	}
	return p
}

// make makes the pod by CRI calls alone.
func (p barePod) make(t *testing.T, rt *harness.Runtime) (sandbox string) {
	ctx := t.Context()
	pod, err := rt.Runtimes.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.sandbox})
	if err != nil {
		t.Errorf("RunPodSandbox: %v", err)
		return ""
	}
	c, err := rt.Runtimes.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod.GetPodSandboxId(), SandboxConfig: p.sandbox, Config: p.container})
	if err == nil {
		_, err = rt.Runtimes.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()})
	}
	if err != nil {
		t.Errorf("container of %s: %v", p.sandbox.GetMetadata().GetUid(), err)
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
