// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

// Names of what a kubelet does that no field of KubeletConfiguration stands for.
const (
	missingCSICount = "csiNodeAllocatableCount"
)

// missingRow is something a kubelet always does and Sextant does not.
type missingRow struct {
	name string
	// reason says what happens instead.
	reason string
}

// missingTable lists what a kubelet does whatever its configuration. What a
// field switches is in fieldTable instead, as byDefault.
var missingTable = []missingRow{
	{missingCSICount, "the number of volumes a CSI driver allows is read when it registers, not again"},
}

// missing lists what a kubelet would do under this configuration by default and
// Sextant does not. Fields that were changed from their default are not among
// them: supportOf reports those.
func missing(c *Config, changed []Warning) []Warning {
	var out []Warning
	add := func(name, message string) {
		for _, w := range changed {
			if w.Kind == NotHonoured && w.Name == name {
				return
			}
		}
		out = append(out, Warning{NotHonoured, c.Origins.Of(name), name, message})
	}
	for _, l := range leaves() {
		row, ok := fieldIndex()[l.path]
		if !ok || !row.byDefault {
			continue
		}
		got := l.get(&c.Kubelet)
		if !got.IsValid() || len(row.values) > 0 && allIn(got.Interface(), row.values) {
			continue
		}
		add(l.path, shortfall[row.level]+row.reason)
	}
	for _, row := range missingTable {
		add(row.name, "is missing: "+row.reason)
	}
	return out
}
