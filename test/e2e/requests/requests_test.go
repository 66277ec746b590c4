// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/test/e2e/compare"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/fakecri"
)

var (
	count = flag.Int("pods", 300, "how many random pods")
	seed  = flag.Uint64("seed", 1, "what the random pods depend on")
	only  = flag.Int("only", -1, "the one pod to look at; -1 for all")
	wave  = flag.Int("wave", 0, "how many pods are on the nodes at a time; 0 for as many as the test has by itself")
)

// random finds what an agent makes up: the name of a file with the last words of a container, and
// the first of a pod's own user IDs.
var random = regexp.MustCompile(`(ROOT/pods/UID/containers/[^/]+/|\bhost_id = )([0-9a-f]{8}|[0-9]{5,})\b`)

// backOff finds what stands before the error of a pull between two tries.
var backOff = regexp.MustCompile(`^Back-off pulling image "[^"]*": ErrImagePull: `)

// took finds how long a pull took; on such a runtime it may be nothing.
var took = regexp.MustCompile(`\bin (0s|DURATION) \((0s|DURATION) `)

// versions finds the name of a volume's folder of one version.
var versions = regexp.MustCompile(`\.\.2\d{3}_[0-9_.]+`)

func TestMain(m *testing.M) { harness.Main(m) }

// side is one agent's node.
type side struct {
	agent, node, ns string
	place           *harness.Place
	sextant         *harness.Node      // nil for a kubelet
	reference       *harness.Reference // nil for Sextant
	rt              *fakecri.Runtime
	cp              *harness.ControlPlane
	seen            *seen    // by TestLives
	static          []string // pods, of TestLives
}

// TestRequests gives both agents the same random pods. What they ask their runtimes for, what
// the volumes hold and what becomes of the pods is the same, but for what testdata/requests.txt
// lists.
func TestRequests(t *testing.T) {
	table := readTable(t, "testdata/requests.txt")
	cp := harness.StartControlPlane(t)
	host := t.TempDir()
	furnishHost(t, host)
	furnishCluster(t, cp)
	sides := startSides(t, cp, nil)
	numbers := wanted()
	j := &judge{table: table, told: map[string][]string{}}
	refused, sized, debugged := 0, 0, 0
	for part := range slices.Chunk(numbers, cmp.Or(*wave, 100)) {
		var names []string
		for _, n := range part {
			name := fmt.Sprintf("random-%d", n)
			p := newMaker(*seed, n, host).pod(name)
			if *only >= 0 {
				text, err := yaml.Marshal(p)
				t.Logf("%s%v", text, err)
			}
			if err := create(t, sides, p); err != nil {
				if *only >= 0 {
					t.Log(err)
				}
				refused++
				continue
			}
			names = append(names, name)
		}
		come := map[string]progress{}
		for _, s := range sides {
			maps.Copy(come, worst(come, s.settle(t)))
		}
		debugged += debug(t, sides, part, come)
		for _, name := range names {
			j.note(name, sides[0].facts(t, name, come[name]), sides[1].facts(t, name, come[name]))
		}
		resized := resize(t, sides, part, names, come)
		sized += len(resized)
		for _, name := range resized {
			j.note(name, sides[0].sizes(t, name), sides[1].sizes(t, name))
		}
		ends := map[*side]map[string][]string{}
		for _, s := range sides {
			ends[s] = s.end(t)
		}
		for _, name := range names {
			j.note(name, ends[sides[0]][name], ends[sides[1]][name])
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d pods, of which the API server refused %d; %d were resized and %d debugged; seed %d", len(numbers), refused, sized, debugged, *seed)
	if *only < 0 && (refused > len(numbers)/2 || sized == 0 || debugged == 0) {
		t.Error("too few pods to say anything")
	}
	j.report(t, "testdata/requests.txt")
}

// readTable reads what the agents may differ in, which is in files.
func readTable(t *testing.T, files ...string) compare.Table {
	t.Helper()
	var text []byte
	for _, file := range files {
		part, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, part...), '\n')
	}
	table, err := compare.ParseTable(string(text))
	if err != nil {
		t.Fatalf("%s: %v", files, err)
	}
	return table
}

// startSides starts the nodes of both agents, the kubelet's first; configure as in newSide.
func startSides(t *testing.T, cp *harness.ControlPlane, configure func(*kubeletv1beta1.KubeletConfiguration)) (sides []*side) {
	t.Helper()
	for _, agent := range []string{"kubelet", "sextant"} {
		sides = append(sides, newSide(t, agent, cp, configure))
	}
	return sides
}

// wanted are the numbers of the pods to look at.
func wanted() (numbers []int) {
	if *only >= 0 {
		return []int{*only}
	}
	if testing.Short() {
		*count = min(*count, 80)
	}
	for i := range *count {
		numbers = append(numbers, i)
	}
	return numbers
}

