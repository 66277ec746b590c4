// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/compare"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// side is one of the two nodes that are compared, with what was put on it.
type side struct {
	*harness.Place
	name string
	cp   *harness.ControlPlane
	seen *observer
	ns   string
	lab  string // that both sides are of
	// healthz is the base URL of the other port.
	healthz string
	// clients are those who ask, by name.
	clients map[string]*http.Client
	// names are what this side calls what both have, with what it is.
	names map[string]string
	// fresh numbers what has a name that is never free again.
	fresh atomic.Int32
}

// pair is the reference kubelet's node and Sextant's.
type pair struct {
	reference, sextant *side
	// audit is the API server's log of what nodes ask.
	audit string
}

func (p pair) each(do func(*side)) {
	var wait sync.WaitGroup
	for _, s := range []*side{p.reference, p.sextant} {
		wait.Go(func() { do(s) })
	}
	wait.Wait()
}

// startPair starts both nodes on one control plane with the same configuration.
func startPair(t *testing.T) pair {
	t.Helper()
	cp := harness.StartControlPlane(t)
	p := pair{audit: cp.Audit(t)}
	seen := observe(t, cp)
	// What starts a node ends the test when it fails, so it is not done aside.
	r := harness.StartReference(t, compareOptions(cp))
	s := harness.StartNode(t, compareOptions(cp))
	p.reference = newSide(t, "reference", &r.Place, cp, seen)
	p.sextant = newSide(t, "sextant", &s.Place, cp, seen)
	return p
}

const healthzPort = 10248

func compareOptions(cp *harness.ControlPlane) harness.NodeOptions {
	return harness.NodeOptions{ControlPlane: cp, Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		no, yes, port := false, true, int32(healthzPort)
		c.HealthzBindAddress, c.HealthzPort = c.Address, &port
		// The chains would be the machine's, and stay.
		c.MakeIPTablesUtilChains = &no
		c.EnableSystemLogQuery = &yes
		c.VolumePluginDir = filepath.Join(filepath.Dir(c.StaticPodPath), "volume-plugins")
		c.KubeReserved = map[string]string{"cpu": "100m", "memory": "100Mi", "ephemeral-storage": "1Gi"}
	}}
}

func newSide(t *testing.T, name string, place *harness.Place, cp *harness.ControlPlane, seen *observer) *side {
	t.Helper()
	s := &side{
		lab:   harness.The(t).ID,
		Place: place, name: name, cp: cp, seen: seen, ns: cp.Namespace(t),
		healthz: "http://" + place.IP + ":" + strconv.Itoa(healthzPort),
		clients: map[string]*http.Client{
			"admin":    harness.Unverified(cp.ClientCertificate(t, "admin", "system:masters")),
			"stranger": harness.Unverified(cp.ClientCertificate(t, "stranger")),
			"nobody":   harness.Unverified(nil),
			"forger":   harness.Unverified(selfSigned(t)),
		},
	}
	s.names = map[string]string{
		s.Name: "NODE", s.ns: "NS", s.IP: "NODEIP", strconv.Itoa(s.Port): "PORT",
		filepath.Dir(s.Root): "DIR", filepath.Dir(strings.TrimPrefix(s.Runtime.Endpoint(), "unix://")): "RUNTIME",
		s.Runtime.CgroupRoot: "/CGROUP", strings.TrimPrefix(s.Runtime.CgroupRoot, "/"): "CGROUP",
	}
	return s
}

// normalizer replaces what is this side's own.
func (s *side) normalizer() *compare.Normalizer { return compare.NewNormalizer(s.names) }

// answer is what a node said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// ask sends a request as one of the clients.
func (s *side) ask(ctx context.Context, as, method, url string) (answer, error) {
	if strings.HasPrefix(url, "/") {
		url = fmt.Sprintf("https://%s:%d%s", s.IP, s.Port, url)
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return answer{}, err
	}
	if token, ok := strings.CutPrefix(as, "token "); ok {
		req.Header.Set("Authorization", "Bearer "+token)
		as = "nobody"
	}
	client := *s.clients[as]
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, body}, err
}

