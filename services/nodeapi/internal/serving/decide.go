// SPDX-License-Identifier: Apache-2.0

// Package serving decides whether another serving certificate is requested from the API
// server, and what becomes of a request. It is pure: the time is an input.
package serving

import (
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/credential"
)

// Patience is how long a request may stay unanswered before another one is made (kubelet:
// 15 m).
const Patience = 15 * time.Minute

// Rest is the least time between two renewals: signers date certificates back by minutes,
// so that a very short one is due when it is issued.
const Rest = 30 * time.Second

// Names are those in a certificate, each list sorted.
type Names struct {
	DNS []string
	IPs []string
}

// NamesOf are the names of a node with these addresses.
func NamesOf(addresses []v1.NodeAddress) (n Names) {
	ips := []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP, v1.NodeHostName}
	names := []v1.NodeAddressType{v1.NodeHostName, v1.NodeInternalDNS, v1.NodeExternalDNS}
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case err == nil && slices.Contains(ips, a.Type):
			n.IPs = append(n.IPs, ip.String())
		case a.Address != "" && slices.Contains(names, a.Type):
			n.DNS = append(n.DNS, a.Address)
		}
	}
	slices.Sort(n.DNS)
	slices.Sort(n.IPs)
	n.DNS, n.IPs = slices.Compact(n.DNS), slices.Compact(n.IPs)
	return n
}

// Usable reports whether there is an IP address: signers refuse a request with DNS names
// alone, unless they are configured otherwise.
func (n Names) Usable() bool { return len(n.IPs) > 0 }

// cover reports whether every name of want is among them.
func (n Names) cover(want Names) bool {
	in := func(all []string) func(string) bool {
		return func(s string) bool { return !slices.Contains(all, s) }
	}
	return !slices.ContainsFunc(want.DNS, in(n.DNS)) && !slices.ContainsFunc(want.IPs, in(n.IPs))
}

func (n Names) equal(o Names) bool { return slices.Equal(n.DNS, o.DNS) && slices.Equal(n.IPs, o.IPs) }

// Certificate is the present one.
type Certificate struct {
	credential.Life
	Names
	// Doubted: by the node's clock it was expired when it was issued.
	Doubted bool
	// Issued is when this process received it, zero if it was in the files.
	Issued time.Time
}

// due reports whether it must be renewed.
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
	// Want are the node's names, not usable while they are not known.
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

// Decide makes the plan.
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
