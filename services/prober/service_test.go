// SPDX-License-Identifier: Apache-2.0

package prober_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/standin"
)

func TestVerdictsOfAllKinds(t *testing.T) {
	r := newRig(t)
	r.app.answer("startup", 503)
	r.want("u", func(c *v1.Container) {
		c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = r.probe("startup"), r.probe("ready"), r.probe("live")
		c.StartupProbe.FailureThreshold = 30
	})
	r.runs("u", "c1", 0)
	r.Eventually("the startup probe", func() bool { return r.app.asked("startup") > 0 })
	r.app.answer("startup", 200)
	r.pass(10 * time.Second)
	for _, kind := range []proberv1.ProbeKind{startup, readiness, liveness} {
		r.becomes("u", kind, success)
		if v := r.verdict("u", kind); v.GetContainerId() != "c1" || v.GetContainer() != "c" || v.GetSince() == nil {
			t.Errorf("verdict %v", v)
		}
	}
	// The others waited for the startup probe: they were never asked in vain.
	if r.app.asked("startup") != 2 || r.app.asked("ready") != 1 || r.app.asked("live") != 1 {
		t.Errorf("asked: startup %d, ready %d, live %d", r.app.asked("startup"), r.app.asked("ready"), r.app.asked("live"))
	}
	r.app.answer("ready", 500)
	r.pass(10 * time.Second)
	r.becomes("u", readiness, failure)
	if v := r.verdict("u", readiness); v.GetMessage() != "HTTP probe failed with statuscode: 500" {
		t.Errorf("says %q", v.GetMessage())
	}
	r.app.answer("ready", 200)
	r.pass(10 * time.Second)
	r.becomes("u", readiness, success)
}

func TestExecInTheContainer(t *testing.T) {
	r := newRig(t)
	id := r.container()
	r.want("u", func(c *v1.Container) {
		c.LivenessProbe = r.probe("")
		c.LivenessProbe.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "test -f /tmp/broken && exit 1 || true"}}}
	})
	r.runs("u", id, 0)
	r.becomes("u", liveness, success)
}

// TestTheSameCommandRunsOnce: two probes of one command cost one run, each time;
// one that differs has its own.
func TestTheSameCommandRunsOnce(t *testing.T) {
	r := newRig(t)
	id := r.container()
	exec := func(command ...string) *v1.Probe {
		p := r.probe("")
		p.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{Command: command}}
		return p
	}
	runs := func() int { return r.cri.Count(fakecri.Match{Method: "ExecSync"}) }
	r.want("u", func(c *v1.Container) {
		c.Env = []v1.EnvVar{{Name: "WORD", Value: "one"}}
		c.LivenessProbe, c.ReadinessProbe = exec("sh", "-c", "echo $(WORD)"), exec("sh", "-c", "echo $(WORD)")
	})
	r.runs("u", id, 0)
	r.becomes("u", liveness, success)
	r.becomes("u", readiness, success)
	if n := runs(); n != 1 {
		t.Errorf("%d runs for two probes", n)
	}
	if cmd := r.cri.Calls(fakecri.Match{Method: "ExecSync"})[0].Request.(*runtimeapi.ExecSyncRequest).GetCmd(); cmd[2] != "echo one" {
		t.Errorf("ran %q", cmd)
	}
	r.pass(10 * time.Second)
	r.Eventually("both again", func() bool { return r.counted("u", "successful") == 4 })
	if n := runs(); n != 2 {
		t.Errorf("%d runs for two rounds", n)
	}
	r.want("u", func(c *v1.Container) {
		c.LivenessProbe, c.ReadinessProbe = exec("true"), exec("sh", "-c", "exit 1")
	})
	r.pass(10 * time.Second)
	r.becomes("u", readiness, failure)
	if v := r.verdict("u", liveness); v.GetResult() != success {
		t.Errorf("liveness is %v", v)
	}
}

