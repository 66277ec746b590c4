// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// awaited tells which pods may run that hold nothing here yet: what a kubelet's files have of
// them is theirs until it is stale. As with a kubelet that is when the sources of pods are
// complete and the pod is not among them, or it has ended, as its cgroup shows. What is stale
// stays so: others may have it since.
type awaited struct {
	claims *claims
	tree   *tree

	mu    sync.Mutex
	stale map[string]bool // by UID
}

func newAwaited(claims *claims, tree *tree) *awaited {
	return &awaited{claims: claims, tree: tree, stale: map[string]bool{}}
}

// over notes that a pod has ended, or is refused.
func (a *awaited) over(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stale[uid] = true
}

// pods reports of a pod that holds nothing whether it may run.
func (a *awaited) pods(now *settings) func(uid string) bool {
	return func(uid string) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.stale[uid] && a.claims.known() {
			a.stale[uid] = !a.claims.expects(uid) ||
				now.qos() && (pod.CheckUID(types.UID(uid)) != nil || a.tree.find(now, types.UID(uid)) == nil)
		}
		return !a.stale[uid]
	}
}

// forget forgets pods of which the kubelet's files have nothing.
func (a *awaited) forget(now *settings) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.stale, func(uid string, _ bool) bool { return !now.pins.WasFound(uid) })
}
