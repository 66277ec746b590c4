// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/config/internal/file"
)

// Manifest is what a file of a manifest folder comes to: a pod, or why there is none.
type Manifest struct {
	Path    string
	Pod     *v1.Pod
	Problem string
	// Ignored is what of it has no effect beside the pod.
	Ignored string
}

// ReadManifests reads the manifests at a path (staticPodPath) for a node of that name, as
// the service does. The error is for a path that cannot be listed.
func ReadManifests(path, node string) ([]Manifest, error) {
	entries, err := file.Read(path, node)
	var all []Manifest
	for _, e := range entries {
		m := Manifest{Path: e.Origin}
		switch {
		case e.Problem != nil:
			m.Problem = strings.TrimPrefix(e.Problem.Field+": "+e.Problem.Message, ": ")
		case len(e.Pods) > 0:
			m.Pod = e.Pods[0]
			if e.Ignored != nil {
				m.Ignored = e.Ignored.Message
			}
		}
		all = append(all, m)
	}
	return all, err
}
