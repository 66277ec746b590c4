package podworker

import (
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/podworker/internal/dead"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// leftoverPeriod is how often the disk is searched for pods nobody knows.
const leftoverPeriod = time.Minute

// leftovers finds what pods nobody knows have left on the disk. Each gets a
// worker, which sees that nothing of it is left anywhere and cleans up.
func (l *loop) leftovers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.complete {
		return
	}
	l.sweep()
	found := map[types.UID]*v1.Pod{}
	for _, entry := range entries(l.layout.Pods()) {
		uid := types.UID(entry.Name())
		found[uid] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	}
	for _, entry := range entries(l.cfg.podLogsDir) {
		if namespace, name, uid, ok := pod.ParsePodLogDir(entry.Name()); ok {
			found[uid] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: namespace, Name: name}}
		}
	}
	for uid, p := range found {
		if _, ok := l.workers[uid]; !ok {
			l.log.Info("unknown pod left something on the disk", service.KeyUID, string(uid))
			l.considerLocked(uid, p)
		}
	}
}

// countDead finds dead containers of which the node has too many in all
// (--maximum-dead-containers), and wakes their pods.
func (l *loop) countDead() {
	c := l.Config()
	if c == nil || c.Node.MaxDeadContainers < 0 || !l.in.Records.Complete() {
		return
	}
	var all []dead.Container
	of := map[string]types.UID{}
	for _, r := range l.in.Records.Items() {
		for _, o := range r.Containers {
			if o.State != step.Exited || l.clock.Now().Before(o.CreatedAt.Add(c.Node.MinimumContainerTTL)) {
				continue
			}
			all, of[o.ID] = append(all, dead.Container{ID: o.ID, Pod: string(r.UID), Name: o.Name, Created: o.CreatedAt}), r.UID
		}
	}
	surplus := dead.Surplus(all, int(c.Node.MaxDeadContainers))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.surplus = surplus
	for id := range surplus {
		if w, ok := l.workers[of[id]]; ok {
			w.poke()
		}
	}
}

func entries(dir string) []os.DirEntry {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil // not made yet
	}
	var dirs []os.DirEntry
	for _, e := range all {
		if e.IsDir() {
			dirs = append(dirs, e)
		}
	}
	return dirs
}