func TestANewContainerHasNoVerdict(t *testing.T) {
	r := newRig(t)
	r.want("u", func(c *v1.Container) { c.LivenessProbe = r.probe("live"); c.LivenessProbe.InitialDelaySeconds = 5 })
	r.runs("u", "c1", 0)
	r.app.answer("live", 500)
	r.pass(5 * time.Second)
	r.becomes("u", liveness, failure)
	r.runs("u", "c2", 1)
	r.Eventually("no verdict of the successor", func() bool { _, ok := r.verdicts.Get("u"); return !ok })
	r.app.answer("live", 200)
	r.pass(5 * time.Second)
	r.becomes("u", liveness, success)
	if v := r.verdict("u", liveness); v.GetContainerId() != "c2" {
		t.Errorf("verdict %v", v)
	}
}

func TestARestartFlipsNothingAndCausesNoBurst(t *testing.T) {
	const pods = 50
	r := newRig(t)
	for i := range pods {
		uid := fmt.Sprintf("u%d", i)
		r.want(uid, func(c *v1.Container) { c.ReadinessProbe = r.probe("ready"); c.ReadinessProbe.PeriodSeconds = 60 })
		r.runs(uid, "c-"+uid, 0)
	}
	before := map[string]*proberv1.PodVerdicts{}
	for i := range pods {
		uid := fmt.Sprintf("u%d", i)
		r.becomes(uid, readiness, success)
		before[uid], _ = r.verdicts.Get(uid)
	}
	epoch, _, _, _ := r.verdicts.State()
	asked := r.app.asked("ready")
	r.stop()                   // from here on each probe is of the second life
	r.app.answer("ready", 500) // whoever asks now would know
	r.pass(time.Hour)
	began := r.now()
	r.start()
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.verdicts.State(); return now.Epoch != epoch.Epoch && complete })
	flipped := 0
	for uid, had := range before {
		if now, _ := r.verdicts.Get(uid); !proto.Equal(now, had) {
			flipped++
		}
	}
	if n := r.app.asked("ready") - asked; flipped > n {
		t.Errorf("%d verdicts changed, with %d probes since the restart", flipped, n)
	}
	n := r.app.asked("ready") - asked
	if due := 2 + 2*int(pods*r.now().Sub(began)/time.Minute); n > due { // as the probes are spread over a period
		t.Errorf("%d of %d probes where %d are due", n, pods, due)
	}
	r.pass(time.Minute)
	for uid := range before {
		r.becomes(uid, readiness, failure) // and it goes on probing
	}
}

func TestAProbeBrokenOffHasNotFailed(t *testing.T) {
	r := newRig(t)
	r.want("u", func(c *v1.Container) { c.LivenessProbe = r.probe("live") })
	r.runs("u", "c1", 0)
	r.becomes("u", liveness, success)
	had, _ := r.verdicts.Get("u")
	release := r.app.stuck("live")
	defer release()
	r.pass(10 * time.Second)
	r.Eventually("a probe in flight", func() bool { return r.app.asked("live") == 2 })
	epoch, _, _, _ := r.verdicts.State()
	r.stop()
	r.start()
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.verdicts.State(); return now.Epoch != epoch.Epoch && complete })
	if now, _ := r.verdicts.Get("u"); !proto.Equal(now, had) {
		t.Errorf("%v after the restart, was %v", now, had)
	}
	if events := r.said(); len(events) > 0 {
		t.Errorf("events: %v", events)
	}
}

