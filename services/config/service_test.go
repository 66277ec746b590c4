// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

func sortedWords(words []string, complete bool) string {
	words = slices.Sorted(slices.Values(words))
	if !complete {
		words = append(words, "…")
	}
	return strings.Join(words, " ")
}

func debugClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}

func manifest(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: " + image + "}]}\n"
}

func apiPod(name, uid string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)},
		Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

const (
	folder     = "staticPodPath: manifests\n"
	standalone = "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"
)

func TestManifestFolder(t *testing.T) {
	m := newMachine(t, folder+standalone)
	m.write("manifests/web.yaml", manifest("web", "i:1"))
	stop := m.start()
	m.wants("default/web-n1")
	uid := m.uid("web-n1")
	p := m.pod(m.pods.Items()[uid])
	for key, want := range map[string]string{pod.ConfigSourceAnnotation: pod.SourceFile, pod.ConfigHashAnnotation: uid} {
		if got := p.Annotations[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	seen := p.Annotations[pod.ConfigSeenAnnotation]
	if _, err := time.Parse(time.RFC3339Nano, seen); err != nil {
		t.Error(err)
	}
	m.until("serving", func() bool { return m.health() == "HEALTH_SERVING " })

	// A bad one is one problem and one event; the others go on.
	m.write("manifests/bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n")
	m.until("problem", func() bool { return len(m.src.Items()[pod.SourceFile].GetProblems()) == 1 })
	problem := m.src.Items()[pod.SourceFile].GetProblems()[0]
	if problem.GetOrigin() != m.path("manifests/bad.yaml") || problem.GetField() != "spec.containers" {
		t.Errorf("problem %v", problem)
	}
	m.write("manifests/db.yaml", manifest("db", "i:1"))
	m.wants("default/db-n1", "default/web-n1")
	m.until("event", func() bool { return len(m.events("FailedValidation")) > 0 })
	if events := m.events("FailedValidation"); len(events) != 1 || events[0].GetObject().GetName() != "n1" ||
		!strings.Contains(events[0].GetMessage(), "bad.yaml") {
		t.Errorf("events %v", events)
	}

	// An edit is another pod; a typo keeps it; a removed file removes it.
	m.write("manifests/web.yaml", manifest("web", "i:2"))
	m.until("another uid", func() bool {
		return m.names() == "default/db-n1 default/web-n1" && m.pods.Items()[uid] == nil
	})
	uid = m.uid("web-n1")
	m.write("manifests/web.yaml", manifest("web", "i:2")+"x")
	m.until("two problems", func() bool { return len(m.src.Items()[pod.SourceFile].GetProblems()) == 2 })
	m.wants("default/db-n1", "default/web-n1")

	// How far config.pods has to be read for what it lacks to be gone.
	read := func() feed.Revision { return feed.RevisionFrom(m.src.Items()[pod.SourceFile].GetPodsRevision()) }
	known := func() bool { at, _, _, _ := m.pods.State(); return at.Reached(read()) }
	// The same over a restart, with its time of first sight.
	seen = m.pod(m.pods.Items()[uid]).Annotations[pod.ConfigSeenAnnotation]
	former := read().Epoch
	stop()
	m.start()
	m.until("both feeds of this life", func() bool { return read().Epoch != former && known() })
	m.until("two problems again", func() bool { return len(m.src.Items()[pod.SourceFile].GetProblems()) == 2 })
	m.wants("default/db-n1", "default/web-n1")
	if d := m.pods.Items()[uid]; d == nil || m.pod(d).Annotations[pod.ConfigSeenAnnotation] != seen {
		t.Errorf("pod of the last good version is %v", d)
	}
	before := read()
	m.remove("manifests/web.yaml")
	m.wants("default/db-n1")
	m.until("the removal is known", func() bool { return read() != before && known() })
	after := read()
	m.write("manifests/more.yaml", manifest("more", "i:1"))
	m.wants("default/db-n1", "default/more-n1")
	if read() != after {
		t.Errorf("an addition moves the revision to %v", read())
	}
	m.remove("manifests/more.yaml")
	m.wants("default/db-n1")
	if text := m.metrics(); !strings.Contains(text, `kubelet_desired_pods{static="true"} 1`) || !strings.Contains(text, `sextant_config_problems{source="file"} 1`) {
		t.Error("metrics do not tell")
	}
}

// TestDockerConfig: the node's own docker configuration, which docker makes root's alone, is
// handed on as it is now.
func TestDockerConfig(t *testing.T) {
	m := newMachine(t, folder+standalone)
	m.flags = []string{"--root-dir=" + m.dir}
	m.start()
	handed := func() (*configv1.Object, string) {
		item := m.sec.Items()["Secret//"+house.DockerConfig]
		secret := &v1.Secret{}
		if err := secret.Unmarshal(item.GetObject()); err != nil {
			t.Fatal(err)
		}
		return item, string(secret.Data[v1.DockerConfigJsonKey])
	}
	for _, text := range []string{`{"auths":{}}`, "nonsense"} { // which its reader judges
		m.write(house.DockerConfig, text)
		m.until("what is in it", func() bool { item, got := handed(); return got == text && item.GetError() == "" })
	}
	m.write(house.DockerConfig, strings.Repeat("x", maxDockerConfig+1))
	m.until("an error", func() bool {
		item, got := handed()
		return got == "" && strings.Contains(item.GetError(), "longer than")
	})
	m.remove(house.DockerConfig)
	m.until("none", func() bool { return len(m.sec.Items()) == 0 })
}

// TestUsedInPart: a field that nothing knows is a warning with file and field, told once,
// and the pod runs.
func TestUsedInPart(t *testing.T) {
	m := newMachine(t, folder+standalone)
	m.write("manifests/web.yaml", manifest("web", "i:1")+"status: {nonsense: 1}\n")
	stop := m.start()
	m.wants("default/web-n1")
	told := func() []*eventv1.Event { return m.events("ManifestUsedInPart") }
	m.until("event", func() bool { return len(told()) > 0 })
	m.write("manifests/db.yaml", manifest("db", "i:1"))
	m.wants("default/db-n1", "default/web-n1")
	want := m.path("manifests/web.yaml") + `: unknown field "status.nonsense"`
	if events := told(); len(events) != 1 || events[0].GetObject().GetName() != "n1" || events[0].GetMessage() != want {
		t.Errorf("events %v", events)
	}
	if problems := m.src.Items()[pod.SourceFile].GetProblems(); len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	stop()
}

func TestDuplicateName(t *testing.T) {
	m := newMachine(t, folder+standalone)
	m.write("manifests/b.yaml", manifest("web", "i:1"))
	m.start()
	m.wants("default/web-n1")
	m.write("manifests/a.yaml", manifest("web", "i:2"))
	m.until("refused", func() bool { return len(m.src.Items()[pod.SourceFile].GetProblems()) == 1 })
	m.wants("default/web-n1")
	if d := m.pods.Items()[m.uid("web-n1")]; d.GetOrigin() != m.path("manifests/b.yaml") {
		t.Errorf("pod is now from %s", d.GetOrigin())
	}
	m.until("event", func() bool { return len(m.events("FailedValidation")) > 0 })
	if events := m.events("FailedValidation"); len(events) != 1 || events[0].GetObject().GetKind() != "Pod" {
		t.Errorf("events %v", events)
	}
	m.remove("manifests/b.yaml")
	m.until("the other's turn", func() bool {
		for _, d := range m.pods.Items() {
			return d.GetOrigin() == m.path("manifests/a.yaml")
		}
		return false
	})
}

func TestStandaloneWithoutSources(t *testing.T) {
	m := newMachine(t, standalone)
	m.start()
	m.wants()
	m.until("serving", func() bool { return m.health() == "HEALTH_SERVING " && m.obj.Complete() && m.mir.Complete() })
	_, err := m.client.Token(t.Context(), &configv1.TokenRequest{Namespace: "ns", ServiceAccount: "sa", PodName: "p", PodUid: "u"})
	if !rpc.Is(err, rpc.Unavailable) {
		t.Errorf("token: %v", err)
	}
}

func TestConfiguration(t *testing.T) {
	m := newMachine(t, "maxPods: many\n"+standalone)
	if _, _, err := build(m.dir, nil, nil); err == nil || !strings.Contains(err.Error(), "maxPods") {
		t.Fatalf("a first configuration that is bad gave %v", err)
	}
	m.configure("maxPods: 7\n" + standalone)
	stop := m.start()
	inForce := func(generation uint64, maxPods int32) func() bool {
		return func() bool {
			item, ok := m.conf.Get("kubelet")
			if !ok || item.GetGeneration() != generation || !m.conf.Complete() {
				return false
			}
			c, err := kubeletconfig.Unmarshal(item.GetConfig())
			return err == nil && c.Kubelet.MaxPods == maxPods && c.Node.Name == "n1"
		}
	}
	m.until("generation 1", inForce(1, 7))
	m.configure("maxPods: 8\n" + standalone)
	m.until("generation 2, live", inForce(2, 8))
	m.until("event", func() bool { return len(m.events("KubeletConfigurationChanged")) == 1 })
	if text := m.events("KubeletConfigurationChanged")[0].GetMessage(); !strings.Contains(text, "maxPods") {
		t.Errorf("event %q does not name the field", text)
	}

	m.until("event of what is not honoured", func() bool { return len(m.events("KubeletConfigurationNotHonoured")) == 2 })
	if told := m.events("KubeletConfigurationNotHonoured"); !strings.Contains(told[1].GetMessage(), "enableProfilingHandler, ") {
		t.Errorf("events of what is not honoured: %v", told)
	}
	if text := m.metrics(); !strings.Contains(text, `sextant_not_honoured{name="enableProfilingHandler"} 1`) {
		t.Errorf("no metric of what is not honoured in\n%s", text)
	}

	m.configure("maxPods: -1\npodsPerCore: -2\n" + standalone)
	refused := func() bool {
		h := m.health()
		return strings.HasPrefix(h, "HEALTH_FAILING ") && strings.Contains(h, "podsPerCore")
	}
	m.until("refused", refused)
	m.until("event", func() bool { return len(m.events("InvalidKubeletConfiguration")) == 1 })
	m.until("still generation 2", inForce(2, 8))

	// The same over a restart: the last good one is served.
	stop()
	stop = m.start()
	m.until("refused at start", refused)
	m.until("last good one", inForce(2, 8))
	m.wants()
	m.configure("maxPods: 8\n" + standalone)
	m.until("good again", func() bool { return m.health() == "HEALTH_SERVING " })
	m.until("no new generation for the same", inForce(2, 8))
	stop()
	m.configure("maxPods: 9\n" + standalone)
	m.start()
	m.until("changed while down", inForce(3, 9))
}

// TestSourcesFollowConfiguration changes the manifest folder live.
func TestSourcesFollowConfiguration(t *testing.T) {
	m := newMachine(t, folder+standalone)
	if err := os.Mkdir(m.path("other"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.write("manifests/a.yaml", manifest("a", "i:1"))
	m.write("other/b.yaml", manifest("b", "i:1"))
	m.start()
	m.wants("default/a-n1")
	m.configure("staticPodPath: other\n" + standalone)
	m.wants("default/b-n1")
	m.configure(standalone)
	m.wants()
	m.until("no sources", func() bool { return len(m.src.Items()) == 0 && m.src.Complete() })
	m.configure(folder + standalone)
	m.wants("default/a-n1")
}

// TestSourceTakenAway: the pods of a manifest URL that was taken from the configuration
// while config was away do not come back with another URL that does not answer.
func TestSourceTakenAway(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(manifest("web", "i:1")))
	}))
	defer server.Close()
	m := newMachine(t, standalone+"staticPodURL: "+server.URL+"\n")
	stop := m.start()
	m.wants("default/web-n1")
	m.written()
	stop()
	m.configure(standalone)
	stop = m.start()
	m.wants()
	m.written()
	stop()
	m.configure(standalone + "staticPodURL: http://127.0.0.1:1/\n")
	m.start()
	m.until("the URL's error", func() bool { return m.src.Items()[pod.SourceHTTP].GetError() != "" })
	if err := m.pods.Pull(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.names(); got != "…" {
		t.Errorf("pods %s", got)
	}
}

// TestManifestWrittenAgain removes a manifest and writes the same at once, with
// kills of config between: each time the pod begins again under its UID, and never
// because of a kill.
func TestManifestWrittenAgain(t *testing.T) {
	m := newMachine(t, folder+standalone)
	m.write("manifests/web.yaml", manifest("web", "i:1"))
	kill := m.startProcess()
	m.wants("default/web-n1")
	uid := m.uid("web-n1")
	begun := func() time.Time {
		if at := m.pods.Items()[uid].GetBegunAt(); at != nil {
			return at.AsTime()
		}
		return time.Time{}
	}
	if at := begun(); !at.IsZero() {
		t.Errorf("what was there when config started began at %v", at)
	}
	for range 5 {
		was := begun()
		m.remove("manifests/web.yaml")
		m.write("manifests/web.yaml", manifest("web", "i:1"))
		m.until("a later beginning", func() bool { return begun().After(was) })
		is := begun()
		m.write("manifests/web.yaml", manifest("web", "i:1")) // as an editor does
		m.write("manifests/new.yaml", manifest("new", "i:1")) // read after that
		m.wants("default/new-n1", "default/web-n1")
		m.remove("manifests/new.yaml")
		m.wants("default/web-n1")
		kill()
		kill = m.startProcess()
		m.until("read", func() bool { return m.health() == "HEALTH_SERVING " && m.pods.Items()[uid] != nil })
		if at := begun(); !at.Equal(is) {
			t.Errorf("began at %v, after a kill at %v", is, at)
		}
	}
}

func TestDamagedStoreIsSetAside(t *testing.T) {
	m := newMachine(t, folder+standalone)
	m.write("manifests/web.yaml", manifest("web", "i:1"))
	state := m.paths().StateOf("config")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "config.db"), []byte(strings.Repeat("garbage", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	m.start()
	m.wants("default/web-n1")
	m.until("event", func() bool { return len(m.events("StateFileDamaged")) == 1 })
}

// TestManyEdits edits a manifest again and again (users: static pods race): a
// reader never sees two pods of the name, and the last version is the one that
// stays.
func TestManyEdits(t *testing.T) {
	m := newMachine(t, folder+standalone)
	m.write("manifests/web.yaml", manifest("web", "i:0"))
	m.start()
	m.wants("default/web-n1")
	var doubled, emptied atomic.Int32
	m.pods.Watch(func([]string) {
		switch len(m.pods.Items()) {
		case 0:
			emptied.Add(1)
		case 1:
		default:
			doubled.Add(1)
		}
	})
	for i := range 100 {
		m.write("manifests/web.yaml", manifest("web", "i:"+strconv.Itoa(i+1)))
		if i%10 == 9 { // between bursts, wait for what was written last
			m.until("edit", func() bool {
				for _, d := range m.pods.Items() {
					return m.pod(d).Spec.Containers[0].Image == "i:"+strconv.Itoa(i+1)
				}
				return false
			})
		}
	}
	if doubled.Load() > 0 {
		t.Errorf("two pods of one name, %d times", doubled.Load())
	}
	t.Logf("no pod for a moment: %d times", emptied.Load())
}
