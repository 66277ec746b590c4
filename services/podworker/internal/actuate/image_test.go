// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/queue"
	"github.com/sextant-node/sextant/test/fakecri"

	"github.com/sextant-node/sextant/pkg/pod/reason"
)

func (n *node) ensure(image string, policy v1.PullPolicy) (string, error) {
	return n.EnsureImage(n.ctx(), ImageSpec{Pod: web(), Container: "web", Image: image, Policy: policy})
}

// TestFindImage: an image is found without a pull, or not, and only then told of.
func TestFindImage(t *testing.T) {
	n := start(t, false, fakecri.Image{Ref: "docker.io/library/have:1"})
	for _, tc := range []struct {
		image, event string
		found        bool
	}{
		{"have:1", `N Pulled containers{web: Container image "have:1" already present on machine and can be accessed by the pod`, true},
		{"fake/sleep", "", false},
	} {
		ref, err := n.FindImage(n.ctx(), ImageSpec{Pod: web(), Container: "web", Image: tc.image, Policy: v1.PullIfNotPresent})
		if err != nil || (ref != "") != tc.found {
			t.Errorf("%s: found %q (%v), want %v", tc.image, ref, err, tc.found)
		}
		if events := strings.Join(n.events.take(), ", "); events != tc.event {
			t.Errorf("%s: events %q, want %q", tc.image, events, tc.event)
		}
	}
	if _, err := n.FindImage(n.ctx(), ImageSpec{Pod: web(), Container: "web", Image: "UPPER:1"}); err == nil {
		t.Error("a name that is none was looked for")
	}
	if got := n.rt.Count(fakecri.Match{Method: "PullImage"}); got != 0 {
		t.Errorf("%d pulls", got)
	}
}

