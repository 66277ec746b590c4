// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// TestCrashPolicyOfTheConfiguration: KEP-5593's maximum of the node and KEP-4603's
// curve, each behind its gate.
func TestCrashPolicyOfTheConfiguration(t *testing.T) {
	const reset = 10 * time.Minute
	half := &metav1.Duration{Duration: 30 * time.Second}
	short := &metav1.Duration{Duration: 2 * time.Second}
	for name, tc := range map[string]struct {
		most  *metav1.Duration
		gates map[string]bool
		want  restart.Policy
	}{
		"default":                      {nil, nil, restart.Policy{Base: 10 * time.Second, Max: 5 * time.Minute, ResetAfter: reset}},
		"a maximum":                    {half, nil, restart.Policy{Base: 10 * time.Second, Max: 30 * time.Second, ResetAfter: reset}},
		"a maximum below the base":     {short, nil, restart.Policy{Base: 2 * time.Second, Max: 2 * time.Second, ResetAfter: reset}},
		"a maximum with its gate off":  {half, map[string]bool{"KubeletCrashLoopBackOffMax": false}, restart.Policy{Base: 10 * time.Second, Max: 5 * time.Minute, ResetAfter: reset}},
		"the new curve":                {nil, map[string]bool{"ReduceDefaultCrashLoopBackOffDecay": true}, restart.Policy{Base: time.Second, Max: time.Minute, ResetAfter: reset}},
		"the new curve with a maximum": {half, map[string]bool{"ReduceDefaultCrashLoopBackOffDecay": true}, restart.Policy{Base: time.Second, Max: 30 * time.Second, ResetAfter: reset}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &kubeletconfig.Config{}
			c.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod, c.Kubelet.FeatureGates = tc.most, tc.gates
			if got := settings(c).Crash; got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
	if got := settings(nil).Crash; got != restart.CrashPolicy(0) {
		t.Errorf("before the configuration is known: %+v", got)
	}
}
