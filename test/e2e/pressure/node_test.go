// SPDX-License-Identifier: Apache-2.0

package pressure_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/disk"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/load"
)

// What the node has, and how much of it is to stay free.
const (
	podsMemory = 400 << 20 // of the pods' cgroup
	keptMemory = 80 << 20

	rootBytes, rootKept        = 128 << 20, 40 << 20
	rootInodes, rootKeptInodes = 8000, 3000

	imageBytes, imageKept        = 512 << 20, 60 << 20
	imageInodes, imageKeptInodes = 20000, 3000

	spareThreads = 1500 // of which half must be free
	transition   = 10 * time.Second
)

// bystanders are the pods that are not to notice.
const bystanders = 3

// node is a node that gets short of things, and pods on it.
type node struct {
	*load.Load
	random  *rand.Rand
	images  string // where its disk is mounted
	figures []figures

	mu   sync.Mutex
	told *corev1.Node
	// turned are the changes of each condition since turns was called.
	turned map[corev1.NodeConditionType][]corev1.ConditionStatus
}

// start makes a node with two small disks and little memory for pods.
func start(t *testing.T) *node {
	t.Helper()
	cp := harness.StartControlPlane(t)
	n := &node{turned: map[corev1.NodeConditionType][]corev1.ConditionStatus{}}
	runtime := harness.StartRuntime(t, harness.V2, func(dir string) {
		n.images = dir
		disk.Image(t, dir, imageBytes, imageInodes)
	})
	hn := harness.StartNode(t, harness.NodeOptions{
		ControlPlane: cp, Runtime: runtime, Configure: func(c *kubeletv1beta1.KubeletConfiguration) { configure(t, c) },
		PrepareRoot: func(dir string) { disk.Image(t, dir, rootBytes, rootInodes) },
	})
	n.Load = load.Watch(t, cp, hn)
	n.watch()
	var names []string
	for i := range bystanders {
		name := fmt.Sprintf("bystander-%d", i)
		n.must(n.Create(t.Context(), n.pod(name, "32Mi")))
		n.must(n.Await(t.Context(), name, load.IsReady))
		names = append(names, name)
	}
	n.Keep(names)
	return n
}

func configure(t *testing.T, c *kubeletv1beta1.KubeletConfiguration) {
	t.Helper()
	total, threads := machine(t)
	c.KubeReserved = map[string]string{"memory": fmt.Sprint(total - podsMemory)}
	c.EvictionHard = map[string]string{
		"memory.available": fmt.Sprint(keptMemory),
		"nodefs.available": fmt.Sprint(rootKept), "nodefs.inodesFree": fmt.Sprint(rootKeptInodes),
		"imagefs.available": fmt.Sprint(imageKept), "imagefs.inodesFree": fmt.Sprint(imageKeptInodes),
		"pid.available": fmt.Sprint(threads - spareThreads),
	}
	c.EvictionPressureTransitionPeriod = metav1.Duration{Duration: transition}
	c.KernelMemcgNotification = true
	c.ImageGCHighThresholdPercent, c.ImageGCLowThresholdPercent = new(int32(100)), new(int32(99))
}

// machine is the memory of this machine, and how many threads there can be more.
func machine(t *testing.T) (memory, threads int64) {
	t.Helper()
	scan := func(file, format string, values ...any) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err == nil {
			_, err = fmt.Sscanf(string(text), format, values...)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	var most, limit, runs, now int64
	var load [3]float64
	scan("/proc/sys/kernel/pid_max", "%d", &most)
	scan("/proc/sys/kernel/threads-max", "%d", &limit)
	scan("/proc/loadavg", "%f %f %f %d/%d", &load[0], &load[1], &load[2], &runs, &now)
	return harness.Memory(t), min(most, limit) - now
}

// watch follows the node.
func (n *node) watch() {
	n.T.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(n.CP.Admin, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", n.Node.Name).String()
	}))
	saw := func(obj any) {
		n.mu.Lock()
		n.turn(obj.(*corev1.Node))
		n.mu.Unlock()
		n.Tell()
	}
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: saw, UpdateFunc: func(_, obj any) { saw(obj) }})
	n.must(err)
	factory.Start(n.T.Context().Done())
	factory.WaitForCacheSync(n.T.Context().Done())
	n.T.Cleanup(factory.Shutdown)
}

// turn takes a version of the node in; n.mu is held.
func (n *node) turn(now *corev1.Node) {
	was := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	if n.told != nil {
		for _, c := range n.told.Status.Conditions {
			was[c.Type] = c.Status
		}
	}
	for _, c := range now.Status.Conditions {
		if before, ok := was[c.Type]; ok && before != c.Status {
			n.turned[c.Type] = append(n.turned[c.Type], c.Status)
		}
	}
	n.told = now
}

// turns are the changes of a condition since the last call.
func (n *node) turns(kind corev1.NodeConditionType) []corev1.ConditionStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	turned := n.turned[kind]
	delete(n.turned, kind)
	return turned
}

// condition is one of the node's, as the API server told last; nil if it has none such.
func (n *node) condition(kind corev1.NodeConditionType) *corev1.NodeCondition {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told == nil {
		return nil
	}
	for i := range n.told.Status.Conditions {
		if c := &n.told.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// room is what is free of a disk.
type room struct{ bytes, inodes int64 }

// free is what is free of the disk of images and layers.
func (n *node) free() room {
	n.T.Helper()
	var st unix.Statfs_t
	n.must(unix.Statfs(n.images, &st))
	return room{int64(st.Bavail) * st.Bsize, int64(st.Ffree)}
}
