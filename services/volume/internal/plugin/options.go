// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"log/slog"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// MountOptions of a persistent volume; the annotation is older than the field, and comes
// first.
func MountOptions(pv *v1.PersistentVolume) []string {
	if text, ok := pv.Annotations[v1.MountOptionAnnotation]; ok {
		return Join(strings.Split(text, ","))
	}
	return Join(pv.Spec.MountOptions)
}

// Join lists mount options, each once. One text may hold several.
func Join(options []string, more ...string) []string {
	var all []string
	seen := map[string]bool{"": true}
	for _, text := range append(append([]string(nil), options...), more...) {
		for _, o := range strings.Split(text, ",") {
			if !seen[o] {
				seen[o] = true
				all = append(all, o)
			}
		}
	}
	return all
}

// LogRefused logs that a volume was given to its fsGroup but for some files; file is the
// first, empty for none. A kubelet goes on as well.
func LogRefused(log *slog.Logger, path, file string) {
	if file != "" {
		log.Warn("a file of a volume could not be given to the fsGroup; there may be more", "volume", path, "file", file)
	}
}
