// SPDX-License-Identifier: Apache-2.0

package signal_test

import (
	"context"
	"fmt"

	"github.com/sextant-node/sextant/pkg/signal"
)

// A loop that keeps a set of names and handles all of them in one pass.
func Example() {
	names := signal.NewKeys()
	names.Mark([]string{"a"})
	names.Mark([]string{"b", "a"}) // before the loop looks: still one signal

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-names.Wake:
			fmt.Println("to handle:", names.Take())
			names.Keep("b") // not yet possible: tried again in the next pass
			fmt.Println("woken again:", names.Wake.Pending())
			stop()
		}
	}
	fmt.Println("left:", names.Take())
	// Output:
	// to handle: map[a:true b:true]
	// woken again: false
	// left: map[b:true]
}
