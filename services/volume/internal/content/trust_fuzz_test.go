// SPDX-License-Identifier: Apache-2.0

package content

import (
	"bytes"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzTrustAnchors: what a bundle becomes holds certificates, each once, and nothing else,
// and is its own bundle.
func FuzzTrustAnchors(f *testing.F) {
	one := "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n"
	for _, s := range []string{
		"", one, one + one, "x\n" + one + "y\n" + strings.Replace(one, "QQ", "Qg", 1), one + "z", strings.ReplaceAll(one, "CERTIFICATE", "PRIVATE KEY"),
		strings.Replace(one, "QQ", "a: b\n\nQQ", 1), strings.Replace(one, "QQ==\n", "", 1), strings.Repeat("-----BEGIN CERTIFICATE-----\n", 50), strings.Repeat("\n-----END CERTIFICATE-----", 50),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, bundle string) {
		var anchors []byte
		var err error
		fuzzing.Allocates(t, 512<<10+20*uint64(len(bundle)), func() {
			fuzzing.Spends(t, time.Second, func() { anchors, err = trustAnchors(bundle) })
		})
		if err != nil {
			if len(err.Error()) > 512 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		seen := map[string]bool{}
		rest := anchors
		for len(rest) > 0 {
			block, after := pem.Decode(rest)
			if block == nil || block.Type != "CERTIFICATE" || len(block.Headers) > 0 || !bytes.HasPrefix(rest, []byte("-----BEGIN ")) || seen[string(block.Bytes)] {
				t.Fatalf("%q became %q", bundle, anchors)
			}
			seen[string(block.Bytes)], rest = true, after
		}
		if again, err := trustAnchors(string(anchors)); err != nil || !bytes.Equal(again, anchors) {
			t.Errorf("%q became %q, %v", anchors, again, err)
		}
	})
}

// TestTrustAnchorsTakeTimeInProportion: with a megabyte that has no end, or no beginning.
func TestTrustAnchorsTakeTimeInProportion(t *testing.T) {
	for name, text := range map[string]string{
		"beginnings": strings.Repeat("-----BEGIN CERTIFICATE-----\n", 1<<15),
		"ends":       strings.Repeat("\n-----END CERTIFICATE-----", 1<<15),
		"both":       strings.Repeat("-----BEGIN A-----\n-----END B-----\n", 1<<15),
		"headers":    strings.Repeat("-----BEGIN A-----\na:b\n-----END B-----\n", 1<<15),
		"empty":      strings.Repeat("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", 1<<14),
	} {
		fuzzing.Spends(t, 2*time.Second, func() {
			if anchors, _ := trustAnchors(text); len(anchors) > 100 {
				t.Errorf("%s: %d bytes", name, len(anchors))
			}
		})
	}
}
