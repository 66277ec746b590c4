// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"maps"
	"slices"
	"strings"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/config/internal/cluster"
	"github.com/sextant-node/sextant/services/config/internal/refs"
)

// followSigner keeps what a signer's ClusterTrustBundles hold current until ctx ends.
func followSigner(ctx context.Context, c *cache, client kubernetes.Interface, ref refs.Ref) {
	signer, selector, err := pod.ParseSignersBundle(ref.Name)
	if err != nil {
		c.fail(ctx, ref, err)
		<-ctx.Done()
		return
	}
	k := kinds[pod.TrustBundle]
	cluster.Follow(ctx, cluster.Resource{
		Client: k.client(client), Name: k.resource, Fields: fields.OneTermEqualSelector("spec.signerName", signer), Type: k.empty(),
	}, &bundles{ref: ref, signer: signer, selector: selector, all: map[string]string{}, take: func(o Object) { c.take(ctx, ref, o) }}, func(err error) {
		if err != nil {
			c.fail(ctx, ref, err)
		}
	}, c.cfg.Log)
}

// bundles is the reflector's store of a signer's ClusterTrustBundles, which are taken in
// as one: those that match, by name; none when none does.
type bundles struct {
	ref      refs.Ref
	signer   string
	selector labels.Selector
	all      map[string]string // by name, those that match
	take     func(Object)
}

func (b *bundles) note(object any) {
	bundle, ok := object.(*certificatesv1beta1.ClusterTrustBundle)
	if !ok {
		return
	}
	if b.selector.Matches(labels.Set(bundle.Labels)) {
		b.all[bundle.Name] = bundle.Spec.TrustBundle
	} else {
		delete(b.all, bundle.Name)
	}
}

func (b *bundles) tell() error {
	if len(b.all) == 0 {
		b.take(nil)
		return nil
	}
	whole := &certificatesv1beta1.ClusterTrustBundle{}
	whole.Name, whole.Spec.SignerName = b.ref.Name, b.signer
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(b.all)) {
		parts = append(parts, strings.TrimSpace(b.all[name])+"\n")
	}
	whole.Spec.TrustBundle = strings.Join(parts, "")
	b.take(whole)
	return nil
}

// Add implements cache.ReflectorStore.
func (b *bundles) Add(object any) error {
	b.note(object)
	return b.tell()
}

// Update implements cache.ReflectorStore.
func (b *bundles) Update(object any) error { return b.Add(object) }

// Delete implements cache.ReflectorStore.
func (b *bundles) Delete(object any) error {
	if bundle, ok := object.(*certificatesv1beta1.ClusterTrustBundle); ok {
		delete(b.all, bundle.Name)
	}
	return b.tell()
}

// Replace implements cache.ReflectorStore.
func (b *bundles) Replace(objects []any, _ string) error {
	clear(b.all)
	for _, o := range objects {
		b.note(o)
	}
	return b.tell()
}

// Resync implements cache.ReflectorStore.
func (b *bundles) Resync() error { return nil }
