// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/credential"
)

const day = 24 * time.Hour

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestDecide(t *testing.T) {
	one := Names{DNS: []string{"n1"}, IPs: []string{"10.0.0.1"}}
	two := Names{DNS: []string{"n1"}, IPs: []string{"10.0.0.1", "10.0.0.2"}}
	have := func(n Names) *Certificate {
		return &Certificate{Life: credential.Life{NotBefore: epoch, NotAfter: epoch.Add(100 * day), Spread: 0.5}, Names: n}
	}
	doubted := have(one)
	doubted.Doubted = true
	short := have(one)
	short.NotAfter, short.Issued = epoch.Add(85*day+time.Hour), epoch.Add(85*day)
	pending := func(n Names, at time.Duration) *Request { return &Request{Names: n, Since: epoch.Add(at)} }
	cases := []struct {
		name      string
		facts     Facts
		at        time.Duration
		ask, drop bool
	}{
		{"none, addresses not known", Facts{}, 0, false, false},
		{"none, no IP address", Facts{Want: Names{DNS: []string{"n1"}}}, 0, false, false},
		{"none", Facts{Want: one}, 0, true, false},
		{"none, asked", Facts{Want: one, Pending: pending(one, 0)}, time.Minute, true, false},
		{"none, asked long ago", Facts{Want: one, Pending: pending(one, 0)}, Patience, true, true},
		{"none, asked, clock back", Facts{Want: one, Pending: pending(one, 0)}, -time.Hour, true, true},
		{"none, asked for other addresses", Facts{Want: two, Pending: pending(one, 0)}, time.Minute, true, true},
		{"good", Facts{Want: one, Have: have(one)}, day, false, false},
		{"good, asked", Facts{Want: one, Have: have(one), Pending: pending(one, 0)}, time.Minute, false, true},
		{"names more than needed", Facts{Want: one, Have: have(two)}, day, false, false},
		{"an address more", Facts{Want: two, Have: have(one)}, day, true, false},
		{"addresses not known", Facts{Have: have(one)}, day, false, false},
		{"due", Facts{Want: one, Have: have(one)}, 80 * day, true, false},
		{"short and dated back", Facts{Want: one, Have: short}, 85 * day, false, false},
		{"short and dated back, after a rest", Facts{Want: one, Have: short}, 85*day + Rest, true, false},
		{"expired", Facts{Want: one, Have: have(one)}, 101 * day, true, false},
		{"new and expired: the clock is wrong", Facts{Want: one, Have: doubted}, 366 * day, false, false},
		{"new and expired, and the clock is back", Facts{Want: one, Have: doubted}, day, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := Decide(c.facts, epoch.Add(c.at))
			if p.Ask != c.ask || p.Drop != c.drop {
				t.Errorf("ask %v, drop %v (%s); want %v, %v", p.Ask, p.Drop, p.Reason, c.ask, c.drop)
			}
		})
	}
}

func TestNamesOf(t *testing.T) {
	n := NamesOf([]v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: "10.0.0.2"}, {Type: v1.NodeInternalIP, Address: "10.0.0.1"},
		{Type: v1.NodeExternalIP, Address: "10.0.0.2"}, {Type: v1.NodeInternalIP, Address: "FD00::1"},
		{Type: v1.NodeHostName, Address: "n1"}, {Type: v1.NodeInternalDNS, Address: "n1"}, {Type: v1.NodeExternalDNS, Address: ""},
		{Type: v1.NodeHostName, Address: "10.0.0.3"}, {Type: v1.NodeInternalIP, Address: "no address"},
	})
	want := Names{DNS: []string{"n1"}, IPs: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"}}
	if !n.equal(want) || !n.Usable() {
		t.Errorf("%+v, want %+v", n, want)
	}
}
