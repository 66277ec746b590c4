// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/test/standin"
	"github.com/sextant-node/sextant/test/volumetest"
)

func inMemory(t *testing.T, path string) bool {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Type == unix.TMPFS_MAGIC
}

func TestEveryPlugin(t *testing.T) {
	r := newRig(t, nil)
	r.configMap("app", map[string]string{"a": "one", "b": "two"})
	r.secret("key", map[string]string{"pass": "word"})
	r.allocatable("8Gi")
	p := of(t, "u", `
- {name: scratch, emptyDir: {}}
- {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: host, hostPath: {path: /dev, type: Directory}}
- {name: config, configMap: {name: app, defaultMode: 0440, items: [{key: a, path: d/a}]}}
- {name: secret, secret: {secretName: key}}
- {name: about, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
- {name: image, image: {reference: example.org/x}}
- name: api
  projected:
    sources:
    - serviceAccountToken: {path: token, audience: vault, expirationSeconds: 7200}
    - configMap: {name: app, items: [{key: b, path: ca}]}
`)
	r.declare(p)
	r.ready("u")
	for path, want := range map[string]string{
		r.path("u", "configmap", "config", "d/a"):    "one",
		r.path("u", "secret", "secret", "pass"):      "word",
		r.path("u", "downward-api", "about", "name"): "u-name",
		r.path("u", "projected", "api", "ca"):        "two",
	} {
		if got := r.read(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if info, err := os.Stat(r.path("u", "configmap", "config", "d/a")); err != nil || info.Mode().Perm() != 0o440 {
		t.Errorf("defaultMode: %v, %v", info.Mode(), err)
	}
	for plugin, want := range map[string]bool{"secret/secret": true, "projected/api": true, "empty-dir/memory": true, "empty-dir/scratch": false, "configmap/config": false} {
		kind, name, _ := strings.Cut(plugin, "/")
		if got := inMemory(t, r.path("u", kind, name)); got != want {
			t.Errorf("%s in memory: %v", plugin, got)
		}
	}
	for name, want := range map[string]string{
		"scratch": r.path("u", "empty-dir", "scratch"), "host": "/dev", "image": "", "api": r.path("u", "projected", "api"),
	} {
		v := r.volume("u", name)
		if v.GetHostPath() != want || v.GetState() != volumev1.VolumeState_VOLUME_STATE_MOUNTED || v.GetError() != "" || v.GetStep() != "" || v.GetSince() == nil {
			t.Errorf("%s: %v", name, v)
		}
	}
	asked := r.tokens.asked() // once for each writing: config remembers its answer
	for _, req := range asked {
		if !proto.Equal(req, &configv1.TokenRequest{
			Namespace: "ns", ServiceAccount: "default", Audiences: []string{"vault"}, Expiration: req.GetExpiration(), PodName: "u-name", PodUid: "u",
		}) || req.GetExpiration().GetSeconds() != 7200 {
			t.Errorf("token asked for: %v", req)
		}
	}
	if got := r.read(r.path("u", "projected", "api", "token")); len(asked) == 0 || !strings.HasPrefix(got, "token ") {
		t.Errorf("token %q, asked for %d times", got, len(asked))
	}
	if events := r.messages(); len(events) > 0 {
		t.Errorf("events of what went well: %v", events)
	}
}

// TestMemoryIsTheSmallestBound: of the volume's limit, the pod's and what the
// node can allocate (KEP-1967).
func TestMemoryIsTheSmallestBound(t *testing.T) {
	r := newRig(t, nil)
	size := func(uid string) int64 {
		r.ready(uid)
		var st unix.Statfs_t
		if err := unix.Statfs(r.path(uid, "empty-dir", "m"), &st); err != nil {
			t.Fatal(err)
		}
		return int64(st.Blocks) * st.Bsize >> 20
	}
	unbounded := of(t, "node", `- {name: m, emptyDir: {medium: Memory}}`)
	r.declare(unbounded)
	r.Eventually("waiting for resource", func() bool {
		return strings.Contains(r.volume("node", "m").GetError(), "node allocatable: not known yet")
	})
	r.allocatable("64Mi")
	if got := size("node"); got != 64 {
		t.Errorf("bound by the node: %d MiB", got)
	}
	limited := of(t, "limit", `- {name: m, emptyDir: {medium: Memory, sizeLimit: 128Mi}}`)
	limited.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("32Mi")}}}}
	r.declare(limited)
	if got := size("limit"); got != 32 {
		t.Errorf("bound by the pod: %d MiB", got)
	}
	r.declare(of(t, "volume", `- {name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}`))
	if got := size("volume"); got != 1 {
		t.Errorf("bound by the volume: %d MiB", got)
	}
	// Without a limit on each container the pod's cgroup has none.
	half := limited.DeepCopy()
	half.UID = "half"
	half.Spec.Containers = append(half.Spec.Containers, v1.Container{Name: "d"})
	r.declare(half)
	if got := size("half"); got != 64 {
		t.Errorf("a pod of which one container is limited: %d MiB", got)
	}
	// Files in memory are bound too.
	r.secret("key", map[string]string{"a": "1"})
	files := limited.DeepCopy()
	files.UID, files.Spec.Volumes[0].VolumeSource = "files", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key"}}
	r.declare(files)
	r.ready("files")
	var st unix.Statfs_t
	if err := unix.Statfs(r.path("files", "secret", "m"), &st); err != nil || int64(st.Blocks)*st.Bsize != 32<<20 {
		t.Errorf("a secret: %d bytes, %v", int64(st.Blocks)*st.Bsize, err)
	}
}

