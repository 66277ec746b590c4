// Package gc decides what of ended pods is removed from the runtime and the
// disk: dead containers beyond those kept for their logs, sandboxes without
// containers, folders of pods nobody knows, and links that lead nowhere.
//
// It is pure. Its promise: while it is not known which pods there are, nothing
// counts as unknown, so a slow API server costs disk space and never a log.
package gc

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Facts are everything a decision depends on.
type Facts struct {
	Now time.Time
	// Complete says that Pods holds every desired pod of every source.
	Complete bool
	// Pods are the pods desired or not ended yet, by UID. Of any other nothing
	// is kept.
	Pods map[types.UID]bool

	Containers []Container
	Sandboxes  []Sandbox

	// LogDirs are the names of the folders in the pod log directory, PodDirs
	// those below pods/.
	LogDirs []string
	PodDirs []types.UID
	// Links of the legacy log directory whose target is gone, by path.
	Links []Link
}

// Container is one instance the runtime lists.
type Container struct {
	ID, Name, SandboxID string
	Pod                 types.UID
	Running             bool
	Created             time.Time
}

// Sandbox is one the runtime lists.
type Sandbox struct {
	ID      string
	Pod     types.UID
	Ready   bool
	Created time.Time
}

// Link is a legacy link to a log that is not there.
type Link struct {
	Path string
	// ContainerID at the end of its name; empty if it was cut off.
	ContainerID string
}

// Policy says how much is kept.
type Policy struct {
	// MinAge is how old something must be (minimum-container-ttl-duration).
	MinAge time.Duration
	// MaxPerContainer dead instances of one container are kept, MaxTotal of all;
	// negative for no limit.
	MaxPerContainer, MaxTotal int
}

// Plan is what to remove.
type Plan struct {
	// Containers and Sandboxes by id, oldest first; containers come first.
	Containers, Sandboxes []string
	LogDirs               []string
	PodDirs               []types.UID
	Links                 []string
}

// Decide makes the plan.
func Decide(f Facts, p Policy) Plan {
	return Plan{
		Containers: containers(f, p),
		Sandboxes:  sandboxes(f, p),
		LogDirs:    logDirs(f),
		PodDirs:    podDirs(f),
		Links:      links(f),
	}
}

// unknown tells whether a pod is known not to exist.
func (f Facts) unknown(uid types.UID) bool { return f.Complete && !f.Pods[uid] }

type key struct {
	pod  types.UID
	name string
}

// containers: all of unknown pods; of others the oldest dead beyond the limits.
func containers(f Facts, p Policy) []string {
	var gone []Container
	dead := map[key][]Container{}
	for _, c := range f.Containers {
		switch k := (key{c.Pod, c.Name}); {
		case c.Running || f.Now.Sub(c.Created) < p.MinAge:
		case f.unknown(c.Pod):
			gone = append(gone, c)
		default:
			dead[k] = append(dead[k], c)
		}
	}
	keep := func(limit int) {
		for k, list := range dead {
			slices.SortFunc(list, newest)
			if limit >= 0 && len(list) > limit {
				gone = append(gone, list[limit:]...)
				list = list[:limit]
			}
			dead[k] = list
		}
	}
	keep(p.MaxPerContainer)
	if p.MaxTotal >= 0 && total(dead) > p.MaxTotal {
		keep(max(1, p.MaxTotal/len(dead)))
		var left []Container
		for _, list := range dead {
			left = append(left, list...)
		}
		slices.SortFunc(left, newest)
		if len(left) > p.MaxTotal {
			gone = append(gone, left[p.MaxTotal:]...)
		}
	}
	slices.SortFunc(gone, func(a, b Container) int { return newest(b, a) })
	return idsOf(gone, func(c Container) string { return c.ID })
}

func newest(a, b Container) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.ID, a.ID)) }

func total(dead map[key][]Container) (n int) {
	for _, list := range dead {
		n += len(list)
	}
	return n
}

// sandboxes: those that are not ready and hold no container, all of unknown
// pods; of others all but the newest sandbox of the pod.
func sandboxes(f Facts, p Policy) []string {
	holds := map[string]bool{}
	for _, c := range f.Containers {
		holds[c.SandboxID] = true
	}
	last := map[types.UID]Sandbox{}
	for _, s := range f.Sandboxes {
		if l, ok := last[s.Pod]; !ok || s.Created.After(l.Created) {
			last[s.Pod] = s
		}
	}
	var gone []Sandbox
	for _, s := range f.Sandboxes {
		if s.Ready || holds[s.ID] || f.Now.Sub(s.Created) < p.MinAge {
			continue
		}
		if f.unknown(s.Pod) || s.ID != last[s.Pod].ID {
			gone = append(gone, s)
		}
	}
	slices.SortFunc(gone, func(a, b Sandbox) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return idsOf(gone, func(s Sandbox) string { return s.ID })
}

func idsOf[T any](list []T, id func(T) string) []string {
	var ids []string
	for _, one := range list {
		ids = append(ids, id(one))
	}
	return ids
}

// inRuntime tells whether the runtime still has something of a pod: its folders
// go after that.
func (f Facts) inRuntime(uid types.UID) bool {
	return slices.ContainsFunc(f.Containers, func(c Container) bool { return c.Pod == uid }) ||
		slices.ContainsFunc(f.Sandboxes, func(s Sandbox) bool { return s.Pod == uid })
}

func logDirs(f Facts) []string {
	var gone []string
	for _, dir := range f.LogDirs {
		if _, _, uid, ok := pod.ParsePodLogDir(dir); ok && f.unknown(uid) && !f.inRuntime(uid) {
			gone = append(gone, dir)
		}
	}
	return gone
}

func podDirs(f Facts) []types.UID {
	var gone []types.UID
	for _, uid := range f.PodDirs {
		if f.unknown(uid) && !f.inRuntime(uid) {
			gone = append(gone, uid)
		}
	}
	return gone
}

// links whose container is gone or dead. One that runs has no log for the moment
// in which it is rotated.
func links(f Facts) []string {
	var gone []string
	for _, l := range f.Links {
		runs := slices.ContainsFunc(f.Containers, func(c Container) bool { return c.Running && c.ID == l.ContainerID })
		if f.Complete && l.ContainerID != "" && !runs {
			gone = append(gone, l.Path)
		}
	}
	return gone
}
