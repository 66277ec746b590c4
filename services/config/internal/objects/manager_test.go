// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sextant-node/sextant/pkg/pod"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/refs"
	"github.com/sextant-node/sextant/test/apitest"
)

// told collects what a manager tells.
type told struct {
	mu      sync.Mutex
	objects map[refs.Ref]*configv1.Object
	changes int
	news    chan struct{}
}

func newManager() (*Manager, *told) {
	d := &told{objects: map[refs.Ref]*configv1.Object{}, news: make(chan struct{}, 1)}
	tell := func(f func()) {
		d.mu.Lock()
		f()
		d.mu.Unlock()
		select {
		case d.news <- struct{}{}:
		default:
		}
	}
	return New(Config{
		Publish:  func(r refs.Ref, o *configv1.Object) { tell(func() { d.objects[r] = o }) },
		Withdraw: func(r refs.Ref) { tell(func() { delete(d.objects, r) }) },
		Changed:  func() { tell(func() { d.changes++ }) },
		Log:      slog.New(slog.DiscardHandler),
	}), d
}

func (d *told) changed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changes
}

func (d *told) until(t *testing.T, what string, ok func(map[refs.Ref]*configv1.Object) bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		d.mu.Lock()
		objects := maps.Clone(d.objects)
		d.mu.Unlock()
		// Not under the lock, which the manager takes when it tells: ok may ask the manager.
		if ok(objects) {
			return
		}
		select {
		case <-d.news:
		case <-limit:
			t.Fatalf("%s: told %v", what, objects)
		}
	}
}

// has waits until an object is told with some text in its bytes.
func (d *told) has(t *testing.T, r refs.Ref, text string) {
	t.Helper()
	d.until(t, r.Key()+" with "+text, func(all map[refs.Ref]*configv1.Object) bool {
		return all[r].GetError() == "" && strings.Contains(string(all[r].GetObject()), text)
	})
}

func (d *told) absent(t *testing.T, r refs.Ref) {
	t.Helper()
	d.until(t, r.Key()+" absent", func(all map[refs.Ref]*configv1.Object) bool {
		return all[r].GetAbsent() && len(all[r].GetObject()) == 0
	})
}

// connect runs a manager with a client of the server until it is ended.
func connect(t *testing.T, m *Manager, s *apitest.Server, ttl time.Duration) (end func()) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { m.Run(ctx, client, client, ttl); close(done) }()
	end = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(end)
	return end
}

func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"k": value}}
}

var (
	refMap    = refs.Ref{Kind: refs.ConfigMap, Namespace: "ns", Name: "m"}
	refSecret = refs.Ref{Kind: refs.Secret, Namespace: "ns", Name: "s"}
)

func set(all ...refs.Ref) refs.Set {
	s := refs.Set{}
	s.Add(all...)
	return s
}

func TestWatched(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	server.Put("configmaps", configMap("m", "one"))
	server.Put("configmaps", configMap("other", "secret of another pod"))
	m.Want(set(refMap, refSecret), false)
	end := connect(t, m, server, 0)
	told.has(t, refMap, "one")
	told.absent(t, refSecret)
	server.Put("configmaps", configMap("m", "two"))
	told.has(t, refMap, "two")
	server.Put("secrets", &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"k": []byte("pw")}})
	told.has(t, refSecret, "pw")
	server.Delete("secrets", "ns", "s")
	told.absent(t, refSecret)

	// Not wanted any more: withdrawn. Wanted again: read again.
	m.Want(set(refSecret), false)
	told.until(t, "withdrawn", func(all map[refs.Ref]*configv1.Object) bool { return len(all) == 1 && all[refMap] == nil })
	m.Want(set(refMap), false)
	told.has(t, refMap, "two")

	// Away: it stays. A new session takes up what changed meanwhile.
	server.Away(true)
	end()
	server.Put("configmaps", configMap("m", "three"))
	told.has(t, refMap, "two")
	server.Away(false)
	connect(t, m, server, 0)
	told.has(t, refMap, "three")
	for _, o := range told.objects {
		if strings.Contains(string(o.GetObject()), "another pod") {
			t.Error("told what nobody wanted")
		}
	}
}

