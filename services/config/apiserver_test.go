// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/test/apitest"
)

// joined is a machine joined to an API server.
func joined(t *testing.T, configuration string) (*machine, *apitest.Server) {
	server := apitest.New(t)
	m := newMachine(t, configuration)
	m.flags = []string{"--kubeconfig=" + server.Kubeconfig(t, m.dir)}
	server.Put("nodes", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	server.Put("services", &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1"}})
	server.Put("services", &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.2"}})
	server.Put("services", &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "far", Name: "web"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.3"}})
	return m, server
}

func withRefs(p *v1.Pod) {
	p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "pull"}}
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "m"}}}}}
}

func (m *machine) objects() string {
	var all []string
	for key, o := range m.obj.Items() {
		all = append(all, key+mark(o))
	}
	for key, o := range m.sec.Items() {
		all = append(all, key+mark(o))
	}
	return strings.Join(slices.Sorted(slices.Values(all)), " ")
}

func mark(o *configv1.Object) string {
	switch {
	case o.GetAbsent():
		return "!"
	case len(o.GetObject()) == 0:
		return "?"
	}
	return ""
}

func TestAPIServer(t *testing.T) {
	m, server := joined(t, folder)
	m.write("manifests/etcd.yaml", manifest("etcd", "i:1"))
	server.Put("pods", apiPod("app", "u1", withRefs))
	server.Put("configmaps", &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}})
	m.start()
	m.wants("default/etcd-n1", "ns/app")
	m.until("objects", func() bool {
		return m.obj.Complete() && m.objects() ==
			"ConfigMap/ns/m Node//n1 Secret/ns/pull! Service/default/kubernetes Service/ns/web"
	})
	if slices.ContainsFunc(slices.Collect(keysOf(m.obj.Items())), isSecret) {
		t.Error("a Secret is in config.objects")
	}
	server.Put("secrets", &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pull"}})
	m.until("secret", func() bool { return m.sec.Complete() && strings.Contains(m.objects(), "Secret/ns/pull ") })

	// Mirror pods: attached, listed, not desired; without a static pod listed still.
	mirrorOf := func(name, uid string) *v1.Pod {
		p := apiPod(name, uid)
		p.Namespace = "default"
		p.Annotations = map[string]string{pod.ConfigMirrorAnnotation: "h"}
		return p
	}
	server.Put("pods", mirrorOf("etcd-n1", "m1"))
	server.Put("pods", mirrorOf("old-n1", "m2"))
	m.wants("default/etcd-n1+mirror", "ns/app")
	m.until("mirrors", func() bool {
		_, etcd := m.mir.Get("default/etcd-n1")
		_, old := m.mir.Get("default/old-n1")
		return etcd && old && m.mir.Complete()
	})
	server.Delete("pods", "default", "old-n1")
	server.Delete("pods", "default", "etcd-n1")
	m.wants("default/etcd-n1", "ns/app")

	// A pod on its way out stays until the API server has it no more.
	now := metav1.Now()
	server.Put("pods", apiPod("app", "u1", func(p *v1.Pod) { p.DeletionTimestamp = &now }))
	m.until("deletion", func() bool {
		d := m.pods.Items()["u1"]
		return d != nil && m.pod(d).DeletionTimestamp != nil
	})
	// Nobody refers to them now; a ConfigMap lingers.
	m.until("objects dropped", func() bool { return m.objects() == "ConfigMap/ns/m Node//n1 Service/default/kubernetes Service/ns/web" })
	server.Delete("pods", "ns", "app")
	m.wants("default/etcd-n1")
	m.until("services of the namespace dropped", func() bool { return m.objects() == "ConfigMap/ns/m Node//n1 Service/default/kubernetes" })
}

func keysOf[V any](all map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range all {
			if !yield(k) {
				return
			}
		}
	}
}

