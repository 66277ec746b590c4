// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/services/supervisor"
	"github.com/sextant-node/sextant/test/fakeapi"
	"github.com/sextant-node/sextant/test/fakelogind"
)

// machine is one with a kubelet, which runs or does not, and a change of it.
func machine(t *testing.T, runs bool) (*fakelogind.Machine, *Change) {
	t.Helper()
	m := fakelogind.Start(t, false)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", m.Address())
	m.Unit(Unit, runs)
	m.Unit(supervisor.Slice, false)
	return m, &Change{Files: files(t), To: Sextant, Ran: []string{"--v=2"}, Step: plain}
}

func plain(_ string, do func() (string, error)) error {
	_, err := do()
	return err
}

// killed runs a change that is killed before a step.
func killed(ctx context.Context, c *Change, at string) (was bool) {
	defer func() { was = recover() != nil }()
	step := c.Step
	defer func() { c.Step = step }()
	c.Step = func(name string, do func() (string, error)) error {
		if name == at {
			panic("killed")
		}
		return step(name, do)
	}
	_ = c.Run(ctx) // it does not return
	return false
}

// TestKilledChange: a change that is killed before any of its steps, and begun again in
// either direction, leaves the node with an agent that runs, and no mark.
func TestKilledChange(t *testing.T) {
	for _, at := range []string{"former agent stopped", Unit + " changed", Unit + " started"} {
		for _, again := range []Agent{Sextant, Kubelet} {
			t.Run(at+", then "+string(again), func(t *testing.T) {
				m, c := machine(t, true)
				if !killed(t.Context(), c, at) {
					t.Fatal("it was not killed")
				}
				if u, err := c.Files.Unfinished(); err != nil || u == nil || !slices.Equal(u.Args, c.Ran) {
					t.Errorf("the change that was killed: %+v, %v", u, err)
				}
				c.To = again
				if err := c.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if u, err := c.Files.Unfinished(); !m.Active(Unit) || c.Files.Sextant() != (again == Sextant) || u != nil || err != nil {
					t.Errorf("an agent runs: %t; it is Sextant: %t; unfinished: %+v, %v", m.Active(Unit), c.Files.Sextant(), u, err)
				}
			})
		}
	}
}

// TestOneChangeAtATime: a second process is refused while the first one is at work.
func TestOneChangeAtATime(t *testing.T) {
	f := files(t)
	unlock, err := f.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Lock(); !errors.Is(err, ErrBusy) {
		t.Errorf("the second one: %v", err)
	}
	unlock()
	again, err := f.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// TestHealthzIsAskedDirectly: not through the proxy that the environment names, also where
// the agent serves it at the address of the node.
func TestHealthzIsAskedDirectly(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Errorf("the proxy is asked for %s", r.URL) }))
	defer proxy.Close()
	t.Setenv("http_proxy", proxy.URL)
	t.Setenv("HTTP_PROXY", proxy.URL)
	if got := (Node{Healthz: "http://192.0.2.1.invalid:10248/healthz"}).healthz(t.Context()); !strings.Contains(got, "lookup") {
		t.Errorf("healthz: %q", got)
	}
}

// TestNoAgent: where none runs, none is started.
func TestNoAgent(t *testing.T) {
	m, c := machine(t, false)
	if err := c.Run(t.Context()); err != nil || m.Active(Unit) || !c.Files.Sextant() {
		t.Errorf("%v; an agent runs: %t; it is Sextant: %t", err, m.Active(Unit), c.Files.Sextant())
	}
}

// TestUndone: a change that fails goes back, which is the end of it.
func TestUndone(t *testing.T) {
	m, c := machine(t, true)
	failed := false
	c.Step = func(name string, do func() (string, error)) error {
		if name == Unit+" started" && !failed {
			failed = true
			return errors.New("it does not start")
		}
		return plain(name, do)
	}
	err := c.Run(t.Context())
	if u, markErr := c.Files.Unfinished(); !errors.Is(err, ErrUndone) || !m.Active(Unit) || c.Files.Sextant() || u != nil || markErr != nil {
		t.Errorf("%v; an agent runs: %t; it is Sextant: %t; unfinished: %+v, %v", err, m.Active(Unit), c.Files.Sextant(), u, markErr)
	}
}

// TestLastWordOfTheFormerAgent: a lease that the former agent renews while it is being
// stopped does not say that the other one works.
func TestLastWordOfTheFormerAgent(t *testing.T) {
	m, c := machine(t, true)
	var renewed atomic.Int64 // in microseconds
	renewed.Store(time.Now().Add(-time.Minute).UnixMicro())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "/leases/") {
			fmt.Fprintf(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","spec":{"renewTime":%q}}`, time.UnixMicro(renewed.Load()).UTC().Format(metav1.RFC3339Micro))
			return
		}
		fmt.Fprint(w, `{"kind":"Node","apiVersion":"v1","status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	}))
	defer server.Close()
	c.Joined, c.Limit, c.Node = true, time.Second, Node{Name: "n1", KubeConfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := fakeapi.WriteKubeconfig(c.Node.KubeConfig, server.URL); err != nil {
		t.Fatal(err)
	}
	c.Step = func(name string, do func() (string, error)) error {
		if name == "former agent stopped" {
			renewed.Store(time.Now().UnixMicro())
		}
		return plain(name, do)
	}
	if err := c.Run(t.Context()); !errors.Is(err, ErrUndone) || !m.Active(Unit) {
		t.Errorf("an agent that does not renew the lease counts as well: %v", err)
	}
}