func TestReconnectWithinASession(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	server.Put("configmaps", configMap("m", "one"))
	m.Want(set(refMap), false)
	connect(t, m, server, 0)
	told.has(t, refMap, "one")
	server.Away(true)
	server.Put("configmaps", configMap("m", "two"))
	server.Away(false)
	told.has(t, refMap, "two")
}

func TestErrors(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	server.Put("configmaps", configMap("m", "one"))
	server.Refuse("configmaps", "ns", "m", true)
	m.Want(set(refMap), false)
	end := connect(t, m, server, 0)
	told.until(t, "forbidden", func(all map[refs.Ref]*configv1.Object) bool {
		o := all[refMap]
		return strings.Contains(o.GetError(), "forbidden") && !o.GetAbsent() && len(o.GetObject()) == 0
	})
	server.Refuse("configmaps", "ns", "m", false)
	told.has(t, refMap, "one")
	server.Refuse("configmaps", "ns", "m", true)
	end()
	connect(t, m, server, 0)
	told.until(t, "forbidden after it was read", func(all map[refs.Ref]*configv1.Object) bool {
		o := all[refMap]
		return strings.Contains(o.GetError(), "forbidden") && strings.Contains(string(o.GetObject()), "one")
	})
}

// TestForbiddenAtFirst: the node authorizer learns of a pod a moment after the
// node: what it says until then is no answer.
func TestForbiddenAtFirst(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	var ahead atomic.Int64
	asked := make(chan struct{})
	m.cache.cfg.Now = func() time.Time {
		select {
		case asked <- struct{}{}:
		default:
		}
		return time.Unix(ahead.Load(), 0)
	}
	server.Put("configmaps", configMap("m", "one"))
	server.Refuse("configmaps", "ns", "m", true)
	m.Want(set(refMap), false)
	connect(t, m, server, 0)
	for range 2 {
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("not asked again")
		}
	}
	told.mu.Lock()
	if text := told.objects[refMap].GetError(); text != "" {
		t.Errorf("told at once: %s", text)
	}
	told.mu.Unlock()
	ahead.Store(3)
	told.until(t, "forbidden", func(all map[refs.Ref]*configv1.Object) bool {
		return strings.Contains(all[refMap].GetError(), "forbidden")
	})
	server.Refuse("configmaps", "ns", "m", false)
	told.has(t, refMap, "one")
}

func TestNeverReadWhileAway(t *testing.T) {
	server := apitest.New(t)
	server.Away(true)
	m, told := newManager()
	m.Want(set(refMap), false)
	connect(t, m, server, 0)
	told.until(t, "error", func(all map[refs.Ref]*configv1.Object) bool {
		return all[refMap].GetError() != "" && !all[refMap].GetAbsent()
	})
}

func TestImmutableIsNotWatched(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	yes := true
	fixed := configMap("m", "one")
	fixed.Immutable = &yes
	server.Put("configmaps", fixed)
	server.Put("configmaps", configMap("n", "one"))
	other := refs.Ref{Kind: refs.ConfigMap, Namespace: "ns", Name: "n"}
	m.Want(set(refMap, other), false)
	connect(t, m, server, 0)
	told.has(t, refMap, "one")
	told.has(t, other, "one")
	server.Put("configmaps", configMap("m", "two"))
	server.Put("configmaps", configMap("n", "two"))
	told.has(t, other, "two")
	told.has(t, refMap, "one")
}

func TestTTLAsks(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	server.Put("configmaps", configMap("m", "one"))
	m.Want(set(refMap, refSecret), false)
	connect(t, m, server, 10*time.Millisecond)
	told.has(t, refMap, "one")
	told.absent(t, refSecret)
	server.Put("configmaps", configMap("m", "two"))
	told.has(t, refMap, "two")
	if n := server.Requests("watch configmaps") + server.Requests("list configmaps"); n != 0 {
		t.Errorf("%d lists and watches", n)
	}
}

