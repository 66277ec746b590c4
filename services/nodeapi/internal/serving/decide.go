// Package serving decides about the serving certificate that is asked of the
// API server: whether another one is needed, and what becomes of a request. It
// is pure: the time is an input.
package serving

import (
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/credential"
)

// Patience with a request that nobody answers; then another one is made
// (kubelet: 15 m).
const Patience = 15 * time.Minute

// Rest is the least time between two renewals: signers date certificates back by
// some minutes, so that a very short one is due when it is issued.
const Rest = 30 * time.Second

// Names a certificate is for, each list sorted.
type Names struct {
	DNS []string
	IPs []string
}

// NamesOf are the names of a node with these addresses.
func NamesOf(addresses []v1.NodeAddress) (n Names) {
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a.Address)
		switch a.Type {
		case v1.NodeInternalIP, v1.NodeExternalIP:
			if err == nil {
				n.IPs = append(n.IPs, ip.String())
			}
		case v1.NodeHostName, v1.NodeInternalDNS, v1.NodeExternalDNS:
			switch {
			case err == nil && a.Type == v1.NodeHostName:
				n.IPs = append(n.IPs, ip.String())
			case a.Address != "":
				n.DNS = append(n.DNS, a.Address)
			}
		}
	}
	return n.sorted()
}

func (n Names) sorted() Names {
	slices.Sort(n.DNS)
	slices.Sort(n.IPs)
	n.DNS, n.IPs = slices.Compact(n.DNS), slices.Compact(n.IPs)
	return n
}

// Usable tells whether there is an address to name; signers refuse a certificate
// with DNS names alone unless told otherwise.
func (n Names) Usable() bool { return len(n.IPs) > 0 }

// cover tells whether every name of want is among them.
func (n Names) cover(want Names) bool {
	in := func(all []string) func(string) bool {
		return func(s string) bool { return !slices.Contains(all, s) }
	}
	return !slices.ContainsFunc(want.DNS, in(n.DNS)) && !slices.ContainsFunc(want.IPs, in(n.IPs))
}

func (n Names) equal(o Names) bool { return slices.Equal(n.DNS, o.DNS) && slices.Equal(n.IPs, o.IPs) }

// Certificate is the one there is.
type Certificate struct {
	credential.Life
	Names
	// Doubted: when it was issued the node's clock said that it had expired.
	Doubted bool
	// Issued is when this process got it; zero if it found it.
	Issued time.Time
}

// due tells whether it is to be renewed.
func (c *Certificate) due(now time.Time) bool {
	return now.Before(c.NotAfter) && !now.Before(c.Renewal()) && (c.Issued.IsZero() || !now.Before(c.Issued.Add(Rest)))
}

// Request is the one under way.
type Request struct {
	Names
	Since time.Time
}

// Facts are what the decision is made of.
type Facts struct {
	// Want are the node's names now; not usable while they are not known.
	Want    Names
	Have    *Certificate
	Pending *Request
}

// Plan is the decision.
type Plan struct {
	// Drop the request under way.
	Drop bool
	// Ask for a certificate: go on with the request under way, or make one.
	Ask bool
	// Reason for asking.
	Reason string
}

// Decide says what to do now.
func Decide(f Facts, now time.Time) Plan {
	reason := need(f, now)
	p := Plan{Ask: reason != "" && f.Want.Usable(), Reason: reason}
	if r := f.Pending; r != nil {
		age := now.Sub(r.Since)
		p.Drop = !p.Ask || !r.Names.equal(f.Want) || age >= Patience || age < 0
	}
	return p
}

func need(f Facts, now time.Time) string {
	c := f.Have
	switch {
	case c == nil:
		return "there is no certificate"
	case f.Want.Usable() && !c.cover(f.Want):
		return "the node's addresses changed"
	case !now.Before(c.NotAfter) && !c.Doubted:
		return "the certificate expired"
	case c.due(now):
		return "the certificate is due"
	}
	return ""
}
