// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"
	"time"
)

// TestMissing: a node is as before when its agent works and says so.
func TestMissing(t *testing.T) {
	began := time.Unix(100, 0)
	ready := Seen{Ready: true, Renewed: began.Add(-5 * time.Second)}
	for _, tt := range []struct {
		name        string
		before, now Seen
		want        string
	}{
		{"as before", ready, Seen{Ready: true, Renewed: began.Add(time.Second)}, ""},
		{"not healthy", ready, Seen{Healthz: "refused", Ready: true, Renewed: began.Add(time.Second)}, "healthz: refused"},
		{"what the former agent said", ready, ready, "the node's lease has not been renewed"},
		{"not Ready", ready, Seen{Message: "no network", Renewed: began.Add(time.Second)}, "the node is not Ready: no network"},
		{"was not Ready", Seen{Renewed: began}, Seen{Renewed: began.Add(time.Second)}, ""},
		{"the API server went", ready, Seen{API: "timeout"}, "API server: timeout"},
		{"no API server", Seen{API: "there is none"}, Seen{API: "there is none"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Missing(tt.before, tt.now, began); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