// TestArrived: for a pod that comes, what is asked for each hour is asked for at once, and
// told when that is answered.
func TestArrived(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	server.Put("configmaps", configMap("m", "one"))
	m.Want(set(refMap, refSecret), false)
	m.Arrived(set(refMap)) // there is no API server yet
	connect(t, m, server, time.Hour)
	told.has(t, refMap, "one")
	told.absent(t, refSecret)
	release := server.Stall("get configmaps")
	defer release()
	server.Put("configmaps", configMap("m", "two"))
	server.Put("secrets", &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"k": []byte("here")}})
	m.Arrived(set(refMap, refSecret))
	told.until(t, "nothing", func(all map[refs.Ref]*configv1.Object) bool { return len(all[refMap].GetObject()) == 0 })
	told.has(t, refSecret, "here")
	release()
	told.has(t, refMap, "two")

	// One that cannot change is not asked for again.
	forever := true
	fixed := configMap("m", "three")
	fixed.Immutable = &forever
	server.Put("configmaps", fixed)
	m.Arrived(set(refMap))
	told.has(t, refMap, "three")
	m.Arrived(set(refMap))
	told.has(t, refMap, "three")
}

// TestAProxysAnswer: the 404 of a load balancer does not say that an object is absent.
func TestAProxysAnswer(t *testing.T) {
	proxy := httptest.NewServer(http.NotFoundHandler())
	defer proxy.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: proxy.URL})
	if err != nil {
		t.Fatal(err)
	}
	m, told := newManager()
	m.Want(set(refMap), false)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { m.Run(ctx, client, client, time.Minute); close(done) }()
	defer func() { cancel(); <-done }()
	var o *configv1.Object
	told.until(t, "an answer", func(all map[refs.Ref]*configv1.Object) bool {
		o = all[refMap]
		return o.GetAbsent() || o.GetError() != ""
	})
	if o.GetAbsent() {
		t.Error("absent")
	}
}

func TestClaimsAreFollowedToTheirVolumes(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	claim := refs.Ref{Kind: refs.PersistentVolumeClaim, Namespace: "ns", Name: "data"}
	volume := refs.Ref{Kind: refs.PersistentVolume, Name: "pv"}
	server.Put("persistentvolumeclaims", &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}})
	server.Put("persistentvolumes", &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}})
	direct := [][]refs.Ref{{claim}}
	m.Want(refs.Collect("n1", direct, m.Lookup), false)
	connect(t, m, server, 0)
	told.has(t, claim, "data")
	server.Put("persistentvolumeclaims", &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	})
	told.until(t, "told that it names a volume", func(map[refs.Ref]*configv1.Object) bool {
		return told.changed() > 1 && refs.Collect("n1", direct, m.Lookup).Has(volume) // the first is for the services
	})
	m.Want(refs.Collect("n1", direct, m.Lookup), false)
	told.has(t, volume, "pv")
}

