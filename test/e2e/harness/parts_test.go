// SPDX-License-Identifier: Apache-2.0

package harness_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// eachFlavour runs a test against both generations of containerd.
func eachFlavour(t *testing.T, f func(t *testing.T, rt *harness.Runtime)) {
	for _, flavour := range harness.Flavours() {
		t.Run(string(flavour), func(t *testing.T) { f(t, harness.StartRuntime(t, flavour)) })
	}
}

func pull(t *testing.T, rt *harness.Runtime, name string, auth *runtimeapi.AuthConfig) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := rt.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: name}, Auth: auth})
	return err
}

// sandbox runs a pod sandbox and returns its id and address.
func sandbox(t *testing.T, rt *harness.Runtime, cfg *runtimeapi.PodSandboxConfig) (id, ip string) {
	t.Helper()
	run, err := rt.Runtimes.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	status, err := rt.Runtimes.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: run.GetPodSandboxId()})
	if err != nil {
		t.Fatal(err)
	}
	return run.GetPodSandboxId(), status.GetStatus().GetNetwork().GetIp()
}

func sandboxConfig(rt *harness.Runtime, dir, uid string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: uid},
		LogDirectory: filepath.Join(dir, "logs"),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: rt.CgroupRoot + "/pod" + uid},
	}
}

func startHello(t *testing.T, rt *harness.Runtime, pod string, cfg *runtimeapi.PodSandboxConfig, image string) string {
	t.Helper()
	c, err := rt.Runtimes.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod, SandboxConfig: cfg,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "hello"},
			Image:    &runtimeapi.ImageSpec{Image: image},
			Args:     []string{"--grpc=:9090", "--tcp=:9091"},
			LogPath:  "hello.log",
			Linux:    &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Runtimes.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
		t.Fatal(err)
	}
	return c.GetContainerId()
}

func getBody(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	return string(b), errors.Join(err, resp.Body.Close())
}

// TestRuntimeRunsAPulledImage takes a pod through raw CRI: pull, sandbox,
// container, a request to its address, its log.
func TestRuntimeRunsAPulledImage(t *testing.T) {
	eachFlavour(t, func(t *testing.T, rt *harness.Runtime) {
		image := harness.StartRegistry(t).Name("hello:v1")
		if err := pull(t, rt, image, nil); err != nil {
			t.Fatal(err)
		}
		cfg := sandboxConfig(rt, t.TempDir(), "1")
		pod, ip := sandbox(t, rt, cfg)
		startHello(t, rt, pod, cfg, image)
		harness.Eventually(t, 3*time.Minute, "an answer from the pod", func(ctx context.Context) error {
			body, err := getBody(ctx, "http://"+ip+":8080/")
			if err == nil && !strings.HasPrefix(body, "hello from ") {
				err = fmt.Errorf("answer %q", body)
			}
			return err
		})
		harness.Eventually(t, 3*time.Minute, "its log", func(context.Context) error {
			log, err := os.ReadFile(filepath.Join(cfg.LogDirectory, "hello.log"))
			if err == nil && !strings.Contains(string(log), "GET / from") {
				err = fmt.Errorf("log is %q", log)
			}
			return err
		})
		if _, err := os.Stat("/proc/" + fmt.Sprint(rt.PID())); err != nil {
			t.Error("containerd is not the process it says")
		}
	})
}

// TestRuntimeSurvivesKill ends containerd under a running container and finds
// the container in the next containerd.
func TestRuntimeSurvivesKill(t *testing.T) {
	eachFlavour(t, func(t *testing.T, rt *harness.Runtime) {
		cfg := sandboxConfig(rt, t.TempDir(), "1")
		pod, ip := sandbox(t, rt, cfg)
		id := startHello(t, rt, pod, cfg, images.Hello)
		before := rt.PID()
		rt.Kill(t)
		harness.Eventually(t, 3*time.Minute, "an answer from the pod without containerd", func(ctx context.Context) error {
			_, err := getBody(ctx, "http://"+ip+":8080/")
			return err
		})
		rt.Restart(t)
		if rt.PID() == before {
			t.Fatal("containerd was not replaced")
		}
		status, err := rt.Runtimes.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		if s := status.GetStatus().GetState(); s != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("container is %s after the restart", s)
		}
	})
}

