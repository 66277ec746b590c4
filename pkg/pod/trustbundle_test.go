// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/pod"
)

func TestTrustBundleNames(t *testing.T) {
	for text, want := range map[string]string{
		`{name: b, path: p}`:                                                                             "ClusterTrustBundle b",
		`{signerName: example.com/s, path: p}`:                                                           "ClusterTrustBundles ",
		`{signerName: example.com/s, labelSelector: {}, path: p}`:                                        "ClusterTrustBundles example.com/s?",
		`{signerName: example.com/s, labelSelector: {matchLabels: {b: "1", a: "2"}}, path: p}`:           "ClusterTrustBundles example.com/s?a=2,b=1",
		`{signerName: s/s, labelSelector: {matchExpressions: [{key: a, operator: In, values: [z, x]}]}}`: "ClusterTrustBundles s/s?a in (x,z)",
		`{signerName: s/s, labelSelector: {matchExpressions: [{key: a, operator: Is}]}}`:                 `error clusterTrustBundle.labelSelector: "Is" is not a valid label selector operator`,
		`{path: p}`: "error clusterTrustBundle: either name or signerName is required",
	} {
		s := &v1.ClusterTrustBundleProjection{}
		if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
			t.Fatal(err)
		}
		kind, name, err := pod.TrustBundleName(s)
		got := kind + " " + name
		if err != nil {
			got = "error " + err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		if kind != pod.SignersBundle || name == "" {
			continue
		}
		signer, selector, err := pod.ParseSignersBundle(name)
		if err != nil || signer+"?"+selector.String() != name {
			t.Errorf("%s: parsed as %s, %v, %v", name, signer, selector, err)
		}
	}
	if signer, selector, err := pod.ParseSignersBundle("s?a=2"); err != nil || signer != "s" || !selector.Matches(labels.Set{"a": "2"}) || selector.Matches(labels.Set{}) {
		t.Errorf("%s, %v, %v", signer, selector, err)
	}
	if _, _, err := pod.ParseSignersBundle("s?=="); err == nil {
		t.Error("nonsense was read as a selector")
	}
}