func TestKindsOfTheirOwnGroups(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	class := refs.Ref{Kind: refs.RuntimeClass, Name: "gvisor"}
	driver := refs.Ref{Kind: refs.CSIDriver, Name: "csi.example"}
	claim := refs.Ref{Kind: refs.ResourceClaim, Namespace: "ns", Name: "gpu"}
	node := refs.Ref{Kind: refs.Node, Name: "n1"}
	server.Put("runtimeclasses", &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"})
	server.Put("resourceclaims", &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gpu"}})
	server.Put("nodes", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	server.Put("nodes", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	m.Want(set(class, driver, claim, node), false)
	connect(t, m, server, 0)
	told.has(t, class, "runsc")
	told.has(t, claim, "gpu")
	told.has(t, node, "n1")
	told.absent(t, driver)
}

func service(namespace, name, ip string) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.ServiceSpec{ClusterIP: ip}}
}

func TestServices(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	for _, s := range []*v1.Service{
		service("default", "kubernetes", "10.0.0.1"), service("default", "other", "10.0.0.2"),
		service("ns", "web", "10.0.0.3"), service("ns", "headless", "None"), service("ns", "named", ""),
	} {
		server.Put("services", s)
	}
	keys := func(want ...string) func(map[refs.Ref]*configv1.Object) bool {
		return func(all map[refs.Ref]*configv1.Object) bool {
			var got []string
			for r := range all {
				got = append(got, r.Namespace+"/"+r.Name)
			}
			slices.Sort(got)
			return slices.Equal(got, want)
		}
	}
	m.WantServices(map[string]bool{"ns": true}, false)
	connect(t, m, server, 0)
	told.until(t, "first", keys("default/kubernetes", "ns/web"))
	if !m.ServicesHeard() {
		t.Error("services told but not heard")
	}
	server.Put("services", service("ns", "db", "10.0.0.4"))
	told.until(t, "added", keys("default/kubernetes", "ns/db", "ns/web"))
	server.Put("services", service("ns", "web", "None"))
	told.until(t, "headless now", keys("default/kubernetes", "ns/db"))
	m.WantServices(map[string]bool{"default": true}, true)
	told.until(t, "kept, and another namespace", keys("default/kubernetes", "default/other", "ns/db"))
	m.WantServices(map[string]bool{"default": true}, false)
	told.until(t, "not kept", keys("default/kubernetes", "default/other"))
	server.Delete("services", "default", "other")
	told.until(t, "deleted", keys("default/kubernetes"))
	m.Want(set(), false)
	told.until(t, "Want leaves services alone", keys("default/kubernetes"))
}

func TestRestored(t *testing.T) {
	m, told := newManager()
	data, err := configMap("m", "kept").Marshal()
	if err != nil {
		t.Fatal(err)
	}
	svc, err := service("ns", "gone", "10.0.0.9").Marshal()
	if err != nil {
		t.Fatal(err)
	}
	refService := refs.Ref{Kind: refs.Service, Namespace: "ns", Name: "gone"}
	for r, d := range map[refs.Ref][]byte{refMap: data, refService: svc} {
		if err := m.Restore(r, &configv1.Object{Object: d}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Restore(refSecret, &configv1.Object{Object: []byte("\xff\xff")}); err == nil {
		t.Error("garbage was restored")
	}
	if err := m.Restore(refs.Ref{Kind: "Nonsense", Name: "x"}, &configv1.Object{}); err == nil {
		t.Error("an unknown kind was restored")
	}
	told.has(t, refMap, "kept")
	told.has(t, refService, "gone")
	m.Want(set(), true) // the pods are not all known yet
	told.has(t, refMap, "kept")

	server := apitest.New(t)
	m.Want(set(refMap), true)
	m.WantServices(map[string]bool{"ns": true}, true)
	connect(t, m, server, 0)
	told.absent(t, refMap) // deleted meanwhile
	told.until(t, "service is gone", func(all map[refs.Ref]*configv1.Object) bool { return all[refService] == nil })
}

// TestFresh: of what was kept nothing is told to a pod that came since, until the API server
// has said what it is.
func TestFresh(t *testing.T) {
	m, told := newManager()
	data, err := configMap("m", "kept").Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(refMap, &configv1.Object{Object: data}); err != nil {
		t.Fatal(err)
	}
	m.Want(set(refMap), true)
	told.has(t, refMap, "kept")
	if !m.Unread() {
		t.Error("what was kept counts as read")
	}
	m.Fresh(set(refMap, refSecret)) // one is not known at all
	unread := func(all map[refs.Ref]*configv1.Object) bool {
		return len(all[refMap].GetObject()) == 0 && !all[refMap].GetAbsent() && all[refMap].GetError() == ""
	}
	told.until(t, "nothing", unread)
	if m.Lookup(refMap) == nil {
		t.Error("what it names is not known any more")
	}

	m.cache.fail(t.Context(), refMap, apierrors.NewUnauthorized("who"))
	told.until(t, "refused", func(all map[refs.Ref]*configv1.Object) bool {
		return all[refMap].GetError() != "" && len(all[refMap].GetObject()) == 0
	})
	server := apitest.New(t)
	server.Put("configmaps", configMap("m", "now"))
	connect(t, m, server, 0)
	told.has(t, refMap, "now")
	m.Fresh(set(refMap))
	told.has(t, refMap, "now") // it was read
	if m.Unread() {
		t.Error("something is not read yet")
	}
}

func TestNext(t *testing.T) {
	bound := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	growing := bound.DeepCopy()
	growing.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	volume := func(claim types.UID) *v1.PersistentVolume {
		return &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{Name: "c", UID: claim}}}
	}
	const first, most = 200 * time.Millisecond, 10 * time.Second
	for name, c := range map[string]struct {
		unsettled int
		object    Object
		ttl       time.Duration
		want      time.Duration
	}{
		"absent":          {0, nil, 0, first},
		"absent again":    {1, nil, 0, 2 * first},
		"absent for long": {100, nil, 0, most},
		"unbound":         {1, &v1.PersistentVolumeClaim{}, 0, 2 * first},
		"bound":           {1, bound, 0, time.Minute},
		"unallocated":     {1, &resourcev1.ResourceClaim{}, 0, 2 * first},
		"cached":          {1, &v1.Secret{}, 3 * time.Second, 3 * time.Second},
		"nobody's":        {1, &v1.PersistentVolume{}, 0, 2 * first},
		"settled":         {1, volume("u"), 0, untilSigns},
		"half bound":      {1, volume(""), 0, 2 * first},
		"growing":         {1, growing, 0, 2 * first},
	} {
		p := pace{waits: unsettledWaits, unsettled: c.unsettled}
		if got := p.next(c.object, c.object != nil && settled(c.object, nil), c.ttl, time.Minute); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestSigns asks for an object that is as it should be ever more rarely after a sign, and
// then until the next no more.
func TestSigns(t *testing.T) {
	p := pace{waits: unsettledWaits}
	attached := &v1.PersistentVolume{}
	if got := p.next(attached, true, 0, time.Minute); got != untilSigns {
		t.Errorf("without a sign: %s", got)
	}
	for range 2 {
		p.sign()
		var asked []time.Duration
		for wait := p.next(attached, true, 0, time.Minute); wait != untilSigns; wait = p.next(attached, true, 0, time.Minute) {
			asked = append(asked, wait)
		}
		if len(asked) != 10 || asked[0] != 200*time.Millisecond || asked[1] != 400*time.Millisecond || asked[9] != time.Minute {
			t.Errorf("after a sign: %s", asked)
		}
	}
}

func TestAnswered(t *testing.T) {
	for err, want := range map[error]bool{
		apierrors.NewForbidden(schema.GroupResource{}, "x", nil): true,
		apierrors.NewTooManyRequests("later", 1):                 false,
		apierrors.NewInternalError(errors.New("x")):              false,
		http.ErrHandlerTimeout:                                   false,
		apierrors.NewGenericServerResponse(http.StatusForbidden, "get", schema.GroupResource{}, "x", "blocked", 0, true): false,
	} {
		if got := answered(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestAttachmentsAreAskedForUntilAttached(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	volume := refs.Ref{Kind: refs.PersistentVolume, Name: "pv"}
	source := &v1.CSIPersistentVolumeSource{Driver: "csi.example", VolumeHandle: "vol-1"}
	attachment := refs.Ref{Kind: refs.VolumeAttachment, Name: refs.Attachment(source, "n1")}
	server.Put("persistentvolumes", &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec:       v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{CSI: source}},
	})
	server.Put("volumeattachments", &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: attachment.Name}})
	direct := [][]refs.Ref{{volume}}
	m.Want(refs.Collect("n1", direct, m.Lookup), false)
	connect(t, m, server, 0)
	told.has(t, volume, "vol-1")
	m.Want(refs.Collect("n1", direct, m.Lookup), false)
	told.has(t, attachment, attachment.Name)
	server.Put("volumeattachments", &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachment.Name},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "sdx"}},
	})
	told.has(t, attachment, "sdx")
	// A driver that needs no attaching has none.
	no := false
	server.Put("csidrivers", &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}})
	told.until(t, "told that the driver is known", func(map[refs.Ref]*configv1.Object) bool {
		return !refs.Collect("n1", direct, m.Lookup).Has(attachment)
	})
}

