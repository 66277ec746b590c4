// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/test/feedtest"
)

// TestObjectsThatComeAfterThePod: an actuator waits for a Secret that is read soon, and not
// for ever for one that is not.
func TestObjectsThatComeAfterThePod(t *testing.T) {
	secret, err := (&v1.Secret{Data: map[string][]byte{"key": []byte("value")}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		owner := feed.NewOwner[*configv1.Object](house.ConfigSecrets.Name, "e1", nil)
		owner.SetComplete(ctx, true)
		replica := feed.NewReplica(feed.ReplicaConfig{
			Feed: owner.Name(), Puller: feedtest.Local{owner.Name(): owner}, Poll: 10 * time.Millisecond,
		}, feed.Decoder(decodeObject))
		ended := make(chan error, 1)
		go func() { ended <- replica.Run(ctx) }()
		l := &lookups{in: &Inputs{Secrets: replica}}

		began := time.Now()
		if _, err := l.Secret("default", "never"); !errors.Is(err, errNotRead) || time.Since(began) < objectPatience || time.Since(began) > 2*objectPatience {
			t.Errorf("one that is never read: %v after %s", err, time.Since(began))
		}
		time.AfterFunc(objectPatience/2, func() {
			if _, err := owner.Set(ctx, "Secret/default/late", &configv1.Object{Kind: "Secret", Namespace: "default", Name: "late", Object: secret}); err != nil {
				t.Error(err)
			}
		})
		if s, err := l.Secret("default", "late"); err != nil || string(s.Data["key"]) != "value" {
			t.Errorf("one that is read soon: %v, %v", s, err)
		}
		cancel()
		<-ended
	})
}

// TestDockerConfig: what config hands on counts; while it has not, the file does, if it can
// be read.
func TestDockerConfig(t *testing.T) {
	handed, err := (&v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte("handed on")}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	file := func(t *testing.T) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, house.DockerConfig), []byte("the file"), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	unreadable := func(t *testing.T) string {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, house.DockerConfig), 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for name, tc := range map[string]struct {
		item *configv1.Object
		root func(*testing.T) string
		want string
		err  bool
	}{
		"handed on":                    {&configv1.Object{Kind: "Secret", Object: handed}, file, "handed on", false},
		"config cannot read it":        {&configv1.Object{Kind: "Secret", Error: "too long"}, file, "", true},
		"not handed on":                {nil, file, "the file", false},
		"not handed on, and none":      {nil, (*testing.T).TempDir, "", false},
		"not handed on, or to be read": {nil, unreadable, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			owner := feed.NewOwner[*configv1.Object](house.ConfigSecrets.Name, "e1", nil)
			if tc.item != nil {
				if _, err := owner.Set(t.Context(), "Secret//"+house.DockerConfig, tc.item); err != nil {
					t.Fatal(err)
				}
			}
			replica := feed.NewReplica(feed.ReplicaConfig{Feed: owner.Name(), Puller: feedtest.Local{owner.Name(): owner}}, feed.Decoder(decodeObject))
			if err := replica.Pull(t.Context()); err != nil {
				t.Fatal(err)
			}
			l := &lookups{in: &Inputs{Secrets: replica}, rootDir: tc.root(t)}
			if got, err := l.DockerConfig(); string(got) != tc.want || (err != nil) != tc.err {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
