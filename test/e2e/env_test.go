// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// The kubelet's annotations of a mirror pod.
const (
	mirrorAnnotation = "kubernetes.io/config.mirror"
	sourceAnnotation = "kubernetes.io/config.source"
)

// usual is how long a pod may take to run on a busy machine.
const usual = 3 * time.Minute

// env is one test on one node, with a namespace of its own.
type env struct {
	*testing.T
	n  *node
	ns string
}

func newEnv(t *testing.T, n *node) *env {
	t.Helper()
	e := &env{T: t, n: n, ns: n.cp.Namespace(t)}
	dumpOnFailure(t, n, e.ns)
	return e
}

// dumpOnFailure shows, when the test fails, what its node and the API server
// know of its namespace.
func dumpOnFailure(t *testing.T, n *node, ns string) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		// Not the test's context: that has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, verb := range []string{"status", "pods"} {
			t.Logf("sextant %s:\n%s", verb, n.TryVerb(ctx, verb))
		}
		t.Logf("kubectl describe:\n%s", n.cp.TryKubectl(ctx, "describe", "pods", "--namespace="+ns))
		t.Logf("kubectl get events:\n%s", n.cp.TryKubectl(ctx, "get", "events", "--namespace="+ns))
		if list, err := n.containers(ctx, ns); err == nil {
			for _, c := range list {
				t.Logf("runtime: %s attempt %d %s %s created %s", c.GetLabels()["io.kubernetes.pod.name"], c.GetMetadata().GetAttempt(),
					c.GetState(), c.GetId(), time.Unix(0, c.GetCreatedAt()).UTC().Format(time.StampMilli))
			}
		}
		logs, _ := filepath.Glob(filepath.Join(n.Logs, "*.log")) // the pattern is well formed
		for _, file := range logs {
			if lines := about(file, ns, 25); lines != "" {
				t.Logf("%s about %s:\n%s", filepath.Base(file), ns, lines)
			}
		}
	})
}

// about returns the last lines of a log that mention something or are serious.
func about(file, what string, most int) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	var found []string
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, what) || strings.Contains(line, "panic") || strings.Contains(line, `"level":"ERROR"`) {
			found = append(found, line[:min(len(line), 500)])
		}
	}
	return strings.Join(found[max(0, len(found)-most):], "")
}

// pod is a pod of this node that serves HTTP on port 8080; args are hello's.
func (n *node) pod(ns, name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PodSpec{
			NodeName:   n.Name,
			Containers: []corev1.Container{{Name: "hello", Image: images.Hello, Args: args}},
		},
	}
}

func (e *env) pod(name string, args ...string) *corev1.Pod { return e.n.pod(e.ns, name, args...) }

func (e *env) create(pod *corev1.Pod) {
	e.Helper()
	if _, err := e.n.cp.Admin.CoreV1().Pods(pod.Namespace).Create(e.Context(), pod, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

func (e *env) delete(name string, grace int64) {
	e.Helper()
	err := e.n.cp.Admin.CoreV1().Pods(e.ns).Delete(e.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if err != nil {
		e.Fatal(err)
	}
}

// await waits until a pod of the namespace is as it should be.
func (e *env) await(name string, limit time.Duration, what string, check func(*corev1.Pod) error) (pod *corev1.Pod) {
	e.Helper()
	harness.Eventually(e, limit, "pod "+name+" "+what, func(context.Context) error {
		if pod = e.n.seen.pod(e.ns, name); pod == nil {
			return errors.New("it is not in the API")
		}
		return check(pod)
	})
	return pod
}

func (e *env) awaitRunning(name string, limit time.Duration) *corev1.Pod {
	e.Helper()
	return e.await(name, limit, "to be Running and Ready", running)
}

func (e *env) awaitGone(name string, limit time.Duration) {
	e.Helper()
	harness.Eventually(e, limit, "pod "+name+" to be gone from the API", func(context.Context) error {
		if pod := e.n.seen.pod(e.ns, name); pod != nil {
			return fmt.Errorf("it is there: deletion %v, status %s", pod.DeletionTimestamp, brief(pod))
		}
		return nil
	})
}

func (e *env) awaitNode(limit time.Duration, what string, check func(*corev1.Node) error) {
	e.Helper()
	harness.Eventually(e, limit, "node "+e.n.Name+" to be "+what, func(context.Context) error {
		node := e.n.seen.node(e.n.Name)
		if node == nil {
			return errors.New("it is not registered")
		}
		return check(node)
	})
}

func wantCondition(node *corev1.Node, kind corev1.NodeConditionType, want corev1.ConditionStatus) error {
	for _, c := range node.Status.Conditions {
		if c.Type == kind && c.Status == want {
			return nil
		}
	}
	return fmt.Errorf("conditions %+v", node.Status.Conditions)
}

// running says why a pod is not running and ready.
func running(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning || !conditionTrue(pod, corev1.PodReady) || pod.Status.PodIP == "" {
		return fmt.Errorf("it is %s", brief(pod))
	}
	return nil
}

func conditionTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// brief is a pod's status in a line.
func brief(pod *corev1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s ip=%s", pod.Status.Phase, pod.Status.Reason, pod.Status.PodIP)
	for _, c := range pod.Status.Conditions {
		fmt.Fprintf(&b, " %s=%s", c.Type, c.Status)
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		fmt.Fprintf(&b, "; %s restarts=%d", c.Name, c.RestartCount)
		switch {
		case c.State.Waiting != nil:
			fmt.Fprintf(&b, " waiting %s: %s", c.State.Waiting.Reason, c.State.Waiting.Message)
		case c.State.Running != nil:
			fmt.Fprintf(&b, " running ready=%v", c.Ready)
		case c.State.Terminated != nil:
			fmt.Fprintf(&b, " terminated %d %s", c.State.Terminated.ExitCode, c.State.Terminated.Reason)
		}
	}
	return b.String()
}

// ask sends a request to a pod and returns the answer's body.
func ask(ctx context.Context, method string, pod *corev1.Pod, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+net.JoinHostPort(pod.Status.PodIP, "8080")+path, nil)
	if err != nil {
		return 0, "", err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), errors.Join(err, resp.Body.Close())
}

// post tells the hello program in a pod something.
func (e *env) post(pod *corev1.Pod, path string) {
	e.Helper()
	harness.Eventually(e, 3*time.Minute, "an answer to "+path, func(ctx context.Context) error {
		_, _, err := ask(ctx, http.MethodPost, pod, path)
		return err
	})
}

// file waits until a file in a pod has the wanted content.
func (e *env) file(pod *corev1.Pod, path string, limit time.Duration, check func(string) error) {
	e.Helper()
	harness.Eventually(e, limit, "file "+path+" of pod "+pod.Name, func(ctx context.Context) error {
		code, body, err := ask(ctx, http.MethodGet, pod, "/file?path="+path)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		if err != nil {
			return err
		}
		return check(body)
	})
}

func is(want string) func(string) error {
	return func(got string) error {
		if got != want {
			return fmt.Errorf("it is %q, not %q", got, want)
		}
		return nil
	}
}

func contains(want string) func(string) error {
	return func(got string) error {
		if !strings.Contains(got, want) {
			return fmt.Errorf("it is %q, without %q", got, want)
		}
		return nil
	}
}

// awaitEvent waits for an Event about a pod.
func (e *env) awaitEvent(pod, reason string, limit time.Duration, check func(message string) error) {
	e.Helper()
	harness.Eventually(e, limit, fmt.Sprintf("an event %s about pod %s", reason, pod), func(context.Context) error {
		err := errors.New("there is none")
		for _, event := range e.n.seen.eventsOf(e.ns, pod) {
			if event.Reason == reason {
				if err = check(event.Message); err == nil {
					return nil
				}
			}
		}
		return err
	})
}

// instance is a container as the runtime has it.
type instance struct {
	id      string
	running bool
}

// containers lists what the runtime has of a namespace.
func (n *node) containers(ctx context.Context, ns string) ([]*runtimeapi.Container, error) {
	list, err := n.Runtime.Runtimes.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.namespace": ns},
	}})
	return list.GetContainers(), err
}

