// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	reference "k8s.io/kubernetes/pkg/kubelet/allocation/state"

	ours "github.com/sextant-node/sextant/services/resource/internal/resize/state"
)

// TestSizes: the reference starts by the file that is written here and has of each pod what
// that has; it changes one, and the file that it writes is read here, and known as another
// agent's.
func TestSizes(t *testing.T) {
	each(t, compareSizes)
}

func compareSizes(r *rand.Rand, dir string) (string, string) {
	pods := ours.Pods{}
	for i := range r.IntN(4) {
		pods[types.UID(fmt.Sprint("pod-", i))] = someSizes(r)
	}
	path := filepath.Join(dir, ours.Allocated)
	data, err := ours.Encode(pods)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		panic(err)
	}
	theirs, err := reference.NewStateCheckpoint(dir, ours.Allocated)
	if err != nil {
		return "starts", err.Error()
	}
	taken := ours.Pods{}
	for uid, p := range theirs.GetPodResourceInfoMap() {
		taken[uid] = ours.Pod(p)
	}
	if !equality.Semantic.DeepEqual(taken, pods) {
		return fmt.Sprint(pods), fmt.Sprint(taken)
	}
	changed := someSizes(r)
	pods["changed"] = changed
	if err := theirs.SetPodResourceInfo(klog.Logger{}, "changed", reference.PodResourceInfo(changed)); err != nil {
		panic(err)
	}
	if data, err = os.ReadFile(path); err != nil {
		panic(err)
	}
	back, others, err := ours.Decode(data)
	if err != nil || !others || !equality.Semantic.DeepEqual(back, pods) {
		return fmt.Sprint(pods), fmt.Sprint(back, others, err)
	}
	return "", ""
}

// someSizes are resources of some containers, and of the pod in one of three.
func someSizes(r *rand.Rand) (p ours.Pod) {
	some := func() (out v1.ResourceRequirements) {
		for _, list := range []*v1.ResourceList{&out.Requests, &out.Limits} {
			if r.IntN(3) == 0 {
				continue
			}
			*list = v1.ResourceList{
				v1.ResourceCPU:    *resource.NewMilliQuantity(r.Int64N(4000), resource.DecimalSI),
				v1.ResourceMemory: *resource.NewQuantity(r.Int64N(1<<32), resource.BinarySI),
			}
		}
		return out
	}
	p.ContainerResources = map[string]v1.ResourceRequirements{}
	for i := range r.IntN(3) {
		p.ContainerResources[fmt.Sprint("c", i)] = some()
	}
	if r.IntN(3) == 0 {
		own := some()
		p.PodLevelResources = &own
	}
	return p
}
