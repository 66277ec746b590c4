package broker

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/services/podworker/internal/queue"
	"github.com/sextant-node/sextant/test/fakecri"
)

// TestStartsWaitForTheirTurn: what starts something waits while enough of that is
// under way, and nothing else does.
func TestStartsWaitForTheirTurn(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint(), Starts: queue.Rules{Limit: 1}}, everybody())
	stall := rt.Stall(fakecri.Match{Method: "RunPodSandbox"})
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	ended := make(chan error, 2)
	run := func(name string) {
		_, err := b.Runtime().RunPodSandbox(ctx, sandboxRequest(name))
		ended <- err
	}
	go run("slow")
	if err := rt.WaitFor(ctx, func() bool { return stall.Caught() == 1 }); err != nil {
		t.Fatal(err)
	}
	go run("next")
	for running, waiting := b.starts.Load(); running != 1 || waiting != 1; running, waiting = b.starts.Load() {
		if ctx.Err() != nil {
			t.Fatalf("%d run and %d wait, want one of each", running, waiting)
		}
		<-time.After(time.Millisecond)
	}
	if _, err := b.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); err != nil {
		t.Errorf("a question beside them: %v", err)
	}
	late, leave := context.WithCancel(ctx)
	leave()
	if _, err := b.Runtime().RunPodSandbox(late, sandboxRequest("gone")); status.Code(err) != codes.Canceled {
		t.Errorf("one whose caller left: %v", err)
	}
	stall.Release()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := len(rt.Sandboxes()); n != 2 {
		t.Errorf("%d sandboxes, want 2", n)
	}
}