// TestAskedForOnSigns: volumes, attachments and claims on resources that are as they
// should be are not asked for any more, however often the claim is, until the claim
// or the Node says that one of them may have changed.
func TestAskedForOnSigns(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	m.cache.cfg.Again = time.Millisecond
	m.routine = flowcontrol.NewFakeAlwaysRateLimiter()
	claim := refs.Ref{Kind: refs.PersistentVolumeClaim, Namespace: "ns", Name: "data"}
	volume := refs.Ref{Kind: refs.PersistentVolume, Name: "pv"}
	devices := refs.Ref{Kind: refs.ResourceClaim, Namespace: "ns", Name: "gpu"}
	node := refs.Ref{Kind: refs.Node, Name: "n1"}
	attachment := refs.Ref{Kind: refs.VolumeAttachment, Name: "a"}
	bound := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{Name: "data", UID: "u"}}}
	attached := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	host := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	server.Put("persistentvolumeclaims", bound)
	server.Put("persistentvolumes", pv)
	server.Put("volumeattachments", attached)
	server.Put("nodes", host)
	server.Put("resourceclaims", &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gpu"}, Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}},
	})
	m.Want(set(claim, volume, devices, node, attachment), false)
	connect(t, m, server, 0)
	for _, ref := range []refs.Ref{claim, volume, devices, node, attachment} {
		told.has(t, ref, ref.Name)
	}
	others := func() (n [3]int) {
		for i, resource := range []string{"persistentvolumes", "volumeattachments", "resourceclaims"} {
			n[i] = server.Requests("get " + resource)
		}
		return n
	}
	told.until(t, "the claim asked for again and again", func(map[refs.Ref]*configv1.Object) bool {
		return server.Requests("get persistentvolumeclaims") > 50
	})
	if n := others(); n != [3]int{1, 1, 1} {
		t.Errorf("volumes, attachments and claims on resources were asked for %v times", n)
	}
	server.Put("persistentvolumes", func() *v1.PersistentVolume { p := pv.DeepCopy(); p.Spec.StorageClassName = "grown"; return p }())
	changed := bound.DeepCopy()
	changed.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
	server.Put("persistentvolumeclaims", changed)
	told.has(t, volume, "grown")
	server.Put("volumeattachments", func() *storagev1.VolumeAttachment {
		a := attached.DeepCopy()
		a.Status.AttachmentMetadata = map[string]string{"device": "sdx"}
		return a
	}())
	host = host.DeepCopy()
	host.Status.VolumesAttached = []v1.AttachedVolume{{Name: "x"}}
	server.Put("nodes", host)
	told.has(t, attachment, "sdx")
}