func TestEnsureImagePolicies(t *testing.T) {
	present := fakecri.Image{Ref: "docker.io/library/have:1"}
	for _, tc := range []struct {
		name   string
		image  string
		policy v1.PullPolicy
		pulls  int
		reason Reason
		words  string
		event  string // the first
	}{
		{"present", "have:1", v1.PullIfNotPresent, 0, "", "", `N Pulled containers{web: Container image "have:1" already present on machine and can be accessed by the pod`},
		{"absent", "fake/sleep", v1.PullIfNotPresent, 1, "", "", `N Pulling containers{web: Pulling image "fake/sleep"`},
		{"always", "have:1", v1.PullAlways, 1, "", "", `N Pulling containers{web: Pulling image "have:1"`},
		{"never, present", "have:1", v1.PullNever, 0, "", "", `N Pulled containers{web: Container image "have:1" already present on machine and can be accessed by the pod`},
		{
			"never, absent", "none:1", v1.PullNever, 0, reason.ErrImageNeverPull, `Container image "none:1" is not present with pull policy of Never`,
			`W ErrImageNeverPull containers{web: Container image "none:1" is not present with pull policy of Never`,
		},
		{
			"bad name", "UPPER:1", v1.PullAlways, 0, reason.InvalidImageName, `Failed to apply default image tag "UPPER:1": couldn't parse image name "UPPER:1": `,
			`W InspectFailed containers{web: Failed to apply default image tag "UPPER:1"`,
		},
		{"missing", "fake/missing", v1.PullIfNotPresent, 1, reason.ErrImagePull, "rpc error: code = NotFound", `N Pulling containers{web: Pulling image "fake/missing"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := start(t, false, present)
			ref, err := n.ensure(tc.image, tc.policy)
			reason, message := ReasonOf(err)
			if reason != tc.reason || !strings.HasPrefix(message, tc.words) {
				t.Errorf("got %s: %s\nwant %s: %s…", reason, message, tc.reason, tc.words)
			}
			if (ref == "") != (err != nil) {
				t.Errorf("reference %q with error %v", ref, err)
			}
			if got := n.rt.Count(fakecri.Match{Method: "PullImage"}); got != tc.pulls {
				t.Errorf("%d pulls, want %d", got, tc.pulls)
			}
			events := n.events.take()
			if !strings.HasPrefix(events[0], tc.event) {
				t.Errorf("first event %s, want %s", events[0], tc.event)
			}
			last := events[len(events)-1]
			if tc.reason != "" && last != "W Failed containers{web: Error: "+string(tc.reason) {
				t.Errorf("last event %s", last)
			}
		})
	}
}

func TestDefaultTag(t *testing.T) {
	const digest = "@sha256:0123456789012345678901234567890123456789012345678901234567890123"
	for _, tc := range []struct{ image, tagged, repository string }{
		{"nginx", "nginx:latest", "docker.io/library/nginx"},
		{"nginx:1", "nginx:1", "docker.io/library/nginx"},
		{"r.example:5000/a/b", "r.example:5000/a/b:latest", "r.example:5000/a/b"},
		{"r.example/a" + digest, "r.example/a" + digest, "r.example/a"},
		{"r.example/a:1" + digest, "r.example/a:1" + digest, "r.example/a"},
	} {
		tagged, repository, err := parseImage(tc.image)
		if err != nil || tagged != tc.tagged || repository != tc.repository {
			t.Errorf("%s: %s, %s, %v", tc.image, tagged, repository, err)
		}
	}
}

func TestPullReasons(t *testing.T) {
	for _, tc := range []struct {
		err     error
		reason  Reason
		message string
	}{
		{status.Error(codes.Unknown, "RegistryUnavailable: it sleeps"), reason.RegistryUnavailable, "image pull failed for x:1 because the registry is unavailable: it sleeps"},
		{status.Error(codes.Unknown, "SignatureValidationFailed"), reason.SignatureValidationFailed, "image pull failed for x:1 because the signature validation failed"},
		{status.Error(codes.Unknown, "boom"), reason.ErrImagePull, "boom"},
		{status.Error(codes.Unavailable, "RegistryUnavailable"), reason.ErrImagePull, "rpc error: code = Unavailable desc = RegistryUnavailable"},
		{status.Error(codes.Internal, "boom"), reason.ErrImagePull, "rpc error: code = Internal desc = boom"},
	} {
		n := start(t, false)
		n.rt.Fail(fakecri.Match{Method: "PullImage"}, 1, tc.err)
		_, err := n.ensure("x:1", v1.PullAlways)
		wantReason(t, err, tc.reason, tc.message)
	}
	n := start(t, false)
	n.rt.Lie(fakecri.Match{Method: "PullImage"}, func(_, resp proto.Message) { resp.(*runtimeapi.PullImageResponse).ImageRef = "" })
	_, err := n.ensure("x:1", v1.PullAlways)
	wantReason(t, err, reason.ErrImagePull, `imageRef of image "x:1" is not set`)
	n.rt.Fail(fakecri.Match{Method: "ImageStatus"}, 1, status.Error(codes.Internal, "disk"))
	_, err = n.ensure("x:1", v1.PullIfNotPresent)
	wantReason(t, err, reason.ImageInspectError, `Failed to inspect image "x:1": rpc error: code = Internal desc = disk`)
}

func TestPullSecrets(t *testing.T) {
	n := start(t, false)
	n.facts.objects["Secret/default/good"] = &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "good"}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{"r.example":{"username":"a","password":"1"},"r.example/team":{"username":"b","password":"2"}}}`)},
	}
	p := web(func(p *v1.Pod) { p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "gone"}, {Name: "good"}} })
	n.rt.Fail(fakecri.Match{Method: "PullImage"}, 1, status.Error(codes.PermissionDenied, "not you"))
	if _, err := n.EnsureImage(n.ctx(), ImageSpec{Pod: p, Container: "web", Image: "r.example/team/app:1", Policy: v1.PullAlways}); err != nil {
		t.Fatal(err)
	}
	var users []string
	for _, call := range n.rt.Calls(fakecri.Match{Method: "PullImage"}) {
		users = append(users, call.Request.(*runtimeapi.PullImageRequest).GetAuth().GetUsername())
	}
	if got := strings.Join(users, " "); got != "b a" {
		t.Errorf("pulled as %q, want the longer path first, then the other", got)
	}
	n.rt.Fail(fakecri.Match{Method: "PullImage"}, 2, status.Error(codes.Unknown, "access denied"))
	_, err := n.EnsureImage(n.ctx(), ImageSpec{Pod: p, Container: "web", Image: "r.example/team/app:2", Policy: v1.PullAlways})
	wantReason(t, err, reason.ErrImagePull, "access denied") // two equal errors are shown as one
	const missing = "W FailedToRetrieveImagePullSecret Pod: Unable to retrieve some image pull secrets (gone); attempting to pull the image may not succeed."
	if got := n.events.take()[0]; got != missing {
		t.Errorf("event %s", got)
	}
	// It is told as well while the image is there anyway.
	if _, err := n.EnsureImage(n.ctx(), ImageSpec{Pod: p, Container: "web", Image: "r.example/team/app:1", Policy: v1.PullIfNotPresent}); err != nil {
		t.Fatal(err)
	}
	if got := n.events.take(); got[0] != missing || len(got) != 2 {
		t.Errorf("events %q", got)
	}
}

