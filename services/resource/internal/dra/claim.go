// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Claim is what the node has of a ResourceClaim.
type Claim struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Pods that use it, by UID, sorted. The last one stays until the claim is unprepared.
	Pods []string `json:"pods,omitempty"`
	// Drivers that allocated devices for it, by name.
	Drivers map[string]Driver `json:"drivers,omitempty"`
}

// Driver is what one driver has done for a claim.
type Driver struct {
	Stage Stage `json:"stage"`
	// Boot of the node in which it prepared the claim.
	Boot    string   `json:"boot,omitempty"`
	Devices []Device `json:"devices,omitempty"`
}

// Stage of a claim at a driver.
//
//	none ──about to be called──► unsure ──it answered──► prepared
//	  ▲                            ▲ │                      │
//	  └──────────it unprepared ────┼─┘ ◄──about to be called to unprepare, or another boot
type Stage string

// The stages. A driver is called to prepare in none and unsure, and to unprepare in unsure
// and prepared.
const (
	// none: the driver holds nothing for the claim.
	none Stage = "none"
	// unsure: it was called, or is about to be, and its answer is not known.
	unsure Stage = "unsure"
	// prepared: it has prepared the claim.
	prepared Stage = "prepared"
)

// Device is one that a driver prepared.
type Device struct {
	PoolName   string
	DeviceName string
	// ShareID of a device with consumable capacity (KEP-5075); nil for others.
	ShareID *types.UID
	// RequestNames of the claim that it was allocated for; all when empty.
	RequestNames []string
	// CDIDeviceIDs are fully qualified.
	CDIDeviceIDs []string
}

func key(namespace, name string) string { return namespace + "/" + name }

func (c *Claim) key() string { return key(c.Namespace, c.Name) }

// drivers names the drivers, sorted.
func (c *Claim) drivers() []string { return slices.Sorted(maps.Keys(c.Drivers)) }

// clone copies a claim so that it can be changed; devices are shared, as they are only
// ever replaced.
func (c *Claim) clone() *Claim {
	next := *c
	next.Pods, next.Drivers = slices.Clone(c.Pods), maps.Clone(c.Drivers)
	return &next
}

// ready reports whether every driver has prepared the claim in this boot.
func (c *Claim) ready(boot string) bool {
	for _, d := range c.Drivers {
		if d.Stage != prepared || d.Boot != boot {
			return false
		}
	}
	return true
}

// unheld reports whether no driver holds anything for the claim.
func (c *Claim) unheld() bool {
	for _, d := range c.Drivers {
		if d.Stage != none {
			return false
		}
	}
	return true
}

// wanted is a claim that a pod is allowed to have prepared.
type wanted struct {
	uid             types.UID
	namespace, name string
	drivers         []string
}

// join adds a pod to its claims, and says which claims each driver is to prepare: for
// those its stage is unsure from now on. What is returned replaces what is known; nothing is
// changed in place.
func join(pod string, wants []wanted, known map[string]*Claim, boot string) (next []*Claim, calls map[string][]*Claim, err error) {
	calls = map[string][]*Claim{}
	for _, w := range wants {
		c := known[key(w.namespace, w.name)]
		moved := false
		switch {
		case c == nil:
			c = &Claim{UID: w.uid, Namespace: w.namespace, Name: w.name, Drivers: map[string]Driver{}}
		case c.UID != w.uid:
			return nil, nil, fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists (previous pod force-deleted?!)", w.name, c.UID)
		default:
			c = c.clone()
		}
		if i, found := slices.BinarySearch(c.Pods, pod); !found {
			c.Pods, moved = slices.Insert(c.Pods, i, pod), true
		}
		for _, name := range w.drivers {
			d, ok := c.Drivers[name]
			if ok && d.Stage == prepared && d.Boot == boot {
				continue
			}
			c.Drivers[name] = Driver{Stage: unsure, Devices: d.Devices}
			calls[name], moved = append(calls[name], c), true
		}
		if moved {
			next = append(next, c)
		}
	}
	return next, calls, nil
}

// leave says what becomes of the claims of a pod that goes: shared are those that others
// use still, without it; last are those of which it is the last user, and calls those of
// them that each driver is to unprepare, whose stage is unsure from now on.
func leave(pod string, all map[string]*Claim) (shared, last []*Claim, calls map[string][]*Claim) {
	calls = map[string][]*Claim{}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		c := all[k]
		i, found := slices.BinarySearch(c.Pods, pod)
		if !found {
			continue
		}
		c = c.clone()
		if len(c.Pods) > 1 {
			c.Pods = slices.Delete(c.Pods, i, i+1)
			shared = append(shared, c)
			continue
		}
		for _, name := range c.drivers() {
			if d := c.Drivers[name]; d.Stage != none {
				c.Drivers[name] = Driver{Stage: unsure, Devices: d.Devices}
				calls[name] = append(calls[name], c)
			}
		}
		last = append(last, c)
	}
	return shared, last, calls
}
