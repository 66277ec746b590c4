// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"crypto/x509"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/rpc"
)

func TestClientCertificates(t *testing.T) {
	r := newRig(t, nil)
	r.reviews.set(func(v *reviews) { v.allow["api-server get pods"] = true })
	client := x509.ExtKeyUsageClientAuth
	other := newAuthority(t)
	for _, test := range []struct {
		name string
		who  who
		code int
	}{
		{"right", who{certificate: r.ca.sign(t, "api-server", time.Hour, client, "system:masters")}, 200},
		{"another user", who{certificate: r.ca.sign(t, "mallory", time.Hour, client)}, 403},
		{"wrong authority", who{certificate: other.sign(t, "api-server", time.Hour, client)}, 401},
		{"expired", who{certificate: r.ca.sign(t, "api-server", -time.Minute, client)}, 401},
		{"a server's", who{certificate: r.ca.sign(t, "api-server", time.Hour, x509.ExtKeyUsageServerAuth)}, 401},
		{"without a name", who{certificate: r.ca.sign(t, "", time.Hour, client)}, 401},
		{"wrong authority, but a good token", who{certificate: other.sign(t, "x", time.Hour, client), token: "good"}, 403},
		{"none", who{}, 401},
	} {
		a := r.do(test.who, http.MethodGet, "/pods")
		if a.code != test.code {
			t.Errorf("%s: %d %q, want %d", test.name, a.code, a.body, test.code)
		}
		if a.code == 401 && a.body != "Unauthorized" {
			t.Errorf("%s: body %q", test.name, a.body)
		}
	}
	if want := "api-server  [system:masters system:authenticated] get nodes/pods v1 n1"; !slices.Contains(r.reviews.details, want) {
		t.Errorf("reviewed %q, want %q", r.reviews.details, want)
	}
	// With time the good one runs out.
	good := who{certificate: r.ca.sign(t, "api-server", time.Hour, client)}
	r.ahead.Store(int64(2 * time.Hour))
	expect(t, "later", r.do(good, http.MethodGet, "/pods"), 401, "Unauthorized")
}

func TestWrongCredentialsAreNotAnonymous(t *testing.T) {
	r := newRig(t, alwaysAllow)
	expect(t, "none", r.get("/pods"), 200, "PodList")
	bad := who{certificate: newAuthority(t).sign(t, "x", time.Hour, x509.ExtKeyUsageClientAuth)}
	expect(t, "a bad certificate", r.do(bad, http.MethodGet, "/pods"), 401, "Unauthorized")
	expect(t, "a bad token", r.do(who{token: "bad"}, http.MethodGet, "/pods"), 401, "Unauthorized")
	// Nobody asks for tokens: one that is sent all the same is not looked at.
	r.configure(func(c *kubeletconfig.Config) {
		alwaysAllow(c)
		off := false
		c.Kubelet.Authentication.Webhook.Enabled = &off
	})
	r.Eventually("webhook off", func() bool { return r.do(who{token: "bad"}, http.MethodGet, "/pods").code == 200 })
}

func TestTokens(t *testing.T) {
	r := newRig(t, nil)
	r.reviews.set(func(v *reviews) { v.allow["alice get stats"] = true; v.allow["alice create proxy"] = true })
	alice, bob := who{token: "good"}, who{token: "bad"}
	expect(t, "allowed, but there is no such path", r.do(alice, http.MethodGet, "/stats/none"), 404, "")
	if want := "alice 1 [admins system:authenticated] get nodes/stats v1 n1"; r.reviews.details[0] != want {
		t.Errorf("reviewed %q, want %q", r.reviews.details[0], want)
	}
	expect(t, "a bad token", r.do(bob, http.MethodGet, "/stats/none"), 401, "Unauthorized")
	expect(t, "another verb", r.do(alice, http.MethodPost, "/stats/none"), 403, "verb=create")
	expect(t, "the second subresource", r.do(alice, http.MethodPost, "/pods"), 405, "")

	// All of this again is answered from memory, for as long as it is good.
	tokens, access := r.reviews.counts()
	again := func() {
		r.do(alice, http.MethodGet, "/stats/none")
		r.do(bob, http.MethodGet, "/stats/none")
		r.do(alice, http.MethodPost, "/stats/none")
	}
	again()
	if t2, a2 := r.reviews.counts(); t2 != tokens || a2 != access {
		t.Errorf("%d token and %d access reviews more", t2-tokens, a2-access)
	}
	r.ahead.Store(int64(31 * time.Second)) // what was refused is asked again after 30 s
	again()
	if t2, a2 := r.reviews.counts(); t2 != tokens || a2 != access+1 {
		t.Errorf("after 31 s: %d token and %d access reviews more, want 0 and 1", t2-tokens, a2-access)
	}
	r.ahead.Store(int64(2*time.Minute + time.Second)) // tokens after 2 min, what was allowed after 5
	again()
	if t2, a2 := r.reviews.counts(); t2 != tokens+2 || a2 != access+2 {
		t.Errorf("after 2 min: %d token and %d access reviews more, want 2 and 2", t2-tokens, a2-access)
	}
	r.ahead.Store(int64(6 * time.Minute))
	again()
	if _, a2 := r.reviews.counts(); a2 != access+4 {
		t.Errorf("after 6 min: %d access reviews more, want 4", a2-access)
	}
}

