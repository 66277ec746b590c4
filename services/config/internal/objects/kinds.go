// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"slices"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/config/internal/refs"
)

// Object is an API object that can be put on the wire.
type Object interface {
	runtime.Object
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// access is how a node may read a kind.
type access int

const (
	// watched one by one.
	watched access = iota
	// watched, unless the detection strategy says otherwise.
	byStrategy
	// asked for by get only.
	asked
)

// kind is how objects of one kind are read.
type kind struct {
	resource string
	access   access
	client   func(kubernetes.Interface) rest.Interface
	empty    func() Object
}

func core(c kubernetes.Interface) rest.Interface { return c.CoreV1().RESTClient() }

var kinds = map[string]kind{
	refs.ConfigMap:             {"configmaps", byStrategy, core, func() Object { return &v1.ConfigMap{} }},
	refs.Secret:                {"secrets", byStrategy, core, func() Object { return &v1.Secret{} }},
	refs.Node:                  {"nodes", watched, core, func() Object { return &v1.Node{} }},
	refs.PersistentVolumeClaim: {"persistentvolumeclaims", asked, core, func() Object { return &v1.PersistentVolumeClaim{} }},
	refs.PersistentVolume:      {"persistentvolumes", asked, core, func() Object { return &v1.PersistentVolume{} }},
	refs.Service:               {"services", watched, core, func() Object { return &v1.Service{} }},
	refs.RuntimeClass: {"runtimeclasses", watched,
		func(c kubernetes.Interface) rest.Interface { return c.NodeV1().RESTClient() },
		func() Object { return &nodev1.RuntimeClass{} }},
	refs.CSIDriver: {"csidrivers", watched,
		func(c kubernetes.Interface) rest.Interface { return c.StorageV1().RESTClient() },
		func() Object { return &storagev1.CSIDriver{} }},
	refs.VolumeAttachment: {"volumeattachments", asked,
		func(c kubernetes.Interface) rest.Interface { return c.StorageV1().RESTClient() },
		func() Object { return &storagev1.VolumeAttachment{} }},
	pod.TrustBundle:   trustBundles,
	pod.SignersBundle: trustBundles,
	refs.ResourceClaim: {"resourceclaims", asked,
		func(c kubernetes.Interface) rest.Interface { return c.ResourceV1().RESTClient() },
		func() Object { return &resourcev1.ResourceClaim{} }},
}

var trustBundles = kind{"clustertrustbundles", watched,
	func(c kubernetes.Interface) rest.Interface { return c.CertificatesV1beta1().RESTClient() },
	func() Object { return &certificatesv1beta1.ClusterTrustBundle{} }}

// immutable reports whether an object will not change any more.
func immutable(o Object) bool {
	switch o := o.(type) {
	case *v1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	case *v1.Secret:
		return o.Immutable != nil && *o.Immutable
	}
	return false
}

// reserved reports whether a pod may use a resource claim.
func reserved(o *resourcev1.ResourceClaim, uid types.UID) bool {
	return slices.ContainsFunc(o.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == uid })
}

// settled reports whether an object that is asked for needs no close look any more. users are
// the pods of this node that need it.
func settled(o Object, users []types.UID) bool {
	switch o := o.(type) {
	case nil:
		return false
	case *v1.PersistentVolumeClaim:
		if o.Spec.VolumeName == "" || o.Status.Phase != v1.ClaimBound {
			return false
		}
		state := o.Status.AllocatedResourceStatuses[v1.ResourceStorage] // the node is at work on its size
		return state != v1.PersistentVolumeClaimNodeResizePending && state != v1.PersistentVolumeClaimNodeResizeInProgress
	case *v1.PersistentVolume:
		return o.Spec.ClaimRef != nil && o.Spec.ClaimRef.UID != "" // the binder names the claim first, and which one it is later
	case *storagev1.VolumeAttachment:
		return o.Status.Attached && o.DeletionTimestamp == nil
	case *resourcev1.ResourceClaim:
		return o.Status.Allocation != nil && !slices.ContainsFunc(users, func(uid types.UID) bool { return !reserved(o, uid) })
	}
	return true
}
