// SPDX-License-Identifier: Apache-2.0

package chains

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// tables are those of a machine, as its programs show them.
type tables struct {
	mu sync.Mutex
	// programs that the machine has.
	programs []string
	// have are chains ("iptables mangle NAME") and rules ("iptables filter INPUT: ...").
	have  []string
	calls int
	// fails returns the exit code of a call, 0 for one that succeeds.
	fails func(args string) int
}

// called is how often a program was called.
func (m *tables) called() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

func (m *tables) run(_ context.Context, program string, args ...string) (int, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if !slices.Contains(m.programs, program) {
		return 0, "", &exec.Error{Name: program, Err: fs.ErrNotExist}
	}
	if args[0] != "-w" || args[1] != "5" || args[4] != "-t" {
		return 2, "bad arguments", nil
	}
	if m.fails != nil {
		if code := m.fails(strings.Join(args, " ")); code != 0 {
			return code, "it fails", nil
		}
	}
	name := program + " " + args[5] + " " + args[3]
	if len(args) > 6 {
		name += ": " + strings.Join(args[6:], " ")
	}
	there := slices.Contains(m.have, name) || name == program+" nat POSTROUTING"
	switch args[2] {
	case "-S", "-C":
		if !there {
			return 1, "missing", nil
		}
	case "-N":
		if there {
			return 1, "Chain already exists.", nil
		}
		m.have = append(m.have, name)
	case "-A", "-I":
		m.have = append(m.have, name)
	}
	return 0, "", nil
}

func (m *tables) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.have))
}

func (m *tables) remove(which ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.have = slices.DeleteFunc(m.have, func(s string) bool {
		return slices.ContainsFunc(which, func(w string) bool { return strings.HasPrefix(s, w) })
	})
}

const drop = "-m comment --comment block incoming localnet connections --dst 127.0.0.0/8 ! --src 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"

var (
	of4 = []string{
		"iptables filter INPUT: -j KUBE-FIREWALL", "iptables filter KUBE-FIREWALL", "iptables filter KUBE-FIREWALL: " + drop, "iptables filter KUBE-KUBELET-CANARY",
		"iptables filter OUTPUT: -j KUBE-FIREWALL", "iptables mangle KUBE-IPTABLES-HINT", "iptables mangle KUBE-KUBELET-CANARY", "iptables nat KUBE-KUBELET-CANARY",
	}
	of6 = []string{
		"ip6tables filter KUBE-KUBELET-CANARY", "ip6tables mangle KUBE-IPTABLES-HINT", "ip6tables mangle KUBE-KUBELET-CANARY", "ip6tables nat KUBE-KUBELET-CANARY",
	}
)

// keeping runs a keeper on a machine, until the test ends.
func keeping(t *testing.T, m *tables, script func(said *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		said := &bytes.Buffer{}
		k := &Keeper{Log: slog.New(slog.NewTextHandler(said, nil)), Clock: clock.RealClock{}, Run: m.run}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { k.Keep(ctx); close(ended) }()
		synctest.Wait()
		script(said)
		stop()
		<-ended
	})
}

