// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/fakecri"
)

// TestFaults is TestLives with runtimes that fail the first calls of some method for each pod,
// before they have done anything or after they have done it all, and that are away for some seconds.
func TestFaults(t *testing.T) {
	compareLives(t, lives{make: (*maker).faulty, harm: away}, "testdata/lives.txt", "testdata/faults.txt")
}

// away has the runtime of a side refuse connections for some seconds.
func away(t *testing.T, s *side, _ []int) (gone []string) {
	t.Helper()
	s.without(t, func() {})
	return nil
}

// without has the runtime of a side refuse connections for some seconds, while do is done.
func (s *side) without(t *testing.T, do func()) {
	t.Helper()
	s.rt.Down()
	do()
	harness.Rest(t, 8*time.Second)
	s.rt.Up()
	runtime := runtimeapi.NewRuntimeServiceClient(s.rt.Conn(t))
	harness.Eventually(t, 10*time.Second, "the runtime to answer", func(ctx context.Context) error {
		_, err := runtime.Version(ctx, &runtimeapi.VersionRequest{})
		return err
	})
	s.open(t) // it is another socket
}

// TestAbsences is TestDeaths with pods that are deleted while their runtime is away for longer than
// their grace.
func TestAbsences(t *testing.T) {
	compareLives(t, lives{make: (*maker).mortal, harm: absence}, "testdata/lives.txt", "testdata/deaths.txt", "testdata/absences.txt")
}

// absence deletes some of the pods with the numbers while the runtime of a side is away.
func absence(t *testing.T, s *side, numbers []int) (gone []string) {
	t.Helper()
	pods, err := s.pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.without(t, func() {
		for _, n := range numbers {
			name := fmt.Sprintf("life-%d", n)
			p := pods[name]
			if p == nil || len(p.Finalizers) > 0 || newMaker(*seed+1<<39, n, "").one(3) {
				continue
			}
			gone = append(gone, name)
			end := deletion(nil)
			if p.Name != name {
				end = func(t *testing.T, s *side, _ *corev1.Pod) error { return removal(t, s, name) }
			}
			if err := end(t, s, p); err != nil {
				t.Errorf("%s: %s: %v", s.agent, name, err)
			}
		}
	})
	s.waitGone(t, gone)
	return gone
}

// fault is what fails for a pod: the first times calls of a method.
type fault struct {
	method string
	image  string // of calls about an image: its reference
	times  int
	done   bool // it has been done when the answer is the error
	code   codes.Code
	hangs  bool // they do not answer, and do nothing; or it is done once they were given up
}

// fail has the runtime of a side fail for a pod.
func (s *side) fail(t *testing.T, name string, static bool, faults []fault) {
	t.Helper()
	if static {
		name += "-" + s.node
	}
	for _, f := range faults {
		match := fakecri.Match{Method: f.method, Name: name}
		if f.image != "" {
			match.Name = f.image
			s.rt.Provide(fakecri.Image{Ref: f.image})
		}
		if f.hangs {
			s.hang(t, match, f)
			continue
		}
		fail := s.rt.Fail
		if f.done {
			fail = s.rt.FailAfter
		}
		fail(match, f.times, status.Error(f.code, "the runtime is out of order"))
	}
}

// TestHangs is TestFaults with runtimes that do not answer the first calls of some method for each pod.
// They do nothing, or they do it when their callers have given up.
func TestHangs(t *testing.T) {
	compareLives(t, lives{make: (*maker).hanging, plain: withoutTiming, calm: calmFor + 3*givenUp, configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		c.RuntimeRequestTimeout = metav1.Duration{Duration: givenUp}
	}}, "testdata/lives.txt", "testdata/faults.txt", "testdata/hangs.txt")
}

// Either end of a connection may be the first to see that the time is over, and how often a call is
// tried until then depends on the pauses between.
var (
	overdue  = regexp.MustCompile(`stalled: context deadline exceeded|stream terminated by RST_STREAM with error code: CANCEL`)
	numbered = regexp.MustCompile(`, request [0-9]+ for it$`)
)

func withoutTiming(line string) string {
	return numbered.ReplaceAllString(overdue.ReplaceAllString(line, "context deadline exceeded"), "")
}

// givenUp is how long agents wait for an answer in TestHangs; some calls may take longer.
const givenUp = 3 * time.Second

// hang has the runtime of a side not answer calls.
func (s *side) hang(t *testing.T, match fakecri.Match, f fault) {
	t.Helper()
	if !f.done {
		s.rt.StallNext(match, f.times)
		return
	}
	late := s.rt.LingerNext(match, f.times)
	ctx := t.Context()
	go func() {
		if late.Wait(ctx, 1) == nil {
			select {
			case <-ctx.Done():
			case <-time.After(3 * givenUp):
			}
		}
		late.Release()
	}()
}

// hanging is a random pod, and what is not answered for it.
func (m *maker) hanging(name string) (*corev1.Pod, []fault) {
	for {
		p, faults := m.faulty(name)
		f := &faults[0]
		if hook := p.Spec.Containers[0].Lifecycle; f.method == "PullImage" || f.method == "ExecSync" && hook != nil {
			continue // neither has a limit of time
		}
		f.hangs = true
		return p, faults
	}
}

// faulty is a random pod and what fails for it.
func (m *maker) faulty(name string) (*corev1.Pod, []fault) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s := &p.Spec
	s.RestartPolicy = pick(m, corev1.RestartPolicyAlways, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	s.TerminationGracePeriodSeconds = new(int64(m.IntN(3) + 1))
	s.AutomountServiceAccountToken = new(false)
	s.Volumes = []corev1.Volume{{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	if m.one(3) {
		s.InitContainers = append(s.InitContainers, living("init-0", "sleep 0.1; exit 0"))
	}
	if m.one(4) {
		c := living("init-1", serves)
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		s.InitContainers = append(s.InitContainers, c)
	}
	scripts := map[corev1.RestartPolicy][]string{ // none is restarted for ever
		corev1.RestartPolicyAlways:    {serves, m.begins(serves)},
		corev1.RestartPolicyOnFailure: {serves, m.begins(serves), m.begins("exit 0"), "sleep 0.3; exit 0"},
		corev1.RestartPolicyNever:     {serves, "sleep 0.3; exit 0", "sleep 0.2; exit 3"},
	}[s.RestartPolicy]
	for i := range m.IntN(2) + 1 {
		name := fmt.Sprintf("main-%d", i)
		s.Containers = append(s.Containers, living(name, pick(m, scripts...)))
	}
	f := fault{times: m.IntN(2) + 1, code: pick(m, codes.Unknown, codes.Unknown, codes.DeadlineExceeded, codes.Unavailable)}
	f.method = pick(m, "RunPodSandbox", "RunPodSandbox", "CreateContainer", "CreateContainer", "StartContainer", "StartContainer", "PullImage",
		"ImageStatus", "ExecSync", "StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox", "PodSandboxStatus", "ContainerStatus")
	c := &s.Containers[0]
	switch f.method {
	case "PullImage", "ImageStatus":
		f.image = fmt.Sprintf("sextant.local/faulty-%d:v1", m.number)
		c.Image = f.image
	case "ExecSync":
		c.Command = []string{"sh", "-c", serves}
		if m.one(2) {
			c.ReadinessProbe = m.probe("true")
			c.ReadinessProbe.ProbeHandler = shell("true")
		} else {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: shell("true").Exec}}
		}
	default:
		f.done = m.one(3)
	}
	return p, []fault{f}
}