func TestARuntimeThatIsAwayDecidesNothing(t *testing.T) {
	r := newRig(t)
	id := r.container()
	r.want("u", func(c *v1.Container) {
		c.LivenessProbe = r.probe("")
		c.LivenessProbe.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
	})
	r.runs("u", id, 0)
	r.becomes("u", liveness, success)
	had, _ := r.verdicts.Get("u")
	r.cri.Down()
	for i := range 3 {
		r.pass(10 * time.Second)
		r.Eventually("an unknown result", func() bool { return r.counted("u", "unknown") == float64(i+1) })
	}
	if now, _ := r.verdicts.Get("u"); !proto.Equal(now, had) {
		t.Errorf("%v with the runtime away, was %v", now, had)
	}
	if events := r.said(); len(events) > 0 {
		t.Errorf("events: %v", events)
	}
	r.cri.Up()
	r.Eventually("it goes on", func() bool {
		r.pass(10 * time.Second) // the connection comes back in its own time
		return r.counted("u", "successful") >= 2
	})
}

func TestEvents(t *testing.T) {
	r := newRig(t)
	r.app.answer("ready", 500)
	r.app.answer("live", http.StatusFound)
	r.want("u", func(c *v1.Container) { c.ReadinessProbe, c.LivenessProbe = r.probe("ready"), r.probe("live") })
	r.runs("u", "c1", 0)
	r.Eventually("two events", func() bool { return len(r.said()) == 2 })
	said := strings.Join(r.said(), "\n")
	for _, want := range []string{
		"Warning Unhealthy ns/name-u spec.containers{c}: Readiness probe failed: HTTP probe failed with statuscode: 500",
		"Warning ProbeWarning ns/name-u spec.containers{c}: Liveness probe warning: ",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in\n%s", want, said)
		}
	}
}

// TestAProbeThatCannotBeDoneDecidesNothing: it is told, and neither verdict comes.
func TestAProbeThatCannotBeDoneDecidesNothing(t *testing.T) {
	r := newRig(t)
	r.want("u", func(c *v1.Container) {
		c.LivenessProbe = r.probe("live")
		c.LivenessProbe.HTTPGet.Port = intstr.FromString("nowhere")
	})
	r.runs("u", "c1", 0)
	r.Eventually("the event", func() bool { return len(r.said()) > 0 })
	want := `Warning Unhealthy ns/name-u spec.containers{c}: Liveness probe errored and resulted in unknown state: container c has no port named "nowhere"`
	if said := r.said()[0]; said != want {
		t.Errorf("said %q, want %q", said, want)
	}
	if v := r.verdict("u", liveness); v != nil {
		t.Errorf("verdict %v", v)
	}
}

func TestAPodThatGoesLeavesNothing(t *testing.T) {
	r := newRig(t)
	for _, uid := range []string{"u", "stays"} {
		r.want(uid, func(c *v1.Container) { c.ReadinessProbe = r.probe("ready") })
		r.runs(uid, "c-"+uid, 0)
		r.becomes(uid, readiness, success)
	}
	for _, metric := range []string{"prober_probe_total", "prober_probe_duration_seconds"} {
		if n := r.series(metric, "name-u"); n != 1 {
			t.Errorf("%d series of %s", n, metric)
		}
	}
	r.pods.Delete(r.Context(), "u")
	r.Eventually("no item", func() bool { _, ok := r.verdicts.Get("u"); return !ok })
	for _, metric := range []string{"prober_probe_total", "prober_probe_duration_seconds"} {
		r.Eventually("no series of "+metric, func() bool { return r.series(metric, "name-u") == 0 })
		if n := r.series(metric, "name-stays"); n != 1 {
			t.Errorf("%d series of %s of the other pod", n, metric)
		}
	}
	asked := r.app.askedInAll()
	r.pass(10 * time.Second)
	r.Eventually("the other's probe", func() bool { return r.app.askedInAll() == asked+1 })

	// One that goes while prober is away goes when it comes back.
	r.stop()
	r.pods.Delete(r.Context(), "stays")
	r.start()
	r.Eventually("forgotten", func() bool { _, ok := r.verdicts.Get("stays"); return !ok && r.verdicts.Complete() })
	if _, ok := r.verdicts.Get("u"); ok {
		t.Error("the first pod's verdict came back")
	}
}

