// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/store"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/token"
)

func openAt(t *testing.T, path string) *Keeper {
	t.Helper()
	dir := filepath.Dir(path)
	k, damage, err := Open(store.Config{Path: path, Log: slog.New(slog.DiscardHandler)}, Keys{State: dir, Run: filepath.Join(dir, "run")})
	if err != nil || damage != nil {
		t.Fatalf("open: %v, damage %v", err, damage)
	}
	return k
}

func object(text string) *configv1.Object { return &configv1.Object{Object: []byte(text)} }

func TestNewestValueOfEachKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", File)
	k := openAt(t, path)
	k.Objects.Put("a", object("1"))
	k.Objects.Put("a", object("2"))
	k.Objects.Put("b", object("3"))
	k.Pods.Put("a", &configv1.DesiredPod{Source: "api"})
	k.Objects.Delete("b")
	if err := k.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: Secrets are in it", info.Mode(), err)
	}
	k = openAt(t, path)
	all, err := k.Objects.All()
	if err != nil || len(all) != 1 || !proto.Equal(all["a"], object("2")) {
		t.Errorf("objects %v, %v", all, err)
	}
	pods, err := k.Pods.All()
	if err != nil || len(pods) != 1 {
		t.Errorf("pods %v, %v", pods, err)
	}
}

func TestFailedWriteIsTriedAgain(t *testing.T) {
	k := openAt(t, filepath.Join(t.TempDir(), File))
	if err := fault.Set("config.keep=1*error(disk full)"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fault.Set(""); err != nil {
			t.Error(err)
		}
	})
	k.Objects.Put("a", object("1"))
	if err := k.Flush(t.Context()); err == nil {
		t.Fatal("the fault did not show")
	}
	if all, err := k.Objects.All(); err != nil || len(all) != 0 {
		t.Fatalf("objects %v, %v", all, err)
	}
	if err := k.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := k.Objects.All(); err != nil || len(all) != 1 {
		t.Errorf("objects %v, %v", all, err)
	}
}

// TestLongKeys: the audience of a token and the selector of a ClusterTrustBundle are as long
// as the author of a pod likes. They are kept, found again, and removed.
func TestLongKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	k := openAt(t, path)
	tokens := []string{
		token.Request{PodUID: "u", Audiences: []string{strings.Repeat("a", 40<<10)}}.Key(),
		token.Request{PodUID: "u", Audiences: []string{strings.Repeat("a", 40<<10) + "b"}}.Key(),
	}
	for _, key := range tokens {
		k.Tokens.Put(key, token.Token{Token: key[len(key)-2:]})
	}
	if err := k.Objects.Now(strings.Repeat("o", 1<<20), object("1")); err != nil {
		t.Errorf("%.100s", err)
	}
	if err := k.Flush(t.Context()); err != nil {
		t.Fatalf("%.100s", err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k = openAt(t, path)
	objects, objectsErr := k.Objects.All()
	all, err := k.Tokens.All()
	if err != nil || objectsErr != nil || len(all) != 2 || len(objects) != 1 {
		t.Fatalf("%d tokens, %d objects, %v, %v", len(all), len(objects), err, objectsErr)
	}
	for key := range all { // what the cache knows it by after a restart
		k.Tokens.Delete(key)
	}
	k.Objects.Delete(strings.Repeat("o", 1<<20))
	if err := k.Flush(t.Context()); err != nil {
		t.Fatalf("%.100s", err)
	}
	objects, objectsErr = k.Objects.All()
	if all, err = k.Tokens.All(); err != nil || objectsErr != nil || len(all)+len(objects) > 0 {
		t.Errorf("%d tokens, %d objects, %v, %v", len(all), len(objects), err, objectsErr)
	}
}

// TestWritesKeepTheirOrder: a write that was asked for before another one of the same
// record never replaces it on the disk, whether it failed or is under way.
func TestWritesKeepTheirOrder(t *testing.T) {
	t.Cleanup(func() { _ = fault.Set("") })
	for name, before := range map[string]func(k *Keeper){
		"queued": func(*Keeper) {},
		"failed": func(k *Keeper) {
			if err := fault.Set("config.keep=1*error(disk full)"); err != nil {
				t.Fatal(err)
			}
			if err := k.Flush(t.Context()); err == nil {
				t.Fatal("the fault did not show")
			}
		},
	} {
		k := openAt(t, filepath.Join(t.TempDir(), File))
		k.Objects.Put("a", object("older"))
		before(k)
		if err := k.Objects.Now("a", object("newer")); err != nil {
			t.Fatal(err)
		}
		if err := k.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all, err := k.Objects.All(); err != nil || string(all["a"].GetObject()) != "newer" {
			t.Errorf("%s: objects %v, %v", name, all, err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNowWaitsForWhatIsUnderWay, and writes after it.
func TestNowWaitsForWhatIsUnderWay(t *testing.T) {
	k := openAt(t, filepath.Join(t.TempDir(), File))
	begun, goOn := make(chan struct{}), make(chan struct{})
	k.Behind.Put(k.Objects.id("a"), func(context.Context) error {
		close(begun)
		<-goOn
		return k.Objects.table.Put("a", object("older"))
	})
	flushed, now := make(chan error, 1), make(chan error, 1)
	go func() { flushed <- k.Flush(context.Background()) }()
	<-begun
	go func() { now <- k.Objects.Now("a", object("newer")) }()
	select {
	case err := <-now:
		t.Errorf("written before an older one: %v", err)
		now <- nil
	case <-time.After(50 * time.Millisecond): // a write takes a millisecond or so
	}
	close(goOn)
	if err := errors.Join(<-flushed, <-now); err != nil {
		t.Fatal(err)
	}
	if all, err := k.Objects.All(); err != nil || string(all["a"].GetObject()) != "newer" {
		t.Errorf("objects %v, %v", all, err)
	}
}

// TestNowIsTriedAgain: what could not be written at once is written later.
func TestNowIsTriedAgain(t *testing.T) {
	k := openAt(t, filepath.Join(t.TempDir(), File))
	save := errors.New("no room")
	k.seals.save = func() error { return save }
	if err := k.Objects.Now("a", object("1")); !errors.Is(err, save) || k.Unwritten() != 1 {
		t.Errorf("%v, %d wait", err, k.Unwritten())
	}
	save = nil
	if err := k.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := k.Objects.All(); err != nil || len(all) != 1 || k.Unwritten() != 0 {
		t.Errorf("objects %v, %v", all, err)
	}
}