func TestPullWithPlugin(t *testing.T) {
	n := start(t, false)
	dir := t.TempDir()
	files := map[string]string{
		"config.yaml": "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n" +
			"- {name: cloud, matchImages: [r.example], defaultCacheDuration: 1m, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n",
		"cloud": "#!/bin/sh\n" + `echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image","auth":{"r.example":{"username":"robot","password":"1"}}}'`,
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.conf.Node.ImageCredentialProviderConfig, n.conf.Node.ImageCredentialProviderBinDir = filepath.Join(dir, "config.yaml"), dir
	if _, err := n.ensure("r.example/app:1", v1.PullAlways); err != nil {
		t.Fatal(err)
	}
	if got := request[*runtimeapi.PullImageRequest](n, "PullImage").GetAuth().GetUsername(); got != "robot" {
		t.Errorf("pulled as %q", got)
	}
}

// TestThePodOfAPull: the runtime is told which pod an image is for, with its annotations, by
// one of which containerd chooses the snapshotter (Kata Containers).
func TestThePodOfAPull(t *testing.T) {
	n := start(t, false)
	p := web(func(p *v1.Pod) {
		p.Labels, p.Annotations = map[string]string{"app": "web"}, map[string]string{"io.containerd.cri.runtime-handler": "kata"}
	})
	if _, err := n.EnsureImage(n.ctx(), ImageSpec{Pod: p, Container: "web", Image: "fake/sleep", Policy: v1.PullAlways, CgroupParent: "/pods/web"}); err != nil {
		t.Fatal(err)
	}
	sandbox := request[*runtimeapi.PullImageRequest](n, "PullImage").GetSandboxConfig()
	if got := sandbox.GetMetadata(); got.GetName() != p.Name || got.GetNamespace() != p.Namespace || got.GetUid() != string(p.UID) {
		t.Errorf("pulled for %v", got)
	}
	if got := sandbox.GetLinux().GetCgroupParent(); got != "/pods/web" {
		t.Errorf("pulled in the cgroup %q", got)
	}
	if !maps.Equal(sandbox.GetAnnotations(), pod.SandboxAnnotations(p)) || !maps.Equal(sandbox.GetLabels(), pod.SandboxLabels(p)) {
		t.Errorf("pulled for a pod with %v and %v", sandbox.GetAnnotations(), sandbox.GetLabels())
	}
}

// TestTheNodesCredentials are for every pod; what cannot be read as such costs nothing else.
func TestTheNodesCredentials(t *testing.T) {
	n := start(t, false)
	for config, user := range map[string]string{
		"": "", "nonsense": "", `{"auths":{"r.example":{"auth":"cm9ib3Q6cA=="}}}`: "robot", `{"auths":{"other.example":{"auth":"cm9ib3Q6cA=="}}}`: "",
	} {
		n.facts.docker = []byte(config)
		if _, err := n.ensure("r.example/app:1", v1.PullAlways); err != nil {
			t.Fatal(err)
		}
		if got := request[*runtimeapi.PullImageRequest](n, "PullImage").GetAuth().GetUsername(); got != user {
			t.Errorf("%s: pulled as %q, want %q", config, got, user)
		}
	}
}

func TestSerialPulls(t *testing.T) {
	n := start(t, false)
	n.conf.Origins = kubeletconfig.Origins{"serializeImagePulls": {File: "kubelet.yaml"}}
	stall := n.rt.Stall(fakecri.Match{Method: "PullImage", Name: "docker.io/library/one:1"})
	type answer struct{ err error }
	first, second := make(chan answer, 1), make(chan answer, 1)
	go func() { _, err := n.ensure("docker.io/library/one:1", v1.PullIfNotPresent); first <- answer{err} }()
	if err := stall.Wait(n.ctx(), 1); err != nil {
		t.Fatal(err)
	}
	// A pull that gives up while it waits leaves the queue.
	ctx, cancel := context.WithCancel(n.ctx())
	cancel()
	if _, err := n.EnsureImage(ctx, ImageSpec{Pod: web(), Container: "web", Image: "two:1", Policy: v1.PullAlways}); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	go func() { _, err := n.ensure("two:1", v1.PullAlways); second <- answer{err} }()
	select {
	case got := <-second:
		t.Fatalf("the second pull did not wait: %v", got.err)
	default:
	}
	stall.Release()
	for _, done := range []chan answer{first, second} {
		if got := <-done; got.err != nil {
			t.Error(got.err)
		}
	}
}

// A pull that hangs must not keep a small one from the node (unless somebody
// asked for it).
func TestStalledPullHoldsNobodyUp(t *testing.T) {
	n := start(t, true)
	n.rt.Stall(fakecri.Match{Method: "PullImage", Name: "docker.io/library/huge:1"})
	ctx, cancel := context.WithCancel(n.ctx())
	defer cancel()
	huge := make(chan error, 1)
	go func() {
		_, err := n.EnsureImage(ctx, ImageSpec{Pod: web(), Container: "web", Image: "docker.io/library/huge:1", Policy: v1.PullAlways})
		huge <- err
	}()
	if err := n.rt.WaitFor(n.ctx(), func() bool { running, _ := n.pulls.Load(); return running == 1 }); err != nil {
		t.Fatal(err)
	}
	small := make(chan error, 1)
	go func() { _, err := n.ensure("small:1", v1.PullAlways); small <- err }()
	n.waiters(1)
	select {
	case err := <-small:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	n.clock.Step(lending)
	if err := <-small; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-huge; err == nil {
		t.Error("the stalled pull came")
	}
}

func TestTurns(t *testing.T) {
	yes, no, three := true, false, int32(3)
	for _, tc := range []struct {
		name     string
		serial   *bool
		parallel *int32
		origins  kubeletconfig.Origins
		want     queue.Rules
	}{
		{"default", &yes, nil, nil, queue.Rules{Limit: 1, Patience: lending}},
		{"serial on purpose", &yes, nil, kubeletconfig.Origins{"serializeImagePulls": {Flag: "serialize-image-pulls"}}, queue.Rules{Limit: 1}},
		{"parallel", &no, nil, nil, queue.Rules{}},
		{"three at a time", &no, &three, nil, queue.Rules{Limit: 3}},
	} {
		cfg := &kubeletconfig.Config{Origins: tc.origins}
		cfg.Kubelet.SerializeImagePulls, cfg.Kubelet.MaxParallelImagePulls = tc.serial, tc.parallel
		if got := turnsOf(cfg); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestParallelPulls(t *testing.T) {
	n := start(t, false)
	serial, limit := false, int32(2)
	n.conf.Kubelet.SerializeImagePulls, n.conf.Kubelet.MaxParallelImagePulls = &serial, &limit
	stall := n.rt.Stall(fakecri.Match{Method: "PullImage"})
	done := make(chan error, 3)
	for _, image := range []string{"a:1", "b:1", "c:1"} {
		go func() { _, err := n.ensure(image, v1.PullAlways); done <- err }()
	}
	if err := stall.Wait(n.ctx(), 2); err != nil {
		t.Fatal(err)
	}
	if got := stall.Caught(); got != 2 {
		t.Errorf("%d pulls at once, want 2", got)
	}
	stall.Release()
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestSharedPull(t *testing.T) {
	n := start(t, false)
	stall := n.rt.Stall(fakecri.Match{Method: "PullImage"})
	done := make(chan error, 5)
	for range cap(done) {
		go func() { _, err := n.ensure("big:1", v1.PullIfNotPresent); done <- err }()
	}
	if err := stall.Wait(n.ctx(), 1); err != nil {
		t.Fatal(err)
	}
	// All have looked before the first has finished.
	if err := n.rt.WaitCall(n.ctx(), fakecri.Match{Method: "ImageStatus"}, cap(done)); err != nil {
		t.Fatal(err)
	}
	stall.Release()
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := n.rt.Count(fakecri.Match{Method: "PullImage"}); got != 1 {
		t.Errorf("%d pulls of one image, want 1", got)
	}
}

func TestPullQPS(t *testing.T) {
	n := start(t, false)
	qps := int32(1)
	n.conf.Kubelet.RegistryPullQPS, n.conf.Kubelet.RegistryBurst = &qps, 1
	if _, err := n.ensure("a:1", v1.PullAlways); err != nil {
		t.Fatal(err)
	}
	_, err := n.ensure("b:1", v1.PullAlways)
	wantReason(t, err, reason.ErrImagePull, "pull QPS exceeded")
}

func TestSizeBuckets(t *testing.T) {
	for size, want := range map[uint64]string{0: "N/A", 1: "0-10MB", 10 << 20: "10MB-100MB", 200 << 30: "GT100GB"} {
		if got := sizeBucket(size); got != want {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
}

func TestImageUserIsAskedForOnce(t *testing.T) {
	uid := int64(1234)
	n := start(t, false, fakecri.Image{Ref: "docker.io/library/have:1", UID: &uid})
	p := web(func(p *v1.Pod) { p.Spec.Containers[0].Image = "have:1" })
	n.run(p)
	if got := request[*runtimeapi.CreateContainerRequest](n, "CreateContainer").GetConfig().GetLinux().GetSecurityContext().GetRunAsUser().GetValue(); got != uid {
		t.Errorf("runs as %d, want the image's user", got)
	}
	if got := n.rt.Count(fakecri.Match{Method: "ImageStatus"}); got != 1 {
		t.Errorf("the runtime was asked %d times for the image", got)
	}
}
