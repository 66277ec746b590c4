// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"hash/fnv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// specification is what a worker knows of its pod's specification.
type specification struct {
	// source is where the pod came from, empty while only the runtime knows it.
	source string
	// identity has the names of the pod, once known, and may have no more.
	identity *v1.Pod
	// accepted is the specification config listed last; id tells two of them apart, and
	// packed is its wire form. Nil when config never listed the pod.
	accepted *v1.Pod
	id       uint64
	packed   []byte
	// sized is the pod that config lists with the resources that are allocated; print is
	// that pod's fingerprint.
	sized struct {
		from, pod *v1.Pod
		sizes     string
		print     uint64
	}
}

// identify keeps the names of the pod.
func (s *specification) identify(namespace, name string, uid types.UID) {
	s.identity = &v1.Pod{}
	s.identity.Namespace, s.identity.Name, s.identity.UID = namespace, name, uid
}

// named takes the names from a record of the runtime while nothing else gives them.
func (s *specification) named(record *observe.Record, _ bool) {
	if record != nil && (s.identity == nil || s.identity.Name == "") {
		s.identity = record.Pod()
	}
}

// restore takes over what the journal has. The error is about its pod alone.
func (s *specification) restore(uid types.UID, record journal.Record) error {
	s.source, s.packed = record.Source, record.Pod
	s.identify(record.Namespace, record.Name, uid)
	var err error
	s.accepted, err = record.Decode()
	return err
}

// accept takes over the specification that config lists; changed reports whether it is
// another one.
func (s *specification) accept(d *step.Desired) (changed bool, err error) {
	s.source = d.Source
	id := d.Fingerprint
	if at := d.Pod.DeletionTimestamp; at != nil {
		id ^= uint64(at.Unix())
		if g := d.Pod.DeletionGracePeriodSeconds; g != nil {
			id ^= uint64(*g) << 40
		}
	}
	if s.accepted != nil && s.id == id {
		return false, nil
	}
	kept := *d.Pod
	kept.Status = v1.PodStatus{}
	kept.ManagedFields, kept.ResourceVersion = nil, ""
	packed, err := kept.Marshal()
	if err != nil {
		return false, err
	}
	s.accepted, s.id, s.packed = &kept, id, packed
	s.identity = s.accepted
	return true, nil
}

// withSizes is a pod that config lists with other resources, on which volumes depend too.
func (s *specification) withSizes(d *step.Desired, sizes []byte) (*step.Desired, error) {
	if s.sized.from != d.Pod || s.sized.sizes != string(sizes) {
		spec := &v1.PodSpec{}
		if err := spec.Unmarshal(sizes); err != nil {
			return d, err
		}
		s.sized.from, s.sized.sizes, s.sized.pod, s.sized.print = d.Pod, string(sizes), pod.WithSizes(d.Pod, spec), d.Fingerprint
		if s.sized.pod != d.Pod {
			h := fnv.New64a()
			_, _ = h.Write(sizes)
			s.sized.print = max(d.Fingerprint^h.Sum64(), 1)
		}
	}
	sized := *d
	sized.Pod, sized.Fingerprint = s.sized.pod, s.sized.print
	return &sized, nil
}

// static reports whether the pod is known to be a static one.
func (s *specification) static() bool { return s.accepted != nil && pod.IsStatic(s.accepted) }

func priority(p *v1.Pod) int32 {
	if p == nil {
		return 0
	}
	return pod.Priority(p)
}
