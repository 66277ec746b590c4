// SPDX-License-Identifier: Apache-2.0

package kubeadm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// upgradePods are the pods under which packages change.
const upgradePods = 100

// TestUpgrade: the next package, and the former one again, under pods of which the API
// server sees no flip. A version whose gate cannot start, and one whose services are not
// what they say, go back by themselves and fail the command. No version is thrown away.
func TestUpgrade(t *testing.T) {
	m, join := newMachine(t)
	m.run("sextant", "migrate")
	m.kubeadm(join...)
	m.node()
	for i := range upgradePods {
		m.start(fmt.Sprintf("app-%d", i))
	}
	before := m.look()
	flips := m.watchFlips()
	first := m.versions()

	began := time.Now()
	m.run("dpkg", "-i", m.nextPackage())
	t.Logf("from %s to the next package in %.0f s", first, time.Since(began).Seconds())
	next := m.versions()
	if next == first {
		t.Errorf("everything runs %s still", first)
	}
	m.same(before)

	for name, text := range map[string]string{
		"broken-gate":    "#!/bin/sh\n[ \"$1\" = gate ] && exit 1\nexec /usr/lib/sextant/versions/" + next + "/sextant \"$@\"\n",
		"broken-service": "#!/bin/sh\n[ \"$2\" = prober ] && exit 1\nexec /usr/lib/sextant/versions/" + next + "/sextant \"$@\"\n",
	} {
		dir := filepath.Join("/usr/lib/sextant/versions", name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sextant"), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		part := map[string]string{"broken-gate": "gate", "broken-service": "prober"}[name]
		if out, err := m.try("sextant", "upgrade", part, name, "--limit=20s"); err == nil || !strings.Contains(out, "it runs "+next+" again") {
			t.Errorf("sextant upgrade %s %s: %v", part, name, err)
		}
		if now := m.versions(); now != next {
			t.Errorf("after %s everything runs %s", name, now)
		}
		m.same(before)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}

	began = time.Now()
	m.sextantPackage()
	t.Logf("back to the former package in %.0f s", time.Since(began).Seconds())
	if now := m.versions(); now != first {
		t.Errorf("everything runs %s, not %s", now, first)
	}
	m.same(before)
	for _, version := range []string{first, next} {
		if _, err := os.Stat(filepath.Join("/usr/lib/sextant/versions", version, "sextant")); err != nil {
			t.Errorf("a version was thrown away: %v", err)
		}
	}
	if seen := flips(); len(seen) > 0 {
		t.Errorf("flips:\n%s", strings.Join(seen, "\n"))
	}
	m.kubeadm("reset", "--force", "--cri-socket="+endpoint)
	m.purge()
}

func (m *machine) nextPackage() string {
	m.Helper()
	found, err := filepath.Glob(filepath.Join(harness.BootFiles, "next", "sextant_*.deb"))
	if err != nil || len(found) != 1 {
		m.Fatalf("packages %v, %v", found, err)
	}
	return found[0]
}

// versions is the version that everything runs.
func (m *machine) versions() string {
	m.Helper()
	var rows []struct{ Service, Running, Chosen string }
	if err := json.Unmarshal([]byte(m.run("sextant", "versions", "-o", "json")), &rows); err != nil {
		m.Fatal(err)
	}
	for _, r := range rows {
		runs := r.Running == r.Chosen || r.Service == "prepare" // which has ended
		if !runs || r.Chosen != rows[0].Chosen {
			m.Fatalf("%s runs %q and is to run %s, and %s is to run %s", r.Service, r.Running, r.Chosen, rows[0].Service, rows[0].Chosen)
		}
	}
	return rows[0].Chosen
}

// watchFlips notes every change of a pod that nothing was done to, and of the node's
// readiness, until the function it returns is called.
func (m *machine) watchFlips() func() []string {
	m.Helper()
	ctx, stop := context.WithCancel(m.Context())
	var mu sync.Mutex
	var seen []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf(format, args...))
	}
	pods, err := m.cp.Admin.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		m.Fatal(err)
	}
	nodes, err := m.cp.Admin.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		m.Fatal(err)
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		for e := range pods.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
					note("%s is not Ready: %s", p.Name, c.Reason)
				}
			}
			for _, s := range p.Status.ContainerStatuses {
				if s.RestartCount > 0 {
					note("%s restarted", p.Name)
				}
			}
		}
	})
	watching.Go(func() {
		for e := range nodes.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			if !ok || n.Name != nodeName {
				continue
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					note("the node is not Ready: %s", c.Message)
				}
			}
		}
	})
	return func() []string {
		stop()
		watching.Wait()
		return seen
	}
}