// TestObjectsChangeInOneStep reads two keys of a ConfigMap from the same data
// folder while they change together: never one old and one new.
func TestObjectsChangeInOneStep(t *testing.T) {
	r := newRig(t, nil)
	r.configMap("app", map[string]string{"a": "0", "b": "0"})
	r.declare(of(t, "u", `- {name: c, configMap: {name: app}}`))
	r.ready("u")
	dir := r.path("u", "configmap", "c")
	for _, version := range []string{"1", "2", "3"} {
		r.configMap("app", map[string]string{"a": version, "b": version})
		r.Eventually("version "+version, func() bool {
			data, err := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
			if errors.Is(err, fs.ErrNotExist) {
				return false // replaced between the reading of the link and of where it leads
			}
			if err != nil {
				t.Fatal(err)
			}
			a, errA := os.ReadFile(filepath.Join(data, "a"))
			b, errB := os.ReadFile(filepath.Join(data, "b"))
			if errA != nil || errB != nil {
				return false // swapped away meanwhile
			}
			if string(a) != string(b) {
				t.Errorf("a is %s while b is %s", a, b)
			}
			return string(a) == version
		})
	}
	r.configMap("app", map[string]string{"b": "4"})
	r.Eventually("a removed key", func() bool { _, err := os.Lstat(filepath.Join(dir, "a")); return os.IsNotExist(err) })
	if item, _ := r.pods.Get("u"); !item.GetReady() {
		t.Error("not ready after an update")
	}
}

