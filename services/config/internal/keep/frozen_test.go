// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/sextant-node/sextant/pkg/store"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/token"
	"github.com/sextant-node/sextant/test/frozen"
)

// TestFrozen: what released versions kept is read whole.
func TestFrozen(t *testing.T) {
	for version, path := range frozen.Files(t, File) {
		s := frozen.Open(t, path, Schema)
		pods := frozen.Messages[*configv1.DesiredPod](t, s, "pods")
		if len(pods) != 3 || len(pods["u1"].GetPod()) == 0 || !pods["u1"].GetSeenAt().IsValid() {
			t.Errorf("%s: %d pods, %v", version, len(pods), pods["u1"])
		}
		if o := frozen.Messages[*configv1.Object](t, s, "objects"); len(o) != 5 || o["Secret/ns/pull"].GetName() != "pull" || len(o["Secret/ns/pull"].GetObject()) == 0 {
			t.Errorf("%s: objects %v", version, o)
		}
		if c := frozen.Messages[*configv1.KubeletConfig](t, s, "kubelet")["kubelet"]; len(c.GetConfig()) == 0 {
			t.Errorf("%s: configuration %v", version, c)
		}
		tokens := frozen.Records[token.Token](t, s, "tokens")
		if k := tokens[`u1/ns/sa/app/3600/"a"`]; k.Token != "token-1-u1-a" || k.Expires.IsZero() {
			t.Errorf("%s: tokens %v", version, tokens)
		}
	}
	frozen.Shape[token.Token](t, "tokens")
}

// TestFrozenIsTakenUp: a keeper opens what released versions kept, and none of it is damage.
func TestFrozenIsTakenUp(t *testing.T) {
	for version, path := range frozen.Files(t, File) {
		k, damage, err := Open(store.Config{Path: path, Log: slog.New(slog.DiscardHandler)}, Keys{State: filepath.Dir(path), Run: t.TempDir()})
		if err != nil || damage != nil {
			t.Fatalf("%s: damage %v, %v", version, damage, err)
		}
		if pods, err := k.Pods.All(); err != nil || len(pods) != 3 {
			t.Errorf("%s: %d pods, %v", version, len(pods), err)
		}
		if tokens, err := k.Tokens.All(); err != nil || tokens[`u1/ns/sa/app/3600/"a"`].Token != "token-1-u1-a" {
			t.Errorf("%s: tokens %v, %v", version, tokens, err)
		}
		if data, err := os.ReadFile(path); err != nil || bytes.Contains(data, []byte("token-1-u1-a")) {
			t.Errorf("%s: the token can be read in the file, %v", version, err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}
