// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/images"
	"github.com/sextant-node/sextant/test/localruntime"
)

// starts is how many pods a benchmark of this file starts, one at a time.
var starts = flag.Int("starts", 100, "benchmarks: how many pods are started one at a time")

// BenchmarkFakeRuntime: a pod with a ConfigMap and a token on a runtime whose
// calls take no time, real API server and processes. From the request that makes
// the pod, bound to the node, to the watch that tells it Running.
func BenchmarkFakeRuntime(b *testing.B) {
	host := harness.StartRuntime(b, harness.V2) // whose cgroups the node's pods are below
	rt := fakecri.Start(b, fakecri.Config{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS, Images: []fakecri.Image{{Ref: images.Pause}}})
	open(b, rt.Socket())
	for b.Loop() {
		took, _ := startPods(b, host, rt.Socket(), nil)
		report50and99(b, "bind-to-running", took)
	}
}

// BenchmarkOverhead is the same on containerd, less the time in which one of the
// calls that make the pod's sandbox and container was under way.
func BenchmarkOverhead(b *testing.B) {
	rt := harness.StartRuntime(b, harness.V2)
	p := newProxy(b, rt.Endpoint())
	for b.Loop() {
		took, beyond := startPods(b, rt, p.socket, p.during)
		report50and99(b, "bind-to-running", took)
		report50and99(b, "beyond-the-runtime", beyond)
	}
}

func report50and99(b *testing.B, name string, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms-"+name)
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms-"+name)
}

// open lets the services of a node in.
func open(b testing.TB, socket string) {
	b.Helper()
	if err := errors.Join(os.Chmod(filepath.Dir(socket), 0o755), os.Chmod(socket, 0o666)); err != nil {
		b.Fatal(err)
	}
}

// startPods starts a node on a socket before a runtime, or in place of it, and then pods, one at a time. It
// returns how long each took, and what of that is left without the time that
// inside, if given, tells of.
func startPods(b *testing.B, rt *harness.Runtime, socket string, inside func(from, to time.Time) time.Duration) (took, beyond []time.Duration) {
	b.Helper()
	ctx, cp := b.Context(), harness.StartControlPlane(b)
	n := harness.StartNode(b, harness.NodeOptions{Runtime: rt, ControlPlane: cp, Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		c.ContainerRuntimeEndpoint = "unix://" + socket
		c.MaxPods = int32(2 * *starts)
	}})
	ns := cp.Namespace(b)
	if _, err := cp.Admin.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "b"},
	}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	watching, err := cp.Admin.CoreV1().Pods(ns).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer watching.Stop()
	until := func(name string, is func(watch.Event) bool) {
		limit := time.After(time.Minute)
		for {
			select {
			case e, ok := <-watching.ResultChan():
				if !ok {
					b.Fatal("the watch has ended")
				}
				if pod, isPod := e.Object.(*corev1.Pod); isPod && pod.Name == name && is(e) {
					return
				}
			case <-limit:
				b.Fatalf("pod %s: not within a minute", name)
			}
		}
	}
	for i := range *starts {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)}, Spec: corev1.PodSpec{
			NodeName: n.Name,
			Containers: []corev1.Container{{
				Name: "pause", Image: images.Pause, VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/config"}},
			}},
			Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
			}}}},
		}}
		began := time.Now()
		if _, err := cp.Admin.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		until(pod.Name, func(e watch.Event) bool { return e.Object.(*corev1.Pod).Status.Phase == corev1.PodRunning })
		ended := time.Now()
		took = append(took, ended.Sub(began))
		if inside != nil {
			beyond = append(beyond, ended.Sub(began)-inside(began, ended))
		}
		// Not by force, which tells of a pod as gone while the node still sees to it.
		if err := cp.Admin.CoreV1().Pods(ns).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}); err != nil {
			b.Fatal(err)
		}
		until(pod.Name, func(e watch.Event) bool { return e.Type == watch.Deleted })
	}
	return took, beyond
}

// proxy stands before a runtime, passes all on, and notes when calls were under
// way that make a pod.
type proxy struct {
	socket  string
	runtime *grpc.ClientConn

	mu    sync.Mutex
	spans [][2]time.Time
}

// timed are the calls that a pod of one container cannot do without.
var timed = map[string]bool{
	"/runtime.v1.RuntimeService/RunPodSandbox": true, "/runtime.v1.RuntimeService/CreateContainer": true, "/runtime.v1.RuntimeService/StartContainer": true,
}

func newProxy(b *testing.B, endpoint string) *proxy {
	b.Helper()
	conn, err := localruntime.Dial(endpoint)
	if err != nil {
		b.Fatal(err)
	}
	p := &proxy{socket: filepath.Join(harness.The(b).Dir, "proxy.sock"), runtime: conn}
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(p.pass))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	b.Cleanup(func() {
		server.Stop()
		if err := errors.Join(<-ended, conn.Close()); err != nil {
			b.Error(err)
		}
	})
	open(b, p.socket)
	return p
}

// pass passes one call on.
func (p *proxy) pass(_ any, in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	var request []byte
	if err := in.RecvMsg(&request); err != nil {
		return err
	}
	began := time.Now()
	out, err := p.runtime.NewStream(in.Context(), &grpc.StreamDesc{ServerStreams: true}, method, grpc.ForceCodecV2(raw{}))
	if err != nil {
		return err
	}
	if err := errors.Join(out.SendMsg(&request), out.CloseSend()); err != nil && status.Code(err) != codes.OK && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		var answer []byte
		err := out.RecvMsg(&answer)
		if timed[method] {
			p.mu.Lock()
			p.spans = append(p.spans, [2]time.Time{began, time.Now()})
			p.mu.Unlock()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = in.SendMsg(&answer)
		}
		if err != nil {
			return err
		}
	}
}

// during is for how long within a span of time any such call was under way.
func (p *proxy) during(from, to time.Time) (sum time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortFunc(p.spans, func(a, b [2]time.Time) int { return a[0].Compare(b[0]) })
	for _, s := range p.spans {
		if s[0].Before(from) {
			s[0] = from
		}
		if s[1].After(to) {
			s[1] = to
		}
		if s[1].After(s[0]) {
			sum += s[1].Sub(s[0])
			from = s[1]
		}
	}
	return sum
}

// raw passes messages through as they are.
type raw struct{}

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (raw) Name() string { return "proto" }