// TestNotKnownIsNotGone: what config has not named yet after its own start keeps
// its verdict.
func TestNotKnownIsNotGone(t *testing.T) {
	r := newRig(t)
	r.want("u", func(c *v1.Container) { c.ReadinessProbe = r.probe("ready") })
	r.runs("u", "c1", 0)
	r.becomes("u", readiness, success)
	epoch, _, _, _ := r.verdicts.State()
	r.stop()
	r.pods.SetComplete(r.Context(), false)
	r.pods.Delete(r.Context(), "u")
	r.start()
	r.Eventually("the second life", func() bool { now, _, _, _ := r.verdicts.State(); return now.Epoch != epoch.Epoch })
	r.nudge()
	r.Eventually("config was heard", func() bool {
		for _, m := range r.kit.Hello().GetMirrors() {
			if m.GetRevision().GetN() == 0 {
				return false
			}
		}
		return true
	})
	if r.verdict("u", readiness).GetResult() != success || r.verdicts.Complete() {
		t.Error("a verdict was dropped, or the feed called complete, on an incomplete word")
	}
	r.pods.SetComplete(r.Context(), true)
	r.Eventually("gone once it is known", func() bool { _, ok := r.verdicts.Get("u"); return !ok && r.verdicts.Complete() })
}

// TestAPodThatIsNotUnderstood keeps no other pod from being forgotten.
func TestAPodThatIsNotUnderstood(t *testing.T) {
	r := newRig(t)
	if _, err := r.pods.Set(r.Context(), "odd", &configv1.DesiredPod{Pod: []byte("\xffnot a pod")}); err != nil {
		t.Fatal(err)
	}
	r.want("u", func(c *v1.Container) { c.ReadinessProbe = r.probe("ready") })
	r.runs("u", "c1", 0)
	r.becomes("u", readiness, success)
	r.pods.Delete(r.Context(), "u")
	r.Eventually("the other one is gone", func() bool { _, ok := r.verdicts.Get("u"); return !ok && r.verdicts.Complete() })
}

// TestAPodThatCannotBeReadKeepsItsVerdict: pleg has started again and the runtime
// does not answer for the pod.
func TestAPodThatCannotBeReadKeepsItsVerdict(t *testing.T) {
	r := newRig(t)
	for _, uid := range []string{"u", "other"} {
		r.want(uid, func(c *v1.Container) { c.ReadinessProbe = r.probe(uid) })
		r.runs(uid, "c-"+uid, 0)
		r.becomes(uid, readiness, success)
	}
	standin.Set(r.House, r.records, "u", &plegv1.PodRecord{Uid: "u", Error: "deadline exceeded"})
	r.app.answer("other", 500)
	r.pass(10 * time.Second)
	r.becomes("other", readiness, failure) // the word about u was heard by now
	if v := r.verdict("u", readiness); v.GetResult() != success || v.GetContainerId() != "c-u" {
		t.Errorf("verdict %v", v)
	}
}

