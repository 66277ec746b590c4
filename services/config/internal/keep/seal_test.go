// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/store"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/refs"
	"github.com/sextant-node/sextant/services/config/internal/token"
)

// words of which none may be read in the file.
var words = []string{"hunter2", "a-config-map", "bearer-token", "environment-of-a-pod", "header-of-a-url"}

// place is a machine's folders.
type place struct {
	t    *testing.T
	keys Keys
	log  bytes.Buffer
}

func newPlace(t *testing.T) *place {
	dir := t.TempDir()
	p := &place{t: t, keys: Keys{State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run")}}
	return p
}

func (p *place) file() string { return filepath.Join(p.keys.State, File) }

func (p *place) open() *Keeper {
	p.t.Helper()
	k, damage, err := Open(store.Config{Path: p.file(), Log: slog.New(slog.NewTextHandler(&p.log, nil))}, p.keys)
	if err != nil || damage != nil {
		p.t.Fatalf("%v, %v", err, damage)
	}
	return k
}

func (p *place) close(k *Keeper) {
	p.t.Helper()
	if err := errors.Join(k.Flush(p.t.Context()), k.Close()); err != nil {
		p.t.Fatal(err)
	}
}

// fill keeps one record of each kind, a ConfigMap besides the Secret.
func fill(k *Keeper) {
	k.Objects.Put("Secret/ns/s", &configv1.Object{Kind: refs.Secret, Object: []byte(words[0])})
	k.Objects.Put("ConfigMap/ns/c", &configv1.Object{Kind: refs.ConfigMap, Object: []byte(words[1])})
	k.Tokens.Put("t", token.Token{Token: words[2]})
	k.Pods.Put("u", &configv1.DesiredPod{Pod: []byte(words[3])})
	k.Kubelet.Put("kubelet", &configv1.KubeletConfig{Config: []byte(words[4])})
}

// has is which of the words are kept.
func (p *place) has(k *Keeper) string {
	p.t.Helper()
	var found []string
	objects, err := k.Objects.All()
	for _, o := range objects {
		found = append(found, string(o.GetObject()))
	}
	tokens, tokensErr := k.Tokens.All()
	pods, podsErr := k.Pods.All()
	kubelet, kubeletErr := k.Kubelet.All()
	found = append(found, tokens["t"].Token, string(pods["u"].GetPod()), string(kubelet["kubelet"].GetConfig()))
	if err := errors.Join(err, tokensErr, podsErr, kubeletErr); err != nil {
		p.t.Fatal(err)
	}
	var all []string
	for _, word := range words {
		for _, f := range found {
			if f == word {
				all = append(all, word)
			}
		}
	}
	return strings.Join(all, " ")
}

// unreadable fails the test when the file holds any of the words as it is.
func (p *place) unreadable() {
	p.t.Helper()
	data, err := os.ReadFile(p.file())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, word := range words {
		if bytes.Contains(data, []byte(word)) {
			p.t.Errorf("%q can be read in the file", word)
		}
	}
}

func (p *place) there(path string) bool {
	p.t.Helper()
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.t.Fatal(err)
	}
	if err == nil && info.Mode().Perm() != 0o600 {
		p.t.Errorf("%s has mode %v", path, info.Mode())
	}
	return err == nil
}

// TestModes: what each keeps over a restart of the service and of the machine, and that
// nothing of it can be read in the file.
func TestModes(t *testing.T) {
	all := strings.Join(words, " ")
	public := strings.Join([]string{words[1], words[3], words[4]}, " ")
	for _, c := range []struct {
		mode             Mode
		restarted, afoot string // what is there in the next life, and after a boot
	}{{"", all, all}, {Disk, all, all}, {Boot, all, ""}, {Off, public, public}} {
		t.Run("mode "+string(c.mode), func(t *testing.T) {
			p := newPlace(t)
			p.keys.Mode = c.mode
			k := p.open()
			fill(k)
			p.close(k)
			p.unreadable()
			k = p.open()
			if got := p.has(k); got != c.restarted {
				t.Errorf("after a restart: %q, want %q", got, c.restarted)
			}
			p.close(k)
			if err := os.RemoveAll(p.keys.Run); err != nil {
				t.Fatal(err)
			}
			k = p.open()
			if got := p.has(k); got != c.afoot {
				t.Errorf("after a boot: %q, want %q", got, c.afoot)
			}
			p.close(k)
			if p.there(filepath.Join(p.keys.Run, KeyFile)) != (c.mode == Boot) || p.there(filepath.Join(p.keys.State, KeyFile)) == (c.mode == Boot) {
				t.Error("the key is in the wrong place")
			}
		})
	}
}

// TestOtherKeys: what was kept is there under another mode or key, and the former key
// is gone; Secrets go when they are not to be kept any more.
func TestOtherKeys(t *testing.T) {
	p := newPlace(t)
	k := p.open()
	fill(k)
	p.close(k)
	credentials := t.TempDir()
	all := strings.Join(words, " ")
	state, run := filepath.Join(p.keys.State, KeyFile), filepath.Join(p.keys.Run, KeyFile)
	for _, c := range []struct {
		what       string
		change     func()
		state, run bool // which key files there are then
	}{
		{"boot", func() { p.keys.Mode = Boot }, false, true},
		{"disk again", func() { p.keys.Mode = Disk }, true, false},
		{"a credential", func() {
			p.keys.Credentials = credentials
			if err := os.WriteFile(filepath.Join(credentials, Credential), []byte("sixteen bytes at least"), 0o400); err != nil {
				t.Fatal(err)
			}
		}, false, false},
	} {
		former, err := os.ReadFile(state)
		if err != nil {
			former, err = os.ReadFile(run)
		}
		if err != nil {
			t.Fatal(err)
		}
		before := p.record()
		c.change()
		k = p.open()
		if got := p.has(k); got != all {
			t.Errorf("%s: %q, want all", c.what, got)
		}
		p.close(k)
		p.unreadable()
		if p.there(state) != c.state || p.there(run) != c.run {
			t.Errorf("%s: a key in the state folder: %v, in the run folder: %v", c.what, p.there(state), p.there(run))
		}
		after, err := os.ReadFile(p.file())
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(after, former) || bytes.Contains(after, before) {
			t.Errorf("%s: what the former key sealed is in the file", c.what)
		}
	}
	p.keys.Mode = Off
	k = p.open()
	if got, want := p.has(k), strings.Join([]string{words[1], words[3], words[4]}, " "); got != want {
		t.Errorf("off: %q, want %q", got, want)
	}
	p.close(k)
}

// record is a Secret as it is in the file.
func (p *place) record() []byte {
	p.t.Helper()
	s, _, err := store.Open(store.Config{Path: p.file(), Schema: Schema})
	if err != nil {
		p.t.Fatal(err)
	}
	table := store.NewTable(s, "objects", raw())
	record, ok, err := table.Get("Secret/ns/s")
	if err := errors.Join(err, s.Close()); err != nil || !ok {
		p.t.Fatal(ok, err)
	}
	return record
}

// before writes a Secret and a token as a version did that knew no keys.
func (p *place) before() {
	p.t.Helper()
	s, _, err := store.Open(store.Config{Path: p.file(), Schema: Schema})
	if err != nil {
		p.t.Fatal(err)
	}
	objects := store.NewTable(s, "objects", store.Proto[*configv1.Object]())
	tokens := store.NewTable(s, "tokens", store.JSON[token.Token]())
	if err := errors.Join(objects.Put("s", &configv1.Object{Kind: refs.Secret, Object: []byte(words[0])}),
		tokens.Put("t", token.Token{Token: words[2]}), s.Close()); err != nil {
		p.t.Fatal(err)
	}
}

// TestRecordsOfBefore: a version that knew no keys wrote records as they are; they are
// read, and cannot be from then on.
func TestRecordsOfBefore(t *testing.T) {
	p := newPlace(t)
	p.before()
	k := p.open()
	if got := p.has(k); got != words[0]+" "+words[2] {
		t.Errorf("%q", got)
	}
	p.close(k)
	p.unreadable()
}

// TestALostKey is a lost file: its records go, and do not come back with the key. A copy
// of the file is kept with the key that was no key, and State tells where.
func TestALostKey(t *testing.T) {
	p := newPlace(t)
	k := p.open()
	fill(k)
	p.close(k)
	key := filepath.Join(p.keys.State, KeyFile)
	was, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	k = p.open()
	damage := k.store.State().Damage
	if damage == nil || !strings.Contains(damage.Cause.Error(), "5 records are sealed with a key that is gone") {
		t.Fatalf("damage %v", damage)
	}
	if asides, err := filepath.Glob(key + ".damaged-*"); err != nil || len(asides) != 1 {
		t.Errorf("damaged keys %v, %v", asides, err)
	}
	if got := p.has(k); got != "" {
		t.Errorf("%q is there", got)
	}
	p.close(k)
	if err := os.WriteFile(key, was, 0o600); err != nil {
		t.Fatal(err)
	}
	k = p.open()
	if got := p.has(k); got != "" {
		t.Errorf("with the key of before %q is there", got)
	}
	p.close(k)
	if err := os.Rename(damage.Aside, p.file()); err != nil {
		t.Fatal(err)
	}
	k = p.open()
	if got := p.has(k); got != strings.Join(words, " ") {
		t.Errorf("the copy and its key hold %q", got)
	}
	p.close(k)
}

// TestSomethingElseIsTheKey: what has the name is set aside.
func TestSomethingElseIsTheKey(t *testing.T) {
	p := newPlace(t)
	if err := os.MkdirAll(filepath.Join(p.keys.State, KeyFile, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		k := p.open()
		fill(k)
		p.close(k)
		p.unreadable()
	}
	k := p.open()
	if got := p.has(k); got != strings.Join(words, " ") {
		t.Errorf("%q", got)
	}
	p.close(k)
}

// TestAKeyThatCannotBeWritten: nothing is sealed with a key that the next life does not
// have; what is to be kept waits for it, and what was kept is as it was.
func TestAKeyThatCannotBeWritten(t *testing.T) {
	p := newPlace(t)
	p.before()
	t.Cleanup(func() { _ = fault.Set("") })
	for range 2 { // the first life ends before the key could be written
		if err := fault.Set("file.write=error(no room)"); err != nil {
			t.Fatal(err)
		}
		k := p.open()
		if got := p.has(k); got != words[0]+" "+words[2] {
			t.Errorf("%q", got)
		}
		k.Pods.Put("u", &configv1.DesiredPod{Pod: []byte(words[3])})
		now := k.Kubelet.Now("kubelet", &configv1.KubeletConfig{Config: []byte(words[4])})
		flush := k.Flush(t.Context())
		if now == nil || flush == nil || k.Unwritten() != 2 {
			t.Errorf("%v, %v, %d records wait", now, flush, k.Unwritten())
		}
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
	}
	k := p.open()
	k.Pods.Put("u", &configv1.DesiredPod{Pod: []byte(words[3])})
	if k.Flush(t.Context()) == nil {
		t.Error("written")
	}
	if err := fault.Set(""); err != nil {
		t.Fatal(err)
	}
	p.close(k)
	p.unreadable()
	k = p.open()
	if got := p.has(k); got != words[0]+" "+words[2]+" "+words[3] {
		t.Errorf("%q", got)
	}
	p.close(k)
}

// TestAnOlderVersion reads a file of this one as if nothing had been kept; what both wrote
// is there when this version is back.
func TestAnOlderVersion(t *testing.T) {
	p := newPlace(t)
	k := p.open()
	fill(k)
	p.close(k)
	var log bytes.Buffer
	s, damage, err := store.Open(store.Config{Path: p.file(), Schema: Schema, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil || damage != nil {
		t.Fatal(err, damage)
	}
	pods := store.NewTable(s, "pods", store.Proto[*configv1.DesiredPod]())
	tokens := store.NewTable(s, "tokens", store.JSON[token.Token]())
	seen, err := pods.All()
	seenTokens, tokensErr := tokens.All()
	if err := errors.Join(err, tokensErr); err != nil || len(seen)+len(seenTokens) != 0 || strings.Count(log.String(), "record skipped") != 2 {
		t.Errorf("%v %v %v\n%s", seen, seenTokens, err, log.String())
	}
	newer := token.Token{Token: "newer"}
	if err := errors.Join(tokens.Put("t", newer), s.Close()); err != nil {
		t.Fatal(err)
	}
	k = p.open()
	if got, want := p.has(k), strings.Join([]string{words[0], words[1], words[3], words[4]}, " "); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if all, err := k.Tokens.All(); err != nil || all["t"].Token != newer.Token {
		t.Errorf("tokens %v, %v", all, err)
	}
	p.close(k)
}

// TestARestartLeavesNothingBehind: what a life deleted, or sealed again and did not get to
// write again, is not in the file of the next.
func TestARestartLeavesNothingBehind(t *testing.T) {
	p := newPlace(t)
	k := p.open()
	fill(k)
	p.close(k)
	record := p.record()
	k = p.open()
	k.Objects.Delete("Secret/ns/s")
	p.close(k)
	holds := func() bool {
		data, err := os.ReadFile(p.file())
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(data, record)
	}
	if !holds() {
		t.Fatal("nothing was left behind: the test shows nothing")
	}
	p.close(p.open())
	if holds() {
		t.Error("what was deleted is in the file")
	}
}

// TestAKeyThatIsOfNoUse: a credential that is no key is said so, and another key takes
// its place.
func TestAKeyThatIsOfNoUse(t *testing.T) {
	p := newPlace(t)
	p.keys.Credentials = t.TempDir()
	if err := os.WriteFile(filepath.Join(p.keys.Credentials, Credential), []byte("short"), 0o400); err != nil {
		t.Fatal(err)
	}
	k := p.open()
	fill(k)
	p.close(k)
	p.unreadable()
	if want := "credential sextant.config-key has 5 bytes, at least 16 are needed"; !strings.Contains(p.log.String(), want) {
		t.Errorf("log: %s", p.log.String())
	}
}

// TestWhatIsDeletedGoes: an hour after a record was deleted the file does not hold it,
// not even sealed.
func TestWhatIsDeletedGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		k := p.open()
		fill(k)
		if err := k.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		rawObjects := store.NewTable(k.store, "objects", raw())
		record, ok, err := rawObjects.Get("Secret/ns/s")
		if err != nil || !ok {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- k.Run(ctx) }()
		k.Objects.Delete("Secret/ns/s")
		<-time.After(compactAfter + time.Second)
		synctest.Wait()
		data, err := os.ReadFile(p.file())
		if err != nil || bytes.Contains(data, record) {
			t.Errorf("what was deleted is in the file: %v", err)
		}
		if got := p.has(k); strings.Contains(got, words[0]) || !strings.Contains(got, words[1]) {
			t.Errorf("%q", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		p.close(k)
	})
}