// judge gathers in what the agents differ.
type judge struct {
	table compare.Table
	all   []compare.Difference
	told  map[string][]string // by difference: the pods
}

func (j *judge) note(name string, reference, sextant []string) {
	for _, d := range compare.Diff(reference, sextant) {
		j.all = append(j.all, d)
		j.told[d.String()] = append(j.told[d.String()], name)
	}
}

// report fails the test where the agents differ otherwise than the table in file says.
func (j *judge) report(t *testing.T, file string) {
	t.Helper()
	report := j.table.Judge(j.all)
	if *only >= 0 {
		report.Stale = nil
	}
	if report.OK() {
		return
	}
	t.Errorf("the agents differ otherwise than %s says:\n%s", file, report)
	for _, d := range j.all {
		if names := j.told[d.String()]; len(names) > 0 {
			t.Logf("%s: %d pods, %s", d, len(names), strings.Join(names[:min(3, len(names))], " "))
			delete(j.told, d.String())
		}
	}
}

// newSide starts an agent's node on a runtime of no time; configure may change its configuration.
func newSide(t *testing.T, agent string, cp *harness.ControlPlane, configure func(*kubeletv1beta1.KubeletConfiguration)) *side {
	t.Helper()
	rt := fakecri.Start(t, fakecri.Config{
		CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS, Handlers: []string{"plain", "heavy"},
		Images: []fakecri.Image{
			{Ref: server}, {Ref: task, Script: "exit 0"}, {Ref: user, Username: "someone"}, {Ref: number, UID: new(int64(1234))},
		},
	})
	rt.Provide(fakecri.Image{Ref: locked, Login: &runtimeapi.AuthConfig{Username: "me", Password: "secret"}})
	rt.Withhold(nowhere)
	s := &side{agent: agent, node: "requests-" + agent, ns: cp.Namespace(t), rt: rt, cp: cp}
	s.open(t)
	o := harness.NodeOptions{ControlPlane: cp, Runtime: harness.StartUnsampled(t, harness.V2), Name: s.node, Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		c.ClusterDNS, c.ClusterDomain, c.MaxPods = []string{"10.96.0.10"}, "cluster.local", 1000
		c.ContainerRuntimeEndpoint = rt.Endpoint()
		c.RegistryPullQPS = new(int32(0)) // else which pod fails first is chance
		c.EventRecordQPS, c.EventBurst = new(int32(500)), 1000
		c.AllowedUnsafeSysctls = []string{"net.core.somaxconn"}
		if configure != nil {
			configure(c)
		}
	}}
	s.furnish(t)
	if agent == "kubelet" {
		s.reference = harness.StartReference(t, o)
		s.place = &s.reference.Place
	} else {
		s.sextant = harness.StartNode(t, o)
		s.place = &s.sextant.Place
	}
	t.Cleanup(func() { s.end(t) })
	harness.Eventually(t, 3*time.Minute, "the node to be Ready", func(ctx context.Context) error {
		node, err := cp.Admin.CoreV1().Nodes().Get(ctx, s.node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is not")
	})
	return s
}

// open lets every user connect to the runtime of a side.
func (s *side) open(t *testing.T) {
	t.Helper()
	if err := errors.Join(os.Chmod(filepath.Dir(s.rt.Socket()), 0o755), os.Chmod(s.rt.Socket(), 0o666)); err != nil {
		t.Fatal(err)
	}
}

// furnishHost makes what volumes of the host refer to.
func furnishHost(t *testing.T, dir string) {
	t.Helper()
	for p := dir; len(p) > len(os.TempDir()); p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "there", "a", "b"), 0o755), os.WriteFile(filepath.Join(dir, "file"), []byte("file"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

// furnishCluster makes what pods of all namespaces refer to.
func furnishCluster(t *testing.T, cp *harness.ControlPlane) {
	t.Helper()
	ctx := t.Context()
	_, err := cp.Admin.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}, metav1.CreateOptions{})
	_, err1 := cp.Admin.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Handler: "plain"}, metav1.CreateOptions{})
	_, err2 := cp.Admin.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "heavy"}, Handler: "heavy",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("30Mi")}},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, err1, err2); err != nil {
		t.Fatal(err)
	}
}

// furnish makes what the pods of a side refer to.
func (s *side) furnish(t *testing.T) {
	t.Helper()
	ctx, core := t.Context(), s.cp.Admin.CoreV1()
	_, err := core.ConfigMaps(s.ns).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"one": "1", "two": "two\nlines", "with.dot": "x", "with-dash": "$(PLAIN)"}, BinaryData: map[string][]byte{"raw": {0, 1, 255}},
	}, metav1.CreateOptions{})
	_, err1 := core.Secrets(s.ns).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secrets"}, Data: map[string][]byte{"password": []byte("secret"), "binary": {0, 255}},
	}, metav1.CreateOptions{})
	_, err2 := core.Secrets(s.ns).Create(ctx, s.login("login"), metav1.CreateOptions{})
	_, err3 := core.Services(s.ns).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "data-base"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}, {Name: "udp-too", Port: 53, Protocol: corev1.ProtocolUDP}}},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, err1, err2, err3); err != nil {
		t.Fatal(err)
	}
}