func TestLostVerdictsStartOver(t *testing.T) {
	r := newRig(t)
	r.want("u", func(c *v1.Container) { c.ReadinessProbe = r.probe("ready") })
	r.runs("u", "c1", 0)
	r.becomes("u", readiness, success)
	r.stop()
	state := filepath.Join(r.Paths.StateOf(house.Prober), "state.db")
	if err := os.WriteFile(state, []byte(strings.Repeat("garbage", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.Eventually("complete", func() bool { return r.verdicts.Complete() })
	r.pass(10 * time.Second)
	r.becomes("u", readiness, success)
	if aside, err := filepath.Glob(state + ".damaged-*"); err != nil || len(aside) != 1 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
}

// said is every event so far.
func (r *rig) said() []string {
	var all []string
	for i := 1; ; i++ {
		e, ok := r.events.Get(fmt.Sprintf("%016d", i))
		if !ok {
			return all
		}
		o := e.GetObject()
		all = append(all, fmt.Sprintf("%s %s %s/%s %s: %s", e.GetType(), e.GetReason(), o.GetNamespace(), o.GetName(), o.GetFieldPath(), e.GetMessage()))
	}
}

// counted is how many probes of a pod ended so.
func (r *rig) counted(uid, result string) float64 {
	families, err := r.kit.Metrics.Gather()
	if err != nil {
		r.Fatal(err)
	}
	n := 0.0
	for _, f := range families {
		if f.GetName() != "prober_probe_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["pod_uid"] == uid && labels["result"] == result {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// TestPodsOnTheHostsNetwork: those of manifests are probed at the address that their mirror
// pod has, and at the node's own before there is one; their servers may not listen on
// loopback.
func TestPodsOnTheHostsNetwork(t *testing.T) {
	r := newRig(t)
	asked := make(chan string, 1)
	everywhere, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		asked <- req.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr).IP.String()
	})}
	go func() { _ = server.Serve(everywhere) }()
	defer server.Close()
	c := v1.Container{Name: "c", ReadinessProbe: &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(int32(everywhere.Addr().(*net.TCPAddr).Port))}},
		PeriodSeconds: 3600, TimeoutSeconds: 60,
	}}
	r.pods.SetComplete(t.Context(), true)
	r.records.SetComplete(t.Context(), true)
	r.host("mirrored", "127.0.0.2", c)
	if at := <-asked; at != "127.0.0.2" {
		t.Errorf("the pod of a host at 127.0.0.2 is probed at %s", at)
	}
	own := "127.0.0.1" // of a machine without a default route
	for _, beyond := range []string{"203.0.113.1:9", "[2001:db8::1]:9"} {
		if way, err := net.Dial("udp", beyond); err == nil {
			own = way.LocalAddr().(*net.UDPAddr).IP.String()
			_ = way.Close()
			break
		}
	}
	r.host("alone", "", c)
	if at := <-asked; at != own {
		t.Errorf("a pod without a mirror is probed at %s, and the node has %s", at, own)
	}
}

// TestPodsOfTwoFamilies: a pod is probed at the address that its status has, of the family of
// the node's, whatever the runtime names first. What the node's is may be known from another
// pod alone; until then it is what the runtime names first.
func TestPodsOfTwoFamilies(t *testing.T) {
	r := newRig(t) // whose application has an IPv4 address alone
	r.pods.SetComplete(t.Context(), true)
	r.records.SetComplete(t.Context(), true)
	probed := func(uid, host, ips string, want proberv1.Result) {
		t.Helper()
		c := v1.Container{Name: "c", StartupProbe: r.probe(uid)}
		c.StartupProbe.TimeoutSeconds = 1 // a machine may drop what has no way
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)}}
		p.Spec.Containers, p.Status.HostIP = []v1.Container{c}, host
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		standin.Set(r.House, r.pods, uid, &configv1.DesiredPod{Pod: data, Source: "api"})
		r.observeAt(uid, ips, &runtimeapi.ContainerStatus{Id: "c-" + uid, Metadata: &runtimeapi.ContainerMetadata{Name: "c"}})
		r.Eventually(uid+" was probed", func() bool { return r.verdict(uid, startup).GetResult() != undecided })
		if got := r.verdict(uid, startup).GetResult(); got != want {
			t.Errorf("%s: %v, want %v", uid, got, want)
		}
		if asked := r.app.asked(uid); (asked > 0) != (want == success) {
			t.Errorf("%s: its IPv4 address was asked %d times", uid, asked)
		}
	}
	probed("unknown", "", "127.0.0.1,2001:db8::1", success)
	r.host("proxy", "192.0.2.1", v1.Container{Name: "c"})
	probed("four", "", "2001:db8::1,127.0.0.1", success)
	probed("six", "2001:db8::2", "127.0.0.1,2001:db8::1", failure)
}