func TestAnUpdatedPodUpdatesItsFiles(t *testing.T) {
	r := newRig(t, nil)
	p := of(t, "u", `- {name: d, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}`)
	p.Labels = map[string]string{"v": "1"}
	r.declare(p)
	r.ready("u")
	p.Labels["v"] = "2"
	r.declare(p)
	r.becomes("the new label", r.path("u", "downward-api", "d", "labels"), `v="2"`)
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	r := newRig(t, nil)
	absent := func(name string) {
		standin.Set(r.House, r.objects, "ConfigMap/ns/"+name, &configv1.Object{Kind: "ConfigMap", Namespace: "ns", Name: name, Absent: true})
	}
	absent("gone")
	absent("extra")
	standin.Set(r.House, r.objects, "PersistentVolumeClaim/ns/data", &configv1.Object{Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "data", Absent: true})
	r.configMap("app", map[string]string{"a": "1"})
	standin.Set(r.House, r.objects, "ConfigMap/ns/locked", &configv1.Object{Kind: "ConfigMap", Namespace: "ns", Name: "locked", Error: `configmaps "locked" is forbidden`})
	r.declare(of(t, "u", `
- {name: a, configMap: {name: gone}}
- {name: b, configMap: {name: app, items: [{key: z, path: z}]}}
- {name: c, configMap: {name: extra, optional: true}}
- {name: d, configMap: {name: locked}}
- {name: e, persistentVolumeClaim: {claimName: data}}
- {name: f, hostPath: {path: /dev/null, type: Directory}}
- {name: g, configMap: {name: later}}
`))
	want := []string{
		`FailedMount ns/u-name: MountVolume.SetUp failed for volume "a" : configmap "gone" not found`,
		`FailedMount ns/u-name: MountVolume.SetUp failed for volume "b" : configmap references non-existent config key: z`,
		`FailedMount ns/u-name: MountVolume.SetUp failed for volume "d" : configmap "locked": configmaps "locked" is forbidden`,
		`FailedMount ns/u-name: MountVolume.SetUp failed for volume "e" : error processing PVC ns/data: failed to fetch PVC from API server: persistentvolumeclaims "data" not found`,
		`FailedMount ns/u-name: MountVolume.SetUp failed for volume "f" : hostPath type check failed: /dev/null is not a directory`,
	}
	r.Eventually("the events", func() bool { return len(r.messages()) >= len(want) })
	messages := r.messages()
	slices.Sort(messages) // whose object comes last is tried last
	if !slices.Equal(messages, want) {
		t.Errorf("events %q", messages)
	}
	r.Eventually("the item", func() bool { // which follows the events
		return r.volume("u", "g").GetError() != "" && strings.Contains(r.volume("u", "a").GetError(), `"gone" not found`)
	})
	if v := r.volume("u", "a"); v.GetState() != volumev1.VolumeState_VOLUME_STATE_PENDING || v.GetRetryAt() == nil {
		t.Errorf("item of what is missing: %v", v)
	}
	if v := r.volume("u", "c"); v.GetState() != volumev1.VolumeState_VOLUME_STATE_MOUNTED {
		t.Errorf("an optional one: %v", v)
	}
	if v := r.volume("u", "g"); !strings.Contains(v.GetStep(), "wait") || !strings.Contains(v.GetError(), `configmap "later" not known yet`) {
		t.Errorf("one that config has not heard of: %v", v)
	}
	// What comes is taken at once, and the pod whose all is there is ready.
	r.declare(of(t, "two", `
- {name: a, configMap: {name: gone}}
- {name: g, configMap: {name: later}}
`))
	r.Eventually("the second pod's event", func() bool { return len(r.messages()) > len(want) })
	r.configMap("gone", nil)
	r.configMap("later", map[string]string{"x": "y"})
	r.ready("two")
}

func TestWhatIsMountedStays(t *testing.T) {
	r := newRig(t, nil)
	r.secret("key", map[string]string{"a": "1"})
	r.declare(of(t, "u", `- {name: s, secret: {secretName: key}}`))
	r.ready("u")
	standin.Set(r.House, r.secrets, "Secret/ns/key", &configv1.Object{Kind: "Secret", Namespace: "ns", Name: "key", Absent: true})
	r.Eventually("the error", func() bool { return r.volume("u", "s").GetError() != "" })
	if v := r.volume("u", "s"); v.GetState() != volumev1.VolumeState_VOLUME_STATE_MOUNTED || v.GetHostPath() == "" {
		t.Errorf("a deleted Secret unmounted the volume: %v", v)
	}
	if item, _ := r.pods.Get("u"); !item.GetReady() {
		t.Error("a deleted Secret made the pod unready")
	}
	if got := r.read(r.path("u", "secret", "s", "a")); got != "1" {
		t.Errorf("reads %q", got)
	}
}

func TestDeclareIsIdempotent(t *testing.T) {
	r := newRig(t, nil)
	p := of(t, "u", `- {name: v, emptyDir: {}}`)
	r.declare(p)
	r.ready("u")
	first := r.declare(p)
	p.Status.Phase, p.ResourceVersion = v1.PodRunning, "17" // not what volumes are made of
	if second := r.declare(p); second != first {
		t.Errorf("revision %v after %v: declaring again changed the feed", second, first)
	}
}

