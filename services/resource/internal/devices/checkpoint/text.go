// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// text is what k8s.io/utils/dump has for the data, of which the kubelet makes the checksum:
// reflection would take milliseconds for a hundred pods, at each admission.
type text []byte

func (t *text) data(d checkpointData) {
	t.add("(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)")
	list(t, d.PodDeviceEntries, (*text).entry)
	t.add(" RegisteredDevices:(map[string][]string)")
	table(t, d.RegisteredDevices, (*text).string)
	t.add("}")
}

func (t *text) entry(e PodDevicesEntry) {
	for _, s := range []string{"{PodUID:(string)", e.PodUID, " ContainerName:(string)", e.ContainerName, " ResourceName:(string)", e.ResourceName} {
		t.add(s)
	}
	t.add(" DeviceIDs:(checkpoint.DevicesPerNUMA)")
	table(t, e.DeviceIDs, func(t *text, node int64) { *t = strconv.AppendInt(*t, node, 10) })
	t.add(" AllocResp:([]uint8)")
	t.bytes(e.AllocResp)
	t.add("}")
}

// bytes is list, without a call for each: an answer has hundreds.
func (t *text) bytes(all []byte) {
	if all == nil {
		t.add("<nil>")
		return
	}
	out := append(*t, '[')
	for i, b := range all {
		if i > 0 {
			out = append(out, ' ')
		}
		out = strconv.AppendUint(out, uint64(b), 10)
	}
	*t = append(out, ']')
}

func (t *text) add(s string) { *t = append(*t, s...) }

func (t *text) string(s string) { t.add(s) }

func list[E any](t *text, all []E, one func(*text, E)) {
	if all == nil {
		t.add("<nil>")
		return
	}
	t.add("[")
	for i, e := range all {
		if i > 0 {
			t.add(" ")
		}
		one(t, e)
	}
	t.add("]")
}

func table[K cmp.Ordered](t *text, all map[K][]string, key func(*text, K)) {
	if all == nil {
		t.add("<nil>")
		return
	}
	t.add("map[")
	for i, k := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			t.add(" ")
		}
		key(t, k)
		t.add(":")
		list(t, all[k], (*text).string)
	}
	t.add("]")
}
