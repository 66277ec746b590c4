// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Kinds of objects that a clusterTrustBundle source of a projected volume is made of: one
// ClusterTrustBundle by name, and what all those of a signer that match a selector hold
// together, as one ClusterTrustBundle that the API server does not have.
const (
	TrustBundle   = "ClusterTrustBundle"
	SignersBundle = "ClusterTrustBundles"
)

// TrustBundleName is the kind and the name of the object that a source is made of; an empty
// name is one that matches nothing (KEP-3257: a signer without a selector).
func TrustBundleName(s *v1.ClusterTrustBundleProjection) (kind, name string, err error) {
	switch {
	case s.Name != nil:
		return TrustBundle, *s.Name, nil
	case s.SignerName == nil:
		return "", "", fmt.Errorf("clusterTrustBundle: either name or signerName is required")
	case s.LabelSelector == nil:
		return SignersBundle, "", nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
	if err != nil {
		return "", "", fmt.Errorf("clusterTrustBundle.labelSelector: %w", err)
	}
	return SignersBundle, *s.SignerName + "?" + selector.String(), nil
}

// ParseSignersBundle is the signer and the selector that a SignersBundle is named for.
func ParseSignersBundle(name string) (signer string, selector labels.Selector, err error) {
	signer, text, _ := strings.Cut(name, "?")
	if selector, err = labels.Parse(text); err != nil {
		return "", nil, fmt.Errorf("%s %q: %w", SignersBundle, name, err)
	}
	return signer, selector, nil
}
