// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/rights.txt")

// stranger is a peer that is neither a service nor the operator.
const stranger Service = "stranger"

// TestRights compares what MayCall, MayRead and RightsOf answer for every peer with
// testdata/rights.txt. A right that is given or taken shows as a changed line there.
func TestRights(t *testing.T) {
	const golden = "testdata/rights.txt"
	got := rightsTable()
	if *update {
		if err := os.WriteFile(filepath.FromSlash(golden), got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(filepath.FromSlash(golden))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	have := slices.Collect(strings.Lines(string(want)))
	for line := range strings.Lines(string(got)) {
		if !slices.Contains(have, line) {
			t.Errorf("not in %s: %s", golden, line)
		}
	}
	for _, line := range have {
		if !bytes.Contains(got, []byte(line)) {
			t.Errorf("only in %s: %s", golden, line)
		}
	}
	t.Error("if the change is meant: go test ./pkg/house -update, and review the file")
}

// rightsTable asks for every right of every peer, strangers included.
func rightsTable() []byte {
	peers := append(Services(), Operator, stranger)
	var b bytes.Buffer
	b.WriteString("# What pkg/house allows. Written by go test ./pkg/house -update.\n")
	line := func(what string, may func(Service) bool) {
		var who []string
		for _, peer := range peers {
			if may(peer) {
				who = append(who, string(peer))
			}
		}
		if len(who) == len(peers)-1 && !slices.Contains(who, string(stranger)) {
			who = []string{"everybody"}
		}
		fmt.Fprintf(&b, "%s: %s\n", what, strings.Join(who, " "))
	}
	b.WriteString("\n# Methods and who may call them; everybody is every service and the operator.\n")
	for _, method := range slices.Sorted(maps.Keys(Methods())) {
		line(method, func(peer Service) bool { return MayCall(peer, method) })
	}
	b.WriteString("\n# Feeds and who may read them, the owner included.\n")
	for _, f := range Feeds() {
		line(f.Name, func(peer Service) bool { return MayRead(peer, f.Name) })
	}
	b.WriteString("\n# What processes may do beyond what their uids may.\n")
	for _, peer := range peers {
		r := RightsOf(peer)
		words := slices.Clone(r.Groups)
		for _, c := range r.Capabilities {
			words = append(words, c.String())
		}
		if r.RuntimeSocket {
			words = append(words, "runtime-socket")
		}
		if r.Gate != "" {
			words = append(words, "gate="+r.Gate)
		}
		fmt.Fprintf(&b, "%s: %s\n", peer, strings.Join(words, " "))
	}
	return bytes.ReplaceAll(b.Bytes(), []byte(": \n"), []byte(": -\n"))
}

// TestUnlistedIsRefused: a method, feed or peer that the tables do not have is
// nobody's.
func TestUnlistedIsRefused(t *testing.T) {
	for _, peer := range append(Services(), Operator, stranger, "*", "") {
		for _, method := range []string{"", "*", "/", "/runtime.v1.RuntimeService/RunPodSandbox", "/sextant.config.v1.ConfigService/token", "sextant.config.v1.ConfigService/Token"} {
			if MayCall(peer, method) {
				t.Errorf("%q may call %q", peer, method)
			}
		}
		for _, feed := range []string{"", "*", "config", "config.", "CONFIG.PODS"} {
			if MayRead(peer, feed) {
				t.Errorf("%q may read %q", peer, feed)
			}
		}
	}
	for _, peer := range []Service{stranger, "*", ""} {
		for method := range Methods() {
			if MayCall(peer, method) {
				t.Errorf("%q may call %s", peer, method)
			}
		}
		for _, f := range Feeds() {
			if MayRead(peer, f.Name) {
				t.Errorf("%q may read %s", peer, f.Name)
			}
		}
	}
}

// TestPeers: a uid speaks for the services that run under it, root for the
// operator as well, and any other for nobody.
func TestPeers(t *testing.T) {
	ids := Identities{Config: 64202, Status: 64207, NodeAPI: 64207}
	for uid, want := range map[uint32][]Service{
		64202: {Config}, 64207: {Status, NodeAPI}, 0: {Operator}, 64203: nil, ^uint32(0): nil,
	} {
		if got := ids.Peers(uid); !slices.Equal(got, want) {
			t.Errorf("uid %d speaks for %v, want %v", uid, got, want)
		}
	}
	ids[Bus] = 0
	if got := ids.Peers(0); !slices.Equal(got, []Service{Bus, Operator}) {
		t.Errorf("root speaks for %v", got)
	}
}

// TestReadIdentities: a file that is damaged or names what is no service is an
// error, and not a table with gaps.
func TestReadIdentities(t *testing.T) {
	path := filepath.Join(t.TempDir(), "identities.json")
	ids, err := ReadIdentities(path, 7)
	if err != nil || len(ids) != len(Services()) || ids[Config] != 7 {
		t.Errorf("without a file: %v, %v", ids, err)
	}
	for text, problem := range map[string]string{
		`{"config":5}`: "", `{"confg":5}`: `unknown service "confg"`, `{"operator":5}`: `unknown service "operator"`,
		``: "unexpected end", `{"config":-1}`: "cannot unmarshal", `{"config":4294967296}`: "cannot unmarshal",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ids, err := ReadIdentities(path, 7)
		if problem == "" {
			if err != nil || !maps.Equal(ids, Identities{Config: 5}) {
				t.Errorf("%s: %v, %v", text, ids, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), problem) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q and the file's name", text, err, problem)
		}
	}
}
