// SPDX-License-Identifier: Apache-2.0

// Package renewal decides about the node's client certificate: which one is
// used, and whether another one is asked for and how. It is pure: the time is
// an input.
//
// A clock is not believed more than the API server. A certificate that has
// expired by the node's clock is used until there is a better one, for the
// clock may be wrong; one that came from the API server just now and is expired
// by the node's clock proves that it is, and is not replaced again until the
// API server refuses it or the clock is back.
package renewal

import (
	"time"

	"github.com/sextant-node/sextant/pkg/credential"
)

// Patience with refusals: an API server that starts may refuse good
// certificates for a moment.
const Patience = 10 * time.Second

// Rest is the least time between two renewals. Signers date certificates back
// by some minutes, so that a very short one is due when it is issued.
const Rest = 30 * time.Second

// skew is how far behind a signer the node's clock may be without a remark.
const skew = 5 * time.Minute

// Certificate is one the node could use.
type Certificate struct {
	credential.Life
	// Refused is for how long the API server has refused it; 0 if it has not.
	Refused time.Duration
	// Doubted: when it was issued the node's clock said that it had expired.
	Doubted bool
	// Issued is when this process got it; zero if it found it.
	Issued time.Time
}

// renewal is when it is to be renewed.
func (c *Certificate) renewal() time.Time {
	if at := c.Renewal(); c.Issued.IsZero() || at.After(c.Issued.Add(Rest)) {
		return at
	}
	return c.Issued.Add(Rest)
}

// Facts are what the decision is made of.
type Facts struct {
	// Rotate: the configuration wants certificates renewed (rotateCertificates).
	Rotate bool
	// Bootstrap: there is a bootstrap kubeconfig that can be read.
	Bootstrap bool
	// Stored is the certificate in the certificate folder, Own the one in the
	// kubeconfig; nil if there is none. One that is both is Stored.
	Stored, Own *Certificate
}

// Source is where the certificate in use comes from.
type Source int

// The sources.
const (
	Nothing Source = iota
	FromStore
	FromKubeconfig
)

// Request is a way to ask for a certificate.
type Request int

// The ways.
const (
	// WithBootstrap asks as the user of the bootstrap kubeconfig.
	WithBootstrap Request = iota
	// WithCurrent asks as the node, with the certificate it has.
	WithCurrent
)

// Plan is the decision.
type Plan struct {
	Use Source
	// Ask says how to ask for a new certificate, the first way first; empty for
	// not at all.
	Ask []Request
	// State names the situation.
	State State
	// Look is when time alone changes the decision; zero for never.
	Look time.Time
}

// State of the node's identity.
type State int

// The states:
//
//	missing ─► good ─► due ─► good
//	             └─► expired, refused ─► good
//	             └─► early, doubted (the clock is wrong) ─► good
const (
	// Good: nothing to do before Look.
	Good State = iota
	// Due: the certificate is good and is being renewed.
	Due
	// Missing: there is no certificate.
	Missing
	// Expired by the node's clock.
	Expired
	// Refused by the API server.
	Refused
	// Early: the node's clock is before the certificate's life.
	Early
	// Doubted: the certificate is new and yet expired, so the clock is wrong.
	Doubted
)

// String is the state in words.
func (s State) String() string {
	return map[State]string{
		Good: "good", Due: "being renewed", Missing: "no client certificate",
		Expired: "client certificate expired", Refused: "client certificate refused by the API server",
		Early: "client certificate not valid yet: the clock is behind", Doubted: "client certificate is new and expired: the clock is ahead",
	}[s]
}

// Decide says what to do now.
func Decide(f Facts, now time.Time) Plan {
	use, c := best(f, now)
	if c == nil {
		return Plan{Use: Nothing, Ask: ways(f, false), State: Missing}
	}
	state := judge(f, c, now)
	p := Plan{Use: use, State: state, Look: nextLook(f, c, now)}
	switch state {
	case Due:
		p.Ask = []Request{WithCurrent}
	case Expired, Refused:
		p.Ask = ways(f, true)
	}
	return p
}

// best chooses the certificate that has the most to be said for it; of equals
// the stored one.
func best(f Facts, now time.Time) (Source, *Certificate) {
	use, c, most := Nothing, (*Certificate)(nil), -1
	for _, candidate := range []struct {
		Source
		*Certificate
	}{{FromStore, f.Stored}, {FromKubeconfig, f.Own}} {
		if candidate.Certificate == nil {
			continue
		}
		worth := 0
		if candidate.Refused < Patience {
			worth += 2
		}
		if now.Before(candidate.NotAfter) || candidate.Doubted {
			worth++
		}
		if worth > most {
			use, c, most = candidate.Source, candidate.Certificate, worth
		}
	}
	return use, c
}

func judge(f Facts, c *Certificate, now time.Time) State {
	switch {
	case c.Refused >= Patience:
		return Refused
	case now.Add(skew).Before(c.NotBefore):
		return Early
	case !now.Before(c.NotAfter) && c.Doubted:
		return Doubted
	case !now.Before(c.NotAfter):
		return Expired
	case f.Rotate && !now.Before(c.renewal()):
		return Due
	}
	return Good
}

// ways to ask when the certificate is of no use, or there is none.
func ways(f Facts, have bool) (all []Request) {
	if f.Bootstrap {
		all = append(all, WithBootstrap)
	}
	if have && f.Rotate {
		all = append(all, WithCurrent)
	}
	return all
}

// nextLook is the next moment at which the certificate's times matter.
func nextLook(f Facts, c *Certificate, now time.Time) (next time.Time) {
	moments := []time.Time{c.NotBefore.Add(-skew), c.NotAfter}
	if f.Rotate {
		moments = append(moments, c.renewal())
	}
	for _, at := range moments {
		if now.Before(at) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
