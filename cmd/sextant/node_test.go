// SPDX-License-Identifier: Apache-2.0

//go:build !race

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/services/supervisor"
	"github.com/sextant-node/sextant/test/apitest"
	"github.com/sextant-node/sextant/test/cgrouptest"
	"github.com/sextant-node/sextant/test/fakeapi"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/ports"
)

const nodeName = "n1"

// apiServer is an API server for a whole node: one fake takes what the node writes, the
// other shows it to those that list and watch.
type apiServer struct {
	reads  *apitest.Server
	writes *fakeapi.Cluster

	mu       sync.Mutex // held while a write is shown, so that versions are in order
	requests map[string]int
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource := path[len(path)-1]
	for i, part := range path {
		if part == "namespaces" && i+2 < len(path) {
			resource = path[i+2]
		} else if part == "nodes" || part == "leases" || part == "csinodes" {
			resource = part
		}
	}
	s.mu.Lock()
	s.requests[r.Method+" "+resource]++
	s.mu.Unlock()
	switch {
	case r.Method == http.MethodGet && resource != "leases" && resource != "csinodes" && (resource != "nodes" || r.URL.Query().Has("watch")),
		strings.HasSuffix(r.URL.Path, "/token"):
		s.reads.ServeHTTP(w, r)
	case resource == "pods":
		s.pod(w, r, path[3], path[5])
	default:
		s.writes.Handler().ServeHTTP(w, r)
		if node := s.writes.Node(nodeName); resource == "nodes" && r.Method != http.MethodGet && node != nil {
			s.reads.Put("nodes", node)
		}
	}
}

// pod lets a write of a pod happen and shows it.
func (s *apiServer) pod(w http.ResponseWriter, r *http.Request, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.writes.Pod(namespace, name)
	answer := httptest.NewRecorder()
	s.writes.Handler().ServeHTTP(answer, r)
	body := answer.Body.Bytes()
	if answer.Code == http.StatusOK {
		if now := s.writes.Pod(namespace, name); now == nil {
			s.reads.Delete("pods", namespace, name)
		} else if was != nil {
			shown := s.reads.Put("pods", now)
			body = bytes.Replace(body, fmt.Appendf(nil, "%q:%q", "resourceVersion", now.ResourceVersion), fmt.Appendf(nil, "%q:%q", "resourceVersion", shown), 1)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.Code)
	_, _ = w.Write(body) // the client may have gone
}

// put makes or changes a pod as a user would.
func (s *apiServer) put(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes.Put(p)
	s.reads.Put("pods", p)
}

// wholeNode is every service as a process, on a fake runtime and a fake API server.
type wholeNode struct {
	*testing.T
	api     *apiServer
	runtime *fakecri.Runtime
	plan    supervisor.Plan
	paths   house.Paths
	logs    map[house.Service]*bytes.Buffer
	pids    map[house.Service]int
	dir     string
}

func startNode(t *testing.T) *wholeNode {
	t.Helper()
	// Socket paths are bounded: not below a long test name.
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("left over: %v", err)
		}
	})
	n := &wholeNode{
		T: t, dir: dir,
		api:     &apiServer{reads: apitest.New(t), writes: fakeapi.New(), requests: map[string]int{}},
		runtime: fakecri.Start(t, fakecri.Config{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS, Images: []fakecri.Image{{Ref: "pause"}}}),
		logs:    map[house.Service]*bytes.Buffer{}, pids: map[house.Service]int{},
	}
	server := httptest.NewServer(n.api)
	t.Cleanup(server.Close)
	kubeconfig, file := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "kubelet.yaml")
	if err := fakeapi.WriteKubeconfig(kubeconfig, server.URL); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
