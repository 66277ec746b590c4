// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// world is the state of the runtime; Runtime.mu guards it.
type world struct {
	serial     uint64 // of this fake in this process, makes IDs differ between fakes
	count      uint64 // of objects made so far
	sandboxes  map[string]*sandbox
	containers map[string]*container
	names      map[string]string // reserved name → id
	images     map[string]*imageRecord
	refs       map[string]string // normalized reference → image id
	registry   map[string]registryEntry
	addresses  addresses
	conditions []*runtimeapi.RuntimeCondition
	skew       atomic.Int64 // time.Duration, read without the lock
	broker     broker
	frozen     *frozenLists
	busy       int // processes that neither wait nor have ended
}

var serials atomic.Uint64

func (w *world) init(cfg Config) {
	w.serial = serials.Add(1)
	w.sandboxes = map[string]*sandbox{}
	w.containers = map[string]*container{}
	w.names = map[string]string{}
	w.images = map[string]*imageRecord{}
	w.refs = map[string]string{}
	w.registry = map[string]registryEntry{}
	w.addresses = addresses{prefix: cfg.PodCIDR, used: map[netip.Addr]bool{}}
	w.conditions = []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Status: true},
	}
	if cfg.Flavor != Containerd16 {
		// One that no reader should mind: runtimes have conditions of their own.
		w.conditions = append(w.conditions, &runtimeapi.RuntimeCondition{
			Type: "ContainerdHasNoDeprecationWarnings", Reason: "ContainerdHasDeprecationWarnings", Message: "{}",
		})
	}
	w.broker.off = cfg.Flavor == Containerd16
}

type sandbox struct {
	id      string
	seq     uint64
	name    string // reserved: name_namespace_uid_attempt
	config  *runtimeapi.PodSandboxConfig
	handler string
	state   runtimeapi.PodSandboxState
	created time.Time
	ip      netip.Addr // invalid: host network, or given back
}

func (sb *sandbox) hostname() string {
	if h := sb.config.GetHostname(); h != "" {
		return h
	}
	return sb.id[:12]
}

// newID makes IDs that look random and repeat from run to run.
func (w *world) newID() (id string, seq uint64) {
	w.count++
	sum := sha256.Sum256(fmt.Appendf(nil, "fakecri/%d/%d", w.serial, w.count))
	return hex.EncodeToString(sum[:]), w.count
}

// reserve takes a name; the error names its holder, as containerd's does.
func (w *world) reserve(name, id string) error {
	if holder, taken := w.names[name]; taken {
		return fmt.Errorf("name %q is reserved for %q", name, holder)
	}
	w.names[name] = id
	return nil
}

func sandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("%s_%s_%s_%d", m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt())
}

func containerName(m *runtimeapi.ContainerMetadata, pod *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("%s_%s_%s_%s_%d", m.GetName(), pod.GetName(), pod.GetNamespace(), pod.GetUid(), m.GetAttempt())
}

// byID finds an object by its ID or an unambiguous prefix of it.
func byID[T any](all map[string]T, id string) (found T, ok bool) {
	if v, ok := all[id]; ok || id == "" {
		return v, ok
	}
	n := 0
	for k, v := range all {
		if strings.HasPrefix(k, id) {
			found = v
			n++
		}
	}
	if n != 1 {
		var none T
		return none, false
	}
	return found, true
}

// containersOf returns the containers of a sandbox, oldest first.
func (w *world) containersOf(sandboxID string) []*container {
	var out []*container
	for _, c := range w.containers {
		if c.sandbox.id == sandboxID {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *container) int { return int(a.seq) - int(b.seq) })
	return out
}

// addresses hands addresses out in turn, as the host-local plugin does.
type addresses struct {
	prefix netip.Prefix
	used   map[netip.Addr]bool
	last   netip.Addr
}

func (a *addresses) take() (netip.Addr, error) {
	first := a.prefix.Addr().Next().Next() // the network's own, and the gateway's
	next := first
	if a.last.IsValid() {
		next = a.last.Next()
	}
	for range 1 << 16 {
		if !a.prefix.Contains(next) || !a.prefix.Contains(next.Next()) {
			next = first
		}
		if !a.used[next] {
			a.used[next], a.last = true, next
			return next, nil
		}
		next = next.Next()
	}
	return netip.Addr{}, fmt.Errorf("no IP addresses available in range set: %s", a.prefix)
}

func (a *addresses) give(ip netip.Addr) { delete(a.used, ip) }