// TestStatusesApart: a write of a status wakes the readers of config.statuses and no
// others; a reader that starts has it in config.pods too. Of the status config.pods has
// at once what the node decides by.
func TestStatusesApart(t *testing.T) {
	m, server := joined(t, folder)
	m.write("manifests/etcd.yaml", manifest("etcd", "i:1"))
	mirror := func(message string) {
		server.Put("pods", apiPod("etcd-n1", "m1", func(p *v1.Pod) {
			p.Namespace, p.Annotations = "default", map[string]string{pod.ConfigMirrorAnnotation: "h"}
			p.Status.Message = message
		}))
	}
	mirror("")
	app := func(change ...func(*v1.Pod)) { server.Put("pods", apiPod("app", "u1", change...)) }
	app()
	m.start()
	m.wants("default/etcd-n1+mirror", "ns/app")
	m.until("statuses", func() bool { _, ok := m.stat.Get("u1"); return ok && m.stat.Complete() })
	m.until("the API server's pods here", func() bool { return m.src.Items()[pod.SourceAPI].GetPodsRevision() != nil })
	status := func(o *configv1.Object) *v1.Pod {
		p := &v1.Pod{}
		if err := p.Unmarshal(o.GetObject()); err != nil {
			t.Fatal(err)
		}
		return p
	}
	says := func(message string) {
		t.Helper()
		m.until("status "+message, func() bool { return status(m.stat.Items()["u1"]).Status.Message == message })
	}
	// fresh is the pod that a reader gets which starts now.
	fresh := func() *v1.Pod {
		t.Helper()
		reader := feed.NewReplica(feed.ReplicaConfig{Feed: house.ConfigPods.Name, Puller: m.puller}, feed.Decoder(feed.Whole[*configv1.DesiredPod]))
		if err := reader.Pull(t.Context()); err != nil {
			t.Fatal(err)
		}
		d, _ := reader.Get("u1")
		if !d.GetStatusApart() {
			t.Error("the pod does not say where its status is")
		}
		return m.pod(d)
	}
	if err := m.pods.Pull(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, _, _, _ := m.pods.State()
	quiet := func() {
		t.Helper()
		if err := m.pods.Pull(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now, _, _, _ := m.pods.State(); now != before {
			t.Errorf("config.pods is at %v, and was at %v: all of its readers were woken", now, before)
			before = now
		}
	}
	for _, message := range []string{"one", "two", "three"} {
		mirror(message)
		app(func(p *v1.Pod) {
			p.Status = v1.PodStatus{Phase: v1.PodRunning, Message: message, HostIP: "192.0.2.1", PodIP: "192.0.2.7",
				ContainerStatuses: []v1.ContainerStatus{{Name: "c", RestartCount: 7}}}
		})
		says(message)
	}
	m.until("status of the mirror pod", func() bool { return status(m.mir.Items()["default/etcd-n1"]).Status.Message == "three" })
	quiet()
	at := status(m.stat.Items()["u1"])
	if at.UID != "u1" || at.Name != "app" || at.Namespace != "ns" || at.ResourceVersion == "" || len(at.Spec.Containers) > 0 {
		t.Errorf("config.statuses has %v", at)
	}
	if p := fresh(); p.Status.ContainerStatuses[0].RestartCount != 7 || p.ResourceVersion != at.ResourceVersion || p.Spec.NodeName != "n1" {
		t.Errorf("a reader that starts has %v", p)
	}
	// What the node decides by is a change of the pod, as everything else of it is.
	for what, change := range map[string]func(*v1.Pod){
		"over":                  func(p *v1.Pod) { p.Status.Phase = v1.PodFailed },
		"on the host's network": func(p *v1.Pod) { p.Spec.HostNetwork = true },
		"with the node's IP":    func(p *v1.Pod) { p.Spec.HostNetwork, p.Status.HostIP = true, "192.0.2.2" },
		"labelled":              func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} },
	} {
		app(change)
		m.until(what, func() bool {
			got, want := m.pod(m.pods.Items()["u1"]), apiPod("app", "u1", change)
			return got.Status.Phase == want.Status.Phase && got.Status.HostIP == want.Status.HostIP &&
				got.Spec.HostNetwork == want.Spec.HostNetwork && len(got.Labels) == len(want.Labels)
		})
		app()
		m.until("as before", func() bool { return len(m.pod(m.pods.Items()["u1"]).Labels) == 0 })
	}
	server.Delete("pods", "ns", "app")
	m.until("status gone", func() bool { _, ok := m.stat.Get("u1"); return !ok })
}

