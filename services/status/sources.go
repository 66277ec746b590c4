// SPDX-License-Identifier: Apache-2.0

package status

import (
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

// read reports whether config has read a source of pods whole, and the pods it read are here.
func (in *inputs) read(s *configv1.Source) bool {
	at, _, _, _ := in.pods.State()
	return s.GetComplete() && (s.GetPodsRevision() == nil || at.Reached(feed.RevisionFrom(s.GetPodsRevision())))
}

// apiHeard reports whether what is here of config's pods is what the API server said. Ask
// before looking a pod up.
func (in *inputs) apiHeard() bool {
	s, ok := in.sources.Get(pod.SourceAPI)
	return ok && in.read(s)
}

// statics are the static pods that are wanted, by name; the latest of two versions. known
// reports whether every source of manifests was read whole: there are no others.
func (in *inputs) statics() (all map[string]*desired, known bool) {
	known = in.manifestsRead() // before the pods are looked at, which are of then or later
	all = map[string]*desired{}
	for _, d := range in.pods.Items() {
		if !d.static() {
			continue
		}
		name := d.pod.Namespace + "/" + d.pod.Name
		if other := all[name]; other == nil || d.item.GetSeenAt().AsTime().After(other.item.GetSeenAt().AsTime()) {
			all[name] = d
		}
	}
	return all, known
}

// manifestsRead reports whether every source of manifests was read whole, and the pods of
// all of them are here.
func (in *inputs) manifestsRead() bool {
	if !in.sources.Complete() || !in.pods.Synced() {
		return false
	}
	for name, s := range in.sources.Items() {
		if name != pod.SourceAPI && !in.read(s) {
			return false
		}
	}
	return true
}
