// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

// shelf is a plugin whose volumes are places on a shelf: where a pod's is depends on its
// UID alone, so that making it again finds it.
type shelf struct{ made map[string]bool }

func place(p *v1.Pod, v *v1.Volume) string { return "/shelf/" + string(p.UID) + "/" + v.Name }

func (s shelf) Standing(p *v1.Pod, v *v1.Volume) (plugin.Made, bool) {
	path := place(p, v)
	return plugin.Made{Path: path}, s.made[path]
}

func (s shelf) Make(_ context.Context, r *plugin.Request) (plugin.Made, error) {
	path := place(r.Pod, r.Volume)
	s.made[path] = true
	return plugin.Made{Path: path}, nil
}

// The service finds the plugin of a volume in its registry, makes the volume, and finds it
// standing afterwards.
func ExamplePlugin() {
	registry := plugin.Registry{"kubernetes.io/empty-dir": shelf{made: map[string]bool{}}}
	r := &plugin.Request{Pod: &v1.Pod{}, Volume: &v1.Volume{Name: "data"}}
	r.Pod.UID, r.Volume.EmptyDir = "u", &v1.EmptyDirVolumeSource{}

	_, ok := registry.Standing(r.Pod, r.Volume)
	fmt.Println("stands:", ok)
	of, err := registry.For(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	made, err := of.Make(context.Background(), r)
	fmt.Println("made at", made.Path, err)
	_, ok = registry.Standing(r.Pod, r.Volume)
	fmt.Println("stands:", ok)

	r.Volume.EmptyDir, r.Volume.RBD = nil, &v1.RBDVolumeSource{}
	_, err = registry.For(r)
	fmt.Println(err)
	// Output:
	// stands: false
	// made at /shelf/u/data <nil>
	// stands: true
	// rbd: this volume type is no longer part of Kubernetes: use a volume of a CSI driver
}
