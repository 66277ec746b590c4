// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
)

// listed are cgroups of pods in the burstable class, or an error.
type listed struct {
	Cgroups
	uids []types.UID
	err  error
}

func (l *listed) Pods(parent pod.CgroupName) ([]types.UID, error) {
	if parent[len(parent)-1] != "burstable" {
		return nil, nil
	}
	return l.uids, l.err
}

// TestACgroupCountsWhenItLasts: one that is there at two searches, a period apart, and
// whose pod holds nothing at either. A search that fails leaves what is known.
func TestACgroupCountsWhenItLasts(t *testing.T) {
	cgroups := &listed{}
	ledger := &ledger{held: map[string]*held{"held": newHeld(allocation{}, &v1.Pod{})}}
	u := &unallocated{tree: &tree{of: func(pod.CgroupDriver) Cgroups { return cgroups }, ledger: ledger}}
	now := &settings{conf: &kubeletconfig.Config{}}
	began := time.Unix(1000, 0)
	for _, step := range []struct {
		second int
		there  []types.UID
		err    error
		want   []string
	}{
		{0, []types.UID{"a", "held"}, nil, nil},
		{5, []types.UID{"a", "held"}, nil, nil}, // not due
		{10, []types.UID{"b", "a", "held"}, nil, []string{"a"}},
		{20, []types.UID{"b", "a"}, nil, []string{"a", "b"}},
		{30, nil, errors.New("no"), []string{"a", "b"}},
		{40, []types.UID{"b"}, nil, []string{"b"}},
		{50, nil, nil, nil},
		{60, []types.UID{"b"}, nil, nil}, // not due: there was none
		{110, []types.UID{"b"}, nil, nil},
		{120, []types.UID{"b"}, nil, []string{"b"}},
		{-3600, []types.UID{"b"}, nil, []string{"b"}}, // the clock was set back
	} {
		cgroups.uids, cgroups.err = step.there, step.err
		err := u.search(began.Add(time.Duration(step.second)*time.Second), now)
		if !errors.Is(err, step.err) || !slices.Equal(u.uids, step.want) {
			t.Errorf("at %d: %v, %v, want %v", step.second, u.uids, err, step.want)
		}
	}
}
