// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"time"
)

// Life is what the times of a certificate decide.
type Life struct {
	NotBefore, NotAfter time.Time
	// Spread is between 0 and 1: where between 70 and 90 % of its life a
	// certificate is renewed. A node's certificates have different ones, so that
	// nodes made at the same time do not renew at the same time.
	Spread float64
}

// LifeOf reads the times of a certificate. Its spread is always the same, so a
// restart changes no deadline.
func LifeOf(c *x509.Certificate) Life {
	sum := sha256.Sum256(c.Raw)
	return Life{
		NotBefore: c.NotBefore, NotAfter: c.NotAfter,
		Spread: float64(binary.BigEndian.Uint32(sum[:4])) / (1 << 32),
	}
}

// Renewal is when the certificate is to be renewed: at 70 to 90 % of its life,
// as the kubelet does.
func (l Life) Renewal() time.Time {
	whole := l.NotAfter.Sub(l.NotBefore)
	return l.NotBefore.Add(whole/10*7 + time.Duration(float64(whole/10*2)*l.Spread))
}
