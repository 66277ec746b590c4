// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

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
	return out
}