// TestOfflineStart kills the service, takes the API server away, and starts
// another on the same store: what was accepted runs on, nothing is complete,
// and what was deleted meanwhile goes when the API server is back.
func TestOfflineStart(t *testing.T) {
	m, server := joined(t, folder)
	m.write("manifests/etcd.yaml", manifest("etcd", "i:1"))
	server.Put("serviceaccounts", &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa"}})
	server.Put("configmaps", &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}})
	server.Put("secrets", &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pull"}, Data: map[string][]byte{"k": []byte("pw")}})
	server.Put("pods", apiPod("app", "u1", withRefs))
	server.Put("pods", apiPod("job", "u2", func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }))
	kill := m.startProcess()
	const everything = "ConfigMap/ns/m Node//n1 Secret/ns/pull Service/default/kubernetes Service/ns/web"
	m.wants("default/etcd-n1", "ns/app", "ns/job")
	m.until("objects", func() bool { return m.objects() == everything })
	server.Put("pods", apiPod("job", "u2", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }))
	m.until("job over", func() bool { return m.pod(m.pods.Items()["u2"]).Status.Phase == v1.PodSucceeded })
	ask := &configv1.TokenRequest{
		Namespace: "ns", ServiceAccount: "sa", Audiences: []string{"a"}, PodName: "app", PodUid: "u1",
		Expiration: durationpb.New(time.Hour),
	}
	token, err := m.client.Token(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	seen := m.pods.Items()["u1"].GetSeenAt().AsTime()
	m.written()
	kill()
	server.Away(true)

	before, _, _, _ := m.pods.State()
	m.start()
	m.until("new owner", func() bool {
		now, _, _, _ := m.pods.State()
		return now.Epoch != before.Epoch && m.names() == "default/etcd-n1 ns/app ns/job …"
	})
	m.until("objects of the store", func() bool { return m.objects() == everything && !m.obj.Complete() })
	m.until("health", func() bool { return strings.HasPrefix(m.health(), "HEALTH_STARTING API server: ") })
	m.until("mirrors not complete", func() bool { return !m.mir.Complete() })
	if got := m.pods.Items()["u1"].GetSeenAt().AsTime(); !got.Equal(seen) {
		t.Errorf("seen at %s, was %s", got, seen)
	}
	if phase := m.pod(m.pods.Items()["u2"]).Status.Phase; phase != v1.PodSucceeded {
		t.Errorf("the job that was over is %s: it would run again", phase)
	}
	again, err := m.client.Token(t.Context(), ask)
	if err != nil || again.GetToken() != token.GetToken() {
		t.Errorf("token offline: %v", err)
	}
	// A static pod does not need the API server.
	m.write("manifests/dns.yaml", manifest("dns", "i:1"))
	m.wants("default/dns-n1", "default/etcd-n1", "ns/app", "ns/job", "…")

	server.Delete("pods", "ns", "app")
	server.Put("pods", apiPod("new", "u3"))
	server.Away(false)
	m.wants("default/dns-n1", "default/etcd-n1", "ns/job", "ns/new")
	m.until("serving", func() bool { return m.health() == "HEALTH_SERVING " && m.obj.Complete() })
}

// theConfigMap returns functions that change the ConfigMap which pods with withRefs name, and
// that report whether config.objects has it with a value.
func theConfigMap(m *machine, server *apitest.Server) (put func(string), has func(string) bool) {
	put = func(value string) {
		server.Put("configmaps", &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Data: map[string]string{"k": value}})
	}
	has = func(value string) bool {
		return strings.Contains(string(m.obj.Items()["ConfigMap/ns/m"].GetObject()), value)
	}
	return put, has
}

