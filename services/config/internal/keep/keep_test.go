package keep

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/store"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

func openAt(t *testing.T, path string) *Keeper {
	t.Helper()
	k, damage, err := Open(store.Config{Path: path, Log: slog.New(slog.DiscardHandler)})
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