// login is a Secret with what opens the registry of locked.
func (s *side) login(name string) *corev1.Secret {
	auth := base64.StdEncoding.EncodeToString([]byte("me:secret"))
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"sextant.local":{"auth":"` + auth + `"}}}`)},
	}
}

// create makes a pod on all sides; an error is the API server's refusal.
func create(t *testing.T, sides []*side, p *corev1.Pod) error {
	t.Helper()
	for _, s := range sides {
		own := p.DeepCopy()
		own.Spec.NodeName = s.node
		_, err := s.cp.Admin.CoreV1().Pods(s.ns).Create(t.Context(), own, metav1.CreateOptions{})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			if s != sides[0] {
				t.Errorf("%s: refused for one agent alone: %v", p.Name, err)
			}
			return err
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return nil
}

// progress is how far a pod has come.
type progress int

const (
	whole   progress = iota // each container runs, or has ended
	blocked                 // a container waits for what does not come
	stuck                   // all of them do
)

// progressOf also reports whether the pod will not come any further for now.
func progressOf(p *corev1.Pod) (come progress, settled bool) {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return whole, true
	}
	settled = len(p.Status.ContainerStatuses) > 0
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		w := c.State.Waiting
		switch {
		case w == nil:
		case w.Reason != "ContainerCreating" && w.Reason != "PodInitializing":
			come = blocked // those after it wait for it
		case come == whole:
			return stuck, false
		}
	}
	return come, settled
}

// settle waits until the pods of a side come no further: one that has not begun waits for good
// when an event has said that something failed.
func (s *side) settle(t *testing.T) (come map[string]progress) {
	t.Helper()
	harness.Eventually(t, 5*time.Minute, "the pods to settle", func(ctx context.Context) error {
		pods, err := s.cp.Admin.CoreV1().Pods(s.ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		events, err := s.cp.Admin.CoreV1().Events(s.ns).List(ctx, metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning})
		if err != nil {
			return err
		}
		warned := map[types.UID]bool{}
		for _, e := range events.Items {
			warned[e.InvolvedObject.UID] = true
		}
		come = map[string]progress{}
		for i := range pods.Items {
			p := &pods.Items[i]
			far, settled := progressOf(p)
			if come[p.Name] = far; !settled && !warned[p.UID] {
				err = fmt.Errorf("%s: %s", s.agent, p.Name)
			}
		}
		return err
	})
	harness.Rest(t, 3*time.Second)
	return come
}

// worst is the less of what two nodes say of how far pods have come.
func worst(a, b map[string]progress) map[string]progress {
	for name, far := range b {
		b[name] = max(far, a[name])
	}
	return b
}

// end deletes the pods of a side, each within its own grace, and tells how the runtime was asked
// to stop them.
func (s *side) end(t *testing.T) map[string][]string {
	t.Helper()
	s.rt.ResetCalls()
	ctx := context.WithoutCancel(t.Context())
	pods, err := s.cp.Admin.CoreV1().Pods(s.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Error(err)
		return nil
	}
	graces := map[string]int64{}
	for i := range pods.Items {
		graces[pods.Items[i].Name] = *pods.Items[i].Spec.TerminationGracePeriodSeconds
	}
	if err := s.cp.Admin.CoreV1().Pods(s.ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
		return nil
	}
	err = harness.Within(ctx, 3*time.Minute, func(ctx context.Context) error {
		list, err := s.cp.Admin.CoreV1().Pods(s.ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%s: %d pods are there still: %s …", s.agent, len(list.Items), list.Items[0].Name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	all := map[string][]string{}
	for _, call := range s.rt.Calls(fakecri.Match{Method: "StopContainer"}) {
		grace := call.Request.(*runtimeapi.StopContainerRequest).GetTimeout()
		how := fmt.Sprintf("within %d s", grace)
		if left := graces[call.Pod] - grace; left >= 0 && left < 3 {
			how = "within the pod's grace" // others were stopped first
		}
		all[call.Pod] = append(all[call.Pod], fmt.Sprintf("container %s is stopped %s", call.Name, how))
	}
	s.rt.ResetCalls()
	return all
}

// flattener makes facts of what tells of a pod of this side.
func (s *side) flattener(p *corev1.Pod) compare.Flattener {
	return compare.Flattener{Names: compare.NewNormalizer(map[string]string{
		string(p.UID): "UID", s.ns: "NAMESPACE", s.node: "NODE", s.place.Root: "ROOT", s.place.PodLogs: "LOGS", s.place.IP: "NODEIP", s.place.Runtime.CgroupRoot: "CGROUP",
	})}
}

// facts are what is known of a pod that has come so far, as lines. Images are looked for, and
// pulled, and its sandbox is made, while the volumes of a pod are, which a kubelet does after.
func (s *side) facts(t *testing.T, name string, come progress) []string {
	t.Helper()
	p, err := s.cp.Admin.CoreV1().Pods(s.ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Error(err)
		return nil
	}
	f := s.flattener(p)
	var all []string
	add := func(prefix string, document []byte) {
		facts, err := f.Facts(document)
		if err != nil {
			t.Errorf("%s: %s: %v", name, prefix, err)
		}
		for _, fact := range facts {
			all = append(all, prefix+"."+random.ReplaceAllString(fact, "${1}RANDOM"))
		}
	}
	status := p.Status.DeepCopy()
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list { // the pull is tried again now and then
			if w := list[i].State.Waiting; w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") {
				w.Reason, w.Message = "no image", backOff.ReplaceAllString(w.Message, "")
			}
		}
	}
	if come == stuck {
		for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
			for i := range list {
				list[i].State = corev1.ContainerState{} // Sextant may show an error of the image already
			}
		}
		status.PodIP, status.PodIPs = "", nil
		status.Conditions = slices.DeleteFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReadyToStartContainers })
	}
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = 0
	}
	told, err := json.Marshal(status)
	if err != nil {
		t.Error(err)
	}
	add("status", told)
	order := 0
	events, err := s.cp.Admin.CoreV1().Events(s.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		t.Error(err)
		return nil
	}
	for _, e := range events.Items {
		if come != whole {
			break
		}
		all = append(all, fmt.Sprintf("event %s %s %s: %s", e.Type, e.Reason, e.InvolvedObject.FieldPath, took.ReplaceAllString(f.Names.Text(e.Message), "in DURATION (DURATION ")))
	}
	for _, call := range s.rt.Calls(fakecri.Match{}) {
		switch r := call.Request.(type) {
		case *runtimeapi.RunPodSandboxRequest:
			if call.Pod != name || come == stuck {
				continue
			}
			slices.Sort(r.GetConfig().GetDnsConfig().GetOptions()) // a kubelet's are in no order
			add("sandbox", document(t, r))
		case *runtimeapi.PullImageRequest:
			if come == whole && r.GetSandboxConfig().GetMetadata().GetName() == name {
				add("pull "+r.GetImage().GetImage(), document(t, r))
			}
		case *runtimeapi.CreateContainerRequest:
			if call.Pod != name || call.Err != nil || r.GetConfig().GetMetadata().GetAttempt() > 0 {
				continue
			}
			c := r.GetConfig()
			where := "container " + c.GetMetadata().GetName()
			all = append(all, fmt.Sprintf("%s is number %d", where, order))
			order++
			tree := proto.CloneOf(c)
			tree.Envs = nil
			add(where, document(t, tree))
			for _, e := range c.GetEnvs() {
				all = append(all, fmt.Sprintf("%s: %s=%q", where, e.GetKey(), f.Names.Text(string(e.GetValue()))))
			}
			var order []string
			for _, m := range c.GetMounts() {
				if m.GetImage() != nil || come != whole { // parts may be made for a container that fails
					continue
				}
				order = append(order, m.GetContainerPath())
				all = append(all, contents(t, f.Names, where+" "+m.GetContainerPath(), m.GetHostPath())...)
			}
			all = append(all, where+" mounts in order "+strings.Join(order, " "))
		}
	}
	return all
}

// contents are what a mount holds.
func contents(t *testing.T, names *compare.Normalizer, where, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		rel = versions.ReplaceAllString(rel, "..VERSION")
		st := info.Sys().(*syscall.Stat_t)
		all = append(all, fmt.Sprintf("%s: %s belongs to %d:%d", where, rel, st.Uid, st.Gid), fmt.Sprintf("%s: %s has the rights %s", where, rel, info.Mode()))
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			all = append(all, fmt.Sprintf("%s: %s leads to %s", where, rel, versions.ReplaceAllString(to, "..VERSION")))
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text := names.Text(string(data))
			if strings.HasSuffix(path, "token") {
				text = "a token"
			}
			all = append(all, fmt.Sprintf("%s: %s holds %q", where, rel, text))
		}
		return nil
	})
	if err != nil {
		all = append(all, fmt.Sprintf("%s: %s", where, names.Text(err.Error())))
	}
	return all
}

// document is a request as JSON.
func document(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Error(err)
	}
	return data
}
