// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume"
	"github.com/sextant-node/sextant/test/standin"
	"github.com/sextant-node/sextant/test/volumetest"
)

// rig is a volume service on real disks and mounts, between stand-ins for config
// and resource, seen through its socket.
type rig struct {
	*standin.House
	root    string
	objects *feed.Owner[*configv1.Object]
	secrets *feed.Owner[*configv1.Object]
	node    *feed.Owner[*resourcev1.NodeResources]
	kubelet *feed.Owner[*configv1.KubeletConfig]
	tokens  *tokens
	client  volumev1.VolumeServiceClient
	pods    *feed.Replica[*volumev1.PodVolumes]
	events  *feed.Replica[*eventv1.Event]

	limit      time.Duration // of steps in children, from the next start on
	stopConfig func()
	stop       func() // of the service under test
	metrics    prometheus.Gatherer
}

// tokens is config's Token.
type tokens struct {
	configv1.UnimplementedConfigServiceServer
	mu    sync.Mutex
	err   error
	calls []*configv1.TokenRequest
	now   func() time.Time
	// keeps: the last token serves until four fifths of its life are over and, while the API
	// server is away, after that.
	keeps, away bool
	kept        *configv1.TokenResponse
	stalled     chan struct{} // answers wait until it is closed; nil for no wait
	left        int           // requests that were given up meanwhile
}

func (k *tokens) Token(ctx context.Context, req *configv1.TokenRequest) (*configv1.TokenResponse, error) {
	k.mu.Lock()
	k.calls = append(k.calls, req)
	stalled := k.stalled
	k.mu.Unlock()
	if stalled != nil {
		select {
		case <-stalled:
		case <-ctx.Done():
			k.mu.Lock()
			defer k.mu.Unlock()
			k.left++
			return nil, rpc.Unavailable.Errorf("%w", ctx.Err())
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, k.err
	}
	life := req.GetExpiration().AsDuration()
	if k.keeps && k.kept != nil && (k.away || k.now().Before(k.kept.GetExpiresAt().AsTime().Add(-life/5))) {
		return k.kept, nil
	}
	k.kept = &configv1.TokenResponse{Token: fmt.Sprintf("token %d", len(k.calls)), ExpiresAt: timestamppb.New(k.now().Add(life))}
	return k.kept, nil
}

// stall keeps tokens from being answered until release is called.
func (k *tokens) stall() (release func()) {
	gate := make(chan struct{})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stalled = gate
	return sync.OnceFunc(func() { close(gate) })
}

// keep has the last token kept, as config does, which cannot replace it while the API
// server is away.
func (k *tokens) keep(away bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keeps, k.away = true, away
}

func (k *tokens) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

func (k *tokens) asked() []*configv1.TokenRequest {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*configv1.TokenRequest(nil), k.calls...)
}

func TestMain(m *testing.M) {
	volumetest.Child(func(root string) error { return volume.ServeSteps(root, os.Stdin, os.Stdout) })
	if os.Getenv(rootEnv) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func newRig(t *testing.T, edit func(*volume.Deps)) *rig {
	t.Helper()
	r := &rig{House: standin.New(t), root: volumetest.Root(t), tokens: &tokens{now: time.Now}}
	config := r.Kit(house.Config)
	r.objects = service.Owner(config, house.ConfigObjects)
	r.secrets = service.Owner(config, house.ConfigSecrets)
	r.kubelet = service.Owner(config, house.ConfigKubelet)
	configv1.RegisterConfigServiceServer(config.Server, r.tokens)
	r.stopConfig = r.Start(config)
	resource := r.Kit(house.Resource)
	r.node = service.Owner(resource, house.ResourceNode)
	r.Start(resource)
	r.start(edit)
	r.client = volumev1.NewVolumeServiceClient(r.Dial(house.Volume))
	r.pods = standin.Read(r.House, house.VolumePods)
	r.events = standin.Read(r.House, house.VolumeEvents)
	return r
}

// start starts the service, a second time on what the first life left. Then it waits until the
// reader has come to this life; what is ready is of it (ready).
func (r *rig) start(edit func(*volume.Deps)) {
	r.Helper()
	if r.pods != nil {
		before, _, _, _ := r.pods.State()
		defer r.Eventually("another life", func() bool { now, _, _, _ := r.pods.State(); return now.Epoch != before.Epoch })
	}
	deps := volume.Deps{Kit: r.Kit(house.Volume)}
	if edit != nil {
		edit(&deps)
	}
	if _, err := volume.New(volume.Config{RootDir: r.root, Child: volumetest.Command(r.root), StepLimit: r.limit}, deps); err != nil {
		r.Fatal(err)
	}
	r.stop, r.metrics = r.Start(deps.Kit), deps.Kit.Metrics
}

// of makes a pod with volumes.
func of(t testing.TB, uid, volumes string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	text := "metadata: {namespace: ns, name: " + uid + "-name, uid: " + uid + "}\nspec:\n  volumes:\n" + indent(volumes)
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.Trim(text, "\n")) {
		b.WriteString("  " + line)
	}
	return b.String() + "\n"
}

