// SPDX-License-Identifier: Apache-2.0

package podcert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzIssued: whatever a signer answers, a credential's chain is certificates and begins
// with one for the key, and it is asked for again before it ends.
func FuzzIssued(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	now := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)},
		&x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	if err != nil {
		f.Fatal(err)
	}
	leaf := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	key2 := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	// LEAF stands for the certificate, which is another one in each run.
	for _, s := range []string{"", "LEAF", "LEAFLEAF", "xLEAF", "LEAF-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n", "KEY", "LEAFKEY", "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\nLEAF"} {
		f.Add([]byte(s), int64(0))
		f.Add([]byte(s), now.Unix()+60)
	}
	f.Fuzz(func(t *testing.T, chain []byte, refresh int64) {
		text := bytes.ReplaceAll(bytes.ReplaceAll(chain, []byte("LEAF"), []byte(leaf)), []byte("KEY"), []byte(key2))
		var c *Credential
		var err error
		fuzzing.Allocates(t, 512<<10+50*uint64(len(text)), func() {
			fuzzing.Spends(t, time.Second, func() { c, err = issued(key, Answer{Chain: string(text), Refresh: time.Unix(refresh, 0)}, now) })
		})
		if err != nil {
			if len(err.Error()) > 1024 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if !c.Refresh.After(now) || !c.Refresh.Before(c.Ends) {
			t.Errorf("to be asked for again at %s, of %s to %s", c.Refresh, now, c.Ends)
		}
		for rest, first := c.Chain, true; len(rest) > 0; first = false {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" || first && !bytes.Equal(block.Bytes, der) {
				t.Fatalf("%q became %q", text, c.Chain)
			}
		}
	})
}