// TestAResourceClaimIsAskedForUntilReserved: another pod that uses a claim has it asked for
// until it is reserved for that pod too, and not any more then.
func TestAResourceClaimIsAskedForUntilReserved(t *testing.T) {
	server := apitest.New(t)
	m, told := newManager()
	devices := refs.Ref{Kind: refs.ResourceClaim, Namespace: "ns", Name: "gpu"}
	put := func(users ...types.UID) {
		claim := &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gpu"}, Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}},
		}
		for _, uid := range users {
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", UID: uid})
		}
		server.Put("resourceclaims", claim)
	}
	asked := func() int { return server.Requests("get resourceclaims") }
	put("first-pod")
	m.Users(map[refs.Ref][]types.UID{devices: {"first-pod"}})
	m.Want(set(devices), false)
	connect(t, m, server, 0)
	told.has(t, devices, "first-pod")
	if n := asked(); n != 1 {
		t.Errorf("asked for %d times", n)
	}
	m.Users(map[refs.Ref][]types.UID{devices: {"first-pod", "second-pod"}})
	told.until(t, "asked for again and again", func(map[refs.Ref]*configv1.Object) bool { return asked() > 3 })
	put("first-pod", "second-pod")
	told.has(t, devices, "second-pod")
}

// TestTrustBundles: one by name, and all of a signer that match as one.
func TestTrustBundles(t *testing.T) {
	s := apitest.New(t)
	put := func(name, signer, label, text string) {
		s.Put("clustertrustbundles", &certificatesv1beta1.ClusterTrustBundle{
			TypeMeta:   metav1.TypeMeta{Kind: "ClusterTrustBundle", APIVersion: "certificates.k8s.io/v1beta1"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ring": label}},
			Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text},
		})
	}
	m, d := newManager()
	alone := refs.Ref{Kind: pod.TrustBundle, Name: "alone"}
	live := refs.Ref{Kind: pod.SignersBundle, Name: "example.com/s?ring=live"}
	wrong := refs.Ref{Kind: pod.SignersBundle, Name: "example.com/s?=="}
	m.Want(refs.Set{alone: {}, live: {}, wrong: {}}, false)
	connect(t, m, s, 0)
	d.absent(t, alone)
	d.absent(t, live)
	d.until(t, "what no selector is", func(all map[refs.Ref]*configv1.Object) bool { return all[wrong].GetError() != "" })
	put("alone", "", "live", "anchor alone")
	put("b", "example.com/s", "live", "anchor b")
	put("a", "example.com/s", "live", "anchor a\n\n")
	put("c", "example.com/s", "canary", "anchor c")
	put("d", "example.com/other", "live", "anchor d")
	d.has(t, alone, "anchor alone")
	d.has(t, live, "anchor a\nanchor b\n")
	put("b", "example.com/s", "canary", "anchor b")
	put("c", "example.com/s", "live", "anchor c")
	d.has(t, live, "anchor a\nanchor c\n")
	s.Delete("clustertrustbundles", "", "a")
	s.Delete("clustertrustbundles", "", "c")
	d.absent(t, live)
	put("e", "example.com/s", "live", "anchor e")
	d.has(t, live, "anchor e")
	// Another life begins with what was known.
	again, told := newManager()
	d.mu.Lock()
	kept := d.objects[live]
	d.mu.Unlock()
	if err := again.Restore(live, kept); err != nil {
		t.Fatal(err)
	}
	told.has(t, live, "anchor e")
}

