// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"strings"
	"testing"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/test/standin"
)

// TestAGateThatIsNotKnown: what a feature gate decides waits for the configuration. No
// event says that the gate is off.
func TestAGateThatIsNotKnown(t *testing.T) {
	r := newRig(t, nil)
	r.declare(of(t, "u", "- {name: t, projected: {sources: [{clusterTrustBundle: {name: b, optional: true, path: ca}}]}}\n"))
	r.Eventually("it is tried", func() bool { return r.volume("u", "t").GetError() != "" })
	if got := r.volume("u", "t").GetError(); !strings.HasSuffix(got, "not known yet") {
		t.Errorf("it waits for: %s", got)
	}
	conf := &kubeletconfig.Config{}
	conf.Kubelet.APIVersion, conf.Kubelet.Kind = kubeletconfig.APIVersion, kubeletconfig.Kind
	conf.Kubelet.FeatureGates = map[string]bool{"ClusterTrustBundleProjection": true}
	standin.SetKubelet(r.House, r.kubelet, conf)
	standin.Set(r.House, r.objects, pod.TrustBundle+"//b", &configv1.Object{Kind: pod.TrustBundle, Name: "b", Absent: true})
	r.Eventually("it is there", func() bool { return r.volume("u", "t").GetState() == volumev1.VolumeState_VOLUME_STATE_MOUNTED })
	if events := r.messages(); len(events) > 0 {
		t.Errorf("events: %q", events)
	}
}