// aNewPod binds another pod with the same references, and returns when config.pods has it and
// config.objects is read as it was published before that.
func aNewPod(t *testing.T, m *machine, server *apitest.Server) {
	t.Helper()
	server.Put("pods", apiPod("app-2", "u2", withRefs))
	m.until("the new pod", func() bool { return m.pods.Items()["u2"] != nil })
	if err := m.obj.Pull(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestANewPodOfAKeptObject: a pod that came while config was away is not made of what its
// ConfigMap was before, which is kept for a pod of then.
func TestANewPodOfAKeptObject(t *testing.T) {
	m, server := joined(t, "")
	put, has := theConfigMap(m, server)
	put("of-then")
	server.Put("pods", apiPod("app", "u1", withRefs))
	stop := m.start()
	m.until("the ConfigMap", func() bool { return has("of-then") })
	m.written()
	stop()

	put("of-now")
	release := []func(){server.Stall("list configmaps"), server.Stall("watch configmaps")}
	former, _, _, _ := m.obj.State()
	m.start()
	m.wants("ns/app")
	m.until("objects of this life", func() bool { now, _, _, _ := m.obj.State(); return now.Epoch != former.Epoch && m.obj.Complete() })
	if !has("of-then") {
		t.Error("the pod of then has to wait")
	}
	aNewPod(t, m, server)
	if has("of-then") {
		t.Error("the new pod would be made of what the ConfigMap was before")
	}
	for _, f := range release {
		f()
	}
	m.until("the ConfigMap as it is", func() bool { return has("of-now") })
}

// TestANewPodOfACachedObject: where ConfigMaps are asked for each minute, a pod that comes is
// not made of what one was up to a minute ago, which another pod has.
func TestANewPodOfACachedObject(t *testing.T) {
	m, server := joined(t, "configMapAndSecretChangeDetectionStrategy: Cache\n")
	put, has := theConfigMap(m, server)
	put("of-then")
	server.Put("pods", apiPod("app", "u1", withRefs))
	m.start()
	m.until("the ConfigMap", func() bool { return has("of-then") })
	put("of-now")
	aNewPod(t, m, server)
	if has("of-then") {
		t.Error("the new pod would be made of what the ConfigMap was before")
	}
	m.until("the ConfigMap as it is", func() bool { return has("of-now") })
}

// TestOneListLater: of two pods with a claim of the same name, of which one list has the
// first and the next one the second, the second is not made of the first one's claim.
func TestOneListLater(t *testing.T) {
	m, server := joined(t, "")
	put := func(server *apitest.Server, uid, volume string) {
		server.Put("persistentvolumeclaims", &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"},
			Spec:       v1.PersistentVolumeClaimSpec{VolumeName: volume}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
		})
		server.Put("persistentvolumes", &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}})
		server.Put("pods", apiPod("db-0", uid, func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}))
	}
	has := func(volume string) bool {
		return strings.Contains(string(m.obj.Items()["PersistentVolumeClaim/ns/data"].GetObject()), volume)
	}
	put(server, "u1", "former")
	m.start()
	m.until("the claim", func() bool { return has("former") })

	later := apitest.New(t)
	put(later, "u2", "present")
	release := later.Stall("get persistentvolumeclaims")
	defer release()
	later.Kubeconfig(t, m.dir)
	m.until("the second pod", func() bool { return m.pods.Items()["u2"] != nil })
	if err := m.obj.Pull(t.Context()); err != nil {
		t.Fatal(err)
	}
	if has("former") {
		t.Error("the pod is given the volume of the one before it")
	}
	release()
	m.until("the claim of now", func() bool { return has("present") })
}

// TestAPIServerGoes: what was heard stays complete, and the source tells.
func TestAPIServerGoes(t *testing.T) {
	m, server := joined(t, "")
	server.Put("pods", apiPod("app", "u1"))
	m.start()
	m.wants("ns/app")
	server.Away(true)
	m.until("error told", func() bool { return m.src.Items()[pod.SourceAPI].GetError() != "" })
	m.wants("ns/app")
	server.Put("pods", apiPod("more", "u2"))
	server.Away(false)
	m.wants("ns/app", "ns/more")
	m.until("error gone", func() bool { return m.src.Items()[pod.SourceAPI].GetError() == "" })
}

