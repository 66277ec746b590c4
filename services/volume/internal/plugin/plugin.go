// SPDX-License-Identifier: Apache-2.0

// Package plugin is the seam between the volume service and the types of volumes: one
// package per type below it, all behind the interface Plugin.
//
// A new type of volume is a row in pkg/pod/volumetype, a package here, and a line in the
// registry of the volume service (plugins.go); and a subject of the suite in this package's
// tests, which every plugin runs.
package plugin

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/claim"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/demand"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
)

// Plugin makes the volumes of one type.
//
// No volume of a pod is made twice at the same time, nor are two of one claim; and none is
// made while the pod's volumes are removed. The service may be killed at any point. The life
// of an NFS volume:
//
//	// The pod is declared. Nothing is there yet.
//	_, ok := nfs.Standing(pod, volume)    // "", false
//
//	// Made: the folder pods/<uid>/volumes/kubernetes.io~nfs/data exists, and the
//	// export is mounted on it.
//	made, err := nfs.Make(ctx, request)
//
//	// Made again, because an object changed, or an hour later: nothing happens, and
//	// the same path is returned. Had Make failed after it made the folder, or had the
//	// service been killed then, this call would do the rest.
//	made, err = nfs.Make(ctx, request)
//
//	// The service starts again, perhaps without an API server. Containers go on with
//	// the volume before Make is called again.
//	made, ok = nfs.Standing(pod, volume)  // the same path, true
//
//	// The pod is withdrawn: a call of Make that waits for the server is cut short
//	// (Request.WhileWanted). Then the service unmounts and removes everything in the
//	// volume folders of the pod. Types that have something to undo before or after
//	// that are an Unpublisher or a Releaser, too.
type Plugin interface {
	// Standing returns a volume that was made earlier, by this service or by a kubelet,
	// and is still there. It reads only the root directory's own disk and the mount
	// table: it never waits for the volume's file system.
	Standing(p *v1.Pod, v *v1.Volume) (Made, bool)

	// Make makes sure of a volume. It is idempotent, and never disturbs what containers
	// use. An error that wraps content.ErrWait or is a demand.Wait says that something
	// is not there yet: it is no failure, and has no event for two minutes. Any other
	// error is reported as the event FailedMount, and Make is called again later, with
	// exponential back-off. Of a volume that stands when Make fails, containers keep what they have.
	Make(ctx context.Context, r *Request) (Made, error)
}

// Unpublisher is a Plugin that undoes something before the volumes of a pod are
// unmounted. Unpublish is idempotent, and called for pods without volumes of the type, too.
type Unpublisher interface {
	Unpublish(ctx context.Context, uid types.UID) error
}

// Releaser is a Plugin that undoes something after the volumes of a pod were unmounted
// and their folders removed. Release is called as Unpublish is.
type Releaser interface {
	Release(ctx context.Context, uid types.UID) error
}

// Reaper is a Plugin whose volumes are on the node beside the pods that have them, and stay
// there when the last pod has left. Left lists those, and Reap lets go of one of them, unless
// a pod has it by then; it is called again until it succeeds. Names are not those of another
// plugin's volumes.
type Reaper interface {
	Left() []string
	Reap(ctx context.Context, name string) error
}

// Attacher is a Plugin of volumes that the attach controller knows: InUse lists its names
// of those that pods of this node have, or are about to have.
type Attacher interface {
	InUse() []string
}

// Meter is a Plugin that knows how full its volumes are. Measure returns ErrNoStats for a
// path to count files of; with health it says how the volume is, where that is known.
type Meter interface {
	Measure(ctx context.Context, path string, health bool) (*measure.Reading, error)
}

// Request is a volume to be made.
type Request struct {
	Pod    *v1.Pod
	Volume *v1.Volume
	// Source is what the volume's claim leads to; nil for a volume of the pod's own.
	Source  *claim.Source
	Objects Objects
	Report  Reporter
	// Leaving is done when the pod is withdrawn.
	Leaving context.Context
}

// Type is the type of the volume, or of that which its claim leads to.
func (r *Request) Type() *volumetype.Type {
	if r.Source != nil {
		return volumetype.OfPersistent(r.Source.Volume)
	}
	return volumetype.Of(r.Volume)
}

// Name is the name of the volume on disk: the persistent volume's, or that in the pod.
func (r *Request) Name() string {
	if r.Source != nil {
		return r.Source.Volume.Name
	}
	return r.Volume.Name
}

// WhileWanted is a context that ends when the pod is withdrawn: for waits on others that
// leave nothing behind when they are cut short.
func (r *Request) WhileWanted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.Leaving, cancel)
	return ctx, func() { stop(); cancel() }
}

// Group is the fsGroup of the pod, nil for none, and whether only a volume whose root is
// not the group's is given to it (fsGroupChangePolicy).
func (r *Request) Group() (group *int64, onMismatch bool) {
	if c := r.Pod.Spec.SecurityContext; c != nil {
		return c.FSGroup, c.FSGroupChangePolicy != nil && *c.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch
	}
	return nil, false
}

// Made is a volume that was made sure of.
type Made struct {
	// Path is what containers mount; empty if the runtime mounts it by itself.
	Path string
	// Relabel reports whether the runtime labels its files on a node with SELinux.
	Relabel bool
	// Unmeasured: usage and capacity are not measured, for the files are the node's and not
	// the pod's (a hostPath).
	Unmeasured bool
	// Refresh is when to make sure of it again; zero for when something changes.
	Refresh time.Time
}

// Objects are the API objects, tokens and certificates that volumes are made of. Whatever
// is looked up has the volume made again when it changes.
type Objects interface {
	content.Objects
	demand.Objects
	// AllocatableOnce is Allocatable for a volume that is not made again when it changes.
	AllocatableOnce() (v1.ResourceList, error)
	// Standalone reports whether this node has no API server, and with it no attach
	// controller. The error wraps content.ErrWait while that is not known.
	Standalone() (bool, error)
}

// Reporter takes what is to be known of a volume beside its path.
type Reporter interface {
	// Attaches notes the attach controller's name of the volume: the node lists it as in
	// use from then on, which the controller waits for.
	Attaches(ctx context.Context, name string)
	// Changed is called when the result of InUse may be another.
	Changed(ctx context.Context)
	// Event emits an event about the pod, or about its claim.
	Event(ctx context.Context, about *eventv1.ObjectReference, kind, reason, message string)
	// Expansion is what the claim is to say of its volume's size; nil for nothing.
	Expansion(ctx context.Context, item *volumev1.ClaimExpansion)
}

// PodReference is a pod in an event.
func PodReference(p *v1.Pod) *eventv1.ObjectReference {
	return &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)}
}

// ClaimReference is a claim in an event.
func ClaimReference(c *v1.PersistentVolumeClaim) *eventv1.ObjectReference {
	return &eventv1.ObjectReference{ApiVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}
}