// TestRegistryMisbehaves checks that each rule reaches the runtime as an error,
// and that lifting it makes the pull work.
func TestRegistryMisbehaves(t *testing.T) {
	eachFlavour(t, func(t *testing.T, rt *harness.Runtime) {
		registry := harness.StartRegistry(t)
		for name, rule := range map[string]func(repo string){
			"withhold": registry.Withhold,
			"fail":     func(repo string) { registry.Fail(repo, http.StatusServiceUnavailable) },
			"corrupt":  registry.Corrupt,
			"login":    func(repo string) { registry.RequireLogin(repo, "joe", "secret") },
		} {
			t.Run(name, func(t *testing.T) {
				repo := name + "-" + strings.ToLower(filepath.Base(t.TempDir())) + rt.Bridge()
				img, err := random.Image(1024, 1)
				if err != nil {
					t.Fatal(err)
				}
				registry.Push(t, repo+":v1", img)
				rule(repo)
				if err := pull(t, rt, registry.Name(repo+":v1"), nil); err == nil {
					t.Fatal("the pull worked")
				}
				if len(registry.Requests(repo)) == 0 {
					t.Error("the registry was not asked")
				}
				if name == "login" {
					if err := pull(t, rt, registry.Name(repo+":v1"), &runtimeapi.AuthConfig{Username: "joe", Password: "secret"}); err != nil {
						t.Errorf("with credentials: %v", err)
					}
				}
				registry.Release(repo)
				// containerd looks at the bad download once more before it asks again.
				harness.Eventually(t, 3*time.Minute, "a pull without the rule", func(context.Context) error {
					return pull(t, rt, registry.Name(repo+":v1"), nil)
				})
			})
		}
		t.Run("stall", func(t *testing.T) {
			registry.Stall("hello")
			done := make(chan error, 1)
			before := len(registry.Requests("hello"))
			go func() { done <- pull(t, rt, registry.Name("hello:v1"), nil) }()
			harness.Eventually(t, 3*time.Minute, "the pull to reach the registry", func(context.Context) error {
				if len(registry.Requests("hello")) == before {
					return errors.New("no request")
				}
				return nil
			})
			select {
			case err := <-done:
				t.Fatalf("the pull did not wait: %v", err)
			default:
			}
			registry.Release("hello")
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})
}

// TestControlPlaneTakesAPod binds a pod to a node that exists only as an object
// and reads it back as that node.
func TestControlPlaneTakesAPod(t *testing.T) {
	cp := harness.StartControlPlane(t)
	ns := cp.Namespace(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "paper-node"}}
	if _, err := cp.Admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "hello"},
		Spec: corev1.PodSpec{
			NodeName:   node.Name,
			Containers: []corev1.Container{{Name: "hello", Image: images.Hello}},
		},
	}
	if _, err := cp.Admin.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.NodeCredentials(t, node.Name))
	if err != nil {
		t.Fatal(err)
	}
	agent, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	list, err := agent.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Spec.ServiceAccountName != "default" || len(list.Items[0].Spec.Volumes) != 1 {
		t.Errorf("the node sees %+v", list.Items)
	}
	if _, err := agent.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a node may list every secret: the node authorizer is not on")
	}
	if out := cp.Kubectl(t, "get", "pod", "-n", ns, "hello", "-o", "wide"); !strings.Contains(out, "paper-node") {
		t.Errorf("kubectl shows %s", out)
	}
	cp.Stop(t)
	if _, err := agent.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{}); err == nil {
		t.Error("the API server answers after Stop")
	}
	cp.Resume(t)
	if _, err := agent.CoreV1().Pods(ns).Get(t.Context(), "hello", metav1.GetOptions{}); err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

// TestConnectedTo finds a client of the runtime's socket, and nobody after it
// has gone.
func TestConnectedTo(t *testing.T) {
	rt := harness.StartRuntime(t, harness.V2)
	socket := strings.TrimPrefix(rt.Endpoint(), "unix://")
	if peers := harness.ConnectedTo(t, socket); len(peers) != 0 {
		t.Errorf("strangers on the socket: %v", peers)
	}
	client := exec.Command(os.Args[0])
	client.Env = append(os.Environ(), dialEnv+"="+socket)
	stdin, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 3*time.Minute, "the client", func(context.Context) error {
		peers := harness.ConnectedTo(t, socket)
		if len(peers) != 1 || peers[0].PID != client.Process.Pid {
			return fmt.Errorf("connected: %v", peers)
		}
		return nil
	})
	if err := errors.Join(stdin.Close(), client.Wait()); err != nil {
		t.Fatal(err)
	}
	if peers := harness.ConnectedTo(t, socket); len(peers) != 0 {
		t.Errorf("still connected: %v", peers)
	}
}