// declare declares a pod, all of whose volumes are used.
func (r *rig) declare(p *v1.Pod) feed.Revision { return r.declareAsIs(used(p)) }

func (r *rig) declareAsIs(p *v1.Pod) feed.Revision {
	r.Helper()
	data, err := p.Marshal()
	if err != nil {
		r.Fatal(err)
	}
	return standin.Commanded(r.House, r.pods, func() (standin.Answer, error) {
		return r.client.Declare(r.Context(), &volumev1.DeclareRequest{Pod: data})
	})
}

// used has the first container of a pod, which may have none, mount the volumes that none uses.
func used(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	if len(p.Spec.Containers) == 0 {
		p.Spec.Containers = []v1.Container{{Name: "c"}}
	}
	c, have := &p.Spec.Containers[0], pod.UsedVolumes(p)
	for _, v := range p.Spec.Volumes {
		if !slices.ContainsFunc(have, func(u v1.Volume) bool { return u.Name == v.Name }) {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name})
		}
	}
	return p
}

func (r *rig) withdraw(uid string) {
	r.Helper()
	standin.Commanded(r.House, r.pods, func() (standin.Answer, error) {
		return r.client.Withdraw(r.Context(), &volumev1.WithdrawRequest{Uid: uid})
	})
}

func (r *rig) ready(uid string) {
	r.Helper()
	r.Eventually(uid+" ready", func() bool { item, _ := r.pods.Get(uid); return item.GetReady() && r.pods.Current(uid) })
}

func (r *rig) gone(uid string) {
	r.Helper()
	r.Eventually(uid+" gone", func() bool { _, ok := r.pods.Get(uid); return !ok && r.pods.Complete() })
}

// volume is one volume's state.
func (r *rig) volume(uid, name string) *volumev1.Volume {
	item, _ := r.pods.Get(uid)
	for _, v := range item.GetVolumes() {
		if v.GetName() == name {
			return v
		}
	}
	return nil
}

// path of a volume by plugin and name.
func (r *rig) path(uid, plugin, name string, below ...string) string {
	return filepath.Join(append([]string{r.root, "pods", uid, "volumes", "kubernetes.io~" + plugin, name}, below...)...)
}

func (r *rig) configMap(name string, data map[string]string) {
	r.Helper()
	c := &v1.ConfigMap{Data: data}
	c.Namespace, c.Name = "ns", name
	object, err := c.Marshal()
	if err != nil {
		r.Fatal(err)
	}
	standin.Set(r.House, r.objects, "ConfigMap/ns/"+name, &configv1.Object{Kind: "ConfigMap", Namespace: "ns", Name: name, Object: object})
}

func (r *rig) secret(name string, data map[string]string) {
	r.Helper()
	s := &v1.Secret{Data: map[string][]byte{}}
	s.Namespace, s.Name = "ns", name
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	object, err := s.Marshal()
	if err != nil {
		r.Fatal(err)
	}
	standin.Set(r.House, r.secrets, "Secret/ns/"+name, &configv1.Object{Kind: "Secret", Namespace: "ns", Name: name, Object: object})
}

func (r *rig) allocatable(memory string) {
	r.Helper()
	standin.Set(r.House, r.node, "node", &resourcev1.NodeResources{Allocatable: map[string]string{"memory": memory, "cpu": "4"}})
}

// messages of all events, oldest first.
func (r *rig) messages() []string {
	var all []string
	for i := 1; ; i++ {
		e, ok := r.events.Get(fmt.Sprintf("%016d", i))
		if !ok {
			return all
		}
		all = append(all, e.GetReason()+" "+e.GetObject().GetNamespace()+"/"+e.GetObject().GetName()+": "+e.GetMessage())
	}
}

func (r *rig) read(path string) string {
	r.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		r.Fatal(err)
	}
	return string(text)
}

// becomes waits for what a file of a volume is to hold.
func (r *rig) becomes(what, path, want string) {
	r.Helper()
	r.holds(what, path, func(text string) bool { return text == want })
}

// replaced waits for a file of a volume to hold something else than it had.
func (r *rig) replaced(what, path, had string) {
	r.Helper()
	r.holds(what, path, func(text string) bool { return text != had })
}

// holds waits until a file of a volume is as it should be. It is away for who is on the way to
// it when a volume is written anew, as with a kubelet.
func (r *rig) holds(what, path string, right func(text string) bool) {
	r.Helper()
	r.Eventually(what, func() bool {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.Fatal(err)
		}
		return err == nil && right(string(text))
	})
}

func (r *rig) write(path, text string) {
	r.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
}
