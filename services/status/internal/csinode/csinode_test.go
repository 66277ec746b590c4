// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sextant-node/sextant/pkg/signal"
)

// client asks client-go's fake.
type client struct{ kubernetes.Interface }

func (c client) GetCSINode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	return c.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
}

func (c client) CreateCSINode(ctx context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	return c.StorageV1().CSINodes().Create(ctx, n, metav1.CreateOptions{})
}

func (c client) UpdateCSINode(ctx context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	return c.StorageV1().CSINodes().Update(ctx, n, metav1.UpdateOptions{})
}

func (c client) DeleteCSINode(ctx context.Context, name string, uid types.UID) error {
	return c.StorageV1().CSINodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// rig is a keeper before a fake API server, on synthetic time.
type rig struct {
	t       *testing.T
	api     *fake.Clientset
	keeper  *Keeper
	wake    signal.Signal
	uid     atomic.Value
	drivers atomic.Pointer[[]storagev1.CSINodeDriver]
	changes atomic.Int32
}

func run(t *testing.T, test func(r *rig), objects ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, api: fake.NewClientset(objects...)}
		r.uid.Store(types.UID(""))
		r.wake = signal.New()
		r.keeper = New(Deps{
			Wake: r.wake,
			API:  client{r.api}, Node: func() (string, types.UID) { return "n1", r.uid.Load().(types.UID) },
			Drivers: func() ([]storagev1.CSINodeDriver, bool) {
				d := r.drivers.Load()
				if d == nil {
					return nil, false
				}
				return *d, true
			},
			Changed: func() { r.changes.Add(1) }, Log: slog.New(slog.DiscardHandler),
		})
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			if err := r.keeper.Run(ctx); err != nil {
				t.Errorf("csinode: %v", err)
			}
		}()
		test(r)
		stop()
		synctest.Wait()
	})
}

func (r *rig) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (r *rig) node(uid types.UID) {
	r.uid.Store(uid)
	r.wake.Send()
	synctest.Wait()
}

func (r *rig) verbs() string {
	var verbs []string
	for _, a := range r.api.Actions() {
		verbs = append(verbs, a.GetVerb())
	}
	return strings.Join(verbs, " ")
}

func (r *rig) get() *storagev1.CSINode {
	r.t.Helper()
	n, err := r.api.Tracker().Get(storagev1.SchemeGroupVersion.WithResource("csinodes"), "", "n1")
	if err != nil {
		r.t.Fatal(err)
	}
	return n.(*storagev1.CSINode)
}

func TestMade(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		if r.verbs() != "" || r.keeper.Problem() != "CSINode is not yet initialized" {
			t.Fatalf("before there is a Node: %q, %q", r.verbs(), r.keeper.Problem())
		}
		r.node("u1")
		n := r.get()
		if r.verbs() != "get create" || r.keeper.Problem() != "" || r.changes.Load() != 1 {
			t.Errorf("%s; problem %q, %d changes", r.verbs(), r.keeper.Problem(), r.changes.Load())
		}
		if o := n.OwnerReferences[0]; o.APIVersion != "v1" || o.Kind != "Node" || o.Name != "n1" || o.UID != "u1" || len(n.Spec.Drivers) != 0 {
			t.Errorf("%+v", n)
		}
		if got := n.Annotations["storage.alpha.kubernetes.io/migrated-plugins"]; !strings.HasPrefix(got, "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,") {
			t.Errorf("annotation %q", got)
		}
		r.wake.Send()
		r.pass(time.Hour)
		if r.verbs() != "get create" {
			t.Errorf("asked again: %s", r.verbs())
		}
		// A Node that was made again gets a CSINode of its own.
		r.node("u2")
		if n := r.get(); n.OwnerReferences[0].UID != "u2" || r.keeper.Problem() != "" {
			t.Errorf("%+v, %q", n.OwnerReferences, r.keeper.Problem())
		}
	})
}

func TestTakenOver(t *testing.T) {
	had := object("n1", "u1")
	had.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "csi.example.com", NodeID: "n1"}}
	run(t, func(r *rig) {
		r.node("u1")
		if r.verbs() != "get" || r.keeper.Problem() != "" {
			t.Errorf("%s, %q", r.verbs(), r.keeper.Problem())
		}
	}, had)
	unnoted := had.DeepCopy()
	unnoted.Annotations = map[string]string{"mine": "kept"}
	run(t, func(r *rig) {
		r.node("u1")
		n := r.get()
		if r.verbs() != "get update" || len(n.Spec.Drivers) != 1 || n.Annotations["mine"] != "kept" || !noted(n) {
			t.Errorf("%s: %+v", r.verbs(), n)
		}
	}, unnoted)
}

func TestAway(t *testing.T) {
	run(t, func(r *rig) {
		var broken atomic.Bool
		broken.Store(true)
		r.api.PrependReactor("*", "csinodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return broken.Load(), nil, errors.New("connection refused")
		})
		r.node("u1")
		if got := r.keeper.Problem(); got != "failed to initialize CSINode: connection refused" {
			t.Errorf("%q", got)
		}
		r.pass(5 * time.Minute)
		if n := len(r.api.Actions()); n < 20 || n > 80 {
			t.Errorf("%d tries in five minutes", n)
		}
		broken.Store(false)
		r.pass(2 * retries.Most)
		if r.keeper.Problem() != "" || r.changes.Load() != 2 {
			t.Errorf("%q, %d changes", r.keeper.Problem(), r.changes.Load())
		}
	})
}

func TestDriversAreListed(t *testing.T) {
	driver := func(name, id string) storagev1.CSINodeDriver {
		return storagev1.CSINodeDriver{Name: name, NodeID: id, TopologyKeys: []string{"zone"}}
	}
	run(t, func(r *rig) {
		list := func(drivers ...storagev1.CSINodeDriver) {
			r.drivers.Store(&drivers)
			r.wake.Send()
			r.pass(time.Minute)
		}
		want := func(text string) {
			t.Helper()
			var all []string
			for _, d := range r.get().Spec.Drivers {
				all = append(all, d.Name+"="+d.NodeID)
			}
			if got := strings.Join(all, " "); got != text {
				t.Errorf("drivers %q, want %q", got, text)
			}
		}
		r.node("u1")
		if r.verbs() != "get create" {
			t.Errorf("before drivers are known: %s", r.verbs())
		}
		list(driver("a", "1"))
		want("a=1")
		r.api.ClearActions()
		r.wake.Send()
		r.pass(time.Hour)
		if r.verbs() != "" {
			t.Errorf("written again: %s", r.verbs())
		}
		// A driver that changed is taken out first: the API refuses it otherwise.
		list(driver("a", "2"), driver("b", "1"))
		want("a=2 b=1")
		if r.verbs() != "get update update" {
			t.Errorf("a changed driver: %s", r.verbs())
		}
		// What fails is tried again, and is no problem of the node.
		fails := true
		r.api.PrependReactor("update", "csinodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if fails {
				fails = false
				return true, nil, errors.New("busy")
			}
			return false, nil, nil
		})
		list(driver("b", "1"))
		want("b=1")
		if fails || r.keeper.Problem() != "" {
			t.Errorf("failed %v, problem %q", !fails, r.keeper.Problem())
		}
		list()
		want("")
	})
}