func TestWithdraw(t *testing.T) {
	r := newRig(t, nil)
	r.secret("key", map[string]string{"a": "1"})
	r.allocatable("8Gi")
	p := of(t, "u", `
- {name: s, secret: {secretName: key}}
- {name: m, emptyDir: {medium: Memory}}
- {name: e, emptyDir: {}}
`)
	r.declare(p)
	r.ready("u")
	r.write(r.path("u", "empty-dir", "e", "data"), "x")
	sub, err := r.client.Subpath(r.Context(), &volumev1.SubpathRequest{Uid: "u", Volume: "e", Container: "c", SubPath: "data"})
	if err != nil || r.read(sub.GetHostPath()) != "x" {
		t.Fatalf("subpath: %v, %v", sub, err)
	}
	r.withdraw("u")
	r.withdraw("u")
	r.gone("u")
	if points := volumetest.Mounts(t, r.root); len(points) > 0 {
		t.Errorf("mounts left: %v", points)
	}
	entries, err := os.ReadDir(filepath.Join(r.root, "pods/u"))
	if err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	r.withdraw("u")
	r.withdraw("never-declared")
	// The same pod may come again.
	r.declare(p)
	r.ready("u")
}

func TestRequestsThatAreWrong(t *testing.T) {
	r := newRig(t, nil)
	for name, bad := range map[string]struct {
		uid    types.UID
		volume string
	}{
		"pod.metadata.uid: required":         {"", "v"},
		`pod.metadata.uid: ".."`:             {"..", "v"},
		`pod.metadata.uid: "a/../../b"`:      {"a/../../b", "v"},
		`pod.spec.volumes[0].name: "../etc"`: {"u", "../etc"},
	} {
		p := of(t, "u", `- {name: v, emptyDir: {}}`)
		p.UID, p.Spec.Volumes[0].Name = bad.uid, bad.volume
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.client.Declare(r.Context(), &volumev1.DeclareRequest{Pod: data}); !rpc.Is(err, rpc.Invalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.client.Declare(r.Context(), &volumev1.DeclareRequest{Pod: []byte("garbage")}); !rpc.Is(err, rpc.Invalid) {
		t.Errorf("garbage: %v", err)
	}
	for _, uid := range []string{"", "..", "a/b"} {
		if _, err := r.client.Withdraw(r.Context(), &volumev1.WithdrawRequest{Uid: uid}); !rpc.Is(err, rpc.Invalid) {
			t.Errorf("withdraw %q: %v", uid, err)
		}
	}
	r.declare(of(t, "u", `- {name: v, emptyDir: {}}`))
	r.ready("u")
	for field, req := range map[string]*volumev1.SubpathRequest{
		"uid":       {Volume: "v", Container: "c", SubPath: "x"},
		"container": {Uid: "u", Volume: "v", Container: "../c", SubPath: "x"},
		"sub_path":  {Uid: "u", Volume: "v", Container: "c"},
	} {
		if _, err := r.client.Subpath(r.Context(), req); !rpc.Is(err, rpc.Invalid) || !strings.HasPrefix(err.Error(), field+":") {
			t.Errorf("subpath without %s: %v", field, err)
		}
	}
	once := volumev1.NewVolumeServiceClient(r.DialOnce(house.Volume))
	if _, err := once.Subpath(r.Context(), &volumev1.SubpathRequest{Uid: "u", Volume: "w", Container: "c", SubPath: "x"}); !rpc.Is(err, rpc.Unavailable) {
		t.Errorf("subpath of a volume that is not there: %v", err)
	}
	if _, err := r.client.Subpath(r.Context(), &volumev1.SubpathRequest{Uid: "u", Volume: "v", Container: "c", SubPath: "../x"}); !rpc.Is(err, rpc.Conflict) {
		t.Errorf("subpath that leaves the volume: %v", err)
	}
}