address: 127.0.0.1
port: %d
healthzPort: 0
cgroupDriver: cgroupfs
cgroupRoot: /%s
maxPods: 1000
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
containerRuntimeEndpoint: %s
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
`, ports.Loopback(t), cgrouptest.Root(t)[0], n.runtime.Endpoint())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.plan = supervisor.Plan{
		Run: dir + "/run", State: dir + "/state", RootDir: dir + "/kubelet", PodLogsDir: dir + "/pods", LinksDir: dir + "/links",
		Endpoint: n.runtime.Endpoint(), NodeName: nodeName, LogLevel: "warn",
		Kubelet: []string{"--config=" + file, "--kubeconfig=" + kubeconfig, "--cert-dir=" + dir + "/pki"},
	}
	n.paths = house.Paths{Run: n.plan.Run, State: n.plan.State}
	ids, err := house.ReadIdentities(n.paths.Identities(), uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.EnsureKeys(n.paths.BusKeys(), ids); err != nil {
		t.Fatal(err)
	}
	n.api.reads.Put("serviceaccounts", &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default", UID: "sa"}})
	for _, name := range []string{"kube-root-ca.crt", "settings"} {
		n.api.reads.Put("configmaps", &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Data: map[string]string{"ca.crt": "certificate"}})
	}
	for _, s := range house.Services() {
		n.start(s)
	}
	return n
}

// start runs one service until the test ends. Mounts are seen by the process alone.
func (n *wholeNode) start(s house.Service) {
	n.Helper()
	log := &bytes.Buffer{}
	cmd := exec.Command(os.Args[0], n.plan.Args(s)...)
	cmd.Env = append(os.Environ(), program+"=1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.logs[s], n.pids[s] = log, cmd.Process.Pid
	n.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
		if n.Failed() {
			n.Logf("%s: %.8000s", s, log.String())
		}
	})
}

// eventually waits until ok.
func (n *wholeNode) eventually(what string, ok func() bool) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), 120*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			pods := exec.Command(os.Args[0], "pods", "--run-dir="+n.plan.Run)
			pods.Env = append(os.Environ(), program+"=1")
			text, err := pods.CombinedOutput()
			n.Fatalf("never: %s (%v)\n%s", what, err, text)
		case <-tick.C:
		}
	}
}

// debug is a page of a service's debug socket.
func (n *wholeNode) debug(s house.Service, page string) []byte {
	n.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.paths.DebugSocket(s))
	}, DisableKeepAlives: true}}
	answer, err := client.Get("http://debug" + page)
	if err != nil {
		n.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		n.Fatal(err)
	}
	return text
}

// families are the metrics of one service.
func (n *wholeNode) families(s house.Service) map[string]*dto.MetricFamily {
	n.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(n.debug(s, "/metrics")))
	if err != nil {
		n.Fatal(err)
	}
	return families
}

// pod is one of an ordinary kind: a container, a ConfigMap, and what the API server adds
// to let it in.
func (n *wholeNode) pod(name string) *v1.Pod {
	expiration := int64(3607)
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now()},
		Spec: v1.PodSpec{
			NodeName: nodeName, ServiceAccountName: "default", RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSClusterFirst,
			TerminationGracePeriodSeconds: new(int64(30)), EnableServiceLinks: new(true), SchedulerName: "default-scheduler",
			SecurityContext: &v1.PodSecurityContext{},
			Containers: []v1.Container{{
				Name: "main", Image: "pause", ImagePullPolicy: v1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
				VolumeMounts: []v1.VolumeMount{
					{Name: "settings", MountPath: "/settings"}, {Name: "access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
				},
			}},
			Volumes: []v1.Volume{
				{Name: "settings", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
					LocalObjectReference: v1.LocalObjectReference{Name: "settings"}, DefaultMode: new(int32(0o644)),
				}}},
				{Name: "access", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: new(int32(0o644)), Sources: []v1.VolumeProjection{
					{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: &expiration, Path: "token"}},
					{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
					{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
				}}}},
			},
		},
		Status: v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort},
	}
}

// ready reports whether the API server has a pod as ready.
func (n *wholeNode) ready(name string) bool {
	p := n.api.writes.Pod("default", name)
	if p == nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// begin makes pods and waits until all are ready.
func (n *wholeNode) begin(names []string) {
	n.Helper()
	for _, name := range names {
		n.api.put(n.pod(name))
	}
	for _, name := range names {
		n.eventually(name+" ready", func() bool { return n.ready(name) })
	}
}

// end deletes pods and waits until they are gone from the API server and the runtime.
func (n *wholeNode) end(names []string) {
	n.Helper()
	for _, name := range names {
		p := n.api.writes.Pod("default", name)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Now()), new(int64(30))
		n.api.put(p)
	}
	for _, name := range names {
		n.eventually(name+" gone", func() bool { return n.api.writes.Pod("default", name) == nil })
	}
	n.eventually("no sandbox", func() bool { return len(n.runtime.Sandboxes()) == 0 })
}