// get fetches a page as admin.
func (s *side) get(ctx context.Context, path string) ([]byte, error) {
	a, err := s.ask(ctx, "admin", http.MethodGet, path)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("%s: GET %s: %d %s", s.name, path, a.status, a.body)
	}
	if err == nil {
		err = s.keep(path, a.body)
	}
	return a.body, err
}

// keep stores what a node said below $SEXTANT_ARTIFACTS, if that is set.
func (s *side) keep(what string, body []byte) error {
	to := os.Getenv("SEXTANT_ARTIFACTS")
	if to == "" {
		return nil
	}
	file := filepath.Join(to, "compare", s.name, strings.ReplaceAll(strings.Trim(what, "/"), "/", "_"))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, body, 0o644)
}

// aspect is one thing that is compared; facts are what a side says about it.
type aspect struct {
	name  string
	facts func(context.Context, *side) ([]string, error)
	// alone is what takes so much work that nothing else is done beside it.
	alone bool
	// says are facts that there must be: both nodes could fail alike.
	says []string
	// before is done once, at the beginning.
	before func(*testing.T, pair)
}

// TestCompare puts the same pods on a node of the reference kubelet and on one of
// Sextant and compares all that can be seen of them: what differs must be listed
// in testdata/compare with a reason, and what is listed must differ. Before that it
// compares by how much their metrics move.
//
//	go test -run 'TestCompare$/metrics' -v        what differs in one aspect, and why
//	SEXTANT_ARTIFACTS=DIR go test -run TestCompare   keeps what both said in DIR
func TestCompare(t *testing.T) {
	p := startPair(t)
	p.furnish(t)
	t.Run("moves", p.moves)
	p.populate(t)
	for _, a := range aspects() {
		t.Run(a.name, func(t *testing.T) {
			if !a.alone {
				t.Parallel()
			}
			if a.before != nil {
				a.before(t, p)
			}
			p.compare(t, a)
		})
	}
}

// compareLimit is how long the two nodes have to say the same: they do the same
// things at different moments. askLimit is how long one answer may take.
const (
	compareLimit = 2 * time.Minute
	// compareAgain is how long after they agreed they must agree still.
	compareAgain = 5 * time.Second
	aloneLimit   = 5 * time.Minute
	askLimit     = 20 * time.Second
)

func (p pair) compare(t *testing.T, a aspect) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "compare", a.name+".txt"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	table, err := compare.ParseTable(string(text))
	if err != nil {
		t.Fatalf("testdata/compare/%s.txt: %v", a.name, err)
	}
	var report compare.Report
	judge := func(ctx context.Context) error {
		facts, errs := map[*side][]string{}, map[*side]error{}
		var mu sync.Mutex
		p.each(func(s *side) {
			found, err := a.facts(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			facts[s], errs[s] = found, err
		})
		if err := errors.Join(errs[p.reference], errs[p.sextant]); err != nil {
			return err
		}
		for _, want := range a.says {
			if !slices.Contains(facts[p.sextant], want) {
				return fmt.Errorf("nobody says %q, but\n%s", want, strings.Join(facts[p.sextant], "\n"))
			}
		}
		report = table.Judge(compare.Diff(facts[p.reference], facts[p.sextant]))
		if !report.OK() {
			return fmt.Errorf("the nodes differ otherwise than testdata/compare/%s.txt says:\n%s", a.name, report)
		}
		return nil
	}
	limit := compareLimit
	if a.alone {
		limit = aloneLimit
	}
	err = harness.Within(t.Context(), limit, func(ctx context.Context) error {
		if err := judge(ctx); err != nil || a.alone {
			return err
		}
		harness.Rest(t, compareAgain) // what flickers may agree once
		return judge(ctx)
	})
	if err != nil {
		t.Error(err) // with the report of the last time they did not agree
	} else {
		t.Logf("%s\n%s", a.name, report)
	}
	if err := p.sextant.keep("report-"+a.name, []byte(report.String())); err != nil {
		t.Error(err)
	}
}

// selfSigned is a certificate for "admin" that nobody vouches for.
func selfSigned(t *testing.T) *tls.Certificate {
	t.Helper()
	cert, err := harness.SelfSigned("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