// TestWhatIsNotWatchedDoesNotLinger: a ConfigMap that is deleted and made again is read
// again for the next pod, where nobody would hear of that: it cannot be changed, or is
// asked for from time to time only.
func TestWhatIsNotWatchedDoesNotLinger(t *testing.T) {
	for name, c := range map[string]struct {
		immutable bool
		ttl       time.Duration
	}{"immutable": {true, 0}, "asked for": {false, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			s := apitest.New(t)
			put := func(text string) {
				object := configMap("m", text)
				object.Immutable = &c.immutable
				s.Put("configmaps", object)
			}
			put("one")
			m, d := newManager()
			m.cache.cfg.Linger = time.Hour
			m.Want(set(refMap), false)
			connect(t, m, s, c.ttl)
			d.has(t, refMap, "one")
			m.Want(set(), false)
			d.until(t, "gone", func(all map[refs.Ref]*configv1.Object) bool { return all[refMap] == nil })
			s.Delete("configmaps", "ns", "m")
			put("two")
			m.Want(set(refMap), false)
			d.until(t, "the new one, and never the old", func(all map[refs.Ref]*configv1.Object) bool {
				object := string(all[refMap].GetObject())
				if strings.Contains(object, "one") {
					t.Fatalf("the next pod is given the deleted ConfigMap: %q", object)
				}
				return strings.Contains(object, "two")
			})
		})
	}
}

// TestConfigMapsLinger: the next pod finds a ConfigMap followed, and its changes known; a
// Secret goes at once.
func TestConfigMapsLinger(t *testing.T) {
	s := apitest.New(t)
	put := func(text string) {
		s.Put("configmaps", &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Data: map[string]string{"k": text}})
	}
	put("one")
	s.Put("secrets", &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}})
	m, d := newManager()
	var passed atomic.Int64 // besides the time that the test takes
	m.cache.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	m.cache.cfg.Linger = time.Hour
	config, secret := refs.Ref{Kind: refs.ConfigMap, Namespace: "ns", Name: "c"}, refs.Ref{Kind: refs.Secret, Namespace: "ns", Name: "s"}
	m.Want(refs.Set{config: {}, secret: {}}, false)
	connect(t, m, s, 0)
	d.has(t, config, "one")
	d.has(t, secret, "s")
	m.Want(refs.Set{}, false)
	d.mu.Lock()
	_, configThere := d.objects[config]
	_, secretThere := d.objects[secret]
	d.mu.Unlock()
	if !configThere || secretThere {
		t.Errorf("the ConfigMap is there: %v, the Secret: %v", configThere, secretThere)
	}
	m.Want(refs.Set{config: {}}, false)
	put("two")
	d.has(t, config, "two")
	passed.Store(int64(2 * m.cache.cfg.Linger)) // it is wanted again: nothing may come of the time before
	m.cache.mu.Lock()
	it := m.cache.items[config]
	m.cache.mu.Unlock()
	m.sweep(it)
	m.Want(refs.Set{config: {}}, false)
	d.has(t, config, "two")
	if n := s.Requests("watch configmaps"); n != 1 {
		t.Errorf("%d watches", n)
	}
	m.cache.mu.Lock()
	m.cache.cfg.Linger = time.Millisecond
	m.cache.mu.Unlock()
	m.Want(refs.Set{}, false)
	m.Want(refs.Set{}, false)
	d.until(t, "the ConfigMap to go", func(all map[refs.Ref]*configv1.Object) bool { return len(all) == 0 })
}
