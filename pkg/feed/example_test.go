// SPDX-License-Identifier: Apache-2.0

package feed_test

import (
	"context"
	"fmt"

	"github.com/sextant-node/sextant/pkg/feed"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	"github.com/sextant-node/sextant/test/feedtest"
)

// The owner sets and deletes items; a reader in another service pulls what has changed.
// Services make both with service.Owner and service.Replica, whose Run pulls after each
// announcement; here the reader pulls by hand and in process.
func Example() {
	ctx := context.Background()
	owner := feed.NewOwner[*proberv1.PodVerdicts]("prober.verdicts", "epoch-1", nil)
	replica := feed.NewReplica(feed.ReplicaConfig{
		Feed: owner.Name(), Puller: feedtest.Local{owner.Name(): owner},
	}, feed.Decoder(feed.Whole[*proberv1.PodVerdicts]))
	replica.Watch(func(keys []string) {
		if len(keys) > 0 { // none: not items have changed, but what is known of them all
			fmt.Println("changed:", keys)
		}
	})
	pull := func() {
		if err := replica.Pull(ctx); err != nil {
			fmt.Println(err)
		}
	}

	if _, err := owner.Set(ctx, "a", &proberv1.PodVerdicts{Uid: "a"}); err != nil {
		fmt.Println(err)
	}
	pull()
	_, there, known := replica.Lookup("b")
	fmt.Println("b is there:", there, "and that is known:", known)

	owner.SetComplete(ctx, true) // the service has read everything there is
	pull()
	_, there, known = replica.Lookup("b")
	fmt.Println("b is there:", there, "and that is known:", known)

	owner.Delete(ctx, "a")
	pull()
	fmt.Println("items:", len(replica.Items()))
	// Output:
	// changed: [a]
	// b is there: false and that is known: false
	// b is there: false and that is known: true
	// changed: [a]
	// items: 0
}
