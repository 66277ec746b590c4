// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"path/filepath"
	"slices"
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
	run := func(ctx context.Context, name string) {
		_, err := b.Runtime().RunPodSandbox(ctx, sandboxRequest(name))
		ended <- err
	}
	go run(ctx, "slow")
	if err := rt.WaitFor(ctx, func() bool { return stall.Caught() == 1 }); err != nil {
		t.Fatal(err)
	}
	told := make(chan bool, 2)
	go run(queue.Tell(ctx, func(waiting bool) { told <- waiting }), "next")
	if !<-told {
		t.Error("the first that is told of a wait is its end")
	}
	if running, waiting := b.turns[starting].queue.Load(); running != 1 || waiting != 1 {
		t.Fatalf("%d run and %d wait, want one of each", running, waiting)
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
	if <-told {
		t.Error("a wait that was over was told again")
	}
	if n := len(rt.Sandboxes()); n != 2 {
		t.Errorf("%d sandboxes, want 2", n)
	}
}

// TestRemovalsWaitForTheirTurn: a start does not wait behind all that is being removed.
func TestRemovalsWaitForTheirTurn(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint(), Removals: queue.Rules{Limit: 2}}, everybody())
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	stall := rt.Stall(fakecri.Match{Method: "RemovePodSandbox"})
	ended, told := make(chan error, 5), make(chan bool, 6)
	waits := queue.Tell(ctx, func(waiting bool) { told <- waiting })
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		resp, err := b.Runtime().RunPodSandbox(ctx, sandboxRequest(name))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := b.Runtime().RemovePodSandbox(waits, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: resp.GetPodSandboxId()})
			ended <- err
		}()
	}
	for range 3 {
		if !<-told {
			t.Error("the first that is told of a wait is its end")
		}
	}
	if n := stall.Caught(); n != 2 {
		t.Errorf("%d are being removed, want 2", n)
	}
	if _, err := b.Runtime().RunPodSandbox(ctx, sandboxRequest("new")); err != nil {
		t.Errorf("a start beside them: %v", err)
	}
	stall.Release()
	for range 5 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestACallThatMakesSomethingMayFinish: one whose caller gives up has some time to end,
// and then its caller knows what it made; one that hangs is cancelled.
func TestACallThatMakesSomethingMayFinish(t *testing.T) {
	for _, test := range []struct {
		name   string
		finish time.Duration
		want   codes.Code
	}{
		{"ends in time", patienceOfTests, codes.OK},
		{"hangs", time.Millisecond, codes.Canceled},
	} {
		t.Run(test.name, func(t *testing.T) {
			rt := fakecri.Start(t, fakecri.Config{})
			b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint(), Finish: test.finish}, everybody())
			stall := rt.Stall(fakecri.Match{Method: "RunPodSandbox"})
			defer stall.Release()
			ctx, giveUp := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				resp, err := b.Runtime().RunPodSandbox(ctx, sandboxRequest("a"))
				if err == nil && resp.GetPodSandboxId() == "" {
					t.Error("no ID")
				}
				ended <- err
			}()
			if err := stall.Wait(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			giveUp()
			if test.want == codes.OK {
				stall.Release()
			}
			if err := <-ended; status.Code(err) != test.want {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}

// TestStopsWaitForTheirTurn: those of less grace come first, and what a stop may take counts
// from its turn.
func TestStopsWaitForTheirTurn(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint(), Stops: queue.Rules{Limit: 1}}, everybody())
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	match := fakecri.Match{Method: "StopContainer"}
	stall := rt.Stall(match)
	ended := make(chan error, 3)
	told := make(chan bool, 4)
	stop := func(ctx context.Context, grace int64) {
		_, err := b.Runtime().StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: "gone", Timeout: grace})
		ended <- err
	}
	go stop(ctx, 30)
	if err := stall.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	for _, grace := range []int64{20, 1} {
		go stop(queue.Tell(ctx, func(waiting bool) { told <- waiting }), grace)
		if !<-told {
			t.Fatal("the first that is told of a wait is its end")
		}
	}
	stall.Release()
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	var order []int64
	for _, call := range rt.Calls(match) {
		order = append(order, call.Request.(*runtimeapi.StopContainerRequest).GetTimeout())
	}
	if want := []int64{30, 1, 20}; !slices.Equal(order, want) {
		t.Errorf("stopped in the order of grace %v, want %v", order, want)
	}
}

// TestAStopThatHangs ends after its grace and what any call may take, and so does the one that
// has waited for it as long.
func TestAStopThatHangs(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	limit := func() time.Duration { return 10 * time.Millisecond }
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint(), Stops: queue.Rules{Limit: 1}, Timeout: limit}, everybody())
	stall := rt.Stall(fakecri.Match{Method: "StopContainer"})
	defer stall.Release()
	ended := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := b.Runtime().StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: "gone"})
			ended <- err
		}()
	}
	for range 2 {
		if err := <-ended; status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%v, want DeadlineExceeded", err)
		}
	}
	if n := stall.Caught(); n != 2 {
		t.Errorf("the runtime was asked for %d stops, want 2", n)
	}
}

// TestStopsBesideOneThatTakesItsTime begin while there are processors to spare.
func TestStopsBesideOneThatTakesItsTime(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	rules := queue.Rules{Limit: 1, Patience: time.Hour, Spare: time.Millisecond}
	b, _ := serveAt(t, Config{RuntimeEndpoint: rt.Endpoint(), Socket: filepath.Join(t.TempDir(), "cri.sock"), Stops: rules},
		Deps{Identities: everybody(), Spare: func() bool { return true }})
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	stall := rt.Stall(fakecri.Match{Method: "StopContainer"})
	defer stall.Release()
	for range 3 {
		go b.Runtime().StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: "gone"}) //nolint:errcheck // it is cancelled
	}
	if err := stall.Wait(ctx, 3); err != nil {
		t.Fatal(err)
	}
}

// TestRunnable reads what the kernel says (proc_loadavg(5)).
func TestRunnable(t *testing.T) {
	for text, want := range map[string]int{
		"0.20 0.18 0.12 1/80 11206\n": 1, "35.10 20.00 9.99 417/5123 99\n": 417,
		"": -1, "0.20 0.18 0.12": -1, "0.20 0.18 0.12 many/80 1": -1, "0.20 0.18 0.12 80 1": -1,
	} {
		if n, ok := runnable(text); ok != (want >= 0) || ok && n != want {
			t.Errorf("%q: %d %v, want %d", text, n, ok, want)
		}
	}
}
