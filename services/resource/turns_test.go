// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/sextant-node/sextant/pkg/fault"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// TestAPodWhoseTurnLastsHoldsUpNoOther: while a verdict on a pod is being written, whatever
// takes the time, commands for every other pod are answered.
func TestAPodWhoseTurnLastsHoldsUpNoOther(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(burstable("victim", "3"), false)
	data, err := critical("system", "2").Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := fault.Set("resource.evict=pause"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fault.Set("") })
	ctx, stop := context.WithCancel(r.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = r.client.Admit(ctx, &resourcev1.AdmitRequest{Pod: data}) // its error is that of ctx, which the test ends
	}()
	r.Eventually("the verdict is being written", func() bool { return fault.Caught("resource.evict") > 0 })
	for i := range 512 { // so many that two share whatever is shared by some
		r.release(fmt.Sprint("u", i))
	}
	select {
	case <-over:
		t.Error("a command for another pod was answered when the verdict had been given up")
	default:
	}
	stop()
	<-over
}
