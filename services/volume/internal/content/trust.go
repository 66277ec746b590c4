// SPDX-License-Identifier: Apache-2.0

package content

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/quiet"
)

// trustBundle puts the trust anchors of ClusterTrustBundles in (KEP-3257). Those that are
// optional and are not there leave an empty file.
func (b *builder) trustBundle(s *v1.ClusterTrustBundleProjection, defaultMode int32) error {
	if err := b.gated("clusterTrustBundle", "ClusterTrustBundleProjection"); err != nil {
		return err
	}
	text, err := b.objects.TrustBundle(s)
	if errors.Is(err, ErrAbsent) && s.Optional != nil && *s.Optional {
		text, err = "", nil
	}
	var anchors []byte
	if err == nil {
		anchors, err = trustAnchors(text)
	}
	switch {
	case err != nil && s.Name != nil:
		return fmt.Errorf("clusterTrustBundle %q: %w", *s.Name, err)
	case err != nil && s.SignerName != nil:
		return fmt.Errorf("clusterTrustBundles of signer %q: %w", *s.SignerName, err)
	case err != nil:
		return err
	}
	return b.put(s.Path, b.own(anchors, defaultMode))
}

// certificate puts a key and the certificate that was issued for it in (KEP-4317).
func (b *builder) certificate(source int, s *v1.PodCertificateProjection, defaultMode int32) error {
	if err := b.gated("podCertificate", "PodCertificateRequest"); err != nil {
		return err
	}
	key, chain, refresh, err := b.objects.Certificate(b.pod, b.volume, source, s)
	if err != nil {
		return fmt.Errorf("podCertificate of signer %q: %w", s.SignerName, err)
	}
	b.refresh(refresh)
	for _, f := range []struct {
		path string
		data []byte
	}{{s.CredentialBundlePath, slices.Concat(key, chain)}, {s.KeyPath, key}, {s.CertificateChainPath, chain}} {
		if f.path == "" {
			continue
		}
		if err := b.put(f.path, b.own(f.data, defaultMode)); err != nil {
			return err
		}
	}
	return nil
}

// gated says that a source is not to be had, if its feature gate is not on.
func (b *builder) gated(source, gate string) error {
	on, err := b.objects.Gate(gate)
	if err != nil {
		return fmt.Errorf("%s: feature gate %s: %w", source, gate, err)
	}
	if !on {
		return fmt.Errorf("%s: the feature gate %s is off", source, gate)
	}
	return nil
}

// trustAnchors are the certificates of a bundle, each once, in an order that does not depend
// on where they come from, and without what is between them.
func trustAnchors(bundle string) ([]byte, error) {
	var blocks [][]byte
	rest := []byte(bundle)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("spec.trustBundle has a PEM block %q, want CERTIFICATE", quiet.Cut(block.Type, 64))
		}
		blocks = append(blocks, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("spec.trustBundle does not end with a PEM block")
	}
	slices.SortFunc(blocks, bytes.Compare)
	return bytes.Join(slices.CompactFunc(blocks, bytes.Equal), nil), nil
}
