// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestGateValues(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  map[string]bool
		on   []string
		off  []string
	}{
		{"defaults", nil, []string{"NodeSwap", "ContainerCheckpoint", "DRAPrioritizedList"}, []string{"EventedPLEG", "PodCertificateRequest", "AllAlpha", "AllBeta", "NoSuchGate"}},
		{"one", map[string]bool{"EventedPLEG": true}, []string{"EventedPLEG"}, []string{"PodsAPI"}},
		{"all alpha", map[string]bool{"AllAlpha": true}, []string{"EventedPLEG", "PodsAPI"}, []string{"PodCertificateRequest", "AllBeta"}},
		{"all alpha but one", map[string]bool{"AllAlpha": true, "PodsAPI": false}, []string{"EventedPLEG"}, []string{"PodsAPI"}},
		{"no beta", map[string]bool{"AllBeta": false}, []string{"NodeSwap"}, []string{"ContainerCheckpoint", "EventedPLEG"}},
		{"no beta but one", map[string]bool{"AllBeta": false, "ContainerCheckpoint": true}, []string{"ContainerCheckpoint"}, []string{"EnvFiles"}},
		{"all beta", map[string]bool{"AllBeta": true}, []string{"PodCertificateRequest", "ContainerCheckpoint"}, []string{"EventedPLEG"}},
	} {
		c := &Config{}
		c.Kubelet.FeatureGates = tc.set
		for _, name := range tc.on {
			if !c.Gate(name) {
				t.Errorf("%s: %s is off", tc.name, name)
			}
		}
		for _, name := range tc.off {
			if c.Gate(name) {
				t.Errorf("%s: %s is on", tc.name, name)
			}
		}
	}
}

func TestGateErrors(t *testing.T) {
	for _, tc := range []struct {
		set  map[string]bool
		want []string
	}{
		{map[string]bool{"NodeSwap": true, "GitRepoVolumeDriver": false}, nil},
		{map[string]bool{"Nope": true, "nodeSwap": true, "NodeSwap": false, "GitRepoVolumeDriver": true}, []string{
			"featureGates[GitRepoVolumeDriver]: Invalid value: true: this deprecated gate is locked to false",
			"featureGates[NodeSwap]: Invalid value: false: this GA gate is locked to true",
			"featureGates[Nope]: Invalid value: true: not a feature gate of Kubernetes 1.36",
			"featureGates[nodeSwap]: Invalid value: true: not a feature gate of Kubernetes 1.36",
		}},
		{map[string]bool{"ClusterTrustBundleProjection": true}, []string{
			"featureGates[ClusterTrustBundleProjection]: Invalid value: true: requires the feature gate ClusterTrustBundle, which is off"}},
		{map[string]bool{"ClusterTrustBundleProjection": true, "ClusterTrustBundle": true}, nil},
		// A control-plane gate is as good as any.
		{map[string]bool{"HPAScaleToZero": true, "APIServerIdentity": true}, nil},
	} {
		var got []string
		for _, e := range validateGates(tc.set, field.NewPath("featureGates")) {
			got = append(got, e.Error())
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%v (-want +got):\n%s", tc.set, d)
		}
	}
}

// The table is consistent in itself, and its defaults are a legal setting.
func TestGateTable(t *testing.T) {
	all := Gates()
	if len(all) != 240 || len(gateTable) != 240 {
		t.Errorf("%d gates in %d rows, the reference kubelet has 240", len(all), len(gateTable))
	}
	for _, g := range all {
		for _, need := range g.Requires {
			if !slices.ContainsFunc(all, func(o Gate) bool { return o.Name == need }) {
				t.Errorf("%s requires %s, which does not exist", g.Name, need)
			}
		}
		if g.Stage == StageAlpha && g.Default {
			t.Errorf("%s is alpha and on", g.Name)
		}
		if g.Locked && g.Stage != StageGA && g.Stage != StageDeprecated {
			t.Errorf("%s is %s and locked", g.Name, g.Stage)
		}
	}
	if errs := validateGates(nil, field.NewPath("featureGates")); len(errs) > 0 {
		t.Error(errs)
	}
	for name := range gatesActedOn {
		if g, ok := gateIndex()[name]; !ok || !g.Node || g.Locked {
			t.Errorf("%s is acted on but no gate of the node that can be changed", name)
		}
	}
}

func TestGateWarnings(t *testing.T) {
	_, warnings := setup{args: withAPI("--feature-gates=PodsAPI=true"), config: new(
		"featureGates:\n  EventedPLEG: true\n  EnvFiles: false\n  MemoryQoS: true\n  DRAPrioritizedList: true\n  ChangeContainerStatusOnKubeletRestart: true\n  AllBeta: false\n  HPAScaleToZero: true\n  LoggingAlphaOptions: true\n")}.mustLoad(t)
	var got []string
	for _, w := range warnings {
		if strings.HasPrefix(w.Name, "featureGates[") {
			got = append(got, string(w.Kind)+" "+w.Name)
		}
	}
	want := []string{
		"deprecated featureGates[ChangeContainerStatusOnKubeletRestart]",
		"deprecated featureGates[DRAPrioritizedList]",
		"not honoured featureGates[AllBeta]",
		"not honoured featureGates[ChangeContainerStatusOnKubeletRestart]",
		"not honoured featureGates[EnvFiles]",
		"not honoured featureGates[PodsAPI]",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
}

func TestDeclaredFeatures(t *testing.T) {
	all := []string{"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}
	for name, tc := range map[string]struct {
		gates map[string]bool
		want  []string
	}{
		"by default":       {nil, all},
		"one off":          {map[string]bool{"ExtendWebSocketsToKubelet": false}, all[1:]},
		"not acted on":     {map[string]bool{"UserNamespacesHostNetworkSupport": true}, all},
		"of no such kind":  {map[string]bool{"MemoryQoS": true}, all},
		"none is declared": {map[string]bool{"NodeDeclaredFeatures": false}, nil},
	} {
		c := &Config{}
		c.Kubelet.FeatureGates = tc.gates
		if got := c.DeclaredFeatures(); !slices.Equal(got, tc.want) || (got == nil) != (tc.want == nil) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