// instances are the containers of a namespace, by "pod-uid/container".
func (n *node) instances(ctx context.Context, ns string) (map[string][]instance, error) {
	list, err := n.containers(ctx, ns)
	if err != nil {
		return nil, err
	}
	found := map[string][]instance{}
	for _, c := range list {
		key := c.GetLabels()["io.kubernetes.pod.uid"] + "/" + c.GetLabels()["io.kubernetes.container.name"]
		found[key] = append(found[key], instance{c.GetId(), c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING})
	}
	for _, list := range found {
		slices.SortFunc(list, func(a, b instance) int { return strings.Compare(a.id, b.id) })
	}
	return found, nil
}

// awaitNoInstance waits until nothing of a pod runs any more.
func (e *env) awaitNoInstance(uid string, limit time.Duration) {
	e.Helper()
	harness.Eventually(e, limit, "the containers of "+uid+" to end", func(ctx context.Context) error {
		all, err := e.n.instances(ctx, e.ns)
		for key, list := range all {
			if strings.HasPrefix(key, uid+"/") && slices.ContainsFunc(list, func(i instance) bool { return i.running }) {
				err = errors.Join(err, fmt.Errorf("%s runs", key))
			}
		}
		return err
	})
}

// services are the processes this node has.
func (n *node) services() []house.Service {
	return slices.DeleteFunc(house.Services(), func(s house.Service) bool { return n.busOff && s == house.Bus })
}

// hello asks a service how it fares.
func (n *node) hello(ctx context.Context, s house.Service) (*nodev1.HelloResponse, error) {
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: n.paths.Socket(s), Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	return nodev1.NewNodeServiceClient(conn).Hello(ctx, &nodev1.HelloRequest{Protocol: house.Protocol})
}

// hellos asks every service; one that does not serve is an error.
func (n *node) hellos(ctx context.Context) (map[house.Service]*nodev1.HelloResponse, error) {
	all := map[house.Service]*nodev1.HelloResponse{}
	for _, s := range n.services() {
		h, err := n.hello(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		if h.GetHealth() != nodev1.Health_HEALTH_SERVING {
			return nil, fmt.Errorf("%s: %s %s", s, h.GetHealth(), h.GetHealthReason())
		}
		all[s] = h
	}
	return all, nil
}

func (n *node) awaitServing(t *testing.T, limit time.Duration) (all map[house.Service]*nodev1.HelloResponse) {
	t.Helper()
	harness.Eventually(t, limit, "every service of "+n.kind+" to serve", func(ctx context.Context) error {
		var err error
		all, err = n.hellos(ctx)
		return err
	})
	return all
}

// pull reads a feed as the operator.
func pull[M proto.Message, T any](ctx context.Context, n *node, f house.FeedOf[M], keep func(string, M) (T, error)) (*feed.Replica[T], error) {
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: n.paths.Socket(f.Owner), Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	m := feed.NewReplica(feed.ReplicaConfig{Feed: f.Name, Puller: feed.Remote{Client: feedv1.NewFeedServiceClient(conn)}}, feed.Decoder(keep))
	return m, m.Pull(ctx)
}
