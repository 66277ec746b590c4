// SPDX-License-Identifier: Apache-2.0

package renewal

import (
	"slices"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/credential"
)

const day = 24 * time.Hour

// epoch is when the certificate of the table was issued; renewal is due after
// 80 of 100 days.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func certificate(change ...func(*Certificate)) *Certificate {
	c := &Certificate{Life: credential.Life{NotBefore: epoch, NotAfter: epoch.Add(100 * day), Spread: 0.5}}
	for _, f := range change {
		f(c)
	}
	return c
}

// backdated is due from the start: it was issued on day 85, for an hour.
func backdated(c *Certificate) {
	c.NotAfter, c.Issued = epoch.Add(85*day+time.Hour), epoch.Add(85*day)
}

func refused(d time.Duration) func(*Certificate) { return func(c *Certificate) { c.Refused = d } }
func doubted(c *Certificate)                     { c.Doubted = true }
func old(c *Certificate)                         { c.NotBefore, c.NotAfter = epoch.Add(-200*day), epoch.Add(-100*day) }

func TestDecide(t *testing.T) {
	both := []Request{WithBootstrap, WithCurrent}
	boot, renew := []Request{WithBootstrap}, []Request{WithCurrent}
	rotating := func(c *Certificate) Facts { return Facts{Rotate: true, Bootstrap: true, Stored: c} }
	cases := []struct {
		name  string
		facts Facts
		at    time.Duration // after the certificate was issued
		use   Source
		ask   []Request
		state State
		look  time.Duration // after the certificate was issued; 0 for never
	}{
		{"first start", Facts{Rotate: true, Bootstrap: true}, 0, Nothing, boot, Missing, 0},
		{"first start without a bootstrap kubeconfig", Facts{Rotate: true}, 0, Nothing, nil, Missing, 0},
		{"young", rotating(certificate()), day, FromStore, nil, Good, 80 * day},
		{"just before it is due", rotating(certificate()), 80*day - time.Second, FromStore, nil, Good, 80 * day},
		{"due", rotating(certificate()), 80 * day, FromStore, renew, Due, 100 * day},
		{"due, without rotation", Facts{Bootstrap: true, Stored: certificate()}, 90 * day, FromStore, nil, Good, 100 * day},
		{"expired offline", rotating(certificate()), 100 * day, FromStore, both, Expired, 0},
		{"expired, without a bootstrap kubeconfig", Facts{Rotate: true, Stored: certificate()}, 101 * day, FromStore, renew, Expired, 0},
		{"expired, without rotation", Facts{Bootstrap: true, Stored: certificate()}, 101 * day, FromStore, boot, Expired, 0},
		{"clock a year ahead", rotating(certificate()), 366 * day, FromStore, both, Expired, 0},
		{"clock a year ahead, new certificate", rotating(certificate(doubted)), 366 * day, FromStore, nil, Doubted, 0},
		{"new certificate, clock back", rotating(certificate(doubted)), day, FromStore, nil, Good, 80 * day},
		{"new certificate, refused", rotating(certificate(doubted, refused(time.Minute))), 366 * day, FromStore, both, Refused, 0},
		{"clock a year back", rotating(certificate()), -365 * day, FromStore, nil, Early, -5 * time.Minute},
		{"clock a little back", rotating(certificate()), -time.Minute, FromStore, nil, Good, 80 * day},
		{"refused for a moment", rotating(certificate(refused(Patience - 1))), day, FromStore, nil, Good, 80 * day},
		{"refused", rotating(certificate(refused(Patience))), day, FromStore, both, Refused, 80 * day},
		{"short and dated back", rotating(certificate(backdated)), 85 * day, FromStore, nil, Good, 85*day + Rest},
		{"short and dated back, after a rest", rotating(certificate(backdated)), 85*day + Rest, FromStore, renew, Due, 85*day + time.Hour},
		{"the kubeconfig's own", Facts{Rotate: true, Own: certificate()}, 85 * day, FromKubeconfig, renew, Due, 100 * day},
		{"both: the stored one", Facts{Rotate: true, Stored: certificate(), Own: certificate()}, day, FromStore, nil, Good, 80 * day},
		{"both, the stored one expired", Facts{Rotate: true, Stored: certificate(old), Own: certificate()}, day, FromKubeconfig, nil, Good, 80 * day},
		{"both, the stored one refused", Facts{Rotate: true, Stored: certificate(refused(time.Hour)), Own: certificate()}, day, FromKubeconfig, nil, Good, 80 * day},
		{"both expired", Facts{Rotate: true, Bootstrap: true, Stored: certificate(old), Own: certificate(old)}, day, FromStore, both, Expired, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := Decide(c.facts, epoch.Add(c.at))
			if p.Use != c.use || !slices.Equal(p.Ask, c.ask) || p.State != c.state {
				t.Errorf("use %v, ask %v, %v; want %v, %v, %v", p.Use, p.Ask, p.State, c.use, c.ask, c.state)
			}
			want := time.Time{}
			if c.look != 0 {
				want = epoch.Add(c.look)
			}
			if !p.Look.Equal(want) {
				t.Errorf("looks again at %v, want %v", p.Look, want)
			}
		})
	}
}
