// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/dead"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// leftoverPeriod is how often what unknown pods have left is looked for.
const leftoverPeriod = time.Minute

// leftovers finds what unknown pods have left on the disk, or hold: a command to a
// neighbour that was given up may be carried out after the opposite one. Each gets a
// worker, which sees that nothing of it is left anywhere and cleans up.
func (l *loop) leftovers() {
	l.mu.Lock()
	complete := l.complete
	l.mu.Unlock()
	if !complete {
		return
	}
	// Without the lock: a disk that hangs stops no worker. One that ends while the first
	// search goes on has removed everything by the time of the second.
	found, folders := l.search(), map[types.UID]bool{}
	for _, entry := range entries(l.layout.Pods()) {
		folders[types.UID(entry.Name())] = true
	}
	l.mu.Lock()
	maps.DeleteFunc(found, func(uid types.UID, _ *v1.Pod) bool { return l.workers[uid] != nil })
	l.mu.Unlock()
	still := found
	if len(found) > 0 {
		still = l.search()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.metrics.stuck.Set(float64(stuckLeftovers(l.workers, l.in.Volumes)))
	l.metrics.swept.Set(float64(l.swept))
	l.swept = 0
	for uid, p := range found {
		if still[uid] != nil && l.workers[uid] == nil {
			l.log.Info("unknown pod left something", service.KeyUID, string(uid))
			l.considerLocked(uid, p)
			if w := l.workers[uid]; w != nil {
				w.leftover = folders[uid]
			}
		}
	}
}

// stuckLeftovers counts the pods found by a search whose volumes cannot be removed.
func stuckLeftovers(workers map[types.UID]*worker, replica *feed.Replica[*volumev1.PodVolumes]) (stuck int) {
	for uid, w := range workers {
		item, _ := replica.Get(string(uid))
		if w.leftover && slices.ContainsFunc(item.GetVolumes(), func(v *volumev1.Volume) bool { return v.GetError() != "" }) {
			stuck++
		}
	}
	return stuck
}

// search finds every pod that has something on the disk, or a cgroup, or holds something.
func (l *loop) search() map[types.UID]*v1.Pod {
	found := map[types.UID]*v1.Pod{}
	node, _ := l.in.Node.Get("node")
	for _, uid := range node.GetUnallocatedCgroups() {
		found[types.UID(uid)] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	}
	for _, entry := range entries(l.layout.Pods()) {
		uid := types.UID(entry.Name())
		found[uid] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	}
	for _, entry := range entries(l.cfg.podLogsDir) {
		if namespace, name, uid, ok := pod.ParsePodLogDir(entry.Name()); ok {
			found[uid] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: namespace, Name: name}}
		}
	}
	for uid := range l.in.Volumes.Items() {
		found[types.UID(uid)] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	}
	for uid, held := range l.in.Allocations.Items() {
		found[types.UID(uid)] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: held.GetNamespace(), Name: held.GetName()}}
	}
	return found
}

// countDead finds dead containers of which the node has too many in all
// (--maximum-dead-containers), and wakes their pods.
func (l *loop) countDead() {
	c := l.config.Config()
	if c == nil || c.Node.MaxDeadContainers < 0 || !l.in.Records.Listed() {
		return
	}
	var all []dead.Container
	of := map[string]types.UID{}
	for _, r := range l.in.Records.Items() {
		for _, o := range r.Containers {
			if o.State != step.Exited || l.clock.Now().Before(o.CreatedAt.Add(c.Node.MinimumContainerTTL)) {
				continue
			}
			all, of[o.ID] = append(all, dead.Container{ID: o.ID, Pod: string(r.UID), Name: o.Name, Attempt: o.RestartCount, Created: o.CreatedAt}), r.UID
		}
	}
	excess := dead.Excess(all, int(c.Node.MaxDeadContainers))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.excess = excess
	for id := range excess {
		if w, ok := l.workers[of[id]]; ok {
			w.poke()
		}
	}
}

// reportUncollected emits, each minute while that is so, why dead containers, sandboxes and
// logs cannot be collected: the runtime does not say what there is, or the logs cannot be
// listed. One that is not removed is tried again, and no event, as with a kubelet.
func (l *loop) reportUncollected(ctx context.Context) {
	why := ""
	if state, ok := l.in.Runtime.Get("runtime"); ok {
		why = state.away
	}
	if _, err := os.ReadDir(l.cfg.podLogsDir); why == "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
		why = fmt.Sprintf("failed to read podLogsRootDirectory %q: %v", l.cfg.podLogsDir, err)
	}
	if why == "" {
		return
	}
	l.log.Error("container garbage collection failed", service.KeyError, why)
	l.end.tell(ctx, v1.EventTypeWarning, "ContainerGCFailed", why)
}

func entries(dir string) []os.DirEntry {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil // not made yet
	}
	return slices.DeleteFunc(all, func(e os.DirEntry) bool { return !e.IsDir() })
}

// reconsider looks again at pods that were forgotten and of which the replica still has a
// record: a runtime may say that it has removed something and keep it.
func (l *loop) reconsider() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, d := range l.forgotten {
		if l.clock.Since(d.at) >= leftoverPeriod {
			delete(l.forgotten, uid)
			l.considerLocked(uid, nil)
		}
	}
}
