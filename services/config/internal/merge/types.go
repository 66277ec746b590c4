// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Problem is one origin, or one pod of it, that was refused, or used in part.
type Problem struct {
	// Origin is the file name or URL.
	Origin string
	// Field is the path of the field at fault, or empty.
	Field string
	// Message says what is wrong.
	Message string
	// Pod is the pod refused, when it could be read.
	Pod *v1.Pod
}

// Entry is what one origin holds now. With a problem it is broken, and its pods
// do not count.
type Entry struct {
	// Origin is the file name or URL; empty for the API server.
	Origin string
	Pods   []*v1.Pod
	// Rewritten is when the origin last was removed and written again without a
	// reading that lacked it; zero for never.
	Rewritten time.Time
	// Problem is why the origin cannot be used.
	Problem *Problem
	// Ignored is what of the origin has no effect; its pods do count.
	Ignored *Problem
}

// Listing is what one source said last.
type Listing struct {
	// Source is pod.SourceFile, pod.SourceHTTP or pod.SourceAPI.
	Source string
	// Heard says that the source has been read whole since its configuration.
	// Otherwise Entries does not count.
	Heard bool
	// Entries, in the order in which they take precedence.
	Entries []Entry
	// Err is the last error in reaching the source, or empty.
	Err string
}

// Pod is an accepted pod.
type Pod struct {
	// Pod carries the config.source and config.seen annotations.
	Pod    *v1.Pod
	Source string
	Origin string
	// Seen is when this UID was first seen.
	Seen time.Time
	// Begun is when a static pod's origin was seen to appear, or to be written
	// again after it was removed; zero for one that was there at the first reading.
	Begun time.Time
	// Mirror is the API server's mirror pod of a static pod, or nil.
	Mirror *v1.Pod

	// from is what the source gave, and rewritten when that was written again, to know them
	// again.
	from      *v1.Pod
	rewritten time.Time
}

// Listed reports whether the API server has listed the pod since the process started;
// what else is known of its status is from the store.
func (p *Pod) Listed() bool { return p.Source == pod.SourceAPI && p.from != nil }

// Source is what became of a listing.
type Source struct {
	Name     string
	Heard    bool
	Err      string
	Problems []Problem
	// Ignored is what of origins that are used has no effect.
	Ignored []Problem
}

// State is the outcome. Values in it are never changed afterwards: a pod that
// stayed the same is the same pointer in the next state.
type State struct {
	// Pods that the node should run.
	Pods map[types.UID]*Pod
	// Mirrors are the API server's mirror pods by namespace/name.
	Mirrors map[string]*v1.Pod
	// Sources in the order of the listings.
	Sources []Source
	// Complete says that every source was heard.
	Complete bool
	// MirrorsKnown says that Mirrors, and the pods of the API server, are what that
	// has, or that there is none to ask.
	MirrorsKnown bool
	// Only are the pods in which the state differs from the one it was made of, if each is
	// another version of a pod that stays and nothing else differs; nil if anything may.
	Only []types.UID

	listings []Listing // of which it was made
}
