// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
)

// Freeing is how long what a pod had on disks may still be there after it went: a runtime
// removes layers after it has answered (containerd 2.4: up to 4 s were seen). No other pod
// goes for want of disk before that. A kubelet waits for one second.
const Freeing = 5 * time.Second

// Step is one pass.
func Step(in Input) Output {
	out := Output{History: History{Reclaim: in.History.Reclaim}}
	acting := judge(in, &out.History)
	if in.Leaving || out.History.Reclaim != nil && !in.Reclaimed {
		// Time passes for thresholds and conditions, but nothing is decided: these
		// observations count again.
		out.History.Observed = in.History.Observed
		return out
	}
	out.History.Reclaim = nil
	if in.Config.Isolation {
		if out.Verdicts = overLimits(in); len(out.Verdicts) > 0 {
			return out
		}
	}
	if r := in.History.Reclaim; r != nil {
		i := slices.IndexFunc(in.Config.Thresholds, func(t kubeletconfig.Threshold) bool { return keyOf(t) == r.For })
		if i < 0 || len(met(in.Config.Thresholds, in.Observed, true)) == 0 {
			return out // enough was freed, or the configuration is another
		}
		if out.Soon = out.early(in, in.Config.Thresholds[i]); out.Soon {
			out.History.Reclaim = r
			return out
		}
		out.evict(in, in.Config.Thresholds[i], acting, r.Short)
		return out
	}
	if len(acting) == 0 {
		return out
	}
	t := acting[0]
	if r := reclaim(t.Signal, in.Config.Layout); !r.Containers && !r.Images && out.early(in, t) {
		out.Soon = true
		return out
	}
	out.Reclaiming = resources[t.Signal]
	if r := reclaim(t.Signal, in.Config.Layout); r.Containers || r.Images {
		r.For, r.Asked, r.Short = keyOf(t), in.Now, short(out.Reclaiming, acting, in.Observed)
		out.History.Reclaim = &r
		return out
	}
	out.evict(in, t, acting, short(out.Reclaiming, acting, in.Observed))
	return out
}

// Patience is how long a verdict waits for writable layers to be measured (containerd
// measures them each 10 s).
const Patience = 10 * time.Second

// early reports whether the pod that would go is not seen to have caused the shortage, and
// may not have: what it has on the disk is less than what is missing, and layers were
// measured before the node got short. A kubelet does not wait.
func (out *Output) early(in Input, t kubeletconfig.Threshold) bool {
	what := measured(t.Signal, in.Config.Layout)
	since, crossed := out.History.Seen[keyOf(t)]
	if !crossed || !what.root || conditionOf(t.Signal) != v1.NodeDiskPressure || !in.Layers.Before(since) || in.Now.Sub(since) >= Patience {
		return false
	}
	ranked := Rank(in.Pods, t.Signal, in.Config.Layout)
	if len(ranked) == 0 || ranked[0].Usage == nil {
		return len(ranked) > 0
	}
	o, has := in.Observed[t.Signal], onDisk(ranked[0], what)
	missing := t.Amount.Of(o.Capacity) - o.Available
	if resources[t.Signal] == inodes {
		return has.Inodes < missing
	}
	return has.Bytes < missing
}

// Ranks is the signal for which [Step] may look at what pods use for the node's sake;
// empty for none. What they use matters for limits of their own ([Limited]) in every pass.
func Ranks(in Input) (signal string) {
	r := in.History.Reclaim
	switch {
	case in.Leaving || r != nil && !in.Reclaimed:
		return ""
	case r != nil:
		return r.For.Signal
	}
	if acting := judge(in, &History{}); len(acting) > 0 {
		return acting[0].Signal
	}
	return ""
}

// OfDisk reports whether a signal is about a file system.
func OfDisk(signal string) bool {
	return signal != "" && conditionOf(signal) == v1.NodeDiskPressure
}

// reclaim is what of the node's own is on the file system of a signal.
func reclaim(signal string, layout Layout) Reclaim {
	if conditionOf(signal) != v1.NodeDiskPressure {
		return Reclaim{}
	}
	images, nodefs := signal == ImageFSAvailable || signal == ImageFSInodes, signal == NodeFSAvailable || signal == NodeFSInodes
	switch layout {
	case Dedicated:
		return Reclaim{Containers: !nodefs, Images: !nodefs}
	case Split:
		return Reclaim{Containers: !images, Images: images}
	}
	return Reclaim{Containers: true, Images: true}
}

// evict chooses the first pod of the ranking that may go.
func (out *Output) evict(in Input, t kubeletconfig.Threshold, acting []kubeletconfig.Threshold, available string) {
	ranked := Rank(in.Pods, t.Signal, in.Config.Layout)
	if len(ranked) > 0 {
		out.Ages = map[string]time.Duration{}
		for _, t := range acting {
			out.Ages[t.Signal] = in.Now.Sub(in.Observed[t.Signal].Time)
		}
	}
	for _, p := range ranked {
		if pod.IsCritical(p.Pod) {
			continue
		}
		v := Verdict{Pod: p.Pod, Signal: t.Signal, Grace: immediate}
		if !t.Hard {
			v.Grace = in.Config.MaxPodGrace
			if own := p.Spec.TerminationGracePeriodSeconds; own != nil {
				v.Grace = min(v.Grace, *own)
			}
		}
		v.Message, v.Annotations = shortage(p, resources[t.Signal], available)
		out.Verdicts = []Verdict{v}
		return
	}
}