// TestManifestsAway: a manifest URL that does not answer says nothing of what the API
// server has. podworker starts no container before config.objects is complete, and what
// nobody needs any more is not kept.
func TestManifestsAway(t *testing.T) {
	m, server := joined(t, "staticPodURL: http://127.0.0.1:1/pods\n")
	server.Put("secrets", &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pull"}})
	server.Put("pods", apiPod("app", "u1", withRefs))
	m.start()
	m.wants("ns/app", "…")
	m.until("the URL's error", func() bool { return m.src.Items()[pod.SourceHTTP].GetError() != "" })
	m.until("objects", func() bool {
		return m.obj.Complete() && m.sec.Complete() && strings.Contains(m.objects(), "Secret/ns/pull")
	})
	server.Delete("pods", "ns", "app")
	m.wants("…")
	m.until("secret dropped", func() bool { return len(m.sec.Items()) == 0 })
}

// TestACrowdOfReviews: while the API server answers none, so many reviews are under way
// and no more; a token is had meanwhile. One that is too large is not made.
func TestACrowdOfReviews(t *testing.T) {
	m, server := joined(t, "")
	server.Put("serviceaccounts", &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa"}})
	m.start()
	m.until("serving", func() bool { return m.health() == "HEALTH_SERVING " })
	release := server.Stall("create tokenreviews")
	defer release()
	data, err := (&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "good"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const more = 40
	answers := make(chan error, maxReviews+more)
	for range maxReviews + more {
		go func() {
			_, err := m.client.ReviewToken(t.Context(), &configv1.ReviewTokenRequest{Review: data})
			answers <- err
		}()
	}
	for range more {
		if err := <-answers; !rpc.Is(err, rpc.Unavailable) || !strings.Contains(err.Error(), "under way") {
			t.Errorf("one review too many: %v", err)
		}
	}
	if _, err := m.client.Token(t.Context(), &configv1.TokenRequest{Namespace: "ns", ServiceAccount: "sa", PodName: "p", PodUid: "u"}); err != nil {
		t.Errorf("a token meanwhile: %v", err)
	}
	release()
	for range maxReviews {
		if err := <-answers; err != nil {
			t.Errorf("one that waited: %v", err)
		}
	}
	large := make([]byte, maxReview+1)
	if _, err := m.client.ReviewToken(t.Context(), &configv1.ReviewTokenRequest{Review: large}); !rpc.Is(err, rpc.Invalid) {
		t.Errorf("a large review: %v", err)
	}
	if _, err := m.client.ReviewAccess(t.Context(), &configv1.ReviewAccessRequest{Review: make([]byte, 1<<20)}); err == nil || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("a request that is not to be read: %v", err)
	}
}

// TestTheNodeAsItIsNow: what the API server has, and not what was heard of it before.
func TestTheNodeAsItIsNow(t *testing.T) {
	m, server := joined(t, "")
	m.start()
	m.wants()
	server.Put("nodes", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"disk": "ssd"}}})
	resp, err := m.client.Node(t.Context(), &configv1.NodeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	node := &v1.Node{}
	if err := node.Unmarshal(resp.GetNode()); err != nil || node.Labels["disk"] != "ssd" {
		t.Errorf("node %v, %v", node, err)
	}
}

