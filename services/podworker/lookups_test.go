// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"errors"
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