func TestForbiddenSaysWhat(t *testing.T) {
	r := newRig(t, nil)
	for path, want := range map[string]string{
		"/pods":                     "Forbidden (user=alice, verb=get, resource=nodes, subresource(s)=[pods proxy])",
		"/configz":                  "Forbidden (user=alice, verb=get, resource=nodes, subresource(s)=[configz proxy])",
		"/metrics/probes":           "Forbidden (user=alice, verb=get, resource=nodes, subresource(s)=[metrics])",
		"/containerLogs/ns/p/c":     "Forbidden (user=alice, verb=get, resource=nodes, subresource(s)=[proxy])",
		"/healthz/ping":             "Forbidden (user=alice, verb=get, resource=nodes, subresource(s)=[healthz proxy])",
		"/exec/no/such/path/at/all": "Forbidden (user=alice, verb=create, resource=nodes, subresource(s)=[proxy])",
		"/metrics/../debug/pprof/":  "subresource(s)=[metrics]",
	} {
		expect(t, path, r.do(who{token: "good"}, http.MethodGet, path), 403, want)
	}
}

// TestNoWayAround: a path that is written oddly is judged as what it leads to.
func TestNoWayAround(t *testing.T) {
	r := newRig(t, nil)
	r.reviews.set(func(v *reviews) { v.allow["alice get metrics"] = true })
	for _, path := range []string{"/metrics/../configz", "/metrics/..%2fconfigz", "/metrics//../configz", "/metrics/%2e%2e/configz"} {
		if a := r.do(who{token: "good"}, http.MethodGet, path); a.code == 200 {
			t.Errorf("%s: %d %q", path, a.code, a.body)
		}
	}
}

func TestAnAPIServerThatIsAwayLetsNobodyIn(t *testing.T) {
	r := newRig(t, nil)
	r.reviews.set(func(v *reviews) { v.err = rpc.Unavailable.Errorf("no API server") })
	expect(t, "token", r.do(who{token: "good"}, http.MethodGet, "/pods"), 401, "Unauthorized")
	certificate := who{certificate: r.ca.sign(t, "api-server", time.Hour, x509.ExtKeyUsageClientAuth)}
	expect(t, "certificate", r.do(certificate, http.MethodGet, "/pods"), 500, "Authorization error (user=api-server, verb=get, resource=nodes")
	r.reviews.set(func(v *reviews) { v.err = nil; v.allow["api-server get pods"] = true })
	expect(t, "back again", r.do(certificate, http.MethodGet, "/pods"), 200, "PodList")
}

func TestTheClientCAIsReadAgain(t *testing.T) {
	r := newRig(t, nil)
	r.reviews.set(func(v *reviews) { v.allow["api-server get pods"] = true })
	next := newAuthority(t)
	caller := who{certificate: next.sign(t, "api-server", time.Hour, x509.ExtKeyUsageClientAuth)}
	expect(t, "before", r.do(caller, http.MethodGet, "/pods"), 401, "")
	data, err := os.ReadFile(next.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.ca.file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	r.configure(nil)
	r.Eventually("the new authority", func() bool { return r.do(caller, http.MethodGet, "/pods").code == 200 })
}