func TestTokensAndReviews(t *testing.T) {
	m, server := joined(t, "")
	server.Put("serviceaccounts", &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "sa", UID: "sa-1", Annotations: map[string]string{"role": "puller"},
	}})
	m.start()
	m.wants()
	account, err := m.client.ServiceAccount(t.Context(), &configv1.ServiceAccountRequest{Namespace: "ns", Name: "sa"})
	if err != nil || account.GetUid() != "sa-1" || account.GetAnnotations()["role"] != "puller" {
		t.Errorf("account %v, %v", account, err)
	}
	for name, want := range map[string]rpc.Kind{"nobody": rpc.NotFound, "": rpc.Invalid} {
		if _, err := m.client.ServiceAccount(t.Context(), &configv1.ServiceAccountRequest{Namespace: "ns", Name: name}); !rpc.Is(err, want) {
			t.Errorf("account %q: %v, want %s", name, err, want)
		}
	}
	ask := func(change func(*configv1.TokenRequest)) (*configv1.TokenResponse, error) {
		r := &configv1.TokenRequest{Namespace: "ns", ServiceAccount: "sa", Audiences: []string{"a", "b"}, PodName: "p", PodUid: "u1"}
		change(r)
		return m.client.Token(t.Context(), r)
	}
	first, err := ask(func(*configv1.TokenRequest) {})
	if err != nil {
		t.Fatal(err)
	}
	if text := first.GetToken(); !strings.HasSuffix(text, "-u1-a+b") {
		t.Errorf("token %q is not bound as asked", text)
	}
	if life := time.Until(first.GetExpiresAt().AsTime()); life < 59*time.Minute || life > time.Hour {
		t.Errorf("token lives %s", life)
	}
	second, err := ask(func(*configv1.TokenRequest) {})
	if err != nil || second.GetToken() != first.GetToken() {
		t.Errorf("not from the cache: %v", err)
	}
	other, err := ask(func(r *configv1.TokenRequest) { r.PodUid = "u2" })
	if err != nil || other.GetToken() == first.GetToken() {
		t.Errorf("one token for two pods: %v", err)
	}
	of, err := ask(func(r *configv1.TokenRequest) { r.AccountUid = "sa-1" })
	if err != nil || of.GetToken() == first.GetToken() {
		t.Errorf("a token for one UID from the cache for any: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*configv1.TokenRequest)
		want   rpc.Kind
	}{
		"another account of that name": {func(r *configv1.TokenRequest) { r.AccountUid = "sa-2" }, rpc.Conflict},
		"no account":                   {func(r *configv1.TokenRequest) { r.ServiceAccount = "nobody" }, rpc.NotFound},
		"no namespace":                 {func(r *configv1.TokenRequest) { r.Namespace = "" }, rpc.Invalid},
		"no pod":                       {func(r *configv1.TokenRequest) { r.PodUid = "" }, rpc.Invalid},
		"refused account":              {func(r *configv1.TokenRequest) { r.ServiceAccount = "secret" }, rpc.Denied},
	} {
		server.Refuse("serviceaccounts", "ns", "secret", true)
		if _, err := ask(c.change); !rpc.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}

	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "good"}}
	data, err := review.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	who, err := m.client.ReviewToken(t.Context(), &configv1.ReviewTokenRequest{Review: data})
	if err != nil {
		t.Fatal(err)
	}
	if err := review.Unmarshal(who.GetReview()); err != nil || review.Status.User.Username != "jane" || !review.Status.Authenticated {
		t.Errorf("review %v, %v", review.Status, err)
	}
	access := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "joe"}}
	accessData, err := access.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	may, err := m.client.ReviewAccess(t.Context(), &configv1.ReviewAccessRequest{Review: accessData})
	if err != nil {
		t.Fatal(err)
	}
	if err := access.Unmarshal(may.GetReview()); err != nil || access.Status.Allowed {
		t.Errorf("review %v, %v", access.Status, err)
	}
	if _, err := m.client.ReviewToken(t.Context(), &configv1.ReviewTokenRequest{Review: []byte("\xff")}); !rpc.Is(err, rpc.Invalid) {
		t.Errorf("garbage: %v", err)
	}
	server.Away(true)
	if _, err := m.client.ReviewToken(t.Context(), &configv1.ReviewTokenRequest{Review: data}); !rpc.Is(err, rpc.Unavailable) {
		t.Errorf("away: %v", err)
	}
	if again, err := ask(func(*configv1.TokenRequest) {}); err != nil || again.GetToken() != first.GetToken() {
		t.Errorf("cached token while away: %v", err)
	}
	for _, want := range []string{
		`apiserver_delegated_authn_request_total{code="201"} 1`, `apiserver_delegated_authz_request_total{code="201"} 1`,
		`apiserver_delegated_authn_request_duration_seconds_count{code="<error>"} 1`,
	} {
		if !strings.Contains(m.metrics(), "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}