// pass lets time go by; in a bubble it is the bubble's.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestKeeps(t *testing.T) {
	both := slices.Sorted(slices.Values(slices.Concat(of4, of6)))
	t.Run("both families", func(t *testing.T) {
		m := &tables{programs: []string{"iptables", "ip6tables"}}
		keeping(t, m, func(*bytes.Buffer) {
			if got := m.all(); !slices.Equal(got, both) {
				t.Errorf("made %q", got)
			}
			before := m.called()
			pass(10 * time.Minute)
			if got := m.all(); !slices.Equal(got, both) || m.called() != before+20 {
				t.Errorf("ten minutes later %q, after %d more calls", got, m.called()-before)
			}
		})
	})
	t.Run("what was there is left alone", func(t *testing.T) {
		m := &tables{programs: []string{"iptables"}, have: slices.Clone(of4)}
		keeping(t, m, func(*bytes.Buffer) {
			if got := m.all(); !slices.Equal(got, of4) {
				t.Errorf("made %q", got)
			}
		})
	})
	t.Run("one family", func(t *testing.T) {
		m := &tables{programs: []string{"ip6tables"}}
		keeping(t, m, func(said *bytes.Buffer) {
			if got := m.all(); !slices.Equal(got, of6) || strings.Contains(said.String(), "No iptables support") {
				t.Errorf("made %q, said %s", got, said)
			}
		})
	})
	t.Run("no program", func(t *testing.T) {
		m := &tables{}
		keeping(t, m, func(said *bytes.Buffer) {
			pass(time.Hour)
			if lines := strings.Count(said.String(), "\n"); lines != 1 || !strings.Contains(said.String(), "No iptables support on this system") || m.called() != 2 {
				t.Errorf("said %s after %d calls", said, m.called())
			}
		})
	})
	t.Run("a flush", func(t *testing.T) {
		m := &tables{programs: []string{"iptables"}}
		keeping(t, m, func(*bytes.Buffer) {
			m.remove("iptables mangle", "iptables nat") // it goes on for two seconds
			pass(period + 2*time.Second)
			if got := m.all(); slices.Contains(got, "iptables mangle KUBE-IPTABLES-HINT") {
				t.Errorf("in the middle of the flush %q", got)
			}
			m.remove("iptables filter")
			pass(time.Second)
			if got := m.all(); !slices.Equal(got, of4) {
				t.Errorf("after the flush %q", got)
			}
		})
	})
	t.Run("one table's chains removed", func(t *testing.T) {
		m := &tables{programs: []string{"iptables"}}
		keeping(t, m, func(*bytes.Buffer) {
			m.remove("iptables mangle")
			pass(period + flushing + time.Second)
			if got := m.all(); !slices.Equal(got, of4) {
				t.Errorf("%q", got)
			}
		})
	})
	t.Run("the lock is taken", func(t *testing.T) {
		m := &tables{programs: []string{"iptables"}}
		keeping(t, m, func(*bytes.Buffer) {
			m.mu.Lock()
			m.fails = func(string) int { return busy }
			before := m.calls
			m.mu.Unlock()
			pass(5 * time.Minute)
			if m.called() != before+5 {
				t.Errorf("%d calls in five minutes in which nothing was known", m.called()-before)
			}
		})
	})
	t.Run("a rule that the kernel does not take", func(t *testing.T) {
		m := &tables{programs: []string{"iptables"}, fails: func(args string) int {
			if strings.Contains(args, "conntrack") {
				return 2
			}
			return 0
		}}
		keeping(t, m, func(said *bytes.Buffer) {
			if !strings.Contains(said.String(), "Failed to initialize iptables rules") || !strings.Contains(said.String(), "it fails") {
				t.Errorf("said %s", said)
			}
		})
	})
}

// TestHost: the machine's own programs make and keep the chains, in a network namespace of
// the test's.
func TestHost(t *testing.T) {
	for _, f := range Families {
		if _, err := exec.LookPath(f.Program); errors.Is(err, exec.ErrNotFound) {
			t.Fatalf("%s is missing: the package iptables has it", f.Program)
		}
	}
	name := fmt.Sprintf("sextant-chains-%d", time.Now().UnixNano())
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "delete", name).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	inside := func(ctx context.Context, program string, args ...string) (int, string, error) {
		return run(ctx, "ip", append([]string{"netns", "exec", name, program}, args...)...)
	}
	saved := func() string {
		var all strings.Builder
		for _, f := range Families {
			for _, table := range watched {
				_, out, err := inside(t.Context(), f.Program, "-w", "5", "-t", table, "-S")
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(out) {
					if strings.Contains(line, "KUBE-") {
						fmt.Fprintf(&all, "%s %s %s\n", f.Protocol, table, strings.TrimSpace(line))
					}
				}
			}
		}
		return all.String()
	}
	k := &Keeper{Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Run: inside}
	for range 2 { // the second time there is nothing to do
		for _, f := range Families {
			if err := k.ensure(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			if !k.canaries(t.Context(), f) {
				t.Fatal("no canaries of " + f.Protocol)
			}
		}
		const want = `IPv4 mangle -N KUBE-IPTABLES-HINT
IPv4 mangle -N KUBE-KUBELET-CANARY
IPv4 nat -N KUBE-KUBELET-CANARY
IPv4 filter -N KUBE-FIREWALL
IPv4 filter -N KUBE-KUBELET-CANARY
IPv4 filter -A INPUT -j KUBE-FIREWALL
IPv4 filter -A OUTPUT -j KUBE-FIREWALL
IPv4 filter -A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
IPv6 mangle -N KUBE-IPTABLES-HINT
IPv6 mangle -N KUBE-KUBELET-CANARY
IPv6 nat -N KUBE-KUBELET-CANARY
IPv6 filter -N KUBE-KUBELET-CANARY
`
		if got := saved(); got != want {
			t.Errorf("chains:\n%s\nwant:\n%s", got, want)
		}
	}
	if !k.exists(t.Context(), Families[0], "mangle") {
		t.Error("the canary is not seen")
	}
	if code, out, err := inside(t.Context(), "iptables", "-w", "5", "-t", "mangle", "-X", canary); err != nil || code != 0 {
		t.Fatal(code, out, err)
	}
	if k.exists(t.Context(), Families[0], "mangle") {
		t.Error("the canary is seen after it was removed")
	}
}
