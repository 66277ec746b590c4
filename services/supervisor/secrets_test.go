// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/uids"
)

// TestPlanKeepsSecrets: of what may hold credentials in the flags, other uids find
// nothing below the run directory and the state, and each service has what it needs.
func TestPlanKeepsSecrets(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	const secret, password = "Bearer-s3cret", "pa55"
	top := uids.Folder(t)
	p := &Plan{
		Run: filepath.Join(top, "run"), State: filepath.Join(top, "state"), UIDBase: 64200, LogLevel: "info", NodeName: "n1",
		Bus:     "nats://user:" + password + "@127.0.0.1:4222",
		Kubelet: []string{"--v=2", "--manifest-url-header=Authorization:" + secret, "--manifest-url-header", "X-Token:" + secret, "--node-labels=a=b"},
	}
	for _, dir := range []string{p.Run, p.State} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func() {
		t.Helper()
		if err := p.Write(); err != nil {
			t.Fatal(err)
		}
		if err := p.Keep(); err != nil {
			t.Fatal(err)
		}
	}
	write()
	read := func(uid uint32, s house.Service) (args []string) {
		t.Helper()
		if err := uids.As(uid, func() error {
			have, err := ReadPlan(p.Run)
			if err == nil {
				args = have.Args(s)
			}
			return err
		}); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		return args
	}
	for _, s := range house.Services() {
		if got := read(p.account(s).UID, s); s != house.Bus && !slices.Equal(got, p.Args(s)) {
			t.Errorf("%s is started with %q, want %q", s, got, p.Args(s))
		}
		// Nor does a service see what is another's.
		if all := strings.Join(read(p.account(s).UID, house.Config), " "); strings.Contains(all, secret) != (s == house.Config) {
			t.Errorf("%s knows config's flags as %s", s, all)
		}
	}
	if err := uids.As(65534, func() error {
		return filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if data, err := os.ReadFile(path); err == nil && (strings.Contains(string(data), secret) || strings.Contains(string(data), password)) {
				t.Errorf("anybody reads a secret in %s", path)
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	for name, get := range map[string]func() (*Plan, error){"the plan": func() (*Plan, error) { return ReadPlan(p.Run) }, "the kept plan": func() (*Plan, error) { return ReadKeptPlan(p.State) }} {
		if have, err := get(); err != nil || !reflect.DeepEqual(have, p) {
			t.Errorf("%s for root: %+v, %v", name, have, err)
		}
	}
	// The next plan has none.
	p.Bus, p.Kubelet = "", p.Kubelet[:1]
	write()
	if have, err := ReadPlan(p.Run); err != nil || !reflect.DeepEqual(have, p) {
		t.Errorf("without secrets: %+v, %v", have, err)
	}
	if left, err := os.ReadDir(filepath.Dir(secretFile(p.State, ""))); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestConceal(t *testing.T) {
	for url, want := range map[string]string{
		"": "", "off": "off", "nats://127.0.0.1:4222": "nats://127.0.0.1:4222", "nats://u:p@h:1": "nats://h:1", "nats://token@h:1": "nats://h:1", "tls://u:p@h:1,nats://v:q@i:2,w@j": "tls://h:1,nats://i:2,j", "nats://u:p/@w@h:1": "nats://h:1",
	} {
		if got := concealURL(url); got != want {
			t.Errorf("%q becomes %q, want %q", url, got, want)
		}
	}
	for _, args := range [][]string{{"--manifest-url-header"}, {"--manifest-url-header="}, {"manifest-url-header=x"}} {
		if got := concealFlags(args); len(got) != len(args) {
			t.Errorf("%q becomes %q", args, got)
		}
	}
}
